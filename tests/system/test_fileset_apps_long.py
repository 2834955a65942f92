# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL, and git on this whole repository, on a mounted file set; naos-fs is killed in the midst."""
import glob
import os
import pwd
import signal
import subprocess
import time

import pytest

import conftest
import fileset_mount
from test_fileset_apps import git, mount  # noqa: fixtures

pytestmark = pytest.mark.skipif(fileset_mount.missing() is not None, reason=str(fileset_mount.missing()))
PATIENCE_S = 900  # on a machine that does much else
POSTGRES = next(iter(sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)), None)


def test_git_clones_collects_and_checks_this_repository(mount, git):
    if not (conftest.SOURCE / ".git").exists():
        pytest.skip("the source is no git repository")
    git("/", "clone", "-q", "--no-local", conftest.SOURCE, mount.path / "clone")
    git(mount.path / "clone", "gc", "-q", "--prune=now")
    git(mount.path / "clone", "fsck", "--full", "--strict")
    mount.kill()
    mount.start()
    git(mount.path / "clone", "fsck", "--full", "--strict")
    assert git(mount.path / "clone", "status", "--porcelain") == ""
    assert git(mount.path / "clone", "rev-parse", "HEAD") == git(conftest.SOURCE, "rev-parse", "HEAD")


class Postgres:
    """A private server that listens on a socket only, as an ordinary user."""

    def __init__(self, data, sockets, user):
        self.data, self.sockets, self.user = data, sockets, user
        self.process = None

    def words(self, program, *words):
        return ["setpriv", f"--reuid={self.user.pw_uid}", f"--regid={self.user.pw_gid}", "--clear-groups", f"{POSTGRES}/{program}", *map(str, words)]

    def run(self, program, *words):
        done = subprocess.run(self.words(program, *words), capture_output=True, text=True, timeout=PATIENCE_S, cwd="/", env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"})
        log = self.sockets / "log"
        assert done.returncode == 0, f"{program} {words}: {done.stdout}{done.stderr}\n{log.read_text() if log.exists() else ''}"
        return done.stdout

    def sql(self, text):
        return self.run("psql", "-h", self.sockets, "-U", "tester", "-d", "postgres", "-qtAc", text).strip()

    def start(self):
        end = time.monotonic() + PATIENCE_S  # shared memory of what was killed may be in use for a while: its processes die one by one
        while not self.start_once(end):
            time.sleep(0.5)

    def start_once(self, end):
        log = open(self.sockets / "log", "ab")
        before = log.tell()
        self.process = subprocess.Popen(self.words("postgres", "-D", self.data, "-k", self.sockets, "-c", "listen_addresses=", "-c", "shared_buffers=16MB"),
                                        stdout=log, stderr=log, cwd="/", env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"})
        log.close()
        while time.monotonic() < end:
            if subprocess.run(self.words("pg_isready", "-q", "-h", self.sockets), cwd="/").returncode == 0:
                return True
            if self.process.poll() is not None and b"still in use" in (self.sockets / "log").read_bytes()[before:]:
                return False
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise AssertionError(f"the server did not start ({self.process.poll()}): " + (self.sockets / "log").read_text())

    def stop(self, hard=False):
        if self.process and self.process.poll() is None:
            children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True).stdout.split()
            self.process.send_signal(signal.SIGKILL if hard else signal.SIGINT)
            self.process.wait(timeout=PATIENCE_S)
            for child in children if hard else []:
                try:
                    os.kill(int(child), signal.SIGKILL)
                except ProcessLookupError:
                    pass


def test_postgresql_recovers_what_was_committed(mount, tmp_path):
    if not POSTGRES:
        pytest.skip("PostgreSQL is not installed")
    if os.getuid() != 0:
        pytest.skip("only root can become the user of a server")
    user = pwd.getpwnam("nobody")
    sockets = tmp_path / "sockets"
    for directory in (mount.path / "pg", sockets):
        directory.mkdir()
        os.chown(directory, user.pw_uid, user.pw_gid)
    server = Postgres(mount.path / "pg/data", sockets, user)
    try:
        server.run("initdb", "-U", "tester", "-A", "trust", "--no-locale", "-k", "-D", server.data)
        server.start()
        server.run("pgbench", "-i", "-q", "-s", "1", "-h", sockets, "-U", "tester", "postgres")
        server.sql("create table acknowledged(id int primary key)")
        bench = subprocess.Popen(server.words("pgbench", "-c", "2", "-T", "60", "-h", sockets, "-U", "tester", "postgres"), stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, cwd="/")
        said = []
        for i in range(20):
            server.sql(f"insert into acknowledged values({i})")
            said.append(i)
        mount.process.kill()
        mount.process.wait()
        bench.kill()
        bench.wait()
        server.stop(hard=True)
        subprocess.run(["fusermount3", "-u", "-z", str(mount.path)], check=True, timeout=60)
        mount.start()
        server.start()
        assert [int(line) for line in server.sql("select id from acknowledged order by 1").split()] == said
        sums = server.sql("select (select sum(abalance) from pgbench_accounts), (select sum(bbalance) from pgbench_branches), "
                          "(select coalesce(sum(delta), 0) from pgbench_history)").split("|")
        assert sums[0] == sums[1] == sums[2], sums
        server.sql("reindex database postgres")
        server.stop()
        server.run("pg_checksums", "--check", "-D", server.data)
    finally:
        server.stop(hard=True)

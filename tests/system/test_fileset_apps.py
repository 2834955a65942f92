# SPDX-License-Identifier: Apache-2.0
"""Programs that people run work on a mounted file set, and what they made durable is there after naos-fs was killed in the midst."""
import hashlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

import apps_help
import conftest
import fileset_mount

pytestmark = pytest.mark.skipif(fileset_mount.missing() is not None, reason=str(fileset_mount.missing()))


@pytest.fixture
def mount(tmp_path):
    for path in [tmp_path, *tmp_path.parents][:3]:  # an ordinary user must get here
        if os.getuid() == 0 and str(path) != "/tmp":
            path.chmod(path.stat().st_mode | 0o011)
    with fileset_mount.Mount(tmp_path) as mounted:
        yield mounted
        subprocess.run(["ls", "-lR", str(mounted.path)], check=True, stdout=subprocess.DEVNULL)  # what was being made at a kill goes
        mounted.stop()
        assert '"failed":0' in mounted.naos("verify", mounted.below, "--json").replace(" ", "")


def start(name, directory, *words):
    return subprocess.Popen([sys.executable, apps_help.__file__, name, str(directory), *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def kill_in_the_midst(mount, processes, lines):
    """Kills naos-fs once each process has acknowledged so many things; mounts again.  All that was acknowledged, by process."""
    said = [[process.stdout.readline().strip() for _ in range(lines)] for process in processes]
    assert all(all(words) for words in said), "a process ended early"
    mount.process.send_signal(signal.SIGKILL)
    mount.process.wait(timeout=60)
    for process, words in zip(processes, said):
        rest = process.communicate(timeout=120)[0].split("\n")
        words += [word for word in rest[:-1] if word]  # a last line without its end was not said
        assert process.returncode != 0
    subprocess.run(["fusermount3", "-u", "-z", str(mount.path)], check=True, timeout=60)
    mount.start()
    return said


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_sqlite_keeps_what_two_processes_committed(mount, journal):
    directory = mount.path / "db"
    directory.mkdir()
    for _ in range(2):
        said = kill_in_the_midst(mount, [start("sqlite", directory, journal) for _ in range(2)], 15)
        db = sqlite3.connect(directory / "db", timeout=60)
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        kept = {key for (key,) in db.execute("select id from rows")}
        assert {int(key) for words in said for key in words} <= kept
        assert db.execute("select process, count(*) from rows group by process order by 1").fetchall() == db.execute(
            "select process, count from sums order by 1").fetchall(), "half a transaction"
        db.close()


def test_hdf5_files_are_whole(mount):
    numpy, h5py = pytest.importorskip("numpy"), pytest.importorskip("h5py", reason="h5py is not installed")
    directory = mount.path / "h5"
    directory.mkdir()
    (said,) = kill_in_the_midst(mount, [start("hdf5", directory)], 8)
    for number in map(int, said):
        with h5py.File(directory / f"{number}.h5") as file:
            assert file.attrs["number"] == number
            for row in range(0, 200, 20):
                assert (file["data"][row:row + 20] == numpy.arange(20 * 300).reshape(20, 300) * number + row).all()


@pytest.fixture
def git():
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    return apps_help.git


def test_git_commits_outlive_a_kill(mount, git):
    directory = mount.path / "work"
    directory.mkdir()
    git(directory, "init", "-q")
    (said,) = kill_in_the_midst(mount, [start("commits", directory)], 10)
    git(directory, "fsck", "--full", "--strict")
    for revision in said:
        assert git(directory, "cat-file", "-t", revision) == "commit"
    history = git(directory, "rev-list", "HEAD").split()
    assert set(said) <= set(history)
    for lock in directory.glob(".git/**/*.lock"):
        lock.unlink()
    for path in directory.iterdir():  # a file that was being made when naos-fs was killed goes when it is looked at, between git's two looks
        path.exists()
    (directory / "more").write_text("x")
    git(directory, "add", "-A"), git(directory, "commit", "-q", "-m", "after the crash"), git(directory, "gc", "-q"), git(directory, "fsck", "--full")


def write_project(directory):
    """Part of this repository as a project of its own: compile each file of lib/base, make an archive."""
    shutil.copytree(conftest.SOURCE / "lib", directory / "lib")
    shutil.copytree(conftest.SOURCE / "include", directory / "include")
    sources = [path for path in sorted((directory / "lib/base").glob("*.c")) if path.name != "confine.c"]
    rules = ["rule cc\n  command = gcc -O1 -std=gnu17 -D_GNU_SOURCE -Ilib -Iinclude -MD -MF $out.d -c $in -o $out\n  depfile = $out.d\n  deps = gcc",
             "rule ar\n  command = rm -f $out && ar crD $out $in"]
    rules += [f"build {path.stem}.o: cc {path.relative_to(directory)}" for path in sources]
    rules += ["build all.a: ar " + " ".join(f"{path.stem}.o" for path in sources), ""]
    (directory / "build.ninja").write_text("\n".join(rules))


def test_a_project_compiles_to_the_same(mount, tmp_path):
    if not shutil.which("ninja") or not shutil.which("gcc"):
        pytest.skip("gcc or ninja is not installed")
    native, mounted = tmp_path / "native", mount.path / "project"
    for directory in (native, mounted):
        directory.mkdir()
        write_project(directory)
    subprocess.run(["ninja", "-C", native], check=True, stdout=subprocess.DEVNULL)
    with subprocess.Popen(["ninja", "-C", mounted], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as build:
        while not len(list(mounted.glob("*.o"))) >= 4:
            time.sleep(0.01)
        mount.process.kill()
        mount.process.wait()
        build.communicate(timeout=120)
    subprocess.run(["fusermount3", "-u", "-z", str(mount.path)], check=True, timeout=60)
    mount.start()
    subprocess.run(["ninja", "-C", mounted], check=True, stdout=subprocess.DEVNULL)
    assert hashlib.sha256((mounted / "all.a").read_bytes()).digest() == hashlib.sha256((native / "all.a").read_bytes()).digest()
    assert b"no work to do" in subprocess.run(["ninja", "-C", mounted], check=True, stdout=subprocess.PIPE).stdout

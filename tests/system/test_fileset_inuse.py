# SPDX-License-Identifier: Apache-2.0
"""naos fileset check, rekey and migrate on a file set that is mounted and in use, and after naos-fs was killed."""
import os
import subprocess
import threading
import time

import pytest

import conftest
import fileset_mount
from seal_help import content, sealed, temporaries

pytestmark = pytest.mark.skipif(fileset_mount.missing() is not None, reason=str(fileset_mount.missing()))


class InUse(fileset_mount.Mount):
    """A mount whose files are sealed soon after their last close, and the verbs of its file set."""

    def __init__(self, directory):
        super().__init__(directory)
        self.config.write_text(self.config.read_text() + "seal-delay = 1s\n")

    def verb(self, verb, *words):
        return subprocess.run([conftest.NAOS, "fileset", verb, self.name, *map(str, words), "--config", str(self.config)], env=self.env,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)

    def ok(self, verb, *words):
        done = self.verb(verb, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def id_of(self, name):
        with open(self.below / name, "rb") as file:
            return file.read(32)[16:]


@pytest.fixture
def mount(tmp_path):
    with InUse(tmp_path) as mounted:
        yield mounted


def test_files_that_are_open_are_no_damage(mount):
    (mount.path / "closed").write_bytes(content(50_000))
    with open(mount.path / "open", "wb") as file:
        file.write(content(50_000))
        file.flush()
        for words in ((), ("--keyless",), ("--repair",)):
            mount.ok("check", *words)
        file.write(b"more")
    assert (mount.path / "open").read_bytes() == content(50_000) + b"more"


def test_check_beside_writers_finds_nothing(mount):
    stop, failures = threading.Event(), []

    def write(number):
        turn = 0
        while not stop.is_set():
            name = mount.path / f"file-{number}-{turn % 7}"
            data = content(3000 * (turn % 30), turn)
            try:
                name.write_bytes(data)
                if turn % 3 == 0:
                    os.rename(name, mount.path / f"renamed-{number}")
                elif turn % 3 == 1:
                    name.unlink()
                elif name.read_bytes() != data:
                    failures.append(name)
            except OSError as error:
                failures.append((name, error))
            turn += 1

    writers = [threading.Thread(target=write, args=(i,)) for i in range(2)]
    for writer in writers:
        writer.start()
    for turn in range(12):
        done = mount.verb("check", *(("--keyless",), (), ("--repair",))[turn % 3])
        if done.returncode != 0:
            failures.append(done.stderr)
    stop.set()
    for writer in writers:
        writer.join()
    assert failures == []
    assert not (mount.below / ".naos-lost").exists()


def test_rekeyed_below_while_users_work_above(mount):
    for i in range(20):
        (mount.path / f"file-{i}").write_bytes(content(30_000, i))
    before = {f"file-{i}": mount.id_of(f"file-{i}") for i in range(20)}
    with open(mount.path / "file-0", "r+b") as user:
        user.read(10)
        done = mount.verb("rekey", "--passes", "6")
        assert done.returncode == 1 and "file-0 is open for writing" in done.stderr, done.stderr
        assert mount.id_of("file-0") == before["file-0"]
        user.seek(100)
        user.write(b"written meanwhile")
    for i in range(1, 20):
        assert mount.id_of(f"file-{i}") != before[f"file-{i}"]
        assert (mount.path / f"file-{i}").read_bytes() == content(30_000, i)
        assert "user.naos.rekeyed" in os.listxattr(mount.below / f"file-{i}") and os.listxattr(mount.path / f"file-{i}") == []
        with open(mount.path / f"file-{i}", "r+b") as file:  # the user's view leads to the new file
            file.write(b"new")
    mount.ok("rekey", "--passes", "20")
    assert mount.id_of("file-0") != before["file-0"]
    assert (mount.path / "file-0").read_bytes()[100:117] == b"written meanwhile"
    for i in range(1, 20):
        assert (mount.path / f"file-{i}").read_bytes() == b"new" + content(30_000, i)[3:]
    mount.stop()
    assert '"failed":0' in mount.ok("check", "--json").stdout
    assert temporaries(mount.below) == []
    mount.start()


def test_writers_and_rekeying_at_once_lose_nothing(mount):
    """A counter per file, read and written anew through the mount, while all files are rekeyed again and again."""
    names = [mount.path / f"counter-{i}" for i in range(6)]
    for name in names:
        name.write_bytes(b"%08d" % 0 + content(20_000))
    stop, counts, failures = threading.Event(), [0] * len(names), []

    def count(i):
        while not stop.is_set():
            try:
                with open(names[i], "r+b") as file:
                    found = int(file.read(8))
                    if found != counts[i]:
                        failures.append((names[i], found, counts[i]))
                    file.seek(0)
                    file.write(b"%08d" % (found + 1))
                counts[i] += 1
            except OSError as error:
                failures.append((names[i], error))
            time.sleep(2.5)  # longer than the delay of sealing: between two openings the file can be had

    writers = [threading.Thread(target=count, args=(i,)) for i in range(len(names))]
    for writer in writers:
        writer.start()
    ids = [mount.id_of(name.name) for name in names]
    for _ in range(20):
        mount.verb("rekey", "--since", "2100-01-01")
        if not set(ids) & {mount.id_of(name.name) for name in names} and min(counts) > 2:
            break
    stop.set()
    for writer in writers:
        writer.join()
    assert failures == [] and all(counts)
    assert not set(ids) & {mount.id_of(name.name) for name in names}, "a file was never rekeyed"
    for name, counted in zip(names, counts):
        assert name.read_bytes() == b"%08d" % counted + content(20_000)


def test_after_a_kill_the_check_repairs_what_it_names(mount):
    (mount.path / "sealed").write_bytes(content(40_000))
    with open(mount.path / "synced", "wb") as file:
        file.write(content(60_000))
        os.fsync(file.fileno())
        file.write(b"not synced")
        mount.kill()
        try:
            file.close()
        except OSError:
            pass
    (mount.below / "unborn").write_bytes(b"")
    done = mount.verb("check")
    assert done.returncode == 4 and "unborn" in done.stderr and "synced: not sealed" in done.stderr, done.stderr
    mount.ok("check", "--repair")
    done = mount.ok("check")
    assert "warning" not in done.stderr
    mount.start()
    assert (mount.path / "synced").read_bytes()[:60_000] == content(60_000)
    assert not (mount.path / ".naos-lost").exists() and (mount.below / ".naos-lost/unborn").exists()


def test_plain_files_below_a_mount_are_sealed_and_then_readable_above(mount):
    (mount.below / "plain").write_bytes(content(50_000))
    with pytest.raises(OSError):
        (mount.path / "plain").read_bytes()
    assert "plain view" in mount.verb("migrate", "--from", mount.path).stderr
    mount.ok("migrate", "--verify")
    assert sealed(mount.below / "plain")
    for _ in range(100):  # the mount may remember the plain file for a second
        try:
            if (mount.path / "plain").read_bytes() == content(50_000):
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError("the file is not readable through the mount")

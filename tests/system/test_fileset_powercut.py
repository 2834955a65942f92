# SPDX-License-Identifier: Apache-2.0
"""Power cuts under a mounted file set: the file system below is shut down at once, without writing its journal or its pages (as xfstests
does), and mounted again.  Every file reads, and holds what was acknowledged by fsync or newer.  test_fileset_replay.py cuts at
each write.

NAOS_POWERCUTS=200 makes so many cuts, with seeds NAOS_SEED and up.
"""
import errno
import fcntl
import json
import os
import random
import struct
import subprocess
import threading
import time

import pytest

import fileset_mount

pytestmark = [pytest.mark.skipif(fileset_mount.missing() is not None, reason=str(fileset_mount.missing())),
              pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk and shut it down")]
CHUNK, CHUNKS, FILES = 4096, 60, 6  # more than a group of the format
EXT4_IOC_SHUTDOWN, WITHOUT_JOURNAL = 0x8004587d, 2
CUTS = int(os.environ.get("NAOS_POWERCUTS") or 3)
SEED = int(os.environ.get("NAOS_SEED") or 1)


def shut_down(below):
    fd = os.open(below, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", WITHOUT_JOURNAL))
    os.close(fd)


class Work:
    """Writes numbered chunks: file -> chunk -> number written last, and the number that an fsync covered."""

    def __init__(self, directory, seed):
        self.directory, self.chance = directory, random.Random(seed)
        self.written, self.durable, self.number = {}, {}, 0

    def run(self):
        try:
            while True:
                self.step()
        except OSError:  # the cut
            return

    def step(self):
        name = f"f{self.chance.randrange(FILES)}" if self.chance.random() < 0.9 else f"new{self.number}"
        fd = os.open(self.directory / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            for _ in range(self.chance.randrange(12)):
                chunk = self.chance.randrange(CHUNKS)
                self.number += 1
                self.written.setdefault(name, {})[chunk] = self.number  # also if it is cut off
                os.pwrite(fd, struct.pack("<Q", self.number) * (CHUNK // 8), chunk * CHUNK)
            if self.chance.random() < 0.3:
                now = dict(self.written.get(name, {}))
                os.fsync(fd)
                self.durable[name] = now
        finally:
            os.close(fd)

    def check(self, seed):
        for name in sorted(os.listdir(self.directory)):
            try:
                data = (self.directory / name).read_bytes()  # no error, whatever was cut off
            except FileNotFoundError:  # it was being made: it goes when it is looked up
                continue
            for at in range(0, len(data), CHUNK):
                chunk, piece = at // CHUNK, data[at:at + CHUNK]
                low, high = self.durable.get(name, {}).get(chunk, 0), self.written.get(name, {}).get(chunk, 0)
                number = struct.unpack("<Q", piece[:8].ljust(8, b"\0"))[0]
                assert piece == (struct.pack("<Q", number) * (CHUNK // 8))[:len(piece)], f"seed {seed}: {name}, chunk {chunk} is mixed"
                assert low <= number <= high, f"seed {seed}: {name}, chunk {chunk} is {number}; durable {low}, written {high}"
            covered = self.durable.get(name, {})
            assert len(data) >= max((chunk + 1) * CHUNK for chunk in covered) if covered else True, f"seed {seed}: {name} is too short"
        missing = set(self.durable) - set(os.listdir(self.directory))
        assert not missing, f"seed {seed}: {missing} were durable"


def test_what_was_flushed_outlives_power_cuts(tmp_path):
    image, below = tmp_path / "image", tmp_path / "below"
    below.mkdir()
    with open(image, "wb") as out:
        out.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, below], check=True)
    mount = fileset_mount.Mount(tmp_path, options="seal-delay=0s")
    acknowledged = 0
    try:
        for seed in range(SEED, SEED + CUTS):
            mount.start()
            directory = mount.path / f"cut-{seed}"
            directory.mkdir()
            subprocess.run(["sync", "-f", below], check=True)
            work = Work(directory, seed)
            thread = threading.Thread(target=work.run)
            thread.start()
            time.sleep(random.Random(seed).uniform(0.05, 1.5))
            shut_down(below)
            thread.join(timeout=120)
            assert not thread.is_alive(), "a write hangs"
            mount.kill()
            subprocess.run(["umount", below], check=True)
            subprocess.run(["mount", "-o", "loop", image, below], check=True)
            mount.start()
            work.check(seed)
            acknowledged += sum(map(len, work.durable.values()))
            for path in list(directory.iterdir()):
                path.unlink()
            directory.rmdir()
            mount.stop()
            assert '"failed":0' in mount.naos("verify", mount.below, "--json").replace(" ", "")
        print(f"{CUTS} power cuts from seed {SEED}: {acknowledged} chunks had been acknowledged, all were there; no file was unreadable")
        assert acknowledged > 0
    finally:
        if os.path.ismount(mount.path):
            mount.kill()
        subprocess.run(["umount", "-l", below], check=False)


def without_first_page(path):
    with open(path, "r+b") as file:
        file.write(bytes(CHUNK))


def test_a_first_page_that_is_missing_is_an_empty_file_or_an_error_that_says_so(tmp_path):
    """Never flushed: it is empty.  Once durable: it is damaged, in the log, can be deleted, and is set aside."""
    with fileset_mount.Mount(tmp_path, options="seal-delay=60s") as mount:
        for name in ("synced", "synced-too", "other"):
            with open(mount.path / name, "wb") as file:
                file.write(b"x" * 100000)
                file.flush()
                os.fsync(file.fileno())
        (mount.path / "new").write_bytes(b"y" * 100000)
        mount.kill()
        for name in ("synced", "synced-too", "new"):
            without_first_page(mount.below / name)
        assert json.loads(mount.naos("info", "--json", mount.below / "new"))["first_page_lost"]
        assert "first page  lost" in mount.naos("info", mount.below / "new")
        mount.start()
        assert (mount.path / "new").read_bytes() == b"" and (mount.path / "new").stat().st_size == 0
        (mount.path / "new").write_bytes(b"again")
        for name in ("synced", "synced-too"):
            with pytest.raises(OSError) as failed:
                (mount.path / name).read_bytes()
            assert failed.value.errno == errno.EIO
        assert f"file {(mount.below / 'synced').stat().st_ino}: its first page is missing ('naos fileset check genomes' names it" in mount.log.read_text()
        (mount.path / "synced-too").unlink()
        assert (mount.path / "other").read_bytes() == b"x" * 100000
    assert json.loads(mount.naos("fileset", "check", "--repair", "--json", "genomes"))["notices"] == {"lost": 1}
    assert os.listdir(mount.below / ".naos-lost") == ["synced"] and sorted(os.listdir(mount.below)) == [".naos-lost", "new", "other"]
    mount.naos("open", mount.below / "new", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"again"

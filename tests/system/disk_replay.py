# SPDX-License-Identifier: Apache-2.0
"""A disk whose writes and flushes are recorded (tests/tools/disk_recorder.c), and what a power cut at any moment leaves of it.

    with Disk(directory, "ext4") as disk:  # a file system on a loop device on the recorder, mounted at disk.path
        ...; disk.position()            # a moment: whatever was answered before it is recorded before it
    cuts = Cuts(directory)
    for end in cuts.ends(after=...):    # after each write and flush
        cuts.write(scratch, end, random.Random(1))

A disk with a volatile write cache keeps what was written before its last flush; of what was written since, any pieces of 4 KiB.
"""
import bisect
import os
import pathlib
import struct
import subprocess
import time

import conftest

RECORDER = conftest.BUILD / "tests/tools/disk_recorder"
HEAD = struct.Struct("<IIQ")
WRITE, FLUSH, ZEROS = 1, 2, 3
# file system: smallest size in MiB, how it is made, options of its mount
KINDS = {"ext4": (64, ["mkfs.ext4", "-q", "-F", "-b", "4096"], "loop,commit=1"),
         "xfs": (320, ["mkfs.xfs", "-q", "-K"], "loop,nouuid")}  # other mount name spaces may have a cut of before a little longer
PIECE = 4096


def missing():
    """Why nothing can be recorded here, or None."""
    if os.getuid() != 0:
        return "only root can mount a small disk"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse can't be opened here"
    if not os.access("/dev/loop-control", os.R_OK | os.W_OK):
        return "no loop devices here"
    return None


def mount(image, path, kind):
    subprocess.run(["mount", "-o", KINDS[kind][2], image, path], check=True, timeout=120)


def unmount(path):
    subprocess.run(["umount", path], check=True, timeout=120)


class Disk:
    def __init__(self, directory, kind):
        self.directory, self.kind = pathlib.Path(directory), kind
        self.image, self.log = self.directory / "image", self.directory / "log"
        self.served, self.path = self.directory / "served", self.directory / "disk"

    def __enter__(self):
        megabytes, make, _ = KINDS[self.kind]
        for path in (self.directory, self.served, self.path):
            path.mkdir()
        with open(self.image, "wb") as out:
            out.truncate(megabytes << 20)
        self.process = subprocess.Popen([RECORDER, self.image, self.log, self.served])
        try:
            for _ in range(600):
                if os.path.ismount(self.served) or self.process.poll() is not None:
                    break
                time.sleep(0.02)
            subprocess.run([*make, self.served / "disk"], check=True)
            mount(self.served / "disk", self.path, self.kind)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception):
        for path in (self.path, self.served):
            if os.path.ismount(path) and subprocess.run(["umount", path], check=False).returncode != 0:
                subprocess.run(["umount", "-l", path], check=False)
        self.process.wait(timeout=60)

    def position(self):
        return os.stat(self.log).st_size


class Cuts:
    """Images of the disk of `directory` after a power cut."""

    def __init__(self, directory):
        directory = pathlib.Path(directory)
        self.log = (directory / "log").read_bytes()
        self.bytes = os.stat(directory / "image").st_size
        self.records, self.positions, self.flushes = [], [], []  # (kind, offset, bytes, where its data is); ends; numbers of flushes
        at = 0
        while at + HEAD.size <= len(self.log):
            kind, size, offset = HEAD.unpack_from(self.log, at)
            assert kind in (WRITE, FLUSH, ZEROS), "the log of the recorder is damaged"
            at += HEAD.size
            if kind == FLUSH:
                self.flushes.append(len(self.records))
            self.records.append((kind, offset, size, at))
            at += size if kind == WRITE else 0
            self.positions.append(at)
        self.durable, self.applied = bytearray(self.bytes), 0  # what records [0, applied) wrote
        self.used = self.extents()

    def extents(self):
        """Ranges of the disk that were ever written; the rest is zeros."""
        pieces = sorted({piece for kind, offset, size, _ in self.records if kind == WRITE
                         for piece in range(offset // PIECE, (offset + size - 1) // PIECE + 1)})
        ranges = []
        for piece in pieces:
            if ranges and ranges[-1][1] == piece * PIECE:
                ranges[-1][1] += PIECE
            else:
                ranges.append([piece * PIECE, piece * PIECE + PIECE])
        return ranges

    def ends(self, after):
        """Moments to cut at: each record's end behind the position `after`."""
        return range(bisect.bisect_right(self.positions, after), len(self.records) + 1)

    def position(self, end):
        """What had been answered when records [0, end) were done."""
        return self.positions[end - 1]

    def pieces(self, number):
        """The pieces of a record that a power cut keeps or loses each for itself: (offset, bytes or None for zeros, how many)."""
        kind, offset, size, at = self.records[number]
        done = 0
        while kind != FLUSH and done < size:
            step = min(PIECE - (offset + done) % PIECE, size - done)
            yield offset + done, self.log[at + done:at + done + step] if kind == WRITE else bytes(step), step
            done += step

    def last_flush(self, end):
        """How many of records [0, end) are durable whatever the cache did."""
        before = bisect.bisect_left(self.flushes, end)
        return self.flushes[before - 1] + 1 if before else 0

    def write(self, path, end, chance=None, keep=1.0):
        """Puts the disk after records [0, end) into the file `path`.  With `chance`, of what no flush made durable each piece is there
        with probability `keep`.  Ends must not descend."""
        durable = self.last_flush(end)
        assert durable >= self.applied, "cuts must be made in their order"
        for number in range(self.applied, durable):
            for offset, data, size in self.pieces(number):
                self.durable[offset:offset + size] = data
        self.applied = durable
        with open(path, "wb", buffering=0) as out:
            out.truncate(self.bytes)
            whole = memoryview(self.durable)
            for first, last in self.used:
                os.pwrite(out.fileno(), whole[first:last], first)
            for number in range(durable, end):
                for offset, data, _ in self.pieces(number):
                    if chance is None or chance.random() < keep:
                        os.pwrite(out.fileno(), data, offset)

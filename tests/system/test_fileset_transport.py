# SPDX-License-Identifier: Apache-2.0
"""How requests reach a mounted file set: by /dev/fuse, or by io_uring where the kernel offers it.  Users see no difference."""
import concurrent.futures
import ctypes
import hashlib
import mmap
import os
import pathlib
import random
import signal
import struct
import subprocess
import time

import pytest

import fileset_mount

URING = pathlib.Path("/sys/module/fuse/parameters/enable_uring")
ENABLED = URING.exists() and URING.read_text().strip() in ("Y", "1")

pytestmark = pytest.mark.skipif(fileset_mount.missing() is not None, reason=str(fileset_mount.missing()))


@pytest.fixture(params=["dev", pytest.param("uring", marks=pytest.mark.skipif(not ENABLED, reason="FUSE over io_uring is not enabled here"))])
def mount(tmp_path, request):
    with fileset_mount.Mount(tmp_path, options=f"transport={request.param}") as mounted:
        yield mounted


def work(directory, number):
    """Sizes around chunks, groups and the largest request; every kind of operation."""
    numbers = random.Random(number)
    directory.mkdir()
    known = {}
    for step in range(36):
        path = directory / f"file{step % 12}"
        data = numbers.randbytes(numbers.choice((0, 1, 4095, 4096, 70_000, 300_000, 3_000_000)))
        if step % 3 == 0 and path in known:
            moved = directory / f"moved{step}"
            os.rename(path, moved)
            known[moved] = known.pop(path)
        elif step % 3 == 1 and path in known:
            with open(path, "r+b") as file:
                file.seek(100)
                file.write(data)
                os.fsync(file.fileno())
            known[path] = known[path][:100] + data + known[path][100 + len(data):] if len(known[path]) >= 100 else \
                known[path].ljust(100, b"\0") + data
        else:
            path.write_bytes(data)
            os.setxattr(path, "user.step", str(step).encode() * 300)
            known[path] = data
        if step % 10 == 9:
            gone = numbers.choice(sorted(known))
            gone.unlink()
            del known[gone]
    assert sorted(directory.iterdir()) == sorted(known)
    for path, data in known.items():
        assert path.stat().st_size == len(data)
        assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(data).digest(), path
    return known


def test_many_users_at_once_find_what_they_wrote(mount):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        known = list(pool.map(lambda number: work(mount.path / f"user{number}", number), range(6)))
    mount.stop()
    mount.start()
    for one in known:
        for path, data in one.items():
            assert path.read_bytes() == data
    mount.stop()
    mount.naos("verify", mount.below)


def test_files_that_wait_do_not_stop_others(mount):
    """More programs flush at once than there are threads in the beginning."""
    def flush(number):
        with open(mount.path / f"flushed{number}", "wb", buffering=0) as file:
            for _ in range(8):
                file.write(b"x" * 5000)
                os.fsync(file.fileno())
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        jobs = [pool.submit(flush, number) for number in range(24)]
        for _ in range(100):
            os.listdir(mount.path)
        for job in jobs:
            job.result()
    assert {path.stat().st_size for path in mount.path.iterdir()} == {40_000}


def test_the_largest_attribute_and_a_long_directory_fit_into_an_answer(mount):
    path = mount.path / "a"
    path.write_bytes(b"")
    os.setxattr(path, "user.large", b"v" * 3000)
    assert os.getxattr(path, "user.large") == b"v" * 3000
    names = {f"{number:05}" + "n" * 240 for number in range(2000)}
    (mount.path / "many").mkdir()
    for name in names:
        (mount.path / "many" / name).symlink_to("target")
    assert set(os.listdir(mount.path / "many")) == names


def test_a_mount_that_is_in_use_ends_at_sigterm(mount):
    (mount.path / "a").write_bytes(b"1" * 5000)
    with open(mount.path / "a", "rb"):
        mount.process.send_signal(signal.SIGTERM)
        assert mount.process.wait(timeout=60) == 0
    mount.start()
    assert (mount.path / "a").read_bytes() == b"1" * 5000


@pytest.mark.skipif(ENABLED, reason="FUSE over io_uring is enabled here")
def test_io_uring_that_is_not_there_is_named(tmp_path):
    with pytest.raises(AssertionError, match="does not offer FUSE over io_uring"):
        fileset_mount.Mount(tmp_path, options="transport=uring").start()
    with fileset_mount.Mount(tmp_path / "auto", options="transport=auto") as mount:
        (mount.path / "a").write_bytes(b"x")


def test_an_unknown_transport_is_refused(tmp_path):
    with pytest.raises(AssertionError, match="it is auto, dev or uring"):
        fileset_mount.Mount(tmp_path, options="transport=smoke").start()


def test_io_uring_is_for_one_node(tmp_path):
    with pytest.raises(AssertionError, match="for mode = local only"):
        fileset_mount.Mount(tmp_path, mode="shared", options="transport=uring").start()


class Aio:
    """Linux's asynchronous input and output, as databases use it."""

    def __init__(self):
        self.libc, self.context = ctypes.CDLL(None, use_errno=True), ctypes.c_ulong(0)
        assert self.call(206, 64, ctypes.byref(self.context)) == 0

    def call(self, number, *words):
        return self.libc.syscall(ctypes.c_long(number), *words)

    def write(self, fd, area, pieces):
        """Writes all of an area at once, in so many pieces; returns when all are written."""
        address, bytes_each = ctypes.addressof(ctypes.c_char.from_buffer(area)), len(area) // pieces
        blocks = [ctypes.create_string_buffer(struct.pack("QIIHhIQQqQII", 0, 0, 0, 1, 0, fd, address + i * bytes_each, bytes_each, i * bytes_each, 0, 0, 0), 64)
                  for i in range(pieces)]
        pointers = (ctypes.c_void_p * pieces)(*[ctypes.addressof(block) for block in blocks])
        assert self.call(209, self.context, ctypes.c_long(pieces), pointers) == pieces
        events = (ctypes.c_longlong * (4 * pieces))()
        assert self.call(208, self.context, ctypes.c_long(pieces), ctypes.c_long(pieces), events, None) == pieces
        assert all(events[4 * i + 2] == bytes_each for i in range(pieces))


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of system calls are those of x86_64")
def test_what_was_written_directly_and_asynchronously_is_read_by_ordinary_readers(mount):
    path, size = mount.path / "a", 640 << 10
    path.write_bytes(bytes(size))
    readers = [subprocess.Popen(["sh", "-c", 'while :; do cat "$1" >/dev/null; done', "sh", path]) for _ in range(4)]
    try:
        aio, area = Aio(), mmap.mmap(-1, size)
        direct, ordinary = os.open(path, os.O_RDWR | os.O_DIRECT), os.open(path, os.O_RDONLY)
        end, number = time.monotonic() + 5, 0
        while time.monotonic() < end:
            number += 1
            area[:] = bytes([number % 251]) * size
            aio.write(direct, area, 10)
            got = os.pread(ordinary, size, 0)
            assert got == area[:], f"round {number}: {sum(a != number % 251 for a in got)} bytes are older"
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()

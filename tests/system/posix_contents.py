# SPDX-License-Identifier: Apache-2.0
"""Corner cases of times, sizes, contents and locks.  See posix_rows.py."""
import array
import ctypes
import fcntl
import os
import struct
import time

from posix_rows import map_f, write_f, AT_FDCWD, USER, after, as_user, check, content, in_child, libc, make, mode, opened, row, t


# --- times ------------------------------------------------------------------------------------------------------------------------

NOW, OMIT = (1 << 30) - 1, (1 << 30) - 2


def utimensat(path, atime, mtime, flags=0):
    times = struct.pack("=qqqq", *atime, *mtime)
    check(libc.utimensat(AT_FDCWD, os.fsencode(path), times, flags))


@row
def utimensat_values():
    make("f"), os.symlink("f", "l")
    result = []
    for atime, mtime in (((1, 999999999), (2, 1)), ((3, 0), (0, OMIT)), ((0, OMIT), (5, 7)), ((0, OMIT), (0, OMIT)), ((-5, 5), (-1, 1)),
                         ((1, 1000000000), (1, 1)), ((1 << 33, 1), (1 << 33, 2)), ((0x7fffffff, 1), (0x80000000, 2))):
        result += [t(utimensat, "f", atime, mtime), os.stat("f").st_atime_ns, os.stat("f").st_mtime_ns]
    utimensat("f", (9, 0), (0, NOW))
    result += [abs(os.stat("f").st_mtime - time.time()) < 60, os.stat("f").st_atime_ns]
    utimensat("l", (11, 3), (12, 4), 0x100)
    return result, os.lstat("l").st_mtime_ns, os.stat("f").st_mtime_ns != os.lstat("l").st_mtime_ns


@row
def utimensat_permissions():
    os.chmod(".", 0o777)
    make("mine", mode=0, uid=USER), make("writable", mode=0o666), make("readable", mode=0o644)
    set_now, set_both, set_one, nothing = ((0, NOW), (0, NOW)), ((1, 1), (1, 1)), ((0, NOW), (0, OMIT)), ((0, OMIT), (0, OMIT))
    return as_user(lambda: [t(utimensat, name, *times) for name in ("mine", "writable", "readable") for times in (set_now, set_both, set_one, nothing)])


@row
def reading_and_writing_move_the_right_times():
    make("f", b"x" * 9000)
    os.mkdir("d")
    return [after("f", lambda: write_f(), "st_mtime_ns"), after("f", lambda: write_f(), "st_ctime_ns"), after("f", lambda: content("f"), "st_mtime_ns"),
            after("d", lambda: make("d/x"), "st_mtime_ns"), after("d", lambda: make("d/x"), "st_mtime_ns"), after("d", lambda: os.mkdir("d/y"), "st_ctime_ns"),
            after("d", lambda: os.symlink("a", "d/l"), "st_mtime_ns"), after("d", lambda: os.unlink("d/l"), "st_mtime_ns"),
            after("d", lambda: os.link("f", "d/f"), "st_mtime_ns"), after("d", lambda: os.chmod("d/x", 0o600), "st_mtime_ns"),
            after("d", lambda: os.listdir("d"), "st_mtime_ns"), after("d", lambda: os.rmdir("d/y"), "st_mtime_ns"),
            after("f", lambda: os.pwrite(os.open("f", os.O_WRONLY), b"", 0), "st_mtime_ns"), after("f", map_f, "st_mtime_ns")]


# --- sizes, seeking, mappings ------------------------------------------------------------------------------------------------------------------------

@row
def sizes_at_borders():
    fd = os.open("f", os.O_CREAT | os.O_RDWR, 0o600)
    result = []
    for at in ((1 << 31) - 2, (1 << 32) - 2, (1 << 33) + 5, 1 << 40):
        result += [t(os.pwrite, fd, b"1234", at), os.fstat(fd).st_size, os.pread(fd, 10, at - 3)]
    result += [t(os.ftruncate, fd, (1 << 32) + 1), os.fstat(fd).st_size, os.pread(fd, 4, (1 << 32) - 2), os.lseek(fd, 0, os.SEEK_DATA) // 4096 > 0,
               t(os.lseek, fd, 1 << 50, os.SEEK_DATA), os.fstat(fd).st_blocks < 10000, t(os.pread, fd, 1, -1), t(os.lseek, fd, -1, os.SEEK_SET), os.pread(fd, 5, 1 << 45)]
    return result


@row
def seeking_data_and_holes():
    fd = os.open("f", os.O_CREAT | os.O_RDWR, 0o600)
    result = [t(os.lseek, fd, 0, os.SEEK_DATA), t(os.lseek, fd, 0, os.SEEK_HOLE)]
    os.pwrite(fd, b"x" * 8192, 1 << 20)
    os.fsync(fd)
    os.ftruncate(fd, 3 << 20)
    return result + [t(os.lseek, fd, at, how) for how in (os.SEEK_DATA, os.SEEK_HOLE) for at in (0, (1 << 20) + 4096, (1 << 20) + 8192, (3 << 20) - 1, 3 << 20)]


@row
def mappings():
    import mmap
    fd = os.open("f", os.O_CREAT | os.O_RDWR, 0o600)
    os.write(fd, b"a" * 5000)
    shared, private = mmap.mmap(fd, 5000), mmap.mmap(fd, 5000, flags=mmap.MAP_PRIVATE)
    shared[4990:5000] = b"0123456789"
    private[:3] = b"xyz"
    os.pwrite(fd, b"WWW", 100)
    seen = shared[100:103], private[4990:5000], os.pread(fd, 3, 0), os.pread(fd, 20, 4990)
    shared.flush()
    os.ftruncate(fd, 6000)
    again = mmap.mmap(fd, 6000)
    return seen, again[5000:6000] == bytes(1000), again[4990:5000], t(lambda: mmap.mmap(os.open("f", os.O_WRONLY), 100)), t(
        lambda: mmap.mmap(os.open("f", os.O_RDONLY), 100, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE))


@row
def allocation():
    fd = os.open("f", os.O_CREAT | os.O_RDWR, 0o600)
    os.write(fd, b"d" * 10000)

    def fallocate(how, at, count):
        check(libc.fallocate(fd, how, ctypes.c_long(at), ctypes.c_long(count)))
    result = [t(fallocate, how, at, count) for how, at, count in ((0, 0, 0), (0, -1, 5), (0, 0, -5), (1, 0, 1 << 20), (0, 0, 20000), (2, 0, 100), (3, 100, 5000),
              (0x10, 9000, 30000), (0x11, 50000, 1000), (0, 1 << 62, 1 << 62), (3, 1 << 40, 100))]
    size = os.fstat(fd).st_size
    data = os.pread(fd, 1 << 20, 0)
    reader = os.open("f", os.O_RDONLY)
    return result, size, data.count(b"d"), data[:100] == b"d" * 100, [t(lambda: check(libc.fallocate(reader, 0, ctypes.c_long(0), ctypes.c_long(10))))]


# --- file system ------------------------------------------------------------------------------------------------------------------------------------------

@row
def the_file_system_as_a_whole():
    status = os.statvfs(".")
    return status.f_namemax, status.f_bsize, status.f_blocks, status.f_files, status.f_bavail <= status.f_bfree <= status.f_blocks, [
        os.pathconf(".", name) for name in ("PC_NAME_MAX", "PC_PATH_MAX", "PC_PIPE_BUF")]


@row
def locks_between_processes():
    make("f", b"x" * 100)
    fd = os.open("f", os.O_RDWR)
    fcntl.lockf(fd, fcntl.LOCK_EX, 10, 0)
    other = in_child(lambda: [t(fcntl.lockf, os.open("f", os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB, 10, at) for at in (0, 5, 20)])
    os.close(os.open("f", os.O_RDONLY))  # drops the lock, as POSIX says
    dropped = in_child(lambda: t(fcntl.lockf, os.open("f", os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0))
    fcntl.flock(fd, fcntl.LOCK_SH)
    return other, dropped, in_child(lambda: [t(fcntl.flock, os.open("f", os.O_RDONLY), how | fcntl.LOCK_NB) for how in (fcntl.LOCK_SH, fcntl.LOCK_EX)])


@row
def file_attributes():
    make("f", b"x")
    fd = os.open("f", os.O_RDWR)
    flags = array.array("L", [0])

    def ioctl(number, value=None):
        flags[0] = value or 0
        fcntl.ioctl(fd, number, flags)
    get, put = 0x80086601, 0x40086602
    result = [t(ioctl, get), t(ioctl, put, 0x20), t(os.pwrite, fd, b"y", 0), t(opened, "f", os.O_WRONLY), t(opened, "f", os.O_RDONLY), t(os.unlink, "f"), t(ioctl, put, 0), t(ioctl, put, 0x10), t(opened, "f", os.O_RDWR), t(os.chmod, "f", 0o600),
              t(os.rename, "f", "g"), t(os.link, "f", "g"), content("f"), t(ioctl, put, 0), t(os.rename, "f", "g"), t(fcntl.ioctl, fd, 0x12345678, b"")]
    before = os.stat("g").st_ctime_ns
    result += [t(ioctl, put, 0x80), os.stat("g").st_ctime_ns > before, t(ioctl, put, 0)]
    os.pwrite(fd, b"z" * 10000, 0)
    for flag in (0x20, 0x10):  # nothing is lost by what is refused
        result += [t(ioctl, put, flag), t(os.truncate, "g", 0), t(os.ftruncate, fd, 5), t(os.utime, "g", (1, 1)), t(opened, "g", os.O_WRONLY | os.O_TRUNC),
                   t(opened, "g", os.O_WRONLY | os.O_TRUNC | os.O_CREAT), t(libc.fallocate, fd, 3, ctypes.c_long(0), ctypes.c_long(5000)), content("g"), t(ioctl, put, 0)]
    t(ioctl, put, 0x10)
    make("h", b"h" * 100)
    result += [t(os.copy_file_range, os.open("h", os.O_RDONLY), fd, 50), content("g"), t(ioctl, put, 0)]
    return result


@row
def copying_ranges():
    make("a", b"abc" * 5000), make("b", b"x" * 100)
    source, target = os.open("a", os.O_RDONLY), os.open("b", os.O_RDWR)
    result = [t(os.copy_file_range, source, target, n, at, to) for n, at, to in ((100, 50, 50), (20000, 10000, 0), (10, 15000, 0), (10, 1 << 40, 0), (0, 0, 0))]
    both = os.open("a", os.O_RDWR)
    result += [t(os.copy_file_range, both, both, 100, 0, 50), t(os.copy_file_range, both, both, 100, 0, 200), t(os.copy_file_range, target, source, 10, 0, 0),
               t(os.sendfile, target, source, 0, 1000)]
    return result, os.stat("b").st_size, content("b")[:200], content("a")[150:350]


@row
def appending():
    make("f", b"start")
    a, b = (os.open("f", os.O_WRONLY | os.O_APPEND) for _ in range(2))
    for i in range(50):
        os.write(a, b"a" * 100), os.pwrite(b, b"b" * 77, 3)  # Linux appends, wherever it is told to write
    fcntl.fcntl(a, fcntl.F_SETFL, 0)
    os.lseek(a, 0, os.SEEK_SET)
    return os.write(a, b"S"), os.stat("f").st_size, content("f")[:30]

# SPDX-License-Identifier: Apache-2.0
"""What corner cases of POSIX and Linux (posix_names.py, posix_rights.py, posix_contents.py) are made of; test_fileset_posix.py runs each on a
native directory and on a mount.

A row works in an empty directory, as root, and returns what it saw; anything that must not differ may be in it.  t(call, ...) is
what a call returned or the name of its errno; as_user(function) is what the function returned in a process of an ordinary user.
"""
import ctypes
import errno
import os
import pickle
import subprocess
import time

ROWS = []
USER, OTHER, GROUP = 61001, 61002, 61010  # nobody of this system
libc = ctypes.CDLL("libc.so.6", use_errno=True)
AT_FDCWD, NOREPLACE, EXCHANGE, AT_EMPTY_PATH = -100, 1, 2, 0x1000
O_TMPFILE = os.O_TMPFILE


def row(function):
    ROWS.append(function)
    return function


def t(call, *args, **kwargs):
    try:
        value = call(*args, **kwargs)
    except OSError as failed:
        return errno.errorcode.get(failed.errno, failed.errno)
    except subprocess.CalledProcessError as failed:
        return "status", failed.returncode
    return "ok" if value is None else value


def in_child(function):
    """What the function returns, in a process of its own."""
    ends = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            result = function()
        except BaseException as failed:  # noqa: the parent must hear of it
            result = "failed", repr(failed)
        with open(ends[1], "wb") as out:
            out.write(pickle.dumps(result))
            out.flush()
            os._exit(0)
    os.close(ends[1])
    with open(ends[0], "rb") as answer:
        result = pickle.loads(answer.read() or pickle.dumps("the process died"))
    os.waitpid(child, 0)
    return result


def as_user(function, uid=USER, gid=None, groups=()):
    def become():
        os.setgroups(list(groups))
        os.setresgid(*[gid if gid is not None else uid] * 3)
        os.setresuid(uid, uid, uid)
        return function()
    return in_child(become)


def make(path, content=b"", mode=0o644, uid=None, gid=None):
    with open(path, "wb") as out:
        out.write(content)
    if uid is not None:
        os.chown(path, uid, gid if gid is not None else uid)
    os.chmod(path, mode)
    return path


def mode(path):
    return oct(os.lstat(path).st_mode)


def who(path):
    status = os.lstat(path)
    return status.st_uid, status.st_gid, oct(status.st_mode)


def check(value):
    if value != 0:
        raise OSError(ctypes.get_errno(), "")


def renameat2(a, b, flags):
    check(libc.renameat2(AT_FDCWD, os.fsencode(a), AT_FDCWD, os.fsencode(b), flags))


def link_open(fd, name):
    check(libc.linkat(AT_FDCWD, f"/proc/self/fd/{fd}".encode(), AT_FDCWD, name.encode(), 0x400))


def opened(path, flags, *args):
    """Opens, closes; None."""
    os.close(os.open(path, flags, *args))


def content(path):
    with open(path, "rb") as file:
        return file.read()


def after(path, action, field="st_ctime_ns"):
    """True if the action moves a time of the path."""
    before = getattr(os.lstat(path), field)
    time.sleep(0.012)  # coarser than any clock of inodes
    action()
    return getattr(os.lstat(path), field) > before


def write_f():
    fd = os.open("f", os.O_WRONLY)
    os.pwrite(fd, b"y", 3)
    os.close(fd)


def map_f():
    import mmap
    fd = os.open("f", os.O_RDWR)
    with mmap.mmap(fd, 4096) as area:
        area[3] = 7
    os.close(fd)

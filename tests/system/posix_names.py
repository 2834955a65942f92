# SPDX-License-Identifier: Apache-2.0
"""Corner cases of names, links, directories and special files.  See posix_rows.py."""
import ctypes
import os
import socket
import stat
import subprocess
import time

from posix_rows import EXCHANGE, NOREPLACE, OTHER, O_TMPFILE, USER, after, as_user, content, libc, link_open, make, mode, opened, renameat2, row, t, who


# --- rename -------------------------------------------------------------------------------------------------------------------

@row
def rename_over_an_open_file():
    make("a", b"new"), make("b", b"old")
    fd = os.open("b", os.O_RDWR)
    os.rename("a", "b")
    os.pwrite(fd, b"OL", 0)
    return content("b"), os.pread(fd, 10, 0), os.fstat(fd).st_nlink, os.path.exists("a")


@row
def rename_directories():
    for name in ("empty", "full", "full/x", "d", "d/sub"):
        os.mkdir(name)
    make("file")
    return [t(os.rename, a, b) for a, b in (("d", "empty"), ("empty", "full"), ("empty", "empty/sub/inside"), ("empty", "empty/in"), ("file", "full"),
            ("full", "file"), ("file", "file"), ("none", "x"), ("full/.", "x"), ("full", "x/."), ("file/", "y"), ("file", "y/"), ("full", "z/"),
            ("full/..", "q"))] + sorted(os.listdir("."))


@row
def rename_with_flags():
    make("a", b"A"), make("b", b"B"), os.mkdir("d"), make("d/in", b"I"), os.symlink("a", "l")
    return [t(renameat2, *words) for words in (("a", "b", NOREPLACE), ("a", "c", NOREPLACE), ("c", "b", EXCHANGE), ("c", "none", EXCHANGE),
            ("d", "b", EXCHANGE), ("b/in", "b", EXCHANGE), ("c", "l", EXCHANGE), ("c", "l", NOREPLACE | EXCHANGE), ("d", "d2", NOREPLACE))] + [
            content("b/in"), content("d2"), os.readlink("c"), sorted(os.listdir("."))]


@row
def rename_of_hard_links_to_one_file_does_nothing():
    make("a", b"x")
    os.link("a", "b")
    return t(os.rename, "a", "b"), sorted(os.listdir(".")), os.stat("a").st_nlink


@row
def rename_in_sticky_directories():
    os.mkdir("s"), os.chmod("s", 0o1777), make("s/theirs", uid=OTHER), make("s/mine", uid=USER), make("mine2", uid=USER), os.chmod(".", 0o777)
    return as_user(lambda: [t(os.rename, "s/theirs", "s/x"), t(os.rename, "s/mine", "s/theirs"), t(os.rename, "mine2", "s/theirs"),
                            t(os.unlink, "s/theirs"), t(os.rename, "s/mine", "s/m"), t(renameat2, "s/m", "s/theirs", EXCHANGE)]), sorted(os.listdir("s"))


@row
def rename_changes_times_of_directories():
    os.mkdir("a"), os.mkdir("b"), make("a/f"), os.mkdir("a/d")
    result = [after("a", lambda: os.rename("a/f", "b/f"), "st_mtime_ns"), after("b", lambda: os.rename("b/f", "a/f"), "st_mtime_ns"),
              after("a", lambda: os.rename("a/f", "a/g"), "st_ctime_ns"), after("a", lambda: os.rename("a/g", "a/h"), "st_mtime_ns")]
    os.rename("a/d", "b/d")
    return result, os.stat("a").st_nlink, os.stat("b").st_nlink, os.stat("b/d/..").st_ino == os.stat("b").st_ino


@row
def rename_of_a_directory_of_another_user():
    os.chmod(".", 0o777), os.mkdir("p"), os.mkdir("p/d"), os.chown("p/d", OTHER, OTHER), os.chmod("p", 0o777), os.mkdir("q"), os.chmod("q", 0o777)
    return as_user(lambda: [t(os.rename, "p/d", "p/e"), t(os.rename, "p/e", "q/e")])


# --- unlink, link ---------------------------------------------------------------------------------------------------------------

@row
def an_unlinked_open_file_lives_on():
    make("a", b"x" * 5000)
    fd = os.open("a", os.O_RDWR)
    os.unlink("a")
    os.pwrite(fd, b"y" * 9000, 100)
    os.ftruncate(fd, 8000)
    os.fchmod(fd, 0o600)
    os.fsync(fd)
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    status = os.fstat(fd)
    return status.st_nlink, status.st_size, oct(status.st_mode), os.pread(again, 9000, 0) == b"x" * 100 + b"y" * 7900, os.listdir(".")


@row
def unlink_errors():
    os.mkdir("d"), make("f"), os.symlink("nowhere", "l"), os.symlink("loop", "loop"), os.mkdir("full"), make("full/x")
    return [t(os.unlink, p) for p in ("d", "f/x", "none", "l", "loop/x", "f/", ".", "full", "n" * 256)] + [
        t(os.rmdir, p) for p in ("f", "full", ".", "..", "full/.", "d/", "none", "f/x")]


@row
def links():
    make("a", b"x"), os.mkdir("d"), os.symlink("a", "s"), os.symlink("none", "dangling"), os.mkfifo("p")
    result = [t(os.link, "a", "b"), t(os.link, "a", "b"), t(os.link, "d", "e"), t(os.link, "none", "e"), t(os.link, "s", "s2", follow_symlinks=False),
              t(os.link, "s", "s3", follow_symlinks=True), t(os.link, "dangling", "s4", follow_symlinks=True), t(os.link, "p", "p2"),
              t(os.link, "a", "d"), t(os.link, "a", "dangling"), t(os.link, "a", "none/b"), t(os.link, "a", "n" * 256)]
    return result, os.lstat("a").st_nlink, mode("s2"), mode("s3"), os.stat("p2").st_nlink


@row
def link_counts_and_change_times():
    make("a"), os.link("a", "b")
    return [after("a", lambda: os.link("a", "c")), after("a", lambda: os.unlink("c")), after("a", lambda: os.chmod("a", 0o600)),
            after("a", lambda: os.chown("a", -1, -1)), after("a", lambda: os.chown("a", 5, 5)), after("a", lambda: os.setxattr("a", "user.x", b"1")),
            after("a", lambda: content("a")), after("a", lambda: os.truncate("a", 0), "st_mtime_ns"), after("a", lambda: os.truncate("a", 10)),
            after("a", lambda: os.truncate("a", 10), "st_mtime_ns"), after("a", lambda: opened("a", os.O_WRONLY | os.O_TRUNC), "st_mtime_ns"),
            after("a", lambda: opened("a", os.O_WRONLY), "st_mtime_ns"), after("a", lambda: os.utime("a", (1, 1))),
            after("a", lambda: opened("a", os.O_WRONLY | os.O_TRUNC), "st_mtime_ns"), os.stat("a").st_nlink]


@row
def links_of_other_users_files():
    os.chmod(".", 0o777), make("theirs", mode=0o600), make("open", mode=0o666), make("suid", mode=0o4755)
    return as_user(lambda: [t(os.link, name, name + "2") for name in ("theirs", "open", "suid")])


# --- special files, open flags --------------------------------------------------------------------------------------------------------

@row
def special_files():
    os.umask(0o22)
    s = socket.socket(socket.AF_UNIX)
    result = [t(os.mkfifo, "p", 0o666), t(os.mkfifo, "p"), t(os.mknod, "c", stat.S_IFCHR | 0o640, os.makedev(1, 3)),
              t(os.mknod, "b", stat.S_IFBLK | 0o600, os.makedev(7, 300)), t(os.mknod, "r", stat.S_IFREG | 0o606), t(s.bind, "s"),
              t(os.mknod, "x", stat.S_IFSOCK | 0o600), t(os.mknod, "y", 0o170000 | 0o600)]
    return result, [(mode(p), os.lstat(p).st_rdev) for p in "pcbrsx"], content("r"), t(opened, "s", os.O_RDONLY), t(
        opened, "p", os.O_WRONLY | os.O_NONBLOCK), as_user(lambda: [t(os.mknod, "c2", stat.S_IFCHR, 0), t(os.mkfifo, "none/p")])


@row
def a_device_and_a_fifo_work():
    os.mknod("null", stat.S_IFCHR | 0o666, os.makedev(1, 3)), os.mkfifo("p")
    reader = os.open("p", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open("p", os.O_WRONLY)
    os.write(writer, b"through")
    server, client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    server.bind("s"), server.listen(1), client.connect("s"), client.send(b"hello")
    return t(write_null), os.read(reader, 10), server.accept()[0].recv(9)


def write_null():
    with open("null", "wb") as out:
        out.write(b"x")


@row
def open_flags():
    make("f", b"content"), os.mkdir("d"), os.symlink("f", "l"), os.symlink("none", "dangling"), os.symlink("d", "ld"), os.mkfifo("p")
    O = os
    result = [t(opened, *words) for words in (("l", O.O_RDONLY | O.O_NOFOLLOW), ("f", O.O_RDONLY | O.O_DIRECTORY), ("ld", O.O_RDONLY | O.O_DIRECTORY),
              ("ld", O.O_RDONLY | O.O_DIRECTORY | O.O_NOFOLLOW), ("d", O.O_RDWR), ("d", O.O_WRONLY | O.O_CREAT), ("f", O.O_CREAT | O.O_EXCL),
              ("l", O.O_CREAT | O.O_EXCL), ("dangling", O.O_CREAT | O.O_EXCL), ("dangling", O.O_CREAT | O.O_RDWR, 0o600), ("f/", O.O_RDONLY),
              ("f/x", O.O_RDONLY), ("new/", O.O_CREAT | O.O_RDWR), ("d", O.O_TMPFILE | O.O_RDWR), ("d", O.O_TMPFILE | O.O_RDONLY),
              ("f", O.O_TMPFILE | O.O_RDWR), ("p", O.O_WRONLY | O.O_NONBLOCK), ("f", O.O_PATH), ("l", O.O_PATH | O.O_NOFOLLOW),
              ("f", O.O_RDONLY | O.O_TRUNC), ("f", 3), ("n" * 255, O.O_CREAT | O.O_RDWR), ("n" * 256, O.O_CREAT | O.O_RDWR), ("d", O.O_CREAT | O.O_DIRECTORY))]
    return result, os.stat("f").st_size, sorted(os.listdir("."))


@row
def a_nameless_file_gets_a_name():
    fd = os.open(".", O_TMPFILE | os.O_RDWR, 0o640)
    os.write(fd, b"y" * 5000)
    before = os.fstat(fd).st_nlink, os.fstat(fd).st_size, oct(os.fstat(fd).st_mode), os.listdir(".")
    linked = t(link_open, fd, "named")
    exclusive = os.open(".", O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600)
    return before, linked, os.fstat(fd).st_nlink, content("named") == b"y" * 5000, t(link_open, exclusive, "never")


@row
def truncation_of_what_is_not_writable():
    os.chmod(".", 0o777)
    make("ro", b"x" * 100, mode=0o444, uid=USER), make("theirs", b"x", mode=0o644)
    return as_user(lambda: [t(opened, "ro", os.O_RDONLY | os.O_TRUNC), t(os.truncate, "ro", 5), t(opened, "theirs", os.O_RDONLY | os.O_TRUNC),
                            t(lambda: os.ftruncate(os.open("ro", os.O_RDONLY), 0)), t(opened, "c", os.O_CREAT | os.O_WRONLY, 0o444),
                            t(opened, "c", os.O_WRONLY), t(os.truncate, "c", 1 << 62 | 1 << 61 | 1 << 60), t(os.truncate, "ro", -1)]), os.stat("ro").st_size


@row
def a_new_read_only_file_can_be_written_by_who_made_it():
    os.chmod(".", 0o777)

    def create():
        fd = os.open("f", os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o444)
        os.write(fd, b"x" * 5000)
        os.ftruncate(fd, 4000)
        os.fsync(fd)
        return os.pread(fd, 9999, 0) == b"x" * 4000, t(opened, "f", os.O_RDWR), mode("f")
    return as_user(create)


@row
def a_running_program_is_busy():
    with open("/bin/sleep", "rb") as source:
        make("p", source.read(), mode=0o755)
    with subprocess.Popen(["./p", "5"]) as process:
        time.sleep(0.1)
        result = t(opened, "p", os.O_WRONLY), t(os.truncate, "p", 0), t(os.rename, "p", "q"), t(os.unlink, "q")
        process.kill()
    fd = os.open("w", os.O_CREAT | os.O_WRONLY, 0o755)
    os.write(fd, b"#!/bin/true\n")
    return result, t(subprocess.run, ["./w"])


@row
def programs_and_scripts_run():
    with open("/bin/true", "rb") as source:
        make("p", source.read(), mode=0o755)
    make("s", b"#!/bin/sh\nexit 7\n", mode=0o755), make("n", b"#!/bin/sh\n", mode=0o644)
    return [subprocess.run(["./p"]).returncode, subprocess.run(["./s"]).returncode, t(subprocess.run, ["./n"])]


# --- names ---------------------------------------------------------------------------------------------------------------------------

@row
def long_names_and_paths():
    result = [t(make, "n" * 255), t(make, "n" * 256), t(os.mkdir, "ü" * 127), t(os.mkdir, "ü" * 128), t(os.symlink, "x", "n" * 256),
              t(os.link, "n" * 255, "m" * 256), t(os.rename, "n" * 255, "m" * 255), t(os.rename, "m" * 255, "m" * 256), t(os.mkfifo, "p" * 256),
              t(os.stat, "./" * 2047 + "m"), t(os.stat, "./" * 2048)]
    return result, sorted(os.listdir("."))


@row
def odd_names():
    names = [b"\xff\xfe", b"a b", b"-x", b"...", b"\n", b"\\", b"a\tb", b"*", "ä".encode(), b".hidden", b".naos", b"~", b"user.naos.key"]
    return [t(make, name) for name in names], sorted(os.listdir(b"."))


@row
def symbolic_links():
    result = [t(os.symlink, "x" * length, f"l{length}") for length in (1, 100, 4094, 4095, 4096)] + [t(os.symlink, "", "empty"), t(os.symlink, "a", "l1")]
    os.symlink("loop2", "loop"), os.symlink("loop", "loop2")
    for i in range(45):
        os.symlink(f"chain{i + 1}", f"chain{i}")
    make("chain45", b"end")
    return result, [len(os.readlink(f"l{n}")) for n in (1, 100, 4094, 4095)], [os.lstat(f"l{n}").st_size for n in (1, 4095)], [
        t(opened, name, os.O_RDONLY) for name in ("loop", "chain0", "chain6", "chain5", "loop/x")], t(os.readlink, "chain45"), mode("loop"), t(
        os.chmod, "loop", 0o600), [t(os.lchown, "loop", 5, 6), who("loop")]


@row
def what_is_no_directory():
    make("f")
    return [t(call, "f/x", *words) for call, *words in ((os.mkdir,), (os.unlink,), (os.rmdir,), (os.stat,), (os.truncate, 1), (os.chmod, 1),
            (os.chown, 1, 1), (os.mkfifo,), (os.readlink,), (os.listdir,), (os.rename, "x"), (os.link, "x"))] + [t(os.symlink, "x", "f/x"), t(
            os.rename, "f", "f/x"), t(os.listdir, "f"), t(os.mkdir, "f"), t(os.mkdir, "f/"), t(os.mkdir, "g/"), t(os.mkdir, "none/x")]


# --- directories ---------------------------------------------------------------------------------------------------------------------------------

libc.opendir.restype = libc.readdir.restype = ctypes.c_void_p
libc.telldir.restype = ctypes.c_long
libc.telldir.argtypes = libc.readdir.argtypes = libc.rewinddir.argtypes = libc.closedir.argtypes = [ctypes.c_void_p]
libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]


def read_name(directory):
    entry = libc.readdir(directory)
    return ctypes.string_at(entry + 19).decode() if entry else None


@row
def a_directory_is_read_from_any_place():
    names = {f"name-{i:04}" for i in range(1000)}
    for name in names:
        make(name)
    directory = libc.opendir(b".")
    places, order = [], []
    while True:
        places.append(libc.telldir(directory))
        name = read_name(directory)
        if name is None:
            break
        order.append(name)
    wrong = 0
    for i in range(0, len(order), 37):
        libc.seekdir(directory, places[i])
        wrong += read_name(directory) != order[i]
    libc.rewinddir(directory)
    again = []
    while (name := read_name(directory)) is not None:
        again.append(name)
        if name.startswith("name-") and len(again) % 2:  # what is removed while it is read is no reason to miss another
            os.unlink(name)
    libc.closedir(directory)
    return set(order) == names | {".", ".."}, len(order), wrong, sorted(again) == sorted(order), len(os.listdir("."))


@row
def what_is_made_and_removed_while_a_directory_is_read():
    for i in range(300):
        make(f"a{i}")
    listed = []
    with os.scandir(".") as entries:
        for n, entry in enumerate(entries):
            listed.append(entry.name)
            if n < 100:
                make(f"b{n}"), os.rename(f"b{n}", f"c{n}")
    return len([n for n in listed if n[0] == "a"]), len(listed) == len(set(listed)), len(os.listdir("."))


@row
def types_and_numbers_in_a_listing():
    make("f"), os.mkdir("d"), os.symlink("f", "l"), os.mkfifo("p")
    with os.scandir(".") as entries:
        return sorted((e.name, e.is_dir(follow_symlinks=False), e.is_symlink(), e.inode() == e.stat(follow_symlinks=False).st_ino) for e in entries)


@row
def links_of_directories():
    for name in ("a", "a/b", "a/c", "a/b/d"):
        os.mkdir(name)
    make("a/f")
    counts = [os.stat(p).st_nlink for p in ("a", "a/b", "a/c")]
    os.rmdir("a/c")
    fd = os.open("a/b/d", os.O_RDONLY)
    os.rmdir("a/b/d")
    return counts, os.stat("a").st_nlink, os.fstat(fd).st_nlink, t(lambda: os.open("x", os.O_CREAT | os.O_RDWR, dir_fd=fd)), os.listdir(fd), t(os.mkdir, "y", dir_fd=fd)

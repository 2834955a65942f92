# SPDX-License-Identifier: Apache-2.0
"""Corner cases of modes, owners, ACLs, attributes and of who may do what.  See posix_rows.py."""
import ctypes
import os
import stat
import struct
import subprocess

from posix_rows import write_f, GROUP, OTHER, O_TMPFILE, USER, as_user, check, content, libc, make, mode, opened, row, t, who


# --- mode and owner ----------------------------------------------------------------------------------------------------------------

@row
def chmod_rules():
    make("mine", uid=USER, gid=USER), make("foreign-group", uid=USER, gid=GROUP), make("theirs"), os.mkdir("d"), os.chown("d", USER, GROUP)
    os.chmod(".", 0o777)
    os.symlink("mine", "l")
    result = as_user(lambda: [t(os.chmod, "mine", 0o7777), t(os.chmod, "foreign-group", 0o7777), t(os.chmod, "theirs", 0o777), t(os.chmod, "d", 0o7777),
                              t(os.chmod, "l", 0o640)])
    return result, [mode(p) for p in ("mine", "foreign-group", "theirs", "d", "l")], [
        as_user(lambda: t(os.chmod, "foreign-group", 0o2777), groups=[GROUP]), mode("foreign-group")]


@row
def chown_rules():
    os.chmod(".", 0o777)
    make("mine", uid=USER, gid=USER), make("theirs")
    return as_user(lambda: [t(os.chown, "mine", OTHER, -1), t(os.chown, "mine", -1, GROUP), t(os.chown, "mine", -1, 61099), t(os.chown, "mine", USER, -1),
                            t(os.chown, "theirs", -1, GROUP), t(os.chown, "theirs", USER, -1), t(os.chown, "theirs", -1, -1)], groups=[GROUP]), who("mine")


def privileges(action, uid, mode_bits, groups=(GROUP,)):
    os.chmod(".", 0o777)
    make("f", b"x" * 10000, mode=0o666, uid=USER, gid=GROUP)
    os.chmod("f", mode_bits)
    result = as_user(action, uid, groups=groups) if uid else t(action)
    answer = result, mode("f")
    os.unlink("f")
    return answer


def falloc(how):
    def call():
        fd = os.open("f", os.O_RDWR)
        check(libc.fallocate(fd, how, ctypes.c_long(0), ctypes.c_long(20000 if how == 0 else 4096)))
        os.close(fd)
    return call


def direct_f():
    import mmap
    fd = os.open("f", os.O_WRONLY | os.O_DIRECT)
    with mmap.mmap(-1, 4096) as area:
        os.pwrite(fd, area, 0)
    os.close(fd)


def copy_f():
    make("g", b"z" * 100, uid=USER)
    source, target = os.open("g", os.O_RDONLY), os.open("f", os.O_WRONLY)
    os.copy_file_range(source, target, 50)
    os.close(source), os.close(target)
    os.unlink("g")


CHANGES = {"write": write_f, "truncate": lambda: os.truncate("f", 5), "extend": lambda: os.truncate("f", 50000), "allocate": falloc(0), "punch": falloc(3),
           "zero": falloc(0x11), "open-truncate": lambda: opened("f", os.O_WRONLY | os.O_TRUNC), "direct": direct_f, "append":
           lambda: os.write(os.open("f", os.O_WRONLY | os.O_APPEND), b"x")}


@row
def changes_clear_set_user_id():
    return {(name, uid, bits, groups): privileges(action, uid, bits, groups) for name, action in CHANGES.items() for uid in (USER, OTHER, 0)
            for bits in (0o6777, 0o2767, 0o6766, 0o4666) for groups in ((GROUP,), ())}


@row
def copies_clear_set_user_id():
    return [privileges(copy_f, uid, bits) for uid in (USER, 0) for bits in (0o6777, 0o4666)]


@row
def chown_clears_set_user_id():
    result = []
    for bits in (0o6755, 0o2745, 0o4644, 0o6777):
        for uid in (0, USER):
            make("f", uid=USER, gid=USER)
            os.chmod("f", bits)
            result.append((as_user(lambda: t(os.chown, "f", -1, GROUP), groups=[GROUP]) if uid else t(os.chown, "f", -1, GROUP), mode("f")))
            os.mkdir("d"), os.chown("d", USER, USER), os.chmod("d", bits)
            result.append((t(os.chown, "d", 5, 5), mode("d")))
            os.rmdir("d"), os.unlink("f")
    return result


# --- umask, ACLs, set-group-id directories -------------------------------------------------------------------------------------------------

def acl(*entries):
    """system.posix_acl_*: (tag, permissions, id)."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NONE = 0xffffffff
FULL = acl((1, 7, NONE), (2, 7, USER), (4, 5, NONE), (8, 7, GROUP), (16, 7, NONE), (32, 0, NONE))


def make_all(directory):
    fd = os.open(f"{directory}/f", os.O_CREAT | os.O_RDWR, 0o666)
    os.close(fd)
    os.mkdir(f"{directory}/d", 0o777), os.mkfifo(f"{directory}/p", 0o666), os.mknod(f"{directory}/r", stat.S_IFREG | 0o666)
    os.close(os.open(f"{directory}/x", os.O_CREAT | os.O_WRONLY, 0o700))
    anonymous = os.open(directory, O_TMPFILE | os.O_RDWR, 0o666)
    result = [mode(f"{directory}/{name}") for name in "fdprx"] + [oct(os.fstat(anonymous).st_mode)]
    for name in "fdx":
        for kind in ("access", "default"):
            result.append(t(os.getxattr, f"{directory}/{name}", f"system.posix_acl_{kind}"))
    return result


@row
def umask_with_and_without_default_acls():
    result = []
    for mask in (0, 0o22, 0o77, 0o27, 0o777):
        os.umask(mask)
        for name, value in (("plain", None), ("default", FULL), ("small", acl((1, 7, NONE), (4, 5, NONE), (32, 1, NONE)))):
            path = f"{name}{mask}"
            os.mkdir(path), os.chmod(path, 0o755)
            if value:
                os.setxattr(path, "system.posix_acl_default", value)
            result.append((mask, name, make_all(path)))
    return result


@row
def acls_decide():
    os.chmod(".", 0o755)
    make("f", b"secret", mode=0o640)
    os.setxattr("f", "system.posix_acl_access", acl((1, 6, NONE), (2, 4, USER), (2, 0, OTHER), (4, 0, NONE), (8, 6, GROUP), (16, 6, NONE), (32, 0, NONE)))

    def try_all():
        return [t(opened, "f", os.O_RDONLY), t(opened, "f", os.O_WRONLY), os.access("f", os.R_OK), os.access("f", os.W_OK)]
    result = [as_user(try_all), as_user(try_all, OTHER), as_user(try_all, OTHER, groups=[GROUP]), as_user(try_all, 61003, groups=[GROUP]), as_user(try_all, 61003),
              mode("f"), t(os.chmod, "f", 0o604), os.getxattr("f", "system.posix_acl_access"), as_user(try_all, 61003, groups=[GROUP]), as_user(try_all)]
    result += [t(os.setxattr, "f", "system.posix_acl_access", b"nonsense"), t(os.setxattr, "f", "system.posix_acl_default", FULL),
               as_user(lambda: t(os.setxattr, "f", "system.posix_acl_access", FULL)), t(os.removexattr, "f", "system.posix_acl_access"), mode("f"),
               t(os.getxattr, "f", "system.posix_acl_access"), t(os.setxattr, "f", "system.posix_acl_access", acl((1, 6, NONE), (4, 4, NONE), (32, 4, NONE))),
               t(os.getxattr, "f", "system.posix_acl_access"), mode("f")]
    return result


@row
def an_acl_of_an_ordinary_user_clears_set_group_id():
    os.chmod(".", 0o777)
    make("f", uid=USER, gid=GROUP), os.chmod("f", 0o2755)
    value = acl((1, 7, NONE), (2, 7, OTHER), (4, 7, NONE), (16, 7, NONE), (32, 5, NONE))
    return as_user(lambda: t(os.setxattr, "f", "system.posix_acl_access", value)), mode("f"), os.chmod("f", 0o2755), t(
        os.setxattr, "f", "system.posix_acl_access", value), mode("f")


@row
def set_group_id_directories():
    os.umask(0)
    os.mkdir("g"), os.chown("g", 0, GROUP), os.chmod("g", 0o2777)

    def create():
        os.umask(0)
        make_all("g")
        for name, bits in (("exec", 0o2775), ("noexec", 0o2664), ("both", 0o6775)):
            os.close(os.open(f"g/{name}", os.O_CREAT | os.O_RDWR, bits))
        os.symlink("x", "g/l")
        os.mkdir("g/d2", 0o2755)
        return [(name, who(f"g/{name}")) for name in sorted(os.listdir("g"))]
    result = as_user(create)
    for name in os.listdir("g"):
        path = f"g/{name}"
        (os.rmdir if os.path.isdir(path) else os.unlink)(path)
    return result, as_user(create, groups=[GROUP])


# --- permissions -----------------------------------------------------------------------------------------------------------------------------

@row
def a_write_only_file_of_its_owner():
    os.chmod(".", 0o777)
    make("f", b"a" * 10000, mode=0o200, uid=USER)

    def use():
        fd = os.open("f", os.O_WRONLY)
        written = os.pwrite(fd, b"ODD", 5001), os.pwrite(fd, b"end", 10005)
        os.ftruncate(fd, 10007)
        return written, t(os.pread, fd, 10, 0), t(opened, "f", os.O_RDONLY), t(opened, "f", os.O_RDWR), t(content, f"/proc/self/fd/{fd}"), os.access("f", os.R_OK)
    return as_user(use), content("f") == b"a" * 5001 + b"ODD" + b"a" * 4996 + bytes(5) + b"en"


@row
def who_may_read():
    os.chmod(".", 0o755)
    make("user", b"1", mode=0o400, uid=USER, gid=GROUP), make("group", b"2", mode=0o040, uid=0, gid=GROUP), make("not-group", b"3", mode=0o404, uid=0, gid=GROUP)
    make("all", b"4", mode=0o004), make("none", b"5", mode=0, uid=USER, gid=GROUP), os.mkdir("closed", 0o700), make("closed/f", b"6")
    os.mkdir("x", 0o711), make("x/f", b"7"), os.mkdir("r"), make("r/f", b"8"), os.chmod("r", 0o744)

    def look():
        return [t(content, p) for p in ("user", "group", "not-group", "all", "none", "closed/f", "x/f", "r/f")] + [t(os.listdir, p) for p in (
            "closed", "x", "r")] + [os.access(p, os.R_OK) for p in ("user", "group", "none", "closed")] + [t(os.stat, "closed/f") == "EACCES"]
    return [as_user(look), as_user(look, OTHER), as_user(look, OTHER, groups=[GROUP]), as_user(look, OTHER, gid=GROUP), look()]


@row
def many_supplementary_groups():
    os.chmod(".", 0o755)
    groups = list(range(62000, 62200))
    make("f", b"x", mode=0o040, gid=groups[-1]), os.mkdir("d"), os.chown("d", 0, groups[-1]), os.chmod("d", 0o2770)
    return as_user(lambda: [t(content, "f"), t(make, "d/f"), t(os.mkdir, "d/s")], groups=groups), as_user(lambda: [t(content, "f"), t(make, "d/g")]), who("d/f")


@row
def creation_belongs_to_who_creates():
    os.chmod(".", 0o777)
    as_user(lambda: make_all("."), USER, gid=GROUP)
    return [who(name) for name in sorted(os.listdir("."))]


# --- extended attributes ------------------------------------------------------------------------------------------------------------------------

@row
def attribute_name_spaces():
    os.chmod(".", 0o777)
    make("f", b"x", uid=USER), os.symlink("f", "l"), os.mkdir("d"), os.mkfifo("p")
    value, result = b"\0binary\xff", []
    for name in ("user.a", "trusted.a", "security.a", "system.a", "other.a", "user.", "a", "user." + "n" * 250, "user." + "n" * 251):
        result += [t(os.setxattr, "f", name, value), t(os.getxattr, "f", name)]
    result += [t(os.setxattr, "f", "user.a", b"2", os.XATTR_CREATE), t(os.setxattr, "f", "user.none", b"2", os.XATTR_REPLACE), t(os.removexattr, "f", "user.none"),
               t(os.setxattr, "f", "user.empty", b""), t(os.getxattr, "f", "user.empty"), sorted(os.listxattr("f")), t(os.setxattr, "f", "user.big", b"x" * 65537),
               t(os.setxattr, "l", "user.a", b"1", follow_symlinks=False), t(os.setxattr, "l", "trusted.a", b"1", follow_symlinks=False),
               t(os.setxattr, "p", "user.a", b"1"), t(os.setxattr, "d", "user.a", b"1")]
    result += as_user(lambda: [sorted(os.listxattr("f")), t(os.getxattr, "f", "trusted.a"), t(os.setxattr, "f", "trusted.b", b""), t(os.getxattr, "f", "user.a"),
                               t(os.setxattr, "f", "security.b", b""), t(os.setxattr, "f", "user.c", b"3"), t(os.removexattr, "f", "user.a")])
    return result + [as_user(lambda: [t(os.setxattr, "f", "user.d", b""), t(os.getxattr, "f", "user.c")], OTHER), sorted(os.listxattr("f"))]


@row
def capabilities_work_and_go_with_a_change():
    with open("/bin/cat", "rb") as source:
        make("cat", source.read(), mode=0o755)
    os.chmod(".", 0o755), make("secret", b"for root", mode=0o600)
    run = lambda: subprocess.run(["./cat", "secret"], capture_output=True).stdout
    without = as_user(run)
    subprocess.run(["setcap", "cap_dac_override+ep", "cat"], check=True)
    with_it, value = as_user(run), os.getxattr("cat", "security.capability")
    os.utime("cat", (5, 5)), os.chmod("cat", 0o711)
    still = as_user(run)
    fd = os.open("cat", os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"x")
    os.close(fd)
    lost = t(os.getxattr, "cat", "security.capability")
    subprocess.run(["setcap", "cap_dac_override+ep", "cat"], check=True)
    os.chown("cat", 0, 5)
    return without, with_it, value, still, lost, t(os.getxattr, "cat", "security.capability")

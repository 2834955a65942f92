# SPDX-License-Identifier: Apache-2.0
"""Trees to seal, and how to compare them."""
import os
import pathlib
import random
import stat

MAGIC = b"NAOSSF1\n"
TEXT = b"GATTACA and the quick brown fox\n"


def content(size, seed=0):
    """Bytes that hold TEXT and differ from block to block."""
    return (TEXT * 8 + random.Random(seed).randbytes(max(0, size - len(TEXT) * 8)))[:size]


def make_tree(root):
    """Files of all sizes that matter to the format, names of all kinds, links, holes, modes, times, attributes."""
    root = pathlib.Path(root)
    (root / "deep/er/still").mkdir(parents=True)
    for size in (0, 1, 4095, 4096, 4097, 18 * 4096, 18 * 4096 + 1, (18 + 48) * 4096, 1_000_003):
        (root / f"size-{size}").write_bytes(content(size, size))
    (root / "deep/er/still/last").write_bytes(content(5000))
    (root / "line\nbreak").write_bytes(content(10))
    with open(os.fsencode(root) + b"/not-utf8-\xff\xfe", "wb") as file:
        file.write(content(20))
    (root / ("n" * 255)).write_bytes(content(30))
    (root / "link").symlink_to("deep/er")
    (root / "dangling").symlink_to("/nowhere/at/all")
    (root / "loop").symlink_to("loop")
    os.link(root / "size-4097", root / "deep/second-name")
    os.mkfifo(root / "pipe")
    with open(root / "holes", "wb") as file:
        file.truncate(3 << 20)
        file.seek(1 << 20)
        file.write(content(70_000))
    os.chmod(root / "size-1", 0o751)
    os.setxattr(root / "size-4096", "user.origin", b"instrument 7")
    os.utime(root / "size-4097", ns=(1_000_000_000_123_456_789, 987_654_321_987_654_321))
    os.chmod(root / "deep/er", 0o550)
    os.utime(root / "deep", ns=(5_000_000_000, 6_000_000_001))
    return root


def listing(root):
    """What of a tree must stay: path -> description."""
    found = {}
    root = os.fsencode(str(root))
    for where, dirs, files in os.walk(root):
        for name in dirs + files + ([b"."] if where == root else []):
            path = os.path.join(where, name)
            status = os.lstat(path)
            kind = stat.S_IFMT(status.st_mode)
            entry = {"mode": oct(status.st_mode), "mtime": status.st_mtime_ns, "owner": (status.st_uid, status.st_gid)}
            if kind == stat.S_IFLNK:
                entry["link"] = os.readlink(path)
            elif kind == stat.S_IFREG:
                entry["size"], entry["names"] = status.st_size, status.st_nlink
                names = [name for name in os.listxattr(path) if name.startswith("user.") and name != "user.naos.key"]
                entry["attributes"] = {name: os.getxattr(path, name) for name in names}
                if status.st_size < 1 << 26:
                    entry["content"] = pathlib.Path(os.fsdecode(path)).read_bytes()
            found[os.path.relpath(path, root)] = entry
    return found


def same_tree(left, right):
    left, right = listing(left), listing(right)
    assert left.keys() == right.keys()
    for path in left:
        for what in left[path]:
            assert left[path][what] == right[path][what], f"{path}: {what}"


def sealed(path):
    """True for a sealed file by its first bytes."""
    return pathlib.Path(path).read_bytes()[:8] == MAGIC

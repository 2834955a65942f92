# SPDX-License-Identifier: Apache-2.0
"""Trees to seal, and how to compare them."""
import contextlib
import fcntl
import glob
import os
import pathlib
import random
import shutil
import stat
import struct
import subprocess

import pytest

from conftest import NAOS

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


@contextlib.contextmanager
def file_system(where, kind, *options):
    """A file system in memory, mounted at `where`; skips where that can't be."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    where.mkdir()
    done = subprocess.run(["mount", "-t", kind, *options, kind, where], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        pytest.skip(f"{kind} can't be mounted here")
    try:
        yield where
    finally:
        subprocess.run(["umount", where], check=True)


def temporaries(*roots):
    return [path for root in roots for path in pathlib.Path(root).rglob(".*.naos-????????")]


class Killer:
    """Kills naos at random moments and looks at what it leaves."""

    def __init__(self, sets, directory, seed):
        self.sets, self.dir, self.dice = sets, directory, random.Random(seed)
        self.source, self.sealed, self.back = directory / "source", directory / "sealed", directory / "back"
        make_tree(self.source)
        (self.source / "large").write_bytes(content(24 << 20))
        for i in range(150):
            (self.source / f"deep/small-{i}").write_bytes(content(3000, i))

    def kill(self, *words):
        """True if it was killed before its end."""
        process = subprocess.Popen([NAOS, *map(str, words)], env=self.sets.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(self.dice.random() * self.dice.choice((0.05, 0.15, 0.4)))
            return False
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return True

    def whole_sealed_files(self):
        if self.sealed.exists():
            self.sets.ok("verify", self.sealed)

    def whole_plain_files(self):
        for path in self.back.rglob("*") if self.back.exists() else ():
            if path.is_file() and not path.is_symlink() and path not in temporaries(self.back):
                assert path.read_bytes() == (self.source / path.relative_to(self.back)).read_bytes(), path
        for path in temporaries(self.back):  # private until complete
            stem = path.name[1:-len(".naos-12345678")]  # of a long name only the beginning
            original = (self.source / path.relative_to(self.back)).with_name(stem)
            original = original if original.exists() else next(original.parent.glob(glob.escape(stem) + "*"))
            assert path.stat().st_mode & 0o077 == 0 or path.read_bytes() == original.read_bytes(), path

    def seal_round(self):
        shutil.rmtree(self.sealed, ignore_errors=True)
        killed = self.kill("seal", "-f", "genomes", self.source, self.sealed)
        self.whole_sealed_files()
        self.sets.ok("seal", "-f", "genomes", self.source, self.sealed)
        assert temporaries(self.sealed) == []
        return killed

    def open_round(self):
        shutil.rmtree(self.back, ignore_errors=True)
        killed = self.kill("open", self.sealed, self.back)
        self.whole_plain_files()
        if self.dice.random() < 0.5:
            self.sets("verify", "--clean", self.back)
            assert temporaries(self.back) == []
        self.sets.ok("open", self.sealed, self.back)
        assert temporaries(self.back) == []
        same_tree(self.source, self.back)
        return killed

    def rewrap_round(self):
        self.sets.ok("key", "rotate", "genomes")
        killed = self.kill("rewrap", self.sealed)
        self.whole_sealed_files()
        done = self.sets("rewrap", "--repair", self.sealed)
        assert done.returncode == 0, done.stderr
        versions = {slot["version"] for info in self.sets.json("info", self.sealed) for slot in info["slots"]}
        assert len(versions) == 1
        self.sets.ok("verify", self.sealed)
        return killed

    def campaign(self, rounds):
        self.sets.ok("seal", "-f", "genomes", self.source, self.sealed)
        killed = sum(self.dice.choice((self.seal_round, self.open_round, self.rewrap_round))() for _ in range(rounds))
        assert killed >= rounds // 4, f"only {killed} of {rounds} runs were hit"
        self.sets.ok("verify", "--clean", self.sealed)
        assert temporaries(self.source, self.sealed, self.back) == []


class FileSet:
    """A file set `genomes` of the configuration: its directory, its id, and its verbs."""

    def __init__(self, sets, directory, **keys):
        self.sets, self.path = sets, directory / "genomes"
        self.path.mkdir(exist_ok=True)
        self.plain_config = sets.config.read_text()
        self.configure(path=self.path, mountpoint=directory / "mount", id=sets.json("key", "show", "genomes")[0]["id"], **keys)

    def configure(self, **keys):
        self.keys = keys
        lines = "".join(f"{key} = {value}\n" for key, value in keys.items())
        self.sets.config.write_text(f"{self.plain_config}[fileset genomes]\n{lines}")

    def without_keys(self):
        """The configuration of a backup operator: no key manager, only the file set."""
        lines = "".join(f"{key} = {value}\n" for key, value in self.keys.items())
        config = self.sets.directory / "backup.conf"
        config.write_text(f"[fileset genomes]\n{lines}")
        return config

    def seal(self, source):
        self.sets.ok("seal", "--force", "-f", "genomes", source, self.path)

    def file(self, name, data):
        """A sealed file of this content."""
        plain = self.sets.directory / "one.plain"
        plain.write_bytes(data)
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        self.sets.ok("seal", "--force", "-f", "genomes", plain, self.path / name)
        return self.path / name

    def verb(self, verb, *words, **kwargs):
        return self.sets("fileset", verb, "genomes", *words, **kwargs)

    def ok(self, verb, *words):
        return self.sets.json("fileset", verb, "genomes", *words)[0]

    def fails(self, status, verb, *words):
        return self.sets.fails(status, "fileset", verb, "genomes", *words)

    def read(self, name):
        done = self.sets("open", self.path / name, "-", text=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextlib.contextmanager
def writer_of(path):
    """The lock that a writer holds on a sealed file (byte 2^62, shared, of this open file)."""
    with open(path, "r+b") as file:
        lock = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 1 << 62, 1, 0)
        fcntl.fcntl(file, 37, lock)  # F_OFD_SETLK
        yield

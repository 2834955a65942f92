# SPDX-License-Identifier: Apache-2.0
"""Writers that know what may be there after a power cut.

Each file has a history: what its chunks held and how long it was, from which moment of the recorded disk on; and moments at which an
fsync was acknowledged.  At a cut, a chunk holds what it held at the last acknowledged fsync or what was written since; names likewise,
with fsync of their directory.  The histories are in memory, outside the disk.
"""
import ctypes
import mmap
import os
import random
import sqlite3
import threading

CHUNK = 4096
ZERO = hash(bytes(CHUNK))
MOST = 70 * CHUNK  # of a file: group 0 of the format, group 1 and some of group 2
PUNCH = 3          # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
SYNC_WRITE = 2     # SYNC_FILE_RANGE_WRITE
libc = ctypes.CDLL(None, use_errno=True)


def fallocate(fd, mode, offset, size):
    if libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(size)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def value(data, chunk):
    """Stands for the bytes of a chunk, zero-extended."""
    return hash(bytes(data[chunk * CHUNK:(chunk + 1) * CHUNK]).ljust(CHUNK, b"\0"))


class History:
    """One file: its content now, and every content that it had."""

    def __init__(self, position):
        self.data, self.started, self.sizes, self.chunks, self.acknowledged = bytearray(), [position], [0], {}, []

    def change(self, position, new, first, last):
        """The content becomes `new`, which differs in bytes [first, last)."""
        self.started.append(position)
        self.data = new
        self.sizes.append(len(new))
        for chunk in range(first // CHUNK, (max(first + 1, last) - 1) // CHUNK + 1):
            self.chunks.setdefault(chunk, []).append((len(self.sizes) - 1, value(new, chunk)))

    def acknowledge(self, position):
        self.acknowledged.append((position, len(self.sizes) - 1))

    def base(self, position):
        """The last version that was acknowledged at this moment; None: none."""
        known = [version for at, version in self.acknowledged if at <= position]
        return known[-1] if known else None

    def misfit(self, data, position):
        """What is wrong with this content after a cut at `position`; None if it may be so."""
        base = self.base(position) or 0
        last = max(version for version, started in enumerate(self.started) if started <= position)
        sizes = self.sizes[base:last + 1]
        if not min(sizes) <= len(data) <= max(sizes):
            return f"{len(data)} bytes, not {min(sizes)} to {max(sizes)}"
        for chunk in range((len(data) + CHUNK - 1) // CHUNK):
            versions = self.chunks.get(chunk, [])
            before = [held for version, held in versions if version <= base]
            allowed = {before[-1] if before else ZERO} | {held for version, held in versions if base < version <= last}
            if value(data, chunk) not in allowed:
                return f"chunk {chunk} is none of {len(allowed)} versions"
        return None


class Names:
    """name -> which History it showed from when on (None: no file), and what an fsync of the directory acknowledged."""

    def __init__(self):
        self.shown, self.acknowledged = {}, {}

    def show(self, position, name, history):
        self.shown.setdefault(name, [(-1, None)]).append((position, history))

    def acknowledge(self, position, names):
        for name in names:
            self.acknowledged.setdefault(name, []).append((position, len(self.shown[name]) - 1))

    def allowed(self, name, position):
        known = [number for at, number in self.acknowledged.get(name, []) if at <= position]
        base = known[-1] if known else 0
        return [history for number, (at, history) in enumerate(self.shown[name]) if number == base or (number > base and at <= position)]


class Writer(threading.Thread):
    """Random operations in a directory of its own, until told to stop."""

    def __init__(self, directory, below, disk, seed, files=5):
        super().__init__()
        self.directory, self.below, self.disk, self.seed, self.files = directory, below, disk, seed, files
        self.chance = random.Random(seed)
        self.names, self.count, self.over, self.failure = Names(), 0, False, None
        directory.mkdir()

    def run(self):
        try:
            while not self.over:
                self.step()
        except Exception as failure:  # told by the test
            self.failure = failure

    def now(self, name):
        return self.names.shown[name][-1][1] if name in self.names.shown else None

    def fill(self, size):
        """Bytes that no other write has: a number of this writer, repeated."""
        self.count += 1
        return (b"%08x" % (self.count * 16 + self.seed % 16) * (size // 8 + 1))[:size]

    def open(self, name, flags=0):
        """Opens a file, which is made where it is not there."""
        history, position = self.now(name), self.disk.position()
        fd = os.open(self.directory / name, os.O_RDWR | os.O_CREAT | flags, 0o600)
        if history is None:
            history = History(position)
            self.names.show(position, name, history)
        elif flags & os.O_TRUNC and history.data:
            history.change(position, bytearray(), 0, len(history.data))
        return fd, history

    def write(self, fd, history, offset, data):
        position = self.disk.position()
        new = bytearray(history.data.ljust(offset, b"\0"))
        new[offset:offset + len(data)] = data
        os.pwrite(fd, data, offset)
        history.change(position, new, min(offset, len(history.data)), offset + len(data))

    def resize(self, fd, history, size):
        position, before = self.disk.position(), len(history.data)
        os.ftruncate(fd, size)
        history.change(position, history.data[:size].ljust(size, b"\0"), min(before, size), max(before, size))

    def punch(self, fd, history):
        size = len(history.data)
        first, last = sorted(self.chance.randrange(size) for _ in range(2))
        position, new = self.disk.position(), bytearray(history.data)
        new[first:last + 1] = bytes(last + 1 - first)
        fallocate(fd, PUNCH, first, last + 1 - first)
        history.change(position, new, first, last + 1)

    def map(self, fd, history):
        """Stores through shared memory; what msync said is acknowledged."""
        with mmap.mmap(fd, len(history.data)) as memory:
            for _ in range(self.chance.randrange(1, 4)):
                offset = self.chance.randrange(len(history.data))
                data = self.fill(min(self.chance.randrange(1, 9000), len(history.data) - offset))
                position, new = self.disk.position(), bytearray(history.data)
                new[offset:offset + len(data)] = data
                memory[offset:offset + len(data)] = data
                history.change(position, new, offset, offset + len(data))
            memory.flush()
        history.acknowledge(self.disk.position())

    def change(self, fd, history):
        size, kind = len(history.data), self.chance.random()
        if kind < 0.35:  # chunks
            self.write(fd, history, self.chance.randrange(60) * CHUNK, self.fill(self.chance.randrange(1, 5) * CHUNK))
        elif kind < 0.50:
            self.write(fd, history, self.chance.randrange(size + 1), self.fill(self.chance.randrange(1, 9000)))
        elif kind < 0.72 and size < MOST:  # append
            self.write(fd, history, size, self.fill(self.chance.choice((100, 3000, CHUNK, 30000))))
        elif kind < 0.80:
            self.resize(fd, history, self.chance.randrange(max(size, CHUNK) + CHUNK))
        elif kind < 0.88 and size:
            self.punch(fd, history)
        elif kind < 0.94 and size:
            self.map(fd, history)
        elif size:
            self.write(fd, history, 0, self.fill(size))

    def sync(self, fd, history, name):
        (os.fsync if self.chance.random() < 0.5 else os.fdatasync)(fd)
        position = self.disk.position()
        history.acknowledge(position)
        if len(self.names.shown[name]) == 2:  # a new file; an fsync of it makes its name durable on Linux
            self.names.acknowledge(position, [name])

    def replace(self):
        """As editors do: a new file, durable, over the old name; the directory then, mostly."""
        name, temporary = f"f{self.chance.randrange(self.files)}", f"t{self.count}"
        fd, history = self.open(temporary)
        self.write(fd, history, 0, self.fill(self.chance.choice((10, 5000, 90000))))
        os.fsync(fd)
        history.acknowledge(self.disk.position())
        os.close(fd)
        position = self.disk.position()
        os.rename(self.directory / temporary, self.directory / name)
        self.names.show(position, name, history)
        self.names.show(position, temporary, None)
        if self.chance.random() < 0.7:
            self.sync_names([name, temporary])

    def sync_names(self, names):
        fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(fd)
        os.close(fd)
        self.names.acknowledge(self.disk.position(), names)

    def write_out(self, name):
        """As the kernel does when it likes: some pages of the file below go to the disk, in no order."""
        try:
            fd = os.open(self.below / name, os.O_RDONLY)
        except FileNotFoundError:
            return
        pages = os.fstat(fd).st_size // CHUNK + 1
        for _ in range(self.chance.randrange(4)):
            libc.sync_file_range(fd, ctypes.c_long(self.chance.randrange(pages) * CHUNK), ctypes.c_long(CHUNK), SYNC_WRITE)
        os.close(fd)

    def step(self):
        kind = self.chance.random()
        if kind < 0.12:
            self.replace()
            return
        name = f"n{self.count}" if kind < 0.40 else f"f{self.chance.randrange(self.files)}"
        fd, history = self.open(name, os.O_TRUNC if self.chance.random() < 0.05 else 0)
        try:
            for _ in range(self.chance.randrange(6)):
                self.change(fd, history)
            if self.chance.random() < (0.15 if name[0] == "n" else 0.5):
                self.sync(fd, history, name)
            elif self.chance.random() < 0.5:
                self.write_out(name)
        finally:
            os.close(fd)
        if name[0] == "n" and self.chance.random() < 0.4:
            position = self.disk.position()
            os.unlink(self.directory / name)
            self.names.show(position, name, None)

    def check(self, directory, position, unreadable=()):
        """What is wrong with `directory` after a cut at `position`, as (name, why, had ever been acknowledged)."""
        there = set(os.listdir(directory)) if directory.is_dir() else set()
        wrong = [(name, "nobody wrote it", False) for name in there - set(self.names.shown)]
        for name in self.names.shown:
            allowed = self.names.allowed(name, position)
            durable = any(history is not None and history.base(position) is not None for history in allowed)
            if name in unreadable:
                wrong.append((name, "it can't be read", durable))
            elif name not in there:
                if None not in allowed:
                    wrong.append((name, "it is gone", True))
            else:
                data = (directory / name).read_bytes()
                why = [history.misfit(data, position) for history in allowed if history is not None]
                if None not in why:
                    wrong.append((name, "; ".join(why) or "it was not there", durable))
        return wrong

    def acknowledged_chunks(self, position):
        """How many chunks an fsync had acknowledged, of files that are there."""
        count = 0
        for name in self.names.shown:
            history = self.names.allowed(name, position)[0]
            base = history.base(position) if history is not None else None
            count += (history.sizes[base] + CHUNK - 1) // CHUNK if base is not None else 0
        return count


class Database(threading.Thread):
    """Rows in SQLite, in both of its journals; a commit is acknowledged."""

    def __init__(self, directory, disk, seed, journal):
        super().__init__()
        self.path, self.disk, self.journal, self.chance = directory / f"{journal}.db", disk, journal, random.Random(seed)
        self.committed, self.over, self.failure = [], False, None  # positions of commits

    def run(self):
        try:
            database = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None)
            database.execute(f"pragma journal_mode = {self.journal}")
            database.execute("pragma synchronous = extra")  # with `full` the end of the journal's name may come later
            database.execute("create table rows (number integer primary key, text blob)")
            while not self.over:
                database.execute("insert into rows values (?, ?)", (len(self.committed), os.urandom(self.chance.randrange(6000))))
                self.committed.append(self.disk.position())
            database.close()
        except Exception as failure:
            self.failure = failure

    def check(self, directory, position):
        """What is wrong with the copy of the database in `directory`, which is opened and so recovered; None: nothing."""
        expected = sum(at <= position for at in self.committed)
        if expected == 0:
            return None
        database = sqlite3.connect(directory / self.path.name)
        try:
            found = database.execute("select count(*), max(number) from rows").fetchone()
            sound = database.execute("pragma integrity_check").fetchall()
        except sqlite3.DatabaseError as failure:
            return str(failure)
        finally:
            database.close()
        if sound != [("ok",)]:
            return str(sound)
        return None if found[0] >= expected and found[1] == found[0] - 1 else f"{found[0]} rows of {expected} are there"

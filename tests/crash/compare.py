#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The library beside the model (tests/model): the same operations must make the same writes, flushes and sizes in the same order,
and after the same power cut both must read the same.  Usage: compare.py DRIVER [--seed N] [--rounds N]

The model runs with the real geometry.  CLike holds what the library does differently on purpose (README.md here says why).
"""
import argparse
import pathlib
import random
import subprocess
import sys
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "model"))
import model  # noqa: E402
from model import Damage, Disk, Entry, State, Writer  # noqa: E402

model.C, model.G0, model.GN, model.PER, model.MG = 4096, 18, 48, 6, 31744
C = 4096


class Difference(Exception):
    pass


def sector_of(page, name):
    """Number of a 512-byte sector in its page, from the model's name for it."""
    if name in "AB":
        return 1 + "AB".index(name)
    return int(name[1:]) + (5 if page == 0 else 0)


class Recorder(Disk):
    """A disk that numbers its changes and says what each did, in the words of `group`."""

    def __init__(self, durable=None):
        super().__init__(durable)
        self.events, self.log = [], []      # events: (kind, unit, number); since the last flush: log = (number, page, version)

    def _put(self, p, v):
        before = self.raw(p)
        super()._put(p, v)
        if p == "size" or v is None or self.muted:
            pass
        elif isinstance(v, dict):
            names = [n for n in v if not isinstance(before, dict) or before.get(n) != v[n]]
            number = len(self.events) + len(names)
            for name in names:
                kind = "map" if name == "map" else "state" if name in "AB" else "tag"
                self.events.append((kind, (p, 0 if name == "map" else sector_of(p, name)), number))
        else:
            self.event("data", (p, 0))
        self.log.append((max(len(self.events), 1), p, v))

    def event(self, kind, what):
        self.events.append((kind, what, len(self.events) + 1))

    muted = False

    def dealloc(self, p):
        if self.page(p) is not None:
            self.event("zero", (p, 0))
        self.muted = True
        super().dealloc(p)
        self.muted = False

    def truncate(self, size):
        if size != self.size():
            self.event("resize", size)
        self.muted = True
        super().truncate(size)
        self.muted = False

    def flush(self):
        self.event("flush", None)
        super().flush()
        self.log = []

    def image(self, cuts):
        """The disk after a power cut: cuts = {unit: event number}; a unit is (page, sector) or 'size'."""
        img = dict(self.dur)
        size = img["size"]
        for number, page, version in self.log:
            if page == "size" and number <= cuts.get("size", 0):
                size = version
        for page in {p for _, p, _ in self.log if p != "size"}:
            versions = [(number, v) for number, p, v in self.log if p == page]
            if not any(isinstance(v, dict) for _, v in versions) and not isinstance(self.dur.get(page), dict):
                for number, v in versions:
                    if number <= cuts.get((page, 0), 0):
                        img[page] = v
                continue
            names = {n for v in [self.dur.get(page)] + [v for _, v in versions] if isinstance(v, dict) for n in v}
            new = {}
            for name in names:
                value = (self.dur.get(page) or {}).get(name)
                unit = (page, 0 if name == "map" else sector_of(page, name))
                for number, v in versions:
                    if number <= cuts.get(unit, 0):
                        value = (v or {}).get(name)
                if value is not None:
                    new[name] = value
            img[page] = new or None
        img["size"] = size
        return Recorder({p: model.cut(p, v, size) for p, v in img.items() if v is not None and (p == "size" or p * C < size)})


class CLike(Writer):
    """The model's writer with the deliberate differences of the library."""

    def __init__(self, d, new=False, limit=0):
        self.d, self.bug, self.others = d, "", set()
        self.limit, self.held = limit, {}   # chunks that are gathered in memory
        self.changes = self.step = self.step_changes = 0
        self.unfinished = False             # a clean state, the other slot not emptied
        self.known, self.mine, self.trim, self.bits, self.dirty = {}, {}, {}, set(), new
        if new:                             # both state slots at once, no flush (rule 16)
            d.write(0, {"A": State(1, 1, 0, 0, 0, False, False), "B": State(2, 1, 0, 0, 0, False, False)})
        st = model.read_state(d)
        if not st.clean and not new:
            recover(d)
            st = model.read_state(d)
        self.epoch, self.sealed, self.size = st.epoch, st.sealed, model.extent(d, st)

    def begin(self):                        # rule 1 comes at the first change (rule 16)
        st = model.read_state(self.d)
        if st.clean:
            self.epoch = model.put_state(self.d, epoch=st.sealed + 1, clean=False, shared=False).epoch
            self.d.flush()
            self.unfinished = False
        self.dirty = True
        self.changes += 1

    def waits(self, i):                     # rules 3 and 4: only with a flush of its own
        vs = model.versions(self.d, i)
        if not vs:
            return False
        if self.durable(i, vs[0]):
            return not vs[0].hole
        return self.mine.get(i) != vs[0] or (len(vs) > 1 and not vs[1].hole)

    def write_held(self):
        held, self.held = self.held, {}
        if held:
            self.put({i: held[i] for i in sorted(held)})

    def write(self, batch):
        self.begin()
        if min(batch) > model.chunks(self.size):
            self.write_held()
            self.extend(min(batch) * C)
        todo = sorted(batch)
        while todo:
            now, todo = (todo[:self.limit], todo[self.limit:]) if self.limit else (todo, [])
            if self.limit and len(self.held) + len(now) > self.limit:
                self.write_held()
            keep = {i: batch[i] for i in now if i in self.held or (self.limit and self.waits(i))}
            self.held.update(keep)
            for i in keep:
                self.size = max(self.size, i * C + len(batch[i]))
            if len(keep) < len(now):
                self.put({i: batch[i] for i in now if i not in keep})

    def put(self, batch):                   # a hole that is put again with another length: its block is still to be given back
        again = [i for i, x in batch.items() if i in self.trim and isinstance(x, tuple) and x[1]]
        super().put(batch)
        self.trim.update({i: self.mine[i] for i in again})

    def punch_range(self, first, last):     # one batch; holes stay as they are; lengths as the size has them
        self.begin()
        self.write_held()
        batch = {}
        for i in range(first, last + 1):
            vs = model.versions(self.d, i)
            if vs and not vs[0].hole:
                batch[i] = ("hole", min(C, self.size - i * C))
        if batch:
            self.put(batch)
            self.trim.update({i: self.mine[i] for i in batch})

    def truncate(self, size):
        self.begin()
        self.write_held()
        if size != self.size:
            super().truncate(size)

    def fsync(self):
        self.write_held()
        if self.dirty:
            super().fsync()
        self.dirty = False

    def seal_step(self):
        """One step; the flush that follows is the caller's.  True when the file is sealed."""
        if self.step_changes != self.changes:
            self.step = 0
        self.step_changes = self.changes
        clean = model.read_state(self.d).clean
        if self.step == 0:
            self.write_held()
            if clean and not self.unfinished:
                return True
            self.step = 3 if clean else 1
        elif self.step == 1:
            self.known.update(self.mine)
            self.mine = {}
            if self.d.size() == model.P(self.size) and not self.trim and not self.bits:   # rule 13's first two flushes are one
                return self.step_clean()
            if self.dirty:
                self.settle()
                model.put_map(self.d, filled=self.bits)
                self.bits = set()
                model.put_state(self.d, size=self.size, dsize=self.size)
                self.dirty = False
            self.d.truncate(model.P(self.size))
            self.step = 2
        elif self.step == 2:
            return self.step_clean()
        else:
            self.d.write_sector(0, "AB"[model.read_state(self.d).seq & 1], None)
            self.unfinished, self.step = False, 0
            return True
        return False

    def step_clean(self):
        model.put_state(self.d, sealed=self.epoch, epoch=self.epoch, size=self.size, dsize=self.size, clean=True, shared=False)
        self.sealed, self.dirty, self.unfinished, self.step = self.epoch, False, True, 3
        return False

    def close(self):
        self.write_held()
        if model.read_state(self.d).clean:
            if self.unfinished:
                self.d.flush()
                self.d.write_sector(0, "AB"[model.read_state(self.d).seq & 1], None)
            return
        super().fsync()
        self.d.truncate(model.P(self.size))
        self.d.flush()
        seal(self.d, self.epoch, self.size)
        self.sealed = self.epoch


def seal(d, epoch, size):
    st = model.put_state(d, sealed=epoch, epoch=epoch, size=size, dsize=size, clean=True, shared=False)
    d.flush()
    d.write_sector(0, "AB"[st.seq & 1], None)


def recover(d):
    """The model's recovery, with blocks below holes given back and the other state slot emptied."""
    d.flush()
    st = model.read_state(d)
    size = model.extent(d, st)
    n, fix, bits = model.chunks(size), {}, set()
    for i in range(n):
        e, _ = model.pick(d, i, st)
        vs = model.versions(d, i)
        if vs:
            bits.add(model.group(i))
        if vs and e != vs[0]:
            fix[i] = tuple(x if x == e else None for x in model.slots(d, i))
    for i in range(n):
        if model.group(i) in bits and model.slots(d, i) is None:
            fix[i] = (None, Entry(st.epoch, 1, model.pick(d, i, st)[0].len, True, next(model._nonce), None))
    for i in model.members(model.group(n - 1) if n else 0):
        if i >= n and model.versions(d, i):
            fix[i] = (None, None)
    model.put_slots(d, fix)
    d.truncate(model.P(size))
    d.flush()
    for i in range(n):
        vs = model.versions(d, i)
        if not vs or vs[0].hole:
            d.dealloc(model.data_page(i))
    model.put_map(d, filled=bits)
    d.flush()
    seal(d, st.epoch, size)


# --- the two side by side -------------------------------------------------------------------------------------------

def kind_of(page):
    if page == 0:
        return "sectors"
    if page < model.map_page(0):
        return "data"
    place = (page - model.map_page(0)) % (model.MG * (1 + model.GN) + 1)
    return "map" if place == 0 else "sectors" if (place - 1) % (1 + model.GN) == 0 else "data"


class Library:
    def __init__(self, driver):
        self.process = subprocess.Popen([driver], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.events = []                    # (kind, unit, call)

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        view = None
        for answer in iter(self.process.stdout.readline, ""):
            words = answer.split()
            if words == ["."]:
                return view
            if words[0] == "call":
                self.event(int(words[1]), words[2], [int(x) for x in words[3:]])
            elif words[0] == "view":
                view = [int(x) for x in words[1:]]
            elif words[0] == "damage":
                view = answer.strip()
            else:
                raise Difference(answer.strip())
        raise Difference("the driver ended")

    def event(self, call, kind, numbers):
        if kind == "flush":
            self.events.append(("flush", None, call))
        elif kind == "resize":
            self.events.append(("resize", numbers[0], call))
        elif kind == "zero":
            if numbers[0] % C == 0:         # tails of short chunks are zeroed too: the model has none
                self.events.append(("zero", (numbers[0] // C, 0), call))
        elif numbers == [0, C]:             # a new page 0
            self.events += [("state", (0, 1), call), ("state", (0, 2), call)]
        else:
            at, end = numbers[0], numbers[0] + numbers[1]
            while at < end:
                page = at // C
                kind = kind_of(page)
                if kind == "sectors":
                    sector = at % C // 512
                    self.events.append(("state" if page == 0 and sector in (1, 2) else "tag", (page, sector), call))
                    at += 512
                else:
                    self.events.append((kind, (page, 0), call))
                    at = (page + 1) * C

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def in_order(events, ends):
    """The events (kind, unit, number), the number growing with time.  Data and tags of one operation that no other
    event stands between are written in any order: the library goes group by group, the model writes all data first."""
    ordered, run = [], []
    for at, (kind, unit, number) in enumerate(events):
        if kind not in ("data", "tag") or at in ends:
            ordered += sorted(run, key=lambda e: e[0])
            run = []
        (run if kind in ("data", "tag") else ordered).append((kind, unit, number))
    return ordered + sorted(run, key=lambda e: e[0])


def group(events):
    """Consecutive events of one kind as one, with the units that they touch."""
    grouped = []
    for number, (kind, unit, *_) in enumerate(events):
        if grouped and grouped[-1][0] == kind and kind not in ("flush", "resize"):
            grouped[-1][1].add(unit)
            grouped[-1][2] = number
        else:
            grouped.append([kind, {unit}, number])
    return grouped


class Pair:
    def __init__(self, driver, rng):
        self.rng, self.library, self.disk = rng, Library(driver), Recorder()
        self.limit = rng.choice([0, 0, 1, 3, 40])
        self.library.tell(f"gather {self.limit}")
        self.library.tell("create")
        self.writer = CLike(self.disk, new=True, limit=self.limit)
        self.content, self.fill, self.looks, self.words = bytearray(), 0, 0, []
        self.ends = set(), set()            # where operations end in the events of the model and of the library
        self.compare_events("create")

    def compare_events(self, what):
        self.ordered = in_order(self.disk.events, self.ends[0]), in_order(self.library.events, self.ends[1])
        mine, theirs = group(self.ordered[0]), group(self.ordered[1])
        if [g[:2] for g in mine] != [g[:2] for g in theirs]:
            same = next((i for i, (a, b) in enumerate(zip(mine, theirs)) if a[:2] != b[:2]), min(len(mine), len(theirs)))
            raise Difference(f"{what}: from event {same} on the model did {[g[:2] for g in mine[same:]]},"
                             f" the library {[g[:2] for g in theirs[same:]]}")
        self.groups = [(kind, m, t) for (kind, _, m), (_, _, t) in zip(mine, theirs)]
        self.ends[0].add(len(self.disk.events))
        self.ends[1].add(len(self.library.events))

    def view_of_writer(self):
        chunks = [bytes(self.content[i:i + C]).ljust(C, b"\0") for i in range(0, len(self.content), C)]
        return [len(self.content)] + [zlib.adler32(x) for x in chunks]

    def view_of_model(self, disk):
        try:
            size, texts = model.view(disk)
        except Damage:
            return None
        return [size] + [zlib.adler32(t.ljust(C, b"\0")) for t in texts]

    def cuts(self):
        """The same power cut for both: a boundary between groups of events for each unit touched since the last flush."""
        start = max([i for i, (kind, _, _) in enumerate(self.groups) if kind == "flush"], default=-1) + 1
        points = range(start, len(self.groups))
        units = {"size"} | {unit for kind, unit, _ in self.library.events if kind not in ("flush", "resize")}
        units |= {(p, s) for _, p, v in self.disk.log if p != "size"
                  for s in (range(8) if kind_of(p) == "sectors" else [0])}
        mine, theirs = {}, []
        for unit in units:
            point = self.rng.choice([None, *points, len(self.groups) - 1 if points else None])
            if point is None:
                continue
            _, m, t = self.groups[point]
            mine[unit] = self.last(0, m, unit)
            call = self.last(1, t, unit)
            first = 512 * unit[1] if unit != "size" and kind_of(unit[0]) == "sectors" else 0
            theirs.append(f"length:{call}" if unit == "size" else f"{unit[0]}:{first}:{call}")
        return mine, " ".join(theirs)

    def last(self, whose, until, unit):
        """Number of the last event up to a place in the order that this unit may have changed with."""
        return max((number for kind, touched, number in self.ordered[whose][:until + 1]
                   if kind not in ("data", "tag") or touched == unit or unit == "size"), default=0)

    def same_view(self, what, mine, theirs):
        self.looks += 1
        if (isinstance(theirs, str) or theirs == [0]) and (mine is None or 0 not in self.disk.dur):
            return False                    # a file whose page 0 was never flushed has only its name, or is empty
        if mine != theirs:
            raise Difference(f"{what}: the model reads {mine and mine[:1]}, the library {theirs and theirs[:90]}")
        return True

    def do(self, word):
        self.words.append(word)
        self.fill = self.fill + 13 & 255
        view = self.library.tell(word)
        self.apply(word)
        self.compare_events(word)
        if word not in "cl":
            self.same_view(word, self.view_of_writer(), view)
            if not self.writer.held:
                self.same_view(word, self.view_of_model(self.disk), view)
        for _ in range(3):
            mine, theirs = self.cuts()
            self.same_view(f"power cut after {word}", self.view_of_model(self.disk.image(mine)), self.library.tell("look " + theirs))
        last = max([i for i, e in enumerate(self.library.events) if e[0] == "flush"], default=0)
        if last > 400:                      # what lies before the last flush is no longer needed
            del self.library.events[:last]
            cut = max(i for i, e in enumerate(self.disk.events) if e[0] == "flush")
            self.disk.events = [(kind, unit, n - cut) for kind, unit, n in self.disk.events[cut:]]
            self.ends = {n - cut for n in self.ends[0] if n > cut}, {n - last for n in self.ends[1] if n > last}
            self.disk.log = [(n - cut, p, v) for n, p, v in self.disk.log]
            self.compare_events(word)

    def apply(self, word):
        w = self.writer
        if word == "f":
            w.fsync()
        elif word == "s":
            if not w.seal_step():
                self.disk.flush()
        elif word == "c":
            w.close()
        elif word == "l":
            w.write_held()
        elif word == "o":
            self.writer = CLike(self.disk, limit=self.limit)
        elif word[0] == "t":
            size = number(word[1:])
            w.truncate(size)
            self.resize(size)
        elif word[0] == "p":
            first, last = [int(x) for x in word[1:].split("-")]
            w.punch_range(first, last)
            end = min(len(self.content), (last + 1) * C)
            self.content[first * C:end] = bytes(end - first * C)
        elif word[0] == "w":
            self.write(word)

    def write(self, word):
        if "+" in word:
            chunk, rest = word[1:].split("+")
            skip, bytes_ = [int(x) for x in rest.split(",")]
            start, end = int(chunk) * C + skip, int(chunk) * C + skip + bytes_
        else:
            first, last = [int(x) for x in word[1:].split("-")]
            start, end = first * C, (last + 1) * C
        if start // C * C > len(self.content):
            self.resize(start // C * C)
        if end > len(self.content):
            self.resize(end)
        self.content[start:end] = bytes((self.fill + x % C // 64 + 1) & 255 for x in range(start, end))
        self.writer.write({i: bytes(self.content[i * C:(i + 1) * C]) for i in range(start // C, -(-end // C))})

    def resize(self, size):
        del self.content[size:]
        self.content += bytes(size - len(self.content))

    def crash(self):
        """Goes on from what a power cut left; False if page 0 never became durable."""
        mine, theirs = self.cuts()
        image = self.disk.image(mine)
        if not self.same_view("a power cut", self.view_of_model(image), self.library.tell("look " + theirs)):
            return False
        self.words.append("(power cut)")
        self.library.tell("crash " + theirs)
        self.disk, self.library.events, self.ends = image, [], (set(), set())
        view = self.library.tell("o")
        self.fill = self.fill + 13 & 255
        self.writer = CLike(self.disk, limit=self.limit)
        self.compare_events("recovery")
        self.same_view("after recovery", self.view_of_model(self.disk), view)
        size, texts = model.view(self.disk)
        self.content = bytearray(b"".join(t.ljust(C, b"\0") for t in texts)[:size])
        return True


def number(word):
    chunk, _, rest = word.partition("+")
    return int(chunk) * C + int(rest or 0)


def random_word(rng, size):
    chunks = -(-size // C)
    near = rng.choice([0, 1, 5, 6, 12, 17, 18, 19, 24, 65, 66, 67, rng.randrange(chunks + 2)])
    chunk = near if near <= chunks or rng.random() < .2 else rng.randrange(chunks + 1)
    dice = rng.random()
    if dice < .55 or not chunks:
        if rng.random() < .35:
            return f"w{chunk}+{rng.randrange(C)},{rng.randint(1, 6000)}"
        return f"w{chunk}-{chunk + rng.choice([0, 0, 0, 1, 3, 7])}"
    if dice < .7:
        return f"t{rng.choice([chunk, chunk, near])}+{rng.choice([0, 0, 1, 2000, C - 1])}"
    if dice < .8:
        first = rng.randrange(chunks)
        return f"p{first}-{min(chunks - 1, first + rng.choice([0, 0, 2, 20]))}"
    return "f" if dice < .9 else "s"


def run(driver, seed, rounds):
    operations = looks = crashes = 0
    for n in range(rounds):
        rng = random.Random(seed * 1000003 + n)
        pair = Pair(driver, rng)
        try:
            for _ in range(rng.randint(10, 40)):
                if rng.random() < .08:
                    crashes += 1
                    if not pair.crash():
                        break
                elif rng.random() < .08:
                    pair.do("c" if rng.random() < .8 else "l")
                    pair.do("o")
                else:
                    word = random_word(rng, len(pair.content))
                    for _ in range(rng.choice([1, 4]) if word == "s" else 1):
                        pair.do(word)
        except Difference as difference:
            print(f"seed {seed}, round {n}: {difference}\nafter: {' '.join(pair.words)}")
            return 1
        finally:
            pair.library.close()
        operations += len(pair.words)
        looks += pair.looks
    print(f"{rounds} rounds, {operations} operations with equal writes, flushes and sizes; {looks} equal reads after power cuts and"
          f" without; {crashes} power cuts that the next session recovered")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    sys.exit(run(given.driver, given.seed, given.rounds))

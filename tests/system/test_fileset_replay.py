# SPDX-License-Identifier: Apache-2.0
"""Power cuts under a mounted file set, at recorded writes: the disk below remembers every write and flush (disk_replay.py), and is put
together anew as a power cut leaves it, at many moments, with what its cache may have lost.  Its file system is mounted each time, every
file is opened, and holds what an fsync acknowledged, or newer.  No file is an error, nor was one that no fsync ever saw.

NAOS_CUTS=0 cuts after each write and flush, NAOS_CUTS=500 at so many moments; NAOS_REPLAY_SECONDS is how long the writers run,
NAOS_SEED the seed of what they do (when is up to the machine) and of what the disk's cache loses.
"""
import json
import os
import pathlib
import random
import subprocess
import tempfile
import time

import pytest

import disk_replay
import fileset_mount
import replay_work

pytestmark = [pytest.mark.skipif(fileset_mount.missing() is not None, reason=str(fileset_mount.missing())),
              pytest.mark.skipif(disk_replay.missing() is not None, reason=str(disk_replay.missing()))]
SEED = int(os.environ.get("NAOS_SEED") or 1)
CUTS = int(os.environ.get("NAOS_CUTS") or 48)
SECONDS = float(os.environ.get("NAOS_REPLAY_SECONDS") or 1.5)


@pytest.fixture
def memory():
    """In memory where that can be had: every cut writes a disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as path:
        yield pathlib.Path(path)


class Session:
    """Writers on a recorded disk, and what they know."""

    def __init__(self, directory, seed, seconds, kind):
        self.disk, self.seed = disk_replay.Disk(directory / "recorded", kind), seed
        with self.disk:
            below = self.disk.path / "below"
            self.mount = fileset_mount.Mount(directory, below=below, options=f"seal-delay={1 - seed % 2}s")
            self.mount.start()
            try:
                self.writers = [replay_work.Writer(self.mount.path / f"w{i}", below / f"w{i}", self.disk, seed * 8 + i) for i in range(2)]
                (self.mount.path / "db").mkdir()
                self.databases = [replay_work.Database(self.mount.path / "db", self.disk, seed, journal) for journal in ("wal", "delete")]
                subprocess.run(["sync", "-f", self.disk.path], check=True)
                self.start = self.disk.position()
                self.work(seconds)
            finally:
                self.mount.stop()
            subprocess.run(["sync", "-f", self.disk.path], check=True)
        self.cuts = disk_replay.Cuts(directory / "recorded")

    def work(self, seconds):
        workers = self.writers + self.databases
        for worker in workers:
            worker.start()
        time.sleep(seconds)
        for worker in workers:
            worker.over = True
        for worker in workers:
            worker.join(timeout=120)
            assert not worker.is_alive() and worker.failure is None, worker.failure

    def told(self):
        return (f"{len(self.cuts.records)} writes and flushes ({len(self.cuts.flushes)} flushes, {len(self.cuts.log) >> 20} MiB), "
                f"{sum(len(database.committed) for database in self.databases)} transactions")


class Replay:
    """One cut after the other."""

    def __init__(self, directory, session):
        self.session = session
        self.directory, self.path, self.out = directory, directory / "cut", directory / "out"
        self.path.mkdir()
        self.again = fileset_mount.Mount(directory, below=self.path / "below", token=session.mount.token)
        self.wrong, self.unreadable, self.never_made, self.chunks, self.cuts, self.mounts, self.repairs = [], [], 0, 0, 0, 0, 0

    def cut(self, end, how, then):
        """how: which of what no flush made durable is there; then: what is done with the disk."""
        self.where = f"seed {self.session.seed}, cut after record {end} ({how}, {then})"
        self.position = self.session.cuts.position(end)
        chance = random.Random(f"{self.session.seed} {end} {how}")
        # a file of its own: if another mount name space still has the one of before, its loop device would be used again, with its cache
        image = self.directory / f"cut-{self.cuts}"
        self.session.cuts.write(image, end, chance, {"all": 1, "none": 0}.get(how, chance.choice((0.2, 0.5, 0.8))))
        disk_replay.mount(image, self.path, self.session.disk.kind)
        try:
            {"read": self.read, "mount": self.use, "repair": self.repair}[then]()
        finally:
            disk_replay.unmount(self.path)
            image.unlink()
        self.cuts += 1
        self.chunks += sum(writer.acknowledged_chunks(self.position) for writer in self.session.writers)

    def told(self):
        return (f"{self.cuts} power cuts, {self.mounts} of them mounted and used, {self.repairs} checked and repaired; {self.chunks} chunks had "
                f"been acknowledged: {len(self.wrong)} wrong; {len(self.unreadable)} other files were unreadable, {self.never_made} had got a "
                "name and nothing else")

    def naos(self, *words):
        return subprocess.run([fileset_mount.conftest.NAOS, *map(str, words), "--json", "--config", self.again.config], env=self.again.env,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)

    def is_never_made(self, path):
        """Got its name and nothing else; a mount removes it when it is looked up."""
        return path.stat().st_size == 0 and "user.naos.key" not in os.listxattr(path)

    def compare(self, tree, unreadable):
        """The files of the writers in `tree`, of which `unreadable` (paths below it) can't be read, with what they may hold."""
        for writer in self.session.writers:
            mine = {name for directory, name in unreadable if directory == writer.directory.name}
            for name, why, durable in writer.check(tree / writer.directory.name, self.position, mine):
                to = self.wrong if name not in mine or durable else self.unreadable
                to.append(f"{self.where}: {writer.directory.name}/{name}: {why}")
        for database in self.session.databases:
            why = "it can't be read" if ("db", database.path.name) in unreadable else database.check(tree / "db", self.position)
            if why and not any(at <= self.position for at in database.committed):
                self.unreadable.append(f"{self.where}: {database.path.name}: {why}")
            elif why:
                self.wrong.append(f"{self.where}: {database.path.name}: {why}")

    def read(self):
        """Every file is opened as it is, by a reader that mends nothing."""
        subprocess.run(["rm", "-rf", self.out], check=True)
        below = self.path / "below"
        never = [path for path in below.glob("*/*") if self.is_never_made(path)]
        self.never_made += len(never)
        for path in never:
            path.unlink()
        done = self.naos("open", below, self.out)
        messages = [json.loads(line)["message"] for line in done.stderr.splitlines() if "message" in line]
        failed = {(path.parent.name, path.name) for path in below.glob("*/*") for text in messages if text.startswith(f"{path}: ")}
        if done.returncode != 0 and not failed:
            self.wrong.append(f"{self.where}: naos open: {done.stderr}")
        self.compare(self.out, failed)

    def use(self):
        """It is mounted, every file is read and changed, and what is left is sound."""
        self.again.start()
        self.mounts += 1
        try:
            failed = set()
            for path in sorted(self.again.path.glob("*/*")):
                try:
                    path.read_bytes()
                except FileNotFoundError:
                    self.never_made += 1
                except OSError:
                    failed.add((path.parent.name, path.name))
            self.compare(self.again.path, failed)
            for directory, name in failed:
                (self.again.path / directory / name).unlink()
            for number, path in enumerate(sorted(self.again.path.glob("w*/*"))):
                with open(path, "r+b") as file:
                    file.seek(number * 999)
                    file.write(b"after the cut")
                path.rename(path.parent / ("~" + path.name))
        finally:
            self.again.stop()
        self.is_sound()

    def is_sound(self):
        done = self.naos("fileset", "check", "genomes")
        if done.returncode != 0 or json.loads(done.stdout)["notices"]:
            self.wrong.append(f"{self.where}: afterwards: {done.stdout}{done.stderr}")

    def repair(self):
        """`naos fileset check` is clean or names what it is not, and repairs it; the files hold the same then."""
        self.repairs += 1
        done = self.naos("fileset", "check", "genomes")
        named = sum(self.is_never_made(path) for path in (self.path / "below").glob("*/*"))
        self.never_made += named
        if done.returncode != (4 if named else 0) or done.stderr.count("its first page is missing") != named:
            self.wrong.append(f"{self.where}: check: {done.stdout}{done.stderr}")
        done = self.naos("fileset", "check", "--repair", "genomes")
        if done.returncode != 0 or json.loads(done.stdout)["notices"].get("lost", 0) != named:
            self.wrong.append(f"{self.where}: repair: {done.stdout}{done.stderr}")
        self.is_sound()
        subprocess.run(["rm", "-rf", self.out, self.path / "below/.naos-lost"], check=True)
        done = self.naos("open", self.path / "below", self.out)
        if done.returncode != 0:
            self.wrong.append(f"{self.where}: after the repair: {done.stderr}")
        self.compare(self.out, set())


def replay(directory, seed, seconds, cuts, kind="ext4"):
    """One session, and `cuts` power cuts of it (0: after each write and flush)."""
    session = Session(directory, seed, seconds, kind)
    cutter, chance, moments = Replay(directory, session), random.Random(seed), list(session.cuts.ends(session.start))
    for number, end in enumerate(moments if cuts == 0 else sorted(chance.sample(moments, min(cuts, len(moments))))):
        cutter.cut(end, ("some", "all", "some", "none")[number % 4], {2: "mount", 6: "repair"}.get(number % 8, "read"))
    print(f"{kind}, seed {seed}: {session.told()}; {len(moments)} moments, {cutter.told()}")
    assert not cutter.wrong, "\n".join(cutter.wrong[:20])
    assert not cutter.unreadable, "\n".join(cutter.unreadable[:20])
    assert cutter.cuts >= 20 and cutter.chunks > 0 and cutter.mounts and cutter.repairs


def test_no_power_cut_between_two_writes_loses_or_breaks_anything(memory):
    replay(memory, SEED, SECONDS, CUTS)

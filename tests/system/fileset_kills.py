# SPDX-License-Identifier: Apache-2.0
"""SIGKILL at random moments of naos fileset migrate and rekey: at any moment each name leads to a whole file with its content,
and the same command completes the work."""
import os
import random
import shutil
import subprocess
import time

from conftest import NAOS
from seal_help import FileSet, content, listing, make_tree, same_tree, sealed, temporaries


class Campaign:
    def __init__(self, sets, directory, seed):
        print("NAOS_SEED =", seed)
        self.files, self.dice, self.source, self.dir = FileSet(sets, directory), random.Random(seed), directory / "source", directory
        make_tree(self.source)
        (self.source / "large").write_bytes(content(5 << 20))
        for i in range(40):
            (self.source / f"deep/small-{i}").write_bytes(content(3000, i))
        (self.source / "many").mkdir()
        for i in range(12):  # one file, the first name of which is not the first of the tree
            os.link(self.source / "size-1000003", self.source / f"many/name-{i}")

    def command(self, verb):
        return [NAOS, "fileset", verb, "genomes", "--jobs", str(self.dice.choice((1, 2, 4)))]

    def kill(self, verb, within):
        """True if the run was killed before its end."""
        process = subprocess.Popen(self.command(verb), env=self.files.sets.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(self.dice.random() * within)
            return False
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return True

    def seconds(self, verb):
        """How long a whole run takes: so that most kills hit one."""
        start = time.monotonic()
        subprocess.run(self.command(verb), env=self.files.sets.env, check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - start

    def nothing_is_lost(self, whole_sealed):
        """Each name is there and leads to its content, plain or sealed; what is sealed is sealed whole."""
        back = self.dir / "back"
        shutil.rmtree(back, ignore_errors=True)
        self.files.sets("open", self.files.path, back)
        wanted, found = listing(self.source), listing(self.files.path)
        names = {path for path in wanted if "content" in wanted[path]}
        assert wanted.keys() <= found.keys()
        for path in found.keys() - wanted.keys():
            assert b".naos-" in path, path
        for path in names:
            name = os.fsdecode(path)
            if sealed(self.files.path / name):
                assert (back / name).exists(), f"{path} is not sealed whole"
                assert (back / name).read_bytes() == wanted[path]["content"], path
                assert found[path]["mtime"] == wanted[path]["mtime"] and found[path]["mode"] == wanted[path]["mode"], path
            else:
                assert not whole_sealed, f"{path} is not sealed"
                assert found[path]["content"] == wanted[path]["content"], path

    def complete(self, verb):
        self.files.ok(verb)
        assert temporaries(self.files.path) == []
        assert self.files.ok("check")["notices"] == {}
        back = self.dir / "back"
        shutil.rmtree(back, ignore_errors=True)
        self.files.sets.ok("open", self.files.path, back)
        for where in (self.source, back):  # a killed run can't keep the times of directories
            for path in (where, *where.rglob("*")):
                if path.is_dir() and not path.is_symlink():
                    os.utime(path, (1, 1))
        same_tree(self.source, back)  # with the names of each file
        marks = ("links", "replaces", "rekey")
        for path in (self.files.path, *self.files.path.rglob("*")):
            found = [] if path.is_symlink() else os.listxattr(path)
            assert not [name for name in found if name.split(".")[-1] in marks], path

    def plain(self):
        shutil.rmtree(self.files.path)
        subprocess.run(["cp", "-a", self.source, self.files.path], check=True)

    def file_ids(self):
        return {info["file_id"] for info in self.files.sets.json("info", self.files.path)}

    def migrate(self, kills):
        self.plain()
        within, hits = self.seconds("migrate"), 0
        for _ in range(20 * kills):
            self.plain()
            while hits < kills and self.kill("migrate", within):
                hits += 1
                self.nothing_is_lost(whole_sealed=False)
            self.complete("migrate")
            if hits >= kills:
                return
        raise AssertionError(f"only {hits} runs were hit")

    def rekey(self, kills):
        self.plain()
        self.files.ok("migrate")
        within, hits = self.seconds("rekey"), 0
        for _ in range(20 * kills):
            before = self.file_ids()
            while hits < kills and self.kill("rekey", within):
                hits += 1
                self.nothing_is_lost(whole_sealed=True)
            self.complete("rekey")
            assert not before & self.file_ids(), "a file kept its key"
            if hits >= kills:
                return
        raise AssertionError(f"only {hits} runs were hit")

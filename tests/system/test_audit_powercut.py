# SPDX-License-Identifier: Apache-2.0
"""Power cuts and failing calls: the writer's changes to files are traced, and every moment of them is a possible end.

After a cut, a file has what was written before its last sync, and of what was written since anything: nothing, all, some writes, a
part of the last one.  A directory has the names of its last sync, and of the changes since a beginning.
"""
import copy
import json
import os
import pathlib
import random
import subprocess
import tempfile

import pytest

import audit_reader
from conftest import BUILD
from test_audit_log import objects, write

TRACER = BUILD / "tests/system/audit_tracer"


class Disk:
    """What is certain (durable) and what may or may not be on the disk (pending), as the trace goes on."""

    def __init__(self):
        self.durable, self.pending = {}, {}              # inode: bytes, list of changes
        self.names, self.renames = {}, {}                # directory: {name: inode or "dir"}, list of changes
        self.now = {}                                    # path: inode, as the running system sees it
        self.told = []

    def apply(self, op):
        kind = op["op"]
        if kind in ("create", "mkdir", "rename", "unlink"):
            directory, name = os.path.split(op["path"])
            if kind == "create":
                self.durable[op["ino"]], self.pending[op["ino"]] = b"", []  # an inode may be used again
            inode = op.get("ino", "dir" if kind == "mkdir" else self.now.get(op["path"]))
            self.now[op["path"]] = inode
            if kind in ("rename", "unlink"):
                del self.now[op["path"]]
            if kind == "rename":
                assert os.path.dirname(op["to"]) == directory
                self.now[op["to"]] = inode
                change = lambda names: names.update({os.path.basename(op["to"]): names.pop(name, inode)})  # noqa: E731
            elif kind == "unlink":
                change = lambda names: names.pop(name, None)  # noqa: E731
            else:
                change = lambda names: names.update({name: inode})  # noqa: E731
            self.renames.setdefault(directory, []).append(change)
        elif kind in ("write", "truncate"):
            self.pending.setdefault(op["ino"], []).append(op)
        elif kind == "sync":
            self.durable[op["ino"]] = self.content(op["ino"], self.pending.get(op["ino"], []))
            self.pending[op["ino"]] = []
        elif kind == "sync_names":
            directory = op["path"].rstrip("/")
            for change in self.renames.pop(directory, []):
                change(self.names.setdefault(directory, {}))
        elif kind == "told":
            self.told += bytes.fromhex(op["data"]).decode().split()

    def content(self, inode, changes):
        data = bytearray(self.durable.get(inode, b""))
        for op in changes:
            if op["op"] == "truncate":
                data = data[:op["size"]] + bytes(max(0, op["size"] - len(data)))
            else:
                written = bytes.fromhex(op["data"])
                data += bytes(max(0, op["offset"] + len(written) - len(data)))
                data[op["offset"]:op["offset"] + len(written)] = written
        return bytes(data)

    def survivors(self, rng, how):
        """(content of inode, names of directory) after a cut; how: none, all, some of what was not synced."""
        def file(inode):
            changes = self.pending.get(inode, [])
            if how == "none":
                changes = []
            elif how == "some":
                changes = [copy.copy(op) for op in changes if rng.random() < 0.6]
                if changes and changes[-1]["op"] == "write" and rng.random() < 0.5:
                    changes[-1]["data"] = changes[-1]["data"][:2 * rng.randrange(len(changes[-1]["data"]) // 2 + 1)]
            return self.content(inode, changes)

        def directory(path):
            names = dict(self.names.get(path, {}))
            changes = self.renames.get(path, [])
            keep = {"none": 0, "all": len(changes)}.get(how, rng.randrange(len(changes) + 1))
            for change in changes[:keep]:
                change(names)
            return names
        return file, directory

    def put(self, source, target, rng, how):
        """Writes what survived of the log `source` as the directory `target`."""
        file, directory = self.survivors(rng, how)

        def fill(path, into):
            into.mkdir()
            for name, inode in directory(path).items():
                if inode == "dir":
                    fill(f"{path}/{name}", into / name)
                else:
                    (into / name).write_bytes(file(inode))
        fill(str(source), target)


def traced(log, key, count, threads=1, **env):
    trace = log.parent / "trace"
    trace.unlink(missing_ok=True)
    done = subprocess.run([TRACER, log, "w", str(threads), str(count), key], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=300, env=dict(os.environ, NAOS_TRACE=str(trace), **env))
    return done, [json.loads(line) for line in trace.read_text().splitlines()]


@pytest.fixture
def tmp_path():
    """In memory where that can be had: thousands of commits, and no disk is wanted."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as path:
        yield pathlib.Path(path)


@pytest.fixture
def log(tmp_path):
    return tmp_path / "audit"


@pytest.fixture
def key(tmp_path):
    write(tmp_path / "other")
    return tmp_path / "other/key"


def test_a_power_cut_at_any_moment_loses_no_acknowledged_record(log, key, tmp_path):
    rng = random.Random(int(os.environ.get("NAOS_SEED", "1")))
    done, trace = traced(log, key, count=262)
    assert done.returncode == 0, done.stderr
    rolls = [i for i, op in enumerate(trace) if op["op"] == "create" and "records/001" in op["path"]]
    assert len(rolls) == 1 and sum(op["op"] == "told" for op in trace) == 262
    ends = set(range(40)) | set(range(rolls[0] - 20, rolls[0] + 30)) | set(rng.sample(range(len(trace)), 40))
    disk, cuts, cut_back = Disk(), 0, 0
    for at, op in enumerate(trace):
        disk.apply(op)
        if at not in ends:
            continue
        for how in ("none", "all", "some"):
            after = tmp_path / f"cut-{at}-{how}"
            if str(log) not in {f"{path}/{name}" for path, names in disk.names.items() for name in names}:
                assert not disk.told
                break
            disk.put(log, after, rng, how)
            write(after, name="after", key=key)
            records = audit_reader.verify(after)
            assert objects(records)[:len(disk.told)] == disk.told, f"operation {at}, {how}"
            cuts += 1
            cut_back += any(record["action"] == "audit.recover" for record in records)
    assert cuts > 250 and cut_back > 30, (cuts, cut_back)


def test_any_call_may_fail_and_what_is_refused_is_not_told(log, key, tmp_path):
    """The n-th changing call fails, for each n: the record is refused, tried again by the writer, and there exactly once."""
    write(log, count=253, key=key)
    number = refusals = uncertain = 0
    while True:
        number += 1
        case = tmp_path / f"fail-{number}"
        subprocess.run(["cp", "-r", log, case], check=True)
        done, trace = traced(case, key, count=6, NAOS_FAIL_AT=str(number))
        told = done.stdout.split()
        if done.returncode == 1:  # it could not be opened
            assert not told
            write(case, name="again", count=1, key=key)
        else:
            assert len(told) == 6 and done.returncode in (0, 33)
        records = audit_reader.verify(case)
        there = [name for name in objects(records)[253:] if not name.startswith("again")]
        assert [name for i, name in enumerate(there) if name not in there[:i]] == told
        # a record that was refused after its checkpoint got its name is there twice, and the log says so
        twice = len(there) - len(set(there))
        assert twice == sum("yet are in the log" in record.get("reason", "") for record in records)
        refusals += done.returncode == 33
        uncertain += twice
        if not any(op["op"] == "failed" for op in trace):
            break
    assert refusals > 20 and uncertain > 0, (refusals, uncertain)

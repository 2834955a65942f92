# SPDX-License-Identifier: Apache-2.0
"""What is measured: one row each, with the ratio to gocryptfs that must be reached, and how it is measured."""
import json
import os
import pathlib
import subprocess
import time

SIZE_MIB = 512
FILES = 5000
WRITES, FLUSHED, READS = 12000, 2000, 12000


class Measure:
    """unit MB/s, IOPS, /s: more is better; s: less is.  cold: caches are dropped before; warm: it is done once before, untimed.  cpu: what the CPU time is a ratio to."""

    def __init__(self, key, text, unit, how, *, cold=False, warm=False, must=None, must_ao=None, cpu=None, disk_must=None, settle=False):
        self.key, self.text, self.unit, self.how, self.cold, self.warm = key, text, unit, how, cold, warm
        self.must, self.must_ao, self.cpu, self.disk_must, self.settle = must, must_ao, cpu, disk_must, settle


def fio(*words, unit="MB/s", jobs=1, files="one", count=0):
    """A job of fio; the closing flush is in its time."""
    def measure(bench, directory):
        size = bench.size // (2 if files == "two" else 1)
        names = ["--filename_format=two.$jobnum"] if files == "two" else ["--filename=one"]
        done = subprocess.run(
            ["fio", "--output-format=json", "--name=bench", f"--directory={directory}", "--ioengine=psync", "--invalidate=0",
             "--fallocate=none", "--refill_buffers=1", f"--size={size}m", f"--numjobs={jobs}", *names, *words,
             *([f"--number_ios={count}"] if count else [])], capture_output=True, text=True, cwd=bench.scratch)
        rows = json.loads(done.stdout[done.stdout.index("{"):])["jobs"] if "{" in done.stdout else []
        if done.returncode != 0 or not rows or any(row["error"] for row in rows):
            raise RuntimeError("fio: " + (done.stderr + done.stdout)[-300:])
        total = sum(row[way]["io_bytes" if unit == "MB/s" else "total_ios"] for row in rows for way in ("read", "write"))
        rate = total / (max(row["job_runtime"] for row in rows) / 1000)
        return rate / 1e6 if unit == "MB/s" else rate, sum(row[way]["io_bytes"] for row in rows for way in ("read", "write"))
    return measure


def phase(name):
    """A phase of bench_fs."""
    def measure(bench, directory):
        (directory / "small").mkdir(exist_ok=True)
        done = subprocess.run([bench.program, name, directory / "small", str(bench.files), "4096"], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-300:])
        return float(done.stdout), bench.files
    return measure


def timed(*words):
    """Seconds of a command; {tree}, {repository}, {at} stand for paths."""
    def measure(bench, directory):
        paths = {"tree": bench.tree, "repository": bench.repository, "at": directory}
        begin = time.monotonic()
        subprocess.run([word.format(**paths) for word in words], check=True, capture_output=True, env={**os.environ, **bench.git_env})
        return time.monotonic() - begin, 1
    return measure


def make_directory(name, then):
    def measure(bench, directory):
        (directory / name).mkdir()
        return then(bench, directory)
    return measure


GIT = ("git", "-c", "safe.directory=*", "-C", "{at}/clone", "status", "--short")
M = Measure
ALL = [
    M("write1", "sequential write 1 MiB, 1 job, fsync", "MB/s", fio("--bs=1M", "--rw=write", "--end_fsync=1"), must=1.4, cpu="GiB written",
      disk_must=1.5),
    M("read1", "sequential read 1 MiB, cold", "MB/s", fio("--bs=1M", "--rw=read"), cold=True, must=1.1, cpu="GiB read"),
    M("read1_warm", "sequential read again, warm", "MB/s", fio("--bs=1M", "--rw=read"), warm=True, must=2.5),
    M("write2", "sequential write, 2 jobs", "MB/s", fio("--bs=1M", "--rw=write", "--end_fsync=1", jobs=2, files="two"), must=1.4,
      cpu="GiB written"),
    M("read2", "sequential read, 2 jobs, cold", "MB/s", fio("--bs=1M", "--rw=read", jobs=2, files="two"), cold=True, must=1.2, cpu="GiB read"),
    M("random_read", "random read 4 KiB, 1 job, cold", "IOPS", fio("--bs=4k", "--rw=randread", unit="IOPS", count=READS), cold=True, must=1.2,
      cpu="4 KiB read"),
    M("random_read4", "random read 4 KiB, 4 jobs, cold", "IOPS", fio("--bs=4k", "--rw=randread", unit="IOPS", jobs=4, count=READS), cold=True,
      must=1.5),
    M("random_write", "random write 4 KiB, fsync at end", "IOPS", fio("--bs=4k", "--rw=randwrite", "--end_fsync=1", unit="IOPS", count=WRITES),
      must=2.0, cpu="4 KiB written", disk_must=1.8),
    M("flushed_write", "random write 4 KiB, fsync each", "IOPS", fio("--bs=4k", "--rw=randwrite", "--fsync=1", unit="IOPS", count=FLUSHED),
      must=2.0, disk_must=1.2),
    M("create", "create + write 4 KiB", "/s", phase("create"), must=1.2, must_ao=3.5, cpu="file created", disk_must=1.3, settle=True),
    M("stat", "stat, cold", "/s", phase("stat"), cold=True, must=0.95),
    M("readdir", "readdir + stat, cold", "/s", phase("readdir"), cold=True, must=0.9),
    M("read_small", "open + read 4 KiB, cold", "/s", phase("read"), cold=True, must=1.2, cpu="file read"),
    M("rename", "rename", "/s", phase("rename"), must=1.2),
    M("unlink", "unlink", "/s", phase("unlink"), must=1.2),
    M("untar", "untar of 8,000 files, 28 MB", "s", make_directory("tree", timed("tar", "xf", "{tree}", "-C", "{at}/tree")), must=0.75,
      must_ao=0.27),
    M("clone", "git clone of 4,000 files, 14 MB", "s", timed("git", "clone", "-q", "--no-hardlinks", "{repository}", "{at}/clone"), must=0.8,
      must_ao=0.25),
    M("status", "git status, cold", "s", timed(*GIT), cold=True, must=1.0),
    M("status_warm", "git status, warm", "s", timed(*GIT), warm=True, must=0.5),
]
ON_DISK = ["write1", "read1", "random_write", "flushed_write", "create", "read_small"]
REMOVE_BEFORE = {"write1": ["one"], "write2": ["two.0", "two.1"]}


def drop_caches():
    subprocess.run(["sync"], check=True)
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")

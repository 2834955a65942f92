# SPDX-License-Identifier: Apache-2.0
"""Programs that test_fileset_apps.py runs on a mount, each in a process of its own: apps_help.py NAME DIRECTORY [WORD].

Each prints a line once something is durable: that line is what must still hold after naos-fs was killed.
"""
import os
import pathlib
import sqlite3
import subprocess
import sys
import time

GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org",
       "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org"}


def say(text):
    print(text, flush=True)


def git(directory, *words):
    safe = ["-c", "safe.directory=*", "-c", "core.fsync=all", "-c", "gc.auto=0"]
    return subprocess.run(["git", *safe, "-C", str(directory), *map(str, words)], env=dict(os.environ, **GIT), check=True, capture_output=True,
                          text=True).stdout.strip()


def sqlite(directory, journal):
    """Transactions of one of two processes: a row, and a sum that must fit all rows."""
    db = sqlite3.connect(directory / "db", isolation_level=None, timeout=60)
    db.execute("pragma synchronous=full")
    for attempt in range(200):  # a change of the journal, or its recovery, by the other process is told at once, whatever the timeout
        try:
            db.execute(f"pragma journal_mode={journal}")
            db.execute("create table if not exists rows(id integer primary key, process int, text blob)")
            db.execute("create table if not exists sums(process int primary key, count int)")
            break
        except sqlite3.OperationalError:
            time.sleep(0.05)
    while True:
        db.execute("begin immediate")
        key = db.execute("insert into rows(process, text) values(?, randomblob(?))", (os.getpid(), 100 + os.getpid() % 5000)).lastrowid
        db.execute("insert into sums values(?, 1) on conflict(process) do update set count = count + 1", (os.getpid(),))
        if key % 7 == 0:
            db.execute("update rows set text = randomblob(3000) where id = ?", (key // 2,))
        db.execute("commit")
        say(key)


def hdf5(directory):
    """Files of which each is complete, flushed and renamed before it is acknowledged."""
    import h5py
    import numpy
    number = 0
    while True:
        number += 1
        with h5py.File(directory / "next.h5", "w") as file:
            data = file.create_dataset("data", (200, 300), chunks=(50, 60), compression="gzip", dtype="i4")
            for row in range(0, 200, 20):
                data[row:row + 20] = numpy.arange(20 * 300).reshape(20, 300) * number + row
            file.attrs["number"] = number
            file.flush()
            os.fsync(file.id.get_vfd_handle())
        fd = os.open(directory / "next.h5", os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        os.rename(directory / "next.h5", directory / f"{number}.h5")
        say(number)


def commits(directory):
    number = 0
    while True:
        number += 1
        (directory / f"file-{number % 20}").write_text(f"{number}\n" * 500)
        git(directory, "add", "-A")
        git(directory, "commit", "-q", "-m", str(number))
        say(git(directory, "rev-parse", "HEAD"))


if __name__ == "__main__":
    {"sqlite": sqlite, "hdf5": hdf5, "commits": commits}[sys.argv[1]](pathlib.Path(sys.argv[2]), *sys.argv[3:])

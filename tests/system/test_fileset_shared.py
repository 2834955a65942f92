# SPDX-License-Identifier: Apache-2.0
"""mode = shared: two mounts of one directory stand in for two nodes."""
import errno
import fcntl
import os
import random
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
import time

import pytest

import conftest
import fileset_mount

pytestmark = pytest.mark.skipif(fileset_mount.missing() is not None, reason=str(fileset_mount.missing()))

TWONODE_ROUNDS = 1  # a hundred are in tests/campaigns/fs-twonode.txt


@pytest.fixture
def nodes(tmp_path):
    with fileset_mount.Mount(tmp_path, mode="shared") as first, first.second() as second:
        yield first, second
        first.stop()
        second.stop()
        assert '"failed":0' in first.naos("verify", first.below, "--json").replace(" ", "")


def together(*works):
    """Each in a process of its own, all at once; what they raise fails the test."""
    ready, go = os.pipe()
    children = []
    for work in works:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(go)
                os.read(ready, 1)
                work()
                status = 0
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            finally:
                os._exit(status)
        children.append(child)
    os.close(ready)
    os.close(go)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * len(works)


def record(number, size):
    return (struct.pack("<I", number + 1) * (size // 4 + 1))[:size]


# --- what a reader sees ------------------------------------------------------------------------------------------------------


def test_a_reader_sees_what_the_other_node_wrote(nodes):
    a, b = (node.path / "f" for node in nodes)
    a.write_bytes(b"one")
    assert b.read_bytes() == b"one"
    a.write_bytes(b"longer" * 10000)
    assert b.stat().st_size == 60000 and b.read_bytes() == b"longer" * 10000
    b.write_bytes(b"short")
    assert a.stat().st_size == 5 and a.read_bytes() == b"short"


def test_an_open_reader_sees_new_data_growth_and_truncation(nodes):
    a, b = (node.path / "f" for node in nodes)
    a.write_bytes(b"x" * 8192)
    with open(b, "rb", buffering=0) as reader, open(a, "r+b", buffering=0) as writer:
        assert os.pread(reader.fileno(), 8192, 0) == b"x" * 8192
        os.pwrite(writer.fileno(), b"Y" * 4096, 4096)
        assert os.pread(reader.fileno(), 8192, 0) == b"x" * 4096 + b"Y" * 4096
        os.pwrite(writer.fileno(), b"Z" * 200000, 8192)
        assert os.pread(reader.fileno(), 20, 208182) == b"Z" * 10  # without a stat before
        assert os.fstat(reader.fileno()).st_size == 208192
        assert os.lseek(reader.fileno(), 0, os.SEEK_END) == 208192
        writer.truncate(5000)
        assert len(os.pread(reader.fileno(), 8192, 0)) == 5000 and os.fstat(reader.fileno()).st_size == 5000
        writer.truncate(100000)
        assert os.pread(reader.fileno(), 100000, 4096) == b"Y" * 904 + bytes(95000)
    with open(a, "rb", buffering=0) as first, open(a, "r+b", buffering=0) as second:  # the same on one node
        os.pwrite(second.fileno(), b"W", 0)
        assert os.pread(first.fileno(), 1, 0) == b"W"


def test_nodes_that_change_a_file_in_turn_always_agree(nodes):
    """Random operations by way of either node, open all the time and opened anew; each reads what the model says."""
    seed = int(os.environ.get("NAOS_SEED") or 20261130)
    chance, model = random.Random(seed), bytearray()
    paths = [node.path / "f" for node in nodes]
    paths[0].touch()
    writers = [os.open(path, os.O_RDWR) for path in paths]
    readers = [os.open(path, os.O_RDONLY) for path in paths]
    appenders = [os.open(path, os.O_WRONLY | os.O_APPEND) for path in paths]
    done = []
    for step in range(int(os.environ.get("NAOS_ROUNDS") or 300)):
        which, kind = chance.randrange(2), chance.choice(["write", "write", "append", "truncate", "punch", "sync", "reopen"])
        offset, size = chance.randrange(1 + min(len(model) + 300000, 2000000)), chance.choice([1, 100, 4096, 5000, 47008, 250000])
        text = chance.randbytes(size)
        if kind == "write":
            os.pwrite(writers[which], text, offset)
            model.extend(bytes(max(0, offset + size - len(model))))
            model[offset:offset + size] = text
        elif kind == "append":
            os.write(appenders[which], text)
            model += text
        elif kind == "truncate":
            os.ftruncate(writers[which], offset)
            model = model[:offset] + bytes(max(0, offset - len(model)))
        elif kind == "punch":
            subprocess.run(["fallocate", "-p", "-o", str(offset), "-l", str(size), paths[which]], check=True)
            hole = max(0, min(len(model), offset + size) - offset)
            model[offset:offset + hole] = bytes(hole)
        elif kind == "sync":
            os.fsync(writers[which])
        else:
            for table, flags in ((writers, os.O_RDWR), (readers, os.O_RDONLY)):
                os.close(table[which])
                table[which] = os.open(paths[which], flags)
        done.append((kind, which, offset, size))
        for file in (*readers, *writers):
            at = chance.randrange(len(model) + 1)
            assert os.pread(file, 60000, at) == model[at:at + 60000], f"seed {seed}, step {step}: {done[-5:]}"
            assert os.fstat(file).st_size == len(model), f"seed {seed}, step {step}: {done[-5:]}"
    for file in (*writers, *readers, *appenders):
        os.close(file)
    assert paths[0].read_bytes() == model == paths[1].read_bytes()


def test_names_are_the_same_on_all_nodes_at_once(nodes):
    a, b = (node.path for node in nodes)
    (a / "f").write_bytes(b"1")
    assert (b / "f").exists() and not (b / "g").exists()
    os.rename(a / "f", a / "g")
    assert not (b / "f").exists() and (b / "g").read_bytes() == b"1"
    os.unlink(b / "g")
    assert not (a / "g").exists() and os.listdir(a) == []
    (a / "d").mkdir()
    (b / "d" / "in").write_bytes(b"2")
    assert os.listdir(a / "d") == ["in"] and (a / "d" / "in").read_bytes() == b"2"
    (a / "x").write_bytes(b"old")
    with open(b / "x", "rb") as reader:
        (a / "y").write_bytes(b"new")
        os.rename(a / "y", a / "x")
        assert reader.read() == b"old" and (b / "x").read_bytes() == b"new"
    os.chmod(a / "x", 0o640)
    assert (b / "x").stat().st_mode & 0o777 == 0o640


def test_opening_and_sealing_show_in_no_time(nodes):
    a, b = (node.path / "f" for node in nodes)
    a.write_bytes(b"x" * 10000)
    times = (1_234_567_890_123_456_789, 1_111_111_111_222_222_333)
    os.utime(a, ns=times)
    for path in (a, b):
        assert (path.stat().st_atime_ns, path.stat().st_mtime_ns) == times
    with open(a, "r+b"), open(b, "r+b"):
        pass
    assert b.stat().st_mtime_ns == times[1]
    for node in nodes:
        node.stop()
    assert (nodes[0].below / "f").stat().st_mtime_ns == times[1]


# --- writers -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size,count", [(47008, 60), (65536, 60), (4096, 300), (1000, 300)])
def test_writers_of_different_ranges_lose_nothing(nodes, size, count):
    paths = [node.path / "f" for node in nodes]
    paths[0].touch()

    def write(which):
        def work():
            with open(paths[which], "r+b", buffering=0) as out:
                for i in range(which, count, 2):
                    assert os.pwrite(out.fileno(), record(i, size), i * size) == size
                os.fsync(out.fileno())
        return work
    together(write(0), write(1))
    for path in paths:
        assert path.read_bytes() == b"".join(record(i, size) for i in range(count))


def test_two_that_append_overwrite_nothing(nodes):
    paths = [node.path / "f" for node in nodes]
    paths[0].touch()

    def append(which):
        def work():
            out = os.open(paths[which], os.O_WRONLY | os.O_APPEND)
            for _ in range(200):
                assert os.write(out, b"%d" % which * 99 + b"\n") == 100
        return work
    together(append(0), append(1))
    lines = paths[0].read_bytes().split(b"\n")[:-1]
    assert sorted(lines) == [b"0" * 99] * 200 + [b"1" * 99] * 200


def test_a_truncation_and_a_writer_leave_whole_records(nodes):
    paths = [node.path / "f" for node in nodes]
    size = 5000
    paths[0].touch()

    def write():
        with open(paths[0], "r+b", buffering=0) as out:
            for i in range(400):
                os.pwrite(out.fileno(), record(i, size), i % 50 * size)

    def cut():
        chance = random.Random(7)
        for _ in range(60):
            os.truncate(paths[1], chance.randrange(50) * size)
    together(write, cut)
    assert paths[0].stat().st_size == paths[1].stat().st_size
    text = paths[1].read_bytes()
    assert text == paths[0].read_bytes() and len(text) % size == 0
    for i in range(0, len(text), size):
        piece = text[i:i + size]
        number, = struct.unpack("<I", piece[:4])
        assert piece == (record(number - 1, size) if number else bytes(size))


def test_of_those_who_create_one_name_one_wins(nodes):
    paths = [node.path for node in nodes]
    wins = nodes[0].directory / "wins"
    wins.mkdir()

    def create(which):
        def work():
            for i in range(100):
                try:
                    out = os.open(paths[which] / f"x{i}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
                    (wins / f"{i}-{which}").touch()
                    os.write(out, b"%d" % which)
                except FileExistsError:
                    out = os.open(paths[which] / f"x{i}", os.O_RDWR)  # never half made
                os.close(out)
                out = os.open(paths[which] / f"y{i}", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
                os.write(out, b"%d" % which)
                os.close(out)
        return work
    together(create(0), create(1), create(0), create(1))
    assert len(os.listdir(wins)) == 100
    for i in range(100):
        winner = [name for name in os.listdir(wins) if name.startswith(f"{i}-")][0][-1]
        assert (paths[1] / f"x{i}").read_text() == winner
        assert sorted((paths[0] / f"y{i}").read_text()) == list("0011")
    assert len(os.listdir(nodes[0].below)) == 200, "no temporary name is left"


def test_a_database_is_shared(nodes):
    paths = [node.path / "db" for node in nodes]
    with sqlite3.connect(paths[0]) as base:
        base.execute("CREATE TABLE t (n INTEGER)")
        base.execute("INSERT INTO t VALUES (0)")
    base.close()

    def count(which):
        def work():
            base = sqlite3.connect(paths[which], timeout=60, isolation_level=None)
            for _ in range(25):
                base.execute("BEGIN IMMEDIATE")
                base.execute("UPDATE t SET n = n + 1")
                base.execute("COMMIT")
            base.close()
        return work
    together(count(0), count(1))
    base = sqlite3.connect(paths[1])
    assert base.execute("SELECT n FROM t").fetchone() == (50,)
    assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    base.close()


def test_what_a_node_had_made_durable_outlives_it(nodes):
    first, second = nodes
    size, name = 6000, "f"
    (first.path / name).touch()
    done = first.directory / "done"

    def write(node, which):
        with open(node.path / name, "r+b", buffering=0) as out, open(f"{done}{which}", "wb", buffering=0) as acknowledged:
            for i in range(which, 2000, 2):
                os.pwrite(out.fileno(), record(i, size), i * size)
                os.fsync(out.fileno())
                acknowledged.write(struct.pack("<I", i))

    children = []
    for which, node in enumerate(nodes):
        child = os.fork()
        if child == 0:
            try:
                write(node, which)
            except OSError:
                pass
            os._exit(0)
        children.append(child)
    while any(not os.path.exists(f"{done}{which}") or os.path.getsize(f"{done}{which}") < 80 for which in (0, 1)):
        time.sleep(0.02)
    second.kill()
    os.waitpid(children[1], 0)
    before = os.path.getsize(f"{done}0")
    while os.path.getsize(f"{done}0") < before + 80:  # the other one goes on
        assert os.waitpid(children[0], os.WNOHANG) == (0, 0)
        time.sleep(0.02)
    os.kill(children[0], signal.SIGKILL)
    os.waitpid(children[0], 0)
    first.kill()  # nobody is left to seal the file
    second.start()
    with open(second.path / name, "r+b", buffering=0) as reader:
        for which in (0, 1):
            acknowledged = open(f"{done}{which}", "rb").read()
            for number, in struct.iter_unpack("<I", acknowledged):
                assert os.pread(reader.fileno(), size, number * size) == record(number, size)
    assert "event=recovered" in second.log.read_text()
    first.start()


# --- locks -------------------------------------------------------------------------------------------------------------------


def lock(file, kind, start=0, length=0, command=fcntl.F_SETLK):
    """A struct flock as fcntl fills it: (type, start, length, pid)."""
    types = {"r": fcntl.F_RDLCK, "w": fcntl.F_WRLCK, "u": fcntl.F_UNLCK}
    text = struct.pack("hhqqi4x", types[kind], os.SEEK_SET, start, length, 0)
    found = struct.unpack("hhqqi4x", fcntl.fcntl(file, command, text))
    return {v: k for k, v in types.items()}[found[0]], found[2], found[3], found[4]


def refused(file, *arguments, **words):
    with pytest.raises(OSError) as caught:
        lock(file, *arguments, **words)
    return caught.value.errno in (errno.EAGAIN, errno.EACCES)


def elsewhere(work):
    """In another process, for a process's own locks never stand in its way."""
    together(work)


def test_fcntl_locks_exclude_between_nodes(nodes):
    a, b = (node.path / "f" for node in nodes)
    a.write_bytes(b"x" * 100)
    with open(a, "r+b") as mine, open(b, "r+b") as theirs:
        lock(mine, "w", 10, 10)
        lock(mine, "r", 50, 10)

        def other_node():
            assert refused(theirs, "w", 15, 1) and refused(theirs, "r", 19, 1) and refused(theirs, "w", 0)
            lock(theirs, "w", 0, 10)
            lock(theirs, "w", 20, 10)
            lock(theirs, "r", 50, 10)
            assert refused(theirs, "w", 59, 1)
            assert lock(theirs, "w", 0, 0, fcntl.F_GETLK) == ("w", 10, 10, 0)  # a process of another node has no number here
        elsewhere(other_node)
        parent = os.getpid()

        def same_node():
            with open(a, "r+b") as again:
                assert lock(again, "w", 0, 0, fcntl.F_GETLK) == ("w", 10, 10, parent)
                assert lock(again, "r", 30, 0, fcntl.F_GETLK)[0] == "u"
        elsewhere(same_node)
        lock(mine, "u", 12, 2)
        elsewhere(lambda: lock(theirs, "w", 12, 2))
        os.pwrite(theirs.fileno(), b"y" * 100, 0)  # they are advisory, and no lock of the format's is in their way
    elsewhere(lambda: lock(os.open(b, os.O_RDWR), "w"))  # closed: gone


def test_locks_reach_to_the_end_of_all_files(nodes):
    a, b = (node.path / "f" for node in nodes)
    a.touch()
    far = (1 << 61) + 5
    with open(a, "r+b") as mine, open(b, "r+b") as theirs:
        lock(mine, "w", far, 1)
        elsewhere(lambda: refused(theirs, "w", far, 1) or os._exit(1))
        elsewhere(lambda: lock(theirs, "w", 0, far - 10))
        lock(mine, "u")
        lock(mine, "w", 1000, 0)
        elsewhere(lambda: lock(theirs, "w", 0, 1000))
        elsewhere(lambda: refused(theirs, "r", (1 << 62), 1) or os._exit(1))
        elsewhere(lambda: lock(theirs, "w", 5000, 1, fcntl.F_GETLK) == ("w", 1000, 0, 0) or os._exit(1))
        os.write(theirs.fileno(), b"x" * 10000)  # the file below is longer than any lock of ours knows


def test_a_lock_is_waited_for_and_a_signal_ends_the_wait(nodes):
    a, b = (node.path / "f" for node in nodes)
    a.touch()
    mine, theirs = open(a, "r+b"), open(b, "r+b")
    lock(mine, "w")
    started, ended = os.pipe()

    def wait():
        lock(theirs, "w", command=fcntl.F_SETLKW)
        os.write(ended, b"!")
    child = os.fork()
    if child == 0:
        wait()
        os._exit(0)
    time.sleep(0.3)
    assert os.waitpid(child, os.WNOHANG) == (0, 0)
    lock(mine, "u")
    assert os.read(started, 1) == b"!" and os.waitpid(child, 0)[1] == 0
    lock(mine, "w")
    for number, code in ((signal.SIGALRM, 7), (signal.SIGKILL, -signal.SIGKILL)):
        child = os.fork()
        if child == 0:
            def interrupted(*_):
                os._exit(7)
            signal.signal(signal.SIGALRM, interrupted)
            os.write(ended, b"?")
            wait()
            os._exit(0)
        assert os.read(started, 1) == b"?"
        time.sleep(0.2)
        os.kill(child, number)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
    lock(mine, "u")
    elsewhere(lambda: lock(theirs, "w"))  # what was interrupted holds nothing
    mine.close()
    theirs.close()


def test_locks_go_as_their_kind_says(nodes):
    a, b = (node.path / "f" for node in nodes)
    a.touch()
    theirs = open(b, "r+b")
    first = open(a, "r+b")
    lock(first, "w")
    open(a, "rb").close()  # any close of the process drops its fcntl locks
    elsewhere(lambda: lock(theirs, "w"))
    lock(first, "w", command=fcntl.F_OFD_SETLK)
    open(a, "rb").close()  # but not those of an open file
    elsewhere(lambda: refused(theirs, "w") or os._exit(1))
    copy = os.dup(first.fileno())
    first.close()
    elsewhere(lambda: refused(theirs, "w") or os._exit(1))
    os.close(copy)
    elsewhere(lambda: lock(theirs, "w", command=fcntl.F_SETLKW))  # the kernel tells of the last close a moment later

    first = open(a, "r+b")
    fcntl.flock(first, fcntl.LOCK_EX)
    with pytest.raises(BlockingIOError):
        fcntl.flock(theirs, fcntl.LOCK_SH | fcntl.LOCK_NB)
    elsewhere(lambda: lock(theirs, "w"))  # flock and fcntl do not see each other
    fcntl.flock(first, fcntl.LOCK_SH)
    fcntl.flock(theirs, fcntl.LOCK_SH | fcntl.LOCK_NB)
    with pytest.raises(BlockingIOError):
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(theirs, fcntl.LOCK_UN)
    fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
    first.close()
    fcntl.flock(theirs, fcntl.LOCK_EX)
    with open(a, "rb") as reader:  # LOCK_EX needs no right to write
        fcntl.flock(theirs, fcntl.LOCK_UN)
        fcntl.flock(reader, fcntl.LOCK_EX | fcntl.LOCK_NB)
    theirs.close()


def test_locks_of_a_node_that_died_are_free(nodes):
    a, b = (node.path / "f" for node in nodes)
    a.touch()
    held = open(b, "r+b")
    lock(held, "w")
    with open(a, "r+b") as mine:
        assert refused(mine, "w")
        nodes[1].kill()
        lock(mine, "w")
    try:
        held.close()
    except OSError:
        pass
    nodes[1].start()


def test_more_locks_than_can_wait_are_refused(nodes):
    a, b = (node.path / "f" for node in nodes)
    a.touch()
    mine = open(a, "r+b")
    lock(mine, "w")

    def wait():
        theirs = open(b, "r+b")
        refusals = []

        def one():
            try:
                lock(theirs, "w", command=fcntl.F_SETLKW)
            except OSError as error:
                refusals.append(error.errno)
                os.kill(os.getpid(), signal.SIGALRM)
        threading.stack_size(65536)
        signal.signal(signal.SIGALRM, lambda *_: os._exit(0 if refusals == [errno.ENOLCK] else 3))
        for _ in range(1025):
            threading.Thread(target=one, daemon=True).start()
        time.sleep(60)
        os._exit(4)
    elsewhere(wait)
    mine.close()
    elsewhere(lambda: lock(open(b, "r+b"), "w"))


def test_a_node_unmounts_while_a_lock_waits(nodes):
    first, second = nodes
    (first.path / "f").touch()
    with open(first.path / "f", "r+b") as mine:
        lock(mine, "w")
        child = os.fork()
        if child == 0:
            try:
                lock(open(second.path / "f", "r+b"), "w", command=fcntl.F_SETLKW)
            except OSError as error:
                os._exit(5 if error.errno == errno.ENOLCK else 7)
            os._exit(6)
        time.sleep(0.5)
        subprocess.run(["fusermount3", "-u", "-z", str(second.path)], check=True, timeout=60)
        second.process.terminate()
        assert second.process.wait(timeout=60) == 0
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    second.process = None
    second.start()


# --- judges of others --------------------------------------------------------------------------------------------------------


def test_twonode(nodes, shared):
    tool = shared / "tools/fs/twonode.py"
    if not tool.exists():
        pytest.skip("reference tools are absent")
    for _ in range(TWONODE_ROUNDS):
        done = subprocess.run([sys.executable, tool, nodes[0].path, nodes[1].path], capture_output=True, text=True, timeout=300)
        assert "SUMMARY fail 0" in done.stdout, done.stdout + done.stderr
        for name in os.listdir(nodes[0].path):
            os.unlink(nodes[0].path / name)


def test_fsprobe(nodes, shared):
    tool = shared / "tools/fs/fsprobe.py"
    if not tool.exists() or subprocess.run(["id", "benchu"], capture_output=True).returncode != 0 or os.geteuid() != 0:
        pytest.skip("reference tools or their user benchu are absent")
    for path in nodes[0].path.parents:  # its ordinary user must get there
        if path.stat().st_mode & 0o055 != 0o055 and path.owner() == "root" and str(path).startswith("/tmp/"):
            os.chmod(path, 0o755)
    done = subprocess.run([sys.executable, tool, nodes[0].path], capture_output=True, text=True, timeout=300)
    assert "SUMMARY ok=56 fail=0 unsup=1" in done.stdout, done.stdout + done.stderr


def test_a_file_that_is_read_is_not_replaced_under_its_reader(tmp_path):
    """naos fileset rekey puts a new file in the place of the old one: a descriptor from before would never see what is written to it."""
    with fileset_mount.Mount(tmp_path, mode="shared", options="seal-delay=1s") as first, first.second(options="seal-delay=1s") as second:
        path, other = first.path / "f", second.path / "f"
        path.write_bytes(b"a" * 10000)
        time.sleep(3)  # nobody has it open
        words = [conftest.NAOS, "fileset", "rekey", first.name, "--config", str(first.config)]
        with open(other, "rb", buffering=0) as reader:
            assert reader.read(1) == b"a"
            before = (first.below / "f").read_bytes()[16:32]
            done = subprocess.run(words, env=first.env, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
            assert done.returncode != 0 and "f is open for reading" in done.stderr, done
            assert (first.below / "f").read_bytes()[16:32] == before
            path.write_bytes(b"b" * 10000)
            assert os.pread(reader.fileno(), 10000, 0) == b"b" * 10000
        time.sleep(3)
        first.naos("fileset", "rekey", first.name)
        assert (first.below / "f").read_bytes()[16:32] != before
        assert path.read_bytes() == other.read_bytes() == b"b" * 10000

# SPDX-License-Identifier: Apache-2.0
"""The audit log under many writers, SIGKILL, a full disk and a hostile hand; checked by naos and by an independent reader."""
import fcntl
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import time

import pytest

import audit_reader
from conftest import BUILD, SOURCE

WRITER = BUILD / "tests/system/audit_writer"
RECORDS = "records/000.jsonl"


def write(log, name="w", threads=1, count=1, key=None, **kwargs):
    """Runs a writer to its end; returns what it was told is recorded."""
    done = subprocess.run([WRITER, log, name, str(threads), str(count)] + ([key] if key else []), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=120, **kwargs)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def objects(records):
    return [record["object"] for record in records if record["action"] == "test.append"]


def verdict(naos, log, *words):
    """The verdict as JSON, with the exit status."""
    done = naos("audit", "verify", "--json", *words, log)
    return done.returncode, json.loads(done.stdout)


@pytest.fixture
def log(tmp_path):
    return tmp_path / "audit"


def test_records_of_many_threads_are_all_there_once_and_in_the_order_of_each(naos, log):
    acknowledged = write(log, threads=8, count=60)
    records = audit_reader.verify(log)
    assert sorted(objects(records)) == sorted(acknowledged) and len(set(acknowledged)) == 480
    for thread in range(8):
        mine = [int(name.split("-")[2]) for name in objects(records) if name.split("-")[1] == str(thread)]
        assert mine == sorted(mine)
    assert verdict(naos, log) == (0, {"log": str(log), "valid": True, "origin": "naos/test", "records": 480, "pending_bytes": 0,
                                      "root": verdict(naos, log)[1]["root"]})


def test_processes_take_turns(naos, log):
    writers = [subprocess.Popen([WRITER, log, f"p{i}", "2", "15"], stdout=subprocess.PIPE, text=True) for i in range(8)]
    acknowledged = [word for writer in writers for word in writer.communicate(timeout=120)[0].split()]
    assert [writer.returncode for writer in writers] == [0] * 8
    assert sorted(objects(audit_reader.verify(log))) == sorted(acknowledged) and len(acknowledged) == 240
    naos.ok("audit", "verify", log)


def test_a_reader_may_verify_while_a_writer_appends(naos, log):
    writer = subprocess.Popen([WRITER, log, "w", "4", "0"], stdout=subprocess.DEVNULL)
    try:
        while not (log / RECORDS).exists():
            time.sleep(0.01)
        sizes = [naos.json("audit", "verify", log)[0]["records"] for _ in range(15)]
        for _ in range(5):
            audit_reader.verify(log)
    finally:
        writer.kill()
        writer.wait()
    assert sizes == sorted(sizes) and sizes[-1] > sizes[0]


def kill_at_a_random_moment(log, name, rng):
    """A writer that is killed; what it was told is recorded."""
    told = log.parent / "told"
    with open(told, "w") as out:
        writer = subprocess.Popen([WRITER, log, name, "4", "0"], stdout=out)
        while rng.random() < 0.999 and told.stat().st_size == 0:  # some die while they open the log
            time.sleep(0.0005)
        time.sleep(rng.random() * 0.06)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    return told.read_text().split("\n")[:-1]


def survive_kills(naos, log, kills):
    rng = random.Random(int(os.environ.get("NAOS_SEED", "1")))
    write(log)
    acknowledged = []
    for kill in range(kills):
        acknowledged += kill_at_a_random_moment(log, f"k{kill}", rng)
        naos.ok("audit", "verify", log)  # as the killed process left it
        if kill % 30 == 29:
            assert not set(acknowledged) - set(objects(audit_reader.verify(log)))
    write(log, name="last")
    records = audit_reader.verify(log)
    there = objects(records)
    assert len(there) == len(set(there)) and not set(acknowledged) - set(there)
    recovered = sum(record["action"] == "audit.recover" for record in records)
    assert recovered > kills // 10, "hardly a kill fell into a commit: the test shows nothing"
    assert verdict(naos, log)[1]["pending_bytes"] == 0
    return len(acknowledged), recovered


def test_no_acknowledged_record_is_lost_by_sigkill(naos, log):
    print(survive_kills(naos, log, 30))


def lines(log, name=RECORDS):
    return (log / name).read_bytes().splitlines(keepends=True)


def put(log, content, name=RECORDS):
    (log / name).write_bytes(b"".join(content))


def swap(log, one, other):
    (log / one).rename(log / "aside")
    (log / other).rename(log / one)
    (log / "aside").rename(log / other)


def change(name, at, to):
    def act(log):
        data = bytearray((log / name).read_bytes())
        data[at] = to
        (log / name).write_bytes(data)
    return act


def cut(name, keep):
    return lambda log: os.truncate(log / name, keep(os.path.getsize(log / name)))


def on_lines(edit):
    def act(log):
        content = lines(log)
        edit(content)
        put(log, content)
    return act


def move(content, place, to):
    content.insert(to, content.pop(place))


def exchange(content, one, other):
    content[one], content[other] = content[other], content[one]


# What is done to a log of 600 records (bundles of 256, 256, 88), and the first bad record and file that must be named.
TAMPERINGS = {
    "a record dropped": (on_lines(lambda c: c.pop(7)), 7, RECORDS),
    "the first record dropped": (on_lines(lambda c: c.pop(0)), 0, RECORDS),
    "the last record of a bundle dropped": (on_lines(lambda c: c.pop()), 255, RECORDS),
    "a record written twice": (on_lines(lambda c: c.insert(9, c[8])), 9, RECORDS),
    "a record put at the end again": (on_lines(lambda c: c.append(c[8])), 256, RECORDS),
    "two records exchanged": (on_lines(lambda c: exchange(c, 20, 30)), 20, RECORDS),
    "a record moved": (on_lines(lambda c: move(c, 100, 50)), 50, RECORDS),
    "a record replaced by another": (on_lines(lambda c: c.__setitem__(40, c[41])), 40, RECORDS),
    "a record emptied": (on_lines(lambda c: c.__setitem__(40, b"\n")), 40, RECORDS),
    "a carriage return added": (on_lines(lambda c: c.__setitem__(40, c[40][:-1] + b"\r\n")), 40, RECORDS),
    "a bundle cut in a record": (cut(RECORDS, lambda size: size - 10), 255, RECORDS),
    "a bundle emptied": (cut(RECORDS, lambda size: 0), 0, RECORDS),
    "a bundle removed": (lambda log: (log / RECORDS).unlink(), 0, RECORDS),
    "the last bundle removed": (lambda log: (log / "records/002.jsonl").unlink(), 512, "records/002.jsonl"),
    "the last bundle cut": (lambda log: put(log, lines(log, "records/002.jsonl")[:-3], "records/002.jsonl"), 597, "records/002.jsonl"),
    "the last record twice": (lambda log: put(log, lines(log, "records/002.jsonl") + lines(log, "records/002.jsonl")[-1:],
                                              "records/002.jsonl"), 600, "records/002.jsonl"),
    "something that is no record at the end": (lambda log: put(log, lines(log, "records/002.jsonl") + [b"free at last\n"],
                                                               "records/002.jsonl"), 600, "records/002.jsonl"),
    "two bundles exchanged": (lambda log: swap(log, RECORDS, "records/001.jsonl"), 0, RECORDS),
    "a bundle doubled at the end": (lambda log: shutil.copy(log / "records/001.jsonl", log / "records/003.jsonl"), 768,
                                    "records/003.jsonl"),
    "two hash tiles exchanged": (lambda log: swap(log, "tile/0/000", "tile/0/001"), 0, "tile/0/000"),
    "a hash tile doubled over another": (lambda log: shutil.copy(log / "tile/0/000", log / "tile/0/001"), 256, "tile/0/001"),
    "a hash tile cut": (cut("tile/0/001", lambda size: size - 32), 256, "tile/0/001"),
    "the last hash tile cut": (cut("tile/0/002", lambda size: 32), 512, "tile/0/002"),
    "a hash tile removed": (lambda log: (log / "tile/0/000").unlink(), 0, "tile/0/000"),
    "the tile above removed": (lambda log: (log / "tile/1/000").unlink(), 0, "tile/1/000"),
    "the tile above changed": (change("tile/1/000", 40, 0x5a), 256, "tile/1/000"),
    "two bundles exchanged with their hash tiles": (lambda log: (swap(log, RECORDS, "records/001.jsonl"),
                                                                 swap(log, "tile/0/000", "tile/0/001")), 0, RECORDS),
    "the checkpoint removed": (lambda log: (log / "checkpoint").unlink(), None, "checkpoint"),
    "the checkpoint emptied": (cut("checkpoint", lambda size: 0), None, "checkpoint"),
    "the checkpoint cut": (cut("checkpoint", lambda size: size - 1), None, "checkpoint"),
    "the checkpoint doubled": (lambda log: (log / "checkpoint").write_bytes(2 * (log / "checkpoint").read_bytes()), None, "checkpoint"),
    "fewer records in the checkpoint": (lambda log: (log / "checkpoint").write_text(
        (log / "checkpoint").read_text().replace("\n600\n", "\n60\n")), None, "checkpoint"),
}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    path = tmp_path_factory.mktemp("pristine") / "audit"
    write(path, threads=8, count=75)
    assert len(audit_reader.verify(path)) == 600
    return path


@pytest.mark.parametrize("what", TAMPERINGS)
def test_tampering_is_found_and_the_first_bad_record_named(naos, log, pristine, what):
    act, sequence, file = TAMPERINGS[what]
    shutil.copytree(pristine, log)
    naos.ok("audit", "verify", log)
    act(log)
    status, found = verdict(naos, log)
    assert (status, found["valid"], found.get("first_bad"), found["bad_file"]) == (4, False, sequence, file)
    message = naos.fails(4, "audit", "verify", log)
    assert file in message and (sequence is None or f"record: {sequence}," in message)
    with pytest.raises(audit_reader.Bad):
        audit_reader.verify(log)
    naos.fails(4, "audit", "show", log)


def test_a_log_of_another_name_or_key_is_not_this_one(naos, log, tmp_path):
    write(log, count=3)
    other = tmp_path / "other"
    write(other, count=3)
    naos.ok("audit", "verify", "--key", log / "key.pub", log)
    naos.fails(4, "audit", "verify", "--key", other / "key.pub", log)
    shutil.copy(other / "checkpoint", log / "checkpoint")
    naos.fails(4, "audit", "verify", log)


def test_an_earlier_checkpoint_shows_what_the_holder_of_the_key_did(naos, log, tmp_path):
    write(log, count=5)
    kept = tmp_path / "kept"
    shutil.copy(log / "checkpoint", kept)
    write(log, count=4, name="more")
    status, found = verdict(naos, log, "--checkpoint", kept)
    assert (status, found["earlier_records"]) == (0, 5)
    # the same key signs another history of 9 records
    forged = tmp_path / "forged"
    forged.mkdir()
    shutil.copy(log / "key", forged / "key")
    write(forged, count=9, name="other")
    naos.ok("audit", "verify", "--key", log / "key.pub", forged)
    assert "one of the first 5 records was replaced" in naos.fails(4, "audit", "verify", "--checkpoint", kept, forged)
    # and one that is shorter
    shutil.rmtree(forged)
    forged.mkdir()
    shutil.copy(log / "key", forged / "key")
    write(forged, count=2)
    status, found = verdict(naos, forged, "--checkpoint", kept)
    assert (status, found["first_bad"]) == (4, 2)
    # an older state of the whole log, put back
    back = tmp_path / "back"
    shutil.copytree(log, back)
    shutil.copy(log / "checkpoint", tmp_path / "latest")
    shutil.copy(kept, back / "checkpoint")
    done = naos("audit", "verify", back)
    assert done.returncode == 0 and "not part of the log" in done.stderr  # as after a crash: only the later checkpoint tells
    status, found = verdict(naos, back, "--checkpoint", tmp_path / "latest")
    assert (status, found["first_bad"]) == (4, 5)
    assert audit_reader.verify(log, earlier=kept.read_text())


def test_a_proof_is_checked_without_the_log(naos, log, tmp_path):
    write(log, count=11)
    key = tmp_path / "key.pub"
    shutil.copy(log / "key.pub", key)
    proof = tmp_path / "proof"
    for sequence in range(11):
        proof.write_text(naos.ok("audit", "prove", sequence, log))
        assert audit_reader.verify_proof(proof.read_text(), key.read_text())["object"] == f"w-0-{sequence}"
        assert naos.json("audit", "verify", "--proof", proof, "--key", key)[0]["valid"] is True
    assert "no record 11" in naos.fails(1, "audit", "prove", 11, log)
    kept = tmp_path / "kept"
    shutil.copy(log / "checkpoint", kept)
    write(log, count=300, threads=2)
    proof.write_text(naos.ok("audit", "prove", "--since", kept, log))
    shutil.rmtree(log)
    assert naos.json("audit", "verify", "--proof", proof, "--key", key)[0]["earlier_records"] == 11
    changed = json.loads(proof.read_text())
    changed["hashes"].reverse()
    proof.write_text(json.dumps(changed))
    assert "not proven" in naos.fails(4, "audit", "verify", "--proof", proof, "--key", key)
    assert "--key" in naos.fails(2, "audit", "verify", "--proof", proof)


def test_a_witness_signs_only_what_continues_the_last(naos, log, tmp_path):
    write(log, count=5)
    witness, state, offer, cosigned = tmp_path / "w.key", tmp_path / "state", tmp_path / "offer", tmp_path / "cosigned"
    key = log / "key.pub"
    words = ("audit", "cosign", "--key", witness, "--log-key", key, "--state", state)
    naos.ok("audit", "cosign", "--key", witness, "--create", "witness.example/w1")
    naos.fails(1, "audit", "cosign", "--key", witness, "--create", "witness.example/w1")
    assert witness.stat().st_mode & 0o777 == 0o600
    before = int(time.time())
    cosigned.write_text(naos.ok(*words, log / "checkpoint"))
    assert cosigned.read_text() == state.read_text()
    _, size, _ = audit_reader.parse_checkpoint(cosigned.read_text(), audit_reader.parse_key((tmp_path / "w.key.pub").read_text()))
    assert size == 5
    status, found = verdict(naos, log, "--checkpoint", cosigned, "--witness", tmp_path / "w.key.pub")
    assert status == 0 and before <= found["witness_unix_s"] <= time.time()
    naos.fails(4, "audit", "verify", "--checkpoint", log / "checkpoint", "--witness", tmp_path / "w.key.pub", log)  # not cosigned
    naos.ok(*words, log / "checkpoint")  # the same again
    # it grows: only with a proof
    write(log, name="more", count=300, threads=2)
    assert "needs a proof" in naos.fails(2, *words, log / "checkpoint")
    offer.write_text(naos.ok("audit", "prove", "--since", state, log))
    cosigned.write_text(naos.ok(*words, offer))
    assert verdict(naos, log, "--checkpoint", cosigned, "--witness", tmp_path / "w.key.pub")[1]["earlier_records"] == 605
    assert "begins at another checkpoint" in naos.fails(2, *words, write_next_proof(naos, log, tmp_path))
    # the holder of the log's key rewrites it, at the same size and at a larger one
    forged = tmp_path / "forged"
    for count in (605, 606):
        shutil.rmtree(forged, ignore_errors=True)
        forged.mkdir()
        shutil.copy(log / "key", forged / "key")
        write(forged, name="forged", count=count)
        naos.fails(4 if count == 605 else 2, *words, forged / "checkpoint")
        naos.fails(4, "audit", "prove", "--since", state, forged)
    assert state.read_text() == cosigned.read_text()


def write_next_proof(naos, log, tmp_path):
    """A good proof, but one that begins after the witness's last checkpoint."""
    write(log, name="next")
    shutil.copy(log / "checkpoint", tmp_path / "between")
    write(log, name="last")
    (tmp_path / "gap").write_text(naos.ok("audit", "prove", "--since", tmp_path / "between", log))
    return tmp_path / "gap"


def test_show_filters(naos, log):
    write(log, name="alice", count=3)
    write(log, name="bob\n", count=2)
    assert naos.ok("audit", "show", log).count("\n") == 5
    found = naos.json("audit", "show", "--actor", "b*", "--object", "*-1", log)
    assert [(record["actor"], record["sequence"]) for record in found] == [("bob\\x0a", 4)]
    first = naos.json("audit", "show", log)[0]["time"]
    assert len(naos.json("audit", "show", "--until", first[:10], log)) == 5
    assert len(naos.json("audit", "show", "--since", first, "--until", first, log)) == 1
    assert naos.json("audit", "show", "--since", "2999-01-01", log) == []
    assert naos.json("audit", "show", "--decision", "denied", log) == []
    assert "is not a time" in naos.fails(2, "audit", "show", "--since", "yesterday", log)
    naos.config.write_text(f"[audit]\nlog = {log}\n")
    assert len(naos.json("audit", "show")) == 5
    put(log, lines(log)[::-1] + [b"free at last\n"])
    naos.fails(4, "audit", "show", log)
    done = naos("audit", "show", "--unverified", log)
    assert done.returncode == 0 and "can't be trusted" in done.stderr and "record 5 is not an audit record" in done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["4", "3", "2", "1", "0"]


def test_a_directory_without_a_log_is_said_to_be_one(naos, tmp_path):
    assert "no log" in naos.fails(1, "audit", "verify", tmp_path)
    naos.fails(1, "audit", "verify", tmp_path / "absent")
    assert "[audit] log" in naos.fails(2, "audit", "verify")


@pytest.fixture
def small_disk(tmp_path):
    path = tmp_path / "disk"
    path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", path], stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        pytest.skip("no small tmpfs can be mounted (not root)")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def test_a_full_disk_refuses_records_and_loses_none(naos, small_disk):
    log = small_disk / "audit"
    acknowledged = write(log, name="before", count=3)
    writer = subprocess.Popen([WRITER, log, "w", "4", "200"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        with open(small_disk / "filler", "wb", buffering=0) as filler, pytest.raises(OSError):
            while True:
                filler.write(b"x" * 4096)
                time.sleep(0.001)
        refusal = writer.stderr.readline()  # it waits here until a record was refused
        assert re.match(r"-33 audit log .*: No space left on device", refusal), refusal
        assert verdict(naos, log)[0] == 0
        (small_disk / "filler").unlink()
        acknowledged += writer.communicate(timeout=120)[0].split()
    finally:
        writer.kill()
        writer.wait()
    assert writer.returncode == 33 and len(acknowledged) == 803
    records = audit_reader.verify(log)
    assert sorted(objects(records)) == sorted(acknowledged)
    assert verdict(naos, log)[1]["pending_bytes"] == 0


def test_the_private_key_lies_only_in_locked_memory_that_no_core_file_holds(log):
    write(log)
    pem = (log / "key").read_text().splitlines()[1]
    seed = subprocess.run(["openssl", "pkey", "-in", log / "key", "-outform", "DER"], stdout=subprocess.PIPE, check=True).stdout[-32:]
    read, end = os.pipe()
    fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, 4096)
    writer = subprocess.Popen([WRITER, log, "w", "1", "0"], stdout=end)
    os.close(end)
    try:
        size = -1
        while size != os.path.getsize(log / RECORDS):  # it stops when nobody reads what it writes
            size = os.path.getsize(log / RECORDS)
            time.sleep(0.3)
        found = 0
        smaps = pathlib.Path(f"/proc/{writer.pid}/smaps").read_text()
        with open(f"/proc/{writer.pid}/mem", "rb", buffering=0) as memory:
            for mapping in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", smaps):
                low, high = (int(word, 16) for word in mapping.split()[0].split("-"))
                flags = re.search(r"^VmFlags: (.*)$", mapping, re.M)[1].split()
                if "rd" not in flags or high - low > 1 << 32:
                    continue
                try:
                    memory.seek(low)
                    data = memory.read(high - low)
                except OSError:
                    continue
                assert pem.encode() not in data
                if seed in data:
                    found += 1
                    assert {"dd", "wf"} <= set(flags), mapping.splitlines()[0]
        assert found == 1
    finally:
        writer.kill()
        writer.wait()
        os.close(read)

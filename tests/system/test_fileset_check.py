# SPDX-License-Identifier: Apache-2.0
"""naos fileset check: with keys, without any, and mending what can be mended."""
import json
import os
import pathlib
import shutil
import subprocess

import pytest

from seal_help import FileSet, content, listing, make_tree, same_tree, writer_of

EDIT = os.environ.get("NAOS_SEAL_EDIT")
PAGE, SECTOR, ATTRIBUTE = 4096, 512, "user.naos.key"
STATE, SLOTS, SLOT, TAGS = 512, 1536, 256, 2560
SIZE = 20 * PAGE + 100  # 18 chunks of group 0, then a map page, a tag page and 3 chunks of group 1
MAP, GROUP_1 = 19 * PAGE, 20 * PAGE


@pytest.fixture
def files(sets, tmp_path):
    return FileSet(sets, tmp_path)


def keyless(files, *words):
    return files.verb("check", "--keyless", *words, env={"NAOS_CONFIG": str(files.without_keys())})


def put(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def flip(path, offset):
    put(path, offset, bytes([path.read_bytes()[offset] ^ 0x10]))


def crash(files, path, text="after the flush"):
    subprocess.run([EDIT, path, "crash", "10", text], env=files.sets.env, check=True)


def test_a_sound_file_set_passes_with_keys_and_without(files, tmp_path):
    files.seal(make_tree(tmp_path / "source"))
    done = files.ok("check")
    assert done["failed"] == 0 and done["notices"] == {} and done["files"] == 14  # one of them has two names
    bare = keyless(files, "--json")
    assert bare.returncode == 0, bare.stderr
    assert json.loads(bare.stdout)["files"] == 14 and json.loads(bare.stdout)["bytes"] == done["bytes"]


def test_shares_together_are_the_whole(files, tmp_path):
    files.seal(make_tree(tmp_path / "source"))
    assert sum(files.ok("check", "--shard", f"{i}/3")["files"] for i in (1, 2, 3)) == 14


# what is done to a file; what the keyless check says of it (None: only the keys tell); what the check with keys says
DAMAGES = {
    "magic": (lambda p: flip(p, 3), "not a sealed file", "not a sealed file"),
    "version": (lambda p: flip(p, 8), "version", "version"),
    "reserved bytes of the header": (lambda p: flip(p, 400), "reserved bytes", "reserved bytes"),
    "commitment": (lambda p: flip(p, 50), None, "key"),
    "file set": (lambda p: flip(p, 33), "another file set", "another file set"),
    "state makes no sense": (lambda p: [put(p, STATE + i * SECTOR + 24, b"\xff" * 8) for i in range(2)], "state slot", "state slot"),
    "both states gone": (lambda p: put(p, STATE, bytes(2 * SECTOR)), "both state slots are empty", "both state slots are empty"),
    "MAC of the state": (lambda p: [flip(p, STATE + i * SECTOR + 500) for i in range(2)], "state slot", "state slot"),
    "wrapped key": (lambda p: flip(p, SLOTS + 60), "slot of the wrapped file key", "slot"),
    "attribute": (lambda p: os.setxattr(p, ATTRIBUTE, b"x" * 256), "user.naos.key", "user.naos.key"),
    "cut": (lambda p: os.truncate(p, p.stat().st_size - 1), "truncated", "truncated"),
    "lengthened": (lambda p: os.truncate(p, p.stat().st_size + 1), "lengthened", "lengthened"),
    "entry of a tag sector": (lambda p: put(p, TAGS + 32, b"\xff" * 4), "tag sector 0", "tag sector 0"),
    "padding of a tag sector": (lambda p: flip(p, TAGS + 485), "tag sector 0", "tag sector 0"),
    "tag sector gone": (lambda p: put(p, GROUP_1, bytes(SECTOR)), "chunk 18", "chunk 18"),
    "padding of the map page": (lambda p: put(p, MAP + 4000, b"\1"), "map page 0", "map page 0"),
    "bits in the map page": (lambda p: put(p, MAP, b"\1"), "map page 0", "map page 0"),
    "MAC of a tag sector": (lambda p: flip(p, TAGS + 500), None, "tag sector 0"),
    "data": (lambda p: flip(p, 2 * PAGE), None, "1 of 21 chunks can't be read: 1"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_named_by_whoever_can_see_it(files, name):
    harm, without, with_keys = DAMAGES[name]
    path, _ = files.file("reads", content(SIZE)), files.file("sound", content(100))
    harm(path)
    done = files.verb("check")
    assert done.returncode == 4 and with_keys in done.stderr and str(path) in done.stderr, done.stderr
    done = keyless(files, "--json")
    said = [json.loads(line) for line in done.stderr.splitlines()]
    if without is None:
        assert done.returncode == 0, done.stderr
    else:
        about = [line for line in said if str(path) in line["message"]]
        assert done.returncode == 4 and len(about) == 1 and without in about[0]["message"], done.stderr
        assert json.loads(done.stdout)["failed"] == 1


def test_an_unsealed_file_is_told_from_a_damaged_one_and_is_repaired(files):
    path = files.file("reads", content(SIZE))
    os.utime(path, ns=(5, 1_000_000_000_000_000_123))
    crash(files, path)
    os.utime(path, ns=(5, 1_000_000_000_000_000_123))
    for done in (files.verb("check"), keyless(files)):
        assert done.returncode == 0 and "not sealed: its last writer did not close it" in done.stderr, done.stderr
    with writer_of(path):
        done = files.verb("check", "--repair")
        assert done.returncode == 0 and "not sealed: it is open for writing" in done.stderr, done.stderr
    assert files.ok("check")["notices"] == {"unclean": 1}, "a file that a writer has open was touched"
    assert files.ok("check", "--repair")["notices"] == {"recovered": 1}
    assert files.ok("check")["notices"] == {}
    assert files.read("reads") == content(SIZE)[:10] + b"after the flush" + content(SIZE)[25:]
    assert path.stat().st_mtime_ns == 1_000_000_000_000_000_123


def test_missing_and_damaged_copies_of_the_key_are_rebuilt(files):
    harms = {
        "no attribute": lambda p: os.removexattr(p, ATTRIBUTE),
        "damaged attribute": lambda p: os.setxattr(p, ATTRIBUTE, b"x" * 256),
        "damaged slot": lambda p: flip(p, SLOTS + 60),
        "garbage in an empty slot": lambda p: put(p, SLOTS + 3 * SLOT, b"garbage"),
    }
    for name, harm in harms.items():
        path = files.file(name, content(SIZE, len(name)))
        harm(path)
    assert files.verb("check").returncode == 4
    assert files.ok("check", "--repair")["notices"] == {"rebuilt": 4}
    done = files.ok("check")
    assert done["files"] == 4 and done["notices"] == {}
    assert keyless(files).returncode == 0
    for name in harms:
        assert files.read(name) == content(SIZE, len(name))
        assert os.getxattr(files.path / name, ATTRIBUTE)
    assert files.ok("check", "--repair")["notices"] == {}, "nothing is left to repair"


def test_what_no_flush_made_durable_is_set_aside_and_nothing_else(files):
    files.file("deep/sound", content(100))
    (files.path / "deep/100%").write_bytes(b"")
    (files.path / "zeros").write_bytes(bytes(3 * PAGE))
    (files.path / "torn").write_bytes(b"NAOSSF1\n\1\0\0")
    (files.path / "plain.txt").write_text("not ours to move")
    (files.path / "large.txt").write_text("not ours to move\n" * 1000)
    message = files.fails(4, "check")
    assert message.count("its first page is missing") == 3 and message.count("not a sealed file") == 2
    with writer_of(files.path / "zeros"):
        files.fails(4, "check", "--repair")
        assert (files.path / "zeros").exists() and not (files.path / "torn").exists()
    message = files.fails(4, "check", "--repair")
    assert message.count("not a sealed file") == 2
    lost = files.path / ".naos-lost"
    assert sorted(path.name for path in lost.iterdir()) == ["deep%2F100%25", "torn", "zeros"]
    assert lost.stat().st_mode & 0o777 == 0o700
    assert (lost / "zeros").read_bytes() == bytes(3 * PAGE)
    assert (files.path / "plain.txt").exists() and (files.path / "large.txt").exists()
    (files.path / "torn").write_bytes(b"")
    (files.path / "plain.txt").unlink()
    (files.path / "large.txt").unlink()
    assert files.ok("check", "--repair")["notices"] == {"lost": 1}
    assert (lost / "torn%1").exists() and (lost / "torn").read_bytes(), "what was set aside before is kept"
    assert files.ok("check")["files"] == 1


def test_a_lost_directory_of_someone_else_is_not_used(files):
    (files.path / ".naos-lost").mkdir(mode=0o777)
    os.chmod(files.path / ".naos-lost", 0o777)
    (files.path / "empty").write_bytes(b"")
    assert "must belong to" in files.fails(1, "check", "--repair")
    assert (files.path / "empty").exists()


def test_leftovers_without_an_owner_are_removed(files):
    files.file("reads", content(100))
    left, held = files.path / ".reads.naos-abcdefgh", files.path / ".reads.naos-bcdefghi"
    left.write_bytes(b"x")
    held.write_bytes(b"x")
    with subprocess.Popen(["flock", held, "sh", "-c", "echo held; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        owner.stdout.readline()
        done = files.verb("check", "--repair")
        owner.communicate(b"\n")
    assert done.returncode == 0, done.stderr
    assert not left.exists() and held.exists()
    assert f"{left}: removed" in done.stderr


def test_what_cannot_be_mended_is_named_with_its_chunks(files):
    path = files.file("reads", content(SIZE))
    for chunk in (3, 8, 9, 10):
        flip(path, (1 + chunk) * PAGE)
    crash(files, files.file("other", content(SIZE)))
    message = files.fails(4, "check", "--repair")
    assert f"{path}: chunk 3 " in message and "4 of 21 chunks can't be read: 3, 8-10" in message
    assert "other: its last writer had not closed it; it was recovered" in message
    before = path.read_bytes()
    files.fails(4, "check", "--repair")
    assert path.read_bytes() == before


def test_each_repair_is_recorded_and_one_that_cannot_be_is_not_done(files, tmp_path):
    log = tmp_path / "audit"
    files.plain_config += f"[audit]\nlog = {log}\n"
    files.configure(**files.keys)
    crash(files, files.file("crashed", content(SIZE)))
    os.removexattr(files.file("bare", content(SIZE)), ATTRIBUTE)
    (files.path / "empty").write_bytes(b"")
    files.ok("check", "--repair")
    records = [r for r in files.sets.json("audit", "show") if r.get("action") == "fileset.repair"]
    done = {(pathlib.Path(r["object"]).name, r["reason"]) for r in records if r["reason"] in ("recover", "rebuild", "set-aside")}
    assert done == {("crashed", "recover"), ("bare", "rebuild"), ("empty", "set-aside")}
    crash(files, files.path / "crashed")
    shutil.rmtree(log)
    log.write_text("a file where the log should be")
    assert files.verb("check", "--repair").returncode != 0
    log.unlink()
    assert files.ok("check")["notices"] == {"unclean": 1}


def test_other_file_sets_names_and_options_are_refused(files, tmp_path):
    assert "no file set 'nowhere'" in files.sets.fails(1, "fileset", "check", "nowhere")
    files.fails(2, "check", "--keyless", "--repair")
    files.file("reads", content(100))
    files.configure(**dict(files.keys, id="00112233-4455-4677-8899-aabbccddeeff"))
    assert "another file set" in files.fails(4, "check")
    assert "another file set" in keyless(files).stderr
    files.configure(**dict(files.keys, path=tmp_path / "missing"))
    assert "cannot open the directory" in files.fails(1, "check")


def test_rewrap_takes_the_tree_of_the_file_set(files, tmp_path):
    source = make_tree(tmp_path / "source")
    files.seal(source)
    files.sets.ok("key", "rotate", "genomes")
    assert sum(files.ok("rewrap", "--shard", f"{i}/2")["files"] for i in (1, 2)) == 14
    assert files.ok("rewrap")["current"] == 14
    assert {slot["version"] for info in files.sets.json("info", files.path) for slot in info["slots"]} == {2}
    files.sets.ok("open", files.path, tmp_path / "back")
    same_tree(source, tmp_path / "back")
    assert listing(files.path)

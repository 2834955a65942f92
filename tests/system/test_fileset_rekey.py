# SPDX-License-Identifier: Apache-2.0
"""naos fileset rekey: the data of a file set under fresh keys, while it is in use."""
import os
import shutil
import subprocess
import time

import pytest

from conftest import NAOS
from fileset_kills import Campaign
from seal_help import FileSet, content, listing, make_tree, temporaries, writer_of

EDIT = os.environ.get("NAOS_SEAL_EDIT")


@pytest.fixture
def files(sets, tmp_path):
    return FileSet(sets, tmp_path)


def keys_of(files):
    """path -> file id, which is new where the FEK is."""
    return {path.relative_to(files.path).as_posix(): path.read_bytes()[16:32]
            for path in files.path.rglob("[!.]*") if path.is_file() and not path.is_symlink()}


def test_each_file_gets_a_new_key_and_stays_what_it_is(files, tmp_path):
    source = make_tree(tmp_path / "source")
    files.seal(source)
    before, data = keys_of(files), {path: path.read_bytes() for path in files.path.rglob("size-*")}
    kept = listing(files.path)
    done = files.ok("rekey")
    assert (done["files"], done["failed"]) == (14, 0)
    after = keys_of(files)
    assert before.keys() == after.keys() and not set(before.values()) & set(after.values())
    for path, old in data.items():
        assert not {old[i:i + 4096] for i in range(4096, len(old) - 4095, 4096) if any(old[i:i + 4096])} & \
            {path.read_bytes()[i:i + 4096] for i in range(4096, len(old) - 4095, 4096)}, "old ciphertext under the new key"
    now = listing(files.path)
    for path, entry in kept.items():
        for what in ("mode", "owner", "size", "names", "link"):
            assert entry.get(what) == now[path].get(what), (path, what)
        if "content" in entry:
            assert entry["mtime"] == now[path]["mtime"]
            assert {k: v for k, v in now[path]["attributes"].items() if k != "user.naos.rekeyed"} == entry["attributes"]
    assert temporaries(files.path) == [] and "user.naos.rekey" not in os.listxattr(files.path)
    assert files.ok("check")["notices"] == {}
    files.sets.ok("open", files.path, tmp_path / "back")
    for path in source.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert (tmp_path / "back" / path.relative_to(source)).read_bytes() == path.read_bytes()
    assert (files.path / "holes").stat().st_blocks * 512 < 1 << 20


def test_old_versions_of_the_master_key_open_nothing_afterwards(files):
    files.file("reads", content(5000))
    files.sets.ok("key", "rotate", "genomes")
    files.ok("rekey")
    files.sets.ok("key", "revoke", "genomes", "--key-version", "1")
    assert files.read("reads") == content(5000)


def test_a_file_in_use_is_told_and_done_by_the_next_run(files):
    busy, other = files.file("busy", content(5000)), files.file("other", content(6000))
    before = keys_of(files)
    with writer_of(busy):
        assert f"{busy} is open for writing" in files.fails(1, "rekey", "--passes", "1")
        now = keys_of(files)
        assert now["busy"] == before["busy"] and now["other"] != before["other"]
    done = files.ok("rekey")  # completes the run before
    assert (done["files"], done["current"]) == (1, 1)
    assert keys_of(files)["busy"] != before["busy"] and keys_of(files)["other"] == now["other"]
    done = files.ok("rekey")  # a new run
    assert done["files"] == 2
    assert files.ok("rekey", "--since", "2020-01-01")["current"] == 2
    assert files.ok("rekey", "--since", "2100-01-01T00:00:00Z")["files"] == 2
    assert other.exists()


def test_a_file_in_use_is_done_in_a_later_pass_of_the_same_run(files):
    busy = files.file("busy", content(5000))
    files.file("other", content(6000))
    before = keys_of(files)
    with writer_of(busy):
        run = subprocess.Popen([NAOS, "fileset", "rekey", "genomes", "--passes", "1000"], env=files.sets.env, stdout=subprocess.PIPE, text=True)
        while keys_of(files)["other"] == before["other"]:
            assert run.poll() is None
            time.sleep(0.01)
        assert keys_of(files)["busy"] == before["busy"]
    out, _ = run.communicate(timeout=60)
    assert run.returncode == 0 and "2 files" in out
    assert keys_of(files)["busy"] != before["busy"]
    assert files.read("busy") == content(5000)


def test_who_opened_the_old_file_sees_it_whole_and_that_it_has_no_name(files):
    path = files.file("reads", content(100_000))
    old = path.read_bytes()
    with open(path, "r+b") as reader:  # no lock taken yet
        files.ok("rekey")
        assert os.fstat(reader.fileno()).st_nlink == 0, "a writer that locks now would write to a file without a name unnoticed"
        assert reader.read() == old
    assert files.read("reads") == content(100_000)


def test_files_that_change_their_names_meanwhile_are_not_lost(files):
    for i in range(30):
        files.file(f"file-{i}", content(200_000, i))
    run = subprocess.Popen([NAOS, "fileset", "rekey", "genomes"], env=files.sets.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    number = 0
    while run.poll() is None or number < 30:
        name = files.path / f"file-{number % 30}"
        if number % 2 and name.exists():
            os.rename(name, files.path / f"moved-{number % 30}")
        elif name.exists() and (files.path / f"moved-{(number - 1) % 30}").exists():
            files_before = name.read_bytes()
            (files.path / "copy").write_bytes(files_before)
            os.rename(files.path / "copy", name)
        number += 1
        time.sleep(0.002)
    files.ok("rekey")
    for i in range(30):
        name = f"file-{i}" if (files.path / f"file-{i}").exists() else f"moved-{i}"
        assert files.read(name) == content(200_000, i), name
    assert temporaries(files.path) == []


def test_a_file_that_a_crash_left_is_recovered_on_the_way(files):
    path = files.file("reads", content(20_000))
    subprocess.run([EDIT, path, "crash", "10", "after the flush"], env=files.sets.env, check=True)
    assert files.ok("rekey")["notices"] == {"recovered": 1}
    assert files.read("reads")[10:25] == b"after the flush" and files.ok("check")["notices"] == {}


def test_a_damaged_file_is_named_and_left(files):
    path = files.file("reads", content(50_000))
    files.file("sound", content(100))
    damaged = bytearray(path.read_bytes())
    damaged[3 * 4096] ^= 1
    path.write_bytes(damaged)
    message = files.fails(4, "rekey")
    assert "reads: chunk 2 " in message and path.read_bytes() == damaged and temporaries(files.path) == []


def test_names_outside_the_tree_keep_a_file_as_it_is(files, tmp_path):
    path = files.file("inside", content(5000))
    os.link(path, tmp_path / "outside")
    before = path.read_bytes()
    assert "has 2 names, of which 1 lie in the tree" in files.fails(1, "rekey", "--passes", "1")
    assert path.read_bytes() == before


def test_shares_together_are_the_whole(files, tmp_path):
    files.seal(make_tree(tmp_path / "source"))
    before = keys_of(files)
    assert sum(files.ok("rekey", "--shard", f"{i}/3")["files"] for i in (1, 2, 3)) == 14
    assert not set(before.values()) & set(keys_of(files).values())
    files.fails(2, "rekey", "--since", "yesterday")
    files.fails(2, "rekey", "--passes", "0")


def test_killed_at_10_random_moments(sets, tmp_path):
    seed = int(os.environ.get("NAOS_SEED", "0")) or int.from_bytes(os.urandom(4), "little")
    Campaign(sets, tmp_path, seed).rekey(10)


def test_without_attributes_it_still_works(files, tmp_path):
    """As on a network file system without them: the key stands in the header."""
    path = files.file("reads", content(5000))
    os.removexattr(path, "user.naos.key")
    files.ok("rekey")
    assert files.read("reads") == content(5000) and os.getxattr(path, "user.naos.key")
    shutil.copyfile(path, files.path / "copy")
    assert files.read("copy") == content(5000)

# SPDX-License-Identifier: Apache-2.0
"""naos fileset migrate: a tree of plain files is sealed in place."""
import os
import shutil
import struct
import subprocess
import time

import pytest

from conftest import NAOS
from fileset_kills import Campaign
from seal_help import FileSet, content, file_system, make_tree, same_tree, sealed, temporaries


@pytest.fixture
def files(sets, tmp_path):
    return FileSet(sets, tmp_path)


def plain_files(root):
    return [path for path in root.rglob("*") if path.is_file() and not path.is_symlink() and not sealed(path)]


def copy(source, target):
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", source, target], check=True)


def test_a_tree_is_sealed_with_all_that_its_files_are(files, tmp_path):
    source = make_tree(tmp_path / "source")
    copy(source, files.path)
    done = files.ok("migrate", "--verify")
    assert (done["files"], done["failed"]) == (14, 0)
    assert plain_files(files.path) == [] and temporaries(files.path) == []
    again = files.ok("migrate")
    assert (again["files"], again["current"]) == (0, 14), "a sealed file was sealed again"
    assert files.ok("check")["files"] == 14
    files.sets.ok("open", files.path, tmp_path / "back")
    same_tree(source, tmp_path / "back")


def test_shares_together_are_the_whole_and_names_of_one_file_stay_together(files, tmp_path):
    source = make_tree(tmp_path / "source")
    copy(source, files.path)
    assert sum(files.ok("migrate", "--shard", f"{i}/3")["files"] for i in (1, 2, 3)) == 14
    files.sets.ok("open", files.path, tmp_path / "back")
    same_tree(source, tmp_path / "back")


def test_another_directory_is_sealed_where_it_is(files, tmp_path):
    source = make_tree(tmp_path / "source")
    copy(source, tmp_path / "elsewhere")
    assert files.ok("migrate", "--from", tmp_path / "elsewhere")["files"] == 14
    assert plain_files(tmp_path / "elsewhere") == [] and list(files.path.iterdir()) == []


def test_owner_access_list_and_attributes_stay(files):
    path = files.path / "reads"
    path.write_bytes(content(9000))
    os.setxattr(path, "user.origin", b"instrument 7")
    subprocess.run(["setfacl", "-m", "u:nobody:r", path], check=True)
    if os.geteuid() == 0:
        os.chown(path, 1234, 4321)
    before = path.stat()
    access = os.getxattr(path, "system.posix_acl_access")
    files.ok("migrate")
    after = path.stat()
    assert (after.st_uid, after.st_gid, after.st_mode, after.st_mtime_ns) == (before.st_uid, before.st_gid, before.st_mode, before.st_mtime_ns)
    assert os.getxattr(path, "user.origin") == b"instrument 7" and os.getxattr(path, "system.posix_acl_access") == access
    assert files.read("reads") == content(9000)


def test_holes_stay_holes(files):
    with open(files.path / "holes", "wb") as file:
        file.truncate(1 << 26)
        file.seek(1 << 25)
        file.write(b"data in the middle")
    files.ok("migrate")
    assert (files.path / "holes").stat().st_blocks * 512 < 1 << 20
    assert files.read("holes")[1 << 25:(1 << 25) + 18] == b"data in the middle"


def test_a_file_that_is_open_for_writing_is_told_and_left_plain(files):
    busy, other = files.path / "busy", files.path / "other"
    busy.write_bytes(content(100))
    other.write_bytes(content(200))
    with open(busy, "r+b") as writer:
        message = files.fails(1, "migrate")
        assert f"{busy} is open for writing" in message
        assert not sealed(busy) and sealed(other)
        writer.write(b"more")
    assert files.ok("migrate")["files"] == 1
    assert files.read("busy") == b"more" + content(100)[4:]


def test_what_writers_do_meanwhile_is_not_lost(files):
    """Files are appended to, replaced and removed while they are sealed: each has its last content in the end."""
    names = [f"file-{i}" for i in range(60)]
    for name in names:
        (files.path / name).write_bytes(content(200_000))
    process = subprocess.Popen([NAOS, "fileset", "migrate", "genomes"], env=files.sets.env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    wanted, i = {}, 0
    while process.poll() is None or i < len(names):
        name = names[i % len(names)]
        i += 1
        path = files.path / name
        if sealed(path):
            continue
        if i % 3 == 0:
            (files.path / "new").write_bytes(b"replaced" + name.encode())
            os.rename(files.path / "new", path)
            wanted[name] = b"replaced" + name.encode()
        elif i % 3 == 1:
            with open(path, "r+b") as file:
                if os.fstat(file.fileno()).st_nlink == 0 or file.read(8) == b"NAOSSF1\n":
                    continue  # it was sealed in between
                file.seek(0)
                file.write(b"written ")
                if os.fstat(file.fileno()).st_nlink:
                    wanted[name] = None
        time.sleep(0.001)
    process.communicate()
    files.ok("migrate")
    for name in names:
        read = files.read(name)
        if wanted.get(name):
            assert read == wanted[name], name
        elif name in wanted:
            assert read[:8] == b"written ", name
    assert files.ok("check")["files"] == len(names)


def test_space_for_the_largest_file_is_enough(sets, tmp_path):
    with file_system(tmp_path / "genomes", "tmpfs", "-o", "size=24m"):
        files = FileSet(sets, tmp_path)
        for i in range(20):
            (files.path / f"file-{i}").write_bytes(content(1 << 20, i))
        assert files.ok("migrate", "--jobs", "1")["files"] == 20
        assert files.read("file-7") == content(1 << 20, 7)


def test_a_full_disk_loses_nothing(sets, tmp_path):
    with file_system(tmp_path / "genomes", "tmpfs", "-o", "size=8m"):
        files = FileSet(sets, tmp_path)
        (files.path / "large").write_bytes(content(7 << 20))
        assert "space" in files.fails(1, "migrate")
        assert (files.path / "large").read_bytes() == content(7 << 20) and temporaries(files.path) == []


def test_names_outside_the_tree_keep_a_file_plain(files, tmp_path):
    (files.path / "inside").write_bytes(content(5000))
    os.link(files.path / "inside", tmp_path / "outside")
    message = files.fails(1, "migrate")
    assert "has 2 names, of which 1 lie in the tree" in message
    assert not sealed(files.path / "inside") and temporaries(files.path) == []
    (tmp_path / "outside").unlink()
    assert files.ok("migrate")["files"] == 1


def marks(old):
    status = old.stat()
    seconds, nanoseconds = divmod(status.st_mtime_ns, 10**9)
    return struct.pack("<5Q", status.st_dev, status.st_ino, status.st_size, seconds, nanoseconds)


def interrupted(files):
    """a, b and c were one plain file; a run was killed when it had sealed and taken a."""
    for name in ("a", "b", "c"):
        (files.path / name).unlink(missing_ok=True)
    (files.path / "b").write_bytes(content(5000))
    os.link(files.path / "b", files.path / "c")
    new = files.file("a", content(5000))
    os.setxattr(new, "user.naos.replaces", marks(files.path / "b"))
    os.setxattr(files.path / "b", "user.naos.links", b"a")
    return files.path / "a", files.path / "b", files.path / "c"


def test_names_that_an_interrupted_run_left_behind_are_taken_over(files):
    a, b, c = interrupted(files)
    files.ok("migrate")
    assert a.stat().st_ino == b.stat().st_ino == c.stat().st_ino and a.stat().st_nlink == 3
    assert files.read("c") == content(5000) and os.listxattr(a) == ["user.naos.key"]
    a, b, c = interrupted(files)
    c.unlink()  # the last name of the old file
    files.ok("migrate")
    assert a.stat().st_ino == b.stat().st_ino and a.stat().st_nlink == 2


def test_names_that_were_written_to_since_are_not_taken_over(files):
    a, b, c = interrupted(files)
    with open(b, "ab") as file:
        file.write(b"more")
    message = files.fails(1, "migrate")
    assert "was written to since: they are two files now" in message
    assert b.read_bytes() == content(5000) + b"more" and c.stat().st_ino == b.stat().st_ino
    assert files.read("a") == content(5000)


def test_a_mark_that_leads_out_of_the_tree_is_not_followed(files, tmp_path):
    outside, (a, b, c) = tmp_path / "outside", interrupted(files)
    os.rename(a, outside)
    os.setxattr(b, "user.naos.links", b"../outside")
    files.ok("migrate")
    assert sealed(b) and b.stat().st_ino != outside.stat().st_ino and outside.stat().st_nlink == 1


def test_sealed_files_of_others_and_the_plain_view_are_refused(files, tmp_path):
    files.sets.ok("key", "create", "images")
    (tmp_path / "plain").write_bytes(content(100))
    files.sets.ok("seal", "-f", "images", tmp_path / "plain", files.path / "foreign")
    before = (files.path / "foreign").read_bytes()
    assert "another file set" in files.fails(4, "migrate")
    assert (files.path / "foreign").read_bytes() == before


def test_killed_at_10_random_moments(sets, tmp_path):
    seed = int(os.environ.get("NAOS_SEED", "0")) or int.from_bytes(os.urandom(4), "little")
    Campaign(sets, tmp_path, seed).migrate(10)

# SPDX-License-Identifier: Apache-2.0
"""Backups of the sealed files by the tools of a backup operator, who has no key: restored elsewhere they open, and what lost
its attributes on the way is readable and can be rebuilt."""
import os
import pathlib
import random
import shutil
import subprocess

import pytest

import conftest
import fileset_mount
from seal_help import FileSet, listing, make_tree

ATTRIBUTE = "user.naos.key"


@pytest.fixture
def files(sets, tmp_path):
    files = FileSet(sets, tmp_path)
    files.seal(make_tree(tmp_path / "source"))
    os.setxattr(files.path / "deep/er/still/last", "user.origin", b"instrument 7")
    os.setxattr(tmp_path / "source/deep/er/still/last", "user.origin", b"instrument 7")
    return files


def run(*words, **kwargs):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, **kwargs)
    assert done.returncode == 0, f"{words}: {done.stdout}"


def by_tar(source, target):
    archive = target.with_suffix(".tar")
    run("tar", "--create", "--xattrs", "--xattrs-include=*", "--acls", "--sparse", "--file", archive, "--directory", source, ".")
    target.mkdir()
    run("tar", "--extract", "--xattrs", "--xattrs-include=*", "--acls", "--file", archive, "--directory", target)


def by_rsync(source, target):
    run("rsync", "-aHAX", "--sparse", f"{source}/", f"{target}/")


def by_cp(source, target):
    run("cp", "-a", source, target)


def by_plain_tar(source, target):
    archive = target.with_suffix(".tar")
    run("tar", "--create", "--file", archive, "--directory", source, ".")
    target.mkdir()
    run("tar", "--extract", "--file", archive, "--directory", target)


def by_plain_cp(source, target):
    run("cp", "--recursive", "--preserve=mode,ownership,timestamps,links", source, target)


def by_plain_rsync(source, target):
    run("rsync", "-aH", f"{source}/", f"{target}/")


def sealed_files(root):
    return [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]


def restored(files, target):
    """The file set elsewhere: on another machine its section names another directory."""
    files.configure(**dict(files.keys, path=target))
    return files


def opens_as_before(files, target, tmp_path, attributes):
    """Times of links are the tool's affair, and those of files as fine as it keeps them."""
    files.sets.ok("open", target, tmp_path / "back")
    wanted, found = listing(tmp_path / "source"), listing(tmp_path / "back")
    assert wanted.keys() == found.keys()
    for path, entry in wanted.items():
        for what in ("mode", "owner", "link", "size", "names", "content") + (("attributes",) if attributes else ()):
            assert entry.get(what) == found[path].get(what), (path, what)
        if "content" in entry:
            assert entry["mtime"] // 10**9 == found[path]["mtime"] // 10**9, path


@pytest.mark.parametrize("tool", [by_tar, by_rsync, by_cp])
def test_a_whole_backup_is_whole(files, tmp_path, tool):
    tool(files.path, tmp_path / "restored")
    shutil.rmtree(files.path)
    assert all(ATTRIBUTE in os.listxattr(path) for path in sealed_files(tmp_path / "restored"))
    restored(files, tmp_path / "restored")
    assert files.verb("check", "--keyless", env={"NAOS_CONFIG": str(files.without_keys())}).returncode == 0
    done = files.ok("check")
    assert done["failed"] == 0 and done["notices"] == {}
    opens_as_before(files, tmp_path / "restored", tmp_path, attributes=True)


@pytest.mark.parametrize("tool", [by_plain_tar, by_plain_cp, by_plain_rsync])
def test_a_backup_without_attributes_is_readable_and_can_be_made_whole(files, tmp_path, tool):
    tool(files.path, tmp_path / "restored")
    shutil.rmtree(files.path)
    paths = sealed_files(tmp_path / "restored")
    assert paths and all(ATTRIBUTE not in os.listxattr(path) for path in paths)
    restored(files, tmp_path / "restored")
    assert files.verb("check", "--keyless", env={"NAOS_CONFIG": str(files.without_keys())}).returncode == 0
    opens_as_before(files, tmp_path / "restored", tmp_path, attributes=False)
    assert files.ok("check", "--repair")["notices"] == {"rebuilt": len({path.stat().st_ino for path in paths})}
    assert all(ATTRIBUTE in os.listxattr(path) for path in paths)


def test_a_damaged_backup_is_noticed_without_a_key(files, tmp_path):
    by_tar(files.path, tmp_path / "restored")
    victim = tmp_path / "restored/size-1000003"
    os.truncate(victim, victim.stat().st_size - 4096)
    restored(files, tmp_path / "restored")
    done = files.verb("check", "--keyless", env={"NAOS_CONFIG": str(files.without_keys())})
    assert done.returncode == 4 and str(victim) in done.stderr and "truncated" in done.stderr


def test_an_incremental_backup_takes_what_changed_and_no_more(files, tmp_path):
    by_rsync(files.path, tmp_path / "restored")
    changed = files.file("deep/er/still/last", b"new content")
    done = subprocess.run(["rsync", "-aHAX", "--itemize-changes", f"{files.path}/", f"{tmp_path}/restored/"], capture_output=True, text=True,
                          check=True)
    sent = [line.split()[-1] for line in done.stdout.splitlines() if line.startswith(">f")]
    assert sent == [str(changed.relative_to(files.path))]
    restored(files, tmp_path / "restored")
    assert (tmp_path / "restored/deep/er/still/last").read_bytes() == changed.read_bytes()
    files.ok("check")


@pytest.mark.skipif(fileset_mount.missing() is not None, reason=str(fileset_mount.missing()))
def test_a_backup_taken_while_the_file_set_is_mounted_has_all_that_was_synced(tmp_path):
    """Unsealed files are copied as they are; the check on the copy recovers them."""
    dice = random.Random(5)
    with fileset_mount.Mount(tmp_path) as mount:
        wanted = {}
        held = []
        for i in range(12):
            data = dice.randbytes(dice.randrange(100_000))
            file = open(mount.path / f"file-{i}", "wb")
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            wanted[f"file-{i}"] = data
            (held.append if i % 2 else type(file).close)(file)
        by_tar(mount.below, tmp_path / "restored")
        for file in held:
            file.close()
        config = tmp_path / "restored.conf"
        config.write_text(mount.config.read_text().replace(str(mount.below), str(tmp_path / "restored")).replace(str(mount.path), "/nowhere"))
        for words in (("fileset", "check", "genomes", "--repair"), ("open", tmp_path / "restored", tmp_path / "back")):
            run(conftest.NAOS, *words, "--config", config, env=mount.env)
        for name, data in wanted.items():
            assert pathlib.Path(tmp_path / "back" / name).read_bytes() == data, name

# SPDX-License-Identifier: Apache-2.0
"""A mounted file set answers as the file system below it does: each row of posix_names.py, posix_rights.py and posix_contents.py is run on both, and must see the same."""
import os
import pathlib
import shutil

import pytest

import fileset_mount
import posix_contents  # noqa: each adds its rows
import posix_names  # noqa
import posix_rights  # noqa
import posix_rows

pytestmark = [pytest.mark.skipif(fileset_mount.missing() is not None, reason=str(fileset_mount.missing())),
              pytest.mark.skipif(os.getuid() != 0, reason="only root can act as several users")]



@pytest.fixture(scope="module")
def mount(tmp_path_factory):
    directory = tmp_path_factory.mktemp("posix")
    for path in [directory, *directory.parents][:3]:  # ordinary users must get here
        path.chmod(path.stat().st_mode | 0o011)
    with fileset_mount.Mount(directory, options="suid,dev,seal-delay=0s") as mounted:
        (directory / "native").mkdir()
        mounted.native = directory / "native"
        yield mounted
        mounted.stop()
        assert '"failed":0' in mounted.naos("verify", mounted.below, "--json").replace(" ", "")


def seen(row, directory):
    def run():
        os.umask(0o022)
        os.chdir(directory)
        return row()
    directory.mkdir()
    directory.chmod(0o755)
    result = posix_rows.in_child(run)
    assert not (isinstance(result, tuple) and result and result[0] == "failed"), f"{row.__name__} in {directory}: {result}"
    return result


@pytest.mark.parametrize("row", posix_rows.ROWS, ids=lambda row: row.__name__)
def test_as_on_a_native_file_system(mount, row):
    native, mounted = (seen(row, pathlib.Path(place) / row.__name__) for place in (mount.native, mount.path))
    shutil.rmtree(mount.native / row.__name__, ignore_errors=True)
    if isinstance(native, dict):
        native, mounted = ({key: side[key] for key in native if native[key] != mounted[key]} for side in (native, mounted))
    assert mounted == native


def test_files_are_the_same_after_a_new_mount(mount):
    """Inode numbers, times, modes, owners, attributes, ACLs, capabilities, contents."""
    def facts():
        found = {}
        for base, directories, files in os.walk(mount.path):
            for name in directories + files:
                path = os.path.join(base, name)
                status = os.lstat(path)
                attributes = {key: os.getxattr(path, key, follow_symlinks=False) for key in os.listxattr(path, follow_symlinks=False)}
                found[path] = (status.st_ino, status.st_mode, status.st_uid, status.st_gid, status.st_nlink, status.st_size, status.st_mtime_ns, status.st_rdev,
                               attributes, posix_rows.content(path) if os.path.isfile(path) and status.st_size < 1 << 20 else None)
        return found
    before = facts()
    assert len(before) > 500
    mount.stop()
    mount.start()
    after = facts()
    assert before == after


def test_an_older_mount_table_shows_the_file_set(mount):
    line = next(line for line in pathlib.Path("/proc/mounts").read_text().splitlines() if line.split()[1] == str(mount.path))
    assert "fuse.naos" in line and "default_permissions" in line and "allow_other" in line

# SPDX-License-Identifier: Apache-2.0
"""A mounted file set: plain files above, sealed ones below, and both stay in step."""
import ctypes
import os
import pathlib
import struct
import subprocess
import time

import pytest

import conftest
import fileset_mount

pytestmark = pytest.mark.skipif(fileset_mount.missing() is not None, reason=str(fileset_mount.missing()))


@pytest.fixture
def mount(tmp_path):
    with fileset_mount.Mount(tmp_path) as mounted:
        yield mounted


def test_plain_above_sealed_below(mount):
    text = b"a sentence that must not be found below " * 1000
    (mount.path / "a").write_bytes(text)
    os.setxattr(mount.path / "a", "user.note", b"clear")
    assert (mount.path / "a").read_bytes() == text
    assert (mount.path / "a").stat().st_size == len(text)
    mount.stop()
    below = (mount.below / "a").read_bytes()
    assert below[:8] == b"NAOSSF1\n" and text[:20] not in below
    assert '"failed":0' in mount.naos("verify", mount.below, "--json").replace(" ", "")
    assert os.getxattr(mount.below / "a", "user.note") == b"clear"
    mount.start()
    assert (mount.path / "a").read_bytes() == text


def test_the_attribute_with_the_key_is_hidden_and_protected(mount):
    path = mount.path / "a"
    path.write_bytes(b"x")
    assert "user.naos.key" not in os.listxattr(path)
    with pytest.raises(OSError):
        os.getxattr(path, "user.naos.key")
    with pytest.raises(PermissionError):
        os.setxattr(path, "user.naos.key", b"other")
    with pytest.raises(PermissionError):
        os.removexattr(path, "user.naos.key")
    assert os.getxattr(mount.below / "a", "user.naos.key")


def test_times_stay_those_of_the_last_write_when_a_file_is_sealed(mount):
    path = mount.path / "a"
    path.write_bytes(b"x" * 10000)
    os.utime(path, ns=(1_000_000_000_123_456_789, 1_100_000_000_987_654_321))
    with open(mount.path / "b", "wb") as out:
        out.write(b"y" * 10000)
    written = (mount.path / "b").stat().st_mtime_ns
    mount.stop()
    assert (mount.below / "a").stat().st_mtime_ns == 1_100_000_000_987_654_321
    assert (mount.below / "b").stat().st_mtime_ns == written


def test_sealing_shows_neither_in_the_times_nor_in_the_mode(tmp_path):
    with fileset_mount.Mount(tmp_path, options="seal-delay=1s") as mount:
        path = mount.path / "a"
        path.write_bytes(b"x" * 10000)
        path.chmod(0o6755)
        before = path.stat()
        for _ in range(100):
            if "clean" in mount.naos("info", "--state", mount.below / "a"):
                break
            time.sleep(0.1)
        time.sleep(1.2)  # the kernel asks again
        after = path.stat()
        assert (mount.below / "a").stat().st_ctime_ns > before.st_ctime_ns  # it was sealed
        assert (after.st_mtime_ns, after.st_ctime_ns, after.st_mode) == (before.st_mtime_ns, before.st_ctime_ns, before.st_mode)


@pytest.mark.parametrize("options, dated", [("", True), ("noatime", False)])
def test_reading_dates_the_access_as_the_mount_says(tmp_path, options, dated):
    """And that of the file and directory that was read only, though keys of neighbours are unwrapped too."""
    with fileset_mount.Mount(tmp_path, options=options) as mount:
        names = [f"{i:02}" for i in range(40)]
        for name in names:
            (mount.path / name).write_bytes(b"x" * 5000)
        mount.stop()
        for path in [mount.below, *mount.below.iterdir()]:
            os.utime(path, (1_000_000_000, 1_100_000_000))
        mount.start()
        for name in names[:8]:
            (mount.path / name).read_bytes()
        os.listdir(mount.path)
        after = {name: (mount.below / name).stat().st_atime != 1_000_000_000 for name in ["", *names]}
        assert after == {name: dated and name in ["", *names[:8]] for name in ["", *names]}


def test_a_file_handle_opens_the_file_after_a_new_mount(mount):
    if os.getuid() != 0:
        pytest.skip("only root can open by handle")
    libc = ctypes.CDLL("libc.so.6", use_errno=True)
    (mount.path / "d").mkdir()
    (mount.path / "d/a").write_bytes(b"the same file")

    def handle_of(path):
        buffer = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0) + bytes(128))
        number = ctypes.c_int()
        assert libc.name_to_handle_at(-100, os.fsencode(path), buffer, ctypes.byref(number), 0) == 0, os.strerror(ctypes.get_errno())
        return buffer

    def open_handle(buffer):
        directory = os.open(mount.path, os.O_RDONLY)
        fd = libc.open_by_handle_at(directory, buffer, os.O_RDONLY)
        error = ctypes.get_errno()
        os.close(directory)
        if fd < 0:
            raise OSError(error, os.strerror(error))
        with open(fd, "rb") as file:
            return file.read()

    known, gone = handle_of(mount.path / "d/a"), None
    (mount.path / "d/b").write_bytes(b"another")
    gone = handle_of(mount.path / "d/b")
    (mount.path / "d/b").unlink()
    assert open_handle(known) == b"the same file"
    mount.stop()
    mount.start()
    with pytest.raises(OSError):
        open_handle(gone)
    if subprocess.run(["stat", "-f", "-c", "%T", mount.below], capture_output=True, text=True).stdout.startswith("ext"):
        assert open_handle(known) == b"the same file"  # elsewhere the node must be remembered


def test_times_that_were_set_survive_an_fsync(mount):
    with open(mount.path / "a", "wb") as out:
        out.write(b"x" * 10000)
        out.flush()
        os.utime(out.fileno(), ns=(1_000_000_000_123_456_789, 1_100_000_000_987_654_321))
        os.fsync(out.fileno())
        assert os.fstat(out.fileno()).st_mtime_ns == 1_100_000_000_987_654_321
    mount.stop()
    assert (mount.below / "a").stat().st_mtime_ns == 1_100_000_000_987_654_321


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make the kernel forget files")
def test_the_time_of_change_stays_when_a_file_is_sealed_and_forgotten(tmp_path):
    with fileset_mount.Mount(tmp_path, options="seal-delay=0s") as mount:
        path = mount.path / "a"
        path.write_bytes(b"x" * 10000)
        changed, below = path.stat().st_ctime_ns, (mount.below / "a").stat().st_ctime_ns
        for _ in range(200):
            time.sleep(0.1)
            if (mount.below / "a").stat().st_ctime_ns != below:
                break
        time.sleep(1)
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("2")
        assert path.stat().st_ctime_ns == changed
        os.chmod(path, 0o600)
        assert path.stat().st_ctime_ns > changed


def test_a_file_that_was_being_made_at_a_kill_does_not_exist(mount):
    (mount.path / "d").mkdir()
    (mount.path / "d/a").write_bytes(b"")
    mount.kill()
    (mount.below / "d/b").touch()  # a name without a first page
    os.utime(mount.below / "d/b", (1, 1))
    time.sleep(0.05)  # it is older than the next mount
    mount.start()
    assert (mount.path / "d/a").read_bytes() == b"" and not (mount.path / "d/b").exists()
    assert os.listdir(mount.path / "d") == os.listdir(mount.below / "d") == ["a"]
    assert "event=removed" in mount.log.read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file capabilities")
def test_a_file_made_here_can_be_given_capabilities(mount):
    path = mount.path / "a"
    path.write_bytes(b"x" * 5000)
    with pytest.raises(OSError):
        os.getxattr(path, "security.capability")
    value = bytes.fromhex("01000002" + "00040000" + "00000000" * 3)  # cap_net_bind_service=ep
    os.setxattr(path, "security.capability", value)
    assert os.getxattr(path, "security.capability") == value
    with open(path, "ab") as file:
        file.write(b"y")
    with pytest.raises(OSError):  # as on any file system, a write takes them away
        os.getxattr(path, "security.capability")


def test_the_second_local_mount_is_refused(mount, tmp_path):
    other = mount.second()
    with pytest.raises(AssertionError, match="mounted already"):
        other.start()


def test_a_mount_right_after_an_unmount_waits_for_what_is_sealed(tmp_path):
    with fileset_mount.Mount(tmp_path, name=f"genomes-{os.getpid()}") as mount:  # a name that no other test mounts now
        for number in range(3):
            for i in range(300):
                (mount.path / f"{i}").write_bytes(b"x" * (number + 1) * 5000)
            before = mount.process
            subprocess.run(["fusermount3", "-u", str(mount.path)], check=True)
            mount.start()
            assert before.wait(timeout=60) == 0
            assert (mount.path / "299").stat().st_size == (number + 1) * 5000
        assert "recovered" not in mount.log.read_text()


def test_what_was_flushed_survives_a_kill(mount):
    path = mount.path / "a"
    with open(path, "wb") as out:
        out.write(b"1" * 100_000)
        out.flush()
        os.fsync(out.fileno())
        out.seek(5000)
        out.write(b"2" * 5000)
        out.flush()
        os.fsync(out.fileno())
        mount.kill()
    mount.start()
    assert path.read_bytes() == b"1" * 5000 + b"2" * 5000 + b"1" * 90_000
    mount.stop()
    mount.naos("verify", mount.below)


def test_probes_of_behaviour_pass_as_on_a_native_file_system(mount, shared):
    probe = pathlib.Path(shared) / "tools/fs/fsprobe.py"
    try:
        import pwd
        pwd.getpwnam("benchu")
    except KeyError:
        pytest.skip("the probes need a user benchu")
    for path in [mount.directory, *mount.directory.parents][:3]:  # that user must get here
        path.chmod(path.stat().st_mode | 0o011)
    done = subprocess.run(["/usr/bin/python3", str(probe), str(mount.path)], capture_output=True, text=True, timeout=300)
    bad = [line for line in done.stdout.splitlines() if " ok" not in line and "reflink_ficlone" not in line]
    assert done.stdout.count(" ok") >= 56 and not bad, done.stdout


def test_fsync_of_the_root_stands_for_sync_of_the_file_set(mount):
    """The kernel tells nothing of sync(2); what is gathered for a second is written by fsync of the root."""
    path, below = mount.path / "directory/a", mount.below / "directory/a"
    path.parent.mkdir()
    path.write_bytes(b"old" * 10000)
    fd, root, inside = os.open(path, os.O_RDWR), os.open(mount.path, os.O_RDONLY), os.open(path.parent, os.O_RDONLY)
    os.fsync(fd)
    for directory, written in ((inside, False), (root, True)) * 3:
        before = below.read_bytes()
        begin = time.monotonic()
        os.pwrite(fd, os.urandom(8192), 4096)
        os.fsync(directory)
        after = below.read_bytes()
        if time.monotonic() - begin < 0.9:  # else it may have been written because it was old
            assert (after != before) == written
    data = os.pread(fd, 30000, 0)
    mount.kill()
    mount.start()
    assert path.read_bytes() == data
    for one in (fd, root, inside):
        os.close(one)

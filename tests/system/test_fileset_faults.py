# SPDX-License-Identifier: Apache-2.0
"""What goes wrong below a mounted file set, and what others may not see: a full disk, errors and short calls, signals, other users."""
import ctypes
import errno
import os
import pathlib
import platform
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

import conftest
import fileset_mount
import posix_rows
from test_fileset_exercise import exercise
from test_seal_secrets import memory

pytestmark = pytest.mark.skipif(fileset_mount.missing() is not None, reason=str(fileset_mount.missing()))
root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk and act as several users")
MARK = b"plaintext that must be found nowhere below"


@pytest.fixture
def mount(tmp_path):
    with fileset_mount.Mount(tmp_path) as mounted:
        yield mounted


def whole(mount):
    assert '"failed":0' in mount.naos("verify", mount.below, "--json").replace(" ", "")


# --- a full disk --------------------------------------------------------------------------------------------------------------

@root_only
def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path):
    image, below, chance = tmp_path / "image", tmp_path / "below", random.Random(5)
    below.mkdir()
    with open(image, "wb") as out:
        out.truncate(24 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, below], check=True)
    try:
        with fileset_mount.Mount(tmp_path) as mount:
            fd, pieces, at = os.open(mount.path / "a", os.O_RDWR | os.O_CREAT), [], 0
            while True:
                piece = chance.randbytes(50000)
                try:
                    done = os.pwrite(fd, piece, at)
                except OSError as full:
                    assert full.errno == errno.ENOSPC
                    break
                pieces.append(piece[:done])
                at += done
            assert at > 10 << 20 and os.fstat(fd).st_size == at
            os.fsync(fd)
            everything = b"".join(pieces)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            assert os.pread(fd, at + 1000, 0)[:at] == everything[:os.fstat(fd).st_size] and os.fstat(fd).st_size == at
            os.pwrite(fd, b"Z" * 30000, 12345)  # in place: nothing is needed for it
            os.fsync(fd)
            everything = everything[:12345] + b"Z" * 30000 + everything[42345:]
            with pytest.raises(OSError) as no_room:
                for number in range(10000):
                    (mount.path / f"more-{number}").write_bytes(b"x" * 9000)
            assert no_room.value.errno == errno.ENOSPC
            mount.kill()
            mount.start()
            assert (mount.path / "a").read_bytes() == everything
            os.close(fd)
            os.truncate(mount.path / "a", 1000000)
            (mount.path / "b").write_bytes(b"q" * 20000)
            assert (mount.path / "b").read_bytes() == b"q" * 20000 and (mount.path / "a").read_bytes() == everything[:1000000]
            for left in mount.path.glob("more-*"):  # deleting works always
                left.unlink()
            mount.stop()
            whole(mount)
    finally:
        subprocess.run(["umount", "-l", below], check=False)


# --- errors below ---------------------------------------------------------------------------------------------------------------

@pytest.fixture
def faulty(tmp_path):
    """A mount with a switch: faulty.fault("s")."""
    control = tmp_path / "control"
    control.write_bytes(b"0")
    mount = fileset_mount.Mount(tmp_path, options="seal-delay=1s")
    mount.env.update(LD_PRELOAD=str(conftest.BUILD / "tests/tools/libfs_fault.so"), FS_FAULT_CONTROL=str(control), FS_FAULT_DIRECTORY=str(mount.below),
                     ASAN_OPTIONS="detect_leaks=0:verify_asan_link_order=0")

    def fault(kind):
        with open(control, "r+b") as out:
            out.write(kind.encode())
    mount.fault = fault
    with mount:
        yield mount
        fault("0")


def test_short_and_interrupted_calls_are_not_seen(faulty):
    faulty.fault("s")
    exercise(faulty, 7, operations=500)
    faulty.fault("0")
    faulty.stop()
    del faulty.env["LD_PRELOAD"]
    whole(faulty)


def test_the_size_that_is_told_is_never_older_than_a_change(faulty):
    path = faulty.path / "a"
    with open(path, "wb", buffering=0) as file:
        file.write(b"x" * 100)
        os.fsync(file.fileno())
        file.write(b"y" * 3000)  # stays in memory, for it would replace what is durable
    faulty.fault("t")  # the status is read before what was gathered is written, and told after the file was sealed
    done = subprocess.run(["stat", "--cached=never", "--format=%s", path], capture_output=True, text=True)
    faulty.fault("0")
    assert done.stdout.strip() == "3100", done
    assert "seal" not in faulty.log.read_text() and path.read_bytes() == b"x" * 100 + b"y" * 3000


def test_a_truncation_that_fails_half_way_leaves_a_file_that_can_be_read(faulty):
    path, data = faulty.path / "a", random.Random(2).randbytes(300000)
    path.write_bytes(data)
    os.sync()
    faulty.fault("z")
    assert attempt(os.truncate, path, 100000) == errno.EIO
    faulty.fault("0")
    assert path.read_bytes() == data[:100000]  # at once: it is recovered when it is opened again
    path.write_bytes(data[:50])
    assert path.read_bytes() == data[:50]
    faulty.stop()
    del faulty.env["LD_PRELOAD"]
    whole(faulty)


@pytest.mark.parametrize("what", ["removexattr", "chmod"])
def test_a_change_while_gathered_bytes_are_written_shows_in_the_time_of_change(faulty, what):
    """What naos-fs writes by itself must not show, so times are put back after it."""
    path = faulty.path / "a"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"x" * 10000, 0)
    os.fsync(fd)
    os.setxattr(path, "user.a", b"1")
    os.pwrite(fd, b"y" * 10000, 0)
    faulty.fault("l")
    time.sleep(0.9)
    os.fstat(fd)  # what the kernel need not ask for then
    time.sleep(0.6)  # after a second they are written, with a flush in between that takes two
    before = time.time()
    {"removexattr": lambda: os.removexattr(fd, "user.a"), "chmod": lambda: os.fchmod(fd, 0o600)}[what]()
    time.sleep(4)  # done, and the kernel asks again
    assert os.stat(path).st_ctime >= before - 0.1
    os.close(fd)


def attempt(call, *words):
    try:
        call(*words)
    except OSError as failed:
        return failed.errno
    return 0


@pytest.mark.parametrize("kind, code", [("w", errno.EIO), ("q", errno.EDQUOT)])
def test_a_write_that_fails_is_told_and_leaves_old_or_new(faulty, kind, code):
    fd, other = (os.open(faulty.path / name, os.O_RDWR | os.O_CREAT) for name in "ab")
    os.write(fd, b"1" * 40000), os.write(other, b"other" * 1000)
    os.fsync(fd), os.fsync(other)
    faulty.fault(kind)
    told = [attempt(os.pwrite, fd, b"2" * 20000, 5000), attempt(os.pwrite, fd, b"3" * 20000, 40000), attempt(os.fsync, fd)]
    assert code in told and set(told) <= {0, code}
    assert attempt(os.pwrite, other, b"n", 1 << 20) == code, "new data can't be refused later"
    faulty.fault("0")
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    content = os.pread(fd, 100000, 0)
    chunks = [content[at:at + 4096] for at in range(0, 40000 - 4096, 4096)]
    old = b"1" * 40000
    new = old[:5000] + b"2" * 20000 + old[25000:]
    assert all(chunk in (old[i * 4096:(i + 1) * 4096], new[i * 4096:(i + 1) * 4096]) for i, chunk in enumerate(chunks))
    assert os.pread(other, 5000, 0) == b"other" * 1000
    os.pwrite(fd, new, 0)
    os.fsync(fd)
    faulty.kill()
    faulty.start()
    assert (faulty.path / "a").read_bytes()[:40000] == new
    os.close(fd), os.close(other)


def test_a_read_that_fails_is_an_error_once(faulty):
    (faulty.path / "a").write_bytes(b"x" * 100000)
    faulty.stop()
    faulty.start()
    fd = os.open(faulty.path / "a", os.O_RDONLY)
    faulty.fault("r")
    assert attempt(os.pread, fd, 4096, 8192) == errno.EIO
    assert attempt(os.stat, faulty.path / "a") == 0
    faulty.fault("0")
    assert os.pread(fd, 200000, 0) == b"x" * 100000
    os.close(fd)
    assert "Input/output error" in faulty.log.read_text()


def test_a_flush_that_fails_is_told(faulty):
    fd = os.open(faulty.path / "a", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"x" * 100000)
    faulty.fault("f")
    assert attempt(os.fsync, fd) == errno.EIO
    faulty.fault("0")
    assert attempt(os.fsync, fd) == errno.EIO, "nobody knows what the kernel dropped"
    os.close(fd)
    for _ in range(100):  # naos-fs hears of a close after it is done
        fd = os.open(faulty.path / "a", os.O_RDWR)
        if attempt(os.pwrite, fd, b"y" * 100000, 0) == 0:
            break
        os.close(fd)
        time.sleep(0.1)
    os.fsync(fd)
    faulty.kill()
    faulty.start()
    assert (faulty.path / "a").read_bytes() == b"y" * 100000
    os.close(fd)


# --- ends -------------------------------------------------------------------------------------------------------------------------

def test_a_busy_mount_stays_and_a_signal_seals_what_is_open(mount):
    fd = os.open(mount.path / "a", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"x" * 50000)
    os.fsync(fd)
    os.pwrite(fd, b"y" * 30000, 100)  # gathered, not flushed
    assert subprocess.run(["fusermount3", "-u", str(mount.path)], capture_output=True).returncode != 0
    assert os.pread(fd, 3, 100) == b"yyy"
    mount.process.send_signal(signal.SIGTERM)
    assert mount.process.wait(timeout=120) == 0
    with pytest.raises(OSError):
        os.pwrite(fd, b"z", 0)
    os.close(fd)
    whole(mount)
    mount.process = None
    assert "not sealed" not in mount.naos("verify", mount.below)
    mount.start()
    assert (mount.path / "a").read_bytes() == b"x" * 100 + b"y" * 30000 + b"x" * 19900


# --- who may see what ----------------------------------------------------------------------------------------------------------------

def find(paths, needle):
    return [path for path in paths if path.is_file() and not path.is_symlink() and needle in path.read_bytes()]


def test_nothing_in_the_clear_below_or_in_files_of_naos_fs(mount, tmp_path):
    for name in ("short", "long"):
        (mount.path / name).write_bytes(MARK * (1 if name == "short" else 5000))
    with open(mount.path / "changed", "wb") as out:
        for place in range(0, 300000, 7001):
            out.seek(place)
            out.write(MARK)
        out.truncate(200000)
        os.fsync(out.fileno())
        deleted = [link for link in pathlib.Path(f"/proc/{mount.process.pid}/fd").iterdir() if "(deleted)" in os.readlink(link)] if os.getuid() == 0 else []
        assert find(deleted, MARK[:16]) == []
    mount.stop()
    places = [path for path in tmp_path.rglob("*") if mount.path not in path.parents]
    assert len(places) > 5 and find(places, MARK[:16]) == []
    (tmp_path / "control").write_bytes(b"..." + MARK)
    assert find(tmp_path.rglob("*"), MARK[:16]) == [tmp_path / "control"], "the search finds what there is"


@root_only
def inject(pid, number, *arguments):
    """What a system call says that is put into a running process (x86-64)."""
    done = subprocess.run([conftest.BUILD / "tests/tools/inject_call", str(pid), str(number), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip("no system call can be put into another process here")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_naos_fs_may_make_only_the_system_calls_it_needs(mount):
    (mount.path / "a").write_bytes(b"x" * 300000)
    for task in pathlib.Path(f"/proc/{mount.process.pid}/task").iterdir():
        status = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
        assert status["Seccomp"].strip() == "2" and status["NoNewPrivs"].strip() == "1", task.name
    if os.geteuid() != 0 or platform.machine() != "x86_64" or os.environ.get("NAOS_SANITIZE", "none") != "none":
        return
    socket_, execve, sethostname, umount2 = 41, 59, 170, 166  # a null pointer would be EFAULT without the filter
    assert inject(mount.process.pid, socket_, socket.AF_UNIX, socket.SOCK_STREAM, 0) >= 0
    assert inject(mount.process.pid, umount2, 0, 0, 0) == -errno.EFAULT  # what is allowed goes through
    assert inject(mount.process.pid, socket_, socket.AF_PACKET, socket.SOCK_RAW, 0) == -errno.EPERM
    for number in (execve, sethostname):
        assert inject(mount.process.pid, number, 0, 1, 0) == -errno.EPERM
    assert (mount.path / "a").read_bytes() == b"x" * 300000


def program_names(word):
    """Of the processes with this word in their command line."""
    lines = subprocess.run(["ps", "-e", "-ww", "-o", "args="], capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(os.path.basename(line.split()[0]) for line in lines if str(word) in line.split())


def test_an_ordinary_user_mounts_and_a_signal_unmounts(tmp_path):
    """A confined process starts no program with more rights: the one that unmounts was waiting."""
    if os.geteuid() != 0 or not shutil.which("setpriv") or os.stat("/dev/fuse").st_mode & 0o006 != 0o006:
        pytest.skip("only root can act as an ordinary user, who may open /dev/fuse where fuse3 is installed by its package")
    as_nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    with tempfile.TemporaryDirectory() as directory:
        mount = fileset_mount.Mount(directory)
        os.chmod(directory, 0o755)
        subprocess.run(["chown", "-R", "nobody", directory], check=True)
        with open(mount.log, "ab") as log:
            process = subprocess.Popen([*as_nobody, fileset_mount.NAOS_FS, "--foreground", "--config", mount.config, mount.name],
                                       env=mount.env, stdout=log, stderr=log)
        try:
            for _ in range(200):
                if str(mount.path) in pathlib.Path("/proc/mounts").read_text() or process.poll() is not None:
                    break
                time.sleep(0.05)
            subprocess.run([*as_nobody, "cp", "/etc/passwd", mount.path / "copy"], check=True)
            assert program_names(mount.config) == ["naos-fs", "unmount"]
            process.terminate()
            assert process.wait(timeout=60) == 0, mount.log.read_text()
            assert str(mount.path) not in pathlib.Path("/proc/mounts").read_text()
        finally:
            process.kill()
            subprocess.run(["fusermount3", "-u", "-z", mount.path], capture_output=True)


def test_another_user_neither_traces_naos_fs_nor_reads_its_memory(mount):
    pid = mount.process.pid
    libc = ctypes.CDLL("libc.so.6", use_errno=True)

    def look():
        found = [posix_rows.t(posix_rows.opened, f"/proc/{pid}/{name}", os.O_RDONLY) for name in ("mem", "maps", "environ")]
        found.append(posix_rows.t(os.listdir, f"/proc/{pid}/fd"))
        traced = libc.ptrace(16, pid, 0, 0)  # PTRACE_ATTACH
        return [*found, errno.errorcode[ctypes.get_errno()] if traced else "traced"]
    assert posix_rows.as_user(look) == ["EACCES"] * 4 + ["EPERM"]
    limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
    assert next(line for line in limits.splitlines() if "core file" in line).split()[4:6] == ["0", "0"]


@root_only
def test_keys_of_closed_files_are_wiped_within_the_age_of_the_ring(tmp_path):
    mount = fileset_mount.Mount(tmp_path, options="seal-delay=0s")
    mount.config.write_text(mount.config.read_text() + "[keyring]\nmax-age = 2s\n")
    with mount:
        for name in "ab":
            (mount.path / name).write_bytes(MARK)
        fd = os.open(mount.path / "a", os.O_RDONLY)
        program = os.environ.get("NAOS_SEAL_FEK") or conftest.BUILD / "tests/system/seal_fek"
        keys = [bytes.fromhex(subprocess.run([program, mount.below / name], env=dict(mount.env, NAOS_CONFIG=str(mount.config)), capture_output=True, text=True,
                                             check=True).stdout) for name in "ab"]
        assert (mount.path / "b").read_bytes() == MARK
        for _ in range(120):
            found = memory(mount.process.pid)
            if keys[1] not in found:
                break
            time.sleep(0.5)
        assert keys[1] not in found, "the key of a file that was closed long ago is in memory"
        assert keys[0] in found, "the search finds the key of a file that is open"
        assert (mount.path / "b").read_bytes() == MARK
        os.close(fd)


READ_ONLY = """
import os, sys
import fileset_mount
with fileset_mount.Mount(sys.argv[1], options="seal-delay=0s") as mount:
    made = os.open(mount.path / "made so", os.O_CREAT | os.O_WRONLY, 0o444)
    later = os.open(mount.path / "made so later", os.O_CREAT | os.O_WRONLY, 0o600)
    os.fchmod(later, 0o400)
    for fd in (made, later):
        os.write(fd, b"x" * 5000)
    os.fsync(made)
    for fd in (made, later):
        os.close(fd)
    assert [os.stat(mount.path / name).st_mode & 0o7777 for name in ("made so", "made so later")] == [0o444, 0o400]
for name in ("made so", "made so later"):
    assert len(os.getxattr(mount.below / name, "user.naos.key")) == 256 and os.stat(mount.below / name).st_mode & 0o200 == 0
mount.naos("fileset", "check", "genomes")
"""


@root_only
def test_an_ordinary_user_mounts_and_makes_files_that_are_read_only():
    """As git does; the attribute with the key needs the right to write by the mode."""
    user = {"user": 65534, "group": 65534, "extra_groups": []}
    if subprocess.run(["test", "-x", fileset_mount.NAOS_FS], **user).returncode != 0:
        pytest.skip("ordinary users can't get at the programs under test")
    with tempfile.TemporaryDirectory() as home:  # pytest closes its own to others, whenever another pytest begins
        os.chown(home, 65534, 65534)
        done = subprocess.run([sys.executable, "-c", READ_ONLY, home], cwd=pathlib.Path(__file__).parent, capture_output=True, text=True,
                              env=dict(os.environ, HOME=home), timeout=120, **user)
        assert done.returncode == 0, done.stderr

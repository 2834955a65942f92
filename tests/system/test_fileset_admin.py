# SPDX-License-Identifier: Apache-2.0
"""File sets are mounted and unmounted by `naos fileset`, by mount(8) and by lines of fstab; what happens when naos-fs or the key manager is away."""
import errno
import os
import pathlib
import signal
import subprocess
import textwrap
import time

import pytest

import pki as certificates
from conftest import BUILD
from keyd_server import Keyd
from softhsm import MISSING, SoftToken

NO_MOUNT = MISSING or (None if os.access("/dev/fuse", os.R_OK | os.W_OK) else "/dev/fuse can't be opened here")
pytestmark = pytest.mark.skipif(NO_MOUNT is not None, reason=str(NO_MOUNT))
NAME = f"admin{os.getpid()}"  # mounts are of the whole machine


@pytest.fixture
def world(keys, tmp_path):
    """naos with a file set of its own; what is left mounted is taken away."""
    keys.env["PATH"] = f"{BUILD}/cmd/naos-fs:{keys.env['PATH']}"
    keys.env["ASAN_OPTIONS"] = "detect_leaks=0"
    keys.ok("fileset", "create", NAME, "--path", tmp_path / "sealed", "--mountpoint", tmp_path / "plain")
    keys.plain, keys.sealed = tmp_path / "plain", tmp_path / "sealed"
    yield keys
    subprocess.run(["umount", "-l", keys.plain], check=False, capture_output=True)
    for pid in daemon():  # also those of another mount namespace
        os.kill(pid, signal.SIGTERM)


def show(naos):
    return naos.json("fileset", "show", NAME)[0]


def daemon():
    """The process id of the naos-fs of this test."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"naos-fs") and NAME.encode() in words:
            found.append(int(path.parent.name))
    return found


def test_what_was_written_is_sealed_when_unmounting_returns(world):
    assert "is mounted on" in world.ok("fileset", "mount", NAME)
    (mount,) = show(world)["mounts"]
    assert mount["point"] == str(world.plain) and not mount["dead"]
    assert str(world.plain) in world.ok("fileset", "list")
    for i in range(200):
        (world.plain / f"file{i}").write_bytes(b"GATTACA" * i)
    assert "unmounted" in world.ok("fileset", "umount", NAME)
    assert daemon() == [] and show(world)["mounts"] == []
    summary = world.json("fileset", "check", NAME)[0]
    assert summary["failed"] == 0 and summary["notices"] == {} and summary["files"] == 200, summary
    world.ok("fileset", "mount", NAME)
    assert (world.plain / "file9").read_bytes() == b"GATTACA" * 9
    world.ok("fileset", "umount", world.plain)


def test_options_and_another_mountpoint(world, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    done = world.json("fileset", "mount", NAME, tmp_path / "elsewhere", "-o", "ro,noatime")[0]
    assert done["point"] == str(tmp_path / "elsewhere")
    with pytest.raises(OSError) as refused:
        (tmp_path / "elsewhere/file").write_text("")
    assert refused.value.errno == errno.EROFS
    assert "ro" in show(world)["mounts"][0]["options"].split(",")
    world.ok("fileset", "umount", tmp_path / "elsewhere")
    assert "nonsense" in world.fails(2, "fileset", "mount", NAME, "-o", "nonsense")
    assert "no file set" in world.fails(1, "fileset", "umount", NAME)
    assert "no file set" in world.fails(1, "fileset", "umount", tmp_path)
    assert "'absent'" in world.fails(1, "fileset", "mount", "absent")


def test_a_mount_in_use_says_by_whom_and_can_be_taken_away_lazily(world):
    world.ok("fileset", "mount", NAME)
    assert "already" in world.fails(1, "fileset", "mount", NAME)
    assert "is mounted on" in world.fails(1, "fileset", "destroy", NAME, "--yes")
    with subprocess.Popen(["sleep", "600"], cwd=world.plain) as user:
        message = world.fails(1, "fileset", "umount", NAME)
        assert f"sleep ({user.pid})" in message and "--lazy" in message
        (world.plain / "written").write_text("before")
        world.ok("fileset", "umount", "--lazy", NAME)
        assert not os.path.ismount(world.plain) and daemon()
        user.kill()
    for _ in range(600):
        if not daemon():
            break
        time.sleep(0.05)
    assert daemon() == []
    assert world.json("fileset", "check", NAME)[0]["notices"] == {}


def test_a_mount_whose_daemon_was_killed_is_shown_and_replaced(world):
    world.ok("fileset", "mount", NAME)
    (world.plain / "file").write_text("synced")
    with open(world.plain / "file", "r+b") as out:
        os.fsync(out.fileno())
    for pid in daemon():
        os.kill(pid, signal.SIGKILL)
    for _ in range(600):
        if show(world)["mounts"][0]["dead"]:
            break
        time.sleep(0.05)
    assert "is gone" in world("fileset", "show", NAME).stderr and "(dead)" in world.ok("fileset", "list")
    done = world("fileset", "mount", NAME)
    assert done.returncode == 0 and "is gone" in done.stderr
    assert (world.plain / "file").read_text() == "synced"
    world.ok("fileset", "umount", "--stale", NAME)  # it lives: nothing is done
    assert len(show(world)["mounts"]) == 1
    for pid in daemon():
        os.kill(pid, signal.SIGKILL)
    while daemon():
        time.sleep(0.05)
    assert "recovered" in world.ok("fileset", "umount", "--stale", world.plain)
    assert world.ok("fileset", "umount", "--stale", NAME) == "" and show(world)["mounts"] == []


def test_a_file_set_is_mounted_while_the_key_manager_is_away(naos, tmp_path):
    pki = certificates.Pki(tmp_path / "pki")
    naos.env["PATH"] = f"{BUILD}/cmd/naos-fs:{naos.env['PATH']}"
    naos.env["ASAN_OPTIONS"] = "detect_leaks=0"
    plain = tmp_path / "plain"
    client = pki.client("client", uri="naos://test/client")
    with Keyd(tmp_path / "keyd", SoftToken(tmp_path / "softhsm"), pki) as keyd:
        naos.config.write_text(f"[keymanager]\nuri = kmip://127.0.0.1:{keyd.port}?cert={client.cert}&key={client.key}&ca={pki.ca}\n")
        naos.ok("fileset", "create", NAME, "--path", tmp_path / "sealed", "--mountpoint", plain)
        naos.ok("fileset", "mount", NAME)
        (plain / "reads").write_text("GATTACA")
        naos.ok("fileset", "umount", NAME)
        keyd.stop()
        # another file set, of which only the key manager knows the id
        naos.config.write_text(naos.config.read_text() + "[fileset other]\nmek = other\n")
        assert "other" in naos.fails(5, "seal", "--fileset", "other", naos.config, tmp_path / "never")
        naos.ok("fileset", "mount", NAME)
        try:
            assert os.listdir(plain) == ["reads"] and (plain / "reads").stat().st_size == 7
            (plain / "reads").rename(plain / "renamed")
            with pytest.raises(OSError) as refused:
                (plain / "renamed").read_text()
            assert refused.value.errno == errno.ENOKEY
            keyd.start()
            assert (plain / "renamed").read_text() == "GATTACA"
            (plain / "new").write_text("made without a restart")
        finally:
            naos.ok("fileset", "umount", NAME)


def test_a_revoked_key_ends_access_and_files_that_are_open_go_on(naos, tmp_path):
    pki = certificates.Pki(tmp_path / "pki")
    naos.env["PATH"] = f"{BUILD}/cmd/naos-fs:{naos.env['PATH']}"
    naos.env["ASAN_OPTIONS"] = "detect_leaks=0"
    plain = tmp_path / "plain"
    client = pki.client("client", uri="naos://test/client")
    with Keyd(tmp_path / "keyd", SoftToken(tmp_path / "softhsm"), pki) as keyd:
        naos.config.write_text(f"[keymanager]\nuri = kmip://127.0.0.1:{keyd.port}?cert={client.cert}&key={client.key}&ca={pki.ca}\n")
        naos.ok("fileset", "create", NAME, "--path", tmp_path / "sealed", "--mountpoint", plain)
        naos.ok("fileset", "mount", NAME, "-o", "seal-delay=1s")
        try:
            for name in ("open", "closed"):
                (plain / name).write_text("GATTACA")
            with open(plain / "open") as reader:
                assert reader.read(1) == "G"
                naos.ok("key", "revoke", NAME)
                for pid in daemon():
                    os.kill(pid, signal.SIGHUP)
                refused = 0
                for _ in range(30):  # a file that was just closed is kept for seal-delay
                    try:
                        (plain / "closed").read_text()
                    except OSError as error:
                        refused = error.errno
                        break
                    time.sleep(2)
                assert refused == errno.EKEYREVOKED
                with pytest.raises(OSError) as refusal:
                    (plain / "new").write_text("")
                assert refusal.value.errno in (errno.EKEYREVOKED, errno.ENOKEY)
                assert reader.read() == "ATTACA"
            assert sorted(os.listdir(plain)) == ["closed", "open"]
        finally:
            naos.ok("fileset", "umount", NAME)


# --- mount(8) and fstab, in a mount namespace of its own

SCRIPT = """
    import json, os, pathlib, subprocess, sys
    work, name, config = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    plain = work / "plain"

    def run(*words, status=0):
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        assert done.returncode == status, (words, done)
        return done

    def daemon():
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            words = path.read_bytes().split(b"\\0")
            if words[0].endswith(b"naos-fs") and name.encode() in words:
                return path.parent
        raise AssertionError("no naos-fs")

    run("mount", "--make-rprivate", "/")
    run("mount", "--bind", work / "sbin", "/sbin")
    run("mount", "--bind", work / "fstab", "/etc/fstab")
    # a type of its own, with options for mount and for the file system
    run("mount", "-t", "naos", name, plain, "-o", f"ro,noatime,x-test=1,config={config}")
    assert os.path.ismount(plain) and os.statvfs(plain).f_flag & os.ST_RDONLY
    run("naos", "--config", config, "fileset", "umount", plain)
    # a line of fstab
    run("mount", plain)
    (plain / "file").write_text("by fstab")
    run("naos", "--config", config, "fileset", "umount", name)
    # its own user
    for file in ("passwd", "group"):
        run("mount", "--bind", work / file, f"/etc/{file}")
    run("mount", "-t", "tmpfs", "tmpfs", "/mnt")  # a place that other users reach
    plain = pathlib.Path("/mnt/plain")
    plain.mkdir()
    run("mount", "-t", "naos", name, plain, "-o", f"config={config}")
    status = dict(line.split(":\\t", 1) for line in (daemon() / "status").read_text().splitlines() if ":\\t" in line)
    assert status["Uid"].split() == ["64998"] * 4 and status["Gid"].split() == ["64997"] * 4, status
    assert int(status["CapBnd"], 16) & (1 << 24 | 1 << 19) == 0, status  # neither resource nor ptrace
    os.chmod(plain, 0o1777)
    run("setpriv", "--reuid", "12345", "--regid", "12346", "--clear-groups", "sh", "-c", f"umask 027; echo mine > {plain}/mine")
    info = (work / "sealed/mine").stat()
    assert (info.st_uid, info.st_gid, info.st_mode & 0o7777) == (12345, 12346, 0o640), info
    assert "another namespace" in run("nsenter", "-t", os.getppid(), "-m", "naos", "--config", config, "fileset", "destroy", name, "--yes",
                                      status=1).stderr
    run("setpriv", "--reuid", "12347", "--regid", "12347", "--clear-groups", "cat", plain / "mine", status=1)
    run("naos", "--config", config, "fileset", "umount", plain)
    # what can't be mounted
    assert "absent" in run("mount", "-t", "naos", "absent", plain, "-o", f"config={config}", status=1).stderr
    assert "nonsense" in run("mount", "-t", "naos", name, plain, "-o", f"nonsense,config={config}", status=1).stderr
    assert run("mount", "-f", "-t", "naos", name, plain, "-o", f"config={config}") and not os.path.ismount(plain)
    print("done")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a mount namespace")
def test_mount_and_fstab_know_the_type(world, tmp_path):
    (tmp_path / "sbin").mkdir()
    helper = (BUILD / "install/mount.naos").read_text().replace("\nPATH=", f"\nPATH={BUILD}/cmd/naos-fs:{BUILD}/cmd/naos:", 1)
    (tmp_path / "sbin/mount.naos").write_text(helper)
    os.chmod(tmp_path / "sbin/mount.naos", 0o755)
    (tmp_path / "fstab").write_text(f"{NAME} {world.plain} naos defaults,_netdev,nofail,config={world.config} 0 0\n")
    (tmp_path / "passwd").write_text(pathlib.Path("/etc/passwd").read_text() + "naos-fs:x:64998:64997::/:/usr/sbin/nologin\n")
    (tmp_path / "group").write_text(pathlib.Path("/etc/group").read_text() + "naos-fs:x:64997:\n")
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    env = dict(world.env, PATH=f"{BUILD}/cmd/naos:{world.env['PATH']}")
    done = subprocess.run(["unshare", "-m", "/usr/bin/python3", script, tmp_path, NAME, world.config], env=env, capture_output=True, text=True,
                          timeout=300)
    assert done.stdout == "done\n", done.stdout + done.stderr

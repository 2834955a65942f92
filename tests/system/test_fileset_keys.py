# SPDX-License-Identifier: Apache-2.0
"""A mounted file set and its key manager: lost, back, a revoked key, many files' keys in one message, a certificate that ends.  Nothing
hangs, open files go on, the reason is in the log."""
import errno
import os
import pathlib
import signal
import subprocess
import time

import pytest

import fileset_mount
import pki as certificates
from keyd_server import Keyd
from ports import free_port
from softhsm import SoftToken

pytestmark = pytest.mark.skipif(fileset_mount.missing() is not None, reason=str(fileset_mount.missing()))


class Remote:
    """In the place of a token: the key manager, as a person of its test roles."""
    env = {}

    def __init__(self, keyd, pki):
        self.keyd, self.pki, self.person = keyd, pki, pki.client("admin", uri="naos://test/admin")

    def config(self):
        return f"[keymanager]\nuri = kmip://127.0.0.1:{self.keyd.port}?cert={self.person.cert}&key={self.person.key}&ca={self.pki.ca}\n"


@pytest.fixture
def mount(tmp_path):
    pki = certificates.Pki(tmp_path / "pki")
    roles = {"admin": {"identities": "naos://test/admin", "operations": "all approve", "keys": "*"}}
    with Keyd(tmp_path / "keyd", SoftToken(tmp_path / "softhsm"), pki, roles=roles, settings={"metrics": f"127.0.0.1:{free_port()}"}) as keyd:
        mount = fileset_mount.Mount(tmp_path, token=Remote(keyd, pki))
        mount.keyd = keyd
        mount.naos("key", "create", mount.name)
        with mount:
            for name in "abc":
                (mount.path / name).write_bytes(name.encode() * 10000)
            mount.stop()  # no key is in memory any more
            mount.start()
            yield mount


def open_status(path):
    """errno of an open in a process of its own, which must not hang."""
    code = "import os, sys\ntry:\n    os.read(os.open(sys.argv[1], os.O_RDONLY), 10)\nexcept OSError as failed:\n    print(failed.errno)\nelse:\n    print(0)"
    return int(subprocess.run(["/usr/bin/python3", "-c", code, str(path)], capture_output=True, text=True, timeout=120, check=True).stdout)


def until(path, wanted):
    for _ in range(120):
        if (status := open_status(path)) == wanted:
            return True
        time.sleep(0.5)
    return status


def refusals(mount, name):
    return [line for line in mount.log.read_text().splitlines() if "event=refused" in line and f"errno={name}" in line]


def test_a_lost_key_manager_stops_new_opens_only(mount):
    fd = os.open(mount.path / "a", os.O_RDWR)
    mount.keyd.kill()
    assert open_status(mount.path / "b") == errno.ENOKEY
    lines = refusals(mount, "ENOKEY")
    inode = (mount.path / "b").stat().st_ino
    assert len(lines) == 1 and str(inode) in lines[0] and "reason=" in lines[0], lines
    os.pwrite(fd, b"goes on", 5000)
    os.fsync(fd)
    assert os.pread(fd, 7, 5000) == b"goes on"
    assert open_status(mount.path / "a") == 0, "its key is here"
    os.rename(mount.path / "b", mount.path / "d"), os.chmod(mount.path / "d", 0o600), os.setxattr(mount.path / "d", "user.x", b"1")
    os.unlink(mount.path / "c")
    assert sorted(os.listdir(mount.path)) == ["a", "d"] and (mount.path / "d").stat().st_size == 10000
    mount.keyd.start()
    assert until(mount.path / "d", 0) is True, "it recovers without a new mount"
    (mount.path / "new").write_bytes(b"new")
    os.close(fd)
    mount.stop()
    mount.naos("verify", mount.below)


def test_a_revoked_key_is_told_apart(mount):
    fd = os.open(mount.path / "a", os.O_RDWR)
    mount.naos("key", "rotate", mount.name)
    mount.naos("key", "revoke", mount.name, "--key-version", "1")
    mount.process.send_signal(signal.SIGHUP)
    assert open_status(mount.path / "b") == errno.EKEYREVOKED
    lines = refusals(mount, "EKEYREVOKED")
    assert len(lines) == 1 and str((mount.path / "b").stat().st_ino) in lines[0] and "reason=" in lines[0], lines
    os.pwrite(fd, b"goes on", 5000)
    os.fsync(fd)
    assert os.pread(fd, 7, 5000) == b"goes on"
    os.close(fd)
    for number in range(200):  # also when what was prepared with the old version is used up
        (mount.path / f"new-{number}").write_bytes(b"new")
    mount.stop()
    mount.start()
    assert pathlib.Path(mount.path / "new-199").read_bytes() == b"new" and open_status(mount.path / "a") == errno.EKEYREVOKED


@pytest.mark.parametrize("order", [list, sorted], ids=["listed", "sorted"])  # tar or grep -r; the shell
def test_the_keys_of_a_directory_that_is_walked_come_many_in_one_message(mount, order):
    for number in range(200):
        (mount.path / f"{number:03}").write_bytes(f"{number:03}".encode())
    mount.stop()
    mount.start()
    requests, decrypts = mount.keyd.number("requests_total"), mount.keyd.number("decrypts_total")
    files = order(mount.path.iterdir())
    for path in files:
        assert path.read_bytes() == path.name.encode() * (1 if path.name.isdigit() else 10000)
    assert mount.keyd.number("decrypts_total") - decrypts >= len(files)
    assert mount.keyd.number("requests_total") - requests <= len(files) / 10


def test_a_certificate_near_its_end_is_announced_in_the_log(mount):
    def warnings():
        return [line for line in mount.log.read_text().splitlines() if "event=certificate-ends" in line]

    person = mount.token.person  # it lasts ten days
    assert str(person.cert) in warnings()[-1] and "renew" in warnings()[-1], mount.log.read_text()
    mount.stop()
    mount.log.write_text("")
    mount.token.pki.client("admin", uri="naos://test/admin", days=(-1, 100))
    ca = certificates.Pki(mount.directory / "long", days=(-1, 400)).ca
    mount.token.pki.ca.write_bytes(mount.token.pki.ca.read_bytes() + ca.read_bytes())  # an authority beside its successor
    mount.start()
    assert (mount.path / "a").read_bytes() == b"a" * 10000 and not warnings()

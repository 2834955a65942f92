# SPDX-License-Identifier: Apache-2.0
"""The command line over kmip:// with naos-keyd: keys, files, approvals, a key manager that is away, roles that part sealing from opening."""
import os

import pytest

import pki as certificates
from keyd_server import Keyd
from softhsm import MISSING, SoftToken

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
ROLES = {
    "admin": {"identities": "naos://test/admin naos://test/second", "operations": "all approve", "keys": "*"},
    "node": {"identities": "naos://test/node", "operations": "locate get read encrypt decrypt", "keys": "*"},
    "curator": {"identities": "naos://test/curator", "operations": "locate read encrypt", "keys": "*"},
}


@pytest.fixture(scope="module")
def keyd(tmp_path_factory):
    directory = tmp_path_factory.mktemp("keyd")
    pki = certificates.Pki(directory / "pki")
    with Keyd(directory / "keyd", SoftToken(directory / "softhsm"), pki, roles=ROLES) as keyd:
        keyd.people = {name: pki.client(name, uri=f"naos://test/{name}") for name in ("admin", "second", "node", "curator", "stranger")}
        yield keyd


def uri(keyd, who, **more):
    client = keyd.people[who]
    query = {"cert": client.cert, "key": client.key, "ca": keyd.pki.ca, **more}
    return f"kmip://127.0.0.1:{keyd.port}?" + "&".join(f"{k}={v}" for k, v in query.items())


@pytest.fixture
def admin(naos, keyd):
    naos.config.write_text(f"[keymanager]\nuri = {uri(keyd, 'admin')}\n")
    return naos


def states(naos, name):
    return {key["version"]: key["state"] for key in naos.json("key", "show", name)}


def test_a_key_through_its_life(admin, keyd, tmp_path):
    plain = tmp_path / "plain"
    plain.write_bytes(os.urandom(100000))
    admin.ok("key", "create", "genomes")
    admin.ok("seal", "--fileset", "genomes", "--keys", uri(keyd, "node"), plain, tmp_path / "one")
    admin.ok("key", "rotate", "genomes")
    assert states(admin, "genomes") == {2: "active", 1: "deactivated"}
    admin.ok("seal", "--fileset", "genomes", "--keys", uri(keyd, "node"), plain, tmp_path / "two")
    for name in ("one", "two"):
        admin.ok("open", "--keys", uri(keyd, "node"), tmp_path / name, tmp_path / f"{name}-back")
        assert (tmp_path / f"{name}-back").read_bytes() == plain.read_bytes()
    admin.ok("key", "revoke", "genomes", "--key-version", 1)
    assert states(admin, "genomes")[1] == "revoked"
    message = admin.fails(5, "open", "--keys", uri(keyd, "node"), tmp_path / "one", tmp_path / "one-again")
    assert "revoked" in message and "compromised" in message, message
    admin.ok("open", "--keys", uri(keyd, "node"), tmp_path / "two", tmp_path / "two-again")
    # two people end a version
    message = admin.fails(3, "key", "destroy", "genomes", "--key-version", 1, "--yes")
    assert "1 of 2" in message, message
    assert states(admin, "genomes")[1] == "revoked"
    admin.ok("key", "approve", "genomes", "--key-version", 1, "--keys", uri(keyd, "second"), "--yes")
    assert states(admin, "genomes") == {2: "active", 1: "destroyed"}
    assert "version 1 of the key 'genomes' is destroyed" in admin.fails(
        5, "open", "--keys", uri(keyd, "node"), tmp_path / "one", tmp_path / "one-never")


@pytest.mark.parametrize("version", ["1.0", "1.3", "1.4"])
def test_a_destroyed_version_is_shown_and_its_number_never_used_again(admin, keyd, version):
    """Before 1.4 destroyed objects are found by their state, from then on by the storage status mask."""
    name, keys = f"gone-{version}", ("--keys", uri(keyd, "admin", version=version))
    admin.ok("key", "create", name, *keys)
    admin.ok("key", "rotate", name, *keys)
    admin.ok("key", "revoke", name, "--key-version", 2, *keys)
    admin.fails(3, "key", "destroy", name, "--key-version", 2, "--yes", *keys)
    admin.ok("key", "approve", name, "--key-version", 2, "--yes", "--keys", uri(keyd, "second", version=version))
    assert {key["version"]: key["state"] for key in admin.json("key", "show", name, *keys)} == {2: "destroyed", 1: "deactivated"}
    assert (name, 2, "destroyed") in {(key["name"], key["version"], key["state"]) for key in admin.json("key", "list", *keys)}
    assert "was destroyed" in admin.fails(5, "key", "rotate", name, *keys)
    assert "was destroyed; choose another name" in admin.fails(1, "key", "create", name, *keys)


@pytest.mark.parametrize("version", ["1.2", "1.3", "1.4"])
def test_files_in_every_version_that_can_encrypt(admin, keyd, tmp_path, version):
    plain = tmp_path / "plain"
    plain.write_bytes(os.urandom(5000))
    admin.ok("key", "create", f"set-{version}")
    address = uri(keyd, "node", version=version)
    admin.ok("seal", "--fileset", f"set-{version}", "--keys", address, plain, tmp_path / "sealed")
    admin.ok("open", "--keys", address, tmp_path / "sealed", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == plain.read_bytes()


def test_who_may_seal_may_not_open(admin, keyd, tmp_path):
    (tmp_path / "plain").write_bytes(b"GATTACA" * 1000)
    admin.ok("key", "create", "observatory")
    admin.ok("seal", "--fileset", "observatory", "--keys", uri(keyd, "curator"), tmp_path / "plain", tmp_path / "sealed")
    message = admin.fails(3, "open", "--keys", uri(keyd, "curator"), tmp_path / "sealed", tmp_path / "back")
    assert not (tmp_path / "back").exists(), message
    admin.ok("open", "--keys", uri(keyd, "node"), tmp_path / "sealed", tmp_path / "back")
    # the node makes no keys; a stranger sees none
    assert "refuses to create a key" in admin.fails(3, "key", "create", "mine", "--keys", uri(keyd, "node"))
    assert "no role" in admin.fails(3, "key", "list", "--keys", uri(keyd, "stranger"))
    admin.fails(3, "open", "--keys", uri(keyd, "stranger"), tmp_path / "sealed", tmp_path / "no")


def test_no_key_is_in_any_log(keyd, admin, tmp_path):
    """Bytes of the FEKs can't be known here; the material of an exportable key can, and so can plaintext that was encrypted."""
    from keyd import create, encrypt, extractable, get_bytes, on, register
    secret, text = os.urandom(32), os.urandom(48)
    keyd.roles["either"] = {"identities": "naos://test/admin", "operations": "all", "keys": "own", "class": "either"}
    keyd.stop()
    keyd.start()
    with keyd.client(keyd.people["admin"]) as client:
        uid = client.ok(register(secret, extractable())).find("UniqueIdentifier").value
        assert bytes.fromhex(client.ok(on("Get", uid)).find("SymmetricKey").find("KeyBlock").find("KeyValue").find("KeyMaterial").value) == secret
        client.ok(on("Activate", uid))
        client.ok(encrypt(uid, text))
        client.refused(encrypt("absent", text))
    pin = keyd.token.pin.encode()
    for path in [keyd.log, *keyd.directory.rglob("*")]:
        if path.is_file():
            content = path.read_bytes()
            for needle in (secret, text, pin):
                assert needle not in content and needle.hex().encode() not in content.lower(), path

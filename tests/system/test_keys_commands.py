# SPDX-License-Identifier: Apache-2.0
"""naos key on a real SoftHSM token: the life of a key, refusals, what is recorded, where the PIN never is."""
import json
import os
import pty
import select
import sqlite3
import subprocess

import pytest

from conftest import NAOS


def states(keys, name):
    return {key["version"]: key["state"] for key in keys.json("key", "show", name)}


def test_a_key_lives(keys):
    assert keys.ok("key", "list") == ""
    assert keys.ok("key", "create", "genomes") == "genomes: version 1 is active\n"
    (key,) = keys.json("key", "rotate", "genomes")
    assert (key["name"], key["version"], key["state"], key["rotate_soon"]) == ("genomes", 2, "active", False)
    assert states(keys, "genomes") == {1: "deactivated", 2: "active"}
    assert "revoked" in keys.ok("key", "revoke", "genomes", "--key-version", "1")
    assert states(keys, "genomes") == {1: "revoked", 2: "active"}
    keys.ok("key", "activate", "genomes", "--key-version", "1")
    keys.ok("key", "revoke", "genomes")
    assert states(keys, "genomes") == {1: "revoked", 2: "revoked"}
    keys.ok("key", "destroy", "genomes", "--key-version", "1", "--yes")
    keys.ok("key", "activate", "genomes")
    assert states(keys, "genomes") == {1: "destroyed", 2: "active"}
    lines = keys.ok("key", "list").splitlines()
    assert [line.split()[:3] for line in lines] == [["NAME", "VERSION", "STATE"], ["genomes", "1", "destroyed"], ["genomes", "2", "active"]]


def test_the_token_has_what_the_list_says(keys, token):
    keys.ok("key", "create", "genomes")
    keys.ok("key", "rotate", "genomes")
    keys.ok("key", "destroy", "genomes", "--key-version", "1", "--yes")
    (key,) = [key for key in keys.json("key", "list") if key["state"] == "active"]
    listing = token.tool("--list-objects", "--type", "secrkey")
    assert listing.count("Secret Key Object") == 1
    assert key["id"].replace("-", "") + "00000002" in listing.replace(" ", "")
    assert f"naos:{key['id']}:2:genomes" in listing
    usage = next(line for line in listing.splitlines() if "Usage" in line)
    assert usage.split(":")[1].strip() == "encrypt, decrypt"
    access = next(line for line in listing.splitlines() if "Access" in line)
    assert "always sensitive" in access and "never extractable" in access


def test_refusals_say_what_to_do(keys):
    keys.ok("key", "create", "genomes")
    assert "naos key rotate" in keys.fails(1, "key", "create", "genomes")
    assert "no key named 'other'" in keys.fails(5, "key", "show", "other")
    assert "no version 9" in keys.fails(5, "key", "revoke", "genomes", "--key-version", "9")
    assert "--key-version" in keys.fails(2, "key", "revoke", "genomes", "--key-version", "two")
    assert "--key-version" in keys.fails(2, "key", "destroy", "genomes")
    assert "revoke it, or rotate" in keys.fails(5, "key", "destroy", "genomes", "--key-version", "1", "--yes")
    assert "letters, digits" in keys.fails(2, "key", "create", "a/b")
    keys.config.write_text("")
    assert "--keys" in keys.fails(2, "key", "list")


def test_another_key_manager_for_once(keys, token):
    keys.ok("key", "create", "genomes")
    assert "there is pkcs11:" in keys.fails(2, "key", "list", "--keys", "kmipx://host")
    assert len(keys.json("key", "list", "--keys", token.uri)) == 1
    assert "no token 'nobody'" in keys.fails(5, "key", "list", "--keys", token.uri.replace(f"token={token.label}", "token=nobody"))


def test_destruction_is_confirmed(keys, tmp_path):
    keys.ok("key", "create", "genomes")
    keys.ok("key", "rotate", "genomes")
    assert "--yes" in keys.fails(2, "key", "destroy", "genomes", "--key-version", "1")

    def on_a_terminal(answer):
        master, slave = pty.openpty()
        process = subprocess.Popen([NAOS, "key", "destroy", "genomes", "--key-version", "1"], env=keys.env, stdin=slave, stdout=slave,
                                   stderr=slave, close_fds=True)
        os.close(slave)
        shown = b""
        while b"Type the name" not in shown:
            assert select.select([master], [], [], 60)[0]
            shown += os.read(master, 4096)
        os.write(master, answer)
        status = process.wait(60)
        os.close(master)
        return status

    assert on_a_terminal(b"yes\n") == 1
    assert states(keys, "genomes")[1] == "deactivated"
    assert on_a_terminal(b"genomes\n") == 0
    assert states(keys, "genomes")[1] == "destroyed"


def test_a_used_up_version_is_warned_of(keys, token):
    keys.ok("key", "create", "genomes")
    store = sqlite3.connect(token.store)
    store.execute("UPDATE mek SET uses = ?", (2**31,))
    store.commit()
    store.close()
    shown = keys("key", "show", "genomes")
    assert shown.returncode == 0 and "naos key rotate genomes" in shown.stderr
    assert keys.json("key", "show", "genomes")[0]["rotate_soon"]
    keys.ok("key", "rotate", "genomes")
    assert keys("key", "list").stderr == ""


@pytest.fixture
def audited(keys, token, tmp_path):
    keys.log = tmp_path / "audit"
    keys.config.write_text(token.config() + f"[audit]\nlog = {keys.log}\n")
    return keys


def records(keys):
    return [(record["action"], record["object"], record["decision"], record.get("reason")) for record in
            map(json.loads, keys.ok("audit", "show", keys.log, "--json").splitlines()) if record.get("action", "").startswith("key.")]


def test_each_change_is_recorded(audited):
    audited.ok("key", "create", "genomes")
    audited.ok("key", "rotate", "genomes")
    audited.ok("key", "list")
    audited.ok("key", "revoke", "genomes", "--key-version", "2")
    audited.ok("key", "activate", "genomes", "--key-version", "2")
    audited.fails(5, "key", "destroy", "genomes", "--key-version", "2", "--yes")
    audited.ok("key", "destroy", "genomes", "--key-version", "1", "--yes")
    assert records(audited) == [
        ("key.create", "genomes", "allowed", None),
        ("key.rotate", "genomes", "allowed", None),
        ("key.revoke", "genomes/2", "allowed", None),
        ("key.activate", "genomes/2", "allowed", None),
        ("key.destroy", "genomes/2", "allowed", None),
        ("key.destroy", "genomes/2", "failed", "NAOS_E_KEY_STATE"),
        ("key.destroy", "genomes/1", "allowed", None),
    ]
    audited.ok("audit", "verify", audited.log)


def test_what_cannot_be_recorded_is_not_done_but_revoking_is(audited, token):
    audited.ok("key", "create", "genomes")
    audited.config.write_text(token.config() + "[audit]\nlog = /proc/no/such/log\n")
    assert audited("key", "create", "more").returncode == 1
    assert audited("key", "rotate", "genomes").returncode == 1
    assert audited("key", "activate", "genomes").returncode == 1
    assert len(audited.json("key", "list")) == 1
    revoked = audited("key", "revoke", "genomes")
    assert revoked.returncode == 0 and "could not be recorded" in revoked.stderr
    assert audited("key", "destroy", "genomes", "--key-version", "1", "--yes").returncode == 1
    assert states(audited, "genomes") == {1: "revoked"}


def test_the_pin_comes_from_a_file_a_descriptor_or_a_credential(keys, token, tmp_path):
    keys.ok("key", "create", "genomes", "--keys", token.uri)
    reader, writer = os.pipe()
    os.write(writer, token.pin.encode())
    os.close(writer)
    keys.ok("key", "list", "--keys", token.uri_with(f"fd:{reader}"), pass_fds=[reader])
    os.close(reader)
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "hsm").write_text(token.pin)
    (credentials / "hsm").chmod(0o400)
    keys.ok("key", "list", "--keys", token.uri_with("systemd:hsm"), env={"CREDENTIALS_DIRECTORY": str(credentials)})
    assert "LoadCredential" in keys.fails(5, "key", "list", "--keys", token.uri_with("systemd:hsm"))
    token.pin_file.chmod(0o644)
    assert "chmod 600" in keys.fails(5, "key", "list", "--keys", token.uri)


def test_a_pin_in_the_address_is_refused_and_not_repeated(keys, token):
    for uri in (f"pkcs11:token=a?pin-value={token.pin}", token.uri_with(token.pin), f"pkcs11:token={token.pin}=x?x={token.pin}"):
        done = keys("key", "list", "--keys", uri)
        assert done.returncode in (2, 5)
        assert token.pin not in done.stdout + done.stderr
    assert "process lists" in keys.fails(2, "key", "list", "--keys", token.uri + f"&pin-value={token.pin}")
    wrong = token.pin_file.parent / "wrong"
    wrong.write_text("another-pin-4711")
    wrong.chmod(0o600)
    shown = keys.fails(5, "key", "list", "--keys", token.uri_with(f"file:{wrong}"), "--verbose")
    assert "another-pin-4711" not in shown and "CKR_PIN_INCORRECT" in shown


def test_the_pin_is_nowhere_to_be_seen(audited, token):
    """Not in arguments or environment of the running program, nor in any file that it wrote."""
    process = subprocess.Popen([NAOS, "key", "create", "genomes", "--verbose"], env=audited.env, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    seen = b""
    while process.poll() is None:
        for what in ("cmdline", "environ"):
            try:
                with open(f"/proc/{process.pid}/{what}", "rb") as file:
                    seen += file.read()
            except OSError:
                pass
    out, err = process.communicate()
    assert process.returncode == 0
    pin = token.pin.encode()
    assert seen and pin not in seen + out + err
    for path in audited.directory.rglob("*"):
        if path.is_file() and path != token.pin_file:
            assert pin not in path.read_bytes(), path


def test_a_full_disk_makes_no_half_key_and_loses_no_token(keys, token):
    """A limit on file sizes stands in for the full disk: nothing fits that SoftHSM or the store write.  SoftHSM's C_Login itself
    empties the token's file before it writes it again."""
    keys.ok("key", "create", "genomes")
    for limit in (0, 100, 400, 4096, 20000):
        done = subprocess.run(["prlimit", f"--fsize={limit}", NAOS, "key", "create", f"k{limit}"], env=keys.env, capture_output=True,
                              text=True, timeout=60)
        assert done.returncode != 0
    assert [key["name"] for key in keys.json("key", "list")] == ["genomes"]
    keys.ok("key", "create", "after")
    assert all(path.stat().st_size > 0 for path in token.objects())
    assert len(token.objects()) == 2


@pytest.mark.parametrize("left", [0, 1, 200])
def test_a_token_lost_in_a_login_comes_back(keys, token, left):
    keys.ok("key", "create", "genomes")
    file = token.object_directory() / "token.object"
    whole = file.read_bytes()
    os.truncate(file, left)
    assert states(keys, "genomes") == {1: "active"}
    assert file.read_bytes() == whole
    file.unlink()
    keys.ok("key", "rotate", "genomes")

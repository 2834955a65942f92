# SPDX-License-Identifier: Apache-2.0
"""File sets are made, shown and ended by `naos fileset`: with a token, and through a key manager that asks two people.

Mounts are of the whole machine: the name here is one that nothing else mounts.
"""
import json
import os
import pathlib
import shutil
import stat
import uuid

import pytest

import pki as certificates
from keyd_server import Keyd
from softhsm import MISSING, SoftToken

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.fixture
def place(tmp_path):
    path = tmp_path / "gpfs"
    path.mkdir()
    return path


def create(naos, place, name="ivory", *words):
    return naos.json("fileset", "create", name, "--path", place / name, *words)[0]


def show(naos, name="ivory"):
    return naos.json("fileset", "show", name)[0]


def seal(naos, name, target, text=b"GATTACA" * 1000):
    plain = naos.directory / "plain"
    plain.write_bytes(text)
    naos.ok("seal", "--fileset", name, plain, target)


# --- create


def test_a_file_set_is_made_with_key_directories_and_configuration(keys, place):
    keys.config.write_text(keys.config.read_text() + f"[audit]\nlog = {keys.directory}/audit\n")
    made = create(keys, place, "ivory", "--mountpoint", place / "plain", "--mode", "shared", "--options", "noatime,ro")
    key = keys.json("key", "show", "ivory")[0]
    assert made["id"] == key["id"] and made["key_made"] and made["version"] == 1
    assert stat.S_IMODE((place / "ivory").stat().st_mode) == 0o755 and (place / "plain").is_dir()
    drop_in = pathlib.Path(made["configuration"])
    assert drop_in == pathlib.Path(f"{keys.config}.d/fileset-ivory.conf")
    assert stat.S_IMODE(drop_in.stat().st_mode) == 0o644
    keys.ok("config", "check")
    set_ = show(keys)
    assert set_["path"] == str(place / "ivory") and set_["mountpoint"] == str(place / "plain")
    assert (set_["mode"], set_["options"], set_["algorithm"]) == ("shared", "noatime,ro", "aes-256-gcm")
    assert uuid.UUID(set_["id"]) and set_["key"] == {"name": "ivory", "state": "active", "version": 1, "id": key["id"]}
    seal(keys, "ivory", place / "ivory/reads")
    records = keys.ok("audit", "show", keys.directory / "audit")
    assert "fileset.create" in records and "key.create" in records


def test_the_person_is_told_what_to_do_next(keys, place):
    text = keys.ok("fileset", "create", "ivory", "--path", place / "ivory", "--mountpoint", place / "plain")
    for words in ("naos fileset mount ivory", "naos-fs@ivory", f"ivory {place}/plain naos defaults,_netdev,nofail 0 0"):
        assert words in text


def test_a_key_that_is_there_is_used(keys, place):
    keys.ok("key", "create", "mice")
    keys.ok("key", "rotate", "mice")
    made = create(keys, place, "ivory", "--mek", "mice", "--permissions", "0710")
    assert not made["key_made"] and made["version"] == 2
    assert stat.S_IMODE((place / "ivory").stat().st_mode) == 0o710
    assert "ivory" not in keys.ok("key", "list")
    # it is the key of this file set, and no other's
    assert "'ivory'" in keys.fails(1, "fileset", "create", "second", "--path", place / "second", "--mek", "mice")
    keys.ok("key", "create", "old")
    keys.ok("key", "revoke", "old")
    assert "no active version" in keys.fails(5, "fileset", "create", "old", "--path", place / "old")


def test_what_can_not_be_a_file_set_is_refused_and_makes_nothing(keys, place):
    def refused(status, *words):
        return keys.fails(status, "fileset", "create", *words)

    create(keys, place, "ivory", "--mountpoint", place / "plain")
    (place / "file").write_text("")
    (place / "full").mkdir()
    (place / "full/notes.txt").write_text("in plain")
    (place / "link").symlink_to(place / "ivory")
    assert "absolute" in refused(2, "a", "--path", "relative/path")
    assert "--path" in refused(2, "a")
    assert "name has" in refused(2, "bad name", "--path", place / "a")
    assert "name has" in refused(2, "x" * 39, "--path", place / "a")
    assert "local or shared" in refused(2, "a", "--path", place / "a", "--mode", "fast")
    assert "aes-256-gcm" in refused(2, "a", "--path", place / "a", "--algorithm", "rot13")
    assert "already" in refused(1, "ivory", "--path", place / "other")
    assert "nested" in refused(1, "a", "--path", place / "ivory/inside")
    assert "nested" in refused(1, "a", "--path", place / "link/inside")
    assert "nested" in refused(1, "a", "--path", place / "plain/inside")
    assert "nested" in refused(1, "a", "--path", place / "a", "--mountpoint", place / "plain/inside")
    assert "nested" in refused(1, "a", "--path", keys.directory / "a", "--mountpoint", place)
    assert "apart" in refused(2, "a", "--path", place / "full", "--mountpoint", place / "full/b")
    assert "no directory" in refused(1, "a", "--path", place / "file")
    assert "shall hold it" in refused(1, "a", "--path", place / "absent/a")
    assert "migrate" in refused(1, "a", "--path", place / "full")
    assert "can't hold" in refused(2, "a", "--path", place / "what ;ever")
    assert "root" in refused(2, "a", "--path", "/")
    assert sorted(path.name for path in place.iterdir()) == ["file", "full", "ivory", "link", "plain"]
    assert [path.name for path in pathlib.Path(f"{keys.config}.d").iterdir()] == ["fileset-ivory.conf"]
    assert keys.ok("key", "list").count("\n") == 2  # heading, ivory


def test_a_refusal_leaves_what_the_next_try_uses(keys, place):
    (place / "ivory").mkdir()
    (place / "ivory/.hidden").write_text("")
    keys.fails(1, "fileset", "create", "ivory", "--path", place / "ivory")
    (place / "ivory/.hidden").unlink()
    (place / "ivory/lost+found").mkdir()
    create(keys, place)


def test_a_tree_that_is_sealed_already_is_adopted(keys, place):
    create(keys, place, "ivory", "--algorithm", "aes-128-gcm")
    (place / "ivory/run").mkdir()
    seal(keys, "ivory", place / "ivory/run/reads")
    os.symlink("run/reads", place / "ivory/latest")
    old = show(keys)
    os.unlink(f"{keys.config}.d/fileset-ivory.conf")  # another machine's configuration
    tree = ["--path", place / "ivory", "--adopt"]
    assert "--adopt" in keys.fails(1, "fileset", "create", "again", *tree[:2])
    assert "--algorithm aes-128-gcm" in keys.fails(2, "fileset", "create", "again", "--mek", "ivory", *tree)
    tree += ["--algorithm", "aes-128-gcm"]
    assert "no key named 'again'" in keys.fails(5, "fileset", "create", "again", *tree)
    keys.ok("key", "create", "other")
    message = keys.fails(4, "fileset", "create", "again", "--mek", "other", *tree)
    assert "ivory" in message and "--mek" in message
    (place / "ivory/notes").write_text("in plain")
    assert "notes" in keys.fails(4, "fileset", "create", "again", "--mek", "ivory", *tree)
    (place / "ivory/notes").unlink()
    made = keys.json("fileset", "create", "again", "--mek", "ivory", *tree)[0]
    assert made["id"] == old["id"] and not made["key_made"]
    keys.ok("open", "--fileset", "again", place / "ivory/run/reads", keys.directory / "back")


def test_an_action_that_can_not_be_recorded_is_refused(keys, place):
    (keys.directory / "audit").write_text("no directory")
    keys.config.write_text(keys.config.read_text() + f"[audit]\nlog = {keys.directory}/audit\n")
    keys.fails(1, "fileset", "create", "ivory", "--path", place / "ivory")
    assert list(place.iterdir()) == []


# --- list and show


def test_the_list_names_every_file_set(keys, place):
    assert keys.ok("fileset", "list") == ""
    create(keys, place, "ivory", "--mountpoint", place / "plain")
    create(keys, place, "images")
    keys.config.write_text(keys.config.read_text() + "[fileset byhand]\nmek = absent\n")
    text = keys.ok("fileset", "list")
    for words in ("ivory/1 active", "images/1 active", "absent (no such key)", str(place / "images")):
        assert words in text
    sets = {entry["name"]: entry for entry in keys.json("fileset", "list")}
    assert set(sets) == {"ivory", "images", "byhand"}
    assert sets["byhand"]["key"]["state"] == "absent" and sets["byhand"]["space"] is None and sets["byhand"]["id"] is None
    space = sets["ivory"]["space"]
    assert 0 <= space["available"] <= space["free"] <= space["size"]
    assert sets["ivory"]["mounts"] == []
    assert "ivory, images" in keys.fails(1, "fileset", "show", "nothing") or "images, ivory" in keys.fails(1, "fileset", "show", "nothing")
    shown = keys.ok("fileset", "show", "ivory")
    for words in (sets["ivory"]["id"], str(place / "plain"), "ivory/1 active", "fileset-ivory.conf:"):
        assert words in shown


def test_a_key_manager_that_is_away_is_shown_and_no_failure(naos, tmp_path, place):
    pki = certificates.Pki(tmp_path / "pki")
    client = pki.client("client", uri="naos://test/client")
    naos.config.write_text(f"[keymanager]\nuri = kmip://127.0.0.1:1?cert={client.cert}&key={client.key}&ca={pki.ca}\n"
                           f"[fileset ivory]\npath = {place}\n")
    done = naos("fileset", "list")
    assert done.returncode == 0 and "key manager unavailable" in done.stdout and "127.0.0.1:1" in done.stderr
    entry = json.loads(naos("fileset", "show", "ivory", "--json").stdout)
    assert entry["key"]["state"] == "unknown" and "127.0.0.1:1" in entry["key"]["reason"]
    # the certificate of this test is good for ten days
    assert "client.pem" in naos("fileset", "show", "ivory").stderr


# --- destroy


def test_a_crypto_erase_ends_the_key_and_leaves_the_ciphertext(keys, place):
    create(keys, place)
    seal(keys, "ivory", place / "ivory/old")
    keys.ok("key", "rotate", "ivory")
    seal(keys, "ivory", place / "ivory/new")
    keys.ok("open", "--fileset", "ivory", place / "ivory/old", keys.directory / "back")
    assert "--yes" in keys.fails(2, "fileset", "destroy", "ivory")
    keys.ok("open", "--fileset", "ivory", place / "ivory/new", keys.directory / "back2")
    done = keys.json("fileset", "destroy", "ivory", "--yes")[0]
    assert (done["versions"], done["unreadable"], done["others"], done["deleted"]) == (2, 2, 0, False)
    assert {key["state"] for key in keys.json("key", "show", "ivory")} == {"destroyed"}
    assert (place / "ivory/old").exists() and not os.path.exists(f"{keys.config}.d/fileset-ivory.conf")
    assert keys("open", place / "ivory/old", keys.directory / "never").returncode == 5
    assert keys.ok("fileset", "list") == ""


def test_the_ciphertext_is_deleted_where_that_is_asked_for(keys, place):
    create(keys, place)
    (place / "ivory/a/b").mkdir(parents=True)
    seal(keys, "ivory", place / "ivory/a/b/reads")
    (place / "kept").mkdir()
    (place / "kept/file").write_text("kept")
    os.symlink(place / "kept", place / "ivory/a/link")
    done = keys.json("fileset", "destroy", "ivory", "--yes", "--delete")[0]
    assert done["deleted_files"] == 2 and not (place / "ivory").exists()
    assert (place / "kept/file").read_text() == "kept"


def test_a_file_of_another_key_is_not_counted_as_lost(keys, place):
    create(keys, place)
    seal(keys, "ivory", place / "ivory/reads")
    keys.ok("key", "create", "other")
    seal(keys, "other", place / "ivory/foreign")
    (place / "ivory/plain").write_text("plain")
    done = keys.json("fileset", "destroy", "ivory", "--yes")[0]
    assert (done["unreadable"], done["others"]) == (1, 2)
    keys.ok("open", place / "ivory/foreign", keys.directory / "back")


def test_a_section_that_somebody_wrote_is_left_to_him(keys, place):
    create(keys, place)
    drop_in = pathlib.Path(f"{keys.config}.d/fileset-ivory.conf")
    keys.config.write_text(keys.config.read_text() + drop_in.read_text())
    drop_in.unlink()
    done = keys("fileset", "destroy", "ivory", "--yes")
    assert done.returncode == 0 and "remove the section [fileset ivory]" in done.stderr
    # and again, when the key is gone: nothing more to do
    assert keys("fileset", "destroy", "ivory", "--yes").returncode == 0


def test_a_key_of_two_file_sets_is_not_destroyed(keys, place):
    create(keys, place)
    keys.config.write_text(keys.config.read_text() + "[fileset byhand]\nmek = ivory\nid = 6f1f6f2c-7f65-4a5a-8f4e-3f2c3a5b7d10\n")
    assert "byhand" in keys.fails(1, "fileset", "destroy", "ivory", "--yes")
    assert keys.json("key", "show", "ivory")[0]["state"] == "active"


ROLES = {
    "admin": {"identities": "naos://test/admin naos://test/second", "operations": "all approve", "keys": "*"},
    "node": {"identities": "naos://test/node", "operations": "locate get read encrypt decrypt", "keys": "*"},
}


def test_two_people_end_a_file_set(naos, tmp_path, place):
    pki = certificates.Pki(tmp_path / "pki")
    with Keyd(tmp_path / "keyd", SoftToken(tmp_path / "softhsm"), pki, roles=ROLES) as keyd:
        people = {name: pki.client(name, uri=f"naos://test/{name}") for name in ("admin", "second", "node")}

        def uri(who):
            return f"kmip://127.0.0.1:{keyd.port}?cert={people[who].cert}&key={people[who].key}&ca={pki.ca}"

        naos.config.write_text(f"[keymanager]\nuri = {uri('admin')}\n")
        create(naos, place)
        seal(naos, "ivory", place / "ivory/reads")
        naos.ok("key", "rotate", "ivory")
        seal(naos, "ivory", place / "ivory/more")
        naos.fails(3, "fileset", "destroy", "ivory", "--yes", "--keys", uri("node"))
        message = naos.fails(3, "fileset", "destroy", "ivory", "--yes", "--delete")
        assert "1 of 2" in message and "2 versions" in message and "nothing was deleted" in message
        # until the second person agrees, what there is can be read, and nothing new is made with the key
        naos.ok("open", "--keys", uri("node"), place / "ivory/more", tmp_path / "back")
        naos.ok("open", "--keys", uri("node"), place / "ivory/reads", tmp_path / "back2")
        naos.fails(5, "seal", "--fileset", "ivory", "--keys", uri("node"), tmp_path / "plain", place / "ivory/late")
        assert show(naos)["key"]["state"] == "deactivated"
        done = naos.json("fileset", "destroy", "ivory", "--yes", "--delete", "--keys", uri("second"))[0]
        assert done["versions"] == 2 and done["unreadable"] == 2 and not (place / "ivory").exists()
        assert not os.path.exists(f"{naos.config}.d/fileset-ivory.conf")

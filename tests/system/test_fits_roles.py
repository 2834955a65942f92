# SPDX-License-Identifier: Apache-2.0
"""Frames with a real key manager: the curator seals and can't open, the gateway opens and can't seal, all of it in its audit log."""
import json
import pathlib
import shutil

import pytest

import pki as certificates
from keyd_server import Keyd
from softhsm import MISSING, SoftToken

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
SMALL = pathlib.Path("/usr/lib/python3/dist-packages/astropy/io/fits/tests/data/tb.fits")
FRAMES = 20
ROLES = {
    "admin": {"identities": "naos://test/admin", "operations": "all", "keys": "*"},
    "curator": {"identities": "naos://test/curator", "operations": "locate read encrypt", "keys": "naos:survey-*"},
    "gateway": {"identities": "naos://test/gateway", "operations": "locate read decrypt", "keys": "naos:survey-*"},
    "catalogue": {"identities": "naos://test/catalogue", "operations": "locate read decrypt", "keys": "naos:survey-header:*"},
    "rotation": {"identities": "naos://test/rotation", "operations": "locate read encrypt decrypt", "keys": "naos:survey-*"},
}


@pytest.fixture
def keyd(tmp_path):
    people = certificates.Pki(tmp_path / "pki")
    with Keyd(tmp_path / "keyd", SoftToken(tmp_path / "softhsm"), people, roles=ROLES) as keyd:
        keyd.people = {name: people.client(name, uri=f"naos://test/{name}") for name in [*ROLES, "stranger"]}
        yield keyd


def test_who_seals_an_archive_can_not_open_it_and_the_gateway_can(naos, keyd, tmp_path):
    if not SMALL.exists():
        pytest.skip("python3-astropy has the files")
    def by(who):
        client = keyd.people[who]
        return ["--keys", f"kmip://127.0.0.1:{keyd.port}?cert={client.cert}&key={client.key}&ca={keyd.pki.ca}"]
    naos.config.write_text("[collection survey]\n")
    tree, sealed = tmp_path / "tree", tmp_path / "sealed"
    (tree / "night").mkdir(parents=True)
    for i in range(FRAMES):
        shutil.copy(SMALL, tree / "night" / f"{i}.fits")
    for name in ("survey-header", "survey-data", "other-header", "other-data"):
        naos.ok("key", "create", *by("admin"), name)

    # the curator
    assert f"sealed {FRAMES} files" in naos.ok("fits", "seal", *by("curator"), "--collection", "survey", tree, sealed)
    one = sealed / "night/0.fits"
    message = naos.fails(3, "fits", "open", *by("curator"), one, tmp_path / "no.fits")
    assert "your role may not do this (operation 'decrypt')" in message and "NAOS_E_DENIED" in message, message
    done = naos("fits", "open", *by("curator"), sealed, tmp_path / "no")
    assert done.returncode == 3 and done.stderr.count("night/") >= FRAMES and f"{FRAMES} failed" in done.stdout
    assert not [p for p in (tmp_path / "no").rglob("*") if p.is_file()] and not (tmp_path / "no.fits").exists()
    for words in (["verify"], ["cutout", "--header"]):
        naos.fails(3, "fits", *words, *by("curator"), one)
    naos.ok("key", "rotate", *by("admin"), "survey-header")
    naos.fails(3, "fits", "rewrap", *by("curator"), "--collection", "survey", sealed)
    # of a collection that is not the curator's not even its keys are seen
    assert "no key named 'other-header'" in naos.fails(5, "fits", "seal", *by("curator"), "--collection", "other", tree, tmp_path / "other")

    # the gateway
    assert f"opened {FRAMES} files" in naos.ok("fits", "open", *by("gateway"), sealed, tmp_path / "opened")
    for i in range(FRAMES):
        assert (tmp_path / "opened/night" / f"{i}.fits").read_bytes() == SMALL.read_bytes()
    refused = naos.fails(3, "fits", "seal", *by("gateway"), "--collection", "survey", SMALL, tmp_path / "mine.fits")
    assert "your role may not do this (operation 'encrypt')" in refused, refused

    # who has one of the two keys sees that part
    (part,) = naos.json("fits", "open", *by("catalogue"), one, tmp_path / "headers.fits")
    assert part["level"] == "metadata-only" and part["header_key"]["state"] == "right" and part["data_key"]["state"] == "missing"
    naos.fails(3, "fits", "open", "--require-full", *by("catalogue"), one, tmp_path / "full.fits")
    naos.fails(3, "fits", "open", *by("stranger"), one, tmp_path / "no.fits")

    # who rotates wraps what the key manager unwraps for it, and needs no other right
    assert f"rewrapped the keys of {FRAMES} files" in naos.ok("fits", "rewrap", *by("rotation"), "--collection", "survey", sealed)
    naos.ok("fits", "verify", *by("gateway"), sealed)

    # all of it is on record at the key manager
    keyd.stop()
    records = [json.loads(line) for line in naos.ok("audit", "show", "--json", keyd.audit).splitlines()]
    def seen(who, operation, decision):
        return sum(r["actor"].endswith(who) and operation in r["action"] and r["decision"] == decision for r in records)
    assert seen("curator", "encrypt", "allowed") >= 2 * FRAMES and seen("curator", "decrypt", "allowed") == 0
    assert seen("curator", "decrypt", "denied") >= 2 * FRAMES
    assert seen("gateway", "decrypt", "allowed") >= 2 * FRAMES and seen("gateway", "encrypt", "denied") >= 1
    assert seen("catalogue", "decrypt", "allowed") >= 1
    naos.ok("audit", "verify", keyd.audit)


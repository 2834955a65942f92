# SPDX-License-Identifier: Apache-2.0
"""What the key manager does with requests: states, owners, roles, quotas, approvals, batches, versions, restarts."""
import json
import os
import signal
import sqlite3
import time

import pytest

import keyd as km

ROLES = {
    "user": {"identities": "alice bob spiffe://site/user/*", "operations": "all", "keys": "own", "class": "either"},
    "sealer": {"identities": "curator", "operations": "locate read encrypt", "keys": "images-* group:images"},
    "opener": {"identities": "gateway", "operations": "locate read decrypt", "keys": "images-* group:images"},
    "maker": {"identities": "site", "operations": "all", "keys": "images-*", "class": "resident"},
    "officer": {"identities": "officer", "operations": "locate read approve", "keys": "*"},
    "few": {"identities": "few", "operations": "all", "max-objects": 2, "class": "exportable"},
    "slow": {"identities": "slow", "operations": "all", "rate": 1, "burst": 3, "class": "exportable"},
    "forensic": {"identities": "forensic", "operations": "decrypt read", "keys": "*", "decrypt-compromised": "yes"},
}


@pytest.fixture
def manager(tmp_path, token):
    with km.KeyManager(tmp_path / "keyd", token, roles=ROLES) as running:
        yield running


def make(manager, who, *attributes, activate=True, **kwargs):
    uid = manager.ok(who, km.create(*attributes, **kwargs)).find("UniqueIdentifier").value
    if activate:
        manager.ok(who, km.on("Activate", uid))
    return uid


def seal(manager, who, uid, text=b"0123456789abcdef", **kwargs):
    payload = manager.ok(who, km.encrypt(uid, text, **kwargs))
    return {"ciphertext": km.get_bytes(payload, "Data"), "iv": km.get_bytes(payload, "IVCounterNonce"),
            "tag": km.get_bytes(payload, "AuthenticatedEncryptionTag")}


def state(manager, who, uid):
    return manager.ok(who, km.on("GetAttributes", uid, km.text("AttributeName", "State"))).find("Attribute", "AttributeValue").value


def names(manager, who, uid):
    found = manager.ok(who, km.on("GetAttributes", uid, km.text("AttributeName", "Name"))).all("Attribute")
    return [item.find("AttributeValue", "NameValue").value for item in found]


@pytest.mark.parametrize("where", ["resident", "exportable"])
def test_a_key_does_in_each_state_what_it_may(manager, where):
    extra = [km.extractable()] if where == "exportable" else []
    uid = make(manager, "alice", *extra, activate=False)
    assert manager.refused("alice", km.encrypt(uid, b"x"))[0] == "PermissionDenied"
    manager.ok("alice", km.on("Activate", uid))
    assert manager.refused("alice", km.on("Activate", uid))[0] == "PermissionDenied"
    sealed = seal(manager, "alice", uid, aad=b"about")
    assert manager.ok("alice", km.decrypt(uid, aad=b"about", **sealed)).find("Data").value == b"0123456789abcdef".hex()
    assert manager.refused("alice", km.on("Destroy", uid))[0] == "PermissionDenied"
    manager.ok("alice", km.revoke(uid, "CessationOfOperation"))
    assert state(manager, "alice", uid) == "Deactivated"
    assert manager.refused("alice", km.encrypt(uid, b"x"))[0] == "PermissionDenied"
    manager.ok("alice", km.decrypt(uid, aad=b"about", **sealed))
    manager.ok("alice", km.revoke(uid, "KeyCompromise"))
    assert manager.refused("alice", km.decrypt(uid, aad=b"about", **sealed))[0] == "PermissionDenied"
    manager.ok("forensic", km.decrypt(uid, aad=b"about", **sealed))
    if where == "resident":
        assert "1 of 2 approvals" in manager.refused("alice", km.on("Destroy", uid))[1]
        manager.ok("officer", km.on("Destroy", uid))
    else:
        manager.ok("alice", km.on("Destroy", uid))
    assert state(manager, "alice", uid) == "DestroyedCompromised"
    assert manager.refused("forensic", km.decrypt(uid, aad=b"about", **sealed))[0] == "PermissionDenied"


def test_dates_change_the_state_and_fence_the_use(manager):
    now = int(time.time())
    early = make(manager, "alice", km.attribute("Activation Date", "DateTime", now + 3600), activate=False)
    late = make(manager, "alice", km.attribute("Activation Date", "DateTime", now - 7200),
                km.attribute("Deactivation Date", "DateTime", now - 3600), activate=False)
    fenced = make(manager, "alice", km.attribute("Activation Date", "DateTime", now - 7200),
                  km.attribute("Process Start Date", "DateTime", now + 3600),
                  km.attribute("Protect Stop Date", "DateTime", now - 3600), activate=False)
    assert [state(manager, "alice", uid) for uid in (early, late, fenced)] == ["PreActive", "Deactivated", "Active"]
    assert "Protect Stop" in manager.refused("alice", km.encrypt(fenced, b"x"))[1]
    assert "Process Start" in manager.refused("alice", km.decrypt(fenced, b"x" * 16, iv=bytes(12), tag=bytes(16)))[1]


def test_what_is_not_yours_looks_like_what_is_not_there(manager):
    uid = make(manager, "alice", name="mine")
    absent = "00000000-0000-4000-8000-000000000000"
    for operation in ("Get", "GetAttributes", "Activate", "Destroy", "ReKey"):
        answers = {manager.refused("bob", km.on(operation, other)) for other in (uid, absent, "nonsense")}
        assert len(answers) == 1 and answers.pop()[0] == "ItemNotFound", operation
    assert manager.ok("bob", km.locate()).all("UniqueIdentifier") == []
    assert manager.refused("mallory", km.locate())[0] == "PermissionDenied"


def test_encrypt_without_decrypt_stays_so(manager):
    uid = make(manager, "site", name="images-1")
    sealed = seal(manager, "curator", uid)
    assert manager.refused("curator", km.decrypt(uid, **sealed))[0] == "PermissionDenied"
    for attempt in (km.encrypt(uid, sealed["ciphertext"], iv=sealed["iv"]), km.encrypt(uid, bytes(16), mode="ECB"),
                    km.encrypt(uid, bytes(16), mode="CBC", iv=bytes(16)), km.encrypt(uid, bytes(16), mode="CTR", iv=bytes(16))):
        assert manager.refused("curator", attempt)[0] == "PermissionDenied"
    assert manager.refused("gateway", km.encrypt(uid, b"x"))[0] == "PermissionDenied"
    assert manager.refused("gateway", km.decrypt(uid, bytes(16), mode="CTR", iv=bytes(16)))[0] == "PermissionDenied"
    assert manager.ok("gateway", km.decrypt(uid, **sealed)).find("Data").value == b"0123456789abcdef".hex()


def test_keys_of_the_hsm_never_leave_it(manager):
    uid = make(manager, "alice")
    assert manager.refused("alice", km.on("Get", uid))[0] == "NotExtractable"
    assert manager.refused("alice", km.on("Get", uid), version="1.2")[0] == "PermissionDenied"
    loosen = km.on("ModifyAttribute", uid, km.attribute("Extractable", "Boolean", "true"))
    assert manager.refused("alice", loosen)[0] == "PermissionDenied"
    assert manager.refused("site", km.register(bytes(32), name="images-x"))[0] == "PermissionDenied"
    assert manager.refused("site", km.create(km.extractable(), name="images-x"))[0] == "PermissionDenied"
    assert manager.refused("site", km.create(name="images-x", bits=128))[0] == "InvalidField"


def test_the_gcm_tag_is_where_each_version_has_it(manager):
    uid = make(manager, "alice")
    for version in ("1.2", "1.3"):
        payload = manager.ok("alice", km.encrypt(uid, b"text"), version=version)
        assert len(km.get_bytes(payload, "Data")) == 4 + 16 and payload.find("AuthenticatedEncryptionTag") is None
        back = manager.ok("alice", km.decrypt(uid, km.get_bytes(payload, "Data"), iv=km.get_bytes(payload, "IVCounterNonce")),
                          version=version)
        assert km.get_bytes(back, "Data") == b"text"
    payload = manager.ok("alice", km.encrypt(uid, b"text"))
    assert len(km.get_bytes(payload, "Data")) == 4 and len(km.get_bytes(payload, "AuthenticatedEncryptionTag")) == 16
    assert manager.refused("alice", km.encrypt(uid, b"text"), version="1.1")[0] == "OperationNotSupported"


@pytest.mark.parametrize("mode,padding,size", [("CBC", "PKCS5", 5), ("CBC", None, 32), ("ECB", "PKCS5", 16), ("ECB", None, 16),
                                               ("CTR", None, 7), ("GCM", None, 0), ("GCM", None, 100000)])
def test_token_and_software_agree_in_every_mode(manager, mode, padding, size):
    text = os.urandom(size)
    for uid in (make(manager, "alice"), make(manager, "alice", km.extractable())):
        payload = manager.ok("alice", km.encrypt(uid, text, mode=mode, padding=padding))
        back = manager.ok("alice", km.decrypt(uid, km.get_bytes(payload, "Data"), mode=mode, padding=padding,
                                              iv=km.get_bytes(payload, "IVCounterNonce"),
                                              tag=km.get_bytes(payload, "AuthenticatedEncryptionTag")))
        assert (km.get_bytes(back, "Data") or b"") == text
        damaged = bytearray(km.get_bytes(payload, "Data") or b"")
        if mode == "GCM" and damaged:
            damaged[0] ^= 1
            attempt = km.decrypt(uid, bytes(damaged), iv=km.get_bytes(payload, "IVCounterNonce"),
                                 tag=km.get_bytes(payload, "AuthenticatedEncryptionTag"))
            assert manager.refused("alice", attempt)[0] == "CryptographicFailure"


def test_rekey_moves_the_name_and_links_both_ways(manager):
    old = make(manager, "alice", name="mek")
    sealed = seal(manager, "alice", old)
    new = manager.ok("alice", km.on("ReKey", old)).find("UniqueIdentifier").value
    assert new != old and names(manager, "alice", new) == ["mek"] and names(manager, "alice", old) == []
    assert [state(manager, "alice", uid) for uid in (old, new)] == ["Active", "Active"]
    for uid, kind, other in ((old, "ReplacementObjectLink", new), (new, "ReplacedObjectLink", old)):
        link = manager.ok("alice", km.on("GetAttributes", uid, km.text("AttributeName", "Link"))).find("Attribute", "AttributeValue")
        assert [item.value for item in link.items] == [kind, other]
    manager.ok("alice", km.decrypt(old, **sealed))
    found = manager.ok("alice", km.locate(km.name_attribute("mek"))).all("UniqueIdentifier")
    assert [item.value for item in found] == [new]


def test_a_batch_stops_or_continues_and_has_a_placeholder(manager):
    made = manager.ask("alice", km.create(name="batch"), km.on("Activate"), km.encrypt(None, b"text"), km.on("Activate"), km.on("Get"))
    assert [item.find("ResultStatus").value for item in made] == ["Success"] * 3 + ["OperationFailed"]
    assert [item.find("UniqueBatchItemID").value for item in made] == ["00", "01", "02", "03"]
    going = manager.ask("alice", km.on("Get", "no"), km.operation("Query", km.leaf("QueryFunction", "Enumeration", "QueryObjects")),
                        BatchErrorContinuationOption="Continue")
    assert [item.find("ResultStatus").value for item in going] == ["OperationFailed", "Success"]
    uid = made[0].find("ResponsePayload", "UniqueIdentifier").value
    many = manager.ask("alice", *(km.encrypt(uid if number != 2 else "no", bytes([number])) for number in range(5)),
                       BatchErrorContinuationOption="Continue")
    assert [item.find("ResultStatus").value for item in many] == ["Success", "Success", "OperationFailed", "Success", "Success"]


def test_messages_are_refused_as_a_whole_with_the_reason(manager):
    query = km.operation("Query", km.leaf("QueryFunction", "Enumeration", "QueryOperations"))
    assert "clocks" in manager.refused("alice", query, TimeStamp=int(time.time()) + 900)[1]
    manager.ok("alice", query, TimeStamp=int(time.time()) + 200)
    answer = km.kmip.decode(manager.raw(km.kmip.encode(km.request(query, version="9.4")), "alice"))
    version = answer.find("ResponseHeader", "ProtocolVersion")
    assert [item.value for item in version.items] == ["1", "4"]
    assert answer.find("BatchItem", "ResultReason").value == "InvalidMessage"
    assert manager.refused("alice", query, MaximumResponseSize=200)[0] == "ResponseTooLarge"
    for damaged in (b"\x42\x00\x78\x01\x00\x00\x00\x00", km.kmip.encode(km.request(query))[:-8]):
        damaged = damaged[:4] + (len(damaged) - 8).to_bytes(4, "big") + damaged[8:]
        assert km.kmip.decode(manager.raw(damaged, "alice")).find("BatchItem", "ResultReason").value == "InvalidMessage"


def test_attributes_come_back_as_they_were_given(manager):
    uid = make(manager, "alice", km.attribute("x-Barcode", "TextString", "4711"),
               km.attribute("Operation Policy Name", "TextString", "default"), km.attribute("Object Group", "TextString", "Gruppe ß"), km.attribute("Contact Information", "TextString", "me"))
    manager.ok("alice", km.on("AddAttribute", uid, km.attribute("x-Barcode", "TextString", "4712")))
    manager.ok("alice", km.on("ModifyAttribute", uid, km.attribute("x-Barcode", "TextString", "4713", index=1)))
    manager.ok("alice", km.on("AddAttribute", uid, km.attribute("x-Count", "Integer", 5)))
    for forbidden in (km.on("AddAttribute", uid, km.attribute("y-Server", "TextString", "no")),
                      km.on("ModifyAttribute", uid, km.attribute("State", "Enumeration", "Active")),
                      km.on("DeleteAttribute", uid, km.text("AttributeName", "Cryptographic Length"))):
        assert manager.refused("alice", forbidden)[0] == "PermissionDenied"
    manager.ok("alice", km.on("DeleteAttribute", uid, km.text("AttributeName", "Contact Information")))
    found = manager.ok("alice", km.on("GetAttributes", uid)).all("Attribute")
    values = [(item.find("AttributeName").value, item.find("AttributeValue").value) for item in found]
    for pair in (("x-Barcode", "4711"), ("x-Barcode", "4713"), ("x-Count", "5"), ("Operation Policy Name", "default"),
                 ("Object Group", "Gruppe ß")):
        assert pair in values
    assert not [name for name, _ in values if name == "Contact Information"]
    old = manager.ok("alice", km.on("GetAttributeList", uid), version="1.0").all("AttributeName")
    assert not {"Fresh", "Sensitive", "Extractable"} & {item.value for item in old}


def test_locate_filters_pages_and_never_ignores_a_filter(manager):
    uids = [make(manager, "alice", km.attribute("Object Group", "TextString", "g"), km.attribute("x-n", "Integer", n), km.extractable(),
                 activate=n % 2 == 0) for n in range(6)]

    def found(*args, **kwargs):
        return [item.value for item in manager.ok("alice", km.locate(*args, **kwargs)).all("UniqueIdentifier")]
    group = km.attribute("Object Group", "TextString", "g")
    assert found(group) == uids[::-1]
    assert found(group, maximum=2) == uids[:3:-1] and found(group, maximum=2, offset=2) == uids[3:1:-1]
    assert found(group, km.attribute("State", "Enumeration", "Active")) == uids[4::-2]
    assert found(km.attribute("x-n", "Integer", 3)) == [uids[3]]
    assert found(km.attribute("x-unknown", "TextString", "?")) == [] and found(km.name_attribute("none")) == []
    assert found(km.structure("TemplateAttribute", km.attribute("x-n", "Integer", 1))) == [uids[1]]


def test_destruction_of_a_key_in_the_hsm_takes_two_and_survives_a_restart(manager):
    uid = make(manager, "alice", name="images-two")
    manager.ok("alice", km.revoke(uid))
    assert "none of this object was asked for" in manager.refused("officer", km.on("Destroy", uid))[1]
    assert "1 of 2" in manager.refused("alice", km.on("Destroy", uid))[1]
    assert "1 of 2" in manager.refused("alice", km.on("Destroy", uid))[1]  # the same person twice is one
    manager.stop()
    manager.start()
    assert state(manager, "alice", uid) == "Deactivated"
    manager.ok("officer", km.on("Destroy", uid))
    assert state(manager, "alice", uid) == "Destroyed"
    assert manager.refused("alice", km.on("Destroy", uid))[0] == "PermissionDenied"


def test_quotas_and_rates_hold(manager):
    for _ in range(2):
        make(manager, "few")
    assert "allows 2 objects" in manager.refused("few", km.create())[1]
    outcomes = [manager.ask("slow", km.locate())[0].find("ResultStatus").value for _ in range(8)]
    assert outcomes[:3] == ["Success"] * 3 and "OperationFailed" in outcomes
    make(manager, "alice")  # others go on


def test_uses_are_counted_and_limits_end_them(tmp_path, token):
    with km.KeyManager(tmp_path / "keyd", token, roles=ROLES, settings={"rotate-at": 5}) as manager:
        limited = make(manager, "alice", km.attribute("Usage Limits", "Structure", km.structure(
            "AttributeValue", km.leaf("UsageLimitsTotal", "LongInteger", 3), km.leaf("UsageLimitsUnit", "Enumeration", "Object"))))
        for _ in range(2):
            seal(manager, "alice", limited)
        manager.stop()
        manager.start()
        sealed = seal(manager, "alice", limited)
        assert "used up" in manager.refused("alice", km.encrypt(limited, b"x"))[1]
        manager.ok("alice", km.decrypt(limited, **sealed))
        uid = make(manager, "alice", name="turning")
        for _ in range(6):
            seal(manager, "alice", uid)
        (new,) = manager.ok("alice", km.locate(km.name_attribute("turning"))).all("UniqueIdentifier")
        assert new.value != uid and state(manager, "alice", new.value) == "Active"


def test_the_worker_is_replaced_when_it_dies(manager):
    uid = make(manager, "alice")
    sealed = seal(manager, "alice", uid)
    os.kill(manager.worker, signal.SIGKILL)
    for _ in range(5):
        manager.ok("alice", km.decrypt(uid, **sealed))


def test_a_kept_value_moved_to_another_object_does_not_open(manager):
    first, second = (make(manager, "alice", km.extractable()) for _ in range(2))
    manager.stop()
    with sqlite3.connect(manager.directory / "objects.db") as database:
        (kept,) = database.execute("SELECT kept FROM object WHERE hex(id) = ?", (first.replace("-", "").upper(),)).fetchone()
        assert database.execute("UPDATE object SET kept = ? WHERE hex(id) = ?", (kept, second.replace("-", "").upper())).rowcount == 1
    manager.start()
    manager.ok("alice", km.on("Get", first))
    assert manager.refused("alice", km.on("Get", second))[0] == "CryptographicFailure"
    assert manager.refused("alice", km.encrypt(second, b"x"))[0] == "CryptographicFailure"


def test_nothing_is_left_of_a_destroyed_value(manager, token):
    kept = make(manager, "alice", km.extractable())
    resident = make(manager, "alice")
    manager.stop()
    with sqlite3.connect(manager.directory / "objects.db") as database:
        (blob,) = database.execute("SELECT kept FROM object WHERE hex(id) = ?", (kept.replace("-", "").upper(),)).fetchone()
    assert blob in (manager.directory / "objects.db").read_bytes()
    before = len(token.objects())
    manager.start()
    for uid in (kept, resident):
        manager.ok("alice", km.revoke(uid))
    manager.ok("alice", km.on("Destroy", kept))
    manager.refused("alice", km.on("Destroy", resident))
    manager.ok("officer", km.on("Destroy", resident))
    manager.stop()
    for path in manager.directory.glob("objects.db*"):
        assert blob not in path.read_bytes(), path
    assert len(token.objects()) == before - 1
    manager.start()
    assert [state(manager, "alice", uid) for uid in (kept, resident)] == ["Destroyed", "Destroyed"]


def test_every_use_and_refusal_is_in_the_audit_log(manager, naos):
    uid = make(manager, "alice", name="watched")
    sealed = seal(manager, "alice", uid, b"the plaintext that no log may show")
    manager.ok("alice", km.decrypt(uid, **sealed))
    manager.refused("bob", km.on("Get", uid))
    manager.refused("mallory", km.locate())
    manager.stop()
    assert naos("audit", "verify", manager.audit).returncode == 0
    lines = [json.loads(line) for line in naos.ok("audit", "show", manager.audit, "--json").splitlines()]
    seen = [(line.get("actor"), line.get("action"), line.get("decision")) for line in lines]
    for wanted in (("alice", "key.create", "allowed"), ("alice", "key.activate", "allowed"), ("alice", "key.encrypt", "allowed"),
                   ("alice", "key.decrypt", "allowed"), ("bob", "key.get", "denied"), ("mallory", "kmip.message", "denied")):
        assert wanted in seen, wanted
    text = b"".join(path.read_bytes() for path in manager.audit.rglob("*") if path.is_file()) + "".join(manager.log).encode()
    assert b"plaintext that no log" not in text and sealed["ciphertext"].hex().encode() not in text

# SPDX-License-Identifier: Apache-2.0
"""PyKMIP's client drives naos-keyd through every Tier 1 operation, in KMIP 1.0 to 1.4.

PyKMIP has no payloads of Add Attribute and RNG Retrieve: those two are made here of its primitives and sent by its client; their answers are
read by the tests' own decoder."""
import os

import pytest
from cryptography.hazmat.primitives import keywrap

import pki as certificates
from keyd_server import Keyd
from softhsm import MISSING, SoftToken

pykmip = pytest.importorskip("kmip.pie.client", reason="PyKMIP (python3-pykmip) is not installed")
import oasis_kmip  # noqa: E402
from kmip.core import attributes, enums, primitives, utils  # noqa: E402
from kmip.core.exceptions import OperationFailure  # noqa: E402
from kmip.core.factories.attributes import AttributeFactory  # noqa: E402
from kmip.core.messages import messages, payloads  # noqa: E402
from kmip.pie import exceptions, objects as pie  # noqa: E402

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
ROLES = {"tester": {"identities": "naos://test/*", "operations": "all", "keys": "own", "class": "either"}}
VERSIONS = ["1_0", "1_1", "1_2", "1_3", "1_4"]
MASKS = [enums.CryptographicUsageMask.ENCRYPT, enums.CryptographicUsageMask.DECRYPT]


@pytest.fixture(scope="module")
def keyd(tmp_path_factory):
    directory = tmp_path_factory.mktemp("keyd")
    pki = certificates.Pki(directory / "pki")
    with Keyd(directory / "keyd", SoftToken(directory / "softhsm"), pki, roles=ROLES, settings={"destroy-approvals": 1}) as keyd:
        keyd.alice = pki.client("alice", uri="naos://test/alice")
        yield keyd


@pytest.fixture(params=VERSIONS)
def client(request, keyd):
    client = pykmip.ProxyKmipClient(hostname="127.0.0.1", port=keyd.port, cert=str(keyd.alice.cert), key=str(keyd.alice.key), ca=str(keyd.pki.ca),
                                    ssl_version="PROTOCOL_TLSv1_2", kmip_version=enums.KMIPVersion[f"KMIP_{request.param}"], config_file="/dev/null")
    with client:
        client.minor = int(request.param[2:])
        yield client


def cbc():
    return {"block_cipher_mode": enums.BlockCipherMode.CBC, "padding_method": enums.PaddingMethod.PKCS5, "cryptographic_algorithm": enums.CryptographicAlgorithm.AES}


def refused(reason, call, *args, **kwargs):
    with pytest.raises(exceptions.KmipOperationFailure) as caught:
        call(*args, **kwargs)
    assert caught.value.reason == reason


def test_a_key_from_create_to_destroy(client):
    name = f"created-{client.minor}"
    uid = client.create(enums.CryptographicAlgorithm.AES, 256, name=name, cryptographic_usage_mask=MASKS)
    assert client.locate(attributes=[AttributeFactory().create_attribute(enums.AttributeType.NAME, attributes.Name.create(
        name, enums.NameType.UNINTERPRETED_TEXT_STRING))]) == [uid]
    names = client.get_attribute_list(uid)
    assert {"Unique Identifier", "Object Type", "Cryptographic Algorithm", "State", "Name", "Initial Date"} <= set(names)
    assert ("Fresh" in names) == (client.minor >= 1 and "Fresh" in names)
    found, values = client.get_attributes(uid, ["State", "Cryptographic Length", "Name"])
    got = {a.attribute_name.value: a.attribute_value for a in values}
    assert found == uid and got["State"].value == enums.State.PRE_ACTIVE and got["Cryptographic Length"].value == 256
    # in the HSM: not to be got
    with pytest.raises(exceptions.KmipOperationFailure):
        client.get(uid)
    assert client.check(uid, cryptographic_usage_mask=MASKS) == uid
    client.activate(uid)
    assert client.get_attributes(uid, ["State"])[1][0].attribute_value.value == enums.State.ACTIVE
    with pytest.raises(exceptions.KmipOperationFailure):
        client.destroy(uid)  # active
    newer = client.rekey(uid)
    assert newer != uid
    client.revoke(enums.RevocationReasonCode.CESSATION_OF_OPERATION, uid)
    client.destroy(uid)
    assert client.get_attributes(uid, ["State"])[1][0].attribute_value.value == enums.State.DESTROYED
    refused(enums.ResultReason.ITEM_NOT_FOUND, client.activate, "00000000-0000-4000-8000-000000000000")


def test_registered_objects_come_back(client):
    key, data = os.urandom(32), os.urandom(24)
    uid = client.register(pie.SymmetricKey(enums.CryptographicAlgorithm.AES, 256, key, masks=MASKS, name=f"registered-{client.minor}"))
    assert client.get(uid).value == key
    secret = client.register(pie.SecretData(data, enums.SecretDataType.PASSWORD, name=f"secret-{client.minor}"))
    assert client.get(secret).value == data
    opaque = client.register(pie.OpaqueObject(data, enums.OpaqueDataType.NONE, name=f"opaque-{client.minor}"))
    assert client.get(opaque).value == data
    client.destroy(opaque)
    client.destroy(secret)
    kek = os.urandom(32)
    wrapper = client.register(pie.SymmetricKey(enums.CryptographicAlgorithm.AES, 256, kek, masks=[enums.CryptographicUsageMask.WRAP_KEY],
                                               name=f"wrapper-{client.minor}"))
    client.activate(wrapper)
    information = {"unique_identifier": wrapper, "cryptographic_parameters": {"block_cipher_mode": enums.BlockCipherMode.NIST_KEY_WRAP}}
    specification = {"wrapping_method": enums.WrappingMethod.ENCRYPT, "encryption_key_information": information,
                     "encoding_option": enums.EncodingOption.NO_ENCODING}
    assert keywrap.aes_key_unwrap(kek, client.get(uid, specification).value) == key


def test_encrypt_and_decrypt(client):
    uid = client.create(enums.CryptographicAlgorithm.AES, 256, cryptographic_usage_mask=MASKS)
    text, iv = os.urandom(45), os.urandom(16)
    if client.minor < 2:  # not in the standard yet
        with pytest.raises(exceptions.KmipOperationFailure):
            client.encrypt(text, uid, cbc(), iv)
        return
    with pytest.raises(exceptions.KmipOperationFailure):
        client.encrypt(text, uid, cbc(), iv)  # not active yet
    client.activate(uid)
    sealed, used = client.encrypt(text, uid, cbc(), iv)
    assert client.decrypt(sealed, uid, cbc(), iv) == text
    client.revoke(enums.RevocationReasonCode.SUPERSEDED, uid)
    assert client.decrypt(sealed, uid, cbc(), iv) == text  # deactivated: old data stays readable
    with pytest.raises(exceptions.KmipOperationFailure):
        client.encrypt(text, uid, cbc(), iv)


@pytest.mark.parametrize("client", VERSIONS[2:], indirect=True)
def test_gcm_with_tag_and_associated_data(client):
    """Encrypt is in KMIP from 1.2 on; the tag has a field from 1.4 on, before that it stands behind the ciphertext."""
    uid = client.create(enums.CryptographicAlgorithm.AES, 256, cryptographic_usage_mask=MASKS)
    client.activate(uid)
    text, aad = os.urandom(32), b"associated"
    parameters = attributes.CryptographicParameters(block_cipher_mode=enums.BlockCipherMode.GCM, tag_length=16)
    new = client.minor >= 4
    sealed = client.proxy.send_request_payload(enums.Operation.ENCRYPT, payloads.EncryptRequestPayload(
        uid, parameters, text, None, aad if new else None))
    data, tag = sealed.data, sealed.auth_tag
    assert (len(data), tag and len(tag)) == ((32, 16) if new else (48, None))
    opened = client.proxy.send_request_payload(enums.Operation.DECRYPT, payloads.DecryptRequestPayload(
        uid, parameters, data, sealed.iv_counter_nonce, aad if new else None, tag))
    assert opened.data == text
    broken = bytes([data[0] ^ 1]) + data[1:]
    with pytest.raises(OperationFailure):
        client.proxy.send_request_payload(enums.Operation.DECRYPT, payloads.DecryptRequestPayload(
            uid, parameters, broken, sealed.iv_counter_nonce, aad if new else None, tag))


def test_attributes_are_changed_and_taken_away(client):
    uid = client.create(enums.CryptographicAlgorithm.AES, 256, name=f"before-{client.minor}", cryptographic_usage_mask=MASKS)
    other = AttributeFactory().create_attribute(enums.AttributeType.NAME, attributes.Name.create(
        f"after-{client.minor}", enums.NameType.UNINTERPRETED_TEXT_STRING), 0)
    client.modify_attribute(unique_identifier=uid, attribute=other)
    assert client.get_attributes(uid, ["Name"])[1][0].attribute_value.name_value.value == f"after-{client.minor}"
    client.delete_attribute(unique_identifier=uid, attribute_name="Name", attribute_index=0)
    assert "Name" not in client.get_attribute_list(uid)


def test_what_the_server_can_and_which_versions_it_speaks(client):
    functions = [enums.QueryFunction.QUERY_OPERATIONS, enums.QueryFunction.QUERY_OBJECTS, enums.QueryFunction.QUERY_SERVER_INFORMATION]
    answer = client.proxy.query(query_functions=functions)
    assert enums.Operation.CREATE in answer.operations and enums.ObjectType.SYMMETRIC_KEY in answer.object_types
    assert (enums.Operation.ENCRYPT in answer.operations) == (client.minor >= 2)
    if client.minor >= 1:
        versions = client.proxy.discover_versions().protocol_versions
        assert [(v.major, v.minor) for v in versions][:5] == [(1, 4), (1, 3), (1, 2), (1, 1), (1, 0)]


class Fields(payloads.RequestPayload):
    """A request payload of fields that PyKMIP can write, which it has no class for."""

    def __init__(self, *fields):
        super().__init__()
        self.fields = fields

    def write(self, stream, kmip_version=enums.KMIPVersion.KMIP_1_0):
        content = utils.BytearrayStream()
        for field in self.fields:
            field.write(content, kmip_version=kmip_version)
        self.length = content.length()
        super().write(stream, kmip_version=kmip_version)
        stream.write(content.buffer)


def send(client, operation, *fields):
    """By PyKMIP's client: the batch item of the answer."""
    item = messages.RequestBatchItem(operation=primitives.Enumeration(enums.Operation, operation, tag=enums.Tags.OPERATION),
                                     request_payload=Fields(*fields))
    client.proxy._send_message(client.proxy._build_request_message(None, [item]))
    (answer,) = oasis_kmip.decode(bytes(client.proxy._receive_message().buffer)).all("BatchItem")
    return answer


def text(tag, value):
    return primitives.TextString(value, tag=tag)


def test_an_attribute_is_added(client):
    uid = client.create(enums.CryptographicAlgorithm.AES, 256, cryptographic_usage_mask=MASKS)
    group = AttributeFactory().create_attribute(enums.AttributeType.OBJECT_GROUP, f"group-{client.minor}")
    answer = send(client, enums.Operation.ADD_ATTRIBUTE, text(enums.Tags.UNIQUE_IDENTIFIER, uid), group)
    assert answer.find("ResultStatus").value == "Success"
    assert answer.find("ResponsePayload", "UniqueIdentifier").value == uid
    assert answer.find("ResponsePayload", "Attribute").find("AttributeName").value == "Object Group"
    assert client.get_attributes(uid, ["Object Group"])[1][0].attribute_value.value == f"group-{client.minor}"
    (again,) = client.locate(attributes=[group])
    assert again == uid
    # what only the server may set is not added
    state = AttributeFactory().create_attribute(enums.AttributeType.STATE, enums.State.ACTIVE)
    assert send(client, enums.Operation.ADD_ATTRIBUTE, text(enums.Tags.UNIQUE_IDENTIFIER, uid), state).find("ResultStatus").value != "Success"


def test_random_bytes_are_retrieved(client):
    def retrieve(count):
        return send(client, enums.Operation.RNG_RETRIEVE, primitives.Integer(count, tag=enums.Tags.DATA_LENGTH))
    if client.minor < 2:  # not in the standard yet
        assert retrieve(32).find("ResultReason").value == "OperationNotSupported"
        return
    first, second = (bytes.fromhex(retrieve(32).find("ResponsePayload", "Data").value) for _ in range(2))
    assert len(first) == len(second) == 32 and first != second
    # a server may give less than was asked for (KMIP 1.4, 4.36)
    assert 0 < len(retrieve(1 << 20).find("ResponsePayload", "Data").value) // 2 <= 4096

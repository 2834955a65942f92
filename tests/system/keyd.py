# SPDX-License-Identifier: Apache-2.0
"""A key manager for tests, driven through tests/tools/keyd_pipe, and requests in few words.

    with KeyManager(directory, token, roles=ROLES) as keyd:
        uid = keyd.ok("alice", create(name="mek")).find("UniqueIdentifier").value
"""
import os
import pathlib
import queue
import struct
import subprocess
import sys
import threading

SOURCE = pathlib.Path(os.environ.get("NAOS_SOURCE") or pathlib.Path(__file__).resolve().parents[2])
BUILD = pathlib.Path(os.environ.get("NAOS_BUILD") or SOURCE / "build")
PIPE = BUILD / "tests/tools/keyd_pipe"
sys.path.insert(0, str(SOURCE / "tests/interop"))
import oasis_kmip as kmip  # noqa: E402

ROLES = {"tester": {"identities": "tester", "operations": "all", "keys": "own", "class": "either"}}


class Died(Exception):
    """The key manager ended."""


class KeyManager:
    """One running key manager; `directory` holds its database, log and configuration."""

    def __init__(self, directory, token, roles=None, settings=None, threads=8, env=None):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(exist_ok=True)
        self.token, self.threads = token, threads
        self.roles, self.settings = roles or ROLES, settings or {}
        self.config = self.directory / "naos.conf"
        self.env = dict(os.environ, **token.env, NAOS_CONFIG=str(self.config), **(env or {}))
        self.process = None
        self.audit = self.directory / "audit"

    def write_config(self):
        keyd = {"token": self.token.uri, "token-store": self.directory / "token.db", "database": self.directory / "objects.db",
                "audit": self.audit, **self.settings}
        lines = ["[keyd]"] + [f"{key} = {value}" for key, value in keyd.items()]
        for name, role in self.roles.items():
            lines += [f"[role {name}]"] + [f"{key} = {value}" for key, value in role.items()]
        self.config.write_text("\n".join(lines) + "\n")

    def start(self):
        self.write_config()
        self.process = subprocess.Popen([PIPE, "tester", "--threads", str(self.threads)], env=self.env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.lock, self.waiting, self.number, self.log = threading.Lock(), {}, 0, []
        line = self.process.stderr.readline().decode()
        while line and not line.startswith("ready"):
            self.log.append(line)
            line = self.process.stderr.readline().decode()
        if not line:
            raise Died(f"exit {self.process.wait()}: {''.join(self.log)}")
        self.worker = int(line.split("=")[1])
        self.readers = [threading.Thread(target=target, daemon=True) for target in (self._read, self._read_log)]
        for reader in self.readers:
            reader.start()
        return self

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line.decode())

    def _read(self):
        stream = self.process.stdout
        while len(head := stream.read(12)) == 12:
            number, tag, length = struct.unpack("<I", head[:4])[0], *struct.unpack(">II", head[4:])
            body = stream.read(length)
            if len(body) < length:
                break
            self.waiting.pop(number).put(head[4:] + body if tag else b"")
        with self.lock:
            self.ended = True
            for waiting in self.waiting.values():
                waiting.put(None)
            self.waiting.clear()

    ended = False

    def raw(self, data, identity="tester", timeout=120):
        """The bytes of the answer to the bytes of a request."""
        answer = queue.SimpleQueue()
        with self.lock:
            if self.ended:
                raise Died("it ended before")
            self.number += 1
            self.waiting[self.number] = answer
            name = identity.encode()
            try:
                self.process.stdin.write(bytes([len(name)]) + name + struct.pack("<I", self.number) + data)
                self.process.stdin.flush()
            except (BrokenPipeError, ValueError):
                raise Died("its input is closed") from None
        got = answer.get(timeout=timeout)
        if got is None:
            raise Died("it ended meanwhile")
        return got

    def ask(self, identity, *items, **header):
        """The batch items of the answer."""
        return kmip.decode(self.raw(kmip.encode(request(*items, **header)), identity)).all("BatchItem")

    def ok(self, identity, item, **header):
        """One item that must succeed: its response payload."""
        (answer,) = self.ask(identity, item, **header)
        assert answer.find("ResultStatus").value == "Success", f"{item.value}: {problem(answer)}"
        return answer.find("ResponsePayload") or kmip.Item("ResponsePayload", "Structure")

    def refused(self, identity, item, **header):
        """One item that must fail: (reason, message)."""
        (answer,) = self.ask(identity, item, **header)
        assert answer.find("ResultStatus").value == "OperationFailed", f"{item.value} was done"
        return answer.find("ResultReason").value, answer.find("ResultMessage").value

    def stop(self):
        if self.process:
            try:
                self.process.stdin.close()
            except BrokenPipeError:
                pass
            status = self.process.wait(60)
            self._forget()
            return status
        return None

    def kill(self):
        """SIGKILL, as a crash of the front."""
        self.process.kill()
        self.process.wait()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self._forget()

    def _forget(self):
        for reader in self.readers:
            reader.join()
        self.process, self.ended = None, False

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        status = self.stop()
        if kind is None:
            assert status in (0, None), f"the key manager ended with {status}: {''.join(self.log)}"
            # leaks can't be looked for in the worker: it lets nobody trace it
            assert not [line for line in self.log if "ERROR: " in line and "Sanitizer" in line or "runtime error" in line], "".join(self.log)


def problem(answer):
    reason, message = answer.find("ResultReason"), answer.find("ResultMessage")
    return f"{reason.value if reason else '?'}: {message.value if message else '?'}"


def leaf(tag, kind, value, meaning=""):
    return kmip.Item(tag, kind, str(value), meaning=meaning or tag)


def structure(tag, *items):
    return kmip.Item(tag, "Structure", items=[item for item in items if item is not None])


def text(tag, value):
    return leaf(tag, "TextString", value) if value is not None else None


def data(tag, value):
    return leaf(tag, "ByteString", value.hex()) if value is not None else None


def request(*items, version="1.4", **header):
    """A message; items come from operation() and its kin."""
    major, minor = version.split(".")
    fields = [structure("ProtocolVersion", leaf("ProtocolVersionMajor", "Integer", major), leaf("ProtocolVersionMinor", "Integer", minor))]
    kinds = {"MaximumResponseSize": "Integer", "BatchErrorContinuationOption": "Enumeration", "TimeStamp": "DateTime"}
    order = ("MaximumResponseSize", "BatchErrorContinuationOption", "TimeStamp")
    fields += [leaf(name, kinds[name], header[name]) for name in order if name in header]
    fields.append(leaf("BatchCount", "Integer", len(items)))
    batch = []
    for number, item in enumerate(items):
        identifier = [data("UniqueBatchItemID", number.to_bytes(1 if number < 256 else 4, "big"))] if len(items) > 1 else []
        batch.append(structure("BatchItem", leaf("Operation", "Enumeration", item.value), *identifier,
                               structure("RequestPayload", *item.items)))
    return structure("RequestMessage", structure("RequestHeader", *fields), *batch)


def operation(name, *fields):
    return kmip.Item("Operation", "Structure", name, [field for field in fields if field is not None])


def attribute(name, kind, value, index=None):
    inner = value if kind == "Structure" else leaf("AttributeValue", kind, value, name.replace(" ", ""))
    place = leaf("AttributeIndex", "Integer", index) if index is not None else None
    return structure("Attribute", text("AttributeName", name), place, inner)


def name_attribute(name):
    return attribute("Name", "Structure", structure("AttributeValue", text("NameValue", name),
                                                    leaf("NameType", "Enumeration", "UninterpretedTextString")))


def create(*attributes, name=None, bits=256, mask="Encrypt Decrypt"):
    return operation("Create", leaf("ObjectType", "Enumeration", "SymmetricKey"), structure(
        "TemplateAttribute", attribute("Cryptographic Algorithm", "Enumeration", "AES"),
        attribute("Cryptographic Length", "Integer", bits), attribute("Cryptographic Usage Mask", "Integer", mask),
        name_attribute(name) if name else None, *attributes))


def extractable():
    return attribute("Extractable", "Boolean", "true")


def register(value, *attributes, name=None, bits=None, mask="Encrypt Decrypt"):
    bits = bits or 8 * len(value)
    return operation("Register", leaf("ObjectType", "Enumeration", "SymmetricKey"), structure(
        "TemplateAttribute", attribute("Cryptographic Usage Mask", "Integer", mask), name_attribute(name) if name else None, *attributes),
        structure("SymmetricKey", structure("KeyBlock", leaf("KeyFormatType", "Enumeration", "Raw"),
                                            structure("KeyValue", data("KeyMaterial", value)),
                                            leaf("CryptographicAlgorithm", "Enumeration", "AES"),
                                            leaf("CryptographicLength", "Integer", bits))))


def on(name, uid=None, *fields):
    """Activate, Destroy, Get, …: an operation on an object."""
    return operation(name, text("UniqueIdentifier", uid), *fields)


def revoke(uid, reason="Unspecified"):
    return on("Revoke", uid, structure("RevocationReason", leaf("RevocationReasonCode", "Enumeration", reason)))


def parameters(mode, padding=None, tag=None, random_iv=None):
    return structure("CryptographicParameters", leaf("BlockCipherMode", "Enumeration", mode),
                     leaf("PaddingMethod", "Enumeration", padding) if padding else None,
                     leaf("RandomIV", "Boolean", random_iv) if random_iv else None,
                     leaf("TagLength", "Integer", tag) if tag else None)


def encrypt(uid, plaintext, mode="GCM", iv=None, aad=None, **more):
    return on("Encrypt", uid, parameters(mode, **more), data("Data", plaintext), data("IVCounterNonce", iv),
              data("AuthenticatedEncryptionAdditionalData", aad))


def decrypt(uid, ciphertext, mode="GCM", iv=None, aad=None, tag=None, **more):
    return on("Decrypt", uid, parameters(mode, **more), data("Data", ciphertext), data("IVCounterNonce", iv),
              data("AuthenticatedEncryptionAdditionalData", aad), data("AuthenticatedEncryptionTag", tag))


def locate(*attributes, maximum=None, offset=None):
    return operation("Locate", leaf("MaximumItems", "Integer", maximum) if maximum is not None else None,
                     leaf("OffsetItems", "Integer", offset) if offset is not None else None, *attributes)


def get_bytes(payload, tag):
    item = payload.find(tag)
    return bytes.fromhex(item.value) if item else None

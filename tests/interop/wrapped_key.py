# SPDX-License-Identifier: Apache-2.0
"""The wrapped-key blob, written from docs/formats/wrapped-key.md alone."""
import hashlib
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM


class WrappedKeyError(Exception):
    """A refusal."""


class WrappedKey:
    """A wrapped key, decoded from the start of data; bytes is its own length."""

    def __init__(self, data):
        if len(data) < 60:
            raise WrappedKeyError("the wrapped key is cut off")
        version, self.algorithm, iv_bytes, zero1, size, zero2 = struct.unpack_from("<4B2H", data)
        self.mek_id = data[8:24]
        self.mek_version, = struct.unpack_from("<I", data, 24)
        self.iv, padding = data[28:28 + iv_bytes], data[28 + iv_bytes:44]
        self.tag = data[44:60]
        self.ciphertext = data[60:60 + size]
        self.bytes = 60 + size
        if version != 1 or self.algorithm != 1:
            raise WrappedKeyError(f"a wrapped key of version {version}, algorithm {self.algorithm}")
        if iv_bytes not in (12, 16) or size not in (48, 64) or zero1 or zero2 or any(padding):
            raise WrappedKeyError("the wrapped key is malformed")
        if len(self.ciphertext) != size:
            raise WrappedKeyError("the wrapped key is cut off")
        if not any(self.mek_id) or self.mek_version == 0:
            raise WrappedKeyError("the wrapped key names no MEK")

    def associated_data(self, kind, group_id, object_id):
        return (b"NAOSWRP1" + bytes([kind]) + bytes(7) + group_id + object_id + self.mek_id
                + struct.pack("<II", self.mek_version, self.algorithm))

    def unwrap(self, mek, kind, group_id, object_id):
        bound = self.associated_data(kind, group_id, object_id)
        try:
            plain = AESGCM(mek).decrypt(self.iv, self.ciphertext + self.tag, bound)
        except InvalidTag:
            raise WrappedKeyError("the wrapped key does not open") from None
        if plain[-32:] != hashlib.sha256(bound).digest():
            raise WrappedKeyError("the wrapped key belongs to another object")
        return plain[:-32]

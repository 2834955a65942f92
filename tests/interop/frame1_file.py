# SPDX-License-Identifier: Apache-2.0
"""A reader of frames of version 1, written from docs/formats/frame-1.md (and the slots of frame.md) alone."""
import collections
import hashlib
import re
import uuid

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

import wrapped_key

ALGORITHMS = {"aes-128-gcm": (1, 16), "aes-256-gcm": (2, 32)}
PARTS = ("header", "data")
SCALING = (("ORIG_BZE", "BZERO"), ("ORIG_BSC", "BSCALE"), ("ORIG_BLK", "BLANK"))
Opened = collections.namedtuple("Opened", "level states content")


class FrameError(Exception):
    """The file as a whole is refused."""


def card(text):
    assert len(text) <= 80, text
    return text.ljust(80).encode()


def number(name, value, comment=None):
    return card(f"{name:8}= {value:>20}" + (f" / {comment}" if comment else ""))


def text(name, value, comment=None):
    quoted = f"'{value:8}'"
    return card(f"{name:8}= {quoted:20}" + (f" / {comment}" if comment else ""))


def long_string(start, digits):
    """start: the card up to the first quote."""
    cards = []
    while len(digits) > 68:
        cards.append(card(f"{start}'{digits[:67]}&'"))
        digits, start = digits[67:], "CONTINUE  "
    return b"".join(cards) + card(f"{start}'{digits}'")


def padded(data, fill=b"\0"):
    return data + fill * (-len(data) % 2880)


class Frame:
    """A frame whose structure was checked."""

    def __init__(self, image):
        self.image = bytes(image)
        self.values = self._parse()
        try:
            self._understand()
        except (KeyError, ValueError) as problem:
            raise FrameError(f"its first header was changed: {problem!r}") from None
        head = self.primary_header() + self.table_header()
        size = len(head) + len(padded(bytes(self.data_bytes)))
        if self.image[:len(head)] != head:
            raise FrameError("a header was changed")
        if len(self.image) != size or any(self.image[len(head) + self.data_bytes:]):
            raise FrameError("size or padding was changed")
        self.encrypted = {"header": self.values["ENCHDR"], "data": self.image[len(head):len(head) + self.data_bytes]}

    def _parse(self):
        """The values of all cards up to END; strings with their CONTINUE cards."""
        values, last = {}, None
        for at in range(0, len(self.image) - 79, 80):
            line = self.image[at:at + 80].decode("latin-1")
            if line.startswith("END "):
                return values
            name = line[9:19].strip() if line.startswith("HIERARCH AUTHTAG_") else line[:8].strip()
            string = re.search(r"'(.*)'", line)  # what stands between the outer quotes, whatever it is
            if line.startswith("CONTINUE") and last and string:
                values[last] = values[last].removesuffix("&") + string[1]
            elif "=" in line[8:20]:
                last = name
                values.setdefault(name, string[1].rstrip() if string else line[10:30].strip())
        raise FrameError("its header has no end")

    def _understand(self):
        values = self.values
        if values["NAOSFRM"] != "1":
            raise FrameError("not a frame of version 1")
        self.frame_id, self.collection_id = (uuid.UUID(values[name]).bytes for name in ("FRAMEID", "COLLID"))
        self.algorithm, self.key_bytes = ALGORITHMS[values["ALGORITH"]]
        self.commitments = {"header": bytes.fromhex(values["KEYCHK_H"]), "data": bytes.fromhex(values["KEYCHK_D"])}
        self.bitpix, axes = int(values["ORIG_BPX"]), int(values["ORIG_NAX"])
        if self.bitpix not in (8, 16, 32, 64, -32, -64) or not 0 <= axes <= 9:
            raise FrameError("its ORIG_ keywords make no image")
        self.axes = [int(values[f"ORIG_NA{i + 1}"]) for i in range(axes)]
        self.scaling = [(theirs, ours, values[theirs]) for theirs, ours in SCALING if theirs in values]
        self.header_bytes, self.data_bytes = int(values["ORIG_HDR"]), int(values["ORIG_LEN"])
        pixels = abs(self.bitpix) // 8 if axes else 0
        for length in self.axes:
            pixels *= length
        if pixels > 2**50 or "" in (value for _, _, value in self.scaling):
            raise FrameError("its ORIG_ keywords make no image")
        if self.header_bytes % 2880 or not 0 < self.header_bytes <= 16 << 20 or self.data_bytes > pixels + -pixels % 2880 \
                or self.data_bytes > 2**36 - 32 or len(values["ENCHDR"]) != 2 * self.header_bytes or min(self.axes, default=0) < 0:
            raise FrameError("its ORIG_ keywords make no image")

    def primary_header(self):
        v = self.values
        cards = [number("SIMPLE", "T", "conforms to the FITS standard"), number("BITPIX", 8), number("NAXIS", 0, "no data here"),
                 number("EXTEND", "T", "extensions follow"), number("NAOSFRM", 1, "Naos frame: version of its format"),
                 card("COMMENT A sealed FITS file. Its header and its data are encrypted with keys of"),
                 card("COMMENT their own (AES-GCM); 'naos fits open' opens it, in full or in part."),
                 text("LONGSTRN", "OGIP 1.0", "long strings go on in CONTINUE cards"),
                 text("FRAMEID", str(uuid.UUID(bytes=self.frame_id))), text("COLLID", str(uuid.UUID(bytes=self.collection_id))),
                 text("ALGORITH", v["ALGORITH"], "keys by HKDF-SHA256"),
                 text("KEYCHK_H", self.commitments["header"].hex()), text("KEYCHK_D", self.commitments["data"].hex()),
                 number("ORIG_BPX", self.bitpix, "BITPIX of the image"), number("ORIG_NAX", len(self.axes), "NAXIS of the image")]
        cards += [number(f"ORIG_NA{i + 1}", length) for i, length in enumerate(self.axes)]
        cards += [text(theirs, value) for theirs, _, value in self.scaling]
        cards += [number("ORIG_HDR", self.header_bytes, "bytes of the header"), number("ORIG_LEN", self.data_bytes, "bytes behind the header")]
        for name, start, digits in (("NONCE_H", "NONCE_H = ", 24), ("NONCE_D", "NONCE_D = ", 24), ("AUTHTAG_H", "HIERARCH AUTHTAG_H = ", 32),
                                    ("AUTHTAG_D", "HIERARCH AUTHTAG_D = ", 32), ("WRAPKEYH", "WRAPKEYH= ", 512), ("WRAPKEYD", "WRAPKEYD= ", 512),
                                    ("ENCHDR", "ENCHDR  = ", 2 * self.header_bytes)):
            if name in v or not name.startswith("WRAP"):
                if len(v[name]) != digits:
                    raise FrameError(f"{name} has {len(v[name])} digits")
                cards.append(long_string(start, v[name]))
        return padded(b"".join(cards) + card("END"), b" ")

    def table_header(self):
        n = self.data_bytes
        return padded(b"".join((text("XTENSION", "BINTABLE", "binary table"), number("BITPIX", 8), number("NAXIS", 2),
                                number("NAXIS1", n, "bytes of a row"), number("NAXIS2", 1, "rows"),
                                number("PCOUNT", 0, "bytes behind the rows"), number("GCOUNT", 1), number("TFIELDS", 1, "columns"),
                                text("TTYPE1", "RAW_BYTES"), text("TFORM1", f"{n}B"), text("EXTNAME", "ENCRYPTED_DATA"), card("END"))), b" ")

    def derive(self, purpose, part, key, size):
        info = b"naos/fr/1/" + purpose + bytes([0, PARTS.index(part) + 1, self.algorithm]) + self.collection_id
        return HKDF(hashes.SHA256(), size, self.frame_id, info).derive(key)

    def associated_data(self, part):
        decimal = [str(value).encode() for value in (self.bitpix, len(self.axes), *self.axes)]
        scaling = [self.values.get(theirs, "").encode() for theirs, _ in SCALING]
        fields = [self.frame_id, b"naos/fr/1/" + part.encode(), self.values["ALGORITH"].encode(), self.collection_id,
                  self.commitments["header"], self.commitments["data"], *decimal, *scaling,
                  str(self.header_bytes).encode(), str(self.data_bytes).encode()]
        return b"".join(len(field).to_bytes(4, "little") + field for field in fields)

    def hex(self, name):
        """The bytes of digits; None if they are none."""
        return bytes.fromhex(self.values[name]) if re.fullmatch("[0-9a-f]*", self.values[name]) else None

    def slot(self, part):
        """The wrapped key: None where there is none, False where it is damaged."""
        name = "WRAPKEY" + part[0].upper()
        if name not in self.values:
            return None
        slot = self.hex(name)
        if slot is None:
            return False
        check = hashlib.sha256(b"naos/fr/1/slot\0" + bytes([PARTS.index(part) + 1]) + self.frame_id + slot[:248]).digest()[:8]
        try:
            blob = wrapped_key.WrappedKey(slot[8:248])
        except wrapped_key.WrappedKeyError:
            return False
        whole = slot[0] == blob.bytes and not any(slot[1:8]) and not any(slot[8 + blob.bytes:248]) and slot[248:] == check
        return blob if whole else False

    def _part(self, part, key):
        """State and plaintext of a part."""
        if self.slot(part) is False:
            return "tampered", None
        if key is None:
            return "missing", None
        if self.derive(b"commit", part, key, 32) != self.commitments[part]:
            return "wrong", None
        letter = part[0].upper()
        nonce, tag = self.hex("NONCE_" + letter), self.hex("AUTHTAG_" + letter)
        sealed = self.hex("ENCHDR") if part == "header" else self.encrypted["data"]
        if None in (nonce, tag, sealed):
            return "tampered", None
        try:
            plain = AESGCM(self.derive(b"message", part, key, self.key_bytes)).decrypt(nonce, sealed + tag, self.associated_data(part))
        except InvalidTag:
            return "tampered", None
        return "right", plain

    def structural_header(self):
        cards = [number("SIMPLE", "T", "conforms to the FITS standard"), number("BITPIX", self.bitpix), number("NAXIS", len(self.axes))]
        cards += [number(f"NAXIS{i + 1}", length) for i, length in enumerate(self.axes)]
        cards += [number(ours, value) for _, ours, value in self.scaling]
        return padded(b"".join(cards) + card("END"), b" ")

    def open(self, header_key, data_key):
        (header_state, header), (data_state, data) = self._part("header", header_key), self._part("data", data_key)
        states = (header_state, data_state)
        if states == ("right", "right"):
            return Opened("full", states, header + data)
        if header_state == "right":
            lines = [header[at:at + 80] for at in range(0, len(header), 80)]
            blanked = b"".join(bytes(80).replace(b"\0", b" ") if line[:8] in (b"CHECKSUM", b"DATASUM ") else line for line in lines)
            return Opened("metadata-only", states, blanked + padded(bytes(self.data_bytes)))
        if data_state == "right":
            return Opened("pixels-only", states, self.structural_header() + padded(data))
        return Opened("denied", states, b"")

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""An independent reader of sealed files, version 1.

Written from docs/formats/sealed-file.md and docs/formats/wrapped-key.md alone, before its author had seen lib/seal. Tests
compare the two. It is strict and simple, not fast.

    sealed_file.py FILE FEKFILE      plaintext to standard output; FEKFILE holds the FEK in hex
"""
import functools
import hashlib
import hmac
import io
import os
import struct
import sys

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sealed_layout import CHUNK, MAP_GROUPS, chunk_page, first_chunk, group_of, map_page, physical_size, sector_offset, tag_page
from wrapped_key import WrappedKey, WrappedKeyError

MAX_SIZE = 1 << 60
CLEAN, SPARSE, SHARED = 1, 2, 4
MAGIC = b"NAOSSF1\n"
KEY_BYTES = {1: 16, 2: 32}  # by algorithm


class SealedFileError(Exception):
    """A refusal. code is a name of include/naos/error.def; chunk is the chunk's number, or None."""

    def __init__(self, code, text, chunk=None):
        super().__init__(text if chunk is None else f"chunk {chunk}: {text}")
        self.code = code
        self.chunk = chunk


def damage(text, chunk=None):
    return SealedFileError("INTEGRITY", text, chunk)


def zero(data):
    return not any(data)


def mac(key, *parts):
    return hmac.digest(key, b"".join(parts), "sha256")


# Keys (section 3)

class Keys:
    def __init__(self, fek, algorithm, file_id, fileset_id):
        self.prk = mac(file_id, fek)
        self.suffix = bytes([0, algorithm, 12]) + fileset_id
        self.data_bytes = KEY_BYTES[algorithm]
        self.commitment = self.expand(b"commit")
        self.header = self.expand(b"header")
        self.tag = self.expand(b"tagsector")

    def expand(self, purpose, x=b"", size=32):
        return mac(self.prk, b"naos/sf/1/", purpose, self.suffix, x, b"\x01")[:size]

    def data(self, chunk, seq):
        return self.expand(b"data", struct.pack("<QI", chunk // 65536, seq // 1024), self.data_bytes)

keys_for = functools.lru_cache(maxsize=64)(Keys)


# Records

class State:
    def __init__(self, data):
        (self.seq, self.epoch, self.sealed_epoch, self.size, self.durable_size, self.flags,
         self.key_generation) = struct.unpack_from("<QIIQQII", data)
        self.clean = bool(self.flags & CLEAN)
        self.sparse = bool(self.flags & SPARSE)

        self.reserved_is_zero = zero(data[40:480])

    def fault(self, parity):
        """What is wrong with an authentic state, or None."""
        contradicts = self.clean and (self.epoch != self.sealed_epoch or self.size != self.durable_size or self.flags & SHARED)
        rules = [
            (self.reserved_is_zero, "reserved bytes are set"),
            (self.seq > 0 and self.seq % 2 == parity, "its seq is in the wrong slot"),
            (self.flags & ~(CLEAN | SPARSE | SHARED) == 0, "unknown flags"),
            (self.size <= MAX_SIZE, "size above the limit"),
            (self.durable_size <= self.size, "durable_size above size"),
            (self.sealed_epoch <= self.epoch, "sealed_epoch above epoch"),
            (not contradicts, "a clean state contradicts itself"),
        ]
        return next((text for holds, text in rules if not holds), None)


class Version:
    """One 40-byte slot of an entry."""

    def __init__(self, data, parity):
        self.nonce, self.tag = data[:12], data[12:28]
        self.epoch, self.seq, field = struct.unpack_from("<III", data, 28)
        self.hole = bool(field >> 31)
        self.len = field & 0x7fffffff
        self.fault = None
        if self.seq == 0 or self.seq % 2 != parity:
            self.fault = "an entry's seq is in the wrong slot"
        elif self.epoch == 0:
            self.fault = "an entry has no epoch"
        elif self.len > CHUNK or (self.len == 0 and not self.hole):
            self.fault = "an entry's len is out of range"
        elif self.hole and not zero(self.tag):
            self.fault = "an entry is a hole with a tag"


class SealedFile:
    """A sealed file opened with its FEK. file: bytes or a seekable binary file."""

    def __init__(self, file, fek, *, algorithm=None, fileset_id=None, attribute=None):
        self.file = io.BytesIO(file) if isinstance(file, (bytes, bytearray)) else file
        self.file.seek(0, os.SEEK_END)
        self.physical = self.file.tell()
        self.maps = {}
        page, record = self._at(0, 4096), None
        if attribute is not None and len(attribute) == 256 + 112:
            record, attribute = attribute, attribute[:256]
        lost = record is not None and zero(page[:512])
        if lost:
            page = page.ljust(4096, b"\0")
            slot = record[:256] if zero(page[1536:1792]) else page[1536:1792]
            page = record[256:336].ljust(512, b"\0") + page[512:1536] + slot + page[1792:]
        self._read_header(page, algorithm, fileset_id)
        slots = self._read_fek_slots(page, attribute)
        self.keys = keys_for(fek, self.algorithm, self.file_id, self.fileset_id)
        if not hmac.compare_digest(self.keys.commitment, page[48:80]):
            raise SealedFileError("WRONG_KEY", "the key is not the key of this file")
        new = record is not None and hmac.compare_digest(record[336:], mac(self.keys.header, b"naos/sf/1/new\0\0\0", record[:336]))
        if record is not None and record[256:336] != page[:80]:
            raise damage("the attribute user.naos.key is the record of another file")
        if record is not None and not new:
            raise damage("the record of a new file is not authentic")
        states = [self._state_slot(page, index) for index in (0, 1)]
        self.unborn = lost or (new and None in states and not any(state and state.clean for state in states))
        if self.unborn:
            self.state = State(struct.pack("<QIIQQII", 2, 1, 0, 0, 0, 0, 1).ljust(480, b"\0"))
        else:
            self._pick_state(page)
        self.blobs = [self._check_fek_slot(name, slot) for name, slot in slots.items()]
        self.size = self.state.size
        if self.unborn:
            return
        if self.state.clean:
            if self.physical != physical_size(self.size):
                raise damage(f"the file has {self.physical} bytes, it should have {physical_size(self.size)}")
        else:
            self.size = self._scan_size()

    def _at(self, offset, size):
        self.file.seek(offset)
        return self.file.read(size)

    # Page 0 (section 4)

    def _read_header(self, page, algorithm, fileset_id):
        if len(page) < 4096:
            raise SealedFileError("FORMAT", "the file is too short for a sealed file")
        if page[:8] != MAGIC:
            raise SealedFileError("FORMAT", "not a sealed file")
        version, self.algorithm = struct.unpack_from("<II", page, 8)
        if version != 1:
            raise SealedFileError("FORMAT", f"version {version} is not known")
        if self.algorithm not in KEY_BYTES:
            raise SealedFileError("FORMAT", f"algorithm {self.algorithm} is not known")
        if algorithm not in (None, self.algorithm):
            raise damage(f"algorithm {self.algorithm} is not that of the file set")
        self.file_id, self.fileset_id = page[16:32], page[32:48]
        if fileset_id not in (None, self.fileset_id):
            raise SealedFileError("WRONG_KEY", "the file belongs to another file set")
        if not zero(page[80:512]):
            raise SealedFileError("FORMAT", "reserved bytes of the header are set")

    def _state_slot(self, page, index):
        slot = page[512 + 512 * index:1024 + 512 * index]
        if zero(slot):
            return None
        if not hmac.compare_digest(slot[480:], mac(self.keys.header, page[:512], slot[:480])):
            raise damage(f"state slot {'AB'[index]} is not authentic")
        state = State(slot)
        fault = state.fault(1 - index)
        if fault:
            raise damage(f"state slot {'AB'[index]}: {fault}")
        return state

    def _pick_state(self, page):
        slots = [s for s in (self._state_slot(page, 0), self._state_slot(page, 1)) if s]
        if not slots:
            raise damage("both state slots are empty")
        if len(slots) == 1 and not slots[0].clean:
            raise damage("one state slot is missing")
        if len(slots) == 2 and abs(slots[0].seq - slots[1].seq) > 3:
            raise damage("the two states are too far apart")
        self.state = max(slots, key=lambda s: s.seq)

    def _read_fek_slots(self, page, attribute):
        """Slots that are used, by name. Needs no key."""
        slots = {f"FEK slot {i}": page[1536 + 256 * i:1792 + 256 * i] for i in range(4)}
        slots = {name: slot for name, slot in slots.items() if not zero(slot)}
        if attribute is not None:
            slots["the attribute user.naos.key"] = attribute
        if not slots:
            raise damage("the wrapped key is gone from page 0 and from the attribute")
        for name, slot in slots.items():
            checksum = hashlib.sha256(b"naos/sf/1/slot\0\0" + self.file_id + slot[:216]).digest()[:8]
            if len(slot) != 256 or slot[216:224] != checksum:
                raise damage(f"{name} is damaged or of another file")
        return slots

    def _check_fek_slot(self, name, slot):
        if not hmac.compare_digest(slot[224:], mac(self.keys.header, slot[:224])):
            raise damage(f"{name} is not authentic")
        generation, size, reserved = struct.unpack_from("<IHH", slot)
        if generation == 0 or reserved or size > 208 or not zero(slot[8 + size:216]):
            raise damage(f"{name} is malformed")
        if generation < self.state.key_generation:
            raise damage(f"{name} was removed")
        try:
            blob = WrappedKey(slot[8:8 + size])
        except WrappedKeyError as error:
            raise damage(f"{name}: {error}") from None
        if blob.bytes != size or len(blob.ciphertext) != 64:
            raise damage(f"{name} is malformed")
        return blob

    # Tags and maps (sections 5 and 6)

    def sector(self, group, place):
        """The six pairs of versions of a tag sector; None if it is absent."""
        data, chunk = self._at(sector_offset(group, place), 512), first_chunk(group) + 6 * place
        if zero(data):
            return None
        if len(data) < 512:
            raise damage("its tag sector is cut off", chunk)
        if not hmac.compare_digest(data[496:], mac(self.keys.tag, struct.pack("<Q", 8 * group + place), data[:496])[:16]):
            raise damage("its tag sector is not authentic", chunk)
        if not zero(data[480:496]):
            raise damage("reserved bytes of its tag sector are set", chunk)
        entries = []
        for entry in range(6):
            slots = [data[80 * entry + 40 * s:80 * entry + 40 * s + 40] for s in (0, 1)]
            versions = [Version(d, parity) for parity, d in enumerate(slots) if not zero(d)]
            for version in versions:
                if version.fault:
                    raise damage(version.fault, chunk + entry)
            entries.append(sorted(versions, key=lambda v: -v.seq))
        return entries

    def map(self, number):
        """The 3968 bytes of bits of a map page."""
        if number not in self.maps:
            self.maps[number] = self._read_map(number)
        return self.maps[number]

    def _read_map(self, number):
        page = self._at(4096 * map_page(number), 4096)
        if zero(page):
            return bytes(3968)
        if not hmac.compare_digest(page[4080:], mac(self.keys.tag, struct.pack("<Q", (1 << 63) + number), page[:4080])[:16]):
            raise damage(f"map page {number} is not authentic")
        if not zero(page[3968:4080]):
            raise damage(f"reserved bytes of map page {number} are set")
        if self.state.clean and not self.state.sparse and not zero(page[:3968]):
            raise damage(f"map page {number} has bits, but the file is not sparse")
        return page[:3968]

    def is_hole_group(self, group):
        if group == 0:
            return False
        number, bit = divmod(group - 1, MAP_GROUPS)
        return bool(self.map(number)[bit // 8] >> bit % 8 & 1)

    # Reading (section 7)

    def _decrypt(self, chunk, version):
        """Plaintext of a version (without its zero extension); None if it does not open."""
        if version.hole:
            return bytes(version.len)
        cipher = self._at(4096 * chunk_page(chunk), version.len)
        bound = b"NSF1CHNK" + self.file_id + struct.pack("<QIIII", chunk, version.epoch, version.seq, version.len, 0)
        try:
            key = self.keys.data(chunk, version.seq)
            return AESGCM(key).decrypt(version.nonce, cipher + version.tag, bound)
        except InvalidTag:
            return None

    def _versions(self, chunk):
        """The versions of a chunk, newest first; None if its sector is absent."""
        group = group_of(chunk)
        place, entry = divmod(chunk - first_chunk(group), 6)
        sector = self.sector(group, place)
        return None if sector is None else sector[entry]

    def _content(self, chunk):
        """Plaintext of the version of a chunk that counts; empty if it was truncated away."""
        versions = self._versions(chunk)
        start = chunk * CHUNK
        if versions is None and start < self.state.size and self.is_hole_group(group_of(chunk)):
            return bytes(min(CHUNK, self.state.size - start))
        if not versions:
            raise damage("it is missing", chunk)
        if versions[0].epoch > self.state.epoch:
            raise damage("its tag is newer than the state of the file", chunk)
        content = self._decrypt(chunk, versions[0])
        if content is None and len(versions) == 2 and not self.state.clean and versions[0].epoch > self.state.sealed_epoch:
            content = self._decrypt(chunk, versions[1])
        if content is None:
            raise damage("its data does not match its tag", chunk)
        return content

    def _scan_size(self):
        durable = self.state.durable_size
        if durable:
            self._check_durable((durable - 1) // CHUNK)
        chunk = durable // CHUNK
        size = chunk * CHUNK
        while content := self._scan_content(chunk):
            size = chunk * CHUNK + len(content)
            chunk += 1
        if size < durable:
            raise damage("the file is shorter than its durable size", durable // CHUNK)
        return size

    def _check_durable(self, last):
        try:
            versions = self._versions(last)
        except SealedFileError:
            return  # refused when it is read
        if versions is None and not self.is_hole_group(group_of(last)):
            raise damage("it is missing below the durable size", last)

    def _scan_content(self, chunk):
        try:
            return self._content(chunk)
        except SealedFileError:
            if chunk * CHUNK < self.state.durable_size:
                raise
            return b""

    def chunk(self, chunk):
        """Plaintext of one chunk below the size."""
        room = min(CHUNK, self.size - chunk * CHUNK)
        content = self._content(chunk)
        is_last = (chunk + 1) * CHUNK >= self.size
        if not content or len(content) > room or (self.state.clean and is_last and len(content) != room):
            raise damage("its len contradicts the size of the file", chunk)
        return content + bytes(room - len(content))

    def chunks(self):
        return range((self.size + CHUNK - 1) // CHUNK)

    def data_chunks(self):
        """Chunks of groups that are not wholly holes by the map: what to read of a huge sparse file."""
        for group in range(group_of(max(self.size - 1, 0) // CHUNK) + 1):
            if not (self.is_hole_group(group) and zero(self._at(4096 * tag_page(group), 4096))):
                yield from range(first_chunk(group), min(first_chunk(group + 1), len(self.chunks())))

    def read(self):
        return b"".join(map(self.chunk, self.chunks()))

    def verify(self):
        """Checks everything there is, also what no read needs (section 7, step 6)."""
        if self.unborn:
            return
        for number in range((group_of(max(self.size - 1, 0) // CHUNK) - 1) // MAP_GROUPS + 1):
            self.map(number)
        for group in range(group_of(max(self.size - 1, 0) // CHUNK) + 1):
            for place in range(3 if group == 0 else 8):
                self.sector(group, place)
        for chunk in self.chunks():
            self.chunk(chunk)
            if self.state.clean:
                version = (self._versions(chunk) or [None])[0]
                start = 0 if version is None or version.hole else version.len
                if not zero(self._at(4096 * chunk_page(chunk) + start, 4096 - start)):
                    raise damage("there is data behind its end or below a hole", chunk)


def main():
    path, fek_path = sys.argv[1:]
    with open(fek_path, encoding="ascii") as text, open(path, "rb") as data:
        sealed = SealedFile(data, bytes.fromhex(text.read()))
        for chunk in sealed.chunks():
            sys.stdout.buffer.write(sealed.chunk(chunk))


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Damaged sealed files, one per check of docs/formats/sealed-file.md, made from the golden files.

Many of them contradict themselves under valid MACs: the generator knows the FEK, as a malicious insider would. Each case says
what a reader must answer: at which stage, with which code, and a part of the sentence of lib/seal.
"""
import collections
import hashlib
import struct

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import sealed_file as sf

# expected: stage "ok" for what must still be read (code and text are empty), else open, read or verify.
Case = collections.namedtuple("Case", "name image fek attribute algorithm stage code text")
STATE = "<QIIQQII"
STATE_FIELDS = ("seq", "epoch", "sealed_epoch", "size", "durable_size", "flags", "key_generation")


class Editor:
    """A sealed file whose parts can be changed and authenticated again."""

    def __init__(self, image, fek, attribute=None):
        self.image, self.fek, self.attribute = bytearray(image), fek, attribute
        self.algorithm, = struct.unpack_from("<I", image, 12)
        self.file_id = bytes(image[16:32])
        self.keys = sf.Keys(fek, self.algorithm, self.file_id, bytes(image[32:48]))

    def flip(self, offset, bit=0):
        self.image[offset] ^= 1 << bit

    def put(self, offset, data):
        self.image[offset:offset + len(data)] = data

    # State slots: index 0 is A

    def newest_slot(self):
        return max((0, 1), key=lambda index: struct.unpack_from("<Q", self.image, 512 + 512 * index)[0])

    def state(self, index):
        return dict(zip(STATE_FIELDS, struct.unpack_from(STATE, self.image, 512 + 512 * index)))

    def put_state(self, index, reserved=b"", **changes):
        """Changes fields of a state slot and makes it authentic."""
        at = 512 + 512 * index
        fields = {**self.state(index), **changes}
        slot = struct.pack(STATE, *(fields[name] for name in STATE_FIELDS)) + bytes(440)
        slot = slot[:40] + reserved + slot[40 + len(reserved):]
        self.put(at, slot + sf.mac(self.keys.header, bytes(self.image[:512]), slot))

    def put_states(self, **changes):
        """The same in the newer slot."""
        self.put_state(self.newest_slot(), **changes)

    # FEK slots

    def fek_slot(self, index=0):
        return bytearray(self.image[1536 + 256 * index:1792 + 256 * index])

    def authentic_slot(self, slot, checksum=True, hmac=True):
        slot = bytearray(slot)
        if checksum:
            slot[216:224] = hashlib.sha256(b"naos/sf/1/slot\0\0" + self.file_id + slot[:216]).digest()[:8]
        if hmac:
            slot[224:] = sf.mac(self.keys.header, bytes(slot[:224]))
        return bytes(slot)

    def change_slot(self, at, data, index=0, **parts):
        slot = self.fek_slot(index)
        slot[at:at + len(data)] = data
        self.put(1536 + 256 * index, self.authentic_slot(slot, **parts))

    # Tag sectors and map pages

    def entry_at(self, chunk, parity):
        group = sf.group_of(chunk)
        place, entry = divmod(chunk - sf.first_chunk(group), 6)
        return sf.sector_offset(group, place), 80 * entry + 40 * parity

    def newest_parity(self, chunk):
        sector, _ = self.entry_at(chunk, 0)
        seqs = [struct.unpack_from("<I", self.image, sum(self.entry_at(chunk, parity)) + 32)[0] for parity in (0, 1)]
        return seqs.index(max(seqs))

    def seal_sector(self, chunk):
        group = sf.group_of(chunk)
        place = (chunk - sf.first_chunk(group)) // 6
        at = sf.sector_offset(group, place)
        self.put(at + 496, sf.mac(self.keys.tag, struct.pack("<Q", 8 * group + place), bytes(self.image[at:at + 496]))[:16])

    def put_entry(self, chunk, parity, data, offset=0):
        """Overwrites bytes of one 40-byte slot and makes the sector authentic."""
        self.put(sum(self.entry_at(chunk, parity)) + offset, data)
        self.seal_sector(chunk)

    def put_version(self, chunk, parity, seq, epoch, text):
        """A version with its data, as a writer would make it."""
        nonce = bytes([chunk % 256]) * 12
        bound = b"NSF1CHNK" + self.file_id + struct.pack("<QIIII", chunk, epoch, seq, len(text), 0)
        sealed = AESGCM(self.keys.data(chunk, seq)).encrypt(nonce, text, bound)
        self.put(4096 * sf.chunk_page(chunk), sealed[:-16])
        self.put_entry(chunk, parity, nonce + sealed[-16:] + struct.pack("<III", epoch, seq, len(text)))

    def seal_map(self, number=0, as_number=0):
        at = 4096 * sf.map_page(number)
        self.put(at + 4080, sf.mac(self.keys.tag, struct.pack("<Q", (1 << 63) + as_number), bytes(self.image[at:at + 4080]))[:16])


def u16(value):
    return struct.pack("<H", value)


def u32(value):
    return struct.pack("<I", value)


class Cases:
    """load(name) gives image, FEK and attribute of a golden file. Each method yields cases of one section of the document."""

    def __init__(self, load):
        self.load = load

    def _case(self, name, base, change, stage, code="", text="", algorithm=0):
        editor = Editor(*self.load(base))
        change(editor)
        return Case(name, bytes(editor.image), editor.fek, editor.attribute, algorithm, stage, code, text)

    def all(self):
        for rules in (self.header, self.state, self.size, self.fek_slots, self.attribute, self.new, self.sectors, self.data, self.maps,
                      self.unclean):
            for name, base, change, *expected in rules():
                yield self._case(f"{rules.__name__}: {name}", base, change, *expected)

    def header(self):
        base = "short-last-chunk"
        damaged = ("open", "INTEGRITY", "every slot of the wrapped file key is damaged")
        yield "another magic", base, lambda e: e.put(0, b"NAOSSF2\n"), "open", "FORMAT", "not a sealed file"
        yield "another version", base, lambda e: e.put(8, u32(2)), "open", "FORMAT", "version 2"
        yield "an unknown algorithm", base, lambda e: e.put(12, u32(3)), "open", "FORMAT", "unknown algorithm"
        yield "the other algorithm", base, lambda e: e.put(12, u32(1)), "open", "WRONG_KEY", "key commitment"
        yield "an algorithm that the file set does not have", base, lambda e: None, \
            "open", "INTEGRITY", "its file set demands aes-128-gcm", 1
        yield "a reserved byte", base, lambda e: e.flip(80), "open", "FORMAT", "reserved bytes"
        yield "the last reserved byte", base, lambda e: e.flip(511), "open", "FORMAT", "reserved bytes"
        yield "another file_id", base, lambda e: e.flip(16), *damaged
        yield "another fileset_id", base, lambda e: e.flip(32), "open", "WRONG_KEY", "key commitment"
        yield "another commitment", base, lambda e: e.flip(48), "open", "WRONG_KEY", "key commitment"
        yield "the header of another file", base, lambda e: e.put(0, self.load("one-byte")[0][:512]), *damaged
        yield "page 0 cut off", base, lambda e: e.image.__delitem__(slice(4095, None)), "open", "FORMAT", "not a sealed file"
        yield "no bytes", base, lambda e: e.image.clear(), "open", "FORMAT", "not a sealed file"

    def state(self):
        clean, unclean = "short-last-chunk", "unclean-overwritten"
        senseless = ("open", "INTEGRITY", "makes no sense")

        def put(**changes):
            return lambda e: e.put_states(**changes)

        def older(e):
            return 1 - e.newest_slot()

        yield "nothing changed", clean, put(), "ok"
        yield "HMAC", clean, lambda e: e.flip(512 * (1 + e.newest_slot()) + 480), "open", "INTEGRITY", "was changed"
        yield "a field without the HMAC", clean, lambda e: e.flip(512 * (1 + e.newest_slot()) + 16), "open", "INTEGRITY", "was changed"
        yield "HMAC of the older slot", unclean, lambda e: e.flip(512 * (1 + older(e)) + 480), "open", "INTEGRITY", "was changed"
        yield "seq 0", clean, lambda e: (e.put_states(seq=1 + e.newest_slot()), e.put_state(1, seq=0, flags=0)), *senseless
        yield "seq in the wrong slot", clean, lambda e: e.put_states(seq=e.state(e.newest_slot())["seq"] + 1), *senseless
        yield "slots exchanged", unclean, lambda e: e.put(512, bytes(e.image[1024:1536] + e.image[512:1024])), *senseless
        yield "seq 3 apart", unclean, lambda e: e.put_states(seq=e.state(e.newest_slot())["seq"] + 2), "ok"
        yield "seq 5 apart", unclean, lambda e: e.put_states(seq=e.state(e.newest_slot())["seq"] + 4), "open", "INTEGRITY", "older one"
        yield "both slots empty", unclean, lambda e: e.put(512, bytes(1024)), "open", "INTEGRITY", "both state slots are empty"
        yield "the newer slot emptied", unclean, lambda e: e.put(512 * (1 + e.newest_slot()), bytes(512)), "open", "INTEGRITY", "is missing"
        yield "the older slot emptied", unclean, lambda e: e.put(512 * (1 + older(e)), bytes(512)), "open", "INTEGRITY", "is missing"
        yield "one slot that is not clean", clean, put(flags=0), "open", "INTEGRITY", "is missing"
        yield "a reserved byte", clean, put(reserved=b"\1"), *senseless
        yield "the last reserved byte", clean, put(reserved=bytes(439) + b"\1"), *senseless
        yield "an unknown flag", clean, put(flags=1 | 8), *senseless
        yield "size above the limit", unclean, put(size=(1 << 60) + 1), *senseless
        yield "durable_size above size", unclean, put(durable_size=1 << 40), *senseless
        yield "sealed_epoch above epoch", unclean, put(sealed_epoch=1000), *senseless
        yield "clean, epoch is not sealed_epoch", clean, put(epoch=100), *senseless
        yield "clean, size is not durable_size", clean, put(durable_size=1), *senseless
        yield "clean and shared", clean, put(flags=1 | 4), *senseless

    def size(self):
        base = "short-last-chunk"
        yield "a byte more", base, lambda e: e.image.append(0), "open", "INTEGRITY", "was lengthened"
        yield "a byte less", base, lambda e: e.image.pop(), "open", "INTEGRITY", "was truncated"
        yield "a page more", base, lambda e: e.image.extend(bytes(4096)), "open", "INTEGRITY", "was lengthened"
        yield "the last page gone", base, lambda e: e.image.__delitem__(slice(-777, None)), "open", "INTEGRITY", "was truncated"
        yield "another size in the state", base, lambda e: e.put_states(size=5, durable_size=5), "open", "INTEGRITY", "was lengthened"

    def fek_slots(self):
        base = "short-last-chunk"
        malformed = ("open", "INTEGRITY", "slot of the wrapped file key is malformed")

        def second(at, data):
            """Damage to the second slot only: the first one opens."""
            return lambda e: e.change_slot(at, data, 1)

        yield "checksum", base, lambda e: e.flip(1536 + 216), *malformed
        yield "a byte of the blob", base, lambda e: e.flip(1536 + 100), *malformed
        yield "checksum, and no attribute", base, lambda e: (e.flip(1536 + 216), setattr(e, "attribute", None)), \
            "open", "INTEGRITY", "every slot of the wrapped file key is damaged"
        yield "checksum of the second slot", "two-fek-slots", lambda e: e.flip(1792 + 216), *malformed
        yield "HMAC", base, lambda e: e.flip(1536 + 224), "open", "INTEGRITY", "was changed or is of another file"
        yield "a byte of the blob and the checksum", base, lambda e: e.change_slot(120, b"x", hmac=False), \
            "open", "INTEGRITY", "was changed"
        yield "HMAC of the second slot", "two-fek-slots", lambda e: e.flip(1792 + 255), "open", "INTEGRITY", "was changed or is of"
        yield "the slot of another file", base, lambda e: e.put(1536, self.load("one-byte")[0][1536:1792]), *malformed
        yield "generation 0", base, lambda e: e.change_slot(0, u32(0)), *malformed
        yield "all slots zero and no attribute", base, lambda e: (e.put(1536, bytes(1024)), setattr(e, "attribute", None)), \
            "open", "INTEGRITY", "is gone from page 0"
        yield "a removed generation", base, lambda e: e.put_states(key_generation=2), "open", "INTEGRITY", "was removed"
        yield "a removed slot brought back", "rewrapped", lambda e: e.put(1536 + 512, e.authentic_slot(u32(1) + e.fek_slot(1)[4:])), \
            "open", "INTEGRITY", "page 0 brings back a wrapped key that was removed"
        yield "a key of 16 bytes", "two-fek-slots", \
            lambda e: e.change_slot(4, u16(108) + e.fek_slot(1)[6:12] + u16(48) + e.fek_slot(1)[14:116] + bytes(16), 1), *malformed
        for name, at, data in (
                ("reserved bytes", 6, u16(1)), ("n above 208", 4, u16(209)),
                ("n below the blob", 4, u16(120)), ("n above the blob", 4, u16(125)),
                ("n of 0", 4, u16(0)), ("a byte behind the blob", 8 + 124, b"\1"), ("generation 0", 0, u32(0)),
                ("blob version", 8, b"\2"), ("blob algorithm", 9, b"\2"), ("IV of 13 bytes", 10, b"\x0d"),
                ("blob reserved byte", 11, b"\1"), ("ciphertext of 65 bytes", 12, u16(65)),
                ("blob reserved bytes", 14, u16(1)), ("no MEK id", 16, bytes(16)), ("MEK version 0", 32, u32(0)),
                ("bytes behind the IV", 48, b"\1")):
            yield f"second slot, authentic: {name}", "two-fek-slots", second(at, data), *malformed

    def attribute(self):
        base = "short-last-chunk"
        malformed = ("open", "INTEGRITY", "attribute user.naos.key is malformed")

        def put(change):
            return lambda e: setattr(e, "attribute", change(e))

        yield "none", base, put(lambda e: None), "ok"
        yield "cut", base, put(lambda e: e.attribute[:255]), *malformed
        yield "zeros", base, put(lambda e: bytes(256)), *malformed
        yield "a bit", base, put(lambda e: e.attribute[:9] + bytes([e.attribute[9] ^ 4]) + e.attribute[10:]), *malformed
        yield "of another file", base, put(lambda e: self.load("one-byte")[2]), *malformed
        yield "HMAC", base, put(lambda e: e.attribute[:255] + bytes([e.attribute[255] ^ 1])), \
            "open", "INTEGRITY", "attribute user.naos.key: "
        yield "a removed generation", "rewrapped", put(lambda e: e.authentic_slot(u32(1) + e.attribute[4:])), \
            "open", "INTEGRITY", "the attribute user.naos.key brings back"
        yield "the only copy, damaged", "key-in-attribute", put(lambda e: e.attribute[:50] + b"?" + e.attribute[51:]), \
            "open", "INTEGRITY", "is gone from page 0"

    def new(self):
        """A file that no flush has seen: what page 0 lost is zeros, and the record in the attribute says that it may be."""
        base = "new"
        malformed = ("open", "INTEGRITY", "attribute user.naos.key is malformed")
        no_header, no_state = ("open", "FORMAT", "not a sealed file"), ("open", "INTEGRITY", "page 0")

        def put(change, *ranges):
            def do(e):
                e.attribute = change(e.attribute)
                for at, size in ranges:
                    e.put(at, bytes(size))
            return do

        def flip(at):
            return lambda a: a[:at] + bytes([a[at] ^ 2]) + a[at + 1:]

        def same(a):
            return a

        for name, ranges in (("page 0", [(0, 4096)]), ("the header", [(0, 512)]), ("a state slot", [(512, 512)]),
                             ("the other state slot", [(1024, 512)]), ("header and state", [(0, 1536)])):
            yield f"{name} lost", base, put(same, *ranges), "ok"
        yield "all but a few bytes lost", base, lambda e: e.image.clear(), "ok"
        yield "a wrapped key lost", base, put(same, (1536, 512)), "ok"
        yield "lost, no record", base, put(lambda a: a[:256], (0, 4096)), *no_header
        yield "lost, record cut", base, put(lambda a: a[:367], (0, 4096)), *no_header
        yield "lost, a bit of the record's MAC", base, put(flip(367), (0, 4096)), *no_state
        yield "lost, a bit of the record", base, put(flip(300), (0, 4096)), "open", "WRONG_KEY", "key"
        yield "lost, a bit of the record's version", base, put(flip(264), (0, 4096)), *no_header
        yield "lost, the record of another file", base, \
            lambda e: (setattr(e, "attribute", self.load("new-without-page-0")[2]), e.put(0, bytes(4096))), "open", "WRONG_KEY", "key"
        yield "a state slot lost, no record", base, put(lambda a: a[:256], (512, 512)), *no_state
        yield "a state slot lost, a bit of the other", base, lambda e: (e.put(512, bytes(512)), e.flip(1024)), *no_state
        yield "a header that is no header", base, lambda e: (e.put(0, bytes(4096)), e.put(20, b"x")), *no_header
        yield "there, a bit of the record", base, put(flip(300)), *malformed
        yield "there, a bit of the record's MAC", base, put(flip(367)), "open", "INTEGRITY", "the record of a new file"
        yield "there, the record of another file", base, lambda e: setattr(e, "attribute", self.load("new-without-page-0")[2]), *malformed

    def sectors(self):
        base = "short-last-chunk"  # 4 chunks in one sector, the last of 777 bytes
        grouped = "first-group-and-one-byte"
        changed = ("read", "INTEGRITY", "tag sector 0 (chunks 0 to 5) was changed or is of another place")
        misfit = ("read", "INTEGRITY", "chunk 3 (from byte 12288): its length contradicts the size")

        def entry(data, offset, chunk=1, of=base):
            return lambda e: e.put_entry(chunk, e.newest_parity(chunk), data, offset)

        def group_page(e):
            return 4096 * sf.tag_page(1)

        def move(e):
            """The newest version moves to the other slot, its seq does not."""
            at, parity = e.entry_at(1, 0)[0], e.newest_parity(1)
            old = bytes(e.image[at + 80 + 40 * parity:at + 120 + 40 * parity])
            e.put_entry(1, parity, bytes(40))
            e.put_entry(1, 1 - parity, old)

        yield "MAC", base, lambda e: e.flip(2560 + 496), *changed
        yield "the last byte of the MAC", base, lambda e: e.flip(2560 + 511, 7), *changed
        yield "an unused entry", base, lambda e: e.flip(2560 + 400), *changed
        yield "of another place in the page", grouped, lambda e: e.put(2560, bytes(e.image[3072:3584])), *changed
        yield "of another group", grouped, lambda e: e.put(group_page(e), bytes(e.image[2560:3072])), \
            "read", "INTEGRITY", "tag sector 8 (chunks 18 to 23)"
        yield "of another file", base, lambda e: e.put(2560, self.load("one-chunk")[0][2560:3072]), *changed
        yield "zeroed", base, lambda e: e.put(2560, bytes(512)), "read", "INTEGRITY", "chunk 0 (from byte 0): it has no version"
        yield "zeroed in another group", grouped, lambda e: e.put(group_page(e), bytes(512)), "read", "INTEGRITY", "chunk 18"
        yield "a bit behind the end", grouped, lambda e: e.flip(group_page(e) + 7 * 512 + 13), "verify", "INTEGRITY", "tag sector 15"
        yield "reserved bytes", base, lambda e: (e.put(2560 + 480, b"\1"), e.seal_sector(0)), *changed
        yield "the last reserved byte", base, lambda e: (e.put(2560 + 495, b"\1"), e.seal_sector(0)), *changed
        yield "seq in the wrong slot", base, move, *changed
        yield "seq 0 with a nonce", base, lambda e: e.put_entry(1, 1 - e.newest_parity(1), b"\1"), *changed
        yield "epoch 0", base, entry(u32(0), 28), *changed
        yield "len above 4096", base, entry(u32(4097), 36), *changed
        yield "len with bit 30", base, entry(u32(4096 | 1 << 30), 36), *changed
        yield "data of len 0", base, entry(u32(0), 36), *changed
        yield "a hole with a tag", base, entry(u32(4096 | 1 << 31), 36), *changed
        yield "a version newer than the state", base, lambda e: e.put_version(1, e.newest_parity(1), 1, 50, b"x" * 4096), \
            "read", "INTEGRITY", "chunk 1 (from byte 4096): its tag is newer than the state"
        yield "no version in a sector that is there", base, lambda e: (e.put_entry(1, 0, bytes(40)), e.put_entry(1, 1, bytes(40))), \
            "read", "INTEGRITY", "chunk 1 (from byte 4096): it has no version"
        yield "truncated away inside the file", base, entry(bytes(16) + u32(1) + u32(1) + u32(1 << 31), 12), \
            "read", "INTEGRITY", "chunk 1 (from byte 4096): its length contradicts"
        yield "the last chunk shorter than the file", base, lambda e: e.put_version(3, 1, 1, 1, b"x" * 776), *misfit
        yield "the last chunk longer than the file", base, entry(bytes(16) + u32(1) + u32(1) + u32(778 | 1 << 31), 12, 3), *misfit
        yield "a short chunk inside the file", base, lambda e: (e.put(8192, bytes(4096)), e.put_version(1, 1, 1, 1, b"x" * 10)), "ok"
        yield "data behind a short chunk", base, lambda e: e.put_version(1, 1, 1, 1, b"x" * 10), "verify", "INTEGRITY", \
            "chunk 1 (from byte 4096): there is data behind its end"

    def data(self):
        base = "short-last-chunk"

        def mismatch(chunk):
            return "read", "INTEGRITY", f"chunk {chunk} (from byte {4096 * chunk}): its data does not match its tag"

        yield "a bit", base, lambda e: e.flip(2 * 4096 + 77), *mismatch(1)
        yield "the last byte", base, lambda e: e.flip(len(e.image) - 1), *mismatch(3)
        yield "chunks exchanged", base, lambda e: e.put(4096, bytes(e.image[8192:12288] + e.image[4096:8192])), *mismatch(0)
        yield "of an older version, sealed", base, \
            lambda e: e.put_version(1, 0, 2, 1, b"new" * 100) or e.put(8192, self.load(base)[0][8192:12288]), *mismatch(1)
        yield "data below a hole", "groups-with-holes", lambda e: e.flip(4096 * sf.chunk_page(1) + 9), "verify", "INTEGRITY", \
            "chunk 1 (from byte 4096): there is data below a hole"
        yield "data in a group that the map calls a hole", "groups-with-holes", lambda e: e.flip(4096 * sf.chunk_page(20)), \
            "verify", "INTEGRITY", "there is data in a group that the map calls a hole"

    def maps(self):
        base = "groups-with-holes"
        changed = ("INTEGRITY", "map page 0 was changed or is of another place")
        at = 4096 * sf.map_page(0)
        yield "MAC", base, lambda e: e.flip(at + 4080), "read", *changed
        yield "a bit", base, lambda e: e.flip(at), "read", *changed
        yield "of another place", base, lambda e: e.seal_map(0, 1), "read", *changed
        yield "reserved bytes", base, lambda e: (e.put(at + 3968, b"\1"), e.seal_map()), "read", *changed
        yield "the last reserved byte", base, lambda e: (e.put(at + 4079, b"\1"), e.seal_map()), "read", *changed
        yield "zeroed", base, lambda e: e.put(at, bytes(4096)), "read", "INTEGRITY", "it has no version"
        yield "the bit of a hole missing", base, lambda e: (e.flip(at), e.seal_map()), "read", "INTEGRITY", "chunk 18"
        yield "bits in a file that is not sparse", "first-group-and-one-byte", lambda e: (e.put(at, b"\2"), e.seal_map()), \
            "verify", "INTEGRITY", "holds bits, but the file is not sparse"
        yield "a bit behind the end", base, lambda e: (e.put(at + 100, b"\1"), e.seal_map()), "ok"

    def unclean(self):
        base = "unclean-overwritten"  # 5 chunks were sealed; chunks 1, 2 and 5 are of a later epoch; durable to byte 20801
        crashed = "unclean-crashed"   # chunks 6 and 7 lie above durable_size
        yield "nothing changed", base, lambda e: None, "ok"
        yield "a newer version that does not open", base, lambda e: e.put_version(1, e.newest_parity(1), 2, 2, b"x" * 4096), "ok"
        yield "both versions gone", base, lambda e: e.flip(4096 * sf.chunk_page(1)), "read", "INTEGRITY", "chunk 1"
        yield "a sealed version gone", base, lambda e: e.flip(4096 * sf.chunk_page(0)), "read", "INTEGRITY", "chunk 0"
        yield "the last durable chunk gone", base, lambda e: e.flip(4096 * sf.chunk_page(5)), "open", "INTEGRITY", "chunk 5"
        yield "cut below durable_size", base, lambda e: e.image.__delitem__(slice(-100, None)), "open", "INTEGRITY", "chunk 5"
        yield "a durable_size that nothing reaches", base, lambda e: e.put_states(size=1 << 60, durable_size=1 << 60), \
            "open", "INTEGRITY", "it has no version below the durable size"
        yield "shorter than durable_size", base, lambda e: (e.put_states(size=20802, durable_size=20802), e.image.append(0)), \
            "open", "INTEGRITY", "chunk 5 (from byte 20480): the file is shorter than its last flush made it"
        yield "a sector below durable_size", base, lambda e: e.flip(2560), "open", "INTEGRITY", "tag sector 0"
        yield "a sector above durable_size", crashed, lambda e: e.flip(3072 + 100), "verify", "INTEGRITY", "tag sector 1"
        yield "a chunk above durable_size", crashed, lambda e: e.flip(4096 * sf.chunk_page(6)), "ok"
        yield "a version newer than the state", base, lambda e: e.put_version(1, e.newest_parity(1), 4, 9, b"x" * 4096), \
            "read", "INTEGRITY", "chunk 1 (from byte 4096): its tag is newer"
        yield "truncated away below durable_size", base, \
            lambda e: e.put_entry(5, 1, bytes([1] * 12) + bytes(16) + u32(2) + u32(9) + u32(1 << 31)), "open", "INTEGRITY", "chunk 5"

# SPDX-License-Identifier: Apache-2.0
"""Damaged frames of version 1, one per check of docs/formats/frame-1.md, made from the golden ones.

Each case says what a reader must answer when it is opened with both keys: refused with a code and a part of the sentence, or what
became of the two keys.
"""
import collections
import re

# code "" for what is opened: then states are those of header key and data key.
Case = collections.namedtuple("Case", "name base image code text states")
FIRST, TABLE = "its first header was changed", "the header of its table was changed"


class Frame:
    """A frame whose cards can be changed."""

    def __init__(self, image):
        self.image = bytearray(image)

    def find(self, start):
        return next(at for at in range(0, len(self.image), 80) if self.image.startswith(start.encode(), at))

    def put(self, start, text, column):
        """Overwrites what stands in a card from a column on, counted from 1."""
        at = self.find(start) + column - 1
        self.image[at:at + len(text)] = text.encode()

    def number(self, name, value):
        self.put(f"{name:8}=", f"{value:>20}", 11)

    def insert(self, start, text):
        """A card more before another; the blanks behind END make room."""
        at, end = self.find(start), self.find("END ")
        block = -(-(end + 80) // 2880) * 2880
        self.image[at:block] = text.ljust(80).encode() + self.image[at:block - 80]

    def remove(self, start):
        at, end = self.find(start), self.find("END ")
        block = -(-(end + 80) // 2880) * 2880
        self.image[at:block] = self.image[at + 80:block] + b" " * 80

    def table(self):
        return self.image.index(b"XTENSION")

    def flip(self, at):
        self.image[at] ^= 1


class Cases:
    """load(name) gives the image of a golden frame."""

    def __init__(self, load):
        self.load = load

    def _refused(self, name, code, text, change, base="image"):
        frame = Frame(self.load(base))
        change(frame)
        return Case(name, base, bytes(frame.image), code, text, None)

    def _opened(self, name, states, change, base="image"):
        frame = Frame(self.load(base))
        change(frame)
        return Case(name, base, bytes(frame.image), "", "", states)

    def all(self):
        for method in (self.structure, self.shape, self.table, self.parts, self.slots, self.bindings):
            yield from method()

    def structure(self):
        def cut(bytes_left):
            return lambda f: f.image.__delitem__(slice(bytes_left, None))
        def drop_blanks(f):
            f.image[f.table() - 1] = ord("x")
        yield self._refused("too-short", "FORMAT", "too short", cut(5759))
        yield self._refused("not-a-frame", "FORMAT", "not a frame", lambda f: f.put("SIMPLE", "F", 30))
        yield self._refused("version-3", "FORMAT", "not a frame", lambda f: f.number("NAOSFRM", 3))
        yield self._refused("version-2", "FORMAT", "not a frame", lambda f: f.number("NAOSFRM", 2))
        yield self._refused("cut-in-the-header", "INTEGRITY", "is cut off", cut(5760))
        yield self._refused("comment", "INTEGRITY", FIRST, lambda f: f.put("COMMENT A", "a", 9))
        yield self._refused("frame-id-is-none", "INTEGRITY", FIRST, lambda f: f.put("FRAMEID", "g", 12))
        yield self._refused("frame-id-in-capitals", "INTEGRITY", FIRST, lambda f: f.put("FRAMEID", "A", 12))
        yield self._refused("collection-is-none", "INTEGRITY", FIRST, lambda f: f.put("COLLID", "-", 12))
        yield self._refused("unknown-algorithm", "INTEGRITY", FIRST, lambda f: f.put("ALGORITH", "aes-512", 12))
        yield self._refused("commitment-is-none", "INTEGRITY", FIRST, lambda f: f.put("KEYCHK_H", "x", 12))
        yield self._refused("commitment-in-capitals", "INTEGRITY", FIRST, lambda f: f.put("KEYCHK_D", "A", 12))
        yield self._refused("card-twice", "INTEGRITY", FIRST, lambda f: f.insert("ORIG_HDR", "ORIG_BLK= '-32768  '"))
        yield self._refused("card-missing", "INTEGRITY", FIRST, lambda f: f.remove("KEYCHK_D"))
        yield self._refused("long-string-does-not-go-on", "INTEGRITY", FIRST, lambda f: f.put("ENCHDR", " ", 79))
        yield self._refused("long-string-without-quote", "INTEGRITY", FIRST, lambda f: f.put("ENCHDR", "x", 80))
        yield self._refused("end-is-missing", "INTEGRITY", FIRST, lambda f: f.put("END ", "X", 1))
        yield self._refused("blanks-behind-end", "INTEGRITY", FIRST, drop_blanks)

    def shape(self):
        no_image = "its ORIG_ keywords make no image"
        def too_long(f):
            f.number("ORIG_NA1", 2**33)
            f.number("ORIG_NA2", 16)
            f.number("ORIG_LEN", 2**36 - 31)
        def no_axes(f):
            f.number("ORIG_NAX", 0)
            f.remove("ORIG_NA1")
            f.remove("ORIG_NA2")
        yield self._refused("bitpix-24", "INTEGRITY", FIRST, lambda f: f.number("ORIG_BPX", 24))
        yield self._refused("ten-axes", "INTEGRITY", FIRST, lambda f: f.number("ORIG_NAX", 10))
        yield self._refused("axes-below-zero", "INTEGRITY", FIRST, lambda f: f.number("ORIG_NAX", -1))
        yield self._refused("axis-below-zero", "INTEGRITY", FIRST, lambda f: f.number("ORIG_NA1", -1))
        yield self._refused("axis-with-zeros-in-front", "INTEGRITY", FIRST, lambda f: f.number("ORIG_NA1", "0020"))
        yield self._refused("axis-missing", "INTEGRITY", FIRST, lambda f: f.remove("ORIG_NA2"))
        yield self._refused("scaling-without-text", "INTEGRITY", FIRST, lambda f: f.put("ORIG_BSC", "'        '", 11))
        yield self._refused("axes-that-overflow", "FORMAT", no_image, lambda f: (f.number("ORIG_NA1", 2**40), f.number("ORIG_NA2", 2**40)))
        yield self._refused("data-larger-than-the-image", "FORMAT", no_image, lambda f: f.number("ORIG_NA1", 1), base="cut-off")
        yield self._refused("data-without-axes", "FORMAT", no_image, no_axes)
        yield self._refused("header-of-no-bytes", "FORMAT", no_image, lambda f: f.number("ORIG_HDR", 0))
        yield self._refused("header-of-half-a-block", "FORMAT", no_image, lambda f: f.number("ORIG_HDR", 1440))
        yield self._refused("header-too-large", "LIMIT", "16 MiB", lambda f: f.number("ORIG_HDR", 2880 * 5826))
        yield self._refused("header-longer-than-its-digits", "INTEGRITY", "is cut off", lambda f: f.number("ORIG_HDR", 2 * 2880))
        yield self._refused("data-too-large", "LIMIT", "64 GiB", too_long)

    def table(self):
        def other_length(f):
            f.image[f.table() + 3 * 80 + 29] ^= 1
        def add(f):
            f.image += bytes(2880)
        def cut(f):
            del f.image[-2880:]
        def padding(f):
            f.image[-1] = 1
        yield self._refused("table-of-another-length", "INTEGRITY", TABLE, other_length)
        yield self._refused("table-of-another-name", "INTEGRITY", TABLE, lambda f: f.put("EXTNAME", "X", 12))
        yield self._refused("blanks-behind-the-table", "INTEGRITY", TABLE, lambda f: f.flip(f.table() + 2879))
        yield self._refused("a-block-more", "INTEGRITY", "its header says", add)
        yield self._refused("a-block-less", "INTEGRITY", "its header says", cut)
        yield self._refused("padding", "INTEGRITY", "bytes between its tables", padding, base="cut-off")

    def parts(self):
        for start, column, header in (("NONCE_H", 12, True), ("NONCE_D", 12, False), ("HIERARCH AUTHTAG_H", 23, True), ("HIERARCH AUTHTAG_D", 23, False),
                                      ("ENCHDR", 12, True)):
            states = ("tampered", "right") if header else ("right", "tampered")
            word = start.split()[-1].lower()
            yield self._opened(f"{word}-is-no-number", states, lambda f, s=start, c=column: f.put(s, "x", c))
            yield self._opened(f"{word}-with-a-quote", states, lambda f, s=start, c=column: f.put(s, "'", c))
            yield self._opened(f"{word}-changed", states, lambda f, s=start, c=column: self._other_digit(f, f.find(s) + c - 1))
            yield self._opened(f"{word}-in-capitals", states, lambda f, s=start, c=column: self._capital(f, f.find(s) + c - 1))
        yield self._opened("last-digit-of-the-header", ("tampered", "right"), lambda f: self._other_digit(f, self._last_digit(f)))
        yield self._opened("first-byte-of-data", ("right", "tampered"), lambda f: f.flip(f.table() + 2880))
        yield self._opened("last-byte-of-data", ("right", "tampered"), lambda f: f.flip(len(f.image) - 1))
        yield self._opened("tag-of-nothing", ("right", "tampered"), lambda f: self._other_digit(f, f.find("HIERARCH AUTHTAG_D") + 22), base="no-data")

    @staticmethod
    def _other_digit(frame, at):
        frame.image[at] = ord("0") if frame.image[at] != ord("0") else ord("1")

    @staticmethod
    def _capital(frame, at):
        """The first letter from here on."""
        match = re.compile(rb"[a-f]").search(frame.image, at)
        frame.image[match.start()] -= 32

    @staticmethod
    def _last_digit(frame):
        return frame.image.rindex(b"'", 0, frame.find("END ")) - 1

    def slots(self):
        for part, states in (("H", ("tampered", "right")), ("D", ("right", "tampered"))):
            name = f"WRAPKEY{part}"
            def zero(f, start=name):
                at = f.find(start)
                for line in range(8):
                    f.image[at + 80 * line + 11:at + 80 * line + (78 if line < 7 else 54)] = b"0" * (67 if line < 7 else 43)
            yield self._opened(f"{name}-is-no-number".lower(), states, lambda f, n=name: f.put(n, "g", 12), base="wrapped")
            yield self._opened(f"{name}-length".lower(), states, lambda f, n=name: self._other_digit(f, f.find(n) + 12), base="wrapped")
            yield self._opened(f"{name}-changed".lower(), states, lambda f, n=name: self._other_digit(f, f.find(n) + 80 + 40), base="wrapped")
            yield self._opened(f"{name}-check".lower(), states, lambda f, n=name: self._other_digit(f, f.find(n) + 7 * 80 + 11 + 42), base="wrapped")
            yield self._opened(f"{name}-of-zeros".lower(), states, zero, base="wrapped")
            yield self._refused(f"{name}-of-another-name".lower(), "INTEGRITY", FIRST, lambda f, n=name: f.put(n, "X", 8), base="wrapped")

    def bindings(self):
        both = ("tampered", "tampered")
        yield self._opened("another-frame-id", ("wrong", "wrong"), lambda f: self._other_digit(f, f.find("FRAMEID") + 11))
        yield self._opened("another-collection", ("wrong", "wrong"), lambda f: f.put("COLLID", "1", 12))
        yield self._opened("another-header-commitment", ("wrong", "tampered"), lambda f: self._other_digit(f, f.find("KEYCHK_H") + 11))
        yield self._opened("another-data-commitment", ("tampered", "wrong"), lambda f: self._other_digit(f, f.find("KEYCHK_D") + 11))
        yield self._opened("another-algorithm", ("wrong", "wrong"), lambda f: f.put("ALGORITH", "128", 16))
        yield self._opened("another-bitpix", both, lambda f: f.number("ORIG_BPX", 32))
        yield self._opened("axes-exchanged", both, lambda f: (f.number("ORIG_NA1", 11), f.number("ORIG_NA2", 20)))
        yield self._opened("an-axis-less", both, lambda f: (f.number("ORIG_NAX", 8), f.remove("ORIG_NA9")), base="nine-axes")
        yield self._opened("another-zero-point", both, lambda f: f.put("ORIG_BZE", "32769.0", 12))
        yield self._opened("no-zero-point", both, lambda f: f.remove("ORIG_BZE"))
        yield self._opened("a-blank-value-more", both, lambda f: f.insert("ORIG_HDR", "ORIG_BLK= '1       '"), base="nine-axes")

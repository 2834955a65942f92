# SPDX-License-Identifier: Apache-2.0
"""Small FITS files and what a test changes in their frames."""
import os
import struct

HEADER, DATA, WRONG = "000102030405060708090a0b0c0d0e0f", "f0e0d0c0b0a090807060504030201000", "a" * 32


def header_of(*cards):
    text = b"".join(card.ljust(80).encode() for card in (*cards, "END"))
    return text.ljust(-len(text) // 2880 * -2880)


def image(width=40, height=30, secret="secret target"):
    """One 16-bit image with scaling."""
    header = header_of("SIMPLE  =                    T", "BITPIX  =                   16", "NAXIS   =                    2",
                       f"NAXIS1  = {width:20}", f"NAXIS2  = {height:20}", "BZERO   =              32768.0", f"OBJECT  = '{secret}'")
    pixels = b"".join(struct.pack(">h", (i * 7 + 3) % 30000 - 15000) for i in range(width * height))
    return header + pixels.ljust(-len(pixels) // 2880 * -2880, b"\0")


def key_files(folder):
    """The options that give right and wrong keys by file: {("header", "right"): [...], ...}; missing is no option."""
    words = {}
    for part, right in (("header", HEADER), ("data", DATA)):
        words[part, "missing"] = []
        for kind, digits in (("right", right), ("wrong", WRONG)):
            path = folder / f"{part}-{kind}.key"
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
                file.write(digits + "\n")
            words[part, kind] = [f"--{part}-key", f"file:{path}"]
    return words


def change(frame, version, what):
    """A frame with one bit of the header, of the data or of the structure changed; "nothing": as it is."""
    image = bytearray(frame)
    if what == "nothing":
        return frame
    if version == 1:
        at = {"header": image.index(b"ENCHDR  = '") + 15, "data": image.index(b"'ENCRYPTED_DATA'") // 2880 * 2880 + 2880 + 7,
              "structure": image.index(b"'32768.0") + 1}[what]
        image[at] = ord("2") if image[at] == ord("1") else ord("1") if what != "data" else image[at] ^ 1
        return bytes(image)
    table = image.index(b"'NAOS-SEGMENTS'") // 2880 * 2880
    rows = int(image[table + 4 * 80 + 10:table + 4 * 80 + 30])
    heap = table + 2880 + rows * 57
    at = {"header": heap + 5, "data": heap + 2880 + 7, "structure": image.index(b"32768.0") + 2}[what]
    image[at] ^= 1
    return bytes(image)

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Looks for pieces of the original files in the bytes of the sealed ones: search.py ORIGINAL SEALED.

The pieces: stretches of bases of genomes; identifiers, descriptions and pixels of DICOM files; header cards and pixels of FITS
images. Each is looked for in the originals too, where it must be found: else the search itself would be broken.
"""
import pathlib
import sys
import warnings

import pydicom

warnings.simplefilter("ignore")  # pydicom's test files are odd on purpose
SHORTEST = 8  # bytes; shorter ones would be found in random bytes by chance


def windows(data, count, length, distinct):
    """Pieces spread evenly over data that are not monotonous."""
    step = max(1, len(data) // count)
    pieces = (data[at:at + length] for at in range(0, max(0, len(data) - length), step))
    return {piece for piece in pieces if len(set(piece)) >= distinct}


def genome(path):
    heading, _, bases = path.read_bytes().partition(b"\n")
    yield "names of sequences", {word for word in heading.split(b"|") if len(word) >= SHORTEST}
    lines = bases.split(b"\n")
    yield "stretches of bases", {line[:40] for line in lines[::max(1, len(lines) // 300)] if len(line) >= 40}


def dicom(path):
    image = pydicom.dcmread(path, force=True)
    found = set()
    for element in image.iterall():
        if element.tag.group in (0x0008, 0x0010, 0x0018, 0x0020) and element.VR in ("PN", "LO", "SH", "LT", "ST", "UI", "DA", "DS"):
            raw = str(element.value).encode("latin-1", "ignore")
            if len(raw) >= SHORTEST and b"[" not in raw:
                found.add(raw)
    data = path.read_bytes()
    yield "DICOM fields", {raw for raw in found if raw in data}  # as they are in the file
    if "PixelData" in image:
        yield "DICOM pixels", windows(image.PixelData, 50, 64, 16)


def fits(path):
    data = path.read_bytes()
    end = data.find(b"END" + b" " * 77)
    yield "FITS header cards", {data[at:at + 80].rstrip() for at in range(0, end, 80) if len(data[at:at + 80].rstrip()) >= 20}
    yield "FITS pixels", windows(data[(end // 2880 + 1) * 2880:], 300, 64, 24)


READERS = {".fna": genome, ".dcm": dicom, ".fits": fits}


def contents(folder):
    return [path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()]


def found_in(pieces, files):
    return sum(any(piece in data for data in files) for piece in pieces)


def main(original, sealed):
    pieces = {}
    for path in sorted(pathlib.Path(original).rglob("*")):
        for kind, some in READERS.get(path.suffix, lambda _: ())(path):
            pieces.setdefault(kind, set()).update(some)
    plain, cipher = contents(pathlib.Path(original)), contents(pathlib.Path(sealed))
    print(f"{'looked for':<22}{'pieces':>8}{'in the original':>18}{'in the ciphertext':>20}")
    good = bool(pieces) and bool(cipher)
    for kind, some in pieces.items():
        there, leaked = found_in(some, plain), found_in(some, cipher)
        print(f"{kind:<22}{len(some):>8}{there:>18}{leaked:>20}")
        good = good and some and there == len(some) and leaked == 0
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

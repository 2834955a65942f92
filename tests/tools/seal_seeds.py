#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of tests/fuzz/sealed_file.c and sealed_record.c from the golden files: seal_seeds.py SOURCE-ROOT.

The targets make most seeds authentic with a key of their own, so the pages of data are left out where that is done.
"""
import pathlib
import struct
import sys

AUTHENTIC, WRITE, FULL = 1, 2, 4
RECORDS = {"header": 0, "states": 1, "fek-slot": 2, "sector": 3, "map": 4}
# name: golden file, options, pages that are kept (None: all)
FILES = {
    "one-byte": ("one-byte", AUTHENTIC, {0}),
    "versions": ("many-versions", AUTHENTIC, {0}),
    "truncated": ("truncated", AUTHENTIC | WRITE | FULL, {0}),
    "holes": ("groups-with-holes", AUTHENTIC | WRITE, {0, 19}),
    "unclean": ("unclean-overwritten", WRITE, {0, 2}),
    "crashed": ("unclean-crashed", AUTHENTIC, {0}),
    "two-keys": ("two-fek-slots", AUTHENTIC, {0}),
}


def pages_of(folder, name):
    """Pages by number, and the size."""
    plain = folder / f"{name}.sealed"
    if plain.exists():
        data = plain.read_bytes()
        return {at // 4096: data[at:at + 4096] for at in range(0, len(data), 4096)}, len(data)
    data = (folder / f"{name}.pages").read_bytes()
    pages = {struct.unpack_from("<Q", data, at)[0]: data[at + 8:at + 4104] for at in range(0, len(data) - 16, 4104)}
    return pages, struct.unpack_from("<Q", data, len(data) - 8)[0]


def main():
    root = pathlib.Path(sys.argv[1])
    golden, seeds = root / "tests/data/sealed", root / "tests/fuzz/seeds"
    for folder in ("sealed_file", "sealed_record"):
        (seeds / folder).mkdir(parents=True, exist_ok=True)
    for name, (source, options, kept) in FILES.items():
        pages, size = pages_of(golden, source)
        seed = struct.pack("<BI", options, size)
        for number in sorted(kept):
            seed += struct.pack("<H", number) + pages[number].ljust(4096, b"\0")
        (seeds / "sealed_file" / name).write_bytes(seed.rstrip(b"\0"))
    page0, holes = pages_of(golden, "unclean-overwritten")[0][0], pages_of(golden, "groups-with-holes")[0]
    records = {"header": page0[:512], "states": page0[:1536], "fek-slot": page0[1536:1792], "sector": page0[2560:3072], "map": holes[19]}
    for name, data in records.items():
        (seeds / "sealed_record" / name).write_bytes(bytes([RECORDS[name]]) + data)
        (seeds / "sealed_record" / f"{name}-authentic").write_bytes(bytes([0x80 | RECORDS[name]]) + data)


main()

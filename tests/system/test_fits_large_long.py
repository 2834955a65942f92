# SPDX-License-Identifier: Apache-2.0
"""A real file of more than 4 GiB, sealed and opened; tests/unit/fits_large.c has what is beyond 64 GiB."""
import os
import shutil
import subprocess

import pytest

import fits_corpus
from test_fits_odd import card, header

GIB = 1 << 30


def test_a_file_of_5_gib_comes_back(naos, tmp_path):
    if shutil.disk_usage(tmp_path).free < 16 * GIB:
        pytest.skip("it needs 16 GiB of free disk")
    keys, plain, sealed, opened = fits_corpus.key_options(tmp_path), *(tmp_path / name for name in ("plain.fits", "sealed.fits", "opened.fits"))
    size = 5 * GIB // 2880 * 2880
    with open(plain, "wb") as file:  # mostly a hole: only the sealed one takes room
        file.write(header(card("SIMPLE", "T"), card("BITPIX", 8), card("NAXIS", 2), card("NAXIS1", 2880), card("NAXIS2", size // 2880)))
        for place in (3000, 2 * GIB - 700, 4 * GIB - 700, 4 * GIB + 9000000, size - 1000):
            file.seek(place)
            file.write(os.urandom(1400))
        file.truncate(2880 + size)
    try:
        naos.ok("fits", "seal", *keys["header"], *keys["data"], plain, sealed)
        naos.ok("fits", "verify", *keys["header"], *keys["data"], sealed)
        naos.ok("fits", "open", *keys["header"], *keys["data"], sealed, opened)
        assert subprocess.run(["cmp", plain, opened]).returncode == 0
        naos.ok("fits", "open", "--force", *keys["header"], sealed, opened)
        assert opened.stat().st_size == plain.stat().st_size and opened.stat().st_blocks < 1000  # zeros take no room
        naos.ok("fits", "cutout", "--section", f"[1001:2000,{size // 2880}:{size // 2880}]", *keys["header"], *keys["data"], sealed, tmp_path / "part.fits")
        with open(plain, "rb") as file:
            file.seek(2880 + size - 2880 + 1000)
            assert (tmp_path / "part.fits").read_bytes()[2880:3880] == file.read(1000)
    finally:
        for path in (plain, sealed, opened):
            path.unlink(missing_ok=True)

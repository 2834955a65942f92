# SPDX-License-Identifier: Apache-2.0
"""Every kind of unit and of number that FITS has, long headers, and file names that CFITSIO would take for more than names."""
import os
import struct

import pytest

import fits_corpus

BLOCK = 2880


def header(*cards):
    text = "".join(f"{card:<80}" for card in (*cards, "END"))
    return text.encode("latin-1").ljust(-(-len(text) // BLOCK) * BLOCK)


def card(keyword, value):
    return f"{keyword:<8}= {value:>20}"


def data(content):
    return content.ljust(-(-len(content) // BLOCK) * BLOCK, b"\0")


def image(bitpix, axes, content, *more, extension=False):
    first = "XTENSION= 'IMAGE   '" if extension else card("SIMPLE", "T")
    sizes = [card(f"NAXIS{i + 1}", size) for i, size in enumerate(axes)]
    return header(first, card("BITPIX", bitpix), card("NAXIS", len(axes)), *sizes, *([card("PCOUNT", 0), card("GCOUNT", 1)] if extension else []),
                  *more) + data(content)


def numbers(bitpix):
    """Pixels that break what scales, swaps or prints them: extremes, NaNs with payloads, infinities, -0, subnormals."""
    if bitpix > 0:
        half = 1 << (bitpix - 1)
        low, high = (0, 2 * half - 1) if bitpix == 8 else (-half, half - 1)
        return b"".join(value.to_bytes(bitpix // 8, "big", signed=bitpix != 8) for value in (low, low + 1, 0, 1, high - 1, high))
    quiet = ([0x7fc00000, 0x7fc12345, 0xffffffff, 0x7f800001, 0x7f800000, 0xff800000, 0x80000000, 1] if bitpix == -32 else
             [0x7ff8000000000000, 0x7ff8deadbeef0001, 0xffffffffffffffff, 0x7ff0000000000001, 0x7ff0000000000000, 1 << 63, 1, 42])
    return b"".join(struct.pack(">I" if bitpix == -32 else ">Q", value) for value in quiet[:6])


def made_by_astropy(kind):
    fits = pytest.importorskip("astropy.io.fits", reason="python3-astropy is not installed")
    import io
    import numpy as np
    target, pixels = io.BytesIO(), np.arange(4096, dtype="i2").reshape(64, 64)
    if kind == "heap":
        column = fits.Column("LISTS", "PJ()", array=np.array([np.arange(n, dtype="i4") for n in (0, 1, 500, 3)], dtype=object))
        wide = fits.Column("MORE", "QD()", array=np.array([np.arange(n, dtype="f8") for n in (2, 0, 1, 77)], dtype=object))
        fits.HDUList([fits.PrimaryHDU(), fits.BinTableHDU.from_columns([column, wide])]).writeto(target)
    elif kind == "unsigned":
        fits.HDUList([fits.PrimaryHDU(pixels.astype("u2") * 16), fits.ImageHDU(pixels.astype("u4") << 20), fits.ImageHDU(pixels.astype("i1"))]).writeto(target)
    else:
        fits.HDUList([fits.PrimaryHDU(), fits.CompImageHDU(pixels, compression_type=kind)]).writeto(target)
    return target.getvalue()


KINDS = {f"BITPIX {bitpix}": (lambda bitpix=bitpix: image(bitpix, (3, 2), numbers(bitpix))) for bitpix in (8, 16, 32, 64, -32, -64)}
KINDS.update({
    "scaled": lambda: image(16, (3, 2), numbers(16), card("BZERO", "32768.0"), card("BSCALE", "0.125"), card("BLANK", "-32768")),
    "no data": lambda: header(card("SIMPLE", "T"), card("BITPIX", 8), card("NAXIS", 0)),
    "an empty axis": lambda: image(16, (0, 5), b""),
    "999 axes": lambda: image(8, (1,) * 998 + (7,), b"0123456"),
    "120 axes in an extension": lambda: image(8, (), b"", card("EXTEND", "T")) + image(16, (3, 2), numbers(16), extension=True)
                                        + image(16, (3,) + (1,) * 118 + (2,), numbers(16), extension=True) + image(8, (1,), b"x", extension=True),
    "many extensions": lambda: image(8, (), b"", card("EXTEND", "T")) + b"".join(image(16, (3, 2), numbers(16), card("EXTVER", n), extension=True)
                                                                                   for n in range(1, 301)),
    "a long header": lambda: image(16, (3, 2), numbers(16), *(f"HISTORY step {n} of a long reduction" for n in range(20000))),
    "CONTINUE, HIERARCH": lambda: image(8, (1,), b"x", "LONGSTRN= 'OGIP 1.0'", "STORY   = 'a text that goes on&'", "CONTINUE  'and on and on&'", "CONTINUE  '' / end",
                                        "HIERARCH ESO DET CHIP1 NAME = 'Marlene'", "KEYWORD =                    5 / value", "        a comment without keyword",
                                        "COMMENT = 'no value'", "AVALUE  = / none", "CPLX    = (1.0, -2.5E-300)", "DUP     = 1", "DUP     = 2"),
    "blanks before END": lambda: image(8, (1,), b"x", *[""] * 200),
    "bytes behind": lambda: image(8, (1,), b"x") + b"not a unit" * 1000,
    "cut off": lambda: image(8, (10000,), b"x" * 10000)[:BLOCK + 5000],
    "random groups": lambda: header(card("SIMPLE", "T"), card("BITPIX", -32), card("NAXIS", 3), card("NAXIS1", 0), card("NAXIS2", 3), card("NAXIS3", 4),
                                    card("GROUPS", "T"), card("PCOUNT", 2), card("GCOUNT", 10), "PTYPE1  = 'UU      '", "PTYPE2  = 'VV      '") + data(numbers(-32) * 20 + bytes(80)),
    "heap": lambda: made_by_astropy("heap"), "unsigned": lambda: made_by_astropy("unsigned"),
    "an empty tile": lambda: made_by_astropy("RICE_1").replace(b"ZTILE1  =                   64", b"ZTILE1  =                    0"),
    "RICE_1": lambda: made_by_astropy("RICE_1"), "GZIP_1": lambda: made_by_astropy("GZIP_1"), "PLIO_1": lambda: made_by_astropy("PLIO_1"),
    "HCOMPRESS_1": lambda: made_by_astropy("HCOMPRESS_1"),
})


UNITS = {"120 axes in an extension": 4, "many extensions": 301, "bytes behind": 2, "heap": 2, "unsigned": 3, "an empty tile": 2, "RICE_1": 2, "GZIP_1": 2, "PLIO_1": 2, "HCOMPRESS_1": 2}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_unit_comes_back_and_each_key_gives_a_readable_file(naos, tmp_path, kind):
    path = tmp_path / "original.fits"
    path.write_bytes(KINDS[kind]())
    corpus = fits_corpus.Corpus(naos, tmp_path, fits_corpus.readers())
    corpus.run(path, kind)
    assert not corpus.wrong and not corpus.worse and corpus.identical == 1, (corpus.wrong, corpus.worse, corpus.refused)
    (info,) = naos.json("fits", "info", tmp_path / "sealed.fits")
    assert info["units"] == UNITS.get(kind, 1)


# CFITSIO takes these for a section, a filter, a URL, a template, memory, standard output, a list, a file that is to be replaced.
NAMES = ["image.fits[1]", "image.fits[1:2,1:2]", "image.fits[col X]", "image.fits(other.fits)", "image.fits+1", "http:image.fits", "ftp:image.fits", "root:image.fits",
         "VISIR.2004-05-12T03:17:01.153.fits", "mem:", "shmem:h7", "stream:", "-", "stdout", "@list.fits", "!image.fits", " image.fits", "image.fits.gz", "image.fits.Z",
         "image.fits[bin x,y]", "image.fits[#row>1]", "regtemplate.tpl", "$HOME.fits", "~root.fits", "bild-ä.fits", "new\nline.fits"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_a_name(naos, tmp_path, name):
    keys = fits_corpus.key_options(tmp_path)
    room = tmp_path / "room"
    room.mkdir()
    content = image(16, (3, 2), numbers(16), "OBJECT  = 'M 51    '")
    (room / name).write_bytes(content)
    naos.ok("fits", "seal", *keys["header"], *keys["data"], "--", name, "sealed " + name, cwd=room)
    naos.ok("fits", "open", *keys["header"], *keys["data"], "--", "sealed " + name, "opened " + name, cwd=room)
    assert (room / ("opened " + name)).read_bytes() == content
    os.rename(room / ("sealed " + name), room / "sealed")
    os.unlink(room / name)
    naos.ok("fits", "cutout", "--section", "[1:2,1:2]", *keys["header"], *keys["data"], "--", "sealed", name, cwd=room)
    assert (room / name).read_bytes()[:30] == b"SIMPLE  =                    T"
    assert sorted(os.listdir(room)) == sorted([name, "opened " + name, "sealed"])

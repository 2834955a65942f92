# SPDX-License-Identifier: Apache-2.0
"""Cut-outs beside astropy: pixels, world coordinates, sections, places in the sky, compressed images, single units, bytes that are read."""
import math
import os
import pathlib
import shutil
import subprocess
import warnings

import pytest

np = pytest.importorskip("numpy", reason="python3-astropy is not installed")
fits = pytest.importorskip("astropy.io.fits", reason="python3-astropy is not installed")
from astropy.coordinates import SkyCoord  # noqa: E402
from astropy.nddata import Cutout2D  # noqa: E402
from astropy.nddata.utils import NoOverlapError  # noqa: E402
from astropy.wcs import WCS  # noqa: E402
from astropy.wcs.utils import proj_plane_pixel_scales  # noqa: E402
import astropy.units as u  # noqa: E402

IMAGE = pathlib.Path("/usr/share/python-drizzle/test_data/j8bt06nyq_flt.fits")
DISTORTED = pathlib.Path("/usr/share/python-drizzle/test_data/input1.fits")  # with SIP, and tilted
HEADER, DATA = "000102030405060708090a0b0c0d0e0f", "f0e0d0c0b0a090807060504030201000"
warnings.simplefilter("ignore")


@pytest.fixture
def keys(tmp_path):
    words = []
    for name, digits in (("header", HEADER), ("data", DATA)):
        path = tmp_path / f"{name}.key"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(digits + "\n")
        words += [f"--{name}-key", f"file:{path}"]
    return words


@pytest.fixture
def cut(naos, keys, tmp_path):
    """Seals a file and cuts parts out of it: cut(path)(options…) → (HDU list, JSON)."""
    def seal(path, segment="64KiB"):
        sealed = tmp_path / "sealed.fits"
        naos.ok("fits", "seal", "--force", "--segment", segment, *keys, path, sealed)

        def part(*options):
            target = tmp_path / "part.fits"
            (told,) = naos.json("fits", "cutout", "--force", *keys, *options, sealed, target)
            verified(target)
            return fits.open(target), told
        part.sealed = sealed
        return part
    return seal


def verified(path):
    if not shutil.which("fitsverify"):
        pytest.skip("fitsverify is not installed")
    done = subprocess.run(["fitsverify", "-e", "-q", str(path)], capture_output=True, text=True, timeout=60)
    assert "verification OK" in done.stdout, done.stdout


def need_image():
    if not IMAGE.exists() or not DISTORTED.exists():
        pytest.skip("python-drizzle-testdata has the image")


def without_tables(header):
    header = header.copy()
    for word in [w for w in header if w.startswith(("CPDIS", "DP1", "DP2", "CPERR", "D2IM"))]:
        header.remove(word, ignore_missing=True, remove_all=True)
    return header


def same_sky(header, part, section, tolerance=1e-9):
    """Each corner and the middle of the part has the coordinates that it had in the image. section: first, step by axis."""
    old, new = WCS(without_tables(header)), WCS(part.header)
    (fx, sx), (fy, sy) = section
    ny, nx = part.data.shape[-2:]
    for x in (0, nx // 2, nx - 1):
        for y in (0, ny // 2, ny - 1):
            was, now = old.all_pix2world(fx - 1 + x * sx, fy - 1 + y * sy, 0), new.all_pix2world(x, y, 0)
            assert np.allclose(was, now, rtol=0, atol=tolerance), (x, y, was, now)


@pytest.mark.parametrize("image", [IMAGE, DISTORTED])
@pytest.mark.parametrize("text, index, section", [
    ("[101:356,11:266]", np.s_[10:266, 100:356], ((101, 1), (11, 1))),
    ("[356:101,*]", np.s_[:, 355:99:-1], ((356, -1), (1, 1))),
    ("[-*,-*]", np.s_[::-1, ::-1], ((1024, -1), (1024, -1))),
    ("[5:700:3,20:9:2]", np.s_[19:7:-2, 4:700:3], ((5, 3), (20, -2))),
    ("1:1,1024:1024", np.s_[1023:1024, 0:1], ((1, 1), (1024, 1))),
    ("[*:1023,*:500]", np.s_[::500, ::1023], ((1, 1023), (1, 500))),
])
def test_sections_have_the_pixels_and_coordinates_that_they_had(cut, image, text, index, section):
    need_image()
    original = fits.open(image)[1]
    if original.data.shape != (1024, 1024):
        pytest.fail("the test expects another image")
    (part, *_), told = cut(image)("--section", text, "--hdu", "SCI")
    assert np.array_equal(part.data, original.data[index])
    assert told["hdu"] == 1 and not told["clipped"]
    assert ("A_ORDER" in part.header) == (image == DISTORTED)
    same_sky(original.header, part, section)
    (fx, sx), (fy, sy) = section
    for axis, first, step in ((1, fx, sx), (2, fy, sy)):  # logical = LTM * physical + LTV
        moved = (first, step) != (1, 1)
        assert part.header.get(f"LTM{axis}_{axis}", 1) == pytest.approx(1 / step)
        assert part.header.get(f"LTV{axis}", 0) == pytest.approx(1 - first / step if moved else 0)


@pytest.mark.parametrize("image", [IMAGE, DISTORTED])
def test_the_same_as_astropys_cutout(cut, image):
    need_image()
    original = fits.open(image)[1]
    wcs = WCS(without_tables(original.header))
    for (x, y), width, height in (((500.3, 300.8), 256, 100), ((10, 1000), 101, 101), ((512, 512), 1, 1)):
        place = SkyCoord(*wcs.all_pix2world(x, y, 0), unit="deg")
        sx, sy = proj_plane_pixel_scales(wcs)
        theirs = Cutout2D(original.data, place, (height, width), wcs=wcs, mode="trim")
        options = ["--hdu", "SCI,1", "--size", f"{width * sx:.12f},{height * sy:.12f}"]
        for center in (f"{place.ra.deg:.12f},{place.dec.deg:.12f}",
                       f"{place.ra.to_string(u.hour, sep=':', precision=9)},{place.dec.to_string(u.deg, sep=':', precision=9)}"):
            (ours, *_), told = cut(image)(*options, "--center", center)
            assert np.array_equal(ours.data, theirs.data)
            (y0, y1), (x0, x1) = theirs.bbox_original
            assert told["section"] == f"[{x0 + 1}:{x1 + 1},{y0 + 1}:{y1 + 1}]"
            assert told["clipped"] == (theirs.data.shape != (height, width))
            here = WCS(ours.header)
            for corner in ((0, 0), (x1 - x0, 0), (0, y1 - y0), (x1 - x0, y1 - y0)):
                assert np.allclose(here.all_pix2world(*corner, 0), theirs.wcs.all_pix2world(*corner, 0), rtol=0, atol=1e-10)


def test_minutes_and_seconds_of_arc_and_places_outside(cut, naos, keys, tmp_path):
    need_image()
    original = fits.open(IMAGE)[1]
    wcs = WCS(without_tables(original.header))
    scale = proj_plane_pixel_scales(wcs)
    ra, dec = wcs.all_pix2world(400, 500, 0)
    seal = cut(IMAGE)
    (part, *_), _ = seal("--center", f"{ra:.10f},{dec:.10f}", "--size", "6\",0.05'", "--hdu", "1")
    assert part.data.shape == (round(3 / 3600 / scale[1]), round(6 / 3600 / scale[0]))
    for place in (f"{ra + 1:.6f},{dec:.6f}", f"{(ra + 180) % 360:.6f},{-dec:.6f}"):  # beside it, and behind us
        stderr = naos.fails(1, "fits", "cutout", *keys, "--center", place, "--size", "1'", seal.sealed, tmp_path / "no.fits")
        assert "outside" in stderr or "not on the image" in stderr
    out = naos("fits", "cutout", *keys, "--center", f"{ra:.10f},{dec:.10f}", "--size", "1d", seal.sealed, tmp_path / "all.fits")
    assert out.returncode == 0 and "only [1:1024,1:1024] of what was asked for" in out.stderr
    for wrong in (["--center", "10,20"], ["--size", "1"], ["--center", "10", "--size", "1"], ["--center", "10,91", "--size", "1"],
                  ["--center", "1:60:0,5", "--size", "1"], ["--center", "10,20", "--size", "0"], ["--center", "10,20", "--size", "1,2,3"],
                  ["--center", "10,20", "--size", "1", "--section", "[1:2,1:2]"]):
        naos.fails(2, "fits", "cutout", *keys, *wrong, seal.sealed, tmp_path / "no.fits")
    assert not (tmp_path / "no.fits").exists()


def synthetic(path, shape=(300, 400), angle=33.0, more=None, data=None, compressed=False):
    """An image with a rotated tangent projection in the PC form and an alternate description."""
    data = np.arange(math.prod(shape), dtype="int16").reshape(shape) if data is None else data
    header = fits.Header()
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    for word, value in (("CTYPE1", "RA---TAN"), ("CTYPE2", "DEC--TAN"), ("CRVAL1", 83.6), ("CRVAL2", -5.4), ("CRPIX1", 120.5),
                        ("CRPIX2", 170.25), ("CDELT1", -1e-3), ("CDELT2", 1e-3), ("PC1_1", c), ("PC1_2", -s), ("PC2_1", s), ("PC2_2", c),
                        ("CUNIT1", "deg"), ("CUNIT2", "deg"), ("CTYPE1P", "X"), ("CTYPE2P", "Y"), ("CRPIX1P", 1.0), ("CRPIX2P", 1.0),
                        ("CRVAL1P", 1000.0), ("CRVAL2P", 2000.0), ("CDELT1P", 1.0), ("CDELT2P", 1.0), ("LTV1", 5.0), ("LTM1_1", 0.5)):
        header[word] = value
    header.update(more or {})
    hdu = fits.CompImageHDU(data, header, **compressed) if compressed else fits.PrimaryHDU(data, header)
    (fits.HDUList([fits.PrimaryHDU(), hdu]) if compressed else hdu).writeto(path, overwrite=True)
    return fits.open(path)[1 if compressed else 0]


@pytest.mark.parametrize("more", [{}, {"PC1_1": None}, {"CROTA2": 20.0}])
def test_rotated_images_and_alternate_descriptions(cut, tmp_path, more):
    original = synthetic(tmp_path / "image.fits")
    if more.get("CROTA2"):
        with fits.open(tmp_path / "image.fits", mode="update") as hdus:
            for word in ("PC1_1", "PC1_2", "PC2_1", "PC2_2"):
                del hdus[0].header[word]
            hdus[0].header["CROTA2"] = 20.0
    elif "PC1_1" in more:
        with fits.open(tmp_path / "image.fits", mode="update") as hdus:  # one is its default, and another is zero
            for word in ("PC1_1", "PC2_2", "PC2_1"):
                del hdus[0].header[word]
    original = fits.open(tmp_path / "image.fits")[0]
    seal = cut(tmp_path / "image.fits")
    for text, section in (("[51:200,31:90]", ((51, 1), (31, 1))), ("[200:51:2,31:90:3]", ((200, -2), (31, 3))), ("[-*,*]", ((400, -1), (1, 1)))):
        (part, *_), _ = seal("--section", text)
        same_sky(original.header, part, section)
        (fx, sx), _ = section
        alternate = WCS(part.header, key="P")
        assert alternate.wcs_pix2world(0, 0, 0)[0] == pytest.approx(1000 + fx - 1)
        assert part.header["LTV1"] == pytest.approx((5 - fx) / sx + 1) and part.header["LTM1_1"] == pytest.approx(0.5 / sx)


def test_a_plane_of_a_cube_keeps_its_other_axis(cut, tmp_path):
    data = np.arange(4 * 60 * 50, dtype=">f4").reshape(4, 60, 50)
    synthetic(tmp_path / "cube.fits", data=data, more={"CTYPE3": "FREQ", "CRVAL3": 1e9, "CRPIX3": 2.0, "CDELT3": 1e6, "CUNIT3": "Hz"})
    header = fits.getheader(tmp_path / "cube.fits")
    seal = cut(tmp_path / "cube.fits")
    (part, *_), _ = seal("--section", "[11:20,5:7,3:2]")
    assert np.array_equal(part.data, data[2:0:-1, 4:7, 10:20])
    assert WCS(part.header).all_pix2world(0, 0, 0, 0)[2] == pytest.approx(WCS(header).all_pix2world(10, 4, 2, 0)[2])
    sky = WCS(header).celestial
    ra, dec = sky.all_pix2world(25, 30, 0)
    (part, *_), told = seal("--center", f"{ra:.9f},{dec:.9f}", "--size", "0.010")
    assert part.data.shape == (4, 10, 10) and told["section"].endswith(",1:4]")


@pytest.mark.parametrize("dtype, options", [
    ("int16", {"compression_type": "RICE_1"}), ("uint16", {"compression_type": "RICE_1", "tile_shape": (50, 70)}),
    ("int32", {"compression_type": "GZIP_2"}), ("uint8", {"compression_type": "PLIO_1"}),
    ("float32", {"compression_type": "RICE_1", "quantize_level": 16, "tile_shape": (64, 64)}),
    ("float32", {"compression_type": "GZIP_1", "quantize_level": 0}), ("float64", {"compression_type": "GZIP_2", "quantize_level": 0}),
])
def test_compressed_images_give_the_values_that_astropy_reads(cut, tmp_path, dtype, options):
    import inspect
    if "tile_shape" in options and "tile_shape" not in inspect.signature(fits.CompImageHDU.__init__).parameters:
        options = dict(options)
        options["tile_size"] = options.pop("tile_shape")[::-1]
    random = np.random.default_rng(7)
    data = (random.normal(1000, 50, (300, 400)) if dtype[0] == "f" else random.integers(0, 200, (300, 400))).astype(dtype)
    if dtype == "uint16":
        data += 40000
    if dtype[0] == "f":
        data[40:45, 100:120] = np.nan
    original = synthetic(tmp_path / "tiles.fits", data=data, compressed=options)
    values = original.data
    seal = cut(tmp_path / "tiles.fits")
    for text, index, section in (("[91:200,31:90]", np.s_[30:90, 90:200], ((91, 1), (31, 1))),
                                 ("[200:91:3,*]", np.s_[:, 199:89:-3], ((200, -3), (1, 1)))):
        (part, *_), _ = seal("--section", text)
        assert part.data.dtype.newbyteorder("=") == values.dtype.newbyteorder("=")
        assert np.array_equal(part.data, values[index], equal_nan=dtype[0] == "f")
        same_sky(original.header, part, section)
        assert "ZIMAGE" not in part.header and "TFORM1" not in part.header


@pytest.mark.parametrize("name", ["comp.fits", "compressed_image.fits", "double_ext.fits"])
def test_compressed_images_of_others(cut, name):
    """Written by other programs, with keywords in other orders."""
    paths = list(pathlib.Path(fits.__file__).parent.rglob(name))
    if not paths:
        pytest.skip("python3-astropy has the files")
    original = next(hdu for hdu in fits.open(paths[0]) if isinstance(hdu, fits.CompImageHDU))
    (part, *_), _ = cut(paths[0])("--section", "[2:4,3:5]")
    assert np.array_equal(part.data, original.data[2:5, 1:4], equal_nan=part.data.dtype.kind == "f")
    assert set(part.header) - set(original.header) <= {"SIMPLE", "EXTEND", "LTV1", "LTV2", "BSCALE", "BZERO"}


def test_blank_pixels_of_a_compressed_image_stay_blank(cut, tmp_path):
    data = np.arange(40 * 50, dtype="int32").reshape(40, 50)
    data[10:12, 20:30] = -99
    synthetic(tmp_path / "tiles.fits", data=data, more={"BLANK": -99}, compressed={"compression_type": "RICE_1"})
    (part, *_), _ = cut(tmp_path / "tiles.fits")("--section", "[15:40,5:20]")
    assert part.header["BLANK"] == -99 and "ZBLANK" not in part.header
    with fits.open(tmp_path / "part.fits", do_not_scale_image_data=True) as raw:
        assert (raw[0].data == data[4:20, 14:40]).all()


def test_only_the_segments_that_are_needed_are_read(cut, tmp_path):
    data = np.random.default_rng(1).integers(0, 30000, (4096, 2048)).astype("int16")  # 16 MiB
    synthetic(tmp_path / "large.fits", data=data)
    _, told = cut(tmp_path / "large.fits")("--section", "[101:200,2001:2016]")
    assert told["data_segments"] <= 2  # 16 rows of 4 KiB
    assert told["bytes_read"] < 3 * (65536 + 57) + 2 * 65536  # with the header's
    _, told = cut(tmp_path / "large.fits")("--section", "[101:200,4096:1:4095]")
    assert told["data_segments"] == 2
    synthetic(tmp_path / "tiles.fits", data=data, compressed={"compression_type": "RICE_1"})
    size = (tmp_path / "tiles.fits").stat().st_size
    _, told = cut(tmp_path / "tiles.fits")("--section", "[101:200,2001:2016]")
    assert told["bytes_read"] < 8 * 65536 < size / 10, (told, size)


def test_a_unit_is_had_by_number_and_name(cut, naos, keys, tmp_path):
    need_image()
    original = fits.open(IMAGE)
    seal = cut(IMAGE)
    for name, index in (("0", 0), ("dq", 3), ("DQ,1", 3), ("1", 1)):
        part, told = seal("--hdu", name)
        assert told["hdu"] == index and len(part) == (1 if index == 0 else 2)
        assert np.array_equal(part[-1].data, original[index].data) or original[index].data is None
        assert part[-1].header["EXTNAME" if index else "INSTRUME"] == original[index].header["EXTNAME" if index else "INSTRUME"]
    (part, *_), told = seal("--section", "[1:2,1:2]")  # the first image, not the empty primary unit
    assert told["hdu"] == 1
    for wrong in ("9", "NONE", "SCI,2", "SCI,x"):
        assert "unit" in naos.fails(2, "fits", "cutout", *keys, "--hdu", wrong, seal.sealed, tmp_path / "no.fits")


def test_a_header_costs_no_data(cut, naos, keys, tmp_path):
    need_image()
    seal = cut(IMAGE)
    shown = naos.ok("fits", "cutout", "--header", *keys[:2], seal.sealed)  # the header key alone
    assert shown.count("\nEND\n") == 4 and shown.startswith("SIMPLE  =")
    naos.ok("fits", "cutout", "--header", "--hdu", "SCI", *keys[:2], seal.sealed, tmp_path / "sci.hdr")
    assert fits.Header.fromfile(str(tmp_path / "sci.hdr")) == fits.getheader(IMAGE, 1)
    (told,) = naos.json("fits", "cutout", "--header", "--hdu", "1", *keys[:2], seal.sealed)
    assert told["cards"][0].startswith("XTENSION") and told["cards"][-1].startswith("END")
    assert "no header key" in naos.fails(3, "fits", "cutout", "--header", seal.sealed)


def test_stamps_of_a_place_from_a_tree(naos, keys, tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    for i in range(5):
        synthetic(tree / f"{i}.fits", more={"CRVAL1": 83.6 + 40 * (i % 2)})
    naos.ok("fits", "seal", *keys, tree, tmp_path / "sealed")
    place = ["--center", "83.6,-5.4", "--size", "0.05"]
    out = naos("fits", "cutout", *keys, *place, tmp_path / "sealed", tmp_path / "stamps")
    assert out.returncode == 0 and "3 files" in out.stdout and "2 left out" in out.stdout
    assert sorted(p.name for p in (tmp_path / "stamps").iterdir()) == ["0.fits", "2.fits", "4.fits"]
    assert "3 were current" in naos.ok("fits", "cutout", *keys, *place, tmp_path / "sealed", tmp_path / "stamps")
    assert "3 failed" in naos("fits", "cutout", *keys, *place[:3], "0.06", tmp_path / "sealed", tmp_path / "stamps").stdout

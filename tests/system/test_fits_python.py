# SPDX-License-Identifier: Apache-2.0
"""The Python package on a real image: levels, lazy reading, cut-outs, exceptions."""
import os
import shutil
import subprocess

import pytest

import conftest

IMAGE = "/usr/share/python-drizzle/test_data/j8bt06nyq_flt.fits"
SCRIPT = r'''
import sys, os, hashlib, warnings
import numpy as np
from astropy.io import fits
import naos
image, directory = sys.argv[1:3]
path = lambda name: os.path.join(directory, name)
header, data = bytes(range(16)), "f0e0d0c0b0a090807060504030201000"
naos.seal(image, path("s.fits"), header_key=header, data_key=data, segment_bytes=65536)
try:
    naos.seal(image, path("s.fits"), header_key=header, data_key=data)
    raise SystemExit("an existing file was replaced")
except FileExistsError as error:  # as any program of Python expects
    assert isinstance(error, naos.ExistsError) and isinstance(error, naos.SystemFailure) and "s.fits" in str(error)
    assert error.name == "NAOS_E_EXISTS" and error.remedy
assert naos.info(path("s.fits"))["units"] == 4 and naos.info(path("s.fits"))["segment_bytes"] == 65536
original = fits.open(image)
with naos.open(path("s.fits"), header, data, key_manager=False) as hdus:
    assert len(hdus) == len(original)
    for ours, theirs in zip(hdus, original):
        assert repr(ours.header) == repr(theirs.header)
        assert ours.data is None and theirs.data is None or np.array_equal(ours.data, theirs.data)
    assert np.array_equal(hdus[1].section[100:200, 300:310], original[1].data[100:200, 300:310])
with naos.Frame(path("s.fits"), header, data, key_manager=False) as frame:
    assert frame.level == "full" and frame.keys == ("right", "right") and frame.reasons == ("", "")
    assert frame.read(0, frame.size + 100) == open(image, "rb").read()
    part = frame.cutout("[11:20,1:5]", unit=1)
    assert np.array_equal(part[0].data, original[1].data[0:5, 10:20])
    read = frame.statistics
    assert np.array_equal(frame.section("SCI")[10:20, 100:140], original[1].data[10:20, 100:140])
    assert frame.statistics["data_segments"] - read["data_segments"] <= 2
    from astropy.wcs import WCS
    from astropy.coordinates import SkyCoord
    import astropy.units as u
    place = SkyCoord(*WCS(original[1].header).all_pix2world(500.2, 600.7, 0), unit="deg")
    box = frame.cutout(unit=("SCI", 1), center=place, size=(1 * u.arcsec, 0.5 * u.arcsec))
    x, y = WCS(box[0].header).world_to_pixel(place)
    assert abs(x - box[0].data.shape[1] / 2) < 1 and abs(y - box[0].data.shape[0] / 2) < 1
    whole = naos.cutout(path("s.fits"), unit="DQ", header_key=header, data_key=data, key_manager=False)
    assert np.array_equal(whole[1].data, original[3].data)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        frame.cutout(unit=1, center=place, size=1)
    assert any("outside" in str(w.message) for w in caught)
    for wrong in ({"section": "[1:2,1:2]", "center": (1, 2), "size": 1}, {"center": (1, 2)}):
        try:
            frame.cutout(**wrong)
            raise SystemExit("two kinds of parts at once")
        except ValueError:
            pass
    try:
        frame.cutout(unit=1, center=(0, 0), size=1)
        raise SystemExit("a place elsewhere was cut out")
    except naos.SystemFailure as error:
        assert error.name == "NAOS_E_NOTFOUND"
    for wrong in ("nonsense", "[0:1,1:1]", "[1:100000,1:1]"):
        try:
            frame.cutout(wrong, unit=1)
            raise SystemExit("a wrong section was cut out")
        except naos.UsageError:
            pass
with naos.open(path("s.fits"), data_key=data, key_manager=False) as pixels:
    assert pixels.frame.level == "pixels-only" and "OBJECT" not in pixels[0].header
    assert np.array_equal(pixels[1].data, original[1].data)
with naos.open(path("s.fits"), header_key=header, key_manager=False) as metadata:
    assert metadata.frame.level == "metadata-only" and not metadata[1].data.any()
for keys, wanted in (((None, None), naos.DeniedError), ((data, header), naos.WrongKeyError)):
    try:
        naos.open(path("s.fits"), *keys, key_manager=False)
        raise SystemExit("a frame was opened without its keys")
    except wanted:
        pass
try:
    naos.Frame(image, header, data, key_manager=False)
    raise SystemExit("a plain file was opened as a frame")
except naos.FormatError as error:
    assert isinstance(error, naos.IntegrityError) and error.name == "NAOS_E_FORMAT"
try:
    naos.open(path("nowhere"))
    raise SystemExit("a file that is not there was opened")
except FileNotFoundError as error:
    assert isinstance(error, naos.NotFoundError)
with open(path("s.fits"), "r+b") as file:
    file.seek(5_000_000)
    byte = file.read(1)[0]
    file.seek(5_000_000)
    file.write(bytes([byte ^ 1]))
with naos.open(path("s.fits"), header, data, key_manager=False) as changed:
    try:
        [hdu.data for hdu in changed]
        raise SystemExit("changed data was given out")
    except naos.TamperedError as error:
        assert "segment" in str(error)
print("all is well")
'''

# An array is filled in place: opening 128 MB of pixels takes little more memory than they have, a section next to none.
MEMORY = r'''
import sys, os
import numpy as np
from astropy.io import fits
import naos
directory = sys.argv[1]
path = lambda name: os.path.join(directory, name)
fits.PrimaryHDU(np.arange(32 << 20, dtype=">f4").reshape(8192, 4096)).writeto(path("b.fits"))
header, data = bytes(range(16)), bytes(range(16, 32))
naos.seal(path("b.fits"), path("b.s.fits"), header_key=header, data_key=data)
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) << 10
open("/proc/self/clear_refs", "w").write("5")
before = peak()
hdus = naos.open(path("b.s.fits"), header, data, key_manager=False)
assert hdus[0].section[4000:4256, 1000:1256].sum() > 0
section = peak() - before
assert hdus[0].data[8191, 4095] == np.float32((32 << 20) - 1)
print(section >> 20, (peak() - before) >> 20)
# by several threads, from and to any place
assert np.array_equal(hdus[0].data, np.arange(32 << 20, dtype=">f4").reshape(8192, 4096))
with naos.Frame(path("b.s.fits"), header, data, key_manager=False) as frame, open(path("b.fits"), "rb") as plain:
    plain.seek(12345)
    assert frame.read(12345, 100_000_001) == plain.read(100_000_001)
    with open(path("b.s.fits"), "r+b") as file:
        file.seek(70_000_000)
        byte = file.read(1)[0]
        file.seek(70_000_000)
        file.write(bytes([byte ^ 64]))
    buffer = np.full(100 << 20, 7, dtype="u1")
    try:
        frame.readinto(buffer, 0)
        raise SystemExit("changed data was given out")
    except naos.TamperedError:
        assert not buffer.any()
'''


def run_python(package, script, *arguments):
    pytest.importorskip("astropy", reason="python3-astropy is not installed")
    env = dict(os.environ, PYTHONPATH=str(package), NAOS_LIBRARY=str(conftest.BUILD / "libnaos.so.0"),
               NAOS_CONFIG=os.devnull)
    if os.environ.get("NAOS_SANITIZE", "none") != "none":  # its run time must be there before Python's own memory
        runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout.strip()
        env.update(LD_PRELOAD=runtime, ASAN_OPTIONS="detect_leaks=0")
    done = subprocess.run(["/usr/bin/python3", "-c", script, *map(str, arguments)], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_frames_from_python(tmp_path):
    if not os.path.exists(IMAGE):
        pytest.skip("python-drizzle-testdata has the image")
    assert "all is well" in run_python(conftest.SOURCE / "python", SCRIPT, IMAGE, tmp_path)


def test_data_is_decrypted_straight_into_its_array(tmp_path):
    section_mb, all_mb = map(int, run_python(conftest.SOURCE / "python", MEMORY, tmp_path).split())
    own_mb = 0 if os.environ.get("NAOS_SANITIZE", "none") == "none" else 64  # of AddressSanitizer
    assert section_mb < 40 + own_mb and 128 <= all_mb < 160 + own_mb, (section_mb, all_mb)


def test_pip_installs_the_package_from_the_tree(tmp_path):
    shutil.copytree(conftest.SOURCE / "python", tmp_path / "source")
    installed = tmp_path / "installed"
    words = ["/usr/bin/python3", "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--no-index", "--target", installed,
             tmp_path / "source"]
    if subprocess.run(words[:3] + ["--version"], capture_output=True).returncode != 0:
        pytest.skip("python3-pip is not installed")
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "frame.py" in run_python(installed, "import naos.frame; print(naos.frame.__file__)")
    assert str(installed) in run_python(installed, "import naos; print(naos.__file__)")

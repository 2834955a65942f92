# SPDX-License-Identifier: Apache-2.0
"""naos fits on real files: the levels, cut-outs, what was changed, a collection with two MEKs."""
import glob
import os
import pathlib
import shutil
import subprocess

import pytest

HEADER, DATA = "000102030405060708090a0b0c0d0e0f", "f0e0d0c0b0a090807060504030201000"
IMAGE = pathlib.Path("/usr/share/python-drizzle/test_data/j8bt06nyq_flt.fits")
SAMPLES = glob.glob("/usr/lib/python3/dist-packages/astropy/io/fits/tests/data/**/*.fits", recursive=True)


@pytest.fixture
def keys(tmp_path):
    words = {}
    for name, digits in (("header", HEADER), ("data", DATA)):
        path = tmp_path / f"{name}.key"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(digits + "\n")
        words[name] = [f"--{name}-key", f"file:{path}"]
    return words


def need(path):
    if not path or not os.path.exists(path):
        pytest.skip("python-drizzle-testdata and python3-astropy have the files")


def verified(path):
    """fitsverify is content with it."""
    if not shutil.which("fitsverify"):
        pytest.skip("fitsverify is not installed")
    done = subprocess.run(["fitsverify", "-e", "-q", str(path)], capture_output=True, text=True, timeout=60)
    assert "verification OK" in done.stdout, done.stdout


def test_real_files_come_back_byte_for_byte(naos, keys, tmp_path):
    need(SAMPLES and SAMPLES[0])
    sealed, opened, refused = tmp_path / "sealed.fits", tmp_path / "opened.fits", []
    for path in SAMPLES[::4] + [str(IMAGE)]:
        done = naos("fits", "seal", "--force", *keys["header"], *keys["data"], path, sealed)
        if done.returncode != 0:
            assert path in done.stderr and "CFITSIO" in done.stderr  # with its reason
            refused.append(path)
            continue
        naos.ok("fits", "open", "--force", *keys["header"], *keys["data"], sealed, opened)
        assert opened.read_bytes() == pathlib.Path(path).read_bytes(), path
        naos.ok("fits", "verify", *keys["header"], *keys["data"], sealed)
        verified(sealed)
    assert len(refused) <= 1


def test_each_key_opens_its_part(naos, keys, tmp_path):
    need(IMAGE)
    fits = pytest.importorskip("astropy.io.fits", reason="python3-astropy is not installed")
    sealed = tmp_path / "sealed.fits"
    naos.ok("fits", "seal", *keys["header"], *keys["data"], IMAGE, sealed)
    (metadata,) = naos.json("fits", "open", *keys["header"], sealed, tmp_path / "metadata.fits")
    (pixels,) = naos.json("fits", "open", *keys["data"], sealed, tmp_path / "pixels.fits")
    assert (metadata["level"], metadata["data_key"]["state"]) == ("metadata-only", "missing")
    assert (pixels["level"], pixels["header_key"]["state"]) == ("pixels-only", "missing")
    original = fits.open(IMAGE)
    with fits.open(tmp_path / "metadata.fits") as part:
        assert part[1].header["CRPIX1"] == original[1].header["CRPIX1"] and not part[1].data.any()
    with fits.open(tmp_path / "pixels.fits") as part:
        assert (part[1].data == original[1].data).all() and "CRPIX1" not in part[1].header
    verified(tmp_path / "metadata.fits")
    verified(tmp_path / "pixels.fits")
    assert "there is no header key" in naos.fails(3, "fits", "open", sealed, tmp_path / "none.fits")
    wrong = ["--data-key", keys["header"][1]]
    assert "this is not its data key" in naos.fails(4, "fits", "open", *wrong, sealed, tmp_path / "none.fits")
    assert "metadata-only" in naos.fails(3, "fits", "open", "--require-full", *keys["header"], sealed, tmp_path / "none.fits")
    assert not (tmp_path / "none.fits").exists()


def test_a_cutout_is_that_part_of_the_image(naos, keys, tmp_path):
    need(IMAGE)
    fits = pytest.importorskip("astropy.io.fits", reason="python3-astropy is not installed")
    sealed, part = tmp_path / "sealed.fits", tmp_path / "part.fits"
    naos.ok("fits", "seal", "--segment", "64KiB", *keys["header"], *keys["data"], IMAGE, sealed)
    naos.ok("fits", "cutout", "--hdu", "1", "--section", "[101:356,11:266]", *keys["header"], *keys["data"], sealed, part)
    verified(part)
    original, cut = fits.open(IMAGE)[1], fits.open(part)[0]
    assert (cut.data == original.data[10:266, 100:356]).all()
    assert cut.header["CRPIX1"] == original.header["CRPIX1"] - 100
    for wrong in ("[0:5,1:5]", "[5:1:0,1:5]", "[1:5]", "[1:99999,1:5]", "1:5,", "[1:5,1:5"):
        naos.fails(2, "fits", "cutout", "--hdu", "1", "--section", wrong, *keys["header"], *keys["data"], sealed, tmp_path / "no.fits")
    assert not (tmp_path / "no.fits").exists()


def test_changed_data_costs_the_data_and_is_told(naos, keys, tmp_path):
    need(IMAGE)
    sealed, opened = tmp_path / "sealed.fits", tmp_path / "opened.fits"
    naos.ok("fits", "seal", *keys["header"], *keys["data"], IMAGE, sealed)
    with open(sealed, "r+b") as file:
        file.seek(5_000_000)
        byte = file.read(1)
        file.seek(5_000_000)
        file.write(bytes([byte[0] ^ 1]))
    assert "segment" in naos.fails(4, "fits", "verify", *keys["header"], *keys["data"], sealed)
    naos.fails(4, "fits", "open", *keys["header"], *keys["data"], sealed, opened)
    verified(opened)
    assert opened.read_bytes()[-2880 * 100:] == bytes(2880 * 100)


def test_a_collection_has_two_master_keys(naos, token, tmp_path):
    need(IMAGE)
    naos.env.update(token.env)
    naos.config.write_text(token.config() + "[collection survey]\n")
    naos.ok("key", "create", "survey-header")
    naos.ok("key", "create", "survey-data")
    sealed = tmp_path / "sealed.fits"
    naos.ok("fits", "seal", "--collection", "survey", IMAGE, sealed)
    (info,) = naos.json("fits", "info", sealed)
    assert info["header_mek"]["id"] != info["data_mek"]["id"] and info["units"] == 4
    naos.ok("fits", "open", sealed, tmp_path / "opened.fits")
    assert (tmp_path / "opened.fits").read_bytes() == IMAGE.read_bytes()
    naos.ok("key", "revoke", "survey-data", "--yes") if "--yes" in naos.ok("key", "revoke", "--help") else naos.ok("key", "revoke", "survey-data")
    (part,) = naos.json("fits", "open", sealed, tmp_path / "metadata.fits")
    assert part["level"] == "metadata-only" and part["data_key"]["state"] == "missing"
    naos.config.write_text(token.config() + "[collection survey]\nheader-mek = survey-header\ndata-mek = survey-header\n")
    assert "different MEKs" in naos.fails(2, "fits", "seal", "--collection", "survey", IMAGE, tmp_path / "no.fits")


def test_files_of_gpufitscrypt_are_migrated_with_a_warning(naos, shared, tmp_path):
    """Each of the samples as that program itself opens it (dec/ is what it gives back), or refused with a reason."""
    folder = shared / "data/frames/legacy"
    keys = []
    for name, digits in (("header", HEADER), ("data", DATA)):
        path = tmp_path / f"{name}.key"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(digits)
        keys += [f"--{name}-key", f"file:{path}"]
    same = refused = 0
    for path in sorted((folder / "enc").glob("*.fits")):
        (info,) = naos.json("fits", "info", path)
        assert info["format"] == "legacy" and info["mode"] == path.name.split(".")[1]
        done = naos("fits", "import-legacy", "--force", *keys, path, tmp_path / "new.fits")
        if done.returncode != 0:
            assert path.name in done.stderr
            refused += 1
            continue
        assert "never authenticated" in done.stderr
        naos.ok("fits", "open", "--force", *keys, tmp_path / "new.fits", tmp_path / "plain.fits")
        theirs = folder / "dec" / path.name
        if theirs.exists():
            assert (tmp_path / "plain.fits").read_bytes() == theirs.read_bytes(), path.name
            same += 1
    assert same >= 40 and refused <= 8, (same, refused)
    wrong = [keys[0], keys[3], keys[2], keys[1]]
    assert "not its header key" in naos.fails(4, "fits", "import-legacy", *wrong, folder / "enc/f32_2d.gcm.fits", tmp_path / "no.fits")

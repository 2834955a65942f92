# SPDX-License-Identifier: Apache-2.0
"""The scientific check of the paper: SExtractor finds the same sources in an image and in what comes back of it, and none in what is sealed."""
import pathlib
import shutil
import subprocess

import pytest

import fits_corpus

SHARE = pathlib.Path("/usr/share/source-extractor")
IMAGES = pathlib.Path("/usr/share/python-drizzle/test_data")
COLUMNS = ["NUMBER", "X_IMAGE", "Y_IMAGE", "FLUX_AUTO", "FLUXERR_AUTO", "ALPHA_J2000", "DELTA_J2000", "FLAGS"]


@pytest.fixture
def extract(tmp_path):
    if not shutil.which("source-extractor"):
        pytest.skip("source-extractor is not installed")
    if not IMAGES.is_dir():
        pytest.skip("python-drizzle-testdata has the images")
    (tmp_path / "columns.param").write_text("\n".join(COLUMNS) + "\n")

    def run(image):
        """Exit status, rows of the catalogue."""
        catalogue = tmp_path / "sources.cat"
        catalogue.unlink(missing_ok=True)
        done = subprocess.run(["source-extractor", image, "-c", SHARE / "default.sex", "-PARAMETERS_NAME", tmp_path / "columns.param",
                               "-FILTER_NAME", SHARE / "default.conv", "-STARNNW_NAME", SHARE / "default.nnw", "-CATALOG_NAME", catalogue,
                               "-CATALOG_TYPE", "ASCII", "-VERBOSE_TYPE", "QUIET"], capture_output=True, timeout=120)
        assert done.returncode in (0, 1), f"it crashed: {done.returncode}"
        return done.returncode, catalogue.read_text().splitlines() if catalogue.exists() else []
    return run


@pytest.mark.parametrize("name, least", [("j8bt06nyq_flt.fits", 8000), ("reference_blot_image.fits", 0)])
def test_the_same_sources_come_back_and_none_are_in_a_sealed_image(naos, extract, tmp_path, name, least):
    keys, sealed, opened = fits_corpus.key_options(tmp_path), tmp_path / "sealed.fits", tmp_path / "opened.fits"
    status, original = extract(IMAGES / name)
    assert status == 0 and len(original) >= least
    naos.ok("fits", "seal", *keys["header"], *keys["data"], IMAGES / name, sealed)
    _, found = extract(sealed)
    assert found == []
    naos.ok("fits", "open", *keys["header"], *keys["data"], sealed, opened)
    assert extract(opened) == (0, original)
    naos.ok("fits", "open", "--force", *keys["header"], sealed, opened)
    assert extract(opened) == (0, [])
    naos.ok("fits", "open", "--force", *keys["data"], sealed, opened)
    status, pixels = extract(opened)  # the same places in the image, none in the sky
    assert status == 0 and [row.split()[:5] for row in pixels] == [row.split()[:5] for row in original]

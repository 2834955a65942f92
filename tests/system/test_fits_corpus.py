# SPDX-License-Identifier: Apache-2.0
"""The FITS files of the packages that are installed here; test_fits_corpus_long.py takes all that the distribution has."""
import pathlib

import pytest

import fits_corpus

ASTROPY = pathlib.Path("/usr/lib/python3/dist-packages/astropy")
DRIZZLE = pathlib.Path("/usr/share/python-drizzle/test_data")


@pytest.mark.parametrize("folder", [ASTROPY, DRIZZLE], ids=["astropy", "drizzle"])
def test_real_files_come_back_or_are_refused_with_a_reason(naos, tmp_path, folder):
    if not folder.is_dir():
        pytest.skip("python-drizzle-testdata and python3-astropy have the files")
    judges = fits_corpus.readers()
    if "fitsverify" not in judges:
        pytest.skip("fitsverify is not installed")
    corpus = fits_corpus.Corpus(naos, tmp_path, judges)
    for path in fits_corpus.fits_files(folder):
        corpus.run(path, path.name)
    assert not corpus.wrong, "\n".join(corpus.wrong)
    assert not corpus.worse, "\n".join(corpus.worse)
    assert corpus.files == corpus.identical + len(corpus.refused)
    # a BITPIX that is not the second keyword; plain text. Headers alone and compressed files are no FITS files.
    refused = {name for name, _ in corpus.refused if not name.endswith((".hdr", ".gz"))}
    assert refused == ({"verify.fits", "idcompspec.fits"} if folder == ASTROPY else set())
    assert corpus.identical >= (45 if folder == ASTROPY else 17)
    assert corpus.reads["container"] == {reader: corpus.identical for reader in judges}

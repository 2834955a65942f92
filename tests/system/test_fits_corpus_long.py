# SPDX-License-Identifier: Apache-2.0
"""Every FITS file of the packages of the distribution that carry some: tests/campaigns/frames-corpus.txt is what this prints."""
import shutil

import pytest

import fits_corpus


def test_every_file_of_the_distribution_comes_back_or_is_refused_with_a_reason(naos, tmp_path):
    judges = fits_corpus.readers()
    if not shutil.which("apt-get") or "fitsverify" not in judges:
        pytest.skip("apt-get or fitsverify is not there")
    if shutil.disk_usage(tmp_path).free < 2 << 30:
        pytest.skip("there is no room for the packages")
    files = identical = missing = 0
    wrong, worse, lines = [], [], []
    for package in fits_corpus.PACKAGES:
        folder = tmp_path / package
        if not fits_corpus.fetch(package, folder):
            missing += 1
            lines.append(f"{package}: not to be had here")
            continue
        corpus = fits_corpus.Corpus(naos, tmp_path, judges)
        for path in fits_corpus.fits_files(folder):
            corpus.run(path, path.name)
        shutil.rmtree(folder)
        lines += corpus.report(package)
        files, identical = files + corpus.files, identical + corpus.identical
        wrong, worse = wrong + corpus.wrong, worse + corpus.worse
        assert corpus.reads["container"] == {reader: corpus.identical for reader in judges} or not corpus.identical, package
    print("\n".join([*lines, f"sum: {files} files, {identical} came back byte for byte, {files - identical} refused with a reason"]))
    if missing == len(fits_corpus.PACKAGES):
        pytest.skip("no package can be had: there is no network")
    assert not wrong, "\n".join(wrong)
    assert not worse, "\n".join(worse)
    assert missing or (files >= 500 and identical >= 440)

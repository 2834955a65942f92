# SPDX-License-Identifier: Apache-2.0
"""Golden files and random files are read the same by lib/seal and by a reader that was written from the document alone."""
import subprocess

import pytest

import sealed_file
from seal_helper import GOLDEN, TEST_MEK, TOOLS, Answer, Library, attribute_of, independent, lay_out, rows
from wrapped_key import WrappedKey

RANDOM_FILES, SEED = 120, 1


@pytest.fixture(scope="module")
def library():
    library = Library()
    yield library
    library.close()


@pytest.mark.parametrize("row", rows(GOLDEN), ids=lambda row: row.name)
def test_golden_file_reads_as_recorded(row, library, tmp_path):
    path = lay_out(GOLDEN, row.name, tmp_path / "file")
    attribute = attribute_of(GOLDEN, row.name)
    recorded = Answer("ok", state=row.state, size=row.size, digest=row.digest)
    with open(path, "rb") as file:
        assert independent(file, row.fek, attribute, row.algorithm) == recorded
    if path.stat().st_size < 1 << 30:
        assert library.image(path.read_bytes(), row.fek, attribute, row.algorithm) == recorded
    if row.name not in ("key-in-attribute", "new-without-page-0"):  # the attribute is needed
        assert library.path(path, row.fek, row.algorithm) == recorded


@pytest.mark.parametrize("row", rows(GOLDEN), ids=lambda row: row.name)
def test_golden_wrapped_keys_unwrap_to_the_fek(row, tmp_path):
    with open(lay_out(GOLDEN, row.name, tmp_path / "file"), "rb") as file:
        sealed = sealed_file.SealedFile(file, row.fek, attribute=attribute_of(GOLDEN, row.name))
        assert sealed.blobs
        for blob in sealed.blobs:
            assert blob.unwrap(TEST_MEK, 1, sealed.fileset_id, sealed.file_id) == row.fek


def test_every_golden_file_is_in_the_index():
    names = {path.stem for path in GOLDEN.iterdir() if path.suffix in (".sealed", ".pages", ".attribute")}
    assert names == {row.name for row in rows(GOLDEN)} and len(names) == 17


def test_golden_vector_of_the_wrapped_key():
    """That of docs/formats/wrapped-key.md."""
    blob = WrappedKey(bytes.fromhex("01010c0040000000 9f1c2a3b4c5d4e6f8a90a1b2c3d4e5f6 07000000 000102030405060708090a0b00000000")
                      + bytes(range(0xf0, 0x100)) + bytes(range(0x40, 0x80)))
    assert blob.bytes == 124 and blob.mek_version == 7
    bound = blob.associated_data(3, b"\1" + bytes(15), b"\2" + bytes(15))
    assert bound == bytes.fromhex("4e414f5357525031 0300000000000000 01000000000000000000000000000000 02000000000000000000000000000000"
                                  "9f1c2a3b4c5d4e6f8a90a1b2c3d4e5f6 07000000 01000000")


def test_random_files_read_the_same(library, tmp_path):
    subprocess.run([TOOLS / "make_sealed", "random", tmp_path, str(SEED), str(RANDOM_FILES)], check=True)
    states = set()
    for row in rows(tmp_path):
        path, attribute = lay_out(tmp_path, row.name, tmp_path / "file"), attribute_of(tmp_path, row.name)
        expected = Answer("ok", state=row.state, size=row.size, digest=row.digest)
        assert library.image(path.read_bytes(), row.fek, attribute) == expected, row.name
        assert independent(path.read_bytes(), row.fek, attribute) == expected, row.name
        states.add(row.state)
    assert states == {"clean", "unclean"}

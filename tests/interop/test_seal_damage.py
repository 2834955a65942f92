# SPDX-License-Identifier: Apache-2.0
"""Every refusal of the sealed-file format: one damaged file each, through lib/seal and the independent reader."""
import functools
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))

from damage_sealed import Cases  # noqa: E402
from seal_helper import GOLDEN, Library, attribute_of, flipped_bits_disagree, independent, lay_out, rows  # noqa: E402

FEKS = {row.name: row.fek for row in rows(GOLDEN)}


@functools.lru_cache(maxsize=None)
def load(name, folder):
    return lay_out(GOLDEN, name, folder / name).read_bytes(), FEKS[name], attribute_of(GOLDEN, name)


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden")
    return list(Cases(lambda name: load(name, folder)).all())


@pytest.fixture(scope="module")
def library():
    library = Library()
    yield library
    library.close()


def test_library_refuses_each_with_its_reason(cases, library):
    assert len(cases) > 100 and len({case.name for case in cases}) == len(cases)
    wrong = []
    for case in cases:
        answer = library.image(case.image, case.fek, case.attribute, case.algorithm)
        if (answer.stage, answer.code) != (case.stage, case.code) or case.text not in answer.text:
            wrong.append((case.name, answer))
    assert not wrong, "\n".join(map(str, wrong))


def test_independent_reader_agrees(cases, library):
    wrong = []
    for case in cases:
        ours = library.image(case.image, case.fek, case.attribute, case.algorithm)
        theirs = independent(case.image, case.fek, case.attribute, case.algorithm)
        if theirs._replace(text="") != ours._replace(text=""):
            wrong.append((case.name, theirs, ours))
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("name", ["short-last-chunk", "truncated"])
def test_flipped_bits_are_refused_by_both(name, library):
    """A sample; test_seal_bits.py tries all of them."""
    assert flipped_bits_disagree(library, name, stride=101) == []

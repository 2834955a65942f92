# SPDX-License-Identifier: Apache-2.0
"""Every bit of sealed files and their attributes, flipped: both readers refuse it, with the same code."""
import pytest

from seal_helper import Library, flipped_bits_disagree


@pytest.mark.parametrize("name", ["short-last-chunk", "truncated", "two-fek-slots"])
def test_every_flipped_bit_is_refused_by_both(name):
    library = Library()
    assert flipped_bits_disagree(library, name, stride=1) == []
    library.close()

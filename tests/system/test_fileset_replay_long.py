# SPDX-License-Identifier: Apache-2.0
"""The power cuts of test_fileset_replay.py by the thousand: after each write and flush of a short session, and many of longer ones."""
import pytest

import test_fileset_replay
from test_fileset_replay import memory, pytestmark  # noqa: F401


@pytest.mark.parametrize("seed, seconds, cuts", [(1, 0.2, 0), (2, 0.2, 0), (3, 4, 500), (4, 4, 500)])
def test_power_cuts(memory, seed, seconds, cuts):  # noqa: F811
    test_fileset_replay.replay(memory, seed, seconds, cuts)

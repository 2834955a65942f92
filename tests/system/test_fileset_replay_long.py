# SPDX-License-Identifier: Apache-2.0
"""The power cuts of test_fileset_replay.py by the thousand: after each write and flush of a short session, and many of longer ones."""
import shutil

import pytest

import test_fileset_replay
from test_fileset_replay import memory, pytestmark  # noqa: F401


@pytest.mark.parametrize("kind, seed, seconds, cuts", [
    ("ext4", 1, 0.2, 0), ("ext4", 2, 0.2, 0), ("ext4", 3, 4, 500), ("ext4", 4, 4, 500), ("xfs", 5, 0.2, 0), ("xfs", 6, 4, 500)])
def test_power_cuts(memory, kind, seed, seconds, cuts):  # noqa: F811
    if not shutil.which(f"mkfs.{kind}"):
        pytest.skip(f"mkfs.{kind} is not installed")
    test_fileset_replay.replay(memory, seed, seconds, cuts, kind)

# SPDX-License-Identifier: Apache-2.0
"""SIGKILL at 20 random moments of naos seal, open and rewrap: nothing partial has a final name, a rerun completes."""
import os

import pytest

from seal_help import Killer


def test_killed_at_random_moments(sets, tmp_path):
    seed = int(os.environ.get("NAOS_SEED", "0")) or int.from_bytes(os.urandom(4), "little")
    print("NAOS_SEED =", seed)
    Killer(sets, tmp_path, seed).campaign(20)


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_a_kill_left_without_its_time_gets_it_at_the_rerun(sets, tmp_path, kind):
    """A link is made, then dated: a kill in between left it undated for good (found by the campaign of 200)."""
    (tmp_path / "tree").mkdir()
    original, copy = tmp_path / "tree/entry", tmp_path / "sealed/entry"
    original.symlink_to("loop") if kind == "link" else os.mkfifo(original)
    os.utime(original, ns=(7_000_000_000, 8_000_000_001), follow_symlinks=False)
    sets.ok("seal", "-f", "genomes", tmp_path / "tree", tmp_path / "sealed")
    assert os.lstat(copy).st_mtime_ns == 8_000_000_001
    os.utime(copy, ns=(1, 2), follow_symlinks=False)
    sets.ok("seal", "-f", "genomes", tmp_path / "tree", tmp_path / "sealed")
    assert os.lstat(copy).st_mtime_ns == 8_000_000_001

# SPDX-License-Identifier: Apache-2.0
"""SIGKILL at 200 random moments of naos seal, open and rewrap: nothing partial has a final name, a rerun completes."""
import os

from seal_help import Killer


def test_killed_at_random_moments(sets, tmp_path):
    seed = int(os.environ.get("NAOS_SEED", "0")) or int.from_bytes(os.urandom(4), "little")
    print("NAOS_SEED =", seed)
    Killer(sets, tmp_path, seed).campaign(200)

# SPDX-License-Identifier: Apache-2.0
"""100 kills of migrate and of rekey."""
import os

import pytest

from fileset_kills import Campaign


@pytest.mark.parametrize("verb", ["migrate", "rekey"])
def test_killed_at_100_random_moments(sets, tmp_path, verb):
    seed = int(os.environ.get("NAOS_SEED", "0")) or int.from_bytes(os.urandom(4), "little")
    getattr(Campaign(sets, tmp_path, seed), verb)(100)

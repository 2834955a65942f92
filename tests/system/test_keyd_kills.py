# SPDX-License-Identifier: Apache-2.0
"""What the key manager acknowledged survives SIGKILL of its front and of its HSM worker (see keyd_kills.py)."""
import os

import pytest

import keyd_kills

KILLS, SECONDS = 100, 15


@pytest.mark.parametrize("over_tls", [False, True], ids=["pipe", "tls"])
def test_acknowledged_keys_and_destructions_survive_kills(tmp_path, token, naos, over_tls):
    seed = int(os.environ.get("NAOS_SEED") or int.from_bytes(os.urandom(4), "big"))
    print(f"seed {seed}")
    ledger, kills = keyd_kills.campaign(tmp_path / "keyd", token, KILLS, seed, SECONDS, over_tls)
    print(f"{kills} kills, {ledger.acknowledged} acknowledgements, {len(ledger.ended)} keys destroyed")
    assert kills >= 10 and len(ledger.living) > kills and ledger.ended
    assert naos("audit", "verify", tmp_path / "keyd/audit").returncode == 0

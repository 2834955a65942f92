# SPDX-License-Identifier: Apache-2.0
"""A thousand SIGKILLs of naos-keyd's front and HSM worker under load over TLS (see keyd_kills.py)."""
import os

import keyd_kills


def test_a_thousand_kills_lose_nothing(tmp_path, token, naos):
    seed = int(os.environ.get("NAOS_SEED") or int.from_bytes(os.urandom(4), "big"))
    print(f"seed {seed}")
    ledger, kills = keyd_kills.campaign(tmp_path / "keyd", token, 1000, seed, over_tls=True)
    print(f"{kills} kills, {ledger.acknowledged} acknowledgements, {len(ledger.ended)} keys destroyed")
    assert len(ledger.living) > kills and ledger.ended
    assert naos("audit", "verify", tmp_path / "keyd/audit").returncode == 0

# SPDX-License-Identifier: Apache-2.0
"""The campaign of test_policy_random.py, a hundred thousand requests."""
import os

import policy_campaign


def test_both_evaluators_agree_a_hundred_thousand_times():
    counts = policy_campaign.run(os.environ["NAOS_POLICY_PIPE"], 100_000, seed=2)
    print(counts)
    assert counts["requests"] == 100_000

# SPDX-License-Identifier: Apache-2.0
"""Ten thousand random requests to random policies get the answers and explanations of a second evaluator."""
import os

import policy_campaign


def test_both_evaluators_agree_to_the_letter():
    assert policy_campaign.run(os.environ["NAOS_POLICY_PIPE"], 10_000, seed=1)["requests"] == 10_000

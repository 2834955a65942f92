# SPDX-License-Identifier: Apache-2.0
"""The campaign of test_keys_crash.py, longer, with a look at everything in between."""
from test_keys_crash import Campaign


def test_four_hundred_kills(keys, token):
    campaign = Campaign(keys, token, seed=2)
    for _ in range(10):
        campaign.run(40)
        campaign.check()

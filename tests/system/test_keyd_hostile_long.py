# SPDX-License-Identifier: Apache-2.0
"""As many idle connections as are promised: 5,000 in 200 MB, and good clients notice nothing."""
import test_keyd_hostile
from test_keyd_hostile import good, keyd, pytestmark  # noqa: F401

test_keyd_hostile.IDLE = 5000
test_idle_connections_cost_little_and_memory_stays_flat = test_keyd_hostile.test_idle_connections_cost_little_and_memory_stays_flat

# SPDX-License-Identifier: Apache-2.0
"""No acknowledged record is lost, however often writers are killed."""
from test_audit_log import log, survive_kills  # noqa: F401 (log is a fixture)


def test_no_acknowledged_record_is_lost_by_300_kills(naos, log):  # noqa: F811
    print(survive_kills(naos, log, 300))

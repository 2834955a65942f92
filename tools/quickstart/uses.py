# Counts the records of 'naos audit show --json' by key, actor and action; names are given to keys in the order of their creation.
# Usage: uses.py NAME... < RECORDS.  SPDX-License-Identifier: Apache-2.0
import collections
import json
import sys

names, uses = {}, collections.Counter()
for line in sys.stdin:
    record = json.loads(line)
    if record["action"] == "key.create":
        names[record["object"]] = sys.argv[1 + len(names)]
    uses[names.get(record["object"], record["object"]), record["actor"].rpartition("/")[2], record["action"], record["decision"]] += 1
for (key, actor, action, decision), count in sorted(uses.items()):
    print(f"{key:<14}{actor:<12}{action:<14}{decision:<9}{count:>3}")

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Sums up test runs: results.py SKIPS TESTLOG.json...

Prints what failed and what was skipped (whole tests, and cases inside tests that passed otherwise), and
`N passed, N failed, N skipped` as the last line.  Exit status 1 if a test
failed, if a test or a case in it was skipped that SKIPS does not list, or if no test ran.
"""
import fnmatch
import json
import pathlib
import re
import sys

CASE_SKIPPED = re.compile(r"^(?:skipped: (?P<pytest>\S+): (?P<reason>.*)|\[  SKIPPED \] (?P<cmocka>[A-Za-z_]\w*))$", re.M)
GOOD = {"OK", "EXPECTEDFAIL"}


def read_allowed(path):
    rows = (line.split(None, 1) for line in path.read_text().splitlines() if line.strip() and not line.startswith("#"))
    return [(row[0], row[1] if len(row) > 1 else "") for row in rows]


def skipped_parts(test):
    """Names and reasons of what was skipped in a test: itself, or cases of it."""
    name = test["name"].split(" / ")[-1]
    output = test.get("stdout") or ""
    if test["result"] == "SKIP":
        yield name, output.strip().splitlines()[-1] if output.strip() else "no reason given"
        return
    seen = set()
    for match in CASE_SKIPPED.finditer(output):
        case = match["pytest"] or match["cmocka"]
        if case not in seen:
            seen.add(case)
            yield f"{name}::{case}", match["reason"] or "the test's output says why"


def main(skips, *logs):
    allowed = read_allowed(pathlib.Path(skips))
    passed = failed = skipped = 0
    problems = [f"{pattern}: tests/skips.txt gives no reason" for pattern, reason in allowed if not reason]
    for log in map(pathlib.Path, logs):
        tests = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        if not tests:
            problems.append(f"{log.parent.parent.name}: not built, or no test ran")
            failed += 1
        for test in tests:
            where = f"{log.parent.parent.name}: {test['name'].split(' / ')[-1]}"
            bad = []
            for part, reason in skipped_parts(test):
                known = any(fnmatch.fnmatchcase(part, pattern) for pattern, _ in allowed)
                print(f"skipped   {part}: {reason}")
                skipped += known
                if not known:
                    bad.append(f"{where}: the skip of {part} is not in tests/skips.txt")
            if test["result"] in GOOD and not bad:
                passed += 1
            elif test["result"] != "SKIP" or bad:
                failed += 1
                problems += bad or [f"{where}: {test['result']}"]
    for problem in problems:
        print(f"failed    {problem}")
    print(f"{passed} passed, {failed or len(problems)} failed, {skipped} skipped")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

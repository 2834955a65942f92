# SPDX-License-Identifier: Apache-2.0
"""./check counts honestly: failures, skips that nobody allowed, builds without a test."""
import json
import subprocess

import pytest

from conftest import SOURCE


@pytest.fixture
def results(tmp_path):
    def run(*tests, skips="", logs=("one",)):
        (tmp_path / "skips.txt").write_text(skips)
        paths = []
        for log in logs:
            path = tmp_path / log / "meson-logs/testlog.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json.dumps({"name": f"naos:part / {name}", "result": result, "stdout": out}) + "\n"
                                    for name, result, out in tests))
            paths.append(path)
        done = subprocess.run(["/usr/bin/python3", SOURCE / "tests/results.py", tmp_path / "skips.txt", *paths], stdout=subprocess.PIPE,
                              text=True)
        return done.returncode, done.stdout.splitlines()
    return run


def test_all_passed(results):
    assert results(("a", "OK", ""), ("b", "OK", "")) == (0, ["2 passed, 0 failed, 0 skipped"])


@pytest.mark.parametrize("result", ["FAIL", "TIMEOUT", "ERROR", "INTERRUPT", "UNEXPECTEDPASS"])
def test_a_failure_of_any_kind_counts(results, result):
    status, lines = results(("a", "OK", ""), ("b", result, ""))
    assert status == 1 and lines[-1] == "1 passed, 1 failed, 0 skipped" and f"failed    one: b: {result}" in lines


def test_a_skip_must_be_on_the_list(results):
    for test, pattern in ((("a", "SKIP", "no data here\n"), "a"), (("a", "OK", "[  SKIPPED ] some_case\n"), "a::some_case"),
                          (("a", "OK", "1 skipped\nskipped: test_b[x]: no data here\n"), "a::test_b*")):
        status, lines = results(test)
        assert status == 1 and lines[-1].startswith("0 passed, 1 failed"), test
        status, lines = results(test, skips=f"# comment\n{pattern}  a reason\n")
        assert status == 0 and lines[-1].endswith("0 failed, 1 skipped"), test
        assert results(test, skips=f"{pattern}\n")[0] == 1, "a line without a reason"


def test_no_test_or_no_log_is_a_failure(results):
    assert results() == (1, ["failed    one: not built, or no test ran", "0 passed, 1 failed, 0 skipped"])

# SPDX-License-Identifier: Apache-2.0
"""The judges of two nodes, many times: NAOS_ROUNDS rounds (100) of twonode.py, each on two fresh mounts, four at a time, and one long run
of iorhard_loop.py beside them.  NAOS_BELOW names a directory for the sealed files (/dev/shm: rounds are shorter)."""
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

import fileset_mount

pytestmark = pytest.mark.skipif(fileset_mount.missing() is not None, reason=str(fileset_mount.missing()))
ROUNDS = int(os.environ.get("NAOS_ROUNDS") or 100)


def judge(tool, number):
    """Output of one run on two mounts of its own; afterwards every file is sealed and whole."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="naos-twonode-", dir=os.environ.get("NAOS_BELOW")))
    try:
        with fileset_mount.Mount(directory, mode="shared") as first, first.second() as second:
            done = subprocess.run([sys.executable, tool, first.path, second.path], capture_output=True, text=True, timeout=3000)
            first.stop()
            second.stop()
            verified = first.naos("verify", first.below, "--json").replace(" ", "")
            logs = first.log.read_text() + second.log.read_text()
        assert '"failed":0' in verified and "refused" not in logs and "seal-failed" not in logs, f"round {number}: {verified}\n{logs}"
        return done.stdout + done.stderr
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def test_every_row_is_right_every_time(shared):
    tools = shared / "tools/fs"
    if not (tools / "twonode.py").exists():
        pytest.skip("reference tools are absent")
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        hard = pool.submit(judge, tools / "iorhard_loop.py", "iorhard")
        rounds = [pool.submit(judge, tools / "twonode.py", number) for number in range(ROUNDS)]
        rows = {}
        for number, one in enumerate(rounds):
            text = one.result()
            assert "SUMMARY fail 0" in text and "FAIL" not in text, f"round {number}:\n{text}"
            for line in text.splitlines()[:-1]:
                rows[line.split()[0]] = rows.get(line.split()[0], 0) + 1
        assert set(rows.values()) == {ROUNDS} and len(rows) == 8, rows
        lines = hard.result().splitlines()
        assert len(lines) == 16 and all("(True" in line for line in lines), lines
    print(f"twonode.py: {ROUNDS} rounds, {len(rows)} rows each, all ok; iorhard_loop.py: {len(lines)} loops, all ok")

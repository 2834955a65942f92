# SPDX-License-Identifier: Apache-2.0
"""Random operations on a mount against a model in memory, with and without naos-fs being killed in between.

NAOS_EXERCISE_SECONDS runs each case so long, with seeds NAOS_SEED and up, instead of a fixed number of operations:
    NAOS_EXERCISE_SECONDS=3600 meson test -C build --timeout-multiplier 0 system_fileset_exercise --verbose
"""
import os
import subprocess
import time

import pytest

import conftest
import fileset_mount

pytestmark = pytest.mark.skipif(fileset_mount.missing() is not None, reason=str(fileset_mount.missing()))

EXERCISE = str(conftest.BUILD / "tests/tools/fs_exercise")
SECONDS = int(os.environ.get("NAOS_EXERCISE_SECONDS") or 0)
SEED = int(os.environ.get("NAOS_SEED") or 1)


def exercise(mount, seed, crashes=0, operations=1500, seconds=0):
    """One run; answers its requests to crash.  Returns its last line."""
    directory = mount.path / f"seed-{seed}"
    directory.mkdir()
    words = [EXERCISE, str(directory), "--seed", str(seed), "--crashes", str(crashes)]
    words += ["--seconds", str(seconds)] if seconds else ["--operations", str(operations)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        last = ""
        for line in process.stdout:
            last = line.strip()
            if last == "ready":
                process.stdin.write(f"{mount.process.pid}\n")
            elif last == "remount":
                mount.kill()
                mount.start()
                process.stdin.write("done\n")
            else:
                continue
            process.stdin.flush()
        errors = process.stderr.read()
    assert process.returncode == 0 and last.startswith("done "), f"seed {seed}: {process.returncode}\n{errors}"
    return last


@pytest.mark.parametrize("crashes", [0, 250], ids=["whole", "crashes"])
def test_random_operations_do_what_they_do_in_memory(tmp_path, crashes):
    with fileset_mount.Mount(tmp_path, options="seal-delay=1s") as mount:
        if not SECONDS:
            for seed in range(SEED, SEED + (1 if crashes else 2)):
                exercise(mount, seed, crashes)
        end, seed = time.monotonic() + SECONDS, SEED
        while SECONDS and time.monotonic() < end:
            print(f"seed {seed} crashes one in {crashes}:", exercise(mount, seed, crashes, seconds=min(SECONDS, 60)), flush=True)
            seed += 1
        mount.stop()
        assert '"failed":0' in mount.naos("verify", mount.below, "--json").replace(" ", "")
        if not crashes:  # what was never killed has nothing to recover
            assert "event=recovered" not in mount.log.read_text()

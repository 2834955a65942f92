# SPDX-License-Identifier: Apache-2.0
"""kill -9 while keys are made, rotated and destroyed: what was acknowledged is there and opens what it wrapped; what was not
is swept at the next start."""
import os
import random
import subprocess
import time

from conftest import BUILD, NAOS

PROBE = os.environ.get("NAOS_KEYS_PROBE") or str(BUILD / "tests/system/keys_probe")


def probe(keys, token, *words, lines=""):
    done = subprocess.run([PROBE, token.uri, str(token.store), *words], env=keys.env, input=lines, capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def run_and_kill(keys, words, delay):
    """True if the command acknowledged; it was killed otherwise."""
    process = subprocess.Popen([NAOS, *words], env=keys.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        process.wait(delay)
    except subprocess.TimeoutExpired:
        process.kill()
    out, err = process.communicate()
    assert process.returncode in (0, -9), err
    return b" is active" in out or b" is destroyed" in out


class Campaign:
    """What was acknowledged so far: names with versions, and a key wrapped under each."""

    def __init__(self, keys, token, seed):
        self.keys, self.token, self.rng = keys, token, random.Random(seed)
        self.wrapped = {}  # (name, version) -> a line of the probe
        self.destroyed = set()
        self.number = 0
        keys.ok("key", "create", "rotated")
        started = time.monotonic()
        keys.ok("key", "rotate", "rotated")
        self.longest = 1.3 * (time.monotonic() - started)

    def choose(self, number):
        """Words of a command, and the version that it ends, if it does."""
        kind = self.rng.random()
        if kind < 0.25:
            old = [key["version"] for key in self.keys.json("key", "show", "rotated") if key["state"] == "deactivated"]
            if len(old) > 1:
                version = self.rng.choice(old)
                return ["key", "destroy", "rotated", "--key-version", str(version), "--yes"], version
        return (["key", "create", f"k{number}"] if kind < 0.7 else ["key", "rotate", "rotated"]), None

    def run(self, kills):
        while kills > 0:
            self.number += 1
            words, ended = self.choose(self.number)
            if ended is not None:  # from now on it may be gone, acknowledged or not
                self.wrapped.pop(("rotated", ended), None)
            if not run_and_kill(self.keys, words, self.rng.uniform(0, self.longest)):
                kills -= 1
            elif ended is not None:
                self.destroyed.add(ended)
            else:
                (line,) = probe(self.keys, self.token, "wrap", words[2])
                version = int.from_bytes(bytes.fromhex(line[48:56]), "little")  # docs/formats/wrapped-key.md
                self.wrapped[words[2], version] = line

    def check(self):
        listed = self.keys.json("key", "list")  # a start after the last kill: it sweeps
        there = {(key["name"], key["version"]): key for key in listed}
        assert set(self.wrapped) <= set(there)
        assert {there["rotated", version]["state"] for version in self.destroyed} <= {"destroyed"}
        assert probe(self.keys, self.token, "unwrap", lines="\n".join(self.wrapped.values())) == ["ok"] * len(self.wrapped)
        # an object for each living version, and nothing else: no empty, partial or unlabelled one
        alive = {f"naos:{key['id']}:{key['version']}:{key['name']}" for key in listed if key["state"] != "destroyed"}
        objects = self.token.tool("--list-objects", "--type", "secrkey")
        assert sorted(line.split(":", 1)[1].strip() for line in objects.splitlines() if "label:" in line) == sorted(alive)
        assert len(self.token.objects()) == len(alive)
        assert all(path.stat().st_size > 0 for path in self.token.objects())
        folder = self.token.object_directory()
        assert {path.name for path in folder.iterdir() if path.suffix not in (".object", ".lock")} <= {"generation", "token.naos",
                                                                                                     "token.naos.new"}
        assert len({(key["name"]) for key in listed if key["state"] == "active"} & {"rotated"}) == 1


def test_forty_kills(keys, token):
    campaign = Campaign(keys, token, seed=1)
    campaign.run(40)
    campaign.check()

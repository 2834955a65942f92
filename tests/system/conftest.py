# SPDX-License-Identifier: Apache-2.0
"""What all system tests share: the program under test, run in a world of its own."""
import json
import os
import pathlib
import subprocess

import pytest

import softhsm

SOURCE = pathlib.Path(os.environ.get("NAOS_SOURCE") or pathlib.Path(__file__).resolve().parents[2])
BUILD = pathlib.Path(os.environ.get("NAOS_BUILD") or SOURCE / "build")
NAOS = os.environ.get("NAOS_EXE") or str(BUILD / "cmd/naos/naos")


def shared_data():
    """The folder of reference data that can't be in the tree: $NAOS_SHARED or ../shared; None where it is absent."""
    for path in (os.environ.get("NAOS_SHARED"), SOURCE.parent / "shared"):
        if path and (pathlib.Path(path) / "data").is_dir():
            return pathlib.Path(path)
    return None


@pytest.fixture
def shared():
    path = shared_data()
    if path is None:
        pytest.skip("reference data is absent (no ../shared, NAOS_SHARED not set)")
    return path


class Naos:
    """Runs naos with a configuration of its own: naos("info", path), naos.ok(...), naos.json(...)."""

    def __init__(self, directory):
        self.directory = directory
        self.config = directory / "naos.conf"
        self.config.write_text("")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("NAOS_") and k != "JOURNAL_STREAM"}
        self.env["NAOS_CONFIG"] = str(self.config)

    def __call__(self, *words, **kwargs):
        env = dict(self.env, **kwargs.pop("env", {}))
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        if "stdout" not in kwargs:
            kwargs["stdout"] = subprocess.PIPE
        if "stderr" not in kwargs:
            kwargs["stderr"] = subprocess.PIPE
        if "input" in kwargs:
            del kwargs["stdin"]
        kwargs.setdefault("text", True)
        return subprocess.run([NAOS, *map(str, words)], env=env, timeout=kwargs.pop("timeout", 300), **kwargs)

    def ok(self, *words, **kwargs):
        """Must succeed; returns its standard output."""
        done = self(*words, **kwargs)
        assert done.returncode == 0, f"naos {' '.join(map(str, words))}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def json(self, *words, **kwargs):
        """Must succeed; returns the objects of its --json output."""
        return [json.loads(line) for line in self.ok(*words, "--json", **kwargs).splitlines()]

    def fails(self, status, *words, **kwargs):
        """Must end with this exit status; returns its standard error."""
        done = self(*words, **kwargs)
        assert done.returncode == status, f"naos {' '.join(map(str, words))}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stderr


@pytest.fixture
def naos(tmp_path):
    return Naos(tmp_path)


@pytest.fixture
def token(tmp_path):
    """A private SoftHSM token."""
    if softhsm.MISSING:
        pytest.skip(softhsm.MISSING)
    return softhsm.SoftToken(tmp_path / "softhsm")


@pytest.fixture
def keys(naos, token):
    """naos configured with a private token and key store."""
    naos.env.update(token.env)
    naos.config.write_text(token.config())
    return naos


@pytest.fixture
def sets(keys):
    """naos with a MEK `genomes`, which is a file set of the same name."""
    keys.ok("key", "create", "genomes")
    return keys


def pytest_terminal_summary(terminalreporter):
    """One line a skip, which ./check compares with tests/skips.txt."""
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        name = report.nodeid.split("::", 1)[-1].replace(" ", "_")
        terminalreporter.write_line(f"skipped: {name}: {reason.removeprefix('Skipped: ')}")

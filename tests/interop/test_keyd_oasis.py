# SPDX-License-Identifier: Apache-2.0
"""The OASIS test cases of KMIP 1.0 to 1.4 on a live naos-keyd, over TLS.

oasis.txt lists every case: passed, or where it ends and what the key manager says there.  The list is made by this test
(NAOS_UPDATE=1 writes it) and compared with what happens.
"""
import itertools
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import oasis_replay as replay  # noqa: E402
import pki as certificates  # noqa: E402
import softhsm  # noqa: E402
from keyd_server import Keyd  # noqa: E402

LIST = pathlib.Path(__file__).parent / "oasis.txt"
HEAD = """# What naos-keyd does with the OASIS test cases of KMIP 1.0 to 1.4.
# VERSION CASE, then passed, or the step and the answer that differ.
# Made by test_keyd_oasis.py with NAOS_UPDATE=1.  Refusals, and why:
# TC-CREATE-SD, TC-CREG, TC-MDO: passwords made by the server, certificates and objects whose value is elsewhere are not kept here.
# TC-CS-CORVAL: it creates a key without the usage mask that the specification requires.
# TC-NP: Notify and Put go from the server to the client; naos-keyd never connects to a client.
# TC-SENSITIVE: it wants a wrapped value as a byte string under No Encoding; the TC-WRAP cases and PyKMIP have the structure.
# TC-WRAP: wrapped keys are given out (Get), not taken (Register): the server could not check what it keeps.
"""
ROLES = {"tester": {"identities": "naos://test/*", "operations": "all", "keys": "own", "class": "exportable"}}
MUST_PASS = ("SKLC", "SKFF", "CS-BC", "CS-BC-M-GCM", "AX", "CS-RNG", "OMOS", "TL", "SASED")


def run_all(shared, tmp_path):
    token = softhsm.SoftToken(tmp_path / "hsm")
    pki = certificates.Pki(tmp_path / "pki")
    tester = pki.client("tester", uri="naos://test/tester")
    for version in ("v1.2", "v1.4", "v1.4-tc"):
        cases = sorted((shared / f"data/kmip/oasis-{version}").glob("*.xml"), key=replay.order)
        for family, paths in itertools.groupby(cases, replay.family):
            settings = {"token-store": tmp_path / "token.db"}
            with Keyd(tmp_path / f"{version}-{family}", token, pki, roles=ROLES, settings=settings) as manager:
                for path in paths:
                    with manager.client(tester) as client:
                        problems = replay.Case(path, client.raw).run()
                    yield version, path.stem, problems[0] if problems else "passed"


def test_the_oasis_cases_pass_or_are_refused_as_listed(shared, tmp_path):
    if softhsm.MISSING:
        pytest.skip(softhsm.MISSING)
    results = list(run_all(shared, tmp_path))
    if not results:
        pytest.skip("the OASIS test cases are absent (shared data, data/kmip/oasis-*)")
    failed = [line for line in results if line[2] != "passed" and (line[0] == "v1.2" or line[1].startswith(MUST_PASS))]
    assert not failed, "\n".join(" ".join(line) for line in failed)
    text = HEAD + "".join(" ".join(line) + "\n" for line in results)
    if os.environ.get("NAOS_UPDATE"):
        LIST.write_text(text)
    assert LIST.read_text() == text
    assert sum(line[2] == "passed" for line in results) >= 70

# SPDX-License-Identifier: Apache-2.0
"""Certificates of clients: their end is announced a month before, a renewed one is taken up by programs that run, and sessions of TLS are
taken up with the same one only."""
import json
import os
import re
import subprocess
import time

import pytest

import pki as certificates
from keyd_server import Keyd
from ports import free_port
from softhsm import MISSING, SoftToken


def finding(naos, pki, client, ca=None):
    naos.config.write_text(f"[keymanager]\nuri = kmip://127.0.0.1:1?cert={client.cert}&key={client.key}&ca={ca or pki.ca}\n")
    found, = [f for f in json.loads(naos("doctor", "--json").stdout)["findings"] if f["check"] == "certificate"]
    return found


def test_the_end_of_a_certificate_is_announced(naos, tmp_path):
    pki = certificates.Pki(tmp_path / "pki", days=(-1, 400))
    assert finding(naos, pki, pki.client("fresh", days=(-1, 31)))["status"] == "ok"
    soon = finding(naos, pki, pki.client("soon", days=(-1, 29)))
    assert soon["status"] == "warning" and "soon.pem" in soon["what"] and re.search("in 2[89] days", soon["what"]) and "renew" in soon["remedy"], soon
    over = finding(naos, pki, pki.client("over", days=(-9, -1)))
    assert over["status"] == "problem" and "has ended" in over["what"], over
    broken = pki.client("broken", days=(-1, 99))
    broken.cert.write_text("no certificate\n")
    assert finding(naos, pki, broken)["status"] == "problem"


def test_the_end_of_the_authority_is_announced(naos, tmp_path):
    old = certificates.Pki(tmp_path / "old", days=(-9, 5))
    new = certificates.Pki(tmp_path / "new", days=(-1, 400))
    client = old.client("client", days=(-1, 99))
    soon = finding(naos, old, client)
    assert soon["status"] == "warning" and "authority" in soon["what"] and "ca.pem" in soon["what"], soon
    both = tmp_path / "both.pem"
    both.write_bytes(old.ca.read_bytes() + new.ca.read_bytes())
    assert finding(naos, old, client, both)["status"] == "ok"


def test_a_token_has_no_certificate(naos):
    naos.config.write_text("[keymanager]\nuri = pkcs11:token=x\n")
    assert not [f for f in json.loads(naos("doctor", "--json").stdout)["findings"] if f["check"] == "certificate"]


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_a_renewed_certificate_is_taken_up_without_a_restart(tmp_path):
    pki = certificates.Pki(tmp_path / "pki")
    with Keyd(tmp_path / "keyd", SoftToken(tmp_path / "softhsm"), pki) as keyd:
        client = pki.client("client", uri="naos://test/client")
        uri = f"kmip://127.0.0.1:{keyd.port}?cert={client.cert}&key={client.key}&ca={pki.ca}"
        naos = [os.environ["NAOS_EXE"], "--config", "/dev/null", "key", "create", "genomes", "--keys", uri]
        assert subprocess.run(naos, capture_output=True, timeout=60).returncode == 0
        probe = [os.environ["NAOS_KEYS_PROBE"], uri, "unused"]
        wrapped = subprocess.run([*probe, "wrap", "genomes"], capture_output=True, text=True, timeout=60, check=True).stdout
        pki.client("client", uri="naos://test/client", days=(-3, -1))  # it has ended
        with subprocess.Popen([*probe, "unwrap"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
            def unwrap():
                running.stdin.write(wrapped)
                running.stdin.flush()
                return running.stdout.readline().strip()

            assert unwrap() == "NAOS_E_KEYMANAGER"
            client.key.unlink()  # half renewed: as before
            assert unwrap() == "NAOS_E_KEYMANAGER"
            pki.client("client", uri="naos://test/client")
            assert unwrap() == "ok"
            running.stdin.close()
            assert running.wait(60) == 0


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_a_later_connection_takes_up_the_session_but_not_with_another_certificate(tmp_path):
    pki = certificates.Pki(tmp_path / "pki")
    with Keyd(tmp_path / "keyd", SoftToken(tmp_path / "softhsm"), pki, settings={"idle-timeout": "1s", "metrics": f"127.0.0.1:{free_port()}"}) as keyd:
        client = pki.client("client", uri="naos://test/client")
        uri = f"kmip://127.0.0.1:{keyd.port}?cert={client.cert}&key={client.key}&ca={pki.ca}"
        naos = [os.environ["NAOS_EXE"], "--config", "/dev/null", "key", "create", "genomes", "--keys", uri]
        assert subprocess.run(naos, capture_output=True, timeout=60).returncode == 0
        probe = [os.environ["NAOS_KEYS_PROBE"], uri, "unused"]
        wrapped = subprocess.run([*probe, "wrap", "genomes"], capture_output=True, text=True, timeout=60, check=True).stdout
        before = keyd.number("handshakes_resumed_total")  # by 'key create', which uses a fresh connection for what must not be done twice
        with subprocess.Popen([*probe, "unwrap"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
            def unwrap():
                while keyd.number("connections_open") > 0:  # the one before ends for being idle
                    time.sleep(0.05)
                running.stdin.write(wrapped)
                running.stdin.flush()
                return running.stdout.readline().strip(), keyd.number("handshakes_resumed_total") - before

            assert unwrap() == ("ok", 0)
            assert unwrap() == ("ok", 1)
            pki.client("client", uri="naos://test/client")
            assert unwrap() == ("ok", 1)
            assert unwrap() == ("ok", 2)
            running.stdin.close()
            assert running.wait(60) == 0

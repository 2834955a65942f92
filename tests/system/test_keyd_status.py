# SPDX-License-Identifier: Apache-2.0
"""naos keyd status says how a running naos-keyd is, and that one is away."""
import http.server
import os
import signal
import threading
import time

import pytest

import pki as certificates
from keyd import create, decrypt, encrypt, extractable, get_bytes, on
from keyd_server import Keyd, Refused
from ports import free_port
from softhsm import MISSING, SoftToken

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.fixture
def keyd(tmp_path):
    pki = certificates.Pki(tmp_path / "pki", days=(-1, 400))
    keyd = Keyd(tmp_path / "keyd", SoftToken(tmp_path / "softhsm"), pki, settings={"metrics": f"127.0.0.1:{free_port()}"})
    keyd.certificate = pki.server("127.0.0.1", "localhost", days=(-1, 100))
    keyd.alice = pki.client("alice", uri="naos://test/alice")
    with keyd:
        yield keyd


def configured(naos, keyd):
    naos.config.write_text(keyd.config.read_text())
    return naos


def test_it_says_what_the_key_manager_did(naos, keyd):
    with keyd.client(keyd.alice) as client:
        uid = client.ok(create(extractable())).find("UniqueIdentifier").value
        client.refused(encrypt(uid, b"x"))
        client.ok(on("Activate", uid))
        for _ in range(3):
            sealed = client.ok(encrypt(uid, b"k" * 32))
        client.ok(decrypt(uid, get_bytes(sealed, "Data"), iv=get_bytes(sealed, "IVCounterNonce"),
                          tag=get_bytes(sealed, "AuthenticatedEncryptionTag")))
        with pytest.raises(Refused):
            with keyd.client(None) as nobody:
                nobody.works()
        keyd.wait_for_log("event=handshake-failed")
        (status,) = configured(naos, keyd).json("keyd", "status")
    assert status["well"] and status["hsm_worker_up"] and status["database_up"] and status["audit_log_up"]
    assert (status["requests"], status["wraps"], status["unwraps"], status["refusals"], status["objects"]) == (7, 3, 1, 1, 1)
    assert (status["connections_open"], status["connections"], status["handshakes_failed"]) == (1, 2, 1)
    assert status["audit_log_free_bytes"] > 0 and status["database_free_bytes"] > 0 and status["mean_request_seconds"] > 0
    end = keyd.certificate.certificate.not_valid_after
    assert status["certificate_end"] == end.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert {"authority_end", "revocation_list_end", "hsm_jobs_waiting", "requests_under_way"} <= set(status)
    text = naos.ok("keyd", "status", "--url", f"http://{keyd.settings['metrics']}")
    for words in ("well", "HSM worker    up", "3 wraps, 1 unwraps", f"its certificate until {status['certificate_end']}", "queue"):
        assert words in text, text


def test_a_certificate_near_its_end_is_a_warning(naos, keyd):
    assert "renew it" not in configured(naos, keyd)("keyd", "status").stderr
    keyd.certificate = keyd.pki.server("127.0.0.1", "localhost", days=(-1, 20))
    keyd.write_config()
    keyd.process.send_signal(signal.SIGHUP)
    keyd.wait_for_log("event=certificates-read")
    done = naos("keyd", "status")
    assert done.returncode == 0 and "its certificate ends at" in done.stderr and "renew it" in done.stderr


def test_a_key_manager_that_is_away_or_can_not_serve_is_status_5(naos, keyd):
    configured(naos, keyd)
    keyd.token.pin_file.rename(keyd.directory / "away")  # the next worker can't log in
    os.kill(keyd.worker(), signal.SIGKILL)
    with keyd.client(keyd.alice) as client:
        client.refused(create())
        while naos("keyd", "status").returncode == 0:
            time.sleep(0.1)
            client.ask(create())
        done = naos("keyd", "status")
    assert done.returncode == 5 and "the HSM worker does not answer" in done.stderr and "does not answer" in done.stdout
    keyd.stop()
    message = naos.fails(5, "keyd", "status")
    assert "no key manager answers" in message


def test_what_is_no_key_manager_is_told(naos):
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"hello\n")

        def log_message(self, *_):
            pass
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert "is no naos-keyd" in naos.fails(5, "keyd", "status", "--url", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert "keyd.metrics is not set" in naos.fails(2, "keyd", "status")
    assert "no address" in naos.fails(2, "keyd", "status", "--url", "https://example")

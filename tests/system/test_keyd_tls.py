# SPDX-License-Identifier: Apache-2.0
"""Who may talk to naos-keyd: certificates good and bad, versions of TLS, resumption, revocation and renewal while it runs."""
import os
import signal
import ssl
import subprocess
import time

import pytest

import pki as certificates
from keyd_server import Client, Keyd, Refused
from keyd import create, leaf, on, operation
from softhsm import MISSING, SoftToken

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.fixture(scope="module")
def keyd(tmp_path_factory):
    directory = tmp_path_factory.mktemp("keyd")
    pki = certificates.Pki(directory / "pki")
    with Keyd(directory / "keyd", SoftToken(directory / "softhsm"), pki) as keyd:
        keyd.alice = pki.client("alice", uri="naos://test/alice")
        yield keyd


def gets_nothing(keyd, client, context=None):
    """Neither a handshake nor an answer."""
    with pytest.raises(Refused):
        with Client(keyd.port, context or keyd.context(client)) as connection:
            connection.works()


def test_a_good_certificate_works_in_tls_1_2_and_1_3(keyd):
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = keyd.context(keyd.alice)
        context.minimum_version = context.maximum_version = version
        with Client(keyd.port, context) as client:
            assert client.tls.version() == version.name.replace("_", ".").replace("TLSv1.", "TLSv1.")
            client.works()


@pytest.mark.parametrize("version", ["-tls1", "-tls1_1"])
def test_older_versions_of_tls_are_refused(keyd, version):
    done = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{keyd.port}", version, "-cipher", "ALL:@SECLEVEL=0", "-cert", keyd.alice.cert,
                           "-key", keyd.alice.key, "-CAfile", keyd.pki.ca], input="", capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "alert protocol version" in done.stderr, done.stderr
    keyd.client(keyd.alice).works()


def test_bad_certificates_get_nothing(keyd, tmp_path):
    pki, stranger = keyd.pki, certificates.Pki(tmp_path / "stranger", "Test CA")  # a forger takes the same name
    bad = {
        "forged": stranger.client("forged", uri="naos://test/alice"),
        "expired": pki.client("expired", uri="naos://test/expired", days=(-5, -1)),
        "not yet": pki.client("early", uri="naos://test/early", days=(1, 5)),
        "wrong EKU": pki.client("wrong", uri="naos://test/wrong", eku="server"),
        "no EKU": pki.client("none", uri="naos://test/none", eku=None),
        "no name": pki.client("noname", cn=None),
        "star": pki.client("star", cn="*"),
        "star URI": pki.client("staruri", cn="*", uri="*"),
    }
    for what, client in bad.items():
        gets_nothing(keyd, client)
        keyd.client(keyd.alice).works(), what
    gets_nothing(keyd, None)
    empty = pki.client("emptyname", cn=None, uri="")
    gets_nothing(keyd, empty)


def test_a_certificate_without_a_role_may_do_nothing_and_owners_are_apart(keyd):
    bob, nobody = keyd.pki.client("bob", uri="naos://test/bob"), keyd.pki.client("nobody", uri="naos://other/nobody")
    with keyd.client(keyd.alice) as alice, keyd.client(bob) as other, keyd.client(nobody) as none:
        uid = alice.ok(create(name="mine")).find("UniqueIdentifier").value
        absent = "00000000-0000-4000-8000-000000000000"
        for name in ("Get", "Activate", "Destroy", "GetAttributes", "Encrypt", "Decrypt"):
            extra = [requests_data()] if name in ("Encrypt", "Decrypt") else []
            # byte for byte the same answer, but for the time
            answers = [other.ask(on(name, which, *extra))[0] for which in (uid, absent)]
            assert [(a.find("ResultReason").value, a.find("ResultMessage").value) for a in answers][0] == \
                   [(a.find("ResultReason").value, a.find("ResultMessage").value) for a in answers][1]
        assert none.refused(create(name="x"))[0] == "PermissionDenied"


def requests_data():
    return leaf("Data", "ByteString", "00" * 16)


def test_a_revoked_certificate_is_out_at_once_open_resumed_or_new(tmp_path):
    pki = certificates.Pki(tmp_path / "pki")
    with Keyd(tmp_path / "keyd", SoftToken(tmp_path / "softhsm"), pki) as keyd:
        alice, mallory = (pki.client(name, uri=f"naos://test/{name}") for name in ("alice", "mallory"))
        context = keyd.context(mallory)
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # the session is there when the handshake is done
        with keyd.client(alice) as good, Client(keyd.port, context) as bad:
            good.works(), bad.works()
            session = bad.tls.session
            with Client(keyd.port, context, session) as resumed:
                assert resumed.tls.session_reused
                resumed.works()
            pki.revoke(mallory)
            keyd.process.send_signal(signal.SIGHUP)
            keyd.wait_for_log("event=certificates-read")
            good.works()  # the connection was not dropped
            with pytest.raises(Refused):
                bad.works()
            with pytest.raises(Refused):
                with Client(keyd.port, context, session) as resumed:
                    resumed.works()
            gets_nothing(keyd, mallory)
            good.works()
        assert "certificate revoked" in keyd.log.read_text()


def test_a_new_server_certificate_is_taken_without_dropping_anyone(tmp_path):
    pki = certificates.Pki(tmp_path / "pki")
    with Keyd(tmp_path / "keyd", SoftToken(tmp_path / "softhsm"), pki) as keyd:
        alice = pki.client("alice", uri="naos://test/alice")
        with keyd.client(alice) as client:
            before = client.tls.getpeercert()["serialNumber"]
            keyd.certificate = pki.server("127.0.0.1", "localhost")  # the same files
            keyd.process.send_signal(signal.SIGHUP)
            keyd.wait_for_log("event=certificates-read")
            client.works()
        with keyd.client(alice) as client:
            client.works()
            assert client.tls.getpeercert()["serialNumber"] != before
        # a broken file leaves the old one in force
        keyd.certificate.cert.write_text("no certificate\n")
        keyd.process.send_signal(signal.SIGHUP)
        keyd.wait_for_log("event=reload-failed")
        keyd.client(alice).works()


def test_a_connection_ends_with_its_certificate(tmp_path):
    pki = certificates.Pki(tmp_path / "pki")
    with Keyd(tmp_path / "keyd", SoftToken(tmp_path / "softhsm"), pki) as keyd:
        short = pki.client("short", uri="naos://test/short", days=(-1, 4 / 86400))
        with keyd.client(short) as client:
            client.works()
            time.sleep(6)
            with pytest.raises(Refused):
                client.works()
        assert "certificate has expired" in keyd.log.read_text()

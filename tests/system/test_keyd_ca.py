# SPDX-License-Identifier: Apache-2.0
"""naos ca: what it issues works with naos-keyd and is what OpenSSL verifies; renewal and revocation; a first set-up from nothing."""
import signal
import stat
import subprocess
import types

import pytest
from cryptography import x509

import pki as certificates
from keyd_server import Keyd
from softhsm import MISSING, SoftToken


def openssl(status, *words):
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def load(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_keys_are_private_names_and_usages_right(naos, tmp_path):
    ca = tmp_path / "ca"
    naos.ok("ca", "init", ca, "--name", "Sternwarte", "--days", 100)
    naos.ok("ca", "issue", ca, "keyd", "--server", "keys.example,192.0.2.7")
    naos.ok("ca", "issue", ca, "node17")
    naos.ok("ca", "issue", ca, "curator", "--identity", "naos://user/curator", "--days", 7)
    assert stat.S_IMODE(ca.stat().st_mode) == 0o700
    for name in ("ca", "keyd", "node17", "curator"):
        assert stat.S_IMODE((ca / f"{name}.key").stat().st_mode) == 0o600
    openssl(0, "verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", "keys.example", "-CAfile", ca / "ca.pem", ca / "keyd.pem")
    openssl(0, "verify", "-purpose", "sslserver", "-verify_ip", "192.0.2.7", "-CAfile", ca / "ca.pem", ca / "keyd.pem")
    openssl(0, "verify", "-x509_strict", "-crl_check", "-CRLfile", ca / "crl.pem", "-purpose", "sslclient", "-CAfile", ca / "ca.pem", ca / "node17.pem")
    openssl(2, "verify", "-purpose", "sslclient", "-CAfile", ca / "ca.pem", ca / "keyd.pem")
    openssl(2, "verify", "-purpose", "sslserver", "-CAfile", ca / "ca.pem", ca / "node17.pem")
    names = [load(ca / f"{name}.pem").extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(
        x509.UniformResourceIdentifier) for name in ("node17", "curator")]
    assert names == [["naos://host/node17"], ["naos://user/curator"]]
    assert (load(ca / "curator.pem").not_valid_after - load(ca / "curator.pem").not_valid_before).days == 7


def test_mistakes_are_told(naos, tmp_path):
    ca = tmp_path / "ca"
    naos.ok("ca", "init", ca)
    assert "has an authority already" in naos.fails(1, "ca", "init", ca)
    naos.ok("ca", "issue", ca, "node17")
    assert "renew it" in naos.fails(1, "ca", "issue", ca, "node17")
    for words in (["../node"], ["ca"], ["a/b"], [".x"], ["x", "--server", "a,b c"], ["x", "--server", "a", "--identity", "naos://b"],
                  ["x", "--identity", "no-uri"], ["x", "--identity", "naos://a,DNS:evil"], ["x", "--days", "0"], ["x", "--days", "never"]):
        naos.fails(2, "ca", "issue", ca, *words)
    assert "absent" in naos.fails(1, "ca", "revoke", ca, "absent")
    naos.fails(1, "ca", "issue", tmp_path / "nothing", "x")
    (ca / "ca.key").write_bytes((ca / "node17.key").read_bytes())
    assert "does not belong" in naos.fails(4, "ca", "issue", ca, "other")


def test_a_renewed_certificate_and_the_one_before_are_revoked_together(naos, tmp_path):
    ca = tmp_path / "ca"
    naos.ok("ca", "init", ca)
    naos.ok("ca", "issue", ca, "node17")
    naos.ok("ca", "issue", ca, "node1")
    first = load(ca / "node17.pem")
    naos.ok("ca", "renew", ca, "node17")
    second = load(ca / "node17.pem")
    assert second.public_key() != first.public_key() and second.serial_number != first.serial_number
    assert second.extensions.get_extension_for_class(x509.SubjectAlternativeName) == first.extensions.get_extension_for_class(
        x509.SubjectAlternativeName)
    naos.ok("ca", "revoke", ca, "node17")
    naos.ok("ca", "revoke", ca, "node17")
    naos.ok("ca", "renew", ca)
    crl = x509.load_pem_x509_crl((ca / "crl.pem").read_bytes())
    assert {entry.serial_number for entry in crl} == {first.serial_number, second.serial_number} and len(crl) == 2
    assert crl.is_signature_valid(load(ca / "ca.pem").public_key())


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_a_first_set_up_with_it(naos, tmp_path):
    ca = tmp_path / "ca"
    naos.ok("ca", "init", ca)
    naos.ok("ca", "issue", ca, "server", "--server", "localhost,127.0.0.1")
    for name in ("admin", "node"):
        naos.ok("ca", "issue", ca, name)
    pki = types.SimpleNamespace(ca=ca / "ca.pem", crl=ca / "crl.pem",
                                server=lambda *_: types.SimpleNamespace(cert=ca / "server.pem", key=ca / "server.key"))
    roles = {"admin": {"identities": "naos://host/admin", "operations": "all", "keys": "*"},
             "node": {"identities": "naos://host/node", "operations": "locate read encrypt decrypt", "keys": "*"}}
    with Keyd(tmp_path / "keyd", SoftToken(tmp_path / "softhsm"), pki, roles=roles) as keyd:
        def uri(who):
            return f"kmip://localhost:{keyd.port}?cert={ca}/{who}.pem&key={ca}/{who}.key&ca={ca}/ca.pem"
        naos.ok("key", "create", "genomes", "--keys", uri("admin"))
        (tmp_path / "plain").write_bytes(b"GATTACA")
        naos.ok("seal", "--fileset", "genomes", "--keys", uri("node"), tmp_path / "plain", tmp_path / "sealed")
        naos.ok("ca", "renew", ca, "server")
        naos.ok("ca", "renew", ca, "node")
        keyd.process.send_signal(signal.SIGHUP)
        keyd.wait_for_log("event=certificates-read")
        naos.ok("open", "--keys", uri("node"), tmp_path / "sealed", tmp_path / "back")
        naos.ok("ca", "revoke", ca, "node")
        keyd.process.send_signal(signal.SIGHUP)
        keyd.wait_for_log("event=certificates-read", times=2)
        assert "client's certificate" in naos.fails(5, "open", "--keys", uri("node"), tmp_path / "sealed", tmp_path / "no")

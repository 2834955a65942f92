# SPDX-License-Identifier: Apache-2.0
"""A small certification authority for tests, on Python's cryptography: good certificates and every kind of bad one.

    pki = Pki(tmp_path / "pki")
    server = pki.server("127.0.0.1")            # server.cert, server.key: paths
    alice = pki.client("alice", uri="naos://test/alice")
    pki.client("late", days=(-2, -1))            # expired; eku=None: without EKU; eku="server": a wrong one; cn="": no name
    pki.revoke(alice); pki.crl                   # path of the CRL
"""
import datetime
import ipaddress
import os
import pathlib
import types

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

EKU = {"client": ExtendedKeyUsageOID.CLIENT_AUTH, "server": ExtendedKeyUsageOID.SERVER_AUTH}


def now():
    return datetime.datetime.utcnow().replace(microsecond=0)


class Pki:
    def __init__(self, directory, name="Test CA", days=(-1, 30)):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.revoked = []
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        self.certificate = (self._builder(self.name, self.key, days)
                            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
                            .add_extension(usage, critical=True).sign(self.key, hashes.SHA256()))
        self.ca = self._write("ca.pem", self.certificate.public_bytes(serialization.Encoding.PEM))
        self.crl = self.directory / "crl.pem"
        self.write_crl()

    def _write(self, name, data, mode=0o644):
        path = self.directory / name
        partial = self.directory / (name + ".new")
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as out:
            out.write(data)
        partial.rename(path)
        return path

    def _builder(self, subject, key, days):
        day = datetime.timedelta(days=1)
        return (x509.CertificateBuilder().subject_name(subject).issuer_name(self.name).public_key(key.public_key())
                .serial_number(x509.random_serial_number()).not_valid_before(now() + day * days[0]).not_valid_after(now() + day * days[1]))

    def issue(self, file, cn, names, eku, days=(-1, 10)):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([] if cn is None else [x509.NameAttribute(NameOID.COMMON_NAME, cn, _validate=False)])
        builder = self._builder(subject, key, days).add_extension(x509.BasicConstraints(False, None), critical=True)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        if eku:
            builder = builder.add_extension(x509.ExtendedKeyUsage([EKU[eku]]), critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        pem = serialization.Encoding.PEM
        return types.SimpleNamespace(
            certificate=certificate, cn=cn,
            cert=self._write(f"{file}.pem", certificate.public_bytes(pem)),
            key=self._write(f"{file}.key", key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()), 0o600))

    def server(self, *hosts, file="server", **kwargs):
        names = []
        for host in hosts:
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        return self.issue(file, hosts[0], names, "server", **kwargs)

    def client(self, file, cn="", uri=None, eku="client", **kwargs):
        return self.issue(file, cn if cn != "" else file, [x509.UniformResourceIdentifier(uri)] if uri else [], eku, **kwargs)

    def revoke(self, *certificates):
        self.revoked += [c.certificate.serial_number for c in certificates]
        self.write_crl()

    def write_crl(self):
        builder = x509.CertificateRevocationListBuilder().issuer_name(self.name).last_update(now() - datetime.timedelta(hours=1))
        builder = builder.next_update(now() + datetime.timedelta(days=9))
        for serial in self.revoked:
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now() - datetime.timedelta(minutes=5)).build())
        self._write("crl.pem", builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

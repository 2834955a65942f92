# SPDX-License-Identifier: Apache-2.0
"""Our KMIP client with PyKMIP's server: keys, files, certificates, a server that goes away, two servers, servers that answer nonsense."""
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import threading
import time

import pytest

import pki as certificates
import pykmip

pytestmark = pytest.mark.skipif(pykmip.MISSING is not None, reason=str(pykmip.MISSING))


def address(client, ca, *ports, host="127.0.0.1", **more):
    query = "&".join(f"{k}={v}" for k, v in {"cert": client.cert, "key": client.key, "ca": ca, **more}.items())
    return f"kmip://{','.join(f'{host}:{port}' for port in ports)}?{query}"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """One PKI and one PyKMIP server for all tests here; keys have names of their own."""
    directory = tmp_path_factory.mktemp("pykmip")
    pki = certificates.Pki(directory / "pki")
    with pykmip.Server(directory / "server", pki, pki.server("127.0.0.1", "localhost")) as server:
        server.pki = pki
        server.alice = pki.client("alice")
        yield server


@pytest.fixture
def kmip(naos, world):
    naos.config.write_text(f"[keymanager]\nuri = {address(world.alice, world.pki.ca, world.port)}\n")
    return naos


def states(naos, name):
    return {key["version"]: key["state"] for key in naos.json("key", "show", name)}


def test_keys_are_made_rotated_revoked_and_destroyed(kmip):
    assert "version 1 is active" in kmip.ok("key", "create", "genomes")
    assert "there is a key 'genomes' already" in kmip.fails(1, "key", "create", "genomes")
    kmip.ok("key", "rotate", "genomes")
    assert states(kmip, "genomes") == {2: "active", 1: "deactivated"}
    assert {"genomes"} <= {key["name"] for key in kmip.json("key", "list")}
    assert "active" in kmip.fails(5, "key", "destroy", "genomes", "--key-version", 2, "--yes")
    kmip.ok("key", "revoke", "genomes", "--key-version", 2)
    assert states(kmip, "genomes") == {2: "revoked", 1: "deactivated"}  # the older one does not seal again
    kmip.ok("key", "destroy", "genomes", "--key-version", 1, "--yes")
    kmip.ok("key", "destroy", "genomes", "--key-version", 2, "--yes")
    assert "no key named 'genomes'" in kmip.fails(5, "key", "show", "genomes")
    assert "no key 'absent'" in kmip.fails(5, "key", "rotate", "absent")


def test_a_key_is_imported(kmip):
    (shown,) = kmip.json("key", "import", "tape", "--from", "fd:0", input=bytes(range(32)), text=False)
    assert shown["bits"] == 256 and shown["state"] == "active"


@pytest.mark.parametrize("version", ["1.2", "1.3", "1.4"])
def test_files_are_sealed_and_opened(kmip, world, tmp_path, version):
    """Before 1.4 the standard has no place for the tag and the associated data of AES-GCM; PyKMIP drops the tag there, which must be
    told when sealing, not found out when opening."""
    name = f"set-{version}"
    plain = tmp_path / "plain"
    plain.write_bytes(os.urandom(10000))
    kmip.ok("key", "create", name)
    uri = address(world.alice, world.pki.ca, world.port, version=version)
    if version < "1.4":
        message = kmip.fails(5, "seal", "--fileset", name, "--keys", uri, plain, tmp_path / "sealed")
        assert "not AES-GCM as asked" in message and not (tmp_path / "sealed").exists()
        return
    kmip.ok("seal", "--fileset", name, "--keys", uri, plain, tmp_path / "sealed")
    kmip.ok("open", "--fileset", name, "--keys", uri, tmp_path / "sealed", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == plain.read_bytes()


# --- certificates

def sealed_names_nothing(naos, uri):
    return naos.fails(5, "key", "list", "--keys", uri)


@pytest.mark.parametrize("what", ["untrusted", "other-name", "expired", "client-unknown", "client-expired"])
def test_a_certificate_that_is_not_good_is_said_plainly(naos, world, tmp_path, what):
    pki, stranger = world.pki, certificates.Pki(tmp_path / "stranger", "Stranger CA")
    if what == "untrusted":
        message = sealed_names_nothing(naos, address(world.alice, stranger.ca, world.port))
        assert "is not trusted: self-signed certificate in certificate chain" in message or "unable to get local issuer certificate" in message
    elif what == "client-unknown":
        message = sealed_names_nothing(naos, address(stranger.client("mallory"), pki.ca, world.port))
        assert "refuses this client's certificate" in message
    elif what == "client-expired":
        message = sealed_names_nothing(naos, address(pki.client("late", days=(-5, -1)), pki.ca, world.port))
        assert "refuses this client's certificate" in message
    else:
        bad = pki.server("other.example", file="other") if what == "other-name" else pki.server("127.0.0.1", file="old", days=(-5, -1))
        with TlsServer(pki, bad, lambda connection: None) as server:
            message = sealed_names_nothing(naos, address(world.alice, pki.ca, server.port))
        assert "is not trusted: " + ("IP address mismatch" if what == "other-name" else "certificate has expired") in message
    assert f"127.0.0.1:" in message


def test_the_key_file_must_be_private_and_files_are_named(naos, world, tmp_path):
    alice = world.pki.client("alice-open")
    alice.key.chmod(0o644)
    message = naos.fails(2, "key", "list", "--keys", address(alice, world.pki.ca, world.port))
    assert str(alice.key) in message and "chmod 0600" in message
    for missing in ("cert", "key", "ca"):
        uri = address(world.alice, world.pki.ca, world.port) + f"&{missing}={tmp_path / 'absent'}"
        assert str(tmp_path / "absent") in naos.fails(2, "key", "list", "--keys", uri)


# --- a server that goes away and comes back, and a second one

class Probe:
    """One process that wraps and unwraps for long: a line in, a line out."""

    def __init__(self, uri, name, env):
        self.process = subprocess.Popen([os.environ.get("NAOS_KMIP_PROBE") or str(pathlib.Path(os.environ.get("NAOS_BUILD", "build")) / "tests/interop/kmip_probe"), uri, name],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def round_trip(self, items=1):
        self.process.stdin.write(f"{items}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the probe died"
        return line.strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        assert self.process.wait(60) == 0


def test_a_server_that_was_killed_is_used_again_without_a_restart(naos, world, tmp_path):
    with pykmip.Server(tmp_path / "server", world.pki, world.pki.server("127.0.0.1", file="again")) as server:
        uri = address(world.alice, world.pki.ca, server.port)
        naos.ok("key", "create", "genomes", "--keys", uri)
        with Probe(uri, "genomes", naos.env) as probe:
            assert probe.round_trip() == "ok"
            assert probe.round_trip(40) == "ok"
            server.kill()
            assert "can't be reached: Connection refused" in probe.round_trip()
            assert "-80 " in probe.round_trip()
            server.start()
            assert probe.round_trip() == "ok"


def test_a_second_server_takes_over(naos, world, tmp_path):
    """Both have the same keys: the second's database is a copy."""
    first = pykmip.Server(tmp_path / "first", world.pki, world.pki.server("127.0.0.1", file="first"))
    second = pykmip.Server(tmp_path / "second", world.pki, world.pki.server("127.0.0.1", file="second"))
    with first:
        naos.ok("key", "create", "genomes", "--keys", address(world.alice, world.pki.ca, first.port))
    shutil.copy(first.directory / "pykmip.db", second.directory / "pykmip.db")
    with first, second, Probe(address(world.alice, world.pki.ca, first.port, second.port), "genomes", naos.env) as probe:
        assert probe.round_trip() == "ok"
        first.kill()
        assert probe.round_trip(3) == "ok"
        first.start()
        second.kill()
        assert probe.round_trip() == "ok"


# --- servers that answer nonsense

class TlsServer:
    """Accepts TLS connections with a client certificate and hands each to `serve`."""

    def __init__(self, pki, certificate, serve):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.cert, certificate.key)
        context.load_verify_locations(pki.ca)
        context.verify_mode = ssl.CERT_REQUIRED
        self.context, self.serve = context, serve
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.stopping = threading.Event()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while not self.stopping.is_set():
            try:
                raw, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.one, args=(raw,), daemon=True).start()

    def one(self, raw):
        try:
            with self.context.wrap_socket(raw, server_side=True) as connection:
                self.serve(connection)
        except OSError:
            pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.socket.close()


def answer(items=b"", version=(1, 1), count=1):
    def field(tag, kind, value):
        return tag + bytes([kind]) + len(value).to_bytes(4, "big") + value + bytes(-len(value) % 8)
    number = lambda tag, value: field(tag, 2, value.to_bytes(4, "big"))
    header = field(b"\x42\x00\x7a", 1, field(b"\x42\x00\x69", 1, number(b"\x42\x00\x6a", version[0]) + number(b"\x42\x00\x6b", version[1])) +
                   field(b"\x42\x00\x92", 9, bytes(8)) + number(b"\x42\x00\x0d", count))
    return field(b"\x42\x00\x7b", 1, header + items)


def drip(connection):
    for byte in answer():
        connection.send(bytes([byte]))
        time.sleep(0.2)


NONSENSE = {
    "http": (lambda c: c.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "answers nonsense"),
    "huge": (lambda c: c.sendall(b"\x42\x00\x7b\x01\x7f\xff\xff\xf8" + bytes(4096)), "answers nonsense"),
    "half": (lambda c: c.sendall(answer()[:20]), "ended the connection"),
    "empty": (lambda c: c.sendall(b"\x42\x00\x7b\x01\x00\x00\x00\x00"), "answers nonsense"),
    "no-items": (lambda c: c.sendall(answer(count=0)), "answers nonsense"),
    "count": (lambda c: c.sendall(answer(count=900)), "answers nonsense"),
    "end": (lambda c: None, "ended the connection"),
    "silent": (lambda c: time.sleep(20), "does not answer within 1 s"),
    "drip": (drip, "does not answer within 1 s"),
}


@pytest.mark.parametrize("what", NONSENSE)
def test_nonsense_slowness_and_half_messages_are_told(naos, world, what):
    serve, expected = NONSENSE[what]

    def once(connection):
        while connection.recv(65536):
            serve(connection)
            if expected.startswith("ended"):
                return

    with TlsServer(world.pki, world.pki.server("127.0.0.1", file="fake"), once) as server:
        message = naos.fails(5, "key", "list", "--keys", address(world.alice, world.pki.ca, server.port, timeout=1), timeout=20)
    assert expected in message and f"127.0.0.1:{server.port}" in message


def test_a_server_that_does_not_shake_hands_is_given_up(naos, world):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        message = naos.fails(5, "key", "list", "--keys", address(world.alice, world.pki.ca, port, timeout=1), timeout=20)
    assert "no TLS connection" in message and "within 1 s" in message


@pytest.mark.parametrize("bad", ["kmip://", "kmip://a/path", "kmip://a?cert", "kmip://a?pin=1", "kmip://a?version=2.0", "kmip://a?timeout=x",
                                 "kmip://a?quirk=none", "kmip://:5696", "kmip://a:?cert=x"])
def test_an_address_that_is_not_one_is_a_mistake_of_use(naos, bad):
    naos.fails(2, "key", "list", "--keys", bad)

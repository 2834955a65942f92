# SPDX-License-Identifier: Apache-2.0
"""What a hostile client sends to naos-keyd: it is refused at once, memory stays flat, good clients notice nothing."""
import os
import resource
import signal
import socket
import time

import pytest

import pki as certificates
from keyd import create, encrypt, extractable, leaf, on, operation, request, structure
from keyd_server import Keyd, Refused, kmip
from softhsm import MISSING, SoftToken

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
SANITIZED = os.environ.get("NAOS_SANITIZE", "none") != "none"
IDLE = 300 if SANITIZED else 1000
HUGE = bytes.fromhex("420078017ffffff8")


@pytest.fixture(scope="module")
def keyd(tmp_path_factory):
    directory = tmp_path_factory.mktemp("keyd")
    pki = certificates.Pki(directory / "pki")
    settings = {"handshake-timeout": "2s", "message-timeout": "2s"}
    with Keyd(directory / "keyd", SoftToken(directory / "softhsm"), pki, settings=settings) as keyd:
        keyd.alice, keyd.mallory = (pki.client(name, uri=f"naos://test/{name}") for name in ("alice", "mallory"))
        yield keyd


@pytest.fixture
def good(keyd):
    """A good client with a key; after the test it still works on the connection it had."""
    with keyd.client(keyd.alice) as client:
        uid = client.ok(create()).find("UniqueIdentifier").value
        client.ok(on("Activate", uid))
        client.ok(encrypt(uid, b"x" * 32))
        yield lambda: client.ok(encrypt(uid, b"x" * 32))
        client.ok(encrypt(uid, b"x" * 32))


def ended(connection, data=b""):
    """The server closed the connection without a word."""
    try:
        connection.sendall(data)
        return connection.recv(1) == b""
    except OSError:
        return True


REFUSED = {
    "2 GiB": HUGE,
    "2 GiB with data": HUGE + bytes(60000),
    "http": b"POST /kmip HTTP/1.1\r\nHost: a\r\n\r\n",
    "over 64 KiB first": bytes.fromhex("4200780100020000"),
    "no structure": bytes.fromhex("4200780200000004") + bytes(8),
    "a response": bytes.fromhex("42007b0100000008") + bytes(8),
    "odd length": bytes.fromhex("4200780100000007") + bytes(7),
    "zeros": bytes(64),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_request_ends_the_connection(keyd, good, what):
    with keyd.client(keyd.mallory) as client:
        assert ended(client.tls, REFUSED[what])
    good()


def test_plain_http_on_the_port(keyd, good):
    with socket.create_connection(("127.0.0.1", keyd.port), timeout=30) as plain:
        try:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            while plain.recv(4096):  # an alert of TLS
                pass
        except ConnectionResetError:
            pass
    good()


def test_a_batch_of_3000_items_and_deep_nesting_are_answered_with_an_error(keyd, good):
    item = operation("Query", leaf("QueryFunction", "Enumeration", "QueryOperations"))
    with keyd.client(keyd.mallory) as client:
        client.works()
        (answer,) = client.ask(*[item] * 3000)
        assert answer.find("ResultStatus").value == "OperationFailed"
        client.works()
        nested = b"\x42\x00\x79\x01\x00\x00\x00\x00"
        for _ in range(3000):
            nested = b"\x42\x00\x79\x01" + len(nested).to_bytes(4, "big") + nested
        message = b"\x42\x00\x78\x01" + len(nested).to_bytes(4, "big") + nested
        try:
            answer = kmip.decode(client.raw(message)).all("BatchItem")[0]
            assert answer.find("ResultStatus").value == "OperationFailed"
        except Refused:
            pass
    good()


def test_slow_bytes_half_handshakes_and_silence_are_ended(keyd, good):
    before = keyd.log.read_text().count("handshake-failed")
    silent = [socket.create_connection(("127.0.0.1", keyd.port), timeout=60) for _ in range(200)]
    half = [socket.create_connection(("127.0.0.1", keyd.port), timeout=60) for _ in range(50)]
    for connection in half:
        connection.sendall(bytes.fromhex("16030102000100"))
    good()
    with keyd.client(keyd.mallory) as slow:
        data = kmip.encode(request(create()))
        with pytest.raises(OSError):
            for byte in data:
                slow.tls.sendall(bytes([byte]))
                time.sleep(0.1)
                good()
            assert slow.tls.recv(1)
            raise AssertionError("a request of slow bytes was answered")
    for connection in silent + half:
        while connection.recv(4096):
            pass
        connection.close()


def test_a_client_that_does_not_take_its_answers_is_ended(keyd, good):
    with keyd.client(keyd.mallory) as client:
        client.tls.settimeout(20)
        data = kmip.encode(request(operation("Query", leaf("QueryFunction", "Enumeration", "QueryOperations"))))
        with pytest.raises(OSError):
            while True:
                client.tls.sendall(data * 100)
    good()


def test_idle_connections_cost_little_and_memory_stays_flat(keyd, good):
    """Thousands of idle clients, and what hostile ones send again and again, leave the memory where it was."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = IDLE
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * count), hard))
    context = keyd.context(keyd.mallory)
    idle = []
    try:
        start = keyd.rss_kib()
        for _ in range(count):
            idle.append(keyd.client(keyd.mallory, context))
        good()
        each = (keyd.rss_kib() - start) / count
        if not SANITIZED:
            assert each < 40, f"{each} KiB for each idle connection"  # 5,000 in 200 MB
    finally:
        for connection in idle:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    good()
    middle = keyd.rss_kib()
    for _ in range(60):
        with keyd.client(keyd.mallory, context) as client:
            assert ended(client.tls, HUGE + bytes(60000))
    if not SANITIZED:
        assert keyd.rss_kib() - middle < 4096


def test_slow_senders_of_long_messages_leave_room_for_others(tmp_path):
    """Each holds what it sent so far in the key manager's secret memory: after some of them the next is told to wait."""
    pki = certificates.Pki(tmp_path / "pki")
    with Keyd(tmp_path / "keyd", SoftToken(tmp_path / "softhsm"), pki, settings={"message-timeout": "100s"}) as keyd:
        fill_with_slow_senders(keyd, pki.client("alice", uri="naos://test/alice"), pki.client("mallory", uri="naos://test/mallory"))


def fill_with_slow_senders(keyd, alice, mallory):
    context = keyd.context(mallory)
    slow, refused = [], []
    head = bytes.fromhex("42007801") + ((1 << 20) - 16).to_bytes(4, "big")
    try:
        for _ in range(80):
            client = keyd.client(mallory, context)
            slow.append(client)
            client.works()  # long messages are taken only after a good one
            client.tls.settimeout(0.05)
            try:
                client.tls.sendall(head + bytes(700000))
                answer = client.tls.recv(4096)
            except TimeoutError:
                continue  # it is taken, and waited for
            except OSError:
                refused.append("connection ended")
                continue
            refused.append(kmip.decode(answer).find("BatchItem").find("ResultMessage").value)
        assert 1 <= len(slow) - len(refused) <= 8, f"{len(refused)} of {len(slow)} were refused"
        assert [text for text in refused if "8 MiB of long messages under way" in text]
        # what another one sends, as long, is served
        with keyd.client(alice) as client:
            client.works()
            uid = client.ok(create(extractable())).find("UniqueIdentifier").value
            client.ok(on("Activate", uid))
            long = [encrypt(uid, bytes(200000)) for _ in range(4)]
            assert all(item.find("ResultStatus").value == "Success" for item in client.ask(*long))
    finally:
        for client in slow:
            client.close()
    with keyd.client(mallory, context) as client:  # and room comes back
        client.works()
        client.tls.settimeout(0.5)
        with pytest.raises(TimeoutError):  # it waits for the rest
            client.tls.sendall(head + bytes(700000))
            client.tls.recv(1)

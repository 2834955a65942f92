# SPDX-License-Identifier: Apache-2.0
"""The real naos-keyd with a private token and a test PKI, and a raw KMIP client over TLS.

    with Keyd(directory, token, pki) as keyd:
        with keyd.client(alice) as client: client.ok(create(name="mek"))
"""
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request

SOURCE = pathlib.Path(os.environ.get("NAOS_SOURCE") or pathlib.Path(__file__).resolve().parents[2])
BUILD = pathlib.Path(os.environ.get("NAOS_BUILD") or SOURCE / "build")
PROGRAM = BUILD / "cmd/naos-keyd/naos-keyd"
sys.path.insert(0, str(SOURCE / "tests/interop"))
import oasis_kmip as kmip  # noqa: E402
import keyd as requests  # noqa: E402

ROLES = {"tester": {"identities": "naos://test/*", "operations": "all", "keys": "own", "class": "either"}}


class Keyd:
    """directory: its files, and where a core would be; roles, settings: of the configuration."""
    program = PROGRAM

    def __init__(self, directory, token, pki, roles=None, settings=None):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.token, self.pki = token, pki
        self.roles, self.settings = dict(roles or ROLES), dict(settings or {})
        self.certificate = pki.server("127.0.0.1", "localhost")
        self.config = self.directory / "keyd.conf"
        self.log = self.directory / "keyd.log"
        self.audit = self.directory / "audit"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("NAOS_") and k != "JOURNAL_STREAM"}
        self.env.update(token.env)
        self.process = None
        self.port = 0

    def write_config(self):
        keyd = {"production": "no", "listen": f"127.0.0.1:{self.port}", "certificate": self.certificate.cert, "key": self.certificate.key,
                "ca": self.pki.ca, "crl": self.pki.crl, "token": self.token.uri, "token-store": self.directory / "token.db",
                "database": self.directory / "objects.db", "audit": self.audit, "threads": 8, **self.settings}
        lines = ["[keyd]"] + [f"{key} = {value}" for key, value in keyd.items() if value is not None]
        for name, role in self.roles.items():
            lines += [f"[role {name}]"] + [f"{key} = {value}" for key, value in role.items()]
        self.config.write_text("\n".join(lines) + "\n")

    def start(self, *words):
        self.write_config()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([self.program, "--config", self.config, "--verbose", *words], env=self.env, cwd=self.directory, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=log, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("naos-keyd: ready on "), f"exit {self.process.wait()}: {self.log.read_text()}"
        self.port = int(line.rsplit(":", 1)[1])
        return self

    def worker(self):
        """Process id of the HSM worker."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(pid) for path in children for pid in path.read_text().split()][0]

    def stop(self):
        if self.process:
            self.process.send_signal(signal.SIGTERM)
            status = self.process.wait(60)
            self.process = None
            return status
        return None

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process = None

    __enter__ = start

    def __exit__(self, *_):
        if self.process:
            assert self.stop() == 0, self.log.read_text()[-3000:]

    def context(self, client=None, ca=None):
        context = ssl.create_default_context(cafile=str(ca or self.pki.ca))
        context.check_hostname = False
        if client:
            context.load_cert_chain(client.cert, client.key)
        return context

    def client(self, client, context=None, session=None):
        return Client(self.port, context or self.context(client), session)

    def number(self, name):
        """One of its metrics."""
        with urllib.request.urlopen(f"http://{self.settings['metrics']}/metrics", timeout=30) as page:
            return int(re.search(rf"^naos_keyd_{name} (\d+)$", page.read().decode(), re.M)[1])

    def rss_kib(self, pid=None):
        with open(f"/proc/{pid or self.process.pid}/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    def wait_for_log(self, text, times=1, seconds=30):
        for _ in range(seconds * 50):
            if self.log.read_text().count(text) >= times:
                return
            time.sleep(0.02)
        raise AssertionError(f"'{text}' is not in the log: {self.log.read_text()[-3000:]}")


class Refused(Exception):
    """The server ended the connection instead of answering."""


class Client:
    """One TLS connection."""

    def __init__(self, port, context, session=None):
        raw = socket.create_connection(("127.0.0.1", port), timeout=60)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.tls = context.wrap_socket(raw, session=session)
        except OSError as error:
            raw.close()
            raise Refused(f"handshake: {error}") from error

    def read(self, count):
        got = b""
        while len(got) < count:
            part = self.tls.recv(count - len(got))
            if not part:
                raise Refused("the connection ended")
            got += part
        return got

    def raw(self, data):
        try:
            self.tls.sendall(data)
            head = self.read(8)
            return head + self.read(int.from_bytes(head[4:], "big"))
        except OSError as error:
            raise Refused(str(error)) from error

    def send(self, *items, **header):
        self.tls.sendall(kmip.encode(requests.request(*items, **header)))

    def receive(self):
        head = self.read(8)
        return kmip.decode(head + self.read(int.from_bytes(head[4:], "big"))).all("BatchItem")

    def ask(self, *items, **header):
        return kmip.decode(self.raw(kmip.encode(requests.request(*items, **header)))).all("BatchItem")

    def ok(self, item, **header):
        (answer,) = self.ask(item, **header)
        assert answer.find("ResultStatus").value == "Success", requests.problem(answer)
        return answer.find("ResponsePayload") or kmip.Item("ResponsePayload", "Structure")

    def refused(self, item, **header):
        (answer,) = self.ask(item, **header)
        assert answer.find("ResultStatus").value == "OperationFailed", f"{item.value} was done"
        return answer.find("ResultReason").value, answer.find("ResultMessage").value

    def works(self):
        return self.ok(requests.operation("Query", requests.leaf("QueryFunction", "Enumeration", "QueryOperations")))

    def close(self):
        self.tls.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

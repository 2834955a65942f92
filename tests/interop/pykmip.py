# SPDX-License-Identifier: Apache-2.0
"""PyKMIP's server in a directory of its own.

    with Server(tmp_path / "a", pki, port) as server: ...; server.kill(); server.start()
"""
import os
import pathlib
import signal
import socket
import subprocess
import time

from ports import free_port

PROGRAM = "/usr/bin/pykmip-server"
MISSING = None if os.path.exists(PROGRAM) else "PyKMIP (python3-pykmip) is not installed"


def wait_for_port(port, process, log, seconds=60):
    for _ in range(seconds * 20):
        assert process.poll() is None, f"the server ended: {pathlib.Path(log).read_text()[-2000:]}"
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the server does not listen")


class Server:
    def __init__(self, directory, pki, certificate, port=None):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True)
        (self.directory / "policy").mkdir()
        self.port = port or free_port()
        self.log = self.directory / "server.log"
        self.conf = self.directory / "server.conf"
        self.process = None
        self.conf.write_text(f"""[server]
hostname=127.0.0.1
port={self.port}
certificate_path={certificate.cert}
key_path={certificate.key}
ca_path={pki.ca}
auth_suite=TLS1.2
policy_path={self.directory / "policy"}
enable_tls_client_auth=True
tls_cipher_suites=TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
logging_level=INFO
database_path={self.directory / "pykmip.db"}
""")

    def start(self):
        # a session of its own: what it forks ends with it
        self.process = subprocess.Popen(["/usr/bin/python3", PROGRAM, "-f", str(self.conf), "-l", str(self.log)], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        wait_for_port(self.port, self.process, self.log)
        return self

    def kill(self):
        if self.process:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    __enter__ = start

    def __exit__(self, *_):
        self.kill()

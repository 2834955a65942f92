# SPDX-License-Identifier: Apache-2.0
"""naos-keyd as a daemon: its configuration is checked, it drains, its worker comes back, it tells how it is, its crash tells nothing."""
import ctypes
import errno
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest

import pki as certificates
from keyd import create, decrypt, encrypt, extractable, get_bytes, on, register
from keyd_server import BUILD, PROGRAM, Keyd, Refused
from ports import free_port
from softhsm import MISSING, SoftToken

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.fixture
def keyd(tmp_path):
    pki = certificates.Pki(tmp_path / "pki")
    keyd = Keyd(tmp_path / "keyd", SoftToken(tmp_path / "softhsm"), pki)
    keyd.alice = pki.client("alice", uri="naos://test/alice")
    yield keyd
    if keyd.process:
        keyd.stop()


def check(keyd, **settings):
    """The findings of --check-config, and its exit status."""
    keyd.settings = {"listen": "127.0.0.1:0", **settings}
    keyd.write_config()
    done = subprocess.run([PROGRAM, "--config", keyd.config, "--check-config"], env=keyd.env, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr, done.returncode


def drop_root(text):
    return "\n".join(line for line in text.splitlines() if "it runs as root" not in line and "problems:" not in line)


def test_each_finding_of_the_configuration_check(keyd, tmp_path):
    def finds(expected, **settings):
        text, status = check(keyd, **settings)
        assert status == 1 and expected in drop_root(text), text
    text, _ = check(keyd)
    assert "problem" not in drop_root(text) or "RLIMIT_MEMLOCK" in text, text
    open_key = tmp_path / "open.key"
    open_key.write_bytes(keyd.certificate.key.read_bytes())
    open_key.chmod(0o640)
    finds(f"{open_key} has mode 0640", key=open_key)
    finds("keyd.key: /absent", key="/absent")
    finds("keyd.token is not set", token="")
    finds("the PIN in its address", token="pkcs11:token=a?pin-value=1234")
    keyd.token.pin_file.chmod(0o644)
    finds(f"the PIN file of keyd.token: {keyd.token.pin_file} has mode 0644")
    keyd.token.pin_file.chmod(0o600)
    finds("keyd.audit is not set", audit="")
    finds("numbers without a password belong on a loopback address", metrics="0.0.0.0:9696")
    writable = tmp_path / "ca.pem"
    writable.write_bytes(keyd.pki.ca.read_bytes())
    writable.chmod(0o666)
    finds("has mode 0666", ca=writable)
    assert "warning  keyd.crl is not set" in check(keyd, crl="")[0]
    roles, keyd.roles = keyd.roles, {}
    finds("there is no section [role NAME]")
    keyd.roles = roles
    if os.geteuid() == 0:
        assert "it runs as root" in check(keyd)[0]


def test_an_unsafe_production_configuration_does_not_start(keyd):
    keyd.settings = {"production": "yes", "metrics": "0.0.0.0:0"}
    keyd.write_config()
    done = subprocess.run([PROGRAM, "--config", keyd.config], env=keyd.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "unsafe for production" in done.stderr and "loopback" in done.stdout
    assert not (keyd.directory / "objects.db").exists()


def test_term_answers_what_is_under_way_and_ends_clean(keyd):
    with keyd:
        with keyd.client(keyd.alice) as client:
            uid = client.ok(create()).find("UniqueIdentifier").value
            client.ok(on("Activate", uid))
        acknowledged, stop = [], threading.Event()

        def work():
            with keyd.client(keyd.alice) as client:
                try:
                    while not stop.is_set():
                        acknowledged.append(client.ok(create(name=f"k{threading.get_ident()}-{len(acknowledged)}")).find("UniqueIdentifier").value)
                except Refused:
                    pass
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        while len(acknowledged) < 3:
            time.sleep(0.01)
        worker = keyd.worker()
        assert keyd.stop() == 0
        for thread in threads:
            thread.join()
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)
        keyd.start()
        with keyd.client(keyd.alice) as client:
            for uid in acknowledged:
                client.ok(on("Activate", uid))


def test_a_killed_worker_is_replaced(keyd):
    with keyd, keyd.client(keyd.alice) as client:
        uid = client.ok(create()).find("UniqueIdentifier").value
        client.ok(on("Activate", uid))
        sealed = client.ok(encrypt(uid, b"k" * 32))
        old = keyd.worker()
        os.kill(old, signal.SIGKILL)
        for attempt in range(50):
            (answer,) = client.ask(decrypt(uid, get_bytes(sealed, "Data"), iv=get_bytes(sealed, "IVCounterNonce"), tag=get_bytes(sealed, "AuthenticatedEncryptionTag")))
            if answer.find("ResultStatus").value == "Success":
                break
            time.sleep(0.1)
        assert get_bytes(answer.find("ResponsePayload"), "Data") == b"k" * 32
        assert keyd.worker() != old


def test_an_hsm_that_hangs_holds_up_nobody_else(keyd):
    with keyd, keyd.client(keyd.alice) as client, keyd.client(keyd.alice) as other:
        uid = client.ok(create(name="mek")).find("UniqueIdentifier").value
        client.ok(on("Activate", uid))
        os.kill(keyd.worker(), signal.SIGSTOP)
        try:
            waiting = [keyd.client(keyd.alice) for _ in range(3)]
            for one in waiting:
                one.send(encrypt(uid, b"k" * 32))
                time.sleep(0.3)  # each keeps another thread
            other.works()
        finally:
            os.kill(keyd.worker(), signal.SIGCONT)
        for one in waiting:
            (answer,) = one.receive()
            assert answer.find("ResultStatus").value == "Success"
            one.close()


def get(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_metrics_and_health(keyd):
    port = free_port()
    keyd.settings["metrics"] = f"127.0.0.1:{port}"
    with keyd, keyd.client(keyd.alice) as client:
        client.works()
        with pytest.raises(Refused):
            with keyd.client(None) as nobody:
                nobody.works()
        keyd.wait_for_log("event=handshake-failed")
        status, text = get(port, "/metrics")
        assert status == 200
        numbers = dict(re.findall(r"^(\w+) ([0-9.e+-]+)$", text, re.M))
        assert numbers["naos_keyd_connections_open"] == "1" and numbers["naos_keyd_connections_total"] == "2"
        assert numbers["naos_keyd_handshakes_failed_total"] == "1" and numbers["naos_keyd_hsm_worker_up"] == "1"
        assert numbers["naos_keyd_request_seconds_count"] == "1"
        assert 'naos_keyd_request_seconds_bucket{le="+Inf"} 1' in text
        assert get(port, "/healthz") == (200, "ok\n")
        assert get(port, "/other")[0] == 404


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can read the memory of a process that can't be dumped")
def test_a_crash_of_the_front_exposes_neither_pin_nor_key(keyd, tmp_path):
    """The front forbids cores.  Even its whole memory, read by root while it is stopped, holds no PIN and no key after a use."""
    secret, text = os.urandom(32), os.urandom(32)
    with keyd:
        with keyd.client(keyd.alice) as client:
            uid = client.ok(register(secret, extractable())).find("UniqueIdentifier").value
            client.ok(on("Activate", uid))
            client.ok(on("Get", uid))
            sealed = client.ok(encrypt(uid, text))
            back = client.ok(decrypt(uid, get_bytes(sealed, "Data"), iv=get_bytes(sealed, "IVCounterNonce"), tag=get_bytes(sealed, "AuthenticatedEncryptionTag")))
            assert get_bytes(back, "Data") == text
            client.works()  # the answer before is let go of only after it was sent
            pid = keyd.process.pid
            limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
            assert re.search(r"Max core file size +0 +0", limits)
            os.kill(pid, signal.SIGSTOP)
            try:
                found = search(pid, {"PIN": keyd.token.pin.encode(), "registered key": secret, "plaintext": text})
                assert search(pid, {"identity": b"naos://test/alice"})  # the search does find what is there
            finally:
                os.kill(pid, signal.SIGCONT)
            assert not found, found
        keyd.process.send_signal(signal.SIGABRT)
        assert keyd.process.wait(60) == -signal.SIGABRT
        keyd.process = None
        assert not list(keyd.directory.glob("core*"))


def search(pid, needles):
    """Which needles the memory of a process holds, and where."""
    found = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            bounds, rights = line.split()[:2]
            if "r" not in rights or "w" not in rights:
                continue
            start, end = (int(part, 16) for part in bounds.split("-"))
            if end - start > 1 << 30:  # shadow memory of a sanitizer
                continue
            try:
                memory.seek(start)
                content = memory.read(end - start)
            except OSError:
                continue
            found += [(name, line.split()[-1]) for name, needle in needles.items() if needle in content]
    return found


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_a_new_worker_waits_for_that_of_a_front_that_was_killed(keyd):
    """What the older one was doing when its front was killed may be the making of a key, which the new front clears away."""
    keyd.start()
    former = keyd.worker()
    os.kill(former, signal.SIGSTOP)
    keyd.kill()
    timer = threading.Timer(1.0, os.kill, (former, signal.SIGCONT))
    timer.start()
    keyd.start()
    assert not is_alive(former)
    timer.join()


def test_a_destruction_that_the_hsm_missed_is_ended_without_being_asked_again(keyd):
    keyd.settings["destroy-approvals"] = 1
    with keyd, keyd.client(keyd.alice) as client:
        uid = client.ok(create()).find("UniqueIdentifier").value
        before = len(keyd.token.objects())
        pin, away = keyd.token.pin_file, keyd.directory / "away"
        pin.rename(away)  # the next worker can't log in
        os.kill(keyd.worker(), signal.SIGKILL)
        client.refused(on("Destroy", uid))
        assert client.refused(on("Activate", uid))  # nobody can use it any more
        assert len(keyd.token.objects()) == before
        away.rename(pin)
        for _ in range(600):
            if len(keyd.token.objects()) < before:
                break
            time.sleep(0.1)
        assert len(keyd.token.objects()) == before - 1


def status_of(pid, name):
    with open(f"/proc/{pid}/status") as lines:
        return next(line.split()[1] for line in lines if line.startswith(f"{name}:"))


def inject(pid, number, *arguments):
    """Has a running process make a system call: what it returned."""
    done = subprocess.run([BUILD / "tests/tools/inject_call", str(pid), str(number), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip("no system call can be put into another process here")
    assert done.returncode == 0, done
    return int(done.stdout)


def test_front_and_worker_are_confined(keyd):
    with keyd:
        for pid in (keyd.process.pid, keyd.worker()):
            assert status_of(pid, "NoNewPrivs") == "1" and status_of(pid, "Seccomp") == "2"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can trace a process that can't be dumped")
def test_forbidden_calls_are_refused_in_the_running_daemon(keyd):
    with keyd, keyd.client(keyd.alice) as client:
        front, worker = keyd.process.pid, keyd.worker()
        socket_, execve, mknod, sethostname = 41, 59, 133, 170  # of x86-64; a null pointer would be EFAULT without the filter
        for pid in (front, worker):
            assert inject(pid, socket_, socket.AF_UNIX, socket.SOCK_STREAM, 0) >= 0  # what is allowed goes through
            assert inject(pid, socket_, socket.AF_PACKET, socket.SOCK_RAW, 0) == -errno.EPERM
            for number in (execve, mknod, sethostname):
                assert inject(pid, number, 0, 1, 0) == -errno.EPERM
        assert inject(front, socket_, socket.AF_INET, socket.SOCK_STREAM, 0) >= 0
        assert inject(worker, socket_, socket.AF_INET, socket.SOCK_STREAM, 0) == -errno.EPERM
        client.works()

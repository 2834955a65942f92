# SPDX-License-Identifier: Apache-2.0
"""A crash of the front, with a core, at the worst moments exposes neither PIN nor key.

The test build keyd_planted allows cores and crashes while a certain client's request is under way (cmd/naos-keyd/planted.h).  What is searched
is the memory in the core.  Registers of the thread that works on a key hold some bytes of it at that moment, which nothing can prevent: they are
why the program that is installed allows no core at all (test_keyd_daemon.py)."""
import os
import pathlib
import resource
import signal
import struct

import pytest

import pki as certificates
from keyd import decrypt, encrypt, extractable, get_bytes, on, register
from keyd_server import BUILD, Keyd, Refused
from softhsm import MISSING, SoftToken

CORES = pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip()
pytestmark = [
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
    pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY, reason="core files are forbidden here"),
    pytest.mark.skipif("/" in CORES or CORES.startswith("|"), reason="core files go elsewhere on this machine"),
    pytest.mark.skipif("address" in os.environ.get("NAOS_SANITIZE", ""), reason="AddressSanitizer writes no cores"),
]
MARKER = b"planted-marker-of-the-crash"


@pytest.fixture
def keyd(tmp_path):
    pki = certificates.Pki(tmp_path / "pki")
    keyd = Keyd(tmp_path / "keyd", SoftToken(tmp_path / "softhsm"), pki,
                roles={"all": {"identities": "naos://test/*", "operations": "all", "keys": "*", "class": "either"}})
    keyd.program = BUILD / "tests/tools/keyd_planted"
    keyd.people = {name: pki.client(name, uri=f"naos://test/{name}") for name in ("alice", "crash-request", "crash-answer", "crash-written")}
    yield keyd
    if keyd.process:
        keyd.kill()


def memory_of(core):
    """The parts of a core (ELF, 64 bits) that are memory."""
    (table,), (count,) = struct.unpack_from("<Q", core, 32), struct.unpack_from("<H", core, 56)
    parts = [struct.unpack_from("<IIQQQQQQ", core, table + 56 * number) for number in range(count)]
    return b"".join(core[part[2]:part[2] + part[5]] for part in parts if part[0] == 1)


def crash(keyd, who, *asked):
    """A client asks until the front is dead: the content of the core."""
    with pytest.raises(Refused):
        with keyd.client(keyd.people[who]) as client:
            for item in asked:
                client.ask(item)
            while True:
                client.works()
    assert keyd.process.wait(60) == -signal.SIGABRT
    keyd.process = None
    (core,) = keyd.directory.glob("core*")
    content = memory_of(core.read_bytes())
    core.unlink()
    marked = MARKER in content
    assert marked  # the search does find what lies in ordinary memory
    return content


def prepare(keyd):
    """A registered key that was used: its value, its identifier, a plaintext and its ciphertext."""
    secret, text = os.urandom(32), os.urandom(32)
    with keyd.client(keyd.people["alice"]) as client:
        uid = client.ok(register(secret, extractable())).find("UniqueIdentifier").value
        client.ok(on("Activate", uid))
        client.ok(on("Get", uid))
        sealed = client.ok(encrypt(uid, text))
    back = decrypt(uid, get_bytes(sealed, "Data"), iv=get_bytes(sealed, "IVCounterNonce"), tag=get_bytes(sealed, "AuthenticatedEncryptionTag"))
    return secret, text, uid, back


@pytest.mark.parametrize("point", ["request", "answer", "written"])
@pytest.mark.parametrize("what", ["Register", "Decrypt"])
def test_a_crash_with_a_request_under_way_exposes_neither_pin_nor_key(keyd, point, what):
    keyd.start()
    secret, text, uid, back = prepare(keyd)
    fresh = os.urandom(32)
    asked = {"Register": register(fresh, extractable()), "Decrypt": back}[what]
    core = crash(keyd, f"crash-{point}", asked)
    needles = {"PIN": keyd.token.pin.encode(), "key": secret, "plaintext": text, "fresh key": fresh}
    found = [name for name, needle in needles.items() if needle in core or needle[:16] in core or needle[16:32] in core]
    assert not found, found

# SPDX-License-Identifier: Apache-2.0
"""naos key import: a key that was made elsewhere goes to naos-keyd, from every kind of source, and comes out as it went in."""
import os
import pty
import select
import subprocess
import termios
import time

import pytest

import pki as certificates
from conftest import NAOS
from keyd import locate, name_attribute, on
from keyd_server import Keyd
from softhsm import MISSING, SoftToken

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
ROLES = {"either": {"identities": "naos://test/tapes", "operations": "all", "keys": "own", "class": "either"},
         "sets": {"identities": "naos://test/sets", "operations": "all", "keys": "own"}}


@pytest.fixture(scope="module")
def keyd(tmp_path_factory):
    directory = tmp_path_factory.mktemp("keyd")
    pki = certificates.Pki(directory / "pki")
    with Keyd(directory / "keyd", SoftToken(directory / "softhsm"), pki, roles=ROLES) as keyd:
        keyd.people = {name: pki.client(name, uri=f"naos://test/{name}") for name in ("tapes", "sets")}
        yield keyd


def use(naos, keyd, who):
    client = keyd.people[who]
    naos.config.write_text("[keymanager]\nuri = "
                           f"kmip://127.0.0.1:{keyd.port}?cert={client.cert}&key={client.key}&ca={keyd.pki.ca}\n")
    return naos


@pytest.fixture
def tapes(naos, keyd):
    return use(naos, keyd, "tapes")


def secret_file(path, content):
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(content)
    return path


def value(keyd, uid):
    with keyd.client(keyd.people["tapes"]) as client:
        block = client.ok(on("Get", uid)).find("SymmetricKey").find("KeyBlock")
        return bytes.fromhex(block.find("KeyValue").find("KeyMaterial").value)


@pytest.mark.parametrize("bits", [128, 192, 256])
def test_a_key_in_a_file_comes_out_as_it_went_in(tapes, keyd, tmp_path, bits):
    key = os.urandom(bits // 8 - 1) + b"\n"  # a last byte that looks like a line's end belongs to the key
    (shown,) = tapes.json("key", "import", f"file-{bits}", "--from", f"file:{secret_file(tmp_path / 'key', key)}")
    assert (shown["name"], shown["bits"], shown["state"]) == (f"file-{bits}", bits, "active")
    assert value(keyd, shown["id"]) == key
    with keyd.client(keyd.people["tapes"]) as client:
        found = client.ok(locate(name_attribute(f"file-{bits}"))).all("UniqueIdentifier")
    assert [item.value for item in found] == [shown["id"]]
    # it is no master key of Naos
    assert f"file-{bits}" not in tapes.ok("key", "list")
    assert key.hex() not in keyd.log.read_text()


def test_digits_pipes_and_credentials_are_sources_too(tapes, keyd, tmp_path):
    key = os.urandom(32)
    digits = secret_file(tmp_path / "hex", key.hex().upper().encode() + b"\n")
    (shown,) = tapes.json("key", "import", "digits", "--hex", "--from", f"file:{digits}")
    assert value(keyd, shown["id"]) == key
    (shown,) = tapes.json("key", "import", "pipe", "--from", "fd:0", input=key, text=False)
    assert value(keyd, shown["id"]) == key
    secret_file(tmp_path / "tape", key)
    (shown,) = tapes.json("key", "import", "credential", "--from", "systemd:tape", env={"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert value(keyd, shown["id"]) == key


def test_the_terminal_asks_and_does_not_show_it(tapes, keyd):
    key = os.urandom(16)
    master, slave = pty.openpty()
    process = subprocess.Popen([NAOS, "key", "import", "typed"], env=tapes.env, stdin=slave, stdout=slave, stderr=slave, close_fds=True)
    os.close(slave)
    shown = b""
    while b"hexadecimal" not in shown:
        assert select.select([master], [], [], 60)[0]
        shown += os.read(master, 4096)
    while termios.tcgetattr(master)[3] & termios.ECHO:
        time.sleep(0.01)
    os.write(master, key.hex().encode() + b"\n")
    while b"taken in as" not in shown:
        assert select.select([master], [], [], 60)[0]
        shown += os.read(master, 4096)
    assert process.wait(60) == 0
    os.close(master)
    assert key.hex().encode() not in shown
    uid = shown.split(b"taken in as ")[1].split(b",")[0].decode()
    assert value(keyd, uid) == key


def test_what_can_not_be_taken_is_refused_with_the_reason(naos, keyd, tmp_path):
    good = secret_file(tmp_path / "good", os.urandom(32))
    sets = use(naos, keyd, "sets")
    assert "what was outside is not taken" in sets.fails(3, "key", "import", "mine", "--from", f"file:{good}")
    tapes = use(naos, keyd, "tapes")
    tapes.ok("key", "import", "twice", "--from", f"file:{good}")
    assert "has this name" in tapes.fails(2, "key", "import", "twice", "--from", f"file:{good}")
    tapes.ok("key", "create", "genomes")
    assert "'genomes' is a master key" in tapes.fails(1, "key", "import", "genomes", "--from", f"file:{good}")
    for content, told in ((b"x" * 31, "16, 24 or 32 bytes, this one has 31"), (b"", "empty"), (b"x" * 100, "more than a key")):
        source = secret_file(tmp_path / f"bad-{len(content)}", content)
        assert told in tapes.fails(2, "key", "import", "bad", "--from", f"file:{source}")
    assert "no hexadecimal digit at place 1" in tapes.fails(2, "key", "import", "bad", "--hex", "--from", "fd:0", input="xyz\n")
    assert "no terminal" in tapes.fails(2, "key", "import", "bad")
    os.chmod(good, 0o644)
    assert "is open to others" in tapes.fails(1, "key", "import", "bad", "--from", f"file:{good}")
    digits = os.urandom(32).hex()
    message = tapes.fails(2, "key", "import", "bad", "--from", digits)
    assert "never an argument" in message and digits not in message


def test_a_token_takes_none(keys, tmp_path):
    source = secret_file(tmp_path / "key", os.urandom(32))
    assert "were never outside" in keys.fails(2, "key", "import", "mine", "--from", f"file:{source}")

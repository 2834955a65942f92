# SPDX-License-Identifier: Apache-2.0
"""The backup of docs/operations.md, taken while keys are made and used, restores every key that was acknowledged before it began."""
import shutil
import sqlite3
import threading
import time

import pytest

import pki as certificates
from keyd import create, decrypt, encrypt, get_bytes, on
from keyd_server import Keyd, Refused
from softhsm import MISSING, SoftToken

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


def copy_database(source, target):
    """What sqlite3's .backup does."""
    with sqlite3.connect(source) as old, sqlite3.connect(target) as new:
        old.backup(new)


def copy_if_there(source, target):
    try:
        return shutil.copy2(source, target)
    except FileNotFoundError:
        return target


def test_a_backup_under_load_restores(tmp_path):
    pki = certificates.Pki(tmp_path / "pki")
    token = SoftToken(tmp_path / "softhsm")
    keyd = Keyd(tmp_path / "keyd", token, pki)
    alice = pki.client("alice", uri="naos://test/alice")
    done, stop = [], threading.Event()

    def work(number):
        with keyd.client(alice) as client:
            while not stop.is_set():
                uid = client.ok(create(name=f"key-{number}-{len(done)}-{time.monotonic_ns()}")).find("UniqueIdentifier").value
                client.ok(on("Activate", uid))
                sealed = client.ok(encrypt(uid, uid.encode()))
                done.append((uid, *(get_bytes(sealed, tag) for tag in ("Data", "IVCounterNonce", "AuthenticatedEncryptionTag"))))

    backup = tmp_path / "backup"
    backup.mkdir()
    with keyd:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        while len(done) < 6:
            time.sleep(0.01)
        before = list(done)
        copy_database(keyd.directory / "objects.db", backup / "objects.db")
        copy_database(keyd.directory / "token.db", backup / "token.db")
        # a file that goes while it is copied belongs to no key of the copied database
        shutil.copytree(token.tokens, backup / "tokens", copy_function=copy_if_there)
        shutil.copytree(keyd.audit, backup / "audit")
        while len(done) < len(before) + 3:
            time.sleep(0.01)
        stop.set()
        for thread in threads:
            thread.join()
    # the disk is lost
    shutil.rmtree(token.tokens)
    shutil.rmtree(keyd.directory)
    keyd.directory.mkdir()
    shutil.copytree(backup / "tokens", token.tokens)
    for name in ("objects.db", "token.db"):
        shutil.copy(backup / name, keyd.directory / name)
    shutil.copytree(backup / "audit", keyd.audit)
    with keyd, keyd.client(alice) as client:
        for uid, data, iv, tag in before:
            assert get_bytes(client.ok(decrypt(uid, data, iv=iv, tag=tag)), "Data") == uid.encode()
        uid = client.ok(create()).find("UniqueIdentifier").value
        client.ok(on("Activate", uid))


def test_a_reader_that_comes_and_goes_takes_no_lock_away(tmp_path):
    """The last connection to a database puts its write-ahead log away.  A reader is never the last one while the key manager runs:
    if it thought so, as when the key manager had lost its lock, both would write over each other."""
    pki = certificates.Pki(tmp_path / "pki")
    with Keyd(tmp_path / "keyd", SoftToken(tmp_path / "softhsm"), pki) as keyd:
        with keyd.client(pki.client("alice", uri="naos://test/alice")) as client:
            client.ok(create())
        for name in ("objects.db", "token.db"):
            log = keyd.directory / f"{name}-wal"
            assert log.exists()
            with sqlite3.connect(keyd.directory / name) as reader:
                assert reader.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            reader.close()
            assert log.exists(), f"the reader put the log of {name} away"

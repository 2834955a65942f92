# SPDX-License-Identifier: Apache-2.0
"""SIGKILL of the key manager's front or HSM worker at random moments, while several clients make, use, rotate and end keys.

What was acknowledged is written down by the clients; after the kills it is compared with what the key manager still knows:
every acknowledged key decrypts what it encrypted, no acknowledged destruction comes back, the audit log verifies.
"""
import os
import random
import signal
import threading
import time

import keyd as km
import pki as certificates
from keyd_server import Keyd, Refused

CLIENTS = 4
ROLES = {"tester": {"identities": "tester", "operations": "all", "keys": "own", "class": "either"}}


SETTINGS = {"destroy-approvals": 1}


class OverTls:
    """The real naos-keyd, each thread with a TLS connection of its own, with the face of keyd.KeyManager."""

    def __init__(self, directory, token):
        pki = certificates.Pki(directory / "pki")
        roles = {"tester": {**ROLES["tester"], "identities": "naos://test/tester"}}
        self.keyd = Keyd(directory, token, pki, roles=roles, settings={**SETTINGS, "threads": CLIENTS})
        self.tester, self.local = pki.client("tester", uri="naos://test/tester"), threading.local()

    @property
    def process(self):
        return self.keyd.process

    def ask(self, _identity, *items):
        try:
            if not hasattr(self.local, "client"):
                self.local.client = self.keyd.client(self.tester)
            return self.local.client.ask(*items)
        except (Refused, OSError) as error:
            raise km.Died(str(error)) from error

    def ok(self, identity, item):
        (answer,) = self.ask(identity, item)
        assert succeeded([answer]), km.problem(answer)
        return answer.find("ResponsePayload")

    def start(self):
        self.local = threading.local()
        self.keyd.start()

    def kill(self):
        self.keyd.kill()

    def __enter__(self):
        self.start()

    def __exit__(self, *_):
        self.keyd.stop()


class Ledger:
    """What was acknowledged: keys with a ciphertext of each, and destroyed ones."""

    def __init__(self):
        self.lock, self.living, self.ended, self.unsure, self.acknowledged = threading.Lock(), {}, set(), set(), 0

    def note(self, change):
        with self.lock:
            change()
            self.acknowledged += 1


def succeeded(items):
    return all(item.find("ResultStatus").value == "Success" for item in items)


def one_life(manager, ledger, dice):
    """Create, activate, encrypt, maybe rotate, maybe destroy; each step noted when it is acknowledged."""
    resident = dice.random() < 0.15  # a key in the token takes long to make
    (made,) = manager.ask("tester", km.create(*([] if resident else [km.extractable()]), name=f"k-{dice.getrandbits(64):x}"))
    if not succeeded([made]):
        return
    uid = made.find("ResponsePayload", "UniqueIdentifier").value
    if not succeeded(manager.ask("tester", km.on("Activate", uid))):
        return
    text = dice.randbytes(32)
    (sealed,) = manager.ask("tester", km.encrypt(uid, text))
    if not succeeded([sealed]):
        return
    payload = sealed.find("ResponsePayload")
    pieces = {tag: km.get_bytes(payload, tag) for tag in ("Data", "IVCounterNonce", "AuthenticatedEncryptionTag")}
    ledger.note(lambda: ledger.living.update({uid: (text, pieces)}))
    if dice.random() < 0.2:
        manager.ask("tester", km.on("ReKey", uid))
    if dice.random() < 0.3:
        with ledger.lock:  # from now on it may be gone or not, until that is acknowledged
            ledger.unsure.add(uid)
        if succeeded(manager.ask("tester", km.revoke(uid))) and succeeded(manager.ask("tester", km.on("Destroy", uid))):
            ledger.note(lambda: ledger.ended.add(uid))


def client(manager, ledger, seed, stop):
    dice = random.Random(seed)
    while not stop.is_set():
        try:
            one_life(manager, ledger, dice)
        except km.Died:
            return


def check(manager, ledger):
    """The acknowledged keys, all of them."""
    for uid, (text, pieces) in ledger.living.items():
        (answer,) = manager.ask("tester", km.decrypt(uid, pieces["Data"], iv=pieces["IVCounterNonce"],
                                                     tag=pieces["AuthenticatedEncryptionTag"]))
        if uid in ledger.ended:
            assert not succeeded([answer]), f"{uid} was destroyed, and decrypts"
            state = manager.ok("tester", km.on("GetAttributes", uid, km.text("AttributeName", "State")))
            assert state.find("Attribute", "AttributeValue").value.startswith("Destroyed"), uid
        elif uid not in ledger.unsure:
            assert succeeded([answer]), f"{uid} was acknowledged: {km.problem(answer)}"
            assert km.get_bytes(answer.find("ResponsePayload"), "Data") == text, uid


def kill_worker(manager):
    """The worker is a child of the front; the front starts another."""
    tasks = os.listdir(f"/proc/{manager.process.pid}/task")
    found = [int(word) for task in tasks for word in open(f"/proc/{manager.process.pid}/task/{task}/children").read().split()]
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def campaign(directory, token, kills, seed, seconds=None, over_tls=False):
    """Returns the ledger and how many kills were done; at least a few, at most `kills`, within about `seconds`."""
    dice, ledger, done, began = random.Random(seed), Ledger(), 0, time.monotonic()
    manager = OverTls(directory, token) if over_tls else km.KeyManager(directory, token, roles=ROLES, settings=SETTINGS, threads=CLIENTS)
    while done < kills and (seconds is None or done < 10 or time.monotonic() - began < seconds):
        manager.start()
        stop = threading.Event()
        clients = [threading.Thread(target=client, args=(manager, ledger, dice.getrandbits(64), stop)) for _ in range(CLIENTS)]
        for thread in clients:
            thread.start()
        for _ in range(dice.randint(0, 2)):
            time.sleep(dice.uniform(0.01, 0.3))
            kill_worker(manager)
            done += 1
        time.sleep(dice.uniform(0.01, 0.3))
        stop.set()
        manager.kill()
        done += 1
        for thread in clients:
            thread.join()
    with manager:
        check(manager, ledger)
    return ledger, done

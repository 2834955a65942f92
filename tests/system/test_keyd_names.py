# SPDX-License-Identifier: Apache-2.0
"""A name belongs to one living object of an owner, whatever happens at the same moment, and is free when it is given up."""
import threading

import pytest

import keyd as km

THREADS = 8


@pytest.fixture
def manager(tmp_path, token):
    roles = {"user": {"identities": "alice bob", "operations": "all", "keys": "own", "class": "either"}}
    with km.KeyManager(tmp_path / "keyd", token, roles=roles, settings={"destroy-approvals": 1}) as running:
        yield running


def at_once(asks):
    """Does all of them at the same moment; the first batch item of each answer."""
    answers, gate = [None] * len(asks), threading.Barrier(len(asks))

    def one(number):
        gate.wait()
        answers[number] = asks[number]()[0]
    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(asks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def won(answers):
    good = [answer for answer in answers if answer.find("ResultStatus").value == "Success"]
    for answer in answers:
        assert answer in good or "has this name" in km.problem(answer), km.problem(answer)
    return [answer.find("ResponsePayload", "UniqueIdentifier").value for answer in good]


def make(manager, name, who="alice"):
    return manager.ok(who, km.create(km.extractable(), name=name)).find("UniqueIdentifier").value


def named(manager, name, who="alice"):
    return [item.value for item in manager.ok(who, km.locate(km.name_attribute(name))).all("UniqueIdentifier")]


@pytest.mark.parametrize("where", ["resident", "exportable"])
def test_of_creations_at_the_same_moment_one_gets_the_name(manager, where):
    more = [km.extractable()] if where == "exportable" else []
    for number in range(3 if where == "resident" else 20):
        name = f"race-{number}"
        uids = won(at_once([lambda: manager.ask("alice", km.create(*more, name=name))] * THREADS))
        assert len(uids) == 1 and named(manager, name) == uids
    # names of others are no hindrance
    assert make(manager, "race-0", "bob")


def test_of_renamings_at_the_same_moment_one_gets_the_name(manager):
    keys = [make(manager, f"key-{number}") for number in range(THREADS)]
    for number in range(20):
        name = f"wanted-{number}"
        change = "AddAttribute" if number % 2 else "ModifyAttribute"
        uids = won(at_once([lambda uid=uid: manager.ask("alice", km.on(change, uid, km.name_attribute(name))) for uid in keys]))
        assert len(uids) == 1 and named(manager, name) == uids


def test_a_name_is_free_when_it_was_given_up(manager):
    first = make(manager, "one")
    assert manager.refused("alice", km.create(km.extractable(), name="one"))[0] == "InvalidField"
    manager.ok("alice", km.on("ModifyAttribute", first, km.name_attribute("two")))
    second = make(manager, "one")  # the renamed object has it no more
    manager.ok("alice", km.on("AddAttribute", second, km.name_attribute("three")))
    manager.ok("alice", km.on("DeleteAttribute", second, km.text("AttributeName", "Name"), km.leaf("AttributeIndex", "Integer", 1)))
    assert make(manager, "three")
    manager.ok("alice", km.on("Destroy", second))
    third = make(manager, "one")
    # a re-keyed object's name goes to its successor; what the successor does not take is free
    successor = manager.ok("alice", km.on("ReKey", third)).find("UniqueIdentifier").value
    assert named(manager, "one") == [successor]
    manager.refused("alice", km.create(km.extractable(), name="one"))
    manager.ok("alice", km.on("Destroy", third))
    manager.refused("alice", km.create(km.extractable(), name="one"))
    # all of it after a restart
    manager.stop()
    manager.start()
    for name in ("one", "two", "three"):
        manager.refused("alice", km.create(km.extractable(), name=name))
    manager.ok("alice", km.on("Destroy", successor))
    assert make(manager, "one")


def test_a_refused_change_keeps_the_names_as_they_were(manager):
    first, second = make(manager, "first"), make(manager, "second")
    manager.refused("alice", km.create(km.extractable(), km.name_attribute("fresh"), name="first"))
    assert make(manager, "fresh")  # a refused creation took none of its names
    manager.refused("alice", km.on("ModifyAttribute", second, km.name_attribute("first")))
    assert named(manager, "first") == [first] and named(manager, "second") == [second]
    manager.refused("alice", km.create(km.extractable(), name="second"))

# SPDX-License-Identifier: Apache-2.0
"""The OASIS test cases through the converter and through lib/kmip; the converter on the recorded messages."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import oasis_kmip as kmip  # noqa: E402

SOURCE = pathlib.Path(os.environ.get("NAOS_SOURCE") or pathlib.Path(__file__).resolve().parents[2])
AGAIN = os.environ.get("NAOS_KMIP_AGAIN") or str(SOURCE / "build/tests/interop/kmip_again")
# Operations that Naos does not have: a message with one is kept as it stands.
OTHER_OPERATIONS = {"Put", "Notify"}


def recorded():
    for line in (SOURCE / "tests/data/kmip/messages.txt").read_text().splitlines():
        if not line.startswith("#"):
            yield line.split()


def cases(shared, *versions):
    return sorted(path for version in versions for path in (shared / f"data/kmip/oasis-{version}").glob("*.xml"))


def again(messages):
    done = subprocess.run([AGAIN], input="".join(m.hex() + "\n" for m in messages), stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


class Anything(dict):
    """A value for any placeholder."""

    def __missing__(self, name):
        return "00" * 16 if any(word in name for word in ("DATA", "KEY", "TAG", "NONCE", "CORRELATION")) else "id-0"


def test_recorded_messages_come_back_through_trees_and_xml():
    count = 0
    for name, text in recorded():
        data = bytes.fromhex(text)
        tree = kmip.decode(data)
        assert kmip.encode(tree) == data, name
        assert kmip.encode(kmip.from_xml(kmip.to_xml(tree))) == data, name
        count += 1
    assert count == 352


def test_every_field_of_the_tables_is_in_a_message_that_comes_back():
    """tests/unit/kmip_messages.c shows that all of these come back through the tables."""
    seen = set()

    def walk(item):
        seen.add(item.tag)
        for inner in item.items:
            walk(inner)
    for _, text in recorded():
        walk(kmip.decode(bytes.fromhex(text)))
    for path in (SOURCE / "tests/fuzz/seeds/kmip").glob("made-*"):
        walk(kmip.decode(path.read_bytes()))
    rows = [row for path in (SOURCE / "lib/kmip").glob("*.c")
            for row in re.findall(r"NAOS_KMIP_(?:FIELD|LIST|INNER|INNER_LIST)\(\w+, [\w.]+, (\w+),", path.read_text())]
    assert len(rows) > 150
    assert [row for row in rows if kmip.CONSTANTS[row] not in seen] == []


def test_a_damaged_or_unknown_message_is_an_error():
    data = bytes.fromhex(next(recorded())[1])
    with pytest.raises((ValueError, kmip.struct.error)):
        kmip.decode(data[:-4])
    with pytest.raises(kmip.Unknown):
        kmip.decode(b"\x55\x55\x55\x01" + data[4:])
    with pytest.raises(kmip.Unknown):
        kmip.encode(kmip.Item("State", "Enumeration", "Asleep", meaning="State"))


def test_answers_are_matched_and_placeholders_learnt():
    def tree(uid, when):
        return kmip.Item("ResponsePayload", "Structure", items=[
            kmip.Item("UniqueIdentifier", "TextString", uid, meaning="UniqueIdentifier"),
            kmip.Item("TimeStamp", "DateTime", when, meaning="TimeStamp")])
    names = kmip.Names(now=1000)
    assert names.match(tree("$UNIQUE_IDENTIFIER_0", "$NOW"), tree("17", "1010")) == []
    assert names.values == {"$UNIQUE_IDENTIFIER_0": "17"}
    assert len(names.match(tree("$UNIQUE_IDENTIFIER_0", "$NOW"), tree("18", "1010"))) == 1
    assert len(names.match(tree("$UNIQUE_IDENTIFIER_0", "$NOW"), tree("17", "2000"))) == 1
    assert kmip.encode(tree("$UNIQUE_IDENTIFIER_0", "$NOW+5"), names) == kmip.encode(tree("17", "1005"))


def test_all_oasis_messages_go_through_lib_kmip(shared):
    names = kmip.Names(now=1500000000, values=Anything())
    named, messages, other = [], [], []
    for path in cases(shared, "v1.2", "v1.4", "v1.4-tc"):
        for index, tree in enumerate(kmip.messages(path)):
            operations = {item.find("Operation").value for item in tree.all("BatchItem") if item.find("Operation")}
            named.append(f"{path.name} message {index}")
            messages.append(kmip.encode(tree, names))
            assert kmip.encode(kmip.decode(messages[-1])) == messages[-1], named[-1]
            other.append(bool(operations & OTHER_OPERATIONS))
    answers = again(messages)
    assert len(answers) == len(messages) > 1000
    wrong = [f"{name}: {answer}" for name, answer, kept in zip(named, answers, other)
             if not (answer == "same" or (kept and answer.startswith("raw ")))]
    assert not wrong, "\n".join(wrong)


def test_oasis_messages_of_2_0_can_be_converted(shared):
    names = kmip.Names(now=1500000000, values=Anything())
    trees = [tree for path in cases(shared, "v2.0") for tree in kmip.messages(path)]
    assert len(trees) > 20
    for tree in trees:
        data = kmip.encode(tree, names)
        assert kmip.encode(kmip.decode(data)) == data

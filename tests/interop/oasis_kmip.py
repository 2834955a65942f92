# SPDX-License-Identifier: Apache-2.0
"""KMIP messages as XML (the form of the OASIS test cases) and as TTLV bytes, each from the other.

    for request, response in exchanges(path):               # trees of Item
        names = Names(now=time.time())                      # one per run of a case
        data = encode(request, names)                       # $UNIQUE_IDENTIFIER_0 … are replaced
        problems = names.match(response, decode(answer))    # and learnt from the answers

Numbers come from lib/kmip/tags.def and enums.def, the tables of the C code.
"""
import dataclasses
import datetime
import pathlib
import re
import struct
import xml.etree.ElementTree

KMIP = pathlib.Path(__file__).resolve().parents[2] / "lib/kmip"
TYPES = {"Structure": 1, "Integer": 2, "LongInteger": 3, "BigInteger": 4, "Enumeration": 5, "Boolean": 6, "TextString": 7,
         "ByteString": 8, "DateTime": 9, "Interval": 10, "DateTimeExtended": 11}
TYPE_NAMES = {number: name for name, number in TYPES.items()}
PACKED = {"Integer": ">i4x", "LongInteger": ">q", "Enumeration": ">I4x", "Boolean": ">Q", "DateTime": ">q", "Interval": ">I4x",
          "DateTimeExtended": ">q"}


class Unknown(ValueError):
    """A name that the tables don't have."""


def _read_tags():
    rows = re.findall(r'^X\((\w+), (0x[0-9a-f]+), "(\w+)"\)', (KMIP / "tags.def").read_text(), re.M)
    return {text: int(number, 16) for _, number, text in rows}, {name: text for name, _, text in rows}


def _read_enums(constants):
    values, current = {}, None
    for line in (KMIP / "enums.def").read_text().splitlines():
        if begin := re.match(r"BEGIN\(\w+, (\w+)\)", line):
            current = values.setdefault(constants[begin[1]], {})
        elif row := re.match(r'X\(\w+, \w+, (0x[0-9a-f]+), "(\w+)"\)', line):
            current[row[2]] = int(row[1], 16)
    values["MaskGeneratorHashingAlgorithm"] = values["HashingAlgorithm"]
    return values


TAGS, CONSTANTS = _read_tags()
TAG_NAMES = {number: name for name, number in TAGS.items()}
ENUMS = _read_enums(CONSTANTS)


@dataclasses.dataclass
class Item:
    """One item: `value` is the text of the XML attribute, `items` are the children of a structure.

    `meaning` names the enumeration of the value: the tag, or for an AttributeValue of 1.x the attribute.
    """
    tag: str
    type: str
    value: str = ""
    items: list = dataclasses.field(default_factory=list)
    meaning: str = ""

    def find(self, *path):
        """The first item below with these tags, one a level, or None."""
        for item in self.items:
            if item.tag == path[0]:
                return item.find(*path[1:]) if len(path) > 1 else item
        return None

    def all(self, tag):
        return [item for item in self.items if item.tag == tag]


def _meaning(tag, attribute_name):
    return re.sub(r"\W", "", attribute_name) if tag == "AttributeValue" else tag


def from_xml(element):
    """A tree of Item from an element; comments are left out."""
    item = Item(element.tag, element.get("type", "Structure"), element.get("value", ""), meaning=element.tag)
    attribute_name = ""
    for child in element:
        if not isinstance(child.tag, str):
            continue
        inner = from_xml(child)
        inner.meaning = _meaning(inner.tag, attribute_name)
        if inner.tag == "AttributeName":
            attribute_name = inner.value
        item.items.append(inner)
    return item


def to_xml(item):
    """The element of a tree, the inverse of from_xml."""
    element = xml.etree.ElementTree.Element(item.tag)
    if item.type != "Structure":
        element.set("type", item.type)
        element.set("value", item.value)
    element.extend(to_xml(inner) for inner in item.items)
    return element


def messages(path):
    """All messages of a test case, in order."""
    root = xml.etree.ElementTree.parse(path).getroot()
    return [from_xml(element) for element in root.iter() if element.tag in ("RequestMessage", "ResponseMessage")]


def exchanges(path):
    """Pairs of request and expected response; a message without its partner has None there."""
    pairs = []
    for message in messages(path):
        if message.tag == "RequestMessage":
            pairs.append([message, None])
        elif pairs and pairs[-1][1] is None:
            pairs[-1][1] = message
        else:
            pairs.append([None, message])
    return [tuple(pair) for pair in pairs]


class Names:
    """What stands for the placeholders of one run of a case: $NOW, $NOW+20, $UNIQUE_IDENTIFIER_0, …

    `skew_s`: by how many seconds a time of the answer may differ from the expected one.
    """

    def __init__(self, now, values=None, skew_s=60):
        self.now = int(now)
        self.values = {} if values is None else values
        self.skew_s = skew_s

    def replace(self, item):
        """The value of an item without placeholder; KeyError where it is not known yet."""
        if not item.value.startswith("$"):
            return item.value
        if time := re.fullmatch(r"\$NOW([+-]\d+)?", item.value):
            return str(self.now + int(time[1] or 0))
        return self.values[item.value]

    def match(self, expected, actual, path=""):
        """The differences of an answer from the expected one, as sentences; placeholders without a value get theirs."""
        here = f"{path}/{expected.tag}"
        if (expected.tag, expected.type) != (actual.tag, actual.type):
            return [f"{here}: {actual.tag} ({actual.type}) instead of {expected.type}"]
        if expected.type != "Structure":
            return self._match_value(expected, actual, here)
        if len(expected.items) != len(actual.items):
            return [f"{here}: holds {[i.tag for i in actual.items]} instead of {[i.tag for i in expected.items]}"]
        return [problem for pair in zip(expected.items, actual.items) for problem in self.match(*pair, here)]

    def _match_value(self, expected, actual, here):
        if expected.value.startswith("$") and not expected.value.startswith("$NOW") and expected.value not in self.values:
            self.values[expected.value] = actual.value
            return []
        wanted = number(expected, self) if expected.type in PACKED else self.replace(expected)
        got = number(actual, self) if actual.type in PACKED else actual.value
        if expected.type == "DateTime" and expected.value.startswith("$NOW"):
            equal = abs(wanted - got) <= self.skew_s
        else:
            equal = wanted == got or (expected.type in ("ByteString", "BigInteger") and wanted.lower() == got.lower())
        return [] if equal else [f"{here}: {actual.value!r} instead of {expected.value!r}"]


NO_NAMES = Names(0)


def _enumeration(meaning, text):
    if re.fullmatch(r"0x[0-9a-fA-F]+", text):
        return int(text, 16)
    if meaning == "AttributeReference" and text in TAGS:
        return TAGS[text]
    if text in ENUMS.get(meaning, {}):
        return ENUMS[meaning][text]
    raise Unknown(f"{meaning}: no value named {text}")


def _mask(meaning, text):
    value = 0
    for word in re.split(r"[\s|]+", text):
        value |= int(word, 0) if re.match(r"-?\d", word) else _enumeration(meaning, word)
    return value - (1 << 32) if value >= 1 << 31 else value


def _seconds(text):
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return int(datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp())


def number(item, names=NO_NAMES):
    """The number of an item of fixed length."""
    text = names.replace(item)
    if item.type == "Enumeration":
        return _enumeration(item.meaning, text)
    if item.type == "Integer":
        return _mask(item.meaning, text) if text.strip() else 0
    if item.type == "Boolean":
        return {"true": 1, "false": 0, "1": 1, "0": 0}[text.lower()]
    return _seconds(text) if item.type == "DateTime" else int(text, 0)


def encode(item, names=NO_NAMES):
    """TTLV bytes of a tree."""
    if item.tag not in TAGS:
        raise Unknown(f"no tag named {item.tag}")
    if item.type == "Structure":
        value = b"".join(encode(inner, names) for inner in item.items)
    elif item.type == "TextString":
        value = names.replace(item).encode()
    elif item.type in ("ByteString", "BigInteger"):
        value = bytes.fromhex(names.replace(item))
    else:
        value = struct.pack(PACKED[item.type], number(item, names))
    length = 4 if PACKED.get(item.type, "").endswith("4x") else len(value)
    return struct.pack(">II", TAGS[item.tag] << 8 | TYPES[item.type], length) + value + bytes(-len(value) % 8)


def _text(item, value):
    """A value as XML writes it; what has no name stays a number."""
    if item.type == "Enumeration":
        if item.meaning == "AttributeReference" and value in TAG_NAMES:
            return TAG_NAMES[value]
        names = {number: name for name, number in ENUMS.get(item.meaning, {}).items()}
        return names.get(value, f"0x{value:08x}")
    if item.type == "Boolean":
        return "true" if value else "false"
    if item.type == "DateTime":
        return datetime.datetime.fromtimestamp(value, datetime.timezone.utc).isoformat()
    return str(value)


def _decode_item(data, at, attribute_name):
    head, length = struct.unpack_from(">II", data, at)
    tag = TAG_NAMES.get(head >> 8)
    if tag is None:
        raise Unknown(f"no tag {head >> 8:06x}")
    item = Item(tag, TYPE_NAMES[head & 0xff], meaning=_meaning(tag, attribute_name))
    end = at + 8 + length
    value = data[at + 8:end]
    if len(value) != length:
        raise ValueError(f"{tag} at byte {at} is cut")
    if item.type == "Structure":
        item.items = _decode_items(value)
    elif item.type == "TextString":
        item.value = value.decode()
    elif item.type in PACKED:
        item.value = _text(item, struct.unpack_from(PACKED[item.type].replace("4x", ""), value)[0])
    else:
        item.value = value.hex()
    return item, end + -length % 8


def _decode_items(data):
    items, at, attribute_name = [], 0, ""
    while at < len(data):
        item, at = _decode_item(data, at, attribute_name)
        if item.tag == "AttributeName":
            attribute_name = item.value
        items.append(item)
    return items


def decode(data):
    """The tree of one message."""
    items = _decode_items(data)
    if len(items) != 1:
        raise ValueError(f"{len(items)} messages instead of one")
    return items[0]

# SPDX-License-Identifier: Apache-2.0
"""Replays OASIS test cases on a live key manager and compares its answers with the expected ones.

What a case can't know is compared by form, each for its reason:
- texts for people, and what a server tells of itself (Query, the generator of a key);
- what is made from random bytes (keys, IVs, ciphertexts of keys that the server made): the first value seen for an expected one is
  learnt, must have its length, and stands for it from then on, in both directions;
- dates that a server sets, where the document has the day on which it was written;
- Located Items, which a server may leave out or not.
A list of all attributes, or of their names, may be longer than the expected one, never shorter.
"""
import re
import time

import oasis_kmip as kmip

FORM_ONLY = {"ResultMessage", "VendorIdentification", "ServerInformation"}
WRITTEN_AFTER_UNIX_S = 1300000000  # earlier dates are the cases' own
RANDOM = {"Data", "KeyMaterial", "IVCounterNonce", "AuthenticatedEncryptionTag", "DigestValue"}


class Case:
    """One run of a case; `ask` takes and gives the bytes of a message."""

    def __init__(self, path, ask):
        self.path, self.ask = path, ask
        self.names = kmip.Names(now=time.time())
        self.registered = False  # a case that registers its keys knows what comes of them
        self.learnt = {}  # value of the case → value of this run

    def run(self):
        """The first differences as sentences; none: passed."""
        for number, (request, expected) in enumerate(kmip.exchanges(self.path)):
            if request is None or expected is None:
                return [f"step {number}: a message from the server to the client"]
            self.registered |= any(operation(item) == "Register" for item in request.all("BatchItem"))
            self.prepare(request)
            if any(item.find("RequestPayload", "InitIndicator") for item in request.all("BatchItem")):
                self.names.values.pop("$CORRELATION_VALUE", None)  # the server makes a new one
            self.prepare(expected)
            problems = self.compare_message(request, expected, kmip.decode(self.ask(kmip.encode(request, self.names))))
            if problems:
                return [f"step {number} ({', '.join(operation(i) or '?' for i in request.all('BatchItem'))}): {problem}"
                        for problem in problems]
        return []

    def prepare(self, item):
        """Names without the line breaks of the document that they were taken from; random values as they are in this run."""
        if item.tag == "AttributeName":
            item.value = re.sub(r"\s+", " ", item.value)
        item.value = self.learnt.get(item.value.lower(), item.value)
        attribute_name = ""
        for inner in item.items:
            self.prepare(inner)
            if inner.tag == "AttributeName":
                attribute_name = inner.value
            if inner.tag == "AttributeValue":
                inner.meaning = re.sub(r"\W", "", attribute_name)

    def compare_message(self, request, expected, actual):
        wanted, got = expected.all("BatchItem"), actual.all("BatchItem")
        problems = self.names.match(expected.find("ResponseHeader", "ProtocolVersion"), actual.find("ResponseHeader", "ProtocolVersion"))
        for asked, *pair in zip(request.all("BatchItem"), wanted, got):
            self.random = not self.registered or (operation(asked) == "Encrypt" and not asked.find("RequestPayload", "IVCounterNonce"))
            self.everything = operation(asked) == "GetAttributeList" or (
                operation(asked) == "GetAttributes" and not asked.find("RequestPayload", "AttributeName"))
            problems += self.compare_item(*pair)
        if len(wanted) != len(got):
            problems.append(f"{len(got)} answers instead of {len(wanted)}")
        return problems

    def compare_item(self, expected, actual):
        status = [item.find("ResultStatus").value for item in (expected, actual)]
        reasons = [getattr(item.find("ResultReason"), "value", None) for item in (expected, actual)]
        if status[0] != status[1] or reasons[0] != reasons[1]:
            message = actual.find("ResultMessage")
            return [f"{status[1]} {reasons[1] or ''} ({message.value if message else ''}) instead of {status[0]} {reasons[0] or ''}"]
        for tag in ("Operation", "UniqueBatchItemID"):
            problems = self.compare(expected.find(tag), actual.find(tag), tag) if expected.find(tag) else []
            if problems:
                return problems
        wanted, got = expected.find("ResponsePayload"), actual.find("ResponsePayload")
        if wanted is None or got is None:
            return [] if wanted is got else ["only one of the two has a payload"]
        return self.compare_payload(wanted, got, operation(expected))

    def compare_payload(self, expected, actual, name):
        """Field by field; attributes by their names."""
        problems = []
        if name == "Query":
            kinds = ({item.tag for item in payload.items} for payload in (expected, actual))
            missing = set.difference(*kinds)
            return [f"{sorted(missing)} are missing"] if missing else []
        left = list(actual.items)
        for wanted in expected.items:
            got = next((item for item in left if key(item) == key(wanted) and not self.compare(wanted, item, "", learn=False)),
                       next((item for item in left if key(item) == key(wanted)), None))
            if got is None:
                problems.append(f"{key(wanted)} is missing")
                continue
            left.remove(got)
            problems += self.compare(wanted, got, key(wanted))
        left = [key(item) for item in left if item.tag != "LocatedItems"]
        if left and not self.everything:
            problems.append(f"{left} not expected")
        return problems

    def compare(self, expected, actual, path, learn=True):
        if actual is None or (expected.tag, expected.type) != (actual.tag, actual.type):
            return [f"{path}: {actual and actual.tag} instead of {expected.tag}"]
        if expected.tag in FORM_ONLY or key(expected) == "Attribute Random Number Generator":
            return []
        if expected.tag in RANDOM and not expected.value.startswith("$") and self.random:
            if len(expected.value) == len(actual.value) and (expected.value.lower() not in self.learnt.values()):
                if learn:
                    self.learnt[expected.value.lower()] = actual.value
                    names = {"Data": "$DATA_0", "IVCounterNonce": "$IV_COUNTER_NONCE"}
                    self.names.values.setdefault(names.get(expected.tag, expected.tag), actual.value)
                return []
        if expected.type == "Structure":
            if len(expected.items) != len(actual.items):
                return [f"{path}: holds {[i.tag for i in actual.items]} instead of {[i.tag for i in expected.items]}"]
            return [p for pair in zip(expected.items, actual.items) for p in self.compare(*pair, f"{path}/{pair[0].tag}", learn)]
        if expected.value.startswith("$") and not expected.value.startswith("$NOW"):
            if expected.value not in self.names.values and not learn:
                return []
        if expected.type == "DateTime" and not expected.value.startswith("$") and kmip.number(expected) > WRITTEN_AFTER_UNIX_S:
            expected = kmip.Item(expected.tag, expected.type, "$NOW", meaning=expected.meaning)
        return self.names.match(expected, actual, path)


def operation(item):
    found = item.find("Operation")
    return found.value if found else None


def key(item):
    name = item.find("AttributeName") if item.type == "Structure" else None
    return f"{item.tag} {name.value}" if name else item.tag


def family(path):
    """Cases of one profile build on each other: "TL" of TL-M-3-14.xml."""
    return re.sub(r"-(M-)?\d.*", "", path.stem)


def order(path):
    return family(path), [int(number) for number in re.findall(r"\d+", path.stem)]

# SPDX-License-Identifier: Apache-2.0
"""An independent verifier of audit logs, written from docs/formats/audit-log.md alone: hashlib and python3-cryptography.

verify(directory, key=None, earlier=None) returns the records or raises Bad.
"""
import base64
import hashlib
import json
import pathlib
import re

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


class Bad(Exception):
    pass


def need(condition, what):
    if not condition:
        raise Bad(what)


def unbase64(text):
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as reason:
        raise Bad(f"base64: {reason}") from None
    need(base64.b64encode(data).decode() == text, "base64 in another spelling")
    return data


def key_id(name, kind, public):
    return hashlib.sha256(name.encode() + b"\n" + bytes([kind]) + public).digest()[:4]


def parse_key(text):
    match = re.fullmatch(r"([!-*,-~]{1,255})\+([0-9a-f]{8})\+(\S+)\n?", text)
    need(match, "key.pub")
    blob = unbase64(match[3])
    need(len(blob) == 33 and blob[0] in (1, 4) and bytes.fromhex(match[2]) == key_id(match[1], blob[0], blob[1:]), "key.pub")
    return match[1], blob[0], blob[1:]


def parse_checkpoint(note, key):
    """(origin, size, root) of a checkpoint with a good signature of the key."""
    name, kind, public = key
    need(not re.search(r"[\x00-\x09\x0b-\x1f]", note) and note.endswith("\n") and "\n\n" in note, "checkpoint")
    text, _, signatures = note.rpartition("\n\n")
    text += "\n"
    lines = text.split("\n")
    need(len(lines) >= 4 and re.fullmatch(r"0|[1-9][0-9]{0,18}", lines[1]) and int(lines[1]) < 2**63, "checkpoint")
    root = unbase64(lines[2])
    need(len(root) == 32, "checkpoint")
    good = False
    for line in signatures.splitlines():
        match = re.fullmatch("— ([^ +]+) (\\S+)", line)
        need(match, "signature line")
        blob = unbase64(match[2])
        if match[1] == name and blob[:4] == key_id(name, kind, public):
            message = text.encode()
            if kind == 4:
                message = b"cosignature/v1\ntime %d\n" % int.from_bytes(blob[4:12], "big") + message
            try:
                Ed25519PublicKey.from_public_bytes(public).verify(blob[12 if kind == 4 else 4:], message)
            except InvalidSignature:
                raise Bad("signature") from None
            good = True
    need(good, "no signature")
    need(kind == 4 or lines[0] == name, "origin")
    return lines[0], int(lines[1]), root


def leaf(data):
    return hashlib.sha256(b"\0" + data).digest()


def node(left, right):
    return hashlib.sha256(b"\1" + left + right).digest()


def root_of(hashes):
    """MTH of RFC 6962 section 2.1 over leaf hashes."""
    if not hashes:
        return hashlib.sha256().digest()
    if len(hashes) == 1:
        return hashes[0]
    k = 1 << (len(hashes) - 1).bit_length() - 1
    return node(root_of(hashes[:k]), root_of(hashes[k:]))


def numbered(number):
    groups = [f"{number % 1000:03}"]
    while number >= 1000:
        number //= 1000
        groups.insert(0, f"x{number % 1000:03}")
    return "/".join(groups)


def check_record(line, sequence):
    need(len(line) <= 32768, "long record")
    head = re.match(rb'\{"format":1,"time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z","sequence":(0|[1-9]\d*),', line)
    need(head and int(head[1]) == sequence, f"record {sequence}")
    record = json.loads(line.decode("utf-8"))
    order = ["format", "time", "sequence", "actor", "action", "object", "decision", "reason", "request_id"]
    need([m for m in order if m in record] == list(record) and "action" in record, f"members of record {sequence}")
    need(all(isinstance(record[m], str) for m in list(record)[3:]), f"members of record {sequence}")
    return record


def file_bytes(path):
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def verify(directory, key=None, earlier=None):
    directory = pathlib.Path(directory)
    key = parse_key(pathlib.Path(key or directory / "key.pub").read_text())
    _, size, root = parse_checkpoint(file_bytes(directory / "checkpoint").decode("utf-8"), key)
    records, leaves, number = [], [], -1
    while True:
        number += 1
        data = file_bytes(directory / "records" / (numbered(number) + ".jsonl"))
        if number > size // 256 and not data:
            break
        lines = data.split(b"\n")
        rest = lines.pop()
        width = max(0, min(256, size - 256 * number))
        need(len(lines) >= width and (width < 256 or (len(lines) == 256 and not rest)), f"bundle {number}")
        for place, line in enumerate(lines):
            record = check_record(line, 256 * number + place)
            if place < width:
                records.append(record)
                leaves.append(leaf(line))
    need(root_of(leaves) == root, "root")
    hashes, level = leaves, 0
    while hashes:
        for number in range(0, len(hashes), 256):
            tile = file_bytes(directory / "tile" / str(level) / numbered(number // 256))
            wanted = b"".join(hashes[number:number + 256])
            need(tile[:len(wanted)] == wanted, f"tile {level}/{number // 256}")
        hashes = [root_of(hashes[i:i + 256]) for i in range(0, len(hashes) - 255, 256)]
        level += 1
    if earlier is not None:
        _, old_size, old_root = parse_checkpoint(earlier, key)
        need(old_size <= size and root_of(leaves[:old_size]) == old_root, "earlier checkpoint")
    return records


def verify_proof(text, key):
    """The record of a proof; RFC 9162 section 2.1.3.2."""
    proof = json.loads(text)
    need(proof["format"] == "naos-audit-proof/1" and proof["kind"] == "record", "proof")
    _, size, root = parse_checkpoint(proof["checkpoint"], parse_key(key))
    line, at, last = proof["record"].encode(), proof["sequence"], size - 1
    check_record(line, at)
    need(at <= last, "proof")
    value = leaf(line)
    for other in map(unbase64, proof["hashes"]):
        need(last > 0, "proof")
        if at & 1 or at == last:
            value = node(other, value)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            value = node(value, other)
        at, last = at >> 1, last >> 1
    need(last == 0 and value == root, "proof")
    return json.loads(line)

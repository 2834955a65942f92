# SPDX-License-Identifier: Apache-2.0
"""The two readers of sealed files side by side: lib/seal through the program check_sealed, and sealed_file.py."""
import collections
import hashlib
import os
import pathlib
import struct
import subprocess

import sealed_file

TOOLS = pathlib.Path(os.environ["NAOS_BUILD"]) / "tests/tools"
GOLDEN = pathlib.Path(os.environ["NAOS_SOURCE"]) / "tests/data/sealed"
PLAIN_DIGEST_MAX = 64 << 20
TEST_MEK = b"\x4d" * 32

# What a reader says: stage is "ok", "open", "read" or "verify"; the rest is empty where it does not apply.
Answer = collections.namedtuple("Answer", "stage code text state size digest", defaults=("", "", "", None, ""))
Row = collections.namedtuple("Row", "name algorithm fek state size digest")


class Library:
    """lib/seal in a process of its own."""

    def __init__(self):
        self.process = subprocess.Popen([TOOLS / "check_sealed"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def _ask(self, *parts):
        for part in parts:
            self.process.stdin.write(part)
        self.process.stdin.flush()
        line = self.process.stdout.readline().decode().rstrip("\n")
        assert line, f"check_sealed died: {self.process.wait()}"
        stage, first, rest = line.split(" ", 2)
        if stage == "ok":
            size, digest = rest.split()
            return Answer("ok", state=first, size=int(size), digest=digest)
        return Answer(stage, first, rest)

    def image(self, data, fek, attribute=None, algorithm=0):
        length = -1 if attribute is None else len(attribute)
        return self._ask(f"image {len(data)} {length} {fek.hex()} {algorithm}\n".encode(), data, attribute or b"")

    def path(self, path, fek, algorithm=0):
        return self._ask(f"path {fek.hex()} {algorithm} {path}\n".encode())

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0


def content_digest(sealed):
    if sealed.size <= PLAIN_DIGEST_MAX:
        return "sha256:" + hashlib.sha256(sealed.read()).hexdigest()
    sha = hashlib.sha256()
    for chunk in sealed.data_chunks():
        data = sealed.chunk(chunk)
        if any(data):
            sha.update(struct.pack("<Q", chunk) + data.ljust(4096, b"\0"))
    return "data:" + sha.hexdigest()


def independent(file, fek, attribute=None, algorithm=0):
    """The same questions to the reader that was written from the document. A file above PLAIN_DIGEST_MAX is not verified."""
    stage = "open"
    try:
        sealed = sealed_file.SealedFile(file, fek, attribute=attribute, algorithm=algorithm or None)
        stage = "read"
        digest = content_digest(sealed)
        stage = "verify"
        if sealed.size <= PLAIN_DIGEST_MAX:
            sealed.verify()
    except sealed_file.SealedFileError as error:
        return Answer(stage, error.code, str(error))
    return Answer("ok", state="clean" if sealed.state.clean else "unclean", size=sealed.size, digest=digest)


def rows(folder):
    for line in (folder / "index.txt").read_text().splitlines():
        name, algorithm, fek, state, size, digest = line.split()
        yield Row(name, int(algorithm), bytes.fromhex(fek), state, int(size), digest)


def attribute_of(folder, name):
    path = folder / f"{name}.attribute"
    return path.read_bytes() if path.exists() else None


def lay_out(folder, name, target):
    """Writes a file of an index to the path target, sparse where it is stored as pages."""
    plain = folder / f"{name}.sealed"
    if plain.exists():
        target.write_bytes(plain.read_bytes())
        return target
    pages = (folder / f"{name}.pages").read_bytes()
    with open(target, "wb") as file:
        for at in range(0, len(pages) - 16, 8 + 4096):
            file.seek(4096 * struct.unpack_from("<Q", pages, at)[0])
            file.write(pages[at + 8:at + 8 + 4096])
        file.truncate(struct.unpack_from("<Q", pages, len(pages) - 8)[0])
    return target


def flipped_bits_disagree(library, name, stride):
    """Bits of a golden file and its attribute, every stride-th, that are not refused by both readers with the same code."""
    row = next(row for row in rows(GOLDEN) if row.name == name)
    parts = [bytearray((GOLDEN / f"{name}.sealed").read_bytes()), bytearray(attribute_of(GOLDEN, name))]
    wrong = []
    for part in parts:
        for bit in range(0, 8 * len(part), stride):
            part[bit // 8] ^= 1 << bit % 8
            image, attribute = map(bytes, parts)
            ours, theirs = library.image(image, row.fek, attribute), independent(image, row.fek, attribute)
            if ours.stage == "ok" or (ours.stage, ours.code) != (theirs.stage, theirs.code):
                wrong.append((bit, ours, theirs))
            part[bit // 8] ^= 1 << bit % 8
    return wrong

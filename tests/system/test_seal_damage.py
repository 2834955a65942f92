# SPDX-License-Identifier: Apache-2.0
"""What is done to a sealed file behind its back: exit status 4, a message that names file and place, never wrong data."""
import os
import pathlib
import random
import shutil
import subprocess

import pytest

from seal_help import content

EDIT = os.environ.get("NAOS_SEAL_EDIT")
PAGE, SECTOR, ATTRIBUTE = 4096, 512, "user.naos.key"
STATE, SLOTS, SLOT, TAGS = 512, 1536, 256, 2560
SIZE = 20 * PAGE + 100  # 18 chunks of group 0, then a map page, a tag page and 3 chunks of group 1
GROUP_1 = 1 + 18 + 1    # its tag page


class File:
    """One sealed file, how to hurt it, and what naos says then."""

    def __init__(self, sets, directory, name, seed):
        self.sets, self.path, self.plain = sets, directory / name, directory / f"{name}.plain"
        self.text = content(SIZE, seed)
        self.plain.write_bytes(self.text)
        sets.ok("seal", "-f", "genomes", self.plain, self.path)

    def get(self, offset, size):
        with open(self.path, "rb") as file:
            file.seek(offset)
            return file.read(size)

    def put(self, offset, data):
        with open(self.path, "r+b") as file:
            file.seek(offset)
            file.write(data)

    def edit(self, *words):
        done = subprocess.run([EDIT, self.path, *map(str, words)], env=self.sets.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *needles, read_too=True):
        """verify refuses it and names it; open too, and leaves nothing."""
        message = self.sets.fails(4, "verify", self.path)
        for needle in (str(self.path), *needles):
            assert needle in message, message
        back = self.path.with_suffix(".back")
        done = self.sets("open", self.path, back)
        assert not list(self.path.parent.glob(".*naos-*"))
        if read_too:
            assert done.returncode == 4 and not back.exists(), done.stderr
        stream = self.sets("open", self.path, "-", text=False)
        assert self.text.startswith(stream.stdout), "bytes that nobody wrote"
        if read_too:
            assert stream.returncode == 4 and len(stream.stdout) < len(self.text)


@pytest.fixture
def file(sets, tmp_path):
    return File(sets, tmp_path, "reads", 1)


@pytest.fixture
def other(sets, tmp_path):
    return File(sets, tmp_path, "other", 2)


def test_two_chunks_exchanged(file):
    first, second = file.get(2 * PAGE, PAGE), file.get(5 * PAGE, PAGE)
    file.put(2 * PAGE, second)
    file.put(5 * PAGE, first)
    file.refused("chunk 1 ")


def test_two_chunks_exchanged_with_their_entries(file):
    """Data and the halves of the tag sectors that speak for it: the sector's own code tells."""
    for one, two, size in ((1 * PAGE, 2 * PAGE, PAGE), (TAGS, TAGS + 80, 80)):
        first, second = file.get(one, size), file.get(two, size)
        file.put(one, second)
        file.put(two, first)
    file.refused("tag sector 0 (chunks 0 to 5)")


def test_two_tag_sectors_exchanged(file):
    first, second = file.get(TAGS, SECTOR), file.get(TAGS + SECTOR, SECTOR)
    file.put(TAGS, second)
    file.put(TAGS + SECTOR, first)
    file.refused("tag sector 0")


def test_a_zeroed_tag_sector(file):
    file.put(GROUP_1 * PAGE, bytes(SECTOR))
    file.refused("chunk 18 ")


def test_a_zeroed_tag_page_and_its_data(file):
    file.put(GROUP_1 * PAGE, bytes(file.path.stat().st_size - GROUP_1 * PAGE))
    file.refused("chunk 18 ")


def test_headers_of_two_files_exchanged(file, other):
    mine, theirs = file.get(0, PAGE), other.get(0, PAGE)
    file.put(0, theirs)
    other.put(0, mine)
    file.refused()
    other.refused()


def test_static_headers_of_two_files_exchanged(file, other):
    mine, theirs = file.get(0, SECTOR), other.get(0, SECTOR)
    file.put(0, theirs)
    other.put(0, mine)
    file.refused()
    other.refused()


def test_attributes_of_two_files_exchanged(file, other):
    mine, theirs = (os.getxattr(f.path, ATTRIBUTE) for f in (file, other))
    os.setxattr(file.path, ATTRIBUTE, theirs)
    os.setxattr(other.path, ATTRIBUTE, mine)
    file.refused(ATTRIBUTE)
    other.refused(ATTRIBUTE)


def test_every_sector_is_missed_when_the_file_is_cut(file):
    whole = file.path.read_bytes()
    for size in [0, 1, SECTOR, PAGE - 1, PAGE, PAGE + 1, *random.Random(4).sample(range(PAGE, len(whole)), 12), len(whole) - 1]:
        file.path.write_bytes(whole[:size])
        file.refused()


def test_bytes_behind_the_end(file):
    with open(file.path, "ab") as end:
        end.write(b"\0")
    file.refused()


def test_an_old_data_block_restored(file):
    old = file.get(4 * PAGE, PAGE)
    file.edit("write", 3 * PAGE, "a new text")
    file.put(4 * PAGE, old)
    file.text = file.text[:3 * PAGE] + b"a new text" + file.text[3 * PAGE + 10:]
    file.refused("chunk 3 ")


def test_an_old_state_restored(file):
    """Beside the sealed one, and over it."""
    old = file.get(STATE, 2 * SECTOR)
    file.edit("truncate", 5 * PAGE)
    new = file.get(STATE, 2 * SECTOR)
    file.text = file.text[:5 * PAGE]
    changed = [i for i in range(2) if old[i * SECTOR:(i + 1) * SECTOR] != new[i * SECTOR:(i + 1) * SECTOR] and
               any(old[i * SECTOR:(i + 1) * SECTOR])]
    assert changed
    for i in changed:
        file.put(STATE + i * SECTOR, old[i * SECTOR:(i + 1) * SECTOR])
        file.refused()
        file.put(STATE, new)
    file.put(STATE, old)
    file.refused()


def test_an_attribute_that_brings_a_removed_slot_back(file):
    old = os.getxattr(file.path, ATTRIBUTE)
    file.sets.ok("key", "rotate", "genomes")
    file.sets.ok("rewrap", file.path)
    file.sets.ok("verify", file.path)
    os.setxattr(file.path, ATTRIBUTE, old)
    file.refused("brings back a wrapped key that was removed")


def test_a_removed_slot_back_in_page_0(file):
    old = file.get(SLOTS, SLOT)
    file.sets.ok("key", "rotate", "genomes")
    file.sets.ok("rewrap", file.path)
    empty = next(i for i in range(4) if not any(file.get(SLOTS + i * SLOT, SLOT)))
    file.put(SLOTS + empty * SLOT, old)
    file.refused("removed")


def test_a_hole_is_not_a_place_to_hide_data(file):
    """Data below a hole is no wrong data, but it is not this file's either: verify finds it."""
    file.edit("punch", 6 * PAGE, 2 * PAGE)
    file.text = file.text[:6 * PAGE] + bytes(2 * PAGE) + file.text[8 * PAGE:]
    file.sets.ok("verify", file.path)
    file.put(7 * PAGE + 10, b"hidden")
    file.refused("chunk 6 ", read_too=False)


def test_flipped_bits_anywhere(file):
    """One bit at a time; the whole set of them is tried by the unit tests of the library."""
    whole, dice = file.path.read_bytes(), random.Random(7)
    places = [*range(0, TAGS, 173), *(dice.randrange(len(whole)) for _ in range(40))]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << dice.randrange(8)
        file.path.write_bytes(damaged)
        done = file.sets("verify", file.path)
        assert done.returncode == 4 and str(file.path) in done.stderr, (place, done.stderr)
    file.path.write_bytes(whole)
    os.setxattr(file.path, ATTRIBUTE, whole[SLOTS:SLOTS + SLOT])
    file.sets.ok("verify", file.path)


def test_in_a_tree_the_damaged_file_is_named_and_the_others_are_opened(sets, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for i in range(20):
        (source / f"file-{i}").write_bytes(content(10_000, i))
    sets.ok("seal", "-f", "genomes", source, tmp_path / "sealed")
    with open(tmp_path / "sealed/file-7", "r+b") as file:
        file.seek(2 * PAGE + 5)
        file.write(b"\xff\xff\xff")
    message = sets.fails(4, "open", tmp_path / "sealed", tmp_path / "back")
    assert "sealed/file-7: chunk 1 " in message and message.count("chunk") == 1
    assert {path.name for path in (tmp_path / "back").iterdir()} == {f"file-{i}" for i in range(20) if i != 7}
    shutil.copy(source / "file-3", tmp_path / "sealed/plain")
    message = sets.fails(4, "verify", tmp_path / "sealed")
    assert "plain: not a sealed file" in message


def test_a_file_that_was_not_closed_reads_and_is_said_so(file):
    file.edit("crash", 10, "after the flush")
    text = file.text[:10] + b"after the flush" + file.text[25:]
    done = file.sets("verify", file.path)
    assert done.returncode == 0 and "did not close it" in done.stderr
    assert file.sets("open", file.path, "-", text=False).stdout == text
    assert '"clean":false' in file.sets.ok("info", "--state", "--json", file.path)
    done = file.sets("rewrap", "--repair", file.path)
    assert done.returncode == 0 and "was recovered" in done.stderr
    assert '"clean":true' in file.sets.ok("info", "--state", "--json", file.path)
    assert file.sets("open", file.path, "-", text=False).stdout == text

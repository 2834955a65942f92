# SPDX-License-Identifier: Apache-2.0
"""Golden and damaged frames, through naos and through a reader that was written from docs/formats/frame-1.md alone."""
import collections
import hashlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

SOURCE = pathlib.Path(os.environ["NAOS_SOURCE"])
sys.path[:0] = [str(SOURCE / "tests/tools"), str(SOURCE / "tests/system")]

import frame1_file  # noqa: E402
import frame_files  # noqa: E402
from damage_frame import Cases  # noqa: E402

BUILD, GOLDEN = pathlib.Path(os.environ["NAOS_BUILD"]), SOURCE / "tests/data/frames"
TEST_MEK = b"\x4d" * 32
Row = collections.namedtuple("Row", "name version algorithm key_bytes keys size digest")
ROWS = {row.name: row for row in (Row(*line.split()) for line in (GOLDEN / "index.txt").read_text().splitlines())}
VERSION_1 = [name for name, row in ROWS.items() if row.version == "1"]


def keys_of(name):
    return tuple(bytes(range(first, first + int(ROWS[name].key_bytes))) for first in (0, 0x80))


def golden(name):
    return (GOLDEN / f"{name}.frame").read_bytes()


class Naos:
    """The program, with keys in files."""

    def __init__(self, folder):
        self.folder = folder

    def open(self, image, header_key, data_key):
        """Exit status, what it told, what it wrote (None: nothing)."""
        frame, target, words = self.folder / "frame.fits", self.folder / "opened.fits", []
        frame.write_bytes(image)
        target.unlink(missing_ok=True)
        for part, key in (("header", header_key), ("data", data_key)):
            if key is None:
                continue
            path = self.folder / f"{part}.key"
            path.write_text(key.hex())
            path.chmod(0o600)
            words += [f"--{part}-key", f"file:{path}"]
        done = subprocess.run([os.environ["NAOS_EXE"], "fits", "open", "--json", *words, frame, target], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, env=dict(os.environ, NAOS_CONFIG=os.devnull), timeout=60)
        told = json.loads(done.stdout) if done.stdout else {}
        errors = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
        return done.returncode, told, errors[-1] if errors else {}, target.read_bytes() if target.exists() else None


@pytest.fixture
def naos(tmp_path):
    return Naos(tmp_path)


@pytest.mark.parametrize("name", ROWS)
def test_golden_frames_open_as_recorded(name, naos):
    status, told, _, content = naos.open(golden(name), *keys_of(name))
    assert status == 0 and told["level"] == "full"
    assert len(content) == int(ROWS[name].size) and hashlib.sha256(content).hexdigest() == ROWS[name].digest


@pytest.mark.parametrize("name", VERSION_1)
def test_the_independent_reader_opens_them_the_same_at_each_level(name, naos):
    frame, (header, data) = frame1_file.Frame(golden(name)), keys_of(name)
    assert hashlib.sha256(frame.open(header, data).content).hexdigest() == ROWS[name].digest
    for pair in ((header, data), (header, None), (None, data), (header, header), (data, data)):
        ours, (status, told, _, content) = frame.open(*pair), naos.open(golden(name), *pair)
        assert status == 0 and told["level"] == ours.level and content == ours.content
        assert (told["header_key"]["state"], told["data_key"]["state"]) == ours.states


def test_wrapped_keys_are_those_of_the_frame():
    for name in VERSION_1:
        frame = frame1_file.Frame(golden(name))
        for part, key, kind in (("header", keys_of(name)[0], 2), ("data", keys_of(name)[1], 3)):
            blob = frame.slot(part)
            assert (blob is not None) == (ROWS[name].keys == "wrapped")
            assert blob is None or blob.unwrap(TEST_MEK, kind, b"\xc0" * 16, frame.frame_id) == key


def test_every_golden_frame_is_in_the_index():
    assert {path.stem for path in GOLDEN.glob("*.frame")} == set(ROWS) and len(VERSION_1) == 9


def test_fresh_frames_are_read_by_the_independent_reader(tmp_path):
    plain, sealed = tmp_path / "plain.fits", tmp_path / "sealed.fits"
    for width, algorithm, size, keys in ((1, 2, 32, "given"), (720, 1, 16, "wrapped"), (1440, 2, 16, "given"), (4001, 1, 32, "wrapped")):
        plain.write_bytes(frame_files.image(width, 301))
        subprocess.run([BUILD / "tests/tools/make_frame", plain, sealed, "1", str(algorithm), str(size), keys], check=True)
        opened = frame1_file.Frame(sealed.read_bytes()).open(bytes(range(size)), bytes(range(0x80, 0x80 + size)))
        assert opened.level == "full" and opened.content == plain.read_bytes()


CASES = list(Cases(golden).all())


def test_there_is_a_damaged_frame_for_each_check():
    assert len(CASES) > 80 and len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_damaged_frames_are_answered_the_same(case, naos):
    keys = keys_of(case.base)
    status, told, error, content = naos.open(case.image, *keys)
    if case.code:
        with pytest.raises(frame1_file.FrameError):
            frame1_file.Frame(case.image)
        assert error["error"]["name"] == f"NAOS_E_{case.code}" and case.text in error["message"] and content is None
        return
    ours = frame1_file.Frame(case.image).open(*keys)
    assert ours.states == case.states
    assert status == 4 and content == (ours.content or None)
    if content:
        assert told["level"] == ours.level and (told["header_key"]["state"], told["data_key"]["state"]) == case.states
    else:
        assert error["error"]["name"] == ("NAOS_E_INTEGRITY" if "tampered" in case.states else "NAOS_E_WRONG_KEY")

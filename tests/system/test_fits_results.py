# SPDX-License-Identifier: Apache-2.0
"""docs/frame-results.md: every pair of keys, every part changed, in both versions: each cell is run. With NAOS_WRITE_RESULTS=1 the table is
written instead."""
import itertools
import json
import os
import re
import subprocess

import pytest

import frame_files
from conftest import BUILD, SOURCE

DOCUMENT = SOURCE / "docs/frame-results.md"
KINDS, CHANGES = ("right", "wrong", "missing"), ("nothing", "header", "data", "structure")
KEYS = {("header", "right"): frame_files.HEADER, ("data", "right"): frame_files.DATA}


def told(content, plain):
    """What an opened file holds."""
    header, data = content[:2880], content[2880:]
    if content == plain:
        return "the original"
    assert len(content) == len(plain) and b"BZERO" in header
    if header == plain[:2880] and not any(data):
        return "headers, zeros for data"
    assert data == plain[2880:] and b"secret" not in content
    return "data, structural header"


def by_gfc(path, header, data, plain, target):
    given = [KEYS.get((part, kind), frame_files.WRONG if kind == "wrong" else "NO_KEY") for part, kind in (("header", header), ("data", data))]
    target.unlink(missing_ok=True)
    done = subprocess.run([BUILD / "tests/system/gfc_listing", path, *given, target], stdout=subprocess.PIPE, text=True, check=True)
    error, warning, size, _ = done.stdout.split(" ", 3)
    content = target.read_bytes() if target.exists() else b""
    assert len(content) == int(size)
    what = "nothing" if not content else "the sealed file" if content == path.read_bytes() else told(content, plain)
    return f"{error}/{warning}", what


def one_row(naos, keys, version, frame, plain, case, tmp_path):
    changed, header, data = case
    path, target = tmp_path / "frame.fits", tmp_path / "opened.fits"
    path.write_bytes(frame_files.change(frame, version, changed))
    words = [*keys["header", header], *keys["data", data]]
    target.unlink(missing_ok=True)
    done = naos("fits", "open", *words, path, target, "--json")
    written = told(target.read_bytes(), plain) if target.exists() else "nothing"
    level = json.loads(done.stdout)["level"] if done.stdout else "denied"
    code = (re.findall(r"\bNAOS_E_\w+", done.stderr) or ["none"])[-1]
    assert naos("fits", "verify", *words, path).returncode == (0 if case == ("nothing", "right", "right") else done.returncode or 3 + (
        "wrong" in (header, data))), case
    codes, given = by_gfc(path, header, data, plain, tmp_path / "gfc.fits")
    return "| " + " | ".join([changed, header, data, level, code, str(done.returncode), written, codes, given]) + " |"


@pytest.mark.parametrize("version", (1, 2))
def test_each_cell(version, naos, tmp_path):
    keys, plain = frame_files.key_files(tmp_path), frame_files.image()
    (tmp_path / "plain.fits").write_bytes(plain)
    naos.ok("fits", "seal", "--format", version, *keys["header", "right"], *keys["data", "right"], tmp_path / "plain.fits", tmp_path / "sealed.fits")
    frame = (tmp_path / "sealed.fits").read_bytes()
    rows = [one_row(naos, keys, version, frame, plain, case, tmp_path) for case in itertools.product(CHANGES, KINDS, KINDS)]
    before, table, after = re.fullmatch(r"(.*?\n\|---[^\n]*\n)((?:\|[^\n]*\n)*)(.*)", DOCUMENT.read_text(), re.S).groups()
    if os.environ.get("NAOS_WRITE_RESULTS"):
        DOCUMENT.write_text(before + "\n".join(rows) + "\n" + after)
    else:
        assert table.splitlines() == rows

# SPDX-License-Identifier: Apache-2.0
"""naos seal and open: a file, a tree and a pipe come back as they were; nothing plain in the sealed tree."""
import hashlib
import os
import pathlib
import stat
import subprocess

import pytest

from seal_help import make_tree, same_tree, sealed


def test_a_tree_comes_back_as_it_was(sets, tmp_path):
    source = make_tree(tmp_path / "source")
    summary = sets.json("seal", "--fileset", "genomes", source, tmp_path / "sealed")[0]
    assert summary["failed"] == 0 and summary["files"] > 5
    sets.ok("open", tmp_path / "sealed", tmp_path / "back")
    same_tree(source, tmp_path / "back")


def test_no_plaintext_is_in_the_sealed_tree(sets, tmp_path):
    source = make_tree(tmp_path / "source")
    sets.ok("seal", "--fileset", "genomes", source, tmp_path / "sealed")
    needle = b"GATTACA"
    assert any(needle in path.read_bytes() for path in source.rglob("*") if path.is_file() and path.stat().st_size < 1 << 24)
    for path in (tmp_path / "sealed").rglob("*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 24:
            assert needle not in path.read_bytes(), path

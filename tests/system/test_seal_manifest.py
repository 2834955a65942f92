# SPDX-License-Identifier: Apache-2.0
"""The manifest of a tree: what single files can't tell."""
import hashlib
import hmac
import os
import re
import shutil
import subprocess
import uuid

import pytest

from seal_help import content, make_tree

EDIT = os.environ.get("NAOS_SEAL_EDIT")


class Tree:
    def __init__(self, sets, directory):
        self.sets, self.source, self.root, self.manifest = sets, directory / "source", directory / "sealed", directory / "manifest"
        make_tree(self.source)
        sets.ok("seal", "-f", "genomes", "--manifest", self.manifest, self.source, self.root)

    def verify(self, status, *words):
        done = self.sets("verify", "--manifest", self.manifest, self.root, *words)
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    def edit(self, name, *words):
        subprocess.run([EDIT, self.root / name, *map(str, words)], env=self.sets.env, check=True)


@pytest.fixture
def tree(sets, tmp_path):
    return Tree(sets, tmp_path)


def test_an_untouched_tree_agrees(tree):
    assert "compared with the manifest" in tree.verify(0)


def test_it_agrees_after_a_rewrap_and_from_a_second_run(tree):
    tree.sets.ok("key", "rotate", "genomes")
    tree.sets.ok("rewrap", tree.root)
    tree.verify(0)
    again = tree.manifest.with_name("again")
    assert tree.sets.json("seal", "-f", "genomes", "--manifest", again, tree.source, tree.root)[0]["files"] == 0
    body = [[line for line in path.read_text().splitlines() if line.startswith(("file", "link"))] for path in (tree.manifest, again)]
    assert body[0] == body[1] and len(body[0]) > 10
    tree.sets.ok("verify", "--manifest", again, tree.root)


def test_an_older_version_of_a_whole_file_put_back(tree):
    old, attribute = (tree.root / "size-4096").read_bytes(), os.getxattr(tree.root / "size-4096", "user.naos.key")
    tree.edit("size-4096", "write", 0, "a newer text")
    tree.sets.ok("open", "--force", tree.root / "size-4096", tree.source / "size-4096")
    tree.sets.ok("seal", "-f", "genomes", "-m", tree.manifest, tree.source, tree.root)
    tree.verify(0)
    (tree.root / "size-4096").write_bytes(old)
    os.setxattr(tree.root / "size-4096", "user.naos.key", attribute)
    tree.sets.ok("verify", tree.root / "size-4096")  # alone it is in order
    message = tree.verify(4)
    assert "sealed/size-4096 is another version" in message


def test_a_version_written_on_purpose_is_another_version(tree):
    tree.edit("size-4097", "write", 5, "x")
    message = tree.verify(4)
    assert "size-4097 is another version" in message and "deep/second-name is another version" in message


def test_two_files_exchanged(tree):
    tree.root.joinpath("size-1").rename(tree.root / "swap")
    tree.root.joinpath("size-0").rename(tree.root / "size-1")
    tree.root.joinpath("swap").rename(tree.root / "size-0")
    tree.sets.ok("verify", tree.root)
    message = tree.verify(4)
    assert "size-0 was exchanged: it is the file that has the name size-1" in message
    assert "size-1 was exchanged: it is the file that has the name size-0" in message


def test_missing_added_replaced_and_links(tree):
    (tree.root / "size-1").unlink()
    shutil.copy(tree.root / "holes", tree.root / "extra")
    (tree.root / "link").unlink()
    (tree.root / "link").symlink_to("deep/elsewhere")
    (tree.root / "dangling").unlink()
    (tree.source / "fresh").write_bytes(content(4095, 9))
    tree.sets.ok("seal", "-f", "genomes", "--force", tree.source / "fresh", tree.root / "size-4095")
    message = tree.verify(4)
    assert "size-1 is in the manifest and missing" in message and "dangling is in the manifest and missing" in message
    assert "extra is not in the manifest; it is the file that has the name holes" in message
    assert "link is another version" in message and "size-4095 was replaced by another sealed file" in message
    assert message.count("naos: ") >= 5


def test_a_changed_manifest_is_refused(tree):
    text = tree.manifest.read_text()
    for bad, status in ((text.replace("size-4095", "size-4094"), 4), (re.sub(r"(link \S+ )dangling\n", "", text), 4),
                        (text[:-2], 4), (text.replace("naos-manifest 1", "naos-manifest 2"), 4), ("", 4),
                        (text + "x\n", 4), (re.sub(r"\nid \S+", f"\nid {uuid.uuid4()}", text), 4),
                        (re.sub(r"\nmac \S+", "\nmac " + 64 * "0", text), 4), (re.sub(r"\nend \d+", "\nend 3", text), 4)):
        tree.manifest.write_text(bad)
        assert str(tree.manifest) in tree.verify(status)
    tree.manifest.write_text(text)
    tree.verify(0)


def test_only_who_has_the_key_can_make_one(tree):
    """A manifest of another file set does not pass for one of this."""
    text = tree.manifest.read_text()
    body, mac = text.rsplit("mac ", 1)
    assert hmac.new(bytes(32), body.encode(), hashlib.sha256).hexdigest() != mac.strip()
    tree.sets.ok("key", "create", "images")
    key = tree.source / "key"
    key.write_bytes(b"x")
    tree.sets.ok("seal", "-f", "images", "--manifest", tree.manifest, key, tree.root / "of-images")
    other = re.search(r"\nkey (\S+)", tree.manifest.read_text())[1]
    tree.manifest.write_text(re.sub(r"\nkey \S+", f"\nkey {other}", text))
    tree.verify(4)


def test_digests_are_as_written_down(tree):
    """docs/formats/manifest.md, by an independent hand."""
    lines = [line.split(" ") for line in tree.manifest.read_text().splitlines()]
    entries = {words[4]: words for words in lines if words[0] == "file"}
    raw = (tree.root / "size-270336").read_bytes()
    entry = entries["size-270336"]
    page = 4096
    hashed = hashlib.sha256(b"naos/manifest/1/file\0" + (270336).to_bytes(8, "little") + raw[:512] + raw[2560:page])
    hashed.update(raw[19 * page:20 * page] + raw[20 * page:21 * page])  # map page 0, tag page of group 1
    assert hashed.hexdigest() == entry[3] and entry[2] == "270336" and str(uuid.UUID(bytes=raw[16:32])) == entry[1]
    links = {words[2]: words[1] for words in lines if words[0] == "link"}
    assert links["loop"] == hashlib.sha256(b"naos/manifest/1/link\0loop").hexdigest()


def test_no_manifest_of_a_share_or_of_an_incomplete_tree(tree):
    new = tree.manifest.with_name("new")
    assert "without --shard" in tree.sets.fails(2, "seal", "-f", "genomes", "--shard", "1/2", "-m", new, tree.source, tree.root)
    (tree.source / "size-1").write_bytes(b"2")
    tree.sets.fails(1, "seal", "-f", "genomes", "-m", new, tree.source, tree.root)
    assert not new.exists()

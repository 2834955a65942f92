# SPDX-License-Identifier: Apache-2.0
"""naos rewrap: the key of a file under another version, its data and times untouched; naos info tells."""
import os

from seal_help import content, listing, make_tree, same_tree

SLOTS, SLOT, ATTRIBUTE = 1536, 256, "user.naos.key"


def versions(sets, root):
    return {slot["version"] for info in sets.json("info", root) for slot in info["slots"]}


def test_after_a_rotation_all_files_are_under_the_new_version_and_the_old_one_can_go(sets, tmp_path):
    source, target = make_tree(tmp_path / "source"), tmp_path / "sealed"
    sets.ok("seal", "-f", "genomes", source, target)
    data = {path: path.read_bytes()[4096:] for path in target.rglob("*") if path.is_file() and not path.is_symlink()}
    times = {name: entry["mtime"] for name, entry in listing(target).items()}
    assert versions(sets, target) == {1}
    sets.ok("key", "rotate", "genomes")
    done = sets.json("rewrap", target)[0]
    assert done["files"] == len(data) - 1 and done["failed"] == 0  # one has two names
    assert versions(sets, target) == {2}
    assert sets.json("rewrap", target)[0]["files"] == 0
    for path, before in data.items():
        assert path.read_bytes()[4096:] == before
    assert times == {name: entry["mtime"] for name, entry in listing(target).items()}
    sets.ok("key", "revoke", "genomes", "--key-version", "1")
    sets.ok("open", target, tmp_path / "back")
    same_tree(source, tmp_path / "back")
    assert sets.json("seal", "-f", "genomes", source, target)[0]["files"] == 0  # still current


def test_read_only_files_of_their_owner_are_rewrapped_and_stay_read_only(sets, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    os.chmod(tmp_path / "file", 0o444)
    sets.ok("seal", "-f", "genomes", tmp_path / "file", tmp_path / "sealed")
    sets.ok("key", "rotate", "genomes")
    assert sets.json("rewrap", tmp_path / "sealed")[0]["files"] == 1
    assert (tmp_path / "sealed").stat().st_mode & 0o777 == 0o444


def test_a_damaged_copy_is_refused_and_repaired_from_a_good_one(sets, tmp_path):
    (tmp_path / "file").write_bytes(content(9000))
    sets.ok("seal", "-f", "genomes", tmp_path / "file", tmp_path / "sealed")
    whole, attribute = (tmp_path / "sealed").read_bytes(), os.getxattr(tmp_path / "sealed", ATTRIBUTE)

    def page(offset, data):
        with open(tmp_path / "sealed", "r+b") as file:
            file.seek(offset)
            file.write(data)
    harms = {
        "slot": lambda: page(SLOTS + 40, bytes([whole[SLOTS + 40] ^ 1])),
        "attribute": lambda: os.setxattr(tmp_path / "sealed", ATTRIBUTE, attribute[:100] + b"!" + attribute[101:]),
        "garbage beside it": lambda: page(SLOTS + 3 * SLOT, b"garbage"),
    }
    for name, harm in harms.items():
        harm()
        sets.fails(4, "verify", tmp_path / "sealed")
        message = sets.fails(4, "rewrap", tmp_path / "sealed")
        assert "sealed" in message, name
        assert sets.json("rewrap", "--repair", tmp_path / "sealed")[0]["files"] == 1, name
        sets.ok("verify", tmp_path / "sealed")
        assert sets("open", tmp_path / "sealed", "-", text=False).stdout == content(9000)
        assert sets.json("rewrap", "--repair", tmp_path / "sealed")[0]["current"] == 1
        whole, attribute = (tmp_path / "sealed").read_bytes(), os.getxattr(tmp_path / "sealed", ATTRIBUTE)
    os.removexattr(tmp_path / "sealed", ATTRIBUTE)
    assert sets.json("rewrap", "--repair", tmp_path / "sealed")[0]["files"] == 1
    assert os.getxattr(tmp_path / "sealed", ATTRIBUTE)


def test_another_file_set_is_refused(sets, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    sets.ok("key", "create", "images")
    sets.ok("seal", "-f", "images", tmp_path / "file", tmp_path / "sealed")
    assert "another file set" in sets.fails(4, "rewrap", "-f", "genomes", tmp_path / "sealed")


def test_a_configured_id_algorithm_and_mek_are_used(sets, token, tmp_path):
    sets.config.write_text(token.config() + "[fileset reads]\nmek = genomes\nalgorithm = aes-128-gcm\n"
                           "id = 00112233-4455-4677-8899-aabbccddeeff\n")
    (tmp_path / "file").write_bytes(content(5000))
    sets.ok("seal", tmp_path / "file", tmp_path / "sealed")  # the only file set: no need to name it
    info = sets.json("info", tmp_path / "sealed")[0]
    assert (info["algorithm"], info["fileset"], info["fileset_id"]) == ("aes-128-gcm", "reads", "00112233-4455-4677-8899-aabbccddeeff")
    assert sets("open", tmp_path / "sealed", "-", text=False).stdout == content(5000)
    sets.config.write_text(sets.config.read_text().replace("aes-128", "aes-256"))
    assert "its file set demands aes-256-gcm" in sets.fails(4, "open", tmp_path / "sealed", tmp_path / "back")


def test_info_needs_no_key(sets, tmp_path):
    (tmp_path / "file").write_bytes(content(5000))
    sets.ok("seal", "-f", "genomes", tmp_path / "file", tmp_path / "sealed")
    sets.config.write_text("")
    info = sets.json("info", tmp_path / "sealed")[0]
    assert info["bytes_if_closed"] == 5000 and info["attribute"] == "present" and len(info["slots"]) == 1
    text = sets.ok("info", tmp_path / "sealed")
    assert "5000 bytes" in text and "version 1" in text and info["file_id"] in text
    assert "not a sealed file" in sets.fails(4, "info", tmp_path / "file")

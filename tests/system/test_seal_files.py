# SPDX-License-Identifier: Apache-2.0
"""naos seal and open: a file, a tree and a pipe come back as they were, whatever they are and wherever they lie."""
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import pytest

from conftest import NAOS
from seal_help import TEXT, content, file_system, make_tree, same_tree, sealed, temporaries

ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT, reason="needs root")


# --- what comes back

def test_a_tree_comes_back_as_it_was(sets, tmp_path):
    source = make_tree(tmp_path / "source")
    summary = sets.json("seal", "--fileset", "genomes", source, tmp_path / "sealed")[0]
    assert summary["failed"] == 0 and summary["files"] > 5 and summary["fileset"] == "genomes"
    sets.ok("open", tmp_path / "sealed", tmp_path / "back")
    same_tree(source, tmp_path / "back")
    assert not temporaries(tmp_path)


def test_no_plaintext_is_in_the_sealed_tree(sets, tmp_path):
    source = make_tree(tmp_path / "source")
    sets.ok("seal", "--fileset", "genomes", source, tmp_path / "sealed")
    regular = [path for path in (tmp_path / "sealed").rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(regular) > 10
    for path in regular:
        assert sealed(path)
        assert b"GATTACA" not in path.read_bytes(), path
    assert any(b"GATTACA" in path.read_bytes() for path in source.rglob("*") if path.is_file())


def test_a_pipe_is_sealed_and_opened(sets, tmp_path):
    text = content(300_001)
    for source in ("-", "/dev/stdin"):
        target = tmp_path / f"from{source.replace('/', '_')}"
        sets.ok("seal", "-f", "genomes", source, target, input=text, text=False)
        assert sets("open", target, "-", text=False).stdout == text
        assert target.stat().st_mode & 0o777 == 0o666 & ~current_umask()
    assert TEXT not in target.read_bytes()


def current_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_streams_that_can_not_be_are_refused(sets, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    assert "has to be a file" in sets.fails(2, "seal", "-f", "genomes", tmp_path / "file", "-")
    assert "can't be opened from a stream" in sets.fails(2, "open", "-", tmp_path / "back")


def test_a_sparse_file_of_5_tb_takes_seconds_and_no_space(sets, tmp_path):
    huge = tmp_path / "huge"
    with open(huge, "wb") as file:
        try:
            file.truncate(5 << 40)
        except OSError as failure:
            pytest.skip(f"this file system has no file of 5 TB: {failure.strerror}")
        file.seek(3 << 40)
        file.write(b"island")
    sets.ok("seal", "-f", "genomes", huge, tmp_path / "sealed", timeout=120)
    assert (tmp_path / "sealed").stat().st_blocks * 512 < 64 << 20
    sets.ok("open", tmp_path / "sealed", tmp_path / "back", timeout=120)
    back = (tmp_path / "back").stat()
    assert back.st_size == 5 << 40 and back.st_blocks * 512 < 1 << 20
    with open(tmp_path / "back", "rb") as file:
        file.seek((3 << 40) - 2)
        assert file.read(10) == b"\0\0island\0\0"


@needs_root
def test_root_keeps_owners_and_others_own_their_files(sets, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "tool").write_bytes(b"#!/bin/sh\n")
    os.chown(source / "tool", 12345, 23456)
    os.chmod(source / "tool", 0o4755)
    os.chmod(tmp_path, 0o755)
    sets.ok("seal", "-f", "genomes", source, tmp_path / "sealed")
    sets.ok("open", tmp_path / "sealed", tmp_path / "back")
    status = (tmp_path / "back/tool").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (12345, 23456, 0o4755)


@needs_root
def test_set_user_id_goes_with_an_owner_that_can_not_be_kept(sets, token, tmp_path):
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    (source / "tool").write_bytes(b"#!/bin/sh\n")
    os.chown(source / "tool", 12345, 23456)
    os.chmod(source / "tool", 0o4755)
    lend_to_nobody(token, out)
    done = as_nobody(sets, "seal", "-f", "genomes", source, out / "sealed")
    assert done.returncode == 0, done.stderr
    status = (out / "sealed/tool").stat()
    assert status.st_uid == 65534 and status.st_mode & 0o7777 == 0o755
    assert "set-user-id" in done.stderr


def lend_to_nobody(token, out):
    """nobody owns the token and the directory `out`, and may walk to them."""
    for top in (token.directory, out):
        for path in [top, *top.rglob("*")]:
            os.chown(path, 65534, 65534)
    for path in out.parents:
        if str(path).startswith(tempfile.gettempdir() + "/"):
            os.chmod(path, path.stat().st_mode | 0o055)


def as_nobody(sets, *words):
    return subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", NAOS, *map(str, words)], env=sets.env,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)


@needs_root
def test_a_file_without_permission_is_named_and_the_others_go_on(sets, token, tmp_path):
    source, out = tmp_path / "source", tmp_path / "out"
    (source / "closed").mkdir(parents=True)
    out.mkdir()
    (source / "secret").write_bytes(b"1")
    (source / "open").write_bytes(b"2")
    (source / "closed/inside").write_bytes(b"3")
    os.chmod(source / "secret", 0)
    os.chmod(source / "closed", 0)
    lend_to_nobody(token, out)
    done = as_nobody(sets, "seal", "-f", "genomes", source, out / "sealed")
    assert done.returncode == 1
    assert "secret: Permission denied" in done.stderr and "closed: Permission denied" in done.stderr
    assert sealed(out / "sealed/open") and not (out / "sealed/secret").exists()


# --- names, links, kinds

def test_links_are_copied_and_never_followed(sets, tmp_path):
    source = tmp_path / "source"
    (source / "a/b").mkdir(parents=True)
    (source / "a/b/up").symlink_to("../..")
    (source / "self").symlink_to("self")
    (source / "abroad").symlink_to("/etc")
    sets.ok("seal", "-f", "genomes", source, tmp_path / "sealed")
    assert os.readlink(tmp_path / "sealed/abroad") == "/etc"
    same_tree(source, tmp_path / "sealed")


def test_hard_links_stay_one_file(sets, tmp_path):
    source = tmp_path / "source"
    (source / "z").mkdir(parents=True)
    (source / "m").write_bytes(content(5000))
    for name in ("a", "z/last"):
        os.link(source / "m", source / name)
    os.link(source / "m", tmp_path / "outside")
    sets.ok("seal", "-f", "genomes", source, tmp_path / "sealed")
    inodes = {(tmp_path / "sealed" / name).stat().st_ino for name in ("m", "a", "z/last")}
    assert len(inodes) == 1 and (tmp_path / "sealed/m").stat().st_nlink == 3
    assert sets.json("seal", "-f", "genomes", source, tmp_path / "sealed")[0]["files"] == 0


def test_a_socket_is_left_out_with_a_notice(sets, tmp_path):
    source = tmp_path / "s"
    source.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(source)
        listener.bind("sock")
    done = sets("seal", "-f", "genomes", source, tmp_path / "sealed")
    assert done.returncode == 0 and "sock: left out" in done.stderr
    assert not (tmp_path / "sealed/sock").exists()


def test_odd_names_are_printable_in_messages(sets, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name in (b"new\nline", b"bad\xff\xfe", b"esc\x1b[2J"):
        with open(os.fsencode(source) + b"/" + name, "wb") as file:
            file.write(b"x")
    sets.ok("seal", "-f", "genomes", source, tmp_path / "sealed")
    for path in (tmp_path / "sealed").iterdir():
        with open(path, "r+b") as file:
            file.seek(20)
            file.write(b"\xff\xff")
    message = sets("verify", tmp_path / "sealed", text=False)
    assert message.returncode == 4
    for shown in (rb"new\x0aline", rb"bad\xff\xfe", rb"esc\x1b[2J"):
        assert shown in message.stderr, message.stderr
    assert b"\x1b" not in message.stderr and b"\xff" not in message.stderr


def test_a_target_in_the_source_or_the_same_file_is_refused(sets, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_bytes(b"x")
    assert "inside the source" in sets("seal", "-f", "genomes", source, source / "sealed").stderr
    assert "same file" in sets("seal", "-f", "genomes", "--force", source / "file", source / "file").stderr
    assert (source / "file").read_bytes() == b"x"


# --- what is there already

def test_a_second_run_finds_all_current_and_a_change_is_refused_or_forced(sets, tmp_path):
    source, target = make_tree(tmp_path / "source"), tmp_path / "sealed"
    sets.ok("seal", "-f", "genomes", source, target)
    before = {path: path.stat().st_ino for path in target.rglob("*") if not path.is_symlink()}
    again = sets.json("seal", "-f", "genomes", source, target)[0]
    assert again["files"] == 0 and again["failed"] == 0 and again["current"] > 10
    assert before == {path: path.stat().st_ino for path in target.rglob("*") if not path.is_symlink()}
    (source / "size-1").write_bytes(b"other")
    assert "size-1 exists and is not current" in sets.fails(1, "seal", "-f", "genomes", source, target)
    assert sets("open", target / "size-1", "-", text=False).stdout == content(1, 1)
    assert sets.json("seal", "-f", "genomes", "--force", source, target)[0]["files"] == 1
    assert sets("open", target / "size-1", "-", text=False).stdout == b"other"


def test_a_plain_file_is_never_taken_for_current(sets, tmp_path):
    """The size and time of a sealed file, but plain; and one of another file set."""
    (tmp_path / "plain").write_bytes(b"a" * 100)
    sets.ok("seal", "-f", "genomes", tmp_path / "plain", tmp_path / "sealed")
    status = (tmp_path / "sealed").stat()
    (tmp_path / "sealed").write_bytes(b"b" * status.st_size)
    os.utime(tmp_path / "sealed", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert "is not current" in sets.fails(1, "seal", "-f", "genomes", tmp_path / "plain", tmp_path / "sealed")
    sets.ok("key", "create", "images")
    sets.ok("seal", "-f", "images", "--force", tmp_path / "plain", tmp_path / "sealed")
    assert "is not current" in sets.fails(1, "seal", "-f", "genomes", tmp_path / "plain", tmp_path / "sealed")
    assert "another file set" in sets.fails(4, "open", "-f", "genomes", tmp_path / "sealed", tmp_path / "back")


def test_shards_share_a_tree(sets, tmp_path):
    source = make_tree(tmp_path / "source")
    counts = []
    for share in ("1/3", "3/3", "2/3"):
        counts.append(sets.json("seal", "-f", "genomes", "--shard", share, source, tmp_path / "sealed")[0]["files"])
    assert all(counts) and sum(counts) == len({p.lstat().st_ino for p in source.rglob("*") if p.is_file() and not p.is_symlink()})
    last = sets.json("seal", "-f", "genomes", source, tmp_path / "sealed")[0]
    assert last["files"] == 0 and last["failed"] == 0
    sets.ok("open", tmp_path / "sealed", tmp_path / "back")
    same_tree(source, tmp_path / "back")


# --- what goes wrong

def test_a_file_that_changes_while_it_is_read_is_reported_and_the_others_go_on(sets, tmp_path):
    source, stop = tmp_path / "source", threading.Event()
    source.mkdir()
    (source / "calm").write_bytes(content(1000))
    (source / "growing").write_bytes(content(60 << 20))

    def grow():
        with open(source / "growing", "ab", buffering=0) as file:
            while not stop.is_set():
                file.write(b"more")
                time.sleep(0.0005)
    writer = threading.Thread(target=grow)
    writer.start()
    try:
        message = sets.fails(1, "seal", "-f", "genomes", source, tmp_path / "sealed")
    finally:
        stop.set()
        writer.join()
    assert "growing changed while it was read" in message
    assert [path.name for path in (tmp_path / "sealed").iterdir()] == ["calm"]


@pytest.mark.parametrize("command", ["seal", "open"])
def test_a_full_disk_leaves_nothing_under_the_final_name(sets, tmp_path, command):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("a", "b", "c"):
        (source / name).write_bytes(content(3 << 20))
    sets.ok("seal", "-f", "genomes", source, tmp_path / "sealed")
    with file_system(tmp_path / "small", "tmpfs", "-o", "size=5m") as small:
        words = ("seal", "-f", "genomes", source) if command == "seal" else ("open", tmp_path / "sealed")
        message = sets.fails(1, *words, small / "target")
        assert "No space left on device" in message and "the rest would fail too" in message
        assert not temporaries(small)
        for path in (small / "target").iterdir():  # what did fit is whole
            assert path.stat().st_size == ((tmp_path / "sealed") if command == "seal" else source).joinpath(path.name).stat().st_size


def test_a_read_only_target_is_said(sets, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    with file_system(tmp_path / "ro", "tmpfs", "-o", "ro") as ro:
        assert "Read-only file system" in sets.fails(1, "seal", "-f", "genomes", tmp_path / "file", ro / "sealed")


def test_a_file_system_without_attributes_holds_sealed_files_too(sets, tmp_path):
    (tmp_path / "file").write_bytes(content(10_000))
    os.setxattr(tmp_path / "file", "user.origin", b"x")
    with file_system(tmp_path / "bare", "ramfs") as bare:
        done = sets("seal", "-f", "genomes", tmp_path / "file", bare / "sealed")
        assert done.returncode == 0 and "extended attributes" in done.stderr
        with pytest.raises(OSError) as failure:
            os.getxattr(bare / "sealed", "user.naos.key")
        assert failure.value.errno in (errno.EOPNOTSUPP, errno.ENODATA)
        assert sets.json("seal", "-f", "genomes", tmp_path / "file", bare / "sealed")[0]["current"] == 1
        sets.ok("verify", bare / "sealed")
        sets.ok("open", bare / "sealed", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == content(10_000)
        sets.ok("key", "rotate", "genomes")
        sets.ok("rewrap", bare / "sealed")
        assert sets.json("rewrap", bare / "sealed")[0]["current"] == 1
        assert sets.json("seal", "-f", "genomes", tmp_path / "file", bare / "sealed")[0]["current"] == 1  # its times stayed


def test_no_key_manager_is_exit_status_5_and_touches_nothing(sets, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    gone = dict(sets.env, SOFTHSM2_CONF="/nonexistent")
    assert sets("seal", "-f", "genomes", tmp_path / "file", tmp_path / "sealed", env=gone).returncode == 5
    assert not (tmp_path / "sealed").exists()


def test_a_signal_ends_a_run_cleanly_and_the_next_completes_it(sets, tmp_path):
    read, write = os.pipe()
    process = subprocess.Popen([NAOS, "seal", "-f", "genomes", "-", tmp_path / "sealed"], env=sets.env, stdin=read, stderr=subprocess.PIPE)
    os.write(write, content(200_000))
    deadline = time.monotonic() + 60
    while not temporaries(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 1 and b"interrupted" in process.stderr.read()
    os.close(write)
    assert not temporaries(tmp_path) and not (tmp_path / "sealed").exists()


# --- the record

def test_runs_and_failures_are_recorded_and_without_a_record_nothing_is_done(sets, token, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "good").write_bytes(b"1")
    (source / "bad").write_bytes(b"2")
    sets.config.write_text(token.config() + f"[audit]\nlog = {tmp_path / 'log'}\n")
    sets.ok("seal", "-f", "genomes", source, tmp_path / "sealed")
    with open(tmp_path / "sealed/bad", "r+b") as file:
        file.seek(4096)
        file.write(b"!")
    sets.fails(4, "open", tmp_path / "sealed", tmp_path / "back")
    records = [json.loads(line) for line in sets.ok("audit", "show", "--json").splitlines()]
    mine = [r for r in records if r.get("action") in ("file.seal", "file.open")]
    assert [(r["action"], r["decision"]) for r in mine] == [
        ("file.seal", "allowed"), ("file.seal", "allowed"), ("file.open", "allowed"), ("file.open", "failed"), ("file.open", "failed")]
    assert "genomes" in mine[0]["object"] and mine[3]["object"].endswith("sealed/bad") and mine[3]["reason"] == "NAOS_E_INTEGRITY"
    assert len({r["request_id"] for r in mine}) == 2
    shutil.rmtree(tmp_path / "log")
    (tmp_path / "log").write_text("not a log")
    sets.fails(1, "seal", "-f", "genomes", source, tmp_path / "unrecorded")
    assert not (tmp_path / "unrecorded").exists()

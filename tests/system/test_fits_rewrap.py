# SPDX-License-Identifier: Apache-2.0
"""naos fits rewrap: newer and other MEKs, without a change to anything else; killed at any moment; torn; where no spare copy is kept."""
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

from conftest import NAOS

IMAGE = pathlib.Path("/usr/share/python-drizzle/test_data/j8bt06nyq_flt.fits")
SMALL = pathlib.Path("/usr/lib/python3/dist-packages/astropy/io/fits/tests/data/tb.fits")
KEYS_BYTES = 512
SPARE = "user.naos.keys"
KILLS = 60


def need(*paths):
    for path in paths:
        if not path.exists():
            pytest.skip("python-drizzle-testdata and python3-astropy have the files")


@pytest.fixture
def survey(naos, token):
    """naos with a collection `survey`."""
    naos.env.update(token.env)
    naos.config.write_text(token.config() + "[collection survey]\n")
    naos.ok("key", "create", "survey-header")
    naos.ok("key", "create", "survey-data")
    return naos


def keys_offset(path):
    """Where the wrapped keys are: behind the manifest, in the one row of the first table (docs/formats/frame.md, section 2)."""
    data = path.read_bytes()[:5760]
    row = int(data[2880 + 3 * 80 + 10: 2880 + 3 * 80 + 30])
    return 5760 + row - KEYS_BYTES


def content(path):
    """All but the wrapped keys."""
    data, at = path.read_bytes(), keys_offset(path)
    return data[:at] + data[at + KEYS_BYTES:]


def versions(naos, path):
    (info,) = naos.json("fits", "info", path)
    return info["header_mek"]["version"], info["data_mek"]["version"]


def test_keys_go_to_the_newest_version_and_nothing_else_changes(survey, tmp_path):
    need(SMALL)
    tree = tmp_path / "plain"
    (tree / "night").mkdir(parents=True)
    for i in range(70):  # more than one batch
        shutil.copy(SMALL, tree / "night" / f"{i}.fits")
    survey.ok("fits", "seal", "--collection", "survey", tree, tmp_path / "sealed")
    frames = sorted((tmp_path / "sealed/night").iterdir())
    os.chmod(frames[3], 0o444)
    os.link(frames[4], tmp_path / "sealed/second-name.fits")
    (tmp_path / "sealed/notes.txt").write_text("no frame\n")
    before = {path: (content(path), path.stat().st_mtime_ns, path.stat().st_mode) for path in frames}
    survey.ok("key", "rotate", "survey-header")
    out = survey.json("fits", "rewrap", tmp_path / "sealed")
    assert out[-1]["summary"] and out[-1]["files"] == 70 and out[-1]["left_out"] == 1 and len(out) == 72, out[-1]
    for path in frames:
        assert versions(survey, path) == (2, 1)
        assert (content(path), path.stat().st_mtime_ns, path.stat().st_mode) == before[path], path
        assert SPARE not in os.listxattr(path)
    (again,) = [line for line in survey.json("fits", "rewrap", tmp_path / "sealed") if line.get("summary")]
    assert (again["files"], again["current"]) == (0, 70)
    survey.ok("key", "rotate", "survey-data")
    shares = [survey.json("fits", "rewrap", "--collection", "survey", "--shard", f"{i}/3", tmp_path / "sealed")[-1] for i in (1, 2, 3)]
    assert sum(share["files"] for share in shares) == 70 and all(share["files"] for share in shares)
    survey.ok("key", "revoke", "survey-header", "--key-version", "1")
    survey.ok("key", "revoke", "survey-data", "--key-version", "1")
    survey.ok("fits", "verify", tmp_path / "sealed")
    survey.ok("fits", "open", tmp_path / "sealed", tmp_path / "opened")
    assert all((tmp_path / "opened/night" / path.name).read_bytes() == SMALL.read_bytes() for path in frames)


def test_a_collection_can_change_to_other_meks(survey, token, tmp_path):
    need(SMALL)
    sealed = tmp_path / "sealed.fits"
    survey.ok("fits", "seal", "--collection", "survey", SMALL, sealed)
    (info,) = survey.json("fits", "info", sealed)
    survey.ok("key", "create", "new-header")
    survey.ok("key", "create", "new-data")
    survey.config.write_text(token.config() + "[collection survey]\nheader-mek = new-header\ndata-mek = new-data\n")
    refused = survey.fails(4, "fits", "rewrap", sealed)
    assert info["collection_id"] in refused
    survey.config.write_text(token.config() + "[collection survey]\nheader-mek = new-header\ndata-mek = new-data\nid = "
                             + info["collection_id"] + "\n")
    survey.ok("fits", "rewrap", sealed)
    (now,) = survey.json("fits", "info", sealed)
    assert now["header_mek"]["id"] != info["header_mek"]["id"] and now["data_mek"]["id"] != info["data_mek"]["id"]
    survey.ok("key", "revoke", "survey-header")
    survey.ok("key", "revoke", "survey-data")
    survey.ok("fits", "open", sealed, tmp_path / "opened.fits")
    assert (tmp_path / "opened.fits").read_bytes() == SMALL.read_bytes()


def test_a_key_that_is_not_the_frames_is_never_wrapped(survey, tmp_path):
    """The wrapped keys of another frame in its place: an error, and the file stays as it is."""
    need(SMALL)
    one, other = tmp_path / "one.fits", tmp_path / "other.fits"
    survey.ok("fits", "seal", "--collection", "survey", SMALL, one)
    survey.ok("fits", "seal", "--collection", "survey", SMALL, other)
    at = keys_offset(one)
    data = bytearray(one.read_bytes())
    data[at:at + KEYS_BYTES] = other.read_bytes()[at:at + KEYS_BYTES]
    one.write_bytes(data)
    survey.ok("key", "rotate", "survey-header")
    assert "damaged" in survey.fails(4, "fits", "rewrap", one)
    assert one.read_bytes() == data


def test_every_torn_write_of_the_keys_is_mended_from_the_spare_copy(survey, tmp_path):
    """What a crash can leave: the spare copy is durable, and of the new keys any part is in the frame."""
    need(SMALL)
    sealed, opened = tmp_path / "sealed.fits", tmp_path / "opened.fits"
    survey.ok("fits", "seal", "--collection", "survey", SMALL, sealed)
    old = sealed.read_bytes()
    survey.ok("key", "rotate", "survey-header")
    survey.ok("key", "rotate", "survey-data")
    survey.ok("fits", "rewrap", sealed)
    new, at = sealed.read_bytes(), keys_offset(sealed)
    for part in range(0, KEYS_BYTES + 1, 32):
        for torn in (new[:at + part] + old[at + part:], old[:at + part] + new[at + part:]):
            sealed.write_bytes(torn)
            os.setxattr(sealed, SPARE, new[at:at + KEYS_BYTES])
            survey.ok("fits", "open", "--require-full", "--force", sealed, opened)
            assert opened.read_bytes() == SMALL.read_bytes(), part
            survey.ok("fits", "rewrap", sealed)
            assert versions(survey, sealed) == (2, 2) and SPARE not in os.listxattr(sealed)
            survey.ok("fits", "verify", sealed)
    sealed.write_bytes(new[:at + 40] + old[at + 40:])  # without the spare copy such a tear would cost the header
    survey.fails(4, "fits", "open", "--require-full", "--force", sealed, opened)
    assert "damaged" in survey.fails(4, "fits", "rewrap", sealed)


def traced(survey, path, *options):
    """naos fits rewrap under strace, which sees only what is done to this file."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    done = subprocess.run(["strace", "-f", "-qq", "-P", path, *options, NAOS, "fits", "rewrap", "--jobs", "1", path],
                          env=dict(survey.env, ASAN_OPTIONS="detect_leaks=0"),  # which a sanitizer can't do while it is traced
                          capture_output=True, text=True, timeout=120)
    if "Operation not permitted" in done.stderr and "ptrace" in done.stderr.lower():
        pytest.skip("strace may not trace here")
    return done


def test_the_spare_copy_is_durable_before_the_keys_are_overwritten(survey, tmp_path):
    need(SMALL)
    sealed, log = tmp_path / "sealed.fits", tmp_path / "calls"
    survey.ok("fits", "seal", "--collection", "survey", SMALL, sealed)
    survey.ok("key", "rotate", "survey-header")
    done = traced(survey, sealed, "-o", log, "-e", "trace=fsetxattr,fremovexattr,pwrite64,fsync,fdatasync,syncfs")
    assert done.returncode == 0, done.stderr
    order = []
    for line in log.read_text().splitlines():
        call = line.split(None, 1)[-1]
        if "user.naos.times" not in call:
            order.append(call.split("(", 1)[0])
    assert order == ["fsetxattr", "fsync", "pwrite64", "fsync", "fremovexattr"], order


def test_killed_at_each_system_call_no_key_is_lost(survey, tmp_path):
    """Each call that touches the frame, the first time, the second, and so on, never returns."""
    need(SMALL)
    sealed, opened = tmp_path / "sealed.fits", tmp_path / "opened.fits"
    survey.ok("fits", "seal", "--collection", "survey", SMALL, sealed)
    os.chmod(sealed, 0o444)
    before, mtime = content(sealed), sealed.stat().st_mtime_ns
    killed = {}
    for call in ("openat", "pread64", "fsetxattr", "fsync", "pwrite64", "fremovexattr", "utimensat", "fgetxattr"):
        for when in range(1, 30):
            survey.ok("key", "rotate", "survey-header" if when % 2 else "survey-data")
            done = traced(survey, sealed, "-o", os.devnull, "-e", f"inject={call}:signal=SIGKILL:when={when}")
            assert done.returncode in (0, -signal.SIGKILL, 128 + signal.SIGKILL), done.stderr
            survey.ok("fits", "open", "--require-full", "--force", sealed, opened)
            assert opened.read_bytes() == SMALL.read_bytes() and content(sealed) == before, (call, when)
            if done.returncode == 0:
                break
            killed[call] = when
    survey.ok("key", "rotate", "survey-data")
    survey.ok("fits", "rewrap", sealed)
    assert sealed.stat().st_mtime_ns == mtime and not [name for name in os.listxattr(sealed) if name.startswith("user.naos")]
    assert sum(killed.values()) >= 15 and {"fsetxattr", "fsync", "pwrite64", "fremovexattr"} <= set(killed), killed


def test_without_extended_attributes_the_frame_is_replaced_as_a_whole(survey, tmp_path):
    need(SMALL)
    sealed = tmp_path / "sealed.fits"
    survey.ok("fits", "seal", "--collection", "survey", SMALL, sealed)
    before, inode, mtime = content(sealed), sealed.stat().st_ino, sealed.stat().st_mtime_ns
    survey.ok("key", "rotate", "survey-data")
    refuse = ["-o", os.devnull, "-e", "inject=fsetxattr:error=EOPNOTSUPP"]
    done = traced(survey, sealed, *refuse)
    assert done.returncode == 0, done.stderr
    assert sealed.stat().st_ino != inode and sealed.stat().st_mtime_ns == mtime and content(sealed) == before
    assert versions(survey, sealed) == (1, 2) and sorted(p.name for p in tmp_path.glob(".*naos*")) == []
    os.link(sealed, tmp_path / "second.fits")
    survey.ok("key", "rotate", "survey-data")
    done = traced(survey, sealed, *refuse)
    assert done.returncode == 2 and "several names" in done.stderr
    survey.ok("fits", "verify", sealed)


def test_killed_at_any_moment_no_key_is_lost(survey, tmp_path):
    need(SMALL)
    tree, sealed = tmp_path / "plain", tmp_path / "sealed"
    tree.mkdir()
    for i in range(40):
        shutil.copy(SMALL, tree / f"{i}.fits")
    survey.ok("fits", "seal", "--collection", "survey", tree, sealed)
    frames = sorted(sealed.iterdir())
    before = {path: (content(path), path.stat().st_mtime_ns) for path in frames}
    started = time.monotonic()
    survey.ok("key", "rotate", "survey-header")
    survey.ok("fits", "rewrap", sealed)
    whole = time.monotonic() - started
    killed = mixed = 0
    for attempt in range(4 * KILLS):
        if killed >= KILLS:
            break
        survey.ok("key", "rotate", "survey-header" if attempt % 2 else "survey-data")
        run = subprocess.Popen([NAOS, "fits", "rewrap", sealed], env=survey.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(whole * ((attempt * 37) % 100) / 100)
        run.send_signal(signal.SIGKILL)
        if run.wait() != -signal.SIGKILL:
            continue
        killed += 1
        survey.ok("fits", "verify", "--jobs", "1", sealed)  # both keys of each frame, and all that they guard
        infos = [info for info in survey.json("fits", "info", sealed) if "frame_id" in info]
        mixed += len({(info["header_mek"]["version"], info["data_mek"]["version"]) for info in infos}) > 1
    assert killed >= KILLS
    assert mixed > 0, "no kill came in the middle of the work"
    survey.ok("fits", "rewrap", sealed)
    infos = [info for info in survey.json("fits", "info", sealed) if "frame_id" in info]
    assert len({(info["header_mek"]["version"], info["data_mek"]["version"]) for info in infos}) == 1
    for path in frames:
        assert (content(path), path.stat().st_mtime_ns) == before[path], path
        assert SPARE not in os.listxattr(path)


def test_a_frame_of_version_1_is_refused_and_stays_as_it_is(survey, tmp_path):
    image, sealed = SMALL.with_name("scale.fits"), tmp_path / "sealed.fits"
    need(image)
    survey.ok("fits", "seal", "--format", "1", "--collection", "survey", image, sealed)
    before = sealed.read_bytes()
    survey.ok("key", "rotate", "survey-header")
    assert "version 1" in survey.fails(2, "fits", "rewrap", sealed)
    assert sealed.read_bytes() == before
    survey.ok("fits", "verify", sealed)

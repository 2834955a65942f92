# SPDX-License-Identifier: Apache-2.0
"""naos fits on whole archives: names, links and times of a tree, what is left out, runs that are completed, keys by a descriptor."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

from conftest import NAOS

DATA = pathlib.Path("/usr/lib/python3/dist-packages/astropy/io/fits/tests/data")
SMALL = DATA / "tb.fits"
HEADER, DATA_KEY = "000102030405060708090a0b0c0d0e0f", "f0e0d0c0b0a090807060504030201000"


@pytest.fixture
def keys(tmp_path):
    words = []
    for name, digits in (("header", HEADER), ("data", DATA_KEY)):
        path = tmp_path / f"{name}.key"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(digits + "\n")
        words += [f"--{name}-key", f"file:{path}"]
    return words


@pytest.fixture
def archive(tmp_path):
    """Frames of a night, some in a second folder, with all that an archive has besides."""
    if not SMALL.exists():
        pytest.skip("python3-astropy has the files")
    root = tmp_path / "archive"
    (root / "2024/raw").mkdir(parents=True)
    for i in range(12):
        shutil.copy(SMALL, root / f"2024/raw/{i:02}.fits")
        os.utime(root / f"2024/raw/{i:02}.fits", ns=(10**18 + i, 10**18 + i * 10**9 + 7))
    shutil.copy(DATA / "comp.fits", root / "tiles.FITS")
    os.link(root / "2024/raw/03.fits", root / "2024/best.fits")
    os.symlink("raw/04.fits", root / "2024/latest.fits")
    (root / "README.txt").write_text("not FITS\n")
    os.chmod(root / "2024/raw/05.fits", 0o440)
    return root


def lines(out):
    """Objects of single files, and the summary."""
    objects = [json.loads(line) for line in out.splitlines()]
    return objects[:-1], objects[-1]


def files(root):
    return {str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir()}


def test_a_tree_is_sealed_and_opened_with_its_names_links_and_times(naos, keys, archive, tmp_path):
    sealed, opened = tmp_path / "sealed", tmp_path / "opened"
    single, summary = lines(naos.ok("fits", "seal", "--json", *keys, archive, sealed))
    assert summary["summary"] and summary["files"] == 13 and summary["left_out"] == 1 and summary["failed"] == 0
    assert sorted(o.get("left_out", "") for o in single) == [""] * 13 + ["no-fits"]
    assert files(sealed) == files(archive) - {"README.txt"}
    assert os.readlink(sealed / "2024/latest.fits") == "raw/04.fits"
    assert (sealed / "2024/best.fits").stat().st_ino == (sealed / "2024/raw/03.fits").stat().st_ino
    for i in range(12):
        name = f"2024/raw/{i:02}.fits"
        assert (sealed / name).stat().st_mtime_ns == (archive / name).stat().st_mtime_ns
    assert (sealed / "2024/raw/05.fits").stat().st_mode & 0o777 == 0o440
    verified = naos.ok("fits", "verify", *keys, sealed)
    assert "verified 13 files" in verified
    out = naos("fits", "open", *keys, sealed, opened)
    assert out.returncode == 0 and "opened 13 files" in out.stdout
    for name in files(sealed):
        assert (opened / name).read_bytes() == (archive / name).read_bytes(), name
    assert (opened / "2024/raw/00.fits").stat().st_mode & 0o777 == 0o600  # plaintext is its owner's
    infos, summary = lines(naos.ok("fits", "info", "--json", sealed))
    assert len({info["frame_id"] for info in infos}) == 13 and summary["left_out"] == 1  # the symbolic link


def test_a_second_run_does_only_what_is_missing(naos, keys, archive, tmp_path):
    sealed, opened = tmp_path / "sealed", tmp_path / "opened"
    naos.ok("fits", "seal", *keys, archive, sealed)
    (sealed / "2024/raw/07.fits").unlink()
    os.utime(archive / "2024/raw/08.fits")  # changed since
    single, summary = lines(naos("fits", "seal", "--json", *keys, archive, sealed).stdout)
    assert (summary["files"], summary["failed"]) == (1, 1)
    assert sum(o.get("left_out") == "current" for o in single) == 11
    stderr = naos.fails(1, "fits", "seal", *keys, archive, sealed)
    assert "08.fits exists and is not current" in stderr and "--force" in stderr
    assert "sealed 1 file" in naos.ok("fits", "seal", "--force", *keys, archive, sealed)
    # frames under other keys are not current
    other = [keys[0], keys[3], keys[2], keys[1]]
    assert "13 failed" in naos("fits", "seal", *other, archive, sealed).stdout
    # a part is not taken for the whole when there are more keys
    naos.ok("fits", "open", *keys[:2], sealed, opened)
    assert "15 were current" in naos.ok("fits", "open", *keys[:2], sealed, opened)  # with the two links
    assert "13 failed" in naos("fits", "open", *keys, sealed, opened).stdout
    assert "opened 13 files" in naos.ok("fits", "open", "--force", *keys, sealed, opened)
    assert (opened / "2024/raw/07.fits").read_bytes() == SMALL.read_bytes()
    assert "15 were current" in naos.ok("fits", "open", *keys, sealed, opened)


def test_a_file_that_fails_is_named_and_the_rest_is_done(naos, keys, archive, tmp_path):
    sealed = tmp_path / "sealed"
    (archive / "broken.fits").write_text("not at all\n")
    stderr = naos.fails(4, "fits", "seal", *keys, archive, sealed)  # the worst: no valid FITS file
    assert "broken.fits" in stderr and "1 of" in stderr
    assert len(files(sealed)) == 15
    (archive / "broken.fits").unlink()
    # in a tree of frames a file that should be one, and is none, is not passed over
    for content in (b"not at all", SMALL.read_bytes()):
        (sealed / "2024/raw/02.fits").write_bytes(content)
        assert "02.fits" in naos.fails(4, "fits", "verify", *keys, sealed)
    with open(sealed / "2024/raw/01.fits", "r+b") as file:  # and one bit of another
        file.seek(-2880, os.SEEK_END)
        byte = file.read(1)
        file.seek(-2880, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))
    stderr = naos.fails(4, "fits", "verify", *keys, sealed)
    assert "01.fits" in stderr and "02.fits" in stderr and "2 of" in stderr
    done = naos("fits", "seal", *keys, sealed / "2024/raw/00.fits", tmp_path / "twice.fits")
    assert done.returncode == 2 and "is a frame already" in done.stderr


def test_shares_together_are_the_whole(naos, keys, archive, tmp_path):
    sealed = tmp_path / "sealed"
    done = [lines(naos.ok("fits", "seal", "--json", "--shard", f"{i}/4", *keys, archive, sealed))[1] for i in range(1, 5)]
    assert sum(d["files"] for d in done) == 13 and max(d["files"] for d in done) < 13
    naos.ok("fits", "verify", *keys, sealed)
    assert files(sealed) == files(archive) - {"README.txt"}


def test_keys_come_from_descriptors_for_a_tree_too(naos, archive, tmp_path):
    def run(*words):
        pipes = [os.pipe() for _ in range(2)]
        for (_, write), digits in zip(pipes, (HEADER, DATA_KEY)):
            os.write(write, digits.encode())
            os.close(write)
        reads = [read for read, _ in pipes]
        done = naos("fits", words[0], "--header-key", f"fd:{reads[0]}", "--data-key", f"fd:{reads[1]}", *words[1:], pass_fds=reads)
        for read in reads:
            os.close(read)
        assert done.returncode == 0, done.stderr
    run("seal", archive, tmp_path / "sealed")
    run("verify", tmp_path / "sealed")
    run("open", tmp_path / "sealed", tmp_path / "opened")
    assert (tmp_path / "opened/2024/raw/11.fits").read_bytes() == SMALL.read_bytes()


def test_a_killed_run_leaves_whole_files_and_is_completed(naos, keys, archive, tmp_path):
    sealed = tmp_path / "sealed"
    for i in range(300):
        shutil.copy(SMALL, archive / f"2024/raw/more{i:03}.fits")
    kills = 0
    for attempt in range(40):
        run = subprocess.Popen([NAOS, "fits", "seal", "--jobs", "2", *keys, archive, sealed], env=naos.env, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
        time.sleep(0.01 + 0.01 * attempt)
        run.send_signal(signal.SIGKILL)
        if run.wait() != -signal.SIGKILL:
            break
        kills += 1
        if sealed.exists():
            there = [p for p in sealed.rglob("[!.]*.fits") if not p.is_symlink()]
            if there:
                naos.ok("fits", "verify", *keys, *there)  # what has its name is complete
    assert kills >= 3
    naos.ok("fits", "seal", *keys, archive, sealed)
    assert not [p for p in sealed.rglob(".*")]
    assert files(sealed) == files(archive) - {"README.txt"}
    naos.ok("fits", "verify", *keys, sealed)


def test_an_interrupted_run_ends_soon_and_leaves_nothing_half(naos, keys, tmp_path):
    large = tmp_path / "large.fits"
    cards = [f"SIMPLE  = {'T':>20}", f"BITPIX  = {8:>20}", f"NAXIS   = {1:>20}", f"NAXIS1  = {8 << 30:>20}", "END"]
    with open(large, "wb") as file:
        file.write(b"".join(card.ljust(80).encode() for card in cards).ljust(2880))
        file.truncate(2880 + ((8 << 30) + 2879) // 2880 * 2880)  # sparse: longer than anybody would wait
    run = subprocess.Popen([NAOS, "fits", "seal", *keys, large, tmp_path / "sealed.fits"], env=naos.env, stderr=subprocess.PIPE, text=True)
    time.sleep(0.7)
    assert run.poll() is None
    run.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, stderr = run.communicate(timeout=60)
    assert run.returncode == 1 and "interrupted" in stderr, stderr
    assert time.monotonic() - began < 30
    assert sorted(p.name for p in tmp_path.iterdir() if "sealed" in p.name) == []


def test_old_files_of_a_tree_are_imported(naos, keys, shared, tmp_path):
    old = tmp_path / "old"
    old.mkdir()
    for path in sorted((shared / "data/frames/legacy/enc").glob("f32*.fits")):
        shutil.copy(path, old)
    shutil.copy(SMALL, old / "plain.fits")
    out = naos("fits", "import-legacy", *keys, old, tmp_path / "new")
    count = len(list(old.glob("f32*")))
    assert out.returncode == 0 and f"sealed {count} files" in out.stdout and "1 left out" in out.stdout
    assert out.stderr.count("never authenticated") == count
    assert f"{count} were current" in naos.ok("fits", "import-legacy", *keys, old, tmp_path / "new")
    naos.ok("fits", "verify", *keys, tmp_path / "new")

# SPDX-License-Identifier: Apache-2.0
"""Frames of any size in bounded memory: every verb on an image of gigabytes, within an address space that could not hold it."""
import os
import subprocess

import pytest

from conftest import NAOS

GIB = 1 << 30
SIZE = 3 * GIB  # one image, all but its first rows a hole
SEGMENT = 4 << 20
JOBS = 2
HEADER, DATA = "000102030405060708090a0b0c0d0e0f", "f0e0d0c0b0a090807060504030201000"


# The peak of a process counts what it was before exec: a small one starts it, not this one with all of pytest in it.
MEASURE = f"""
import os, resource, sys
pid = os.fork()
if pid == 0:
    resource.setrlimit(resource.RLIMIT_AS, ({GIB}, {GIB}))
    os.dup2(2, 1)
    os.execv(sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(pid, 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def card(text):
    return text.ljust(80).encode()


def header(cards):
    text = b"".join(map(card, cards)) + card("END")
    return text.ljust((len(text) + 2879) // 2880 * 2880)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    directory = tmp_path_factory.mktemp("large")
    stat = os.statvfs(directory)
    if stat.f_bavail * stat.f_frsize < 3 * SIZE:
        pytest.skip("the disk has not room for three times 3 GiB")
    path = directory / "large.fits"
    rows = SIZE // 65536
    with open(path, "wb") as file:
        file.write(header([f"SIMPLE  = {'T':>20}", f"BITPIX  = {16:>20}", f"NAXIS   = {2:>20}", f"NAXIS1  = {32768:>20}", f"NAXIS2  = {rows:>20}",
                           f"EXTEND  = {'T':>20}"]))
        file.write(os.urandom(65536 * 4))
        end = 2880 + (SIZE + 2879) // 2880 * 2880
        file.seek(end)
        file.write(header(["XTENSION= 'IMAGE   '", f"BITPIX  = {8:>20}", f"NAXIS   = {1:>20}", f"NAXIS1  = {2880:>20}", f"PCOUNT  = {0:>20}",
                           f"GCOUNT  = {1:>20}", "EXTNAME = 'LAST    '"]) + b"\x07" * 2880)
    return path


@pytest.fixture
def bounded(tmp_path):
    """Runs naos in little memory; returns its peak in bytes."""
    if os.environ.get("NAOS_SANITIZE", "none") != "none":
        pytest.skip("a sanitizer's own memory is beyond all bounds")
    words = []
    for name, digits in (("header", HEADER), ("data", DATA)):
        path = tmp_path / f"{name}.key"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(digits + "\n")
        words += [f"--{name}-key", f"file:{path}"]

    def run(verb, *more):
        done = subprocess.run(["/usr/bin/python3", "-S", "-E", "-c", MEASURE, NAOS, "fits", verb, *words, *map(str, more)],
                              env=dict(os.environ, NAOS_CONFIG=os.devnull), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 0, done.stderr
        peak = int(done.stdout) * 1024
        print(f"fits {verb}: {peak / (1 << 20):.1f} MiB at most")
        return peak
    return run


def test_no_verb_needs_more_than_eight_segments_a_thread(bounded, large, tmp_path):
    sealed, opened, part = large.parent / "sealed.fits", large.parent / "opened.fits", tmp_path / "part.fits"
    most = 8 * SEGMENT * JOBS + (24 << 20)  # and the program itself
    jobs = ["--jobs", JOBS]
    assert bounded("seal", *jobs, large, sealed) < most
    assert bounded("verify", *jobs, sealed) < most
    assert bounded("open", *jobs, sealed, opened) < most
    with open(large, "rb") as one, open(opened, "rb") as other:
        assert os.path.getsize(opened) == os.path.getsize(large)
        while data := one.read(64 << 20):
            assert other.read(64 << 20) == data
    opened.unlink()
    assert bounded("cutout", "--header", sealed) < most
    assert bounded("cutout", "--hdu", "LAST", sealed, part) < most
    assert part.read_bytes()[-2880:] == b"\x07" * 2880
    part.unlink()
    assert bounded("cutout", "--section", "[32768:1:11,49000:1:16001]", sealed, part) < most
    part.unlink()
    assert bounded("cutout", "--hdu", "0", sealed, part) < most  # all of it, as one stream
    assert part.stat().st_size == 2880 + SIZE + (-SIZE) % 2880

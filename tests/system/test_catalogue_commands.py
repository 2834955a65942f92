# SPDX-License-Identifier: Apache-2.0
"""The catalogue of frames with a real key manager: what it finds, what it keeps to itself, and what kills and damage leave."""
import fcntl
import os
import random
import signal
import sqlite3
import subprocess
import time

import pytest

import frame_files
import pki as certificates
from conftest import NAOS
from keyd_server import Keyd
from softhsm import MISSING, SoftToken

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
ROLES = {
    "admin": {"identities": "naos://test/admin", "operations": "all", "keys": "*"},
    "curator": {"identities": "naos://test/curator", "operations": "locate read encrypt", "keys": "naos:survey-*"},
    "archivist": {"identities": "naos://test/archivist", "operations": "locate read encrypt decrypt", "keys": "naos:survey-header:*"},
}
KILLS = 20


def image(name, exposure):
    header = frame_files.header_of("SIMPLE  =                    T", "BITPIX  =                    8", "NAXIS   =                    1",
                                   "NAXIS1  =                   10", f"OBJECT  = '{name}'", f"EXPTIME = {exposure:20}",
                                   "DATE-OBS= '2026-03-01T02:03:04.5'", "RELEASE = '2027-03-01'", "PROPID  = 'ttt-42'")
    return header + bytes(2880)


@pytest.fixture
def archive(naos, tmp_path):
    people = certificates.Pki(tmp_path / "pki")
    with Keyd(tmp_path / "keyd", SoftToken(tmp_path / "softhsm"), people, roles=ROLES) as keyd:
        clients = {name: people.client(name, uri=f"naos://test/{name}") for name in ROLES}
        naos.by = lambda who: ["--keys", f"kmip://127.0.0.1:{keyd.port}?cert={clients[who].cert}&key={clients[who].key}&ca={people.ca}"]
        naos.database = tmp_path / "catalogue.db"
        naos.config.write_text(f"[collection survey]\nheader-mek = survey-header\n[catalogue]\npath = {naos.database}\n")
        tree, naos.frames = tmp_path / "tree", tmp_path / "frames"
        tree.mkdir()
        for i in range(40):
            (tree / f"{i}.fits").write_bytes(image(f"Halley {i}", i))
        for name in ("survey-header", "survey-data"):
            naos.ok("key", "create", *naos.by("admin"), name)
        naos.ok("fits", "seal", *naos.by("curator"), "--collection", "survey", tree, naos.frames)
        yield naos


def scan(naos, who="archivist"):
    done = naos("catalogue", "scan", *naos.by(who), naos.frames)
    return done.returncode, done.stdout, done.stderr


def found(naos, expression):
    return sorted(row["data"]["EXPTIME"] for row in naos.json("catalogue", "query", *naos.by("archivist"), "--now", "2026-12-01T00:00:00Z",
                                                              expression))


def test_the_header_key_makes_and_reads_it_and_nobody_else(archive):
    code, out, err = scan(archive, "curator")
    assert code == 3 and "operation 'decrypt'" in err, (out, err)
    code, out, err = scan(archive)
    assert code == 0 and "read 40 files" in out and "0 removed" in out, (out, err)
    assert found(archive, "data.EXPTIME < 3") == [0, 1, 2]
    assert found(archive, "data.OBJECT == 'Halley 7' AND data.proposal_id == 'ttt-42' AND data.collection == 'survey'") == [7]
    assert len(found(archive, "data.release_date > now() AND data.DATE-OBS == 2026-03-01T02:03:04.5Z")) == 40
    assert found(archive, "data.OBJECT > 5 OR exists(data.NONE)") == []
    archive.fails(3, "catalogue", "query", *archive.by("curator"), "data.EXPTIME < 3")
    for wrong in ("true allow if true", "user.id == 'x'", "data.EXPTIME <"):
        archive.fails(2, "catalogue", "query", *archive.by("archivist"), wrong)
    for path in archive.database.parent.glob("catalogue.db*"):
        content = path.read_bytes()
        assert not any(word in content for word in (b"Halley", b"ttt-42", b"OBJECT", b"EXPTIME", b"2027-03-01", b"RELEASE")), path


def test_a_second_scan_reads_what_changed_only(archive):
    assert scan(archive)[0] == 0
    trace = archive.database.parent / "trace"
    out = subprocess.run(["strace", "-f", "-e", "trace=openat", "-o", trace, NAOS, "catalogue", "scan", *map(str, archive.by("archivist")),
                          str(archive.frames)], env=archive.env, capture_output=True, text=True, timeout=300).stdout
    assert "40 were current" in out and ".fits" not in trace.read_text(), out
    (archive.frames / "1.fits").unlink()
    damaged = archive.frames / "2.fits"
    content = bytearray(damaged.read_bytes())
    table = content.index(b"'NAOS-SEGMENTS'") // 2880 * 2880
    content[table + 2880 + int(content[table + 330:table + 350]) * 57 + 5] ^= 1  # the header's first segment
    damaged.write_bytes(content)
    (archive.frames / "3.fits").replace(archive.frames / "moved.fits")
    code, out, err = scan(archive)
    assert code == 4 and "2 removed" in out and "37 were current" in out and "2.fits" in err, (out, err)
    assert found(archive, "data.EXPTIME < 5") == [0, 3, 4]
    (bad,) = archive.json("catalogue", "show", *archive.by("archivist"))
    assert bad["path"] == str(damaged) and bad["error"] == "NAOS_E_INTEGRITY" and "data" not in bad, bad
    (one,) = archive.json("catalogue", "show", *archive.by("archivist"), archive.frames / "moved.fits")
    assert one["data"]["OBJECT"] == "Halley 3"


def test_rows_that_were_exchanged_are_found(archive):
    assert scan(archive)[0] == 0
    paths = [str(archive.frames / name).encode() for name in ("2.fits", "1.fits")]
    with sqlite3.connect(archive.database) as database:
        sql = "UPDATE frame SET sealed = (SELECT sealed FROM frame WHERE path = ?) WHERE path = ?"
        assert database.execute(sql, paths).rowcount == 1
    assert "1.fits was changed" in archive.fails(4, "catalogue", "query", *archive.by("archivist"), "data.EXPTIME >= 0")


def test_a_kill_at_any_moment_leaves_a_catalogue_that_the_next_scan_completes(archive):
    words = [NAOS, "catalogue", "scan", *map(str, archive.by("archivist")), str(archive.frames)]
    killed = 0
    for seed in range(KILLS):
        if seed % 5 == 0:
            for path in archive.database.parent.glob("catalogue.db*"):
                path.unlink()
        for name in random.Random(seed).sample(range(40), 10):
            os.utime(archive.frames / f"{name}.fits")
        process = subprocess.Popen(words, env=archive.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(random.Random(seed).uniform(0.005, 0.06))
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    assert killed >= KILLS // 4
    assert scan(archive)[0] == 0
    assert found(archive, "data.EXPTIME >= 0") == list(range(40))


def test_a_lock_and_a_foreign_file_are_said_clearly(archive):
    with open(f"{archive.database}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another scan writes" in archive.fails(1, "catalogue", "scan", *archive.by("archivist"), archive.frames)
    archive.fails(1, "catalogue", "query", *archive.by("archivist"), "data.EXPTIME > 0")
    done = archive("catalogue", "scan", *archive.by("archivist"), "--catalogue", "/dev/full", archive.frames)
    assert done.returncode != 0 and not done.stdout, done

# SPDX-License-Identifier: Apache-2.0
"""naos doctor finds what is wrong with a configuration and a directory, and says what to do."""
import json
import os
import subprocess

import pytest

from conftest import NAOS


def findings(naos, *words, status=None):
    done = naos("doctor", "--json", *words)
    report = json.loads(done.stdout)
    assert done.returncode == (1 if report["problems"] else 0)
    if status is not None:
        assert done.returncode == status, report
    assert report["ok"] + report["warnings"] + report["problems"] == len(report["findings"])
    for finding in report["findings"]:
        assert finding["what"] and finding["why"]
        assert finding["status"] == "ok" or finding["remedy"]
    return report["findings"]


def of(found, check, status=None):
    return [f for f in found if f["check"] == check and status in (None, f["status"])]


def test_machine_is_examined_and_the_text_names_each_finding(naos):
    found = findings(naos)
    assert {"kernel", "memlock", "swap", "core", "cpu", "tracing", "clock", "config", "engine", "gpu"} <= {f["check"] for f in found}
    text = naos("doctor").stdout
    for finding in found:
        assert finding["what"] in text
        assert finding["status"] == "ok" or finding["remedy"] in text


def test_a_broken_configuration_is_a_problem_with_its_line(naos):
    naos.config.write_text("[engine]\nbackend = fast\n")
    problem, = of(findings(naos, status=1), "config", "problem")
    assert f"{naos.config}:2" in problem["what"]


def test_a_configuration_that_others_can_write_is_a_problem(naos):
    os.chmod(naos.config, 0o644)
    assert not of(findings(naos), "config", "problem")
    os.chmod(naos.config, 0o664)
    assert of(findings(naos, status=1), "config", "problem")
    os.chmod(naos.config, 0o644)
    drop_in = naos.directory / "naos.conf.d"
    drop_in.mkdir(mode=0o755)
    (drop_in / "a.conf").write_text("")
    os.chmod(drop_in / "a.conf", 0o646)
    assert "a.conf" in of(findings(naos, status=1), "config", "problem")[0]["what"]


def test_the_engine_asked_for_is_tried(naos):
    naos.config.write_text("[engine]\nbackend = openssl\n")
    engine, = of(findings(naos), "engine", "ok")
    assert "openssl" in engine["what"]


def test_the_gpu_is_found_or_the_reason_is_told(naos):
    gpu = of(findings(naos), "gpu")
    assert gpu[0]["what"].startswith("no CUDA device") or "driver" in gpu[0]["what"]
    naos.config.write_text("[gpu]\nuse = never\n")
    assert of(findings(naos), "gpu")[0]["what"] == "not used: [gpu] use = never"
    naos.config.write_text("[gpu]\nuse = sometimes\n")
    assert of(findings(naos, status=1), "config", "problem")
    naos.config.write_text("[gpu]\nuse = always\nconfidential = require\n")
    found = of(findings(naos), "gpu")
    assert found[0]["status"] == "problem" or "plug-in loaded" in found[0]["what"] or "confidential" in found[0]["what"]


def test_a_file_set_without_id_is_a_problem(naos):
    naos.config.write_text("[fileset a]\nmek = x\n")
    assert of(findings(naos, status=1), "fileset", "problem")
    naos.config.write_text("[fileset a]\nid = 6f1f6f2c-7f65-4a5a-8f4e-3f2c3a5b7d10\n")
    assert of(findings(naos), "fileset", "ok")


def test_a_directory_is_tried_and_left_empty(naos, tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    found = findings(naos, target)
    assert {"space", "xattr", "locks", "holes"} <= {f["check"] for f in found}
    assert list(target.iterdir()) == []
    assert of(findings(naos, target / "absent", status=1), "directory", "problem")


def test_core_files_of_jobs_are_a_warning_and_none_are_fine(naos):
    script = 'ulimit -c {}; exec "$0" doctor --json'
    pattern = open("/proc/sys/kernel/core_pattern").read()
    if not pattern.strip() or pattern.startswith("|"):
        pytest.skip("core files go to a program here")
    env = dict(naos.env, ASAN_OPTIONS="disable_coredump=0")  # AddressSanitizer would lower the limit first
    for limit, status in (("0", "ok"), ("unlimited", "warning")):
        done = subprocess.run(["sh", "-c", script.format(limit), NAOS], env=env, stdout=subprocess.PIPE, timeout=60)
        assert of(json.loads(done.stdout)["findings"], "core", status), (limit, done.stdout)


def test_little_lockable_memory_is_found(naos):
    unprivileged = ["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"] if os.geteuid() == 0 else []
    limits = [(128 << 10, "warning"), (8 << 20, "ok")]
    if "address" not in os.environ.get("NAOS_SANITIZE", ""):  # which replaces mlock by nothing
        limits.append((0, "problem"))
    for limit, wanted in limits:
        done = subprocess.run(["prlimit", f"--memlock={limit}:{limit}", *unprivileged, NAOS, "doctor", "--json"], env=naos.env,
                              stdout=subprocess.PIPE, timeout=60)
        memlock, = of(json.loads(done.stdout)["findings"], "memlock")
        assert memlock["status"] == wanted, memlock


def test_the_audit_log_is_verified(naos, tmp_path):
    assert of(findings(naos), "audit", "warning")
    naos.config.write_text(f"[audit]\nlog = {tmp_path}/absent\n")
    assert of(findings(naos, status=1), "audit", "problem")


def test_the_pin_file_is_for_its_owner_only(keys, token):
    assert of(findings(keys), "pin", "ok")
    os.chmod(token.pin_file, 0o440)
    assert "0440" in of(findings(keys, status=1), "pin", "problem")[0]["what"]
    token.pin_file.unlink()
    assert of(findings(keys, status=1), "pin", "problem")
    keys.config.write_text("[keymanager]\nuri = pkcs11:token=a?pin-value=secret1\n")
    done = keys("doctor")
    assert done.returncode == 1 and "secret1" not in done.stdout + done.stderr


def test_the_key_manager_is_asked_and_nothing_is_made(keys, token):
    assert of(findings(keys), "keys", "warning")
    assert not token.store.exists()
    token.store.touch(mode=0o600)
    assert "0 key versions" in of(findings(keys), "keys", "ok")[0]["what"]
    token.pin_file.write_text("wrong")
    assert of(findings(keys, status=1), "keys", "problem")

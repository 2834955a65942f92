# SPDX-License-Identifier: Apache-2.0
"""`meson install` lays out a system that works: program, library, headers, man pages, completion, users and folders."""
import os
import re
import shutil
import subprocess

import pytest

from conftest import BUILD, SOURCE

SANITIZE = os.environ.get("NAOS_SANITIZE", "none")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    tree = tmp_path_factory.mktemp("installed")
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", tree], check=True)
    return tree


def files(tree):
    return {str(path.relative_to(tree)) for path in tree.rglob("*") if not path.is_dir()}


def test_every_man_page_and_public_header_is_installed(tree):
    installed = {os.path.basename(name) for name in files(tree)}
    headers = SOURCE / "include/naos"
    for path in [*(SOURCE / "docs/man").glob("*.[1-8]"), *headers.glob("*.h"), *headers.glob("*.def")]:
        assert path.name in installed, path.name


def test_nothing_is_written_to_etc_or_var(tree):
    assert not [name for name in files(tree) if name.split("/")[0] in ("etc", "var")]
    assert not list(tree.glob("etc")) and not list(tree.glob("var"))


def test_the_installed_program_runs_and_its_example_configuration_is_valid(tree):
    program, = [tree / name for name in files(tree) if name.endswith("bin/naos")]
    example, = [tree / name for name in files(tree) if name.endswith("examples/naos.conf")]
    for words in (["--version"], ["config", "check", example]):
        subprocess.run([program, *words], check=True, env={"PATH": os.environ["PATH"]}, stdout=subprocess.DEVNULL)


def test_the_library_exports_exactly_what_the_headers_and_the_list_say(tree):
    library, = [tree / name for name in files(tree) if re.search(r"/libnaos\.so\.\d+\.\d+\.\d+$", name)]
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], stdout=subprocess.PIPE, text=True, check=True).stdout
    exported = {line.split()[2].split("@")[0] for line in symbols.splitlines() if line.split()[1] in "TDBRVW"} - {"NAOS_0"}
    exported = {name for name in exported if not name.startswith(("__asan", "__odr_asan", "__ubsan", "__start", "__stop"))}
    listed = set(re.findall(r"^\t(\w+);", (SOURCE / "lib/naos.map").read_text(), re.M))
    declared = set()
    for header in (SOURCE / "include/naos").glob("*.h"):
        code = re.sub(r"/\*.*?\*/|^\s*#.*?$", "", header.read_text(), flags=re.S | re.M)
        code = re.sub(r"static inline.*?^}", "", code, flags=re.S | re.M)
        declared |= set(re.findall(r"\b((?:naos_|gfc_|free_fits_)\w+)\s*\([^()]*(?:\([^()]*\)[^()]*)*\)\s*(?:\w+\s*)?;", code))
    assert exported == listed == declared


def test_a_program_of_someone_else_builds_with_pkg_config_and_runs(tree, tmp_path):
    pc, = [tree / name for name in files(tree) if name.endswith("/naos.pc")]
    env = dict(os.environ, PKG_CONFIG_PATH=str(pc.parent), PKG_CONFIG_SYSROOT_DIR=str(tree))
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "naos"], stdout=subprocess.PIPE, text=True, check=True, env=env)
    flags = flags.stdout.split()
    source = tmp_path / "other.c"
    source.write_text("""
        #include <naos/error.h>
        #include <stdio.h>
        int main(void) { return puts(naos_error_info(NAOS_E_INTEGRITY)->name) < 0; }
    """)
    compiler = ["cc", "-Wall", "-Werror", source, "-o", tmp_path / "other", *flags]
    if SANITIZE != "none":
        compiler.insert(1, f"-fsanitize={SANITIZE}")
    subprocess.run(compiler, check=True)
    env["LD_LIBRARY_PATH"] = str(pc.parent.parent)
    done = subprocess.run([tmp_path / "other"], env=env, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "NAOS_E_INTEGRITY\n"
    subprocess.run(["c++", "-fsyntax-only", "-x", "c++", source, *[f for f in flags if f.startswith("-I")]], check=True)


def test_users_and_folders_are_in_the_form_of_systemd(tree):
    users, = [tree / name for name in files(tree) if name.endswith("lib/sysusers.d/naos.conf")]
    folders, = [tree / name for name in files(tree) if name.endswith("lib/tmpfiles.d/naos.conf")]
    assert re.search(r'^u naos - "[^"]+" /\S+ -$', users.read_text(), re.M)
    lines = [line for line in folders.read_text().splitlines() if not line.startswith("#")]
    assert lines and all(re.fullmatch(r"d /\S+ 0\d{3} \w+ \w+ -", line) for line in lines)


def installed(tree, end):
    path, = [tree / name for name in files(tree) if name.endswith(end)]
    return path


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", ["naos-keyd.service", "naos-fs@.service"])
def test_units_are_understood_by_systemd(tree, tmp_path, unit):
    binaries = installed(tree, "/bin/naos").parent
    text = installed(tree, f"systemd/system/{unit}").read_text()
    here = tmp_path / unit.replace("@", "@genomes")
    here.write_text(text.replace("/" + str(binaries.relative_to(tree)), str(binaries)))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", here], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=60)
    assert done.returncode == 0 and unit.partition(".")[0].rstrip("@") not in done.stdout, done.stdout


def test_what_is_mounted_by_the_unit_is_seen_by_all(tree):
    """Settings that give a unit a mount namespace of its own would hide the file set from everybody else."""
    text = installed(tree, "naos-fs@.service").read_text()
    keys = re.findall(r"^(\w+)=", text, re.M)
    assert not [key for key in keys if key.startswith(("Protect", "Private", "ReadOnly", "ReadWrite", "Inaccessible", "Bind", "Temporary", "Mount"))]


def test_the_unit_and_the_helper_of_mount_give_the_same_rights(tree):
    unit, helper = installed(tree, "naos-fs@.service"), installed(tree, "sbin/mount.naos")
    ambient, = re.findall(r"^AmbientCapabilities=(.+)$", unit.read_text(), re.M)
    bounding, = re.findall(r"^CapabilityBoundingSet=(.+)$", unit.read_text(), re.M)
    rights, = re.findall(r"rights=(\S+)$", helper.read_text(), re.M)
    assert ambient == bounding and {f"+{word[4:].lower()}" for word in ambient.split()} == set(rights.split(","))
    assert os.access(helper, os.X_OK)
    done = subprocess.run(["sh", "-n", helper], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr

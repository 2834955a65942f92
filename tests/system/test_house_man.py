# SPDX-License-Identifier: Apache-2.0
"""Man pages list exactly the options there are, name every command with an example, and are well formed."""
import re
import subprocess

import pytest

from conftest import SOURCE

MAN = SOURCE / "docs/man"
OPTION = re.compile(r"^\.It (?:Fl (?P<letter>\w) , )?Fl -(?P<name>[a-z][a-z0-9-]*)(?: Ar (?P<argument>.+))?$", re.M)


def page_of(command):
    word = command["path"].split()[0]
    return "naos.1" if word in ("help", "version") else f"naos-{word}.1"


def rendered(page):
    done = subprocess.run(["mandoc", "-T", "utf8", MAN / page], stdout=subprocess.PIPE, check=True)
    return re.sub(r".\x08", "", done.stdout.decode())


@pytest.fixture
def table(naos):
    return naos.json("help")[0]


def options_of_table(options):
    return {(o["name"], o.get("letter"), o.get("argument")) for o in options}


def test_each_page_lists_exactly_the_options_of_its_commands(table):
    wanted = {"naos.1": options_of_table(table["global_options"])}
    for command in table["commands"]:
        wanted.setdefault(page_of(command), set()).update(options_of_table(command["options"]))
    for page, options in wanted.items():
        text = (MAN / page).read_text()
        listed = {(m["name"], m["letter"], m["argument"]) for m in OPTION.finditer(text)}
        assert listed == options, page
        assert len(re.findall(r"^\.It Fl", text, re.M)) == len(OPTION.findall(text)), f"{page}: an option in another form"


def test_each_command_is_named_in_its_page_and_has_an_example_there(table):
    for command in table["commands"]:
        text = rendered(page_of(command))
        head, _, examples = text.partition("EXAMPLES")
        assert f"naos {command['path']}" in head, command["path"]
        assert f"naos {command['path']}" in examples, f"{page_of(command)}: no example of {command['path']}"


def test_there_is_no_page_for_a_command_that_is_gone(table):
    known = {page_of(command) for command in table["commands"]} | {"naos.1"}
    assert {path.name for path in MAN.glob("naos*.1")} - known == set()


@pytest.mark.parametrize("page", sorted(path.name for path in MAN.glob("*.[1-8]")))
def test_page_is_well_formed(page):
    done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", MAN / page], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stdout


def test_references_to_other_pages_of_naos_lead_somewhere():
    for path in MAN.glob("*.[1-8]"):
        for name, section in re.findall(r"^\.Xr (naos[\w.-]*) (\d)", path.read_text(), re.M):
            assert (MAN / f"{name}.{section}").exists(), f"{path.name} refers to {name}({section})"


def test_documents_made_from_tables_are_current():
    done = subprocess.run(["/usr/bin/python3", SOURCE / "tools/generate.py", "--check"], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stdout

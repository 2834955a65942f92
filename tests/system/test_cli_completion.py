# SPDX-License-Identifier: Apache-2.0
"""Completion of the command line in bash."""
import subprocess

import pytest

from conftest import NAOS, SOURCE


def complete(*words):
    """What bash would offer for these words, the last of which stands at the cursor."""
    script = f'. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _naos; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-u", "-c", script, "bash", SOURCE / "install/naos.bash", NAOS, *words], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return [line for line in done.stdout.splitlines() if line]


def test_commands_and_nouns_once_each(naos):
    table = naos.json("help")[0]["commands"]
    assert sorted(complete("")) == sorted({command["path"].split()[0] for command in table})
    assert complete("con") == ["config"]


def test_verbs_of_a_noun():
    assert {"check", "show"} <= set(complete("config", ""))
    assert complete("config", "sh") == ["show"]
    assert complete("--json", "config", "sh") == ["show"]
    assert complete("--config", "help", "config", "sh") == ["show"]


def test_options_of_the_command_and_of_all():
    assert complete("help", "--wo") == ["--words"]
    assert complete("help", "--js") == ["--json"]
    assert complete("config", "show", "--wo") == []
    assert "--config" in complete("--")


@pytest.mark.parametrize("words", [("config", "show", "--config", ""), ("config", "check", ""), ("--config", "")])
def test_file_names_are_left_to_bash(words):
    assert complete(*words) == []

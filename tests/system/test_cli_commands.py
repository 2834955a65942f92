# SPDX-License-Identifier: Apache-2.0
"""The habits of the command line: help, refusals, exit status, JSON, a reader that goes away."""
import json
import os
import shlex
import subprocess

import pytest

from conftest import NAOS, SOURCE


@pytest.fixture
def table(naos):
    return naos.json("help")[0]


def test_every_command_has_help_with_a_usage_line_and_its_example(naos, table):
    assert len(table["commands"]) >= 4
    for command in table["commands"]:
        text = naos.ok(*command["path"].split(), "--help")
        assert text.startswith(f"Usage: naos {command['path']} [OPTION]...")
        assert command["example"] in text
        assert text == naos.ok("help", *command["path"].split())
        for option in command["options"]:
            assert f"--{option['name']}" in text


def simple_commands(example):
    """The naos command lines in an example, which may be a pipe."""
    lexer = shlex.shlex(example, posix=True, punctuation_chars="|<>;&")
    lexer.whitespace_split = True
    words = list(lexer)
    lines, current, skip = [], [], False
    for word in words:
        if word and set(word) <= set("|;&"):
            lines.append(current)
            current = []
        elif word and set(word) <= set("<>"):
            skip = True
        elif skip:
            skip = False
        else:
            current.append(word)
    lines.append(current)
    return [line[1:] for line in lines if line and line[0] == "naos"]


def test_every_example_is_accepted_by_the_table(table):
    common = {option["name"]: option for option in table["global_options"]}
    for command in table["commands"]:
        lines = simple_commands(command["example"])
        assert lines, command["example"]
        assert any(" ".join(line[: len(command["path"].split())]) == command["path"] for line in lines), command["example"]
        for line in lines:
            used = [c for c in table["commands"] if line[: len(c["path"].split())] == c["path"].split()]
            assert used, f"{command['path']}: no command in the example '{command['example']}'"
            names = dict(common, **{option["name"]: option for option in used[0]["options"]})
            letters = {option.get("letter"): option for option in names.values()}
            rest, operands = line[len(used[0]["path"].split()):], []
            while rest:
                word = rest.pop(0)
                if word == "--":
                    operands += rest
                    break
                if word.startswith("--"):
                    name, _, value = word[2:].partition("=")
                    assert name in names, f"{command['path']}: example uses --{name}"
                    if "argument" in names[name] and not value:
                        rest.pop(0)
                elif word.startswith("-") and word != "-":
                    assert word[1] in letters, f"{command['path']}: example uses {word}"
                    if "argument" in letters[word[1]] and len(word) == 2:
                        rest.pop(0)
                else:
                    operands.append(word)
            assert used[0]["min_operands"] <= len(operands) <= used[0]["max_operands"], command["example"]


def test_names_of_the_table_are_distinct_and_do_not_hide_a_common_option(table):
    common = table["global_options"]
    paths = [command["path"] for command in table["commands"]]
    assert len(paths) == len(set(paths))
    nouns = {path.split()[0] for path in paths if " " in path}
    assert not nouns & {path for path in paths if " " not in path}, "a word is both a command and a noun"
    for command in table["commands"]:
        for key in ("name", "letter"):
            used = [o[key] for o in command["options"] + common if o.get(key)]
            assert len(used) == len(set(used)), f"naos {command['path']}: an option's {key} is taken twice: {used}"
        assert not command["summary"].endswith("."), command["summary"]
        required = [w for w in command["operands"].split() if not w.startswith("[") and "..." not in w and "…" not in w]
        assert len(required) <= command["min_operands"] or "|" in command["operands"], command["path"]


@pytest.mark.parametrize("words, expected", [
    ([], "no command was given"),
    (["cofnig"], "did you mean 'naos config'?"),
    (["config"], "'naos config' needs a verb"),
    (["config", "chekc"], "did you mean 'naos config check'?"),
    (["show"], "'naos config show'"),
    (["wxyzwxyz"], "'naos help' lists the commands"),
    (["x" * 5000], "unknown command"),
    (["help", "cofnig"], "did you mean"),
    (["help", "--jsno"], "did you mean '--json'?"),
    (["help", "-q"], "unknown option '-q'"),
    (["-q", "help"], "unknown option '-q'"),
    (["help", "--config"], "option '--config' needs an argument"),
    (["help", "--words=3"], "option '--words' takes no argument"),
    (["help", "--ver"], None),
    (["config", "show", "extra"], "does not take 'extra'"),
])
def test_a_wrong_command_line_is_refused_in_one_line_with_status_2(naos, words, expected):
    if expected is None:  # an abbreviation that is unambiguous is GNU habit
        naos.ok(*words)
        return
    done = naos(*words)
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr and lines[0].startswith("naos: ")
    assert len(lines) == 1 or words[0] == "help" and "NAOS_E_USAGE" in lines[1]


def test_a_word_behind_two_dashes_is_an_operand(naos):
    assert "cannot open --json" in naos.fails(1, "config", "check", "--", "--json")


def test_common_options_stand_before_and_behind_the_command(naos):
    for words in (["--json", "version"], ["version", "--json"]):
        assert "version" in json.loads(naos.ok(*words))
    assert naos.ok("--version").startswith("naos ")
    assert naos.ok("--help").startswith("Usage: naos")


def test_with_json_an_error_is_one_object_on_standard_error(naos):
    naos.config.write_text("[engine]\nbackend = fast\n")
    assert json.loads(naos.fails(2, "config", "show", "--jso"))["level"] == "error"
    for words in (["config", "show"], ["config", "shwo"], ["config", "show", "--bad"]):
        done = naos("--json", *words)
        assert (done.returncode, done.stdout) == (2, "")
        error = json.loads(done.stderr)
        assert error["level"] == "error" and error["message"]
        assert error["error"]["exit_status"] == 2 and error["error"]["category"] == "usage"
        assert error["error"]["name"] in ("NAOS_E_CONFIG", "NAOS_E_USAGE") and error["error"]["remedy"]


def test_a_message_with_a_name_that_is_not_utf8_is_still_json(naos):
    done = naos("--json", "config", "check", b"/nowhere/\xff\xfe".decode("utf-8", "surrogateescape"), text=False)
    assert done.returncode == 1
    assert "\\xff\\xfe" in json.loads(done.stderr.decode("utf-8"))["message"]


def test_a_message_does_not_drive_the_terminal(naos):
    for words in (["a\033[31mb"], ["help", "-\033"], ["help", "--\033]0;x\007"], ["config", "check", "a\nb\033c"]):
        message = naos(*words).stderr
        assert message.endswith("\n") and not set(message) & {"\033", "\007"}, repr(message)


def test_the_engine_is_measured_beside_its_predictions(naos):
    done = naos("bench", "engine", "--json", "--size", "64KiB")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["rates"]["cpu"]["core_128_gb_s"] > 0 and report["rates"]["cpu"]["cores"] >= 1
    assert report["rates"]["gpu"] or report["rates"]["no_gpu"]
    assert {(row["algorithm"], row["by"]) for row in report["work"]} >= {("aes-128-gcm", "cpu"), ("aes-256-gcm", "cpu")}
    for row in report["work"]:
        assert row["bytes"] == 65536 and row["measured_ms"] > 0 and row["predicted_ms"] > 0
    for way in {(row["algorithm"], row["way"]) for row in report["work"]}:
        assert sum(row["chosen"] for row in report["work"] if (row["algorithm"], row["way"]) == way) == 1
    text = naos("bench", "engine", "--size", "4KiB").stdout
    assert "CPU: " in text and "GPU: " in text and "predicted" in text
    if not report["rates"]["gpu"]:
        assert "GPU: no CUDA device" in text or "plug-in" in text
    assert naos("bench", "engine", "--size", "0").returncode == 2
    assert naos("bench", "engine", "--size", "64GiB").returncode == 2


@pytest.mark.parametrize("sets", [0, 3000])  # output that fits stdio's buffer, and that does not
def test_a_reader_that_goes_away_is_no_error_and_a_full_disk_is(naos, sets):
    naos.config.write_text("".join(f"[fileset f{i}]\nmek = m\n" for i in range(sets)))
    read, write = os.pipe()
    os.close(read)
    done = naos("config", "show", stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
    with open("/dev/full", "w") as full:
        assert "cannot write to standard output" in naos.fails(1, "config", "show", stdout=full)


def run_probed(naos, code, shell):
    """Runs a shell line in which $0 is naos, with C code that runs in it as it ends and writes to $PROBE; returns what it wrote."""
    source, library, report = (naos.directory / f"probe.{end}" for end in ("c", "so", "txt"))
    source.write_text("#include <fcntl.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n#include <sys/resource.h>\n"
                      "__attribute__((destructor)) static void at_end(void)\n"
                      '{ FILE *out = fopen(getenv("PROBE"), "w"); ' + code + " fclose(out); }\n")
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", library, source], check=True)
    env = dict(naos.env, PROBE=str(report), ASAN_OPTIONS="verify_asan_link_order=0:disable_coredump=0")
    script = f'{shell}'.replace("$0", f'LD_PRELOAD="{library}" "{NAOS}"')
    done = subprocess.run(["sh", "-c", script], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    return done, report.read_text()


def test_closed_standard_descriptors_are_not_taken_by_other_files(naos):
    code = 'for (int i = 0; i < 3; i++) { char path[99], name[32]; sprintf(name, "/proc/self/fd/%d", i); ' \
           'ssize_t n = readlink(name, path, 98); path[n > 0 ? n : 0] = 0; fprintf(out, "%s\\n", path); }'
    for closed in ("0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"):
        done, report = run_probed(naos, code, f"$0 config show {closed}")
        assert done.returncode == (1 if "1>&-" in closed else 0), (closed, done)
        for number, target in enumerate(report.splitlines()):
            if f"{number}<&-" in closed or f"{number}>&-" in closed:
                assert target == "/dev/null", (closed, report)


def test_no_core_file_is_written(naos):
    code = 'struct rlimit l; getrlimit(RLIMIT_CORE, &l); fprintf(out, "%lu", (unsigned long)l.rlim_cur);'
    done, report = run_probed(naos, code, "ulimit -c unlimited; $0 help --words")
    assert (done.returncode, report) == (0, "0")


def test_config_show_names_the_line_of_each_value_and_can_be_read_again(naos):
    naos.config.write_text("[keyring]\nmax-keys = 7\n[fileset genomes]\nmek = chest\n")
    drop_in = naos.directory / "naos.conf.d"
    drop_in.mkdir()
    (drop_in / "20-site.conf").write_text("\n[keyring]\nmax-keys = 9\n")
    values = {(v["section"], v.get("name"), v["key"]): v for v in naos.json("config", "show")[0]["values"]}
    assert values["keyring", None, "max-keys"]["value"] == "9"
    assert values["keyring", None, "max-keys"]["origin"] == f"{drop_in}/20-site.conf:3"
    assert values["fileset", "genomes", "mek"]["origin"] == f"{naos.config}:4"
    assert values["engine", None, "backend"]["origin"] == "default"
    again = naos.directory / "again.conf"
    again.write_text(naos.ok("config", "show"))
    second = {(v["section"], v.get("name"), v["key"]): v["value"] for v in
              naos.json("--config", again, "config", "show")[0]["values"]}
    assert second == {key: v["value"] for key, v in values.items()}


def test_config_check_names_file_and_line_of_what_is_wrong(naos):
    for text, expected in (("[keyring]\nmax-key = 1\n", ":2: unknown key 'max-key'"),
                           ("[fileset a]\nid = 12\n", ":2: '12' is not a UUID"),
                           ("\n[keymanager]\nuri = pkcs11:token=a?pin-value=1234\n", ":3: a PIN stands in the uri")):
        naos.config.write_text(text)
        message = naos.fails(2, "config", "check")
        assert f"{naos.config}{expected}" in message
        assert "1234" not in message
    naos.config.write_text("[keymanager]\nuri = pkcs11:token=a?pin-value=1234&module-name=x\n")
    shown = naos.ok("config", "show")
    assert "1234" not in shown and "pin-value=(hidden)&module-name=x" in shown


def test_a_configuration_that_can_not_be_read_is_an_error(naos):
    naos.config.unlink()
    assert "cannot open" in naos.fails(1, "config", "show")
    naos.config.mkdir()
    naos.fails(1, "config", "show")


def test_drop_ins_that_can_not_be_listed_are_an_error(naos):
    (naos.directory / "naos.conf.d").symlink_to("naos.conf.d")
    assert "cannot read the drop-ins" in naos.fails(1, "config", "show")

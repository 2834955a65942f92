# SPDX-License-Identifier: Apache-2.0
"""Each lint finds what it is there for: a bad tree is shown to it."""
import subprocess
import sys

import pytest

from conftest import SOURCE

HEAD = "/* A file.  SPDX-License-Identifier: Apache-2.0 */\n"


def lint(root, check):
    done = subprocess.run([sys.executable, SOURCE / "tests/lint/lint.py", check, root], stdout=subprocess.PIPE, text=True)
    return done.returncode, done.stdout.splitlines()


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "lib/part").mkdir(parents=True)
    (tmp_path / "tests/lint").mkdir(parents=True)
    (tmp_path / "tests/lint/exceptions.txt").write_text("")
    (tmp_path / "tests/lint/README.md").write_text("# x\n")
    (tmp_path / "MAP.md").write_text("- `lib/`: x\n- `lib/part/`: x\n- `tests/`: x\n- `tests/lint/`: x\n")

    def write(text, name="lib/part/a.c"):
        (tmp_path / name).write_text(HEAD + text)
        return tmp_path
    return write


@pytest.mark.parametrize("check", ["calls", "secrets", "exceptions", "size", "text", "map"])
def test_a_clean_tree_passes(tree, check):
    root = tree("int f(void);\nint f(void)\n{\n\treturn 0; /* strcpy( and memcmp(naos_secret_data(x) in a comment */\n}\n")
    assert lint(root, check) == (0, [])


@pytest.mark.parametrize("call", ["strcpy(a, b)", "sprintf(a, b)", "system (a)", "popen(a, b)", "gets(a)", "strtok(a, b)", "alloca(3)",
                                  "mktemp(a)", "tmpnam(a)", "rand()"])
def test_banned_calls_are_found_and_can_be_excused(tree, call):
    root = tree(f"\n\tx = {call};\n")
    status, problems = lint(root, "calls")
    assert status == 1 and problems[0].startswith("lib/part/a.c:3: ")
    tree(f"\n\tx = {call}; /* lint-ok: a reason that can be read */\n")
    assert lint(root, "calls")[0] == 0
    status, problems = lint(root, "exceptions")
    assert status == 1 and "1 lint-ok comments" in problems[0]
    (root / "tests/lint/exceptions.txt").write_text("1 lib/part/a.c\n")
    assert lint(root, "exceptions")[0] == 0


def test_names_that_only_end_like_banned_ones_pass(tree):
    assert lint(tree("\n\tmy_strcpy(a); x->system(a); naos_rand(3);\n"), "calls")[0] == 0


@pytest.mark.parametrize("body", [
    "\tmemcpy(out, naos_secret_view(key), 32);\n",
    "\tif (memcmp(naos_secret_data(key), other,\n\t\t   32) == 0)\n\t\treturn;\n",
    "\tconst uint8_t *bytes = naos_secret_view(key);\n\tuse(bytes);\n\tmemcpy(out, bytes + 1, 31);\n",
    "\tconst char *pin = (const char *)naos_secret_view(key);\n\tprintf(\"%s\", pin);\n",
])
def test_secrets_in_careless_functions_are_found(tree, body):
    status, problems = lint(tree("void f(void)\n{\n" + body + "}\n"), "secrets")
    assert status == 1 and "of a secret" in problems[0]


def test_a_variable_of_another_function_is_not_taken_for_the_secret(tree):
    root = tree("void f(void)\n{\n\tbytes = naos_secret_view(key);\n\tuse(bytes);\n}\nvoid g(void)\n{\n\tmemcpy(a, bytes, 3);\n}\n")
    assert lint(root, "secrets")[0] == 0


@pytest.mark.parametrize("check, text", [
    ("size", "\n" * 700), ("size", "/* " + "x" * 150 + " */\n"), ("text", "a \n"), ("text", "/* TO" "DO */\n"),
    ("text", "/* see /ro" "ot/x */\n"), ("text", "/* see /wo" "rk/x */\n"),
])
def test_size_and_text_are_checked(tree, check, text):
    assert lint(tree(text), check)[0] == 1


def test_a_file_without_licence_line_is_found(tree):
    root = tree("")
    (root / "lib/part/a.c").write_text("int x;\n")
    assert lint(root, "text")[0] == 1


def test_the_map_names_every_folder_and_no_other(tree):
    root = tree("")
    (root / "lib/other").mkdir()
    (root / "lib/other/meson.build").write_text("\n")
    assert set(lint(root, "map")[1]) == {"MAP.md lacks a line '- `lib/other/`: …'", "lib/other/ has no README.md"}
    with open(root / "MAP.md", "a") as file:
        file.write("- `lib/other/`: x\n- `lib/gone/`: x\n")
    (root / "lib/other/README.md").write_text("# x\n")
    assert lint(root, "map")[1] == ["MAP.md names lib/gone/, which is not there"]

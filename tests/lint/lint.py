#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Rules of the house that a program can check: lint.py CHECK SOURCE-ROOT.  One CHECK per function `check_…` below.

An exception is a comment /* lint-ok: reason */ on the line; exceptions.txt says how many each file has, so that a new one
is seen in review.
"""
import pathlib
import re
import subprocess
import sys

MAX_LINES, MAX_COLUMNS, TAB = 700, 140, 4  # 130 columns are aimed at
BANNED = {
    "strcpy": "snprintf", "strcat": "snprintf", "sprintf": "snprintf", "vsprintf": "vsnprintf", "gets": "naos_io_read",
    "system": "posix_spawn", "popen": "posix_spawn", "strtok": "strsep", "alloca": "naos_autofree", "mktemp": "naos_io_temporary",
    "tmpnam": "naos_io_temporary", "tempnam": "naos_io_temporary", "rand": "RAND_bytes", "srand": "RAND_bytes",
    "random": "RAND_bytes", "drand48": "RAND_bytes",
}
SPILLS = ("memcpy", "memmove", "mempcpy", "memcmp", "bcmp", "strcmp", "strncmp", "strdup", "strndup", "printf", "fprintf", "dprintf",
          "snprintf", "asprintf", "puts", "fputs", "fwrite", "write", "pwrite", "naos_log", "naos_error_set", "naos_error_set_errno",
          "naos_hex_format", "json_string", "json_pack")
SECRET_HOLDERS = {"lib/base/secret.c", "lib/base/secret.h"}  # the type itself
SECRET_BYTES = re.compile(r"\bnaos_secret_(?:data|view)\s*\(")
SECRET_ALIAS = re.compile(r"\b(\w+)\s*=\s*(?:\([^()]*\)\s*)?naos_secret_(?:data|view)\s*\(")


def tracked(root):
    """Paths of the tree relative to root: what git knows and what is new, or all files where there is no git."""
    done = subprocess.run(["git", "-c", "safe.directory=*", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if done.returncode == 0:
        names = [name.decode("utf-8", "surrogateescape") for name in done.stdout.split(b"\0") if name]
    else:
        names = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
        names = [name for name in names if not re.match(r"(\.git|build[^/]*|quickstart\.d)/|.*__pycache__/", name)]
    return sorted(name for name in names if (root / name).is_file())


def sources(root, suffixes=(".c", ".h")):
    for name in tracked(root):
        if name.endswith(suffixes):
            yield name, (root / name).read_text()


def without_comments(text):
    """Comments and the inside of literals become blanks, so that positions and lines stay."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def arguments(code, opening):
    """The text between the parenthesis at `opening` and its partner."""
    depth = 0
    for at in range(opening, len(code)):
        depth += (code[at] == "(") - (code[at] == ")")
        if depth == 0:
            return code[opening + 1:at]
    return code[opening + 1:]


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def excused(text, line):
    return "lint-ok:" in text.splitlines()[line - 1]


def check_calls(root):
    """Calls that are easy to get wrong."""
    pattern = re.compile(r"(?<![\w.>])(" + "|".join(BANNED) + r")\s*\(")
    for name, text in sources(root):
        code = without_comments(text)
        for match in pattern.finditer(code):
            line = line_of(code, match.start())
            if not excused(text, line):
                yield f"{name}:{line}: {match[1]}() is banned: use {BANNED[match[1]]}"


def spilled(code):
    """Positions of calls whose arguments hold the bytes of a secret, directly or through a variable of the same function."""
    call = re.compile(r"(?<![\w.>])(" + "|".join(SPILLS) + r")\s*\(")
    functions = [m.start() for m in re.finditer(r"^\{", code, re.M)] + [len(code)]
    for begin, end in zip([0] + functions, functions):
        body = code[begin:end]
        aliases = {match[1]: match.start() for match in SECRET_ALIAS.finditer(body)}
        for match in call.finditer(body):
            given = arguments(body, match.end() - 1)
            used = [alias for alias, at in aliases.items() if at < match.start() and re.search(rf"\b{alias}\b", given)]
            if SECRET_BYTES.search(given) or used:
                yield begin + match.start(), match[1]


def check_secrets(root):
    """Bytes of a secret copied, compared or printed by functions that don't know what they hold."""
    for name, text in sources(root):
        if name in SECRET_HOLDERS:
            continue
        code = without_comments(text)
        for at, function in spilled(code):
            line = line_of(code, at)
            if not excused(text, line):
                yield f"{name}:{line}: {function}() of a secret: use the functions of base/secret.h"


def check_exceptions(root):
    """Each lint-ok comment is counted."""
    wanted = {}
    for line in (root / "tests/lint/exceptions.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            count, name = line.split()
            wanted[name] = int(count)
    found = {}
    for name, text in sources(root):
        reasons = re.findall(r"lint-ok:(.*)", text)
        if reasons:
            found[name] = len(reasons)
        if any(len(reason.strip(" */")) < 10 for reason in reasons):
            yield f"{name}: a lint-ok without a reason"
    for name in sorted(set(wanted) | set(found)):
        if wanted.get(name, 0) != found.get(name, 0):
            yield f"{name}: {found.get(name, 0)} lint-ok comments, tests/lint/exceptions.txt says {wanted.get(name, 0)}"


def check_size(root):
    """Files that hold two ideas, lines that don't fit."""
    for name, text in sources(root, (".c", ".h", ".py", ".cu", ".cuh")):
        lines = text.splitlines()
        if len(lines) > MAX_LINES:
            yield f"{name}: {len(lines)} lines, more than {MAX_LINES}"
        for number, line in enumerate(lines, 1):
            if len(line.expandtabs(TAB)) > MAX_COLUMNS and not name.endswith(".py"):  # tables of test cases may be wide
                yield f"{name}:{number}: {len(line.expandtabs(TAB))} columns, more than {MAX_COLUMNS}"


def check_text(root):
    """Licence lines, nothing left open, no path of one machine, no blanks at line ends."""
    machine = re.compile(r"(?<![\w./-])/(?:work|root|home/\w+)/(?!\.\.\.)")
    opened = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b")
    licensed = (".c", ".h", ".def", ".py", ".sh", ".cu", ".cuh", ".map")
    for name in tracked(root):
        if "/seeds/" in name or name.startswith("tests/data/") or "/results/" in name or "/golden/" in name:
            continue
        try:
            text = (root / name).read_text()
        except UnicodeDecodeError:
            continue
        if (name.endswith(licensed) or text.startswith("#!")) and "SPDX-License-Identifier: Apache-2.0" not in text[:2000]:
            yield f"{name}: no line SPDX-License-Identifier: Apache-2.0 in its head"
        for number, line in enumerate(text.splitlines(), 1):
            if machine.search(line):
                yield f"{name}:{number}: a path of one machine"
            if opened.search(line) and name.endswith(licensed + (".build", ".md")):
                yield f"{name}:{number}: something left open"
            if line != line.rstrip() and name.endswith(licensed + (".build", ".md")):
                yield f"{name}:{number}: blanks at the end of the line"


def folders(root):
    """Folders of the tree, except the data below them that one line of MAP.md covers."""
    found = {str(parent) for name in tracked(root) for parent in pathlib.PurePath(name).parents} - {"."}
    return sorted(name for name in found if not re.search(r"tests/fuzz/seeds/.|tests/data/.|/(results|golden)/?.*$", name))


def check_map(root):
    """MAP.md has a line for each folder, and no other; folders of code have a README."""
    listed = re.findall(r"^- `([^`]+)/`: \S.*$", (root / "MAP.md").read_text(), re.M)
    for name in sorted(set(listed)):
        if listed.count(name) > 1:
            yield f"MAP.md lists {name}/ twice"
    for name in folders(root):
        if name not in listed:
            yield f"MAP.md lacks a line '- `{name}/`: …'"
        built = re.match(r"(lib|cmd)/[^/]+$", name) and (root / name / "meson.build").is_file()
        if (built or re.match(r"(bench|tests|docs)/[^/]+$", name)) and not (root / name / "README.md").is_file():
            yield f"{name}/ has no README.md"
    for name in listed:
        if not (root / name).is_dir():
            yield f"MAP.md names {name}/, which is not there"


def main(check, root):
    problems = list(globals()["check_" + check](pathlib.Path(root).resolve()))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

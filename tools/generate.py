#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the documents that are made from tables of the code: generate.py [--check].

With --check nothing is written: exit status 1 if a document is not current.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
MDOC_DATE = "November 30, 2026"
MARK = "Made by tools/generate.py from {}: change that, then run it again."
STRING = re.compile(r'"((?:\\.|[^"\\])*)"')
EXIT_STATUS = {0: "done", 1: "failed", 2: "usage", 3: "denied by policy", 4: "integrity failure", 5: "key manager unavailable"}
CATEGORIES = {
    "usage": "The command, the call or the configuration is wrong",
    "system": "The operating system refused, or a resource is missing",
    "denied": "A policy denies it",
    "integrity": "Data was changed, damaged, or belongs to another key",
    "key": "The key manager is away, or a key can't be used",
}


def rows(path):
    """The arguments of each X(...) of a .def file, strings without their quotes."""
    text = re.sub(r"/\*.*?\*/", "", (ROOT / path).read_text(), flags=re.S)
    for match in re.finditer(r"^X\((.*)\)\s*$", text, re.M):
        strings, parts = [], []

        def keep(found):
            strings.append(found[1])
            return f"\0{len(strings) - 1}\0"
        for part in STRING.sub(keep, match[1]).split(","):
            found = re.findall(r"\0(\d+)\0", part)
            parts.append("".join(strings[int(i)] for i in found).replace('\\"', '"') if found else part.strip())
        yield parts


def roff(text):
    """Text that mdoc takes as it is."""
    text = text.replace("\\", "\\e").replace("\u2026", "...").replace("\u2192", "->")
    return "\\&" + text if text[:1] in ".'" else text


def mdoc(name, section, summary, source, body):
    return f""".\\" {MARK.format(source)}
.\\" SPDX-License-Identifier: Apache-2.0
.Dd {MDOC_DATE}
.Dt {name.upper()} {section}
.Os
.Sh NAME
.Nm {name}
.Nd {summary}
{body}"""


def errors_page():
    out = [""".Sh DESCRIPTION
Every message of
.Xr naos 1
that reports a failure ends with the name of its row in this table.
Functions of the library return the code.
.Pp
Exit status of the programs:
.Bl -tag -width 4n -compact"""]
    out += [f".It {status}\n{meaning}" for status, meaning in EXIT_STATUS.items()]
    out.append(".El")
    category = None
    for name, code, row_category, status, retry, sentence, remedy in rows("include/naos/error.def"):
        if row_category != category:
            if category:
                out.append(".El")
            category = row_category
            out.append(f".Sh {category.upper()}\n{CATEGORIES[category]}.\n.Bl -tag -width indent")
        again = "\nThe same call may succeed later." if retry == "1" else ""
        out.append(f".It Dv NAOS_E_{name} Pq code {code}, exit status {status}\n{roff(capital(sentence))}.\n.br\n"
                   f"Remedy: {roff(remedy)}.{again}")
    out.append(".El\n.Sh SEE ALSO\n.Xr naos 1 ,\n.Xr naos-doctor 1\n")
    return mdoc("naos-errors", 7, "errors of Naos, what they mean and what to do", "include/naos/error.def", "\n".join(out))


def capital(text):
    return text[:1].upper() + text[1:]


def troubleshooting():
    out = ["# When something fails\n", f"<!-- {MARK.format('include/naos/error.def')} -->\n",
           "A message of Naos says what failed, on which object, and why. Its second line says what to do and ends with a name: "
           "look it up here. With `--json` the name is in `error.name`. `naos doctor` looks at the machine as a whole.\n",
           "| exit status | meaning |\n|---|---|"]
    out += [f"| {status} | {meaning} |" for status, meaning in EXIT_STATUS.items()]
    category = None
    for name, code, row_category, status, retry, sentence, remedy in rows("include/naos/error.def"):
        if row_category != category:
            category = row_category
            out.append(f"\n## {CATEGORIES[category]}\n\n| name | what it means | what to do | exit status | try again? |\n"
                       "|---|---|---|---|---|")
        cells = (f"`NAOS_E_{name}`", sentence, remedy, status, "yes" if retry == "1" else "no")
        out.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(out) + "\n"


TYPES = {"string": "text", "path": "an absolute path", "size": "a size: a number and B, KiB, MiB, GiB or TiB",
         "duration": "a duration: a number and s, min, h, d or w", "count": "a whole number", "bool": "yes or no"}


def sections():
    """Section headings of the configuration, each with its rows (key, type, default, help)."""
    found = {}
    for section, named, key, kind, default, help_text in rows("lib/base/config_keys.def"):
        found.setdefault((section, named == "1"), []).append((key, kind, default, help_text))
    return found.items()


def config_page():
    out = [""".Sh DESCRIPTION
All programs of Naos read
.Pa /etc/naos/naos.conf
and then the files
.Pa /etc/naos/naos.conf.d/*.conf
in the order of their names.
A later value wins.
.Ev NAOS_CONFIG
or the option
.Fl -config
names another file; its drop-ins are in a folder with
.Pa .d
at the end of its name.
.Pp
The form is INI: sections in brackets, lines of the form
.Ql key = value ,
comments behind
.Ql \\&;
or
.Ql # .
An unknown section, key or value is an error with file and line.
Units are part of the value.
.Nm naos config show
says which values are in force and where each was set.
.Pp
The file holds no secret.
A PIN is in a file of its own that the address of the key manager names."""]
    for (section, named), keys in sections():
        heading = f"[{section} NAME]" if named else f"[{section}]"
        out.append(f".Sh {section.upper()}\nSection\n.Ql {heading} .\n.Bl -tag -width indent")
        for key, kind, default, help_text in keys:
            shown = f"Default:\n.Ql {roff(default)} ." if default else "No default."
            values = TYPES.get(kind) or "one of " + kind.replace("|", ", ")
            out.append(f".It Ic {key}\n{roff(capital(help_text))}.\nType: {values}.\n{shown}")
        out.append(".El")
    out.append(""".Sh FILES
.Bl -tag -width indent
.It Pa /etc/naos/naos.conf
the configuration
.It Pa /etc/naos/naos.conf.d/*.conf
drop-ins
.El
.Sh EXAMPLES
.Bd -literal -offset indent
[keymanager]
uri = pkcs11:token=site?module-name=softhsm2&pin-source=file:/etc/naos/pin

[fileset genomes]
id = 6f1f6f2c-7f65-4a5a-8f4e-3f2c3a5b7d10
.Ed
.Sh SEE ALSO
.Xr naos 1 ,
.Xr naos-config 1 ,
.Xr naos-doctor 1
""")
    return mdoc("naos.conf", 5, "configuration of Naos", "lib/base/config_keys.def", "\n".join(out).replace(
        ".Nm naos config show\n", ".Ql naos config show\n"))


def config_example():
    out = [f"; Configuration of Naos, see naos.conf(5).  {MARK.format('lib/base/config_keys.def')}",
           "; Every key is here with its default, switched off by the semicolon before it."]
    for (section, named), keys in sections():
        out.append(f"\n{';' if named else ''}[{section}{' NAME' if named else ''}]")
        for key, kind, default, help_text in keys:
            out.append(f"; {capital(help_text)} ({TYPES.get(kind) or kind.replace('|', ', ')})\n;{key} = {default}".rstrip())
    return "\n".join(out) + "\n"


def limits():
    out = ["# Limits\n", f"<!-- {MARK.format('the headers named below')} -->\n",
           "Every quantity that a user controls has a limit in one header. A limit is reached and exceeded by a test. What goes "
           "beyond one is refused with `NAOS_E_LIMIT` or `NAOS_E_USAGE`, never cut.\n",
           "| limit | value | what it bounds | header |\n|---|---|---|---|"]
    for path in sorted([*ROOT.glob("include/**/*.h"), *ROOT.glob("lib/**/*.h")]):
        for match in re.finditer(r"^#define (NAOS_\w*MAX_\w+) (.+?)(?:[ \t]*/\*[ \t]*(.*?)[ \t]*\*/)?$", path.read_text(), re.M):
            value = re.sub(r"\(size_t\)|\(uint64_t\)|\(uint32_t\)", "", match[2]).strip()
            words = match[1].removeprefix("NAOS_").lower().replace("_", " ")
            out.append(f"| `{match[1]}` | `{value}` | {match[3] or words} | `{path.relative_to(ROOT)}` |")
    return "\n".join(out) + "\n"


DOCUMENTS = {
    "docs/man/naos-errors.7": errors_page,
    "docs/man/naos.conf.5": config_page,
    "docs/troubleshooting.md": troubleshooting,
    "docs/limits.md": limits,
    "install/naos.conf": config_example,
}


def main(check):
    stale = []
    for name, make in DOCUMENTS.items():
        path, text = ROOT / name, make()
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text)
    for name in stale:
        print(f"{name}: {'not current, run tools/generate.py' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))

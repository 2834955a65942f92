#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Each rule left out of the library in turn: the harness must notice.  Usage: mutations.py BUILD-DIRECTORY [NAME]...

The changed copy of a file of lib/seal (mutations.txt) is linked before the library.  Tried in turn: scripts, two writers, attacks,
random sessions, the model.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
CHECKS = [["crash", "--only", part, "--limit", "8", "--rounds", "15"] for part in ("scripts", "writers", "attacks", "sessions")]
INCLUDES = ["-I" + str(SOURCE / name) for name in ("include", "lib", "tests/crash")]
COMMON = ["disk.c", "fail.c", "oracle.c", "ops.c", "check.c", "attack.c", "../unit/memory_store.c"]


def mutations():
    """(name, file, old text, new text) of each block."""
    for block in (SOURCE / "tests/crash/mutations.txt").read_text().split("\n== ")[1:]:
        head, _, body = block.partition("\n")
        old, _, new = body.strip("\n").partition("\n--\n")
        yield (*head.split(), old, new)


def compile_to(out, source, flags):
    subprocess.run(["cc", "-std=gnu17", "-O1", "-g", "-D_GNU_SOURCE", *INCLUDES, *flags, "-c", str(source), "-o", str(out)], check=True)
    return str(out)


class Bench:
    def __init__(self, build, scratch):
        self.build, self.scratch = build, scratch
        sanitize = os.environ.get("NAOS_SANITIZE", "none")
        self.flags = [] if sanitize == "none" else ["-fsanitize=" + sanitize]
        self.objects = {name: compile_to(scratch / (pathlib.Path(name).stem + ".o"), SOURCE / "tests/crash" / name, self.flags)
                        for name in COMMON + ["scenarios.c", "driver.c"]}

    def link(self, name, main, changed):
        out = self.scratch / name
        libraries = [str(self.build / f"lib/{part}/libnaos-{part}.a") for part in ("seal", "keys", "engine", "base")]
        subprocess.run(["cc", *self.flags, "-o", str(out), self.objects[main], *[self.objects[n] for n in COMMON], changed, *libraries,
                        "-lcmocka", "-lcrypto", "-linih", "-lIPSec_MB", "-lp11-kit", "-lsqlite3", "-ljansson", "-lpthread"], check=True)
        return str(out)

    def noticed(self, file, old, new):
        """Who noticed, and what it said; None if nobody did."""
        text = (SOURCE / "lib/seal" / file).read_text()
        if text.count(old) != 1:
            raise SystemExit(f"{file} has {text.count(old)} places that read {old!r}: mend this list")
        changed = self.scratch / file
        changed.write_text(text.replace(old, new))
        mutant = compile_to(self.scratch / "mutant.o", changed, self.flags)
        crash = self.link("crash", "scenarios.c", mutant)
        driver = self.link("driver", "driver.c", mutant)
        model = [sys.executable, str(SOURCE / "tests/crash/compare.py"), driver, "--rounds", "40"]
        for name, command in [(c[2], [crash, *c[1:]]) for c in CHECKS] + [("model", model)]:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
            if done.returncode != 0:
                return name, (done.stdout.strip().splitlines() or ["(no message)"])[0][:150]
        return None


def main(build, names):
    missed = 0
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(pathlib.Path(build), pathlib.Path(scratch))
        for name, file, old, new in mutations():
            if names and name not in names:
                continue
            found = bench.noticed(file, old, new)
            missed += not found
            print(f"{name:40} {found[0] + ': ' + found[1] if found else 'NOT NOTICED'}", flush=True)
    print("every mutation is noticed" if not missed else f"{missed} mutations are not noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

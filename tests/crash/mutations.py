#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Each rule left out of the library in turn: the harness must notice.  Usage: mutations.py BUILD-DIRECTORY [NAME]...

A mutation is (name, file of lib/seal, old text, new text): compiled from a changed copy and linked before the library.  The names of
the first ones are those of tests/model/check.py.  Tried in turn: scripts, sessions, two writers, attacks, then the model.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
MUTATIONS = [
    ("seal-without-scrub", "file.c", "if (rc == 0 && !file->state.clean)\n\t\trc = naos_file_recover", "if (rc == 0 && false)\n\t\trc = naos_file_recover"),
    ("newer-slot-kept", "recover.c", "!naos_entry_equal(&picked, newer)", "false"),
    ("open-state-not-flushed", "state.c", "int rc = naos_file_put_state(file, &next, err);\n\tif (rc == 0)\n\t\trc = naos_file_store_flush(file, err);\n\tif (rc == 0)\n\t\tfile->epoch",
     "int rc = naos_file_put_state(file, &next, err);\n\tif (rc == 0)\n\t\tfile->epoch"),
    ("open-state-not-written", "state.c", "int rc = naos_file_put_state(file, &next, err);\n\tif (rc == 0)\n\t\trc = naos_file_store_flush(file, err);\n\tif (rc == 0)\n\t\tfile->epoch",
     "int rc = 0;\n\tfile->state = next;\n\tif (rc == 0)\n\t\tfile->epoch"),
    ("durable-size-early", "write.c", "int rc = naos_file_store_flush(file, err);\n\tif (rc == 0)\n\t\trc = naos_file_give_back",
     "struct naos_state early = file->state;\n\tearly.size = early.durable_size = file->size;\n\tint rc = naos_file_put_state(file, &early, err);\n"
     "\tif (rc == 0)\n\t\trc = naos_file_store_flush(file, err);\n\tif (rc == 0)\n\t\trc = naos_file_give_back"),
    ("shrink-first", "resize.c", "int rc = naos_file_put_state(file, &next, err);\n\tif (rc == 0)\n\t\trc = naos_file_store_flush(file, err);\n\tif (rc == 0)\n\t\trc = cut_entries",
     "int rc = naos_file_store_resize(file, naos_layout_physical(size), err);\n\tif (rc == 0)\n\t\trc = naos_file_put_state(file, &next, err);\n\tif (rc == 0)\n\t\trc = cut_entries"),
    ("shrink-unflushed", "resize.c", "rc = naos_file_put(file, changes, count, err);\n\t\tif (rc == 0)\n\t\t\trc = naos_file_store_flush(file, err);",
     "rc = naos_file_put(file, changes, count, err);"),
    ("short-chunk-uncovered", "resize.c", "entry.seq && entry.length < end", "entry.seq && false"),
    ("no-tombstone", "resize.c", "(struct naos_change){ .chunk = chunk };", "(struct naos_change){ .chunk = chunk, .length = NAOS_CHUNK_BYTES };"),
    ("punch-data-first", "put.c", "if (step->trim)\n\t\t\tnaos_seen_put",
     "if (step->trim)\n\t\t\t(void)!file->store->ops->deallocate(file->store, naos_layout_data_offset(step->change->chunk), NAOS_CHUNK_BYTES, NULL);\n"
     "\t\tif (step->trim)\n\t\t\tnaos_seen_put"),
    ("map-bit-early", "put.c", "if (count)\n\t\trc = naos_file_put_entries",
     "rc = naos_file_put_map(file, 1, 0, &group, 1, err);\n\tif (rc == 0 && count)\n\t\trc = naos_file_put_entries"),
    ("hole-base-lost", "put.c", "(step->replace ? 2 : 1)", "1"),
    ("three-versions", "put.c", "ask ? naos_file_store_flush(file, err) : 0", "0"),
    ("no-flush-before-data", "put.c", "rc = naos_file_store_flush(file, err);\n\t\tif (rc == 0)\n\t\t\trc = write_data(file, batch, true", "rc = write_data(file, batch, true"),
    ("length-after-data", "put.c", "rc = reserve_length(file, batch, err);", "rc = 0;"),
    ("recovery-without-flush", "recover.c", "int rc = naos_file_store_flush(file, err);\n\tif (rc == 0)\n\t\trc = naos_file_read_state", "int rc = 0;\n\tif (rc == 0)\n\t\trc = naos_file_read_state"),
    ("recovery-ignores-lock", "file.c", "if (rc == NAOS_E_BUSY && shared) {", "if (rc == NAOS_E_BUSY)\n\t\trc = 0;\n\tif (rc == NAOS_E_BUSY && shared) {"),
    ("no-shared-flag", "file.c", "next.shared = true;", "next.shared = false;"),
    ("shared-sealed-unscrubbed", "file.c", "return file->state.shared ? naos_file_recover(file, err) : seal_alone(file, err);", "return seal_alone(file, err);"),
    ("dead-writer-trusted", "put.c", "step->dead = !opened;", "step->dead = false;"),
    ("stale-group-kept", "state.c", "if (rc == 0 && stale)", "if (rc == 0 && false)"),
    ("shared-rewrite", "put.c", " || file->state.shared || !mine;", ";"),
    ("no-sector-lock", "write.c", "return ops->lock(file->store, from, to - from, NAOS_LOCK_EXCLUSIVE, true, err);", "return 0 * (int)(to - from);"),
    # beyond the model's list
    ("sealed-fall-back", "entry.c", "older && newer->epoch > file->sealed_epoch", "older"),
    ("sealed-newer-entry", "entry.c", "if (file->state.clean && newer->epoch > file->sealed_epoch) {", "if (false) {"),
    ("old-state-slot-kept", "state.c", "rc = file->store->ops->write(file->store, empty", "rc = 0 * (int)sizeof(empty); if (false)\n\t\trc = file->store->ops->write(file->store, empty"),
    ("lone-open-state-accepted", "page0.c", "if (!only->clean)", "if (false)"),
    ("state-slots-one-apart", "page0.c", "> 3)", "> 1)"),
    ("border-of-a-gap-lost", "entry.c", "if (size > file->state.size) {", "if (size >= file->state.size) {"),
    ("cut-group-marked-filled", "map.c", "file->mode == NAOS_SEALED_SHARED ? forget_cut_groups(file, err) : 0", "false ? forget_cut_groups(file, err) : 0"),
    ("filled-group-extended-by-map", "resize.c", "mapped = mapped && !tags;", "(void)tags;"),
    ("hole-group-filled-under-one-sector-lock", "write.c", "if (wide.whole || (hole && !covered)) {", "if (wide.whole || (false && hole && !covered)) {"),
    ("data-left-below-holes", "recover.c", "rc = give_back(file, err);", "rc = 0 * give_back(file, err), rc = 0;"),
    ("recovery-keeps-entries-behind-the-end", "recover.c", "if (any && chunk >= chunks)", "if (false)"),
    ("recovery-keeps-the-length", "recover.c", "rc = naos_file_store_resize(file, naos_layout_physical(file->size), err);", "rc = 0;"),
]
CHECKS = [["crash", "--only", part, "--limit", "8", "--rounds", "60"] for part in ("scripts", "writers", "attacks", "sessions")]
INCLUDES = ["-I" + str(SOURCE / name) for name in ("include", "lib", "tests/crash")]
COMMON = ["disk.c", "fail.c", "oracle.c", "ops.c", "check.c", "attack.c", "../unit/memory_store.c"]


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
        for name, file, old, new in MUTATIONS:
            if names and name not in names:
                continue
            found = bench.noticed(file, old, new)
            missed += not found
            print(f"{name:40} {found[0] + ': ' + found[1] if found else 'NOT NOTICED'}", flush=True)
    print("every mutation is noticed" if not missed else f"{missed} mutations are not noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

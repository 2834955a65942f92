#!/usr/bin/env bash
# Builds crash_threads with ThreadSanitizer, library included, and runs it.  Usage: tsan.sh SOURCE [SECONDS]
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$1"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
flags=(-std=gnu17 -O1 -g -D_GNU_SOURCE -DNAOS_VERSION='"test"' -Iinclude -Ilib -Itests/crash -fsanitize=thread)
one_file=(entry file filekeys layout map page0 put read recover resize rewrap seen state store_posix tagsector verify write)
for source in lib/{base,engine}/*.c lib/keys/blob.c "${one_file[@]/#/lib/seal/}" tests/crash/{disk,fail}.c tests/unit/memory_store.c tests/crash/threads.c; do
	source=${source%.c}.c
	[[ $source = */ipsec_mb.c ]] && continue # its assembly is not watched: OpenSSL does the work here
	gcc "${flags[@]}" -c "$source" -o "$scratch/$(tr / _ <<<"$source").o"
done
gcc "${flags[@]}" -o "$scratch/threads" "$scratch"/*.o -lcmocka -lcrypto -linih -ljansson -lpthread
TMPDIR=$scratch TSAN_OPTIONS=halt_on_error=1 "$scratch/threads" --seconds "${2:-10}"

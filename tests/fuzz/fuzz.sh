#!/bin/sh
# Runs a libFuzzer target: fuzz.sh PROGRAM SEEDS, for $NAOS_FUZZ_SECONDS (5).  What it finds is kept beside the program, never in the source.
# SPDX-License-Identifier: Apache-2.0
set -eu
program=$1 seeds=$2 seconds=${NAOS_FUZZ_SECONDS:-5}
corpus=$program.corpus
mkdir -p "$corpus"
# libFuzzer's own status of a crash, 77, would read as "skipped"
exec "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -error_exitcode=1 -timeout_exitcode=1 \
	-artifact_prefix="$corpus.found-" \
	"$corpus" "$seeds"

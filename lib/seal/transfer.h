/* Whole files and trees from plain to sealed and back: what `naos seal` and `naos open` do.
 *
 * SOURCE becomes TARGET: a file a file, a directory a directory (which may exist: it is filled).  Nothing has its final name
 * before it is complete, verified and durable.  A target that is current is left alone: a sealed file of the file set, or an
 * opened one, with the size and the time of change of its source; so a run that was interrupted is completed by running it
 * again.  Other existing files are refused, or replaced with `force`.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_TRANSFER_H
#define NAOS_SEAL_TRANSFER_H

#include "seal/fileset.h"
#include "seal/tally.h"

struct naos_manifest_writer;

struct naos_transfer {
	bool sealing; /* else opening */
	bool force;
	unsigned jobs;
	unsigned shard_index, shard_count; /* 1 of 1: all */
	const char *source, *target;       /* "-": standard input (sealing) or output (opening) */
	struct naos_filesets *sets;
	const struct naos_fileset *set;         /* opening: NULL takes files of any set */
	struct naos_manifest_writer *manifest; /* sealing: gets an entry per file; may be NULL */
};

/* Failures of single files are reported to the tally and are not an error here: ask naos_tally_result.  An error is what made
 * the whole impossible. */
int naos_transfer_run(const struct naos_transfer *transfer, struct naos_tally *tally, struct naos_error *err) naos_must_check;

#endif

/* FITS files and trees of them to frames and back: what `naos fits seal`, `open`, `cutout` and `import-legacy` do.
 *
 * SOURCE becomes TARGET: a file a file, a directory a directory with the same names.  Nothing has its final name before it is
 * complete, verified and durable.  A target that is current is left alone, so that a run that was interrupted is completed by running it
 * again.  What is not of the kind that is looked for is left out with a notice.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FITS_TRANSFER_H
#define NAOS_FITS_TRANSFER_H

#include "fits/collection.h"
#include "fits/cutout.h"
#include "fits/tree.h"

enum naos_frame_verb { NAOS_FRAME_VERB_SEAL = 0, NAOS_FRAME_VERB_OPEN = 1, NAOS_FRAME_VERB_CUT = 2, NAOS_FRAME_VERB_IMPORT = 3 };

/* What the keys at hand opened. */
struct naos_frame_opened {
	enum naos_frame_level level;
	enum naos_frame_key_state states[2];
	struct naos_error reasons[2]; /* code 0: that key is right */
};
void naos_frame_opened_take(const struct naos_frame *frame, struct naos_frame_opened *ret);

/* One file that has its name now, or was left alone. */
struct naos_frame_done {
	const char *source, *target; /* as shown */
	const char *left_out;        /* why nothing was done: "current", or the word of the notice; else NULL */
	struct naos_uuid frame_id;   /* seal, import */
	struct naos_frame_opened opened; /* open, cut */
	struct naos_cut cut;             /* cut */
	struct naos_frame_statistics statistics; /* cut */
	uint64_t bytes;
	bool scaled; /* import: NAOS_LEGACY_SCALED */
};

struct naos_frame_transfer {
	enum naos_frame_verb verb;
	bool replace;   /* targets that exist and are not current */
	bool full_only; /* open: refuse a file that lacks header or data */
	unsigned jobs, shard_index, shard_count;
	const char *source, *target;
	struct naos_provider *provider;                  /* NULL: given keys only */
	const struct naos_secret *given[2];              /* import: keys of the old file */
	const struct naos_collection *collection;        /* seal, import; NULL: given keys */
	uint32_t segment_bytes;                          /* seal, import */
	unsigned version;                                /* of the format: seal, import */
	const struct naos_cut_request *request;          /* cut */
	void (*done)(void *context, const struct naos_frame_done *done); /* one at a time; may be NULL */
	void *context;
};

/* Failures of single files are reported to the tally and are not an error here; an error is what made the whole impossible. */
int naos_frame_transfer_run(const struct naos_frame_transfer *transfer, struct naos_tally *tally, struct naos_error *err) naos_must_check;

#endif

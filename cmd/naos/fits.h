/* What the verbs of `naos fits` share: keys, the run over files and trees, levels, the summary.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_CMD_FITS_H
#define NAOS_CMD_FITS_H

#include "fits/transfer.h"
#include "work.h"

#define NAOS_OPTION_COLLECTION { "collection", 'c', "NAME", "the collection whose MEKs wrap the keys of the frames" }
#define NAOS_OPTION_HEADER_KEY \
	{ "header-key", 0, "SOURCE", \
	  "header key in hexadecimal digits, instead of the key manager's: file:PATH, fd:NUMBER, systemd:NAME" }
#define NAOS_OPTION_DATA_KEY { "data-key", 0, "SOURCE", "data key in the same way" }
#define NAOS_OPTION_FORCE { "force", 0, NULL, "replace targets that exist and are not current" }
#define NAOS_OPTION_SEGMENT \
	{ "segment", 0, "SIZE", "bytes that are encrypted, read and checked together (64KiB to 16MiB; default 64KiB, larger from 4GiB on)" }

#define NAOS_OPTION_FORMAT { "format", 0, "NUMBER", "version of the format: 2 (default) for any file, 1 for one image" }

struct naos_fits {
	struct naos_work work;
	struct naos_provider *provider; /* NULL: given keys only */
	struct naos_secret *given[2];
	bool printed; /* a single file has told what became of it */
	int print_failure;
	struct naos_error print_error;
};

/* naos_work_start, keys given by hand, and the key manager where it is needed: without one, frames are opened with what was given. */
int naos_fits_start(struct naos_fits *fits, struct naos_invocation *invocation, const struct naos_work_plan *plan, bool manager,
		    struct naos_error *err) naos_must_check;
/* naos_work_end of a run whose own result is rc. */
int naos_fits_end(struct naos_fits *fits, int rc, struct naos_error *err) naos_must_check;
bool naos_fits_has_manager(const struct naos_invocation *invocation);

/* What --collection (found in *ret), or else the two keys given by hand, and --segment make of new frames. */
int naos_fits_describe_new(const struct naos_fits *fits, struct naos_collection *ret, struct naos_frame_transfer *transfer,
			   struct naos_error *err) naos_must_check;
/* Fills the rest of a transfer from SOURCE TARGET and the options, runs it and prints the summary: "sealed 12 files, …". */
int naos_fits_transfer(struct naos_fits *fits, struct naos_frame_transfer *transfer, const char *done,
		       struct naos_error *err) naos_must_check;
/* The summary of a run over more than one file; a single one has told already. */
int naos_fits_summary(struct naos_fits *fits, const char *done, struct naos_error *err) naos_must_check;
/* Prints one object; a failure is that of the run. */
void naos_fits_print(struct naos_fits *fits, json_t *value);

/* Adds level and what became of the two keys to an object. */
void naos_fits_add_level(json_t *value, const struct naos_frame_opened *opened);
/* Warns of keys that are not right. */
void naos_fits_tell_level(const char *path, const struct naos_frame_opened *opened);

#endif

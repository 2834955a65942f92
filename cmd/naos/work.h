/* What the commands that work on whole files share: options, keys, progress, messages per file, the audit record, the summary.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_CMD_WORK_H
#define NAOS_CMD_WORK_H

#include "admin.h"
#include "command.h"
#include "seal/fileset.h"
#include "seal/tally.h"

#define NAOS_OPTION_FILESET { "fileset", 'f', "NAME", "file set, as in the configuration (default: the only one there)" }
#define NAOS_OPTION_JOBS { "jobs", 'j', "NUMBER", "files worked on at once (default: the CPUs that this process may use)" }
#define NAOS_OPTION_SHARD { "shard", 0, "INDEX/COUNT", "work on this share of the files only, such as 3/16" }

#define NAOS_WORK_CODES 100 /* of error.def */
#define NAOS_WORK_FAILURES 64 /* records of failed files written at once */

struct naos_work {
	struct naos_invocation *invocation;
	const char *action;          /* "file.seal" */
	char object[1024];           /* what it is done to, for the record */
	char request[40];            /* ties the records of this run together */
	struct naos_filesets *sets;  /* NULL if the command needs no keys */
	const struct naos_fileset *set;
	unsigned jobs, shard_index, shard_count;
	bool single; /* one file: its failure is the result, not a line of its own */
	struct naos_progress *progress;
	struct naos_tally tally;
	struct timespec began;
	struct naos_error first;                    /* the failure of a single file */
	char *failed_paths[NAOS_WORK_FAILURES];     /* not recorded yet */
	int failed_codes[NAOS_WORK_FAILURES];
	size_t failed_count;
	bool told[NAOS_WORK_CODES]; /* kinds of failure whose remedy was given */
	bool audited;
	int audit_failure; /* code of the first record that could not be written */
};

/* Reads --jobs and --shard (where the command has them), opens the keys if asked for (with --fileset and --keys), writes the
 * first record, starts progress and tally, and lets SIGINT, SIGTERM and SIGHUP end the work cleanly.  `operands` are the
 * paths, for `single` and the record.  NAOS_E_AUDIT: it can't be recorded, so it is not done. */
struct naos_work_plan {
	const char *action; /* of the record, "file.seal"; NULL: nothing is recorded */
	const char *label;  /* of the progress bar */
	bool keys;                  /* needs the key manager */
	bool one_set;               /* needs exactly one file set: --fileset or the only one */
	char *const *operands;
	size_t operand_count;
	bool pair; /* the operands are SOURCE TARGET */
	const char *set; /* the file set, where an operand and not --fileset names it */
};
int naos_work_start(struct naos_work *work, struct naos_invocation *invocation, const struct naos_work_plan *plan,
		    struct naos_error *err) naos_must_check;

/* Writes a record of its own for one path, from any thread: "allowed" with what is about to be done to it.  NAOS_E_AUDIT: it can't
 * be recorded, so it must not be done. */
int naos_work_record(struct naos_work *work, const char *path, const char *what, struct naos_error *err) naos_must_check;

/* Ends the work whose own result is rc (with err): reports, writes the last record, frees.  Returns the command's result. */
int naos_work_end(struct naos_work *work, int rc, struct naos_error *err) naos_must_check;

/* Members that every summary has (files, bytes, current, failed, notices, seconds); NULL without memory. */
json_t *naos_work_summary(const struct naos_work *work);
/* "12 files, 3.4 GiB, 0.8 s; 3 were current; 1 failed" */
const char *naos_work_text(const struct naos_work *work, const char *current_word, char *text, size_t bytes);

#endif

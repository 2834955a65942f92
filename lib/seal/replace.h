/* New sealed files in the place of the files of a tree that others may be using: what migrating and rekeying share.
 *
 * A file is copied into a draft beside it, which is made durable and then exchanged with it; all names of a file are taken over
 * together.  At any moment a name leads to a whole file, the old one or the new one.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_REPLACE_H
#define NAOS_SEAL_REPLACE_H

#include "seal/copy.h"
#include "seal/fileset.h"
#include "seal/publish.h"

/* A file that is replaced. */
struct naos_replace_file {
	const char *path; /* raw; borrowed */
	char shown[1024];
	int fd; /* open until the new file has all names: locks and leases on it keep writers away */
	struct naos_replaced old;
};

struct naos_replace {
	void *context;
	const char *root;
	unsigned jobs, shard_index, shard_count;
	unsigned passes; /* how often files that are in use or change meanwhile are tried, with a pause in between */
	bool plain;      /* the old files are plain: opened for reading, their time of change must stay, and that of directories is kept */
	const char *skip; /* a directory below the root that is left out */
	struct naos_tally *tally;
	/* Whether there is nothing to do.  If there is, it may take a lock on file->fd: that is held to the end. */
	int (*look)(void *context, struct naos_replace_file *file, bool *ret_current, struct naos_error *err);
	/* Makes the new file in draft_fd, content and metadata.  NAOS_E_BUSY, NAOS_E_CHANGED: it is tried again in the next pass. */
	int (*fill)(void *context, struct naos_replace_file *file, struct naos_copy_buffer *buffer, int draft_fd, uint64_t *ret_bytes,
		    struct naos_error *err);
};

/* Failures of single files are reported to the tally.  An error is what made the whole impossible. */
int naos_replace_tree(const struct naos_replace *replace, struct naos_error *err) naos_must_check;

/* --- one file with all its names (replace_names.c) ------------------------------------------------------------------------ */

/* Puts the draft beside names[0] in the place of all names (below root_fd) of a file.  The old file and the draft are marked first, so
 * that a run that is killed between two names can be completed.  Needs extended attributes.  Takes the draft.  The times of the other
 * names' directories are kept if asked for. */
int naos_names_replace(int root_fd, const char *const *names, size_t count, const struct naos_replace_file *file,
		       struct naos_draft *draft, bool keep_directory_times, struct naos_error *err) naos_must_check;
/* Completes what a killed run began: the names that the old file still has.  *ret_resumed false: there is nothing to complete.
 * NAOS_E_CHANGED if the old file was written to since: then the two files are different ones. */
int naos_names_resume(int root_fd, const char *const *names, size_t count, const struct naos_replace_file *file, bool *ret_resumed,
		      struct naos_error *err) naos_must_check;

/* The mark of a new file whose run was killed when all its names were taken: whether there is one, and its end. */
bool naos_names_marked(int fd);
void naos_names_unmark(int root_fd, const char *name);

#endif

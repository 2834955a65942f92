/* Checking and mending the sealed files of a file set, which may be mounted and in use meanwhile.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_CHECK_TREE_H
#define NAOS_SEAL_CHECK_TREE_H

#include "seal/inspect.h"
#include "seal/sealed_tree.h"

/* Where repair puts files that hold nothing, below the root of the file set; nobody but its maker may enter it. */
#define NAOS_LOST_DIRECTORY ".naos-lost"

struct naos_check {
	struct naos_filesets *sets;        /* NULL: without any key, by structure only */
	const struct naos_fileset *set;    /* with keys: whose files they must be */
	struct naos_inspect_demand demand; /* without */
	struct naos_tally *tally;
	bool repair;      /* with keys only */
	int64_t settle_s; /* a file that holds nothing yet may still be in the making for so long; 0: nobody makes any */
	const char *root; /* the tree's */
	/* Called before each repair ("recover", "rebuild", "set-aside"), by any worker; what it refuses is not done. */
	int (*repairing)(void *context, const char *path, const char *what, struct naos_error *err);
	void *context;
};

/* The files visitor of a naos_sealed_tree whose context is a struct naos_check.  Every bad file is a failure of the tally; unsealed
 * files are noticed. */
void naos_check_files(void *context, struct naos_tree_file *files, size_t count);

/* Moves a file out of the tree into root/.naos-lost, under its path with '/' as "%2F".  Its content and what it is stay.
 * `below_root` and `shown` are the file's; fd is open on it: another file that has the name by now is left alone
 * (NAOS_E_CHANGED). */
int naos_lost_put(const char *root, int dir_fd, const char *name, const char *below_root, int fd, const char *shown,
		  struct naos_error *err) naos_must_check;

#endif

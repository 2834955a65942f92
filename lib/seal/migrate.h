/* Sealing a tree of plain files in place.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_MIGRATE_H
#define NAOS_SEAL_MIGRATE_H

#include "seal/replace.h"

struct naos_migration {
	struct naos_filesets *sets;
	const struct naos_fileset *set;
	struct naos_tally *tally;
	bool compare; /* read each sealed file back, with its wrapped key, before the plain one goes */
};

/* The visitors of a struct naos_replace with `plain`, whose context is a struct naos_migration.  Sealed files of the set are current;
 * those of another are refused. */
int naos_migrate_look(void *context, struct naos_replace_file *file, bool *ret_current, struct naos_error *err) naos_must_check;
int naos_migrate_fill(void *context, struct naos_replace_file *file, struct naos_copy_buffer *buffer, int draft_fd, uint64_t *ret_bytes,
		      struct naos_error *err) naos_must_check;

#endif

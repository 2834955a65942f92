/* Encrypting the data of sealed files anew, under fresh FEKs.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_REKEY_H
#define NAOS_SEAL_REKEY_H

#include "seal/replace.h"

struct naos_rekey {
	struct naos_filesets *sets;
	const struct naos_fileset *set;
	struct naos_tally *tally;
	uint64_t since_unix_ns; /* files that were rekeyed then or later are current */
};

/* The visitors of a struct naos_replace (not plain) whose context is a struct naos_rekey.  A file is rekeyed while no writer has it open
 * (else NAOS_E_BUSY), and its writers' lock is held until the new file has all its names.  The new one says when, in the attribute
 * user.naos.rekeyed. */
int naos_rekey_look(void *context, struct naos_replace_file *file, bool *ret_current, struct naos_error *err) naos_must_check;
int naos_rekey_fill(void *context, struct naos_replace_file *file, struct naos_copy_buffer *buffer, int draft_fd, uint64_t *ret_bytes,
		    struct naos_error *err) naos_must_check;

/* Nanoseconds since 1970, as all times here. */
uint64_t naos_rekey_now(void);

/* When the run that shall be completed began: noted with the directory of the tree (one note for each share) from the beginning of a
 * run to its successful end.  *ret_known false: there is none, or the file system keeps none. */
int naos_rekey_noted(const char *root, unsigned shard_index, unsigned shard_count, uint64_t *ret_unix_ns, bool *ret_known,
		     struct naos_error *err) naos_must_check;
/* unix_ns 0 removes the note.  *ret_kept false: the file system takes none. */
int naos_rekey_note(const char *root, unsigned shard_index, unsigned shard_count, uint64_t unix_ns, bool *ret_kept,
		    struct naos_error *err) naos_must_check;

#endif

/* Checkpoints (c2sp.org/tlog-checkpoint): origin, size and root hash of a log as a signed note.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_AUDIT_CHECKPOINT_H
#define NAOS_AUDIT_CHECKPOINT_H

#include "audit/merkle.h"
#include "audit/note.h"

struct naos_checkpoint {
	char origin[NAOS_NOTE_NAME_BYTES];
	uint64_t size; /* records */
	struct naos_hash root;
	char *note; /* the whole signed note, NUL-terminated */
	size_t note_bytes, text_bytes;
};

/* Signs; the note is all of a `checkpoint` file.  The caller clears it. */
int naos_checkpoint_make(const struct naos_signer *signer, uint64_t size, const struct naos_hash *root, struct naos_checkpoint *ret,
			 struct naos_error *err) naos_must_check;
/* Reads the form; no signature is checked.  `what` names it in messages. */
int naos_checkpoint_parse(const char *note, size_t bytes, const char *what, struct naos_checkpoint *ret,
			  struct naos_error *err) naos_must_check;
/* Parses and demands the verifier's signature and, for the log's own key, its name as origin. */
int naos_checkpoint_open(const char *note, size_t bytes, const char *what, const struct naos_verifier *verifier,
			 struct naos_checkpoint *ret, struct naos_error *err) naos_must_check;
int naos_checkpoint_read(int dir_fd, const char *path, const struct naos_verifier *verifier, struct naos_checkpoint *ret,
			 struct naos_error *err) naos_must_check;
/* A verifier key from a file of one line. */
int naos_verifier_read(int dir_fd, const char *path, struct naos_verifier *ret, struct naos_error *err) naos_must_check;

static inline void naos_checkpoint_clear(struct naos_checkpoint *checkpoint)
{
	naos_free_pointer(&checkpoint->note);
	checkpoint->note = NULL;
}
#define naos_autocheckpoint naos_cleanup(naos_checkpoint_clear)

#endif

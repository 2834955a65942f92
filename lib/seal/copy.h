/* The content of one file between a plain descriptor and a sealed file, either way.  Holes stay holes; memory is bounded.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_COPY_H
#define NAOS_SEAL_COPY_H

#include "seal/sealed_file.h"
#include "seal/tally.h"

/* A thread's buffer, made once and used for many files: fresh memory costs more than the cipher. */
struct naos_copy_buffer;
int naos_copy_buffer_create(struct naos_copy_buffer **ret, struct naos_error *err) naos_must_check;
/* Wipes what was plaintext; takes NULL, returns NULL. */
struct naos_copy_buffer *naos_copy_buffer_free(struct naos_copy_buffer *buffer);

/* Reads `from` from its current position to its end (a pipe), or from 0 to `bytes` (a file), into an empty sealed file.
 * `name` of the source is for messages.  *ret_bytes: the plaintext's size.  A file that turns out shorter is NAOS_E_CHANGED. */
int naos_copy_stream_in(struct naos_copy_buffer *buffer, int from, const char *name, struct naos_sealed_file *to,
			struct naos_tally *tally, uint64_t *ret_bytes, struct naos_error *err) naos_must_check;
int naos_copy_in(struct naos_copy_buffer *buffer, int from, const char *name, uint64_t bytes, struct naos_sealed_file *to,
		 struct naos_tally *tally, struct naos_error *err) naos_must_check;

/* Writes all of a sealed file to `to`: an empty regular file, or (stream) anything that takes bytes in order.  Nothing is
 * written before it was verified.  dense: it has no holes (naos_copy_is_dense), which spares looking for them. */
int naos_copy_out(struct naos_copy_buffer *buffer, struct naos_sealed_file *from, bool dense, int to, bool stream, const char *name,
		  struct naos_tally *tally, struct naos_error *err) naos_must_check;
/* All of one sealed file into another, empty one, without its plaintext leaving this process. */
int naos_copy_sealed(struct naos_copy_buffer *buffer, struct naos_sealed_file *from, struct naos_sealed_file *to,
		     struct naos_tally *tally, struct naos_error *err) naos_must_check;
/* NAOS_E_INTEGRITY unless the sealed file reads as the plain one does. */
int naos_copy_compare(struct naos_copy_buffer *buffer, int plain, const char *name, struct naos_sealed_file *sealed,
		      const struct naos_tally *tally, struct naos_error *err) naos_must_check;
/* `fd` is that of the sealed file below. */
bool naos_copy_is_dense(const struct naos_sealed_file *file, int fd);

#endif

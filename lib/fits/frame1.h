/* Frames of version 1: one message per part.  Data is verified as a whole when the frame is opened, and decrypted again where it is read.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FITS_FRAME1_H
#define NAOS_FITS_FRAME1_H

#include <sys/types.h>

#include "fits/container1.h"
#include "fits/frame_inside.h"

struct frame1;
struct frame1 *frame1_free(struct frame1 *one);

/* Reads and compares the container; fills frame->one, the manifest and the wrapped keys. */
int frame1_read_container(struct naos_frame *frame, struct naos_error *err) naos_must_check;
/* Opens a part with its key, which committed to be the right one: all of the header into memory, or all of the data once through.
 * NAOS_E_INTEGRITY: the part was changed. */
int frame1_prove(struct naos_frame *frame, enum naos_frame_part part, const struct naos_secret *key,
		 struct naos_error *err) naos_must_check;
/* Decrypts one step of the data, which must be the bytes that were verified. */
int frame1_open_step(struct naos_frame *frame, uint64_t index, uint8_t *text, size_t *ret_bytes, struct naos_error *err) naos_must_check;

/* Seals a file of that structure.  Called by naos_frame_seal_fd. */
int frame1_seal(int source_fd, const char *source_name, int target_fd, const char *target_name, const struct naos_fits_structure *structure,
		const struct naos_frame_new *what, struct naos_error *err) naos_must_check;

#endif

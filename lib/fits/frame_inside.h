/* Inside of an open frame.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FITS_FRAME_INSIDE_H
#define NAOS_FITS_FRAME_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "fits/frame.h"
#include "fits/framekeys.h"

#define NAOS_FRAME_KEPT_SEGMENTS 4u /* decrypted ones that small reads share */

/* One stretch of the result: bytes in memory, one byte over and over, or data of a unit. */
struct frame_piece {
	uint64_t offset, bytes; /* in the result */
	enum { PIECE_TEXT, PIECE_FILL, PIECE_DATA } kind;
	uint8_t fill;
	uint8_t *text;  /* owned */
	uint32_t hdu;
	bool header;
};

struct kept_segment {
	uint32_t hdu;
	uint64_t index, used_at;
	uint8_t *text; /* NULL: free */
	size_t bytes;
};

struct naos_frame {
	int fd;
	char *name;
	struct naos_frame_manifest manifest;
	struct naos_container container; /* of version 2 */
	struct frame1 *one;              /* of version 1 (frame1.h); NULL: it is of version 2 */
	struct naos_blob blobs[2];
	bool has_blob[2];
	bool slot_damaged[2]; /* its copy in the frame is, even where a spare one was found */
	struct naos_gcm_key *keys[2]; /* of version 2 */
	enum naos_frame_key_state states[2];
	struct naos_error reasons[2];
	enum naos_frame_level level;
	uint8_t **headers; /* decrypted, by unit; NULL without the header key */
	struct frame_piece *pieces;
	size_t piece_count, unit_count;
	struct naos_frame_place *places;
	uint64_t result_bytes;
	atomic_uint_fast64_t segments_read[2], bytes_read; /* for naos_frame_statistics */
	pthread_mutex_t lock; /* guards what follows */
	struct kept_segment kept[NAOS_FRAME_KEPT_SEGMENTS];
	uint64_t clock;
};

/* Bytes that must be there: NAOS_E_INTEGRITY if the file ends before. */
int frame_read_exact(const struct naos_frame *frame, void *buffer, size_t bytes, uint64_t offset, struct naos_error *err) naos_must_check;
/* Less than a block of zeros. */
int frame_check_zeros(const struct naos_frame *frame, uint64_t from, uint64_t to, struct naos_error *err) naos_must_check;

/* Decrypts one segment into text (its row's bytes).  NAOS_E_INTEGRITY; text is zeroed then. */
int frame_open_segment(struct naos_frame *frame, enum naos_frame_part part, uint32_t hdu, uint64_t index, uint8_t *text,
		       size_t *ret_bytes, struct naos_error *err) naos_must_check;
/* Makes the pieces of the result from level, headers and manifest. */
int frame_make_view(struct naos_frame *frame, struct naos_error *err) naos_must_check;
void frame_free_view(struct naos_frame *frame);

/* naos_frame_read_parallel with a number of threads. */
int frame_read_parallel(struct naos_frame *frame, void *buffer, size_t bytes, uint64_t offset, unsigned jobs, size_t *ret_bytes,
			struct naos_error *err) naos_must_check;
/* The header of a unit as the level of the frame shows it, for free(); *ret_bytes is a whole number of blocks.  NULL: no memory. */
uint8_t *frame_make_header(const struct naos_frame *frame, uint32_t hdu, uint64_t *ret_bytes);
/* What stands for data that is not to be had: blanks in a table of text, else zeros. */
uint8_t frame_fill_of(const struct naos_frame_hdu *unit);

static inline uint64_t frame_whole_blocks(uint64_t bytes)
{
	return (bytes + NAOS_FITS_BLOCK_BYTES - 1) / NAOS_FITS_BLOCK_BYTES * NAOS_FITS_BLOCK_BYTES;
}

#endif

/* The container of a frame of version 1 (docs/formats/frame-1.md): keywords in a primary header, the encrypted header among them, and a
 * table of one row with the encrypted data.  One description of its cards writes and compares them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FITS_CONTAINER1_H
#define NAOS_FITS_CONTAINER1_H

#include "fits/container.h"
#include "fits/structure.h"

#define NAOS_FRAME1_MAX_AXES 9u /* ORIG_NAn has eight letters */
#define NAOS_FRAME1_MAX_HEADER_BYTES ((uint64_t)16 << 20) /* of the one header of version 1, which is held as digits */
#define NAOS_FRAME1_SCALINGS 3u /* BZERO, BSCALE, BLANK */
#define NAOS_FRAME1_SCALING_BYTES 61u /* text of such a value, with its NUL */
#define NAOS_FRAME1_STEP_BYTES ((uint32_t)1 << 20) /* data is read and checked in steps of this */
#define NAOS_FRAME1_ASSOCIATED_BYTES 1024u /* room that all values of the associated data fit */
#define NAOS_FRAME1_START_BYTES (2u * NAOS_FITS_BLOCK_BYTES) /* all cards before ENCHDR lie here */

/* All that is told without a key and is not in the manifest. */
struct naos_container1 {
	int bitpix;
	unsigned axes;
	uint64_t size[NAOS_FRAME1_MAX_AXES];
	char scaling[NAOS_FRAME1_SCALINGS][NAOS_FRAME1_SCALING_BYTES]; /* as it stands in the header; empty: no such card */
	uint64_t header_bytes, data_bytes; /* data: all bytes behind the header, padding too */
	uint8_t nonces[2][NAOS_GCM_NONCE_BYTES]; /* of the header, of the data */
	uint8_t tags[2][NAOS_GCM_TAG_BYTES];
	bool damaged[2]; /* nonce, tag or encrypted bytes of the part are no hexadecimal digits as they are written */
	char *digits;    /* the encrypted header, 2 * header_bytes; owned */
	uint64_t data_offset, file_bytes; /* in the frame */
};
void naos_container1_free(struct naos_container1 *container);

/* Whether the first block is that of a frame of version 1. */
bool naos_container1_probe(const uint8_t block[static NAOS_FITS_BLOCK_BYTES]);

/* Fills the shape from a file's structure.  NAOS_E_UNSUPPORTED: more than one image, random groups, …: with the reason; NAOS_E_LIMIT. */
int naos_container1_describe(const struct naos_fits_structure *structure, const char *name, struct naos_container1 *ret,
			     struct naos_error *err) naos_must_check;
/* The manifest that a shape stands for: one unit, its cards rebuilt. Fills all but algorithm, ids and commitments, which stay. */
int naos_container1_manifest(const struct naos_container1 *container, struct naos_frame_manifest *manifest,
			     struct naos_error *err) naos_must_check;

/* Both headers, as they stand before the data; the caller frees *ret.  slots: wrapped keys (NAOS_FRAME_SLOT_BYTES each), or NULL. */
int naos_container1_encode(const struct naos_frame_manifest *manifest, struct naos_container1 *container,
			   const uint8_t *const slots[static 2], uint8_t **ret, size_t *ret_bytes, struct naos_error *err) naos_must_check;

/* Reads both headers of an open file by `read`, which gives exactly what is asked for or NAOS_E_INTEGRITY, and compares them with what
 * their own values make.  Fills the manifest too (the caller frees both).  slots_used tells which wrapped keys are there.
 * NAOS_E_FORMAT, NAOS_E_INTEGRITY. */
struct naos_container1_file {
	int (*read)(void *context, void *buffer, size_t bytes, uint64_t offset, struct naos_error *err);
	void *context;
};
int naos_container1_decode(const struct naos_container1_file *file, struct naos_container1 *ret, struct naos_frame_manifest *manifest,
			   uint8_t slots[static 2][NAOS_FRAME_SLOT_BYTES], bool slots_used[static 2], bool slots_damaged[static 2],
			   struct naos_error *err) naos_must_check;

/* Steps of so many bytes. */
static inline uint64_t naos_frame1_steps(uint64_t data_bytes)
{
	return (data_bytes + NAOS_FRAME1_STEP_BYTES - 1) / NAOS_FRAME1_STEP_BYTES;
}

/* Lower-case hexadecimal digits, exactly. */
bool naos_container1_hex(const char *digits, uint8_t *ret, size_t bytes);

/* What the tag of a part speaks for besides its bytes; returns the number of bytes. */
size_t naos_container1_associated(const struct naos_frame_manifest *manifest, const struct naos_container1 *container,
				  enum naos_frame_part part, uint8_t ret[static NAOS_FRAME1_ASSOCIATED_BYTES]);

#endif

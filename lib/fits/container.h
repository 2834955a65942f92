/* The container of a frame: a FITS file whose headers follow from the manifest, byte for byte (docs/formats/frame.md, section 2).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FITS_CONTAINER_H
#define NAOS_FITS_CONTAINER_H

#include "fits/manifest.h"
#include "keys/blob.h"

#define NAOS_FRAME_SLOT_BYTES 256u /* one wrapped key */
#define NAOS_FRAME_KEYS_BYTES (2u * NAOS_FRAME_SLOT_BYTES)
#define NAOS_FRAME_ROW_BYTES 57u
#define NAOS_FRAME_PROOF_HDU UINT32_MAX /* of the two segments without data that prove the manifest */

/* Where the parts of the container lie. */
struct naos_container {
	uint64_t manifest_offset, keys_offset; /* bytes in the file */
	uint64_t rows_offset, heap_offset;
	uint64_t rows, heap_bytes, file_bytes;
	uint64_t header_rows; /* rows of the part header, behind the two proofs */
	uint64_t *first_row[2]; /* of each unit, by part - 1 */
	uint64_t *first_byte[2]; /* in the heap */
	uint8_t *head;      /* blocks before the manifest's row */
	size_t head_bytes;
	uint8_t *middle;    /* the header of the table of segments */
	size_t middle_bytes;
};

/* Lays a container out for a manifest that is encoded. */
int naos_container_lay_out(const struct naos_frame_manifest *manifest, struct naos_container *ret,
			   struct naos_error *err) naos_must_check;
void naos_container_free(struct naos_container *container);

/* What the file's first blocks tell: the size of its manifest.  NAOS_E_FORMAT: it is no frame; *ret_version is that of another
 * version of the format, or 0. */
#define NAOS_FRAME_HEAD_BYTES (2u * NAOS_FITS_BLOCK_BYTES)
int naos_container_probe(const uint8_t head[static NAOS_FRAME_HEAD_BYTES], size_t *ret_manifest_bytes,
			 struct naos_error *err) naos_must_check;

/* One row of the table of segments.  Encode beside decode; decode checks that the row is exactly the one expected. */
struct naos_frame_row {
	enum naos_frame_part part;
	uint32_t hdu;
	uint64_t index;
	uint8_t nonce[NAOS_GCM_NONCE_BYTES];
	uint8_t tag[NAOS_GCM_TAG_BYTES];
	uint64_t bytes, offset; /* in the heap */
};
void naos_frame_row_encode(const struct naos_frame_row *row, uint8_t ret[static NAOS_FRAME_ROW_BYTES]);
/* expected: part, hdu, index, bytes and offset are given, nonce and tag are filled.  NAOS_E_INTEGRITY. */
int naos_frame_row_decode(const uint8_t raw[static NAOS_FRAME_ROW_BYTES], struct naos_frame_row *expected,
			  struct naos_error *err) naos_must_check;
/* The row of a segment, without nonce and tag, and where it stands in the table. */
void naos_container_row(const struct naos_frame_manifest *manifest, const struct naos_container *container,
			enum naos_frame_part part,
			uint32_t hdu, uint64_t index, struct naos_frame_row *ret, uint64_t *ret_number);

/* A wrapped key's slot; blob NULL: an empty one. */
void naos_frame_slot_encode(const struct naos_frame_manifest *manifest, enum naos_frame_part part, const struct naos_blob *blob,
			    uint8_t ret[static NAOS_FRAME_SLOT_BYTES]);
/* *ret_used false: it is empty.  NAOS_E_INTEGRITY: damaged. */
int naos_frame_slot_decode(const struct naos_frame_manifest *manifest, enum naos_frame_part part,
			   const uint8_t raw[static NAOS_FRAME_SLOT_BYTES],
			   struct naos_blob *ret, bool *ret_used, struct naos_error *err) naos_must_check;

#endif

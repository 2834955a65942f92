/* The manifest of a frame (docs/formats/frame.md, section 3): what a frame holds, as far as it is told without a key.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FITS_MANIFEST_H
#define NAOS_FITS_MANIFEST_H

#include <naos/frame.h>

#include "base/cursor.h"
#include "base/errors.h"
#include "base/uuid.h"
#include "engine/engine.h"
#include "fits/cards.h"

#define NAOS_FRAME_COMMIT_BYTES 32u
#define NAOS_FRAME_MAX_HDUS 100000u                    /* header-data units of one file */
#define NAOS_FRAME_MAX_MANIFEST_BYTES ((size_t)64 << 20) /* mostly structural cards of tables */
#define NAOS_FRAME_MIN_SEGMENT_BYTES ((uint32_t)64 << 10)
#define NAOS_FRAME_MAX_SEGMENT_BYTES ((uint32_t)16 << 20) /* what is encrypted and checked together */
#define NAOS_FRAME_MAX_BYTES ((uint64_t)1 << 50)         /* of the FITS file */
#define NAOS_FRAME_MAX_HEADER_BYTES ((uint64_t)256 << 20) /* of all headers of a file: they are held in memory */

/* One header-data unit, or what follows the last one (without a header and cards). */
struct naos_frame_hdu {
	uint64_t header_bytes, data_bytes;
	uint32_t cards;        /* structural cards, 80 bytes each, as they are in the header */
	const uint8_t *text;   /* borrowed from the encoded manifest */
};

struct naos_frame_manifest {
	uint32_t version; /* of the format: 2; 1: made from the keywords of such a frame (container1.h) */
	enum naos_algorithm algorithm;
	struct naos_uuid frame_id, collection_id;
	uint8_t commit[2][NAOS_FRAME_COMMIT_BYTES]; /* of the header key, of the data key */
	uint64_t file_bytes;
	uint32_t segment_bytes;
	uint32_t hdu_count;
	struct naos_frame_hdu *hdus;
	uint8_t *raw; /* the encoded manifest */
	size_t raw_bytes;
	uint8_t digest[32]; /* SHA-256 of raw */
};

/* Fills raw, raw_bytes and digest, and makes the cards of the units point into it. */
int naos_frame_manifest_encode(struct naos_frame_manifest *manifest, struct naos_error *err) naos_must_check;
/* Takes raw (malloc), also on failure.  NAOS_E_FORMAT with what is wrong. */
int naos_frame_manifest_decode(uint8_t *raw, size_t raw_bytes, struct naos_frame_manifest *ret,
			       struct naos_error *err) naos_must_check;
void naos_frame_manifest_free(struct naos_frame_manifest *manifest);

/* Segments of one part of a unit; 0 if it has no bytes there. */
static inline uint64_t naos_frame_segments(const struct naos_frame_manifest *manifest, enum naos_frame_part part, uint32_t hdu)
{
	const struct naos_frame_hdu *unit = &manifest->hdus[hdu];
	uint64_t bytes = part == NAOS_FRAME_HEADER ? unit->header_bytes : unit->data_bytes;
	return (bytes + manifest->segment_bytes - 1) / manifest->segment_bytes;
}

/* Where nothing else is asked for.  A part of an image costs whole segments, and 64 KiB cost no more to open than as a piece of a larger
 * segment; but a file has at most 65,536 of them, up to 4 MiB each, so that its table of them stays small. */
static inline uint32_t naos_frame_segment_bytes(uint64_t file_bytes)
{
	uint32_t bytes = NAOS_FRAME_MIN_SEGMENT_BYTES;
	while (bytes < (uint32_t)4 << 20 && file_bytes / bytes >= 65536)
		bytes *= 2;
	return bytes;
}

#endif

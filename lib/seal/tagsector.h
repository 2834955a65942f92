/* Tag sectors and map pages (docs/formats/sealed-file.md, sections 5 and 6).  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_TAGSECTOR_H
#define NAOS_SEAL_TAGSECTOR_H

#include "seal/filekeys.h"
#include "seal/layout.h"

#define NAOS_ENTRY_BYTES 40
#define NAOS_CHUNK_ASSOCIATED_BYTES 48

/* One version of a chunk.  seq 0: no version (all bytes zero).  Its slot is seq & 1. */
struct naos_entry {
	uint8_t nonce[NAOS_GCM_NONCE_BYTES]; /* random in holes too, so that no two entries are alike */
	uint8_t tag[NAOS_GCM_TAG_BYTES];     /* zero in holes */
	uint32_t epoch;
	uint32_t seq;
	uint32_t length; /* plaintext bytes, at most NAOS_CHUNK_BYTES; hole and 0: truncated away */
	bool hole;
};

struct naos_sector {
	struct naos_entry entries[NAOS_SECTOR_CHUNKS][2];
	bool absent; /* all bytes zero: nothing was written here */
};

/* sector: number of the sector (naos_layout_sector). */
int naos_sector_encode(struct naos_file_keys *keys, uint64_t sector, const struct naos_sector *in,
		       uint8_t out[static NAOS_SECTOR_BYTES], struct naos_error *err) naos_must_check;
/* NAOS_E_INTEGRITY, naming the sector and its first chunk, if it is not authentic for this place.  keys NULL: only its structure
 * is checked, for naos_sealed_inspect. */
int naos_sector_decode(struct naos_file_keys *keys, uint64_t sector, const uint8_t in[static NAOS_SECTOR_BYTES],
		       struct naos_sector *ret, struct naos_error *err) naos_must_check;

bool naos_entry_equal(const struct naos_entry *left, const struct naos_entry *right);
void naos_entry_associated(const struct naos_uuid *file_id, uint64_t chunk, const struct naos_entry *entry,
			   uint8_t ret[static NAOS_CHUNK_ASSOCIATED_BYTES]);
/* The newer and the older version of a pair; NULL where there is none. */
void naos_entry_sort(const struct naos_entry pair[static 2], const struct naos_entry **ret_newer, const struct naos_entry **ret_older);

#define NAOS_MAP_BYTES (NAOS_MAP_GROUPS / 8)

/* bits: one per group, bit i of byte i/8 for group 1 + map·31744 + i. */
int naos_map_encode(struct naos_file_keys *keys, uint64_t map, const uint8_t bits[static NAOS_MAP_BYTES],
		    uint8_t out[static NAOS_CHUNK_BYTES], struct naos_error *err) naos_must_check;
/* An all-zero page has no bits.  keys NULL: as above. */
int naos_map_decode(struct naos_file_keys *keys, uint64_t map, const uint8_t in[static NAOS_CHUNK_BYTES],
		    uint8_t ret_bits[static NAOS_MAP_BYTES], struct naos_error *err) naos_must_check;

#endif

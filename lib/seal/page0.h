/* Page 0 of a sealed file: static header, two state slots, four FEK slots (docs/formats/sealed-file.md, section 4).
 * Encode beside decode; authentication is separate from parsing, because the keys come out of what is parsed first.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_PAGE0_H
#define NAOS_SEAL_PAGE0_H

#include "keys/blob.h"
#include "seal/filekeys.h"
#include "seal/layout.h"

/* What never changes in the life of a file, [0, 512). */
struct naos_sealed_header {
	enum naos_algorithm algorithm;
	struct naos_uuid file_id;
	struct naos_uuid fileset_id;
	uint8_t commit[NAOS_COMMIT_BYTES];
};

void naos_header_encode(const struct naos_sealed_header *header, uint8_t out[static NAOS_SECTOR_BYTES]);
/* NAOS_E_FORMAT: not a sealed file, a version or algorithm that this reader does not know, reserved bytes not zero. */
int naos_header_decode(const uint8_t in[static NAOS_SECTOR_BYTES], struct naos_sealed_header *ret, struct naos_error *err) naos_must_check;

/* What changes: written alternately to slot A (odd seq) and slot B (even seq). */
struct naos_state {
	uint64_t seq;
	uint32_t epoch;
	uint32_t sealed_epoch;
	uint64_t size;
	uint64_t durable_size;
	uint32_t key_generation; /* FEK slots of a lower generation were removed */
	bool clean, sparse, shared;
};

int naos_state_encode(struct naos_file_keys *keys, const uint8_t header[static NAOS_SECTOR_BYTES], const struct naos_state *state,
		      uint8_t out[static NAOS_SECTOR_BYTES], struct naos_error *err) naos_must_check;
/* The valid state of page 0: authenticated, the newer of the two slots, with the rules of section 4.2 about the other one.
 * keys NULL: the same but for the authentication, for naos_sealed_inspect. */
int naos_state_pick(struct naos_file_keys *keys, const uint8_t page[static NAOS_CHUNK_BYTES], struct naos_state *ret,
		    struct naos_error *err) naos_must_check;
/* NAOS_E_INTEGRITY unless each slot is authentic or empty. */
int naos_state_check_slots(struct naos_file_keys *keys, const uint8_t page[static NAOS_CHUNK_BYTES],
			   struct naos_error *err) naos_must_check;
/* Byte offset in the file of the slot that seq belongs to. */
uint64_t naos_state_offset(uint64_t seq);

/* One place where the FEK is kept wrapped; also the value of the attribute user.naos.key. */
struct naos_fek_slot {
	bool used;
	uint32_t generation; /* ≥ 1, counts up with each change of the slots */
	struct naos_blob blob;
	uint8_t raw[NAOS_FEK_SLOT_BYTES]; /* as read or encoded */
};

int naos_fek_slot_encode(struct naos_file_keys *keys, const struct naos_uuid *file_id, struct naos_fek_slot *slot,
			 struct naos_error *err) naos_must_check; /* fills raw */
/* Parses without authentication; a checksum tells damage from a key that is not to be had.  An all-zero slot is unused.
 * NAOS_E_FORMAT otherwise if malformed or of another file. */
int naos_fek_slot_decode(const uint8_t in[static NAOS_FEK_SLOT_BYTES], const struct naos_uuid *file_id, struct naos_fek_slot *ret,
			 struct naos_error *err) naos_must_check;
/* NAOS_E_INTEGRITY if the slot is not of this file and FEK. */
int naos_fek_slot_verify(struct naos_file_keys *keys, const struct naos_fek_slot *slot, struct naos_error *err) naos_must_check;

/* A new file: until its page 0 is durable the attribute holds, behind the slot, a record of all that the first page 0 is made of
 * (section 4.4). */
#define NAOS_BIRTH_HEADER_BYTES 80u /* of the static header; the rest of it is zero */
#define NAOS_BIRTH_BYTES (NAOS_BIRTH_HEADER_BYTES + NAOS_MAC_BYTES)
#define NAOS_NEW_ATTRIBUTE_BYTES (NAOS_FEK_SLOT_BYTES + NAOS_BIRTH_BYTES) /* of user.naos.key */

/* The attribute of a new file: slot and record. */
int naos_birth_encode(struct naos_file_keys *keys, const struct naos_fek_slot *slot, const uint8_t header[static NAOS_SECTOR_BYTES],
		      uint8_t out[static NAOS_NEW_ATTRIBUTE_BYTES], struct naos_error *err) naos_must_check;
/* The static header that the record holds, as it stands in page 0. */
void naos_birth_header(const uint8_t attribute[static NAOS_NEW_ATTRIBUTE_BYTES], uint8_t out[static NAOS_SECTOR_BYTES]);
/* NAOS_E_INTEGRITY if slot and record are not of this FEK. */
int naos_birth_verify(struct naos_file_keys *keys, const uint8_t attribute[static NAOS_NEW_ATTRIBUTE_BYTES],
		      struct naos_error *err) naos_must_check;

static inline uint64_t naos_fek_slot_offset(unsigned index)
{
	return NAOS_FEK_OFFSET + (uint64_t)index * NAOS_FEK_SLOT_BYTES;
}

bool naos_is_zero(const void *data, size_t bytes);

#endif

/* Page 0: header, state slots, FEK slots.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/page0.h"

#include <string.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "base/cursor.h"

#define MAGIC "NAOSSF1\n"
#define FORMAT_VERSION 1
#define MAC_OFFSET (NAOS_SECTOR_BYTES - NAOS_MAC_BYTES)
#define FEK_MAC_OFFSET (NAOS_FEK_SLOT_BYTES - NAOS_MAC_BYTES)
#define FEK_CHECKSUM_BYTES 8
#define WRAPPED_FEK_BYTES (NAOS_FEK_BYTES + 32) /* the key and the digest that binds it */
#define FEK_CHECKSUM_OFFSET (FEK_MAC_OFFSET - FEK_CHECKSUM_BYTES)

enum { FLAG_CLEAN = 1, FLAG_SPARSE = 2, FLAG_SHARED = 4 };

bool naos_is_zero(const void *data, size_t bytes)
{
	const uint8_t *at = data;
	return bytes == 0 || (at[0] == 0 && memcmp(at, at + 1, bytes - 1) == 0);
}

void naos_header_encode(const struct naos_sealed_header *header, uint8_t out[static NAOS_SECTOR_BYTES])
{
	struct naos_cursor w = naos_cursor_writer(out, NAOS_SECTOR_BYTES);
	naos_cursor_put(&w, MAGIC, 8);
	naos_cursor_put_u32(&w, FORMAT_VERSION);
	naos_cursor_put_u32(&w, (uint32_t)header->algorithm);
	naos_cursor_put(&w, header->file_id.bytes, NAOS_UUID_BYTES);
	naos_cursor_put(&w, header->fileset_id.bytes, NAOS_UUID_BYTES);
	naos_cursor_put(&w, header->commit, NAOS_COMMIT_BYTES);
	naos_cursor_put_zero(&w, naos_cursor_left(&w));
}

int naos_header_decode(const uint8_t in[static NAOS_SECTOR_BYTES], struct naos_sealed_header *ret, struct naos_error *err)
{
	struct naos_cursor r = naos_cursor_reader(in, NAOS_SECTOR_BYTES);
	struct naos_sealed_header header;
	naos_cursor_get_match(&r, MAGIC, 8);
	if (!naos_cursor_ok(&r))
		return naos_error_set(err, NAOS_E_FORMAT, "not a sealed file (no NAOSSF1 at its start)");
	uint32_t version = naos_cursor_get_u32(&r);
	if (version != FORMAT_VERSION)
		return naos_error_set(err, NAOS_E_FORMAT, "sealed-file version %u is not known to this program (it knows %d)", version,
				      FORMAT_VERSION);
	header.algorithm = (enum naos_algorithm)naos_cursor_get_u32(&r);
	naos_cursor_get(&r, header.file_id.bytes, NAOS_UUID_BYTES);
	naos_cursor_get(&r, header.fileset_id.bytes, NAOS_UUID_BYTES);
	naos_cursor_get(&r, header.commit, NAOS_COMMIT_BYTES);
	naos_cursor_get_zero(&r, naos_cursor_left(&r));
	if (!naos_cursor_at_end(&r))
		return naos_error_set(err, NAOS_E_FORMAT, "the static header is damaged: reserved bytes are not zero");
	if (!naos_algorithm_name(header.algorithm))
		return naos_error_set(err, NAOS_E_FORMAT, "the static header names an unknown algorithm (%u)", (unsigned)header.algorithm);
	*ret = header;
	return 0;
}

uint64_t naos_state_offset(uint64_t seq)
{
	return NAOS_STATE_OFFSET + (seq & 1 ? 0 : NAOS_SECTOR_BYTES);
}

int naos_state_encode(struct naos_file_keys *keys, const uint8_t header[static NAOS_SECTOR_BYTES], const struct naos_state *state,
		      uint8_t out[static NAOS_SECTOR_BYTES], struct naos_error *err)
{
	struct naos_cursor w = naos_cursor_writer(out, NAOS_SECTOR_BYTES);
	naos_cursor_put_u64(&w, state->seq);
	naos_cursor_put_u32(&w, state->epoch);
	naos_cursor_put_u32(&w, state->sealed_epoch);
	naos_cursor_put_u64(&w, state->size);
	naos_cursor_put_u64(&w, state->durable_size);
	naos_cursor_put_u32(&w, (state->clean ? FLAG_CLEAN : 0u) | (state->sparse ? FLAG_SPARSE : 0u) | (state->shared ? FLAG_SHARED : 0u));
	naos_cursor_put_u32(&w, state->key_generation);
	naos_cursor_put_zero(&w, MAC_OFFSET - w.position);
	return naos_file_keys_mac(keys, NAOS_MAC_HEADER, header, NAOS_SECTOR_BYTES, out, MAC_OFFSET, out + MAC_OFFSET, err);
}

/* *ret_used false for an all-zero slot. */
static int state_decode(struct naos_file_keys *keys, const uint8_t *header, const uint8_t *in, bool odd, struct naos_state *ret,
			bool *ret_used, struct naos_error *err)
{
	char slot = odd ? 'A' : 'B';
	uint8_t mac[NAOS_MAC_BYTES];
	*ret_used = false;
	if (naos_is_zero(in, NAOS_SECTOR_BYTES))
		return 0;
	int rc = keys ? naos_file_keys_mac(keys, NAOS_MAC_HEADER, header, NAOS_SECTOR_BYTES, in, MAC_OFFSET, mac, err) : 0;
	if (rc != 0)
		return rc;
	if (keys && CRYPTO_memcmp(mac, in + MAC_OFFSET, NAOS_MAC_BYTES) != 0)
		return naos_error_set(err, NAOS_E_INTEGRITY, "page 0: state slot %c or the static header was changed", slot);
	struct naos_cursor r = naos_cursor_reader(in, MAC_OFFSET);
	ret->seq = naos_cursor_get_u64(&r);
	ret->epoch = naos_cursor_get_u32(&r);
	ret->sealed_epoch = naos_cursor_get_u32(&r);
	ret->size = naos_cursor_get_u64(&r);
	ret->durable_size = naos_cursor_get_u64(&r);
	uint32_t flags = naos_cursor_get_u32(&r);
	ret->key_generation = naos_cursor_get_u32(&r);
	naos_cursor_get_zero(&r, naos_cursor_left(&r));
	ret->clean = flags & FLAG_CLEAN;
	ret->sparse = flags & FLAG_SPARSE;
	ret->shared = flags & FLAG_SHARED;
	bool sound = naos_cursor_at_end(&r) && (flags & ~7u) == 0 && ret->seq > 0 && (ret->seq & 1) == odd && ret->durable_size <= ret->size &&
		     ret->size <= NAOS_MAX_FILE_BYTES && ret->sealed_epoch <= ret->epoch &&
		     (!ret->clean || (ret->epoch == ret->sealed_epoch && ret->size == ret->durable_size && !ret->shared));
	if (!sound)
		return naos_error_set(err, NAOS_E_INTEGRITY, "page 0: state slot %c %smakes no sense", slot,
				      keys ? "is authentic but " : "");
	*ret_used = true;
	return 0;
}

int naos_state_check_slots(struct naos_file_keys *keys, const uint8_t page[static NAOS_CHUNK_BYTES], struct naos_error *err)
{
	int rc = 0;
	for (unsigned i = 0; rc == 0 && i < 2; i++) {
		struct naos_state state;
		bool used;
		rc = state_decode(keys, page, page + NAOS_STATE_OFFSET + i * NAOS_SECTOR_BYTES, i == 0, &state, &used, err);
	}
	return rc;
}

int naos_state_pick(struct naos_file_keys *keys, const uint8_t page[static NAOS_CHUNK_BYTES], struct naos_state *ret,
		    struct naos_error *err)
{
	struct naos_state slots[2];
	bool used[2];
	for (unsigned i = 0; i < 2; i++) {
		int rc = state_decode(keys, page, page + NAOS_STATE_OFFSET + i * NAOS_SECTOR_BYTES, i == 0, &slots[i], &used[i], err);
		if (rc != 0)
			return rc;
	}
	if (!used[0] && !used[1])
		return naos_error_set(err, NAOS_E_INTEGRITY, "page 0: both state slots are empty");
	if (!used[0] || !used[1]) {
		/* the other slot is emptied when a file is sealed, and only then */
		const struct naos_state *only = &slots[used[0] ? 0 : 1];
		if (!only->clean)
			return naos_error_set(err, NAOS_E_INTEGRITY, "page 0: the newer state slot is missing");
		*ret = *only;
		return 0;
	}
	/* at most two states are written between two flushes: a power cut may keep the second and lose the first */
	unsigned newer = slots[1].seq > slots[0].seq;
	if (slots[newer].seq - slots[!newer].seq > 3)
		return naos_error_set(err, NAOS_E_INTEGRITY, "page 0: state slot %c was replaced by an older one", newer ? 'A' : 'B');
	*ret = slots[newer];
	return 0;
}

/* First bytes of SHA-256 over a label, the file id and the slot: needs no key, so it proves nothing against an attacker. */
static int fek_checksum(const struct naos_uuid *file_id, const uint8_t *slot, uint8_t ret[static 32], struct naos_error *err)
{
	uint8_t input[16 + NAOS_UUID_BYTES + FEK_CHECKSUM_OFFSET];
	struct naos_cursor w = naos_cursor_writer(input, sizeof(input));
	naos_cursor_put(&w, "naos/sf/1/slot\0", 16);
	naos_cursor_put(&w, file_id->bytes, NAOS_UUID_BYTES);
	naos_cursor_put(&w, slot, FEK_CHECKSUM_OFFSET);
	if (EVP_Digest(input, sizeof(input), ret, NULL, EVP_sha256(), NULL) != 1)
		return naos_error_set(err, NAOS_E_SYSTEM, "SHA-256 failed in the cryptographic library");
	return 0;
}

int naos_fek_slot_encode(struct naos_file_keys *keys, const struct naos_uuid *file_id, struct naos_fek_slot *slot, struct naos_error *err)
{
	uint8_t blob[NAOS_BLOB_MAX_BYTES], sum[32];
	struct naos_cursor b = naos_cursor_writer(blob, sizeof(blob)), w = naos_cursor_writer(slot->raw, FEK_MAC_OFFSET);
	naos_blob_encode(&slot->blob, &b);
	naos_cursor_put_u32(&w, slot->generation);
	naos_cursor_put_u16(&w, (uint16_t)b.position);
	naos_cursor_put_zero(&w, 2);
	naos_cursor_put(&w, blob, b.position);
	bool fits = w.position <= FEK_CHECKSUM_OFFSET && slot->blob.ciphertext_bytes == WRAPPED_FEK_BYTES;
	if (!naos_cursor_ok(&b) || !naos_cursor_ok(&w) || !fits)
		return naos_error_set(err, NAOS_E_LIMIT, "a wrapped key does not fit its slot");
	naos_cursor_put_zero(&w, FEK_CHECKSUM_OFFSET - w.position);
	int rc = fek_checksum(file_id, slot->raw, sum, err);
	if (rc != 0)
		return rc;
	naos_cursor_put(&w, sum, FEK_CHECKSUM_BYTES);
	return naos_file_keys_mac(keys, NAOS_MAC_HEADER, slot->raw, FEK_MAC_OFFSET, NULL, 0, slot->raw + FEK_MAC_OFFSET, err);
}

int naos_fek_slot_decode(const uint8_t in[static NAOS_FEK_SLOT_BYTES], const struct naos_uuid *file_id, struct naos_fek_slot *ret,
			 struct naos_error *err)
{
	struct naos_fek_slot slot = { .used = !naos_is_zero(in, NAOS_FEK_SLOT_BYTES) };
	uint8_t sum[32];
	memcpy(slot.raw, in, sizeof(slot.raw));
	if (!slot.used) {
		*ret = slot;
		return 0;
	}
	int rc = fek_checksum(file_id, in, sum, err);
	if (rc != 0)
		return rc;
	if (memcmp(sum, in + FEK_CHECKSUM_OFFSET, FEK_CHECKSUM_BYTES) != 0)
		return naos_error_set(err, NAOS_E_FORMAT, "a slot of the wrapped file key is damaged or of another file");
	struct naos_cursor r = naos_cursor_reader(in, FEK_CHECKSUM_OFFSET);
	slot.generation = naos_cursor_get_u32(&r);
	uint16_t blob_bytes = naos_cursor_get_u16(&r);
	naos_cursor_get_zero(&r, 2);
	const uint8_t *blob = naos_cursor_get_view(&r, blob_bytes);
	naos_cursor_get_zero(&r, naos_cursor_left(&r));
	if (!naos_cursor_at_end(&r) || slot.generation == 0)
		return naos_error_set(err, NAOS_E_FORMAT, "a slot of the wrapped file key is malformed");
	struct naos_cursor b = naos_cursor_reader(blob, blob_bytes);
	rc = naos_blob_decode(&b, &slot.blob, err);
	if (rc != 0)
		return rc;
	if (!naos_cursor_at_end(&b) || slot.blob.ciphertext_bytes != WRAPPED_FEK_BYTES)
		return naos_error_set(err, NAOS_E_FORMAT, "a slot of the wrapped file key holds a blob of another length");
	*ret = slot;
	return 0;
}

int naos_fek_slot_verify(struct naos_file_keys *keys, const struct naos_fek_slot *slot, struct naos_error *err)
{
	uint8_t mac[NAOS_MAC_BYTES];
	int rc = naos_file_keys_mac(keys, NAOS_MAC_HEADER, slot->raw, FEK_MAC_OFFSET, NULL, 0, mac, err);
	if (rc == 0 && CRYPTO_memcmp(mac, slot->raw + FEK_MAC_OFFSET, NAOS_MAC_BYTES) != 0)
		rc = naos_error_set(err, NAOS_E_INTEGRITY, "a slot of the wrapped file key was changed or is of another file");
	return rc;
}

/* --- the record of a new file -------------------------------------------------------------------------------------------- */

#define BIRTH_MAC_OFFSET (NAOS_NEW_ATTRIBUTE_BYTES - NAOS_MAC_BYTES)

static int birth_mac(struct naos_file_keys *keys, const uint8_t *attribute, uint8_t ret[static NAOS_MAC_BYTES], struct naos_error *err)
{
	static const char label[16] = "naos/sf/1/new";
	return naos_file_keys_mac(keys, NAOS_MAC_HEADER, label, sizeof(label), attribute, BIRTH_MAC_OFFSET, ret, err);
}

int naos_birth_encode(struct naos_file_keys *keys, const struct naos_fek_slot *slot, const uint8_t header[static NAOS_SECTOR_BYTES],
		      uint8_t out[static NAOS_NEW_ATTRIBUTE_BYTES], struct naos_error *err)
{
	memcpy(out, slot->raw, NAOS_FEK_SLOT_BYTES);
	memcpy(out + NAOS_FEK_SLOT_BYTES, header, NAOS_BIRTH_HEADER_BYTES);
	return birth_mac(keys, out, out + BIRTH_MAC_OFFSET, err);
}

void naos_birth_header(const uint8_t attribute[static NAOS_NEW_ATTRIBUTE_BYTES], uint8_t out[static NAOS_SECTOR_BYTES])
{
	memset(out, 0, NAOS_SECTOR_BYTES);
	memcpy(out, attribute + NAOS_FEK_SLOT_BYTES, NAOS_BIRTH_HEADER_BYTES);
}

int naos_birth_verify(struct naos_file_keys *keys, const uint8_t attribute[static NAOS_NEW_ATTRIBUTE_BYTES], struct naos_error *err)
{
	uint8_t mac[NAOS_MAC_BYTES];
	int rc = birth_mac(keys, attribute, mac, err);
	if (rc == 0 && CRYPTO_memcmp(mac, attribute + BIRTH_MAC_OFFSET, NAOS_MAC_BYTES) != 0)
		rc = naos_error_set(err, NAOS_E_INTEGRITY, "the record of a new file was changed or is of another file");
	return rc;
}

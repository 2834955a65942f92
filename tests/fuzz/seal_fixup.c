/* Making sealed files authentic.  SPDX-License-Identifier: Apache-2.0 */
#include "seal_fixup.h"

#include <string.h>
#include <openssl/evp.h>

#include "base/cursor.h"
#include "seal/page0.h"
#include "seal/tagsector.h"

#define MAC_TAIL_BYTES 16

static void must(int rc)
{
	if (rc != 0)
		abort();
}

struct naos_secret *fixup_fek(void)
{
	uint8_t bytes[NAOS_FEK_BYTES];
	struct naos_secret *fek;
	memset(bytes, FIXUP_FEK_BYTE, sizeof(bytes));
	must(naos_secret_take(bytes, sizeof(bytes), &fek, NULL));
	return fek;
}

struct naos_file_keys *fixup_keys(enum naos_algorithm algorithm, const struct naos_uuid *file_id, const struct naos_uuid *fileset_id)
{
	naos_autosecret struct naos_secret *fek = fixup_fek();
	struct naos_file_keys *keys;
	must(naos_file_keys_create(algorithm, file_id, fileset_id, fek, &keys, NULL));
	return keys;
}

void fixup_states(struct naos_file_keys *keys, uint8_t *page)
{
	for (unsigned i = 0; i < 2; i++) {
		uint8_t *slot = page + NAOS_STATE_OFFSET + i * NAOS_SECTOR_BYTES;
		size_t covered = NAOS_SECTOR_BYTES - NAOS_MAC_BYTES;
		if (!naos_is_zero(slot, NAOS_SECTOR_BYTES))
			must(naos_file_keys_mac(keys, NAOS_MAC_HEADER, page, NAOS_SECTOR_BYTES, slot, covered, slot + covered, NULL));
	}
}

void fixup_fek_slot(struct naos_file_keys *keys, const struct naos_uuid *file_id, uint8_t *slot)
{
	enum { COVERED = NAOS_FEK_SLOT_BYTES - NAOS_MAC_BYTES, CHECKED = COVERED - 8 };
	uint8_t input[16 + NAOS_UUID_BYTES + CHECKED], sum[32];
	memcpy(input, "naos/sf/1/slot\0", 16);
	memcpy(input + 16, file_id->bytes, NAOS_UUID_BYTES);
	memcpy(input + 16 + NAOS_UUID_BYTES, slot, CHECKED);
	must(EVP_Digest(input, sizeof(input), sum, NULL, EVP_sha256(), NULL) != 1);
	memcpy(slot + CHECKED, sum, COVERED - CHECKED);
	must(naos_file_keys_mac(keys, NAOS_MAC_HEADER, slot, COVERED, NULL, 0, slot + COVERED, NULL));
}

static void fixup_place(struct naos_file_keys *keys, uint64_t number, uint8_t *raw, size_t bytes)
{
	uint8_t place[8], mac[NAOS_MAC_BYTES];
	struct naos_cursor w = naos_cursor_writer(place, sizeof(place));
	naos_cursor_put_u64(&w, number);
	must(naos_file_keys_mac(keys, NAOS_MAC_TAGSECTOR, place, sizeof(place), raw, bytes - MAC_TAIL_BYTES, mac, NULL));
	memcpy(raw + bytes - MAC_TAIL_BYTES, mac, MAC_TAIL_BYTES);
}

void fixup_sector(struct naos_file_keys *keys, uint64_t sector, uint8_t *raw)
{
	fixup_place(keys, sector, raw, NAOS_SECTOR_BYTES);
}

void fixup_map(struct naos_file_keys *keys, uint64_t map, uint8_t *page)
{
	fixup_place(keys, (uint64_t)1 << 63 | map, page, NAOS_CHUNK_BYTES);
}

/* Seals what lies in a chunk's page as its newest version, whose entry keeps all but its tag. */
static void fixup_chunk(struct naos_file_keys *keys, const struct naos_uuid *file_id, uint64_t chunk, uint8_t *pair, uint8_t *data,
			size_t bytes)
{
	struct naos_entry entry[2];
	uint8_t associated[NAOS_CHUNK_ASSOCIATED_BYTES];
	struct naos_data_key *key;
	for (unsigned slot = 0; slot < 2; slot++) {
		struct naos_cursor r = naos_cursor_reader(pair + slot * NAOS_ENTRY_BYTES, NAOS_ENTRY_BYTES);
		naos_cursor_get(&r, entry[slot].nonce, sizeof(entry[slot].nonce));
		naos_cursor_get(&r, entry[slot].tag, sizeof(entry[slot].tag));
		entry[slot].epoch = naos_cursor_get_u32(&r);
		entry[slot].seq = naos_cursor_get_u32(&r);
		entry[slot].length = naos_cursor_get_u32(&r);
	}
	unsigned newer = entry[1].seq > entry[0].seq;
	uint64_t offset = naos_layout_data_offset(chunk);
	/* a hole has bit 31 set and is far too long */
	if (entry[newer].length == 0 || entry[newer].length > NAOS_CHUNK_BYTES || offset + entry[newer].length > bytes)
		return;
	naos_entry_associated(file_id, chunk, &entry[newer], associated);
	must(naos_file_keys_get(keys, chunk, entry[newer].seq, &key, NULL));
	must(naos_gcm_seal(naos_data_key_gcm(key), &(struct naos_gcm_message){
		.nonce = entry[newer].nonce, .associated = associated, .associated_bytes = sizeof(associated), .in = data + offset,
		.out = data + offset, .bytes = entry[newer].length, .tag = pair + newer * NAOS_ENTRY_BYTES + NAOS_GCM_NONCE_BYTES }, NULL));
	naos_file_keys_put(keys, key);
}

static void fixup_group(struct naos_file_keys *keys, const struct naos_uuid *file_id, uint64_t group, uint8_t *data, size_t bytes)
{
	uint64_t places = group ? NAOS_TAG_PAGE_SECTORS : NAOS_FIRST_GROUP_SECTORS;
	for (uint64_t place = 0; place < places; place++) {
		uint64_t sector = group * NAOS_TAG_PAGE_SECTORS + place, offset = naos_layout_sector_offset(sector);
		if (offset + NAOS_SECTOR_BYTES > bytes || naos_is_zero(data + offset, NAOS_SECTOR_BYTES))
			continue;
		for (unsigned i = 0; i < NAOS_SECTOR_CHUNKS; i++)
			fixup_chunk(keys, file_id, naos_layout_sector_chunk(sector) + i, data + offset + 2 * NAOS_ENTRY_BYTES * (size_t)i, data,
				    bytes);
		fixup_sector(keys, sector, data + offset);
	}
}

void fixup_file(uint8_t *data, size_t bytes)
{
	struct naos_sealed_header header;
	if (bytes < NAOS_CHUNK_BYTES || naos_header_decode(data, &header, NULL) != 0)
		return;
	struct naos_file_keys *keys = fixup_keys(header.algorithm, &header.file_id, &header.fileset_id);
	memcpy(header.commit, naos_file_keys_commit(keys), sizeof(header.commit));
	naos_header_encode(&header, data);
	fixup_states(keys, data);
	for (unsigned i = 0; i < NAOS_FEK_SLOTS; i++)
		if (!naos_is_zero(data + naos_fek_slot_offset(i), NAOS_FEK_SLOT_BYTES))
			fixup_fek_slot(keys, &header.file_id, data + naos_fek_slot_offset(i));
	for (uint64_t group = 0; naos_layout_tag_page(group) * NAOS_CHUNK_BYTES < bytes; group++)
		fixup_group(keys, &header.file_id, group, data, bytes);
	for (uint64_t map = 0; (naos_layout_map_page(map) + 1) * NAOS_CHUNK_BYTES <= bytes; map++)
		if (!naos_is_zero(data + naos_layout_map_page(map) * NAOS_CHUNK_BYTES, NAOS_CHUNK_BYTES))
			fixup_map(keys, map, data + naos_layout_map_page(map) * NAOS_CHUNK_BYTES);
	(void)naos_file_keys_free(keys);
}

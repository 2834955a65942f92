/* The records of a sealed file one by one: static header, state slots, FEK slot, tag sector, map page.  The first byte says which,
 * and whether the input is made authentic with the fixed key before it is decoded (as a malicious holder of the key would)
 * or stands as it is.  What decodes is encoded again to the same bytes.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "fuzz.h"
#include "seal/page0.h"
#include "seal/tagsector.h"
#include "seal_fixup.h"

enum record { HEADER, STATES, FEK_SLOT, SECTOR, MAP, RECORDS };
#define AUTHENTIC 0x80

static struct naos_file_keys *keys;
static struct naos_uuid file_id = { .bytes = "file" }, fileset_id = { .bytes = "fileset" };

static void expect_reason(int rc, const struct naos_error *err)
{
	if (rc != 0 && (err->code != rc || err->message[0] == 0 || naos_error_exit_status(rc) != 4))
		abort(); /* a refusal always says why, and that it is one of integrity */
}

static void expect_same(int rc, const void *again, const void *page, size_t bytes)
{
	if (rc != 0 || memcmp(again, page, bytes) != 0)
		abort();
}

static void header(const uint8_t *page)
{
	struct naos_sealed_header decoded;
	struct naos_error err = NAOS_ERROR_INIT;
	uint8_t again[NAOS_SECTOR_BYTES];
	int rc = naos_header_decode(page, &decoded, &err);
	expect_reason(rc, &err);
	if (rc != 0)
		return;
	naos_header_encode(&decoded, again);
	expect_same(0, again, page, sizeof(again));
}

static void states(const uint8_t *page)
{
	struct naos_state state;
	struct naos_error err = NAOS_ERROR_INIT;
	uint8_t again[NAOS_SECTOR_BYTES];
	int rc = naos_state_pick(keys, page, &state, &err);
	expect_reason(rc, &err);
	if (rc != 0)
		return;
	if (state.size > NAOS_MAX_FILE_BYTES || state.durable_size > state.size || state.sealed_epoch > state.epoch)
		abort();
	rc = naos_state_encode(keys, page, &state, again, &err);
	expect_same(rc, again, page + naos_state_offset(state.seq), sizeof(again));
}

static void fek_slot(const uint8_t *page)
{
	struct naos_fek_slot slot;
	struct naos_error err = NAOS_ERROR_INIT;
	uint8_t raw[NAOS_FEK_SLOT_BYTES];
	int rc = naos_fek_slot_decode(page, &file_id, &slot, &err);
	expect_reason(rc, &err);
	if (rc != 0 || !slot.used)
		return;
	rc = naos_fek_slot_verify(keys, &slot, &err);
	expect_reason(rc, &err);
	if (rc != 0)
		return;
	memcpy(raw, slot.raw, sizeof(raw));
	rc = naos_fek_slot_encode(keys, &file_id, &slot, &err);
	expect_same(rc, slot.raw, raw, sizeof(raw));
}

static void sector(const uint8_t *page)
{
	struct naos_sector decoded;
	struct naos_error err = NAOS_ERROR_INIT;
	uint8_t again[NAOS_SECTOR_BYTES];
	int rc = naos_sector_decode(keys, FIXUP_SECTOR, page, &decoded, &err);
	expect_reason(rc, &err);
	if (rc != 0 || decoded.absent)
		return;
	for (unsigned i = 0; i < NAOS_SECTOR_CHUNKS; i++) {
		const struct naos_entry *newer, *older;
		naos_entry_sort(decoded.entries[i], &newer, &older);
		if ((older && !newer) || (older && older->seq >= newer->seq) || (newer && newer->length > NAOS_CHUNK_BYTES))
			abort();
	}
	rc = naos_sector_encode(keys, FIXUP_SECTOR, &decoded, again, &err);
	expect_same(rc, again, page, sizeof(again));
}

static void map(const uint8_t *page)
{
	struct naos_error err = NAOS_ERROR_INIT;
	uint8_t bits[NAOS_MAP_BYTES], again[NAOS_CHUNK_BYTES];
	int rc = naos_map_decode(keys, FIXUP_MAP, page, bits, &err);
	expect_reason(rc, &err);
	if (rc != 0 || naos_is_zero(page, NAOS_CHUNK_BYTES))
		return;
	rc = naos_map_encode(keys, FIXUP_MAP, bits, again, &err);
	expect_same(rc, again, page, sizeof(again));
}

static void make_authentic(enum record record, uint8_t *page)
{
	static const size_t bytes[RECORDS] = { 1, NAOS_CHUNK_BYTES, NAOS_FEK_SLOT_BYTES, NAOS_SECTOR_BYTES, NAOS_CHUNK_BYTES };
	if (naos_is_zero(page, bytes[record]))
		return; /* empty, absent */
	if (record == STATES)
		fixup_states(keys, page);
	else if (record == FEK_SLOT)
		fixup_fek_slot(keys, &file_id, page);
	else if (record == SECTOR)
		fixup_sector(keys, FIXUP_SECTOR, page);
	else if (record == MAP)
		fixup_map(keys, FIXUP_MAP, page);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static void (*const decoders[RECORDS])(const uint8_t *page) = { header, states, fek_slot, sector, map };
	uint8_t page[NAOS_CHUNK_BYTES] = { 0 };
	if (bytes == 0)
		return 0;
	if (!keys)
		keys = fixup_keys(NAOS_AES_256_GCM, &file_id, &fileset_id);
	enum record record = (data[0] & ~AUTHENTIC) % RECORDS;
	memcpy(page, data + 1, bytes - 1 < sizeof(page) ? bytes - 1 : sizeof(page));
	if (data[0] & AUTHENTIC)
		make_authentic(record, page);
	decoders[record](page);
	return 0;
}

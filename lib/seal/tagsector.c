/* Tag sectors and map pages.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/tagsector.h"

#include <string.h>
#include <openssl/crypto.h>

#include "base/cursor.h"
#include "seal/page0.h"

#define HOLE_BIT 0x80000000u
#define SHORT_MAC_BYTES 16
#define SECTOR_MAC_OFFSET (NAOS_SECTOR_BYTES - SHORT_MAC_BYTES)
#define MAP_MAC_OFFSET (NAOS_CHUNK_BYTES - SHORT_MAC_BYTES)
#define MAP_NUMBER_BIT ((uint64_t)1 << 63) /* sets map pages apart from sectors under the same MAC key */

/* MAC over the number of the place and the bytes before the MAC. */
static int place_mac(struct naos_file_keys *keys, uint64_t number, const uint8_t *in, size_t bytes, uint8_t *ret, struct naos_error *err)
{
	uint8_t place[8];
	struct naos_cursor w = naos_cursor_writer(place, sizeof(place));
	naos_cursor_put_u64(&w, number);
	return naos_file_keys_mac(keys, NAOS_MAC_TAGSECTOR, place, sizeof(place), in, bytes, ret, err);
}

/* Whether the MAC that follows `bytes` of in is that of this place. */
static int is_authentic(struct naos_file_keys *keys, uint64_t number, const uint8_t *in, size_t bytes, bool *ret,
			struct naos_error *err)
{
	uint8_t mac[NAOS_MAC_BYTES];
	int rc = place_mac(keys, number, in, bytes, mac, err);
	if (rc == 0)
		*ret = CRYPTO_memcmp(mac, in + bytes, SHORT_MAC_BYTES) == 0;
	return rc;
}

static void entry_encode(const struct naos_entry *entry, struct naos_cursor *w)
{
	if (entry->seq == 0) {
		naos_cursor_put_zero(w, NAOS_ENTRY_BYTES);
		return;
	}
	naos_cursor_put(w, entry->nonce, sizeof(entry->nonce));
	naos_cursor_put(w, entry->tag, sizeof(entry->tag));
	naos_cursor_put_u32(w, entry->epoch);
	naos_cursor_put_u32(w, entry->seq);
	naos_cursor_put_u32(w, entry->length | (entry->hole ? HOLE_BIT : 0));
}

/* False if the fields contradict each other: the bytes are authentic, so this is another program's fault. */
static bool entry_decode(struct naos_cursor *r, unsigned slot, struct naos_entry *ret)
{
	naos_cursor_get(r, ret->nonce, sizeof(ret->nonce));
	naos_cursor_get(r, ret->tag, sizeof(ret->tag));
	ret->epoch = naos_cursor_get_u32(r);
	ret->seq = naos_cursor_get_u32(r);
	uint32_t length = naos_cursor_get_u32(r);
	ret->hole = length & HOLE_BIT;
	ret->length = length & ~HOLE_BIT;
	if (ret->seq == 0)
		return ret->epoch == 0 && length == 0 && naos_is_zero(ret->nonce, sizeof(ret->nonce)) &&
		       naos_is_zero(ret->tag, sizeof(ret->tag));
	return (ret->seq & 1) == slot && ret->epoch > 0 && ret->length <= NAOS_CHUNK_BYTES &&
	       (ret->hole ? naos_is_zero(ret->tag, sizeof(ret->tag)) : ret->length > 0);
}

int naos_sector_encode(struct naos_file_keys *keys, uint64_t sector, const struct naos_sector *in,
		       uint8_t out[static NAOS_SECTOR_BYTES], struct naos_error *err)
{
	struct naos_cursor w = naos_cursor_writer(out, NAOS_SECTOR_BYTES);
	uint8_t mac[NAOS_MAC_BYTES];
	for (unsigned i = 0; i < NAOS_SECTOR_CHUNKS; i++)
		for (unsigned slot = 0; slot < 2; slot++)
			entry_encode(&in->entries[i][slot], &w);
	naos_cursor_put_zero(&w, SECTOR_MAC_OFFSET - w.position);
	int rc = place_mac(keys, sector, out, SECTOR_MAC_OFFSET, mac, err);
	if (rc == 0)
		naos_cursor_put(&w, mac, SHORT_MAC_BYTES);
	return rc;
}

int naos_sector_decode(struct naos_file_keys *keys, uint64_t sector, const uint8_t in[static NAOS_SECTOR_BYTES],
		       struct naos_sector *ret, struct naos_error *err)
{
	bool sound = true;
	if (naos_is_zero(in, NAOS_SECTOR_BYTES)) {
		memset(ret, 0, sizeof(*ret));
		ret->absent = true;
		return 0;
	}
	int rc = keys ? is_authentic(keys, sector, in, SECTOR_MAC_OFFSET, &sound, err) : 0;
	if (rc != 0)
		return rc;
	struct naos_cursor r = naos_cursor_reader(in, SECTOR_MAC_OFFSET);
	ret->absent = false;
	for (unsigned i = 0; sound && i < NAOS_SECTOR_CHUNKS; i++)
		for (unsigned slot = 0; slot < 2; slot++)
			sound &= entry_decode(&r, slot, &ret->entries[i][slot]);
	if (sound)
		naos_cursor_get_zero(&r, naos_cursor_left(&r));
	if (sound && naos_cursor_at_end(&r))
		return 0;
	uint64_t first = naos_layout_sector_chunk(sector);
	return naos_error_set(err, NAOS_E_INTEGRITY, "tag sector %llu (chunks %llu to %llu) was changed or is of another place",
			      (unsigned long long)sector, (unsigned long long)first, (unsigned long long)(first + NAOS_SECTOR_CHUNKS - 1));
}

bool naos_entry_equal(const struct naos_entry *left, const struct naos_entry *right)
{
	return left->seq == right->seq && left->epoch == right->epoch && left->length == right->length && left->hole == right->hole &&
	       memcmp(left->nonce, right->nonce, sizeof(left->nonce)) == 0 && memcmp(left->tag, right->tag, sizeof(left->tag)) == 0;
}

void naos_entry_associated(const struct naos_uuid *file_id, uint64_t chunk, const struct naos_entry *entry,
			   uint8_t ret[static NAOS_CHUNK_ASSOCIATED_BYTES])
{
	struct naos_cursor w = naos_cursor_writer(ret, NAOS_CHUNK_ASSOCIATED_BYTES);
	naos_cursor_put(&w, "NSF1CHNK", 8);
	naos_cursor_put(&w, file_id->bytes, NAOS_UUID_BYTES);
	naos_cursor_put_u64(&w, chunk);
	naos_cursor_put_u32(&w, entry->epoch);
	naos_cursor_put_u32(&w, entry->seq);
	naos_cursor_put_u32(&w, entry->length);
	naos_cursor_put_u32(&w, 0);
}

void naos_entry_sort(const struct naos_entry pair[static 2], const struct naos_entry **ret_newer, const struct naos_entry **ret_older)
{
	unsigned newer = pair[1].seq > pair[0].seq;
	*ret_newer = pair[newer].seq ? &pair[newer] : NULL;
	*ret_older = pair[!newer].seq ? &pair[!newer] : NULL;
}

int naos_map_encode(struct naos_file_keys *keys, uint64_t map, const uint8_t bits[static NAOS_MAP_BYTES],
		    uint8_t out[static NAOS_CHUNK_BYTES], struct naos_error *err)
{
	struct naos_cursor w = naos_cursor_writer(out, NAOS_CHUNK_BYTES);
	uint8_t mac[NAOS_MAC_BYTES];
	naos_cursor_put(&w, bits, NAOS_MAP_BYTES);
	naos_cursor_put_zero(&w, MAP_MAC_OFFSET - w.position);
	int rc = place_mac(keys, MAP_NUMBER_BIT | map, out, MAP_MAC_OFFSET, mac, err);
	if (rc == 0)
		naos_cursor_put(&w, mac, SHORT_MAC_BYTES);
	return rc;
}

int naos_map_decode(struct naos_file_keys *keys, uint64_t map, const uint8_t in[static NAOS_CHUNK_BYTES],
		    uint8_t ret_bits[static NAOS_MAP_BYTES], struct naos_error *err)
{
	bool authentic = true;
	if (naos_is_zero(in, NAOS_CHUNK_BYTES)) {
		memset(ret_bits, 0, NAOS_MAP_BYTES);
		return 0;
	}
	int rc = keys ? is_authentic(keys, MAP_NUMBER_BIT | map, in, MAP_MAC_OFFSET, &authentic, err) : 0;
	if (rc != 0)
		return rc;
	if (!authentic ||
	    !naos_is_zero(in + NAOS_MAP_BYTES, MAP_MAC_OFFSET - NAOS_MAP_BYTES))
		return naos_error_set(err, NAOS_E_INTEGRITY, "map page %llu was changed or is of another place", (unsigned long long)map);
	memcpy(ret_bits, in, NAOS_MAP_BYTES);
	return 0;
}

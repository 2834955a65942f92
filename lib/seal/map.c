/* Map pages: which groups are wholly holes.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/file.h"

#include <string.h>

/* Bits of a map page into the cache, whose lock is held.  They are kept while nobody else can change them. */
static int load_map(struct naos_sealed_file *file, uint64_t map, struct naos_error *err)
{
	bool stable = file->mode == NAOS_SEALED_LOCAL || (file->mode == NAOS_SEALED_READ && file->state.clean);
	if (stable && file->map_cache.valid && file->map_cache.map == map)
		return 0;
	uint8_t page[NAOS_CHUNK_BYTES];
	size_t got;
	file->map_cache.valid = false;
	int rc = file->store->ops->read(file->store, page, sizeof(page), naos_layout_map_page(map) * NAOS_CHUNK_BYTES, &got, err);
	if (rc != 0)
		return rc;
	memset(page + got, 0, sizeof(page) - got);
	rc = naos_map_decode(file->keys, map, page, file->map_cache.bits, err);
	if (rc != 0)
		return naos_error_prefix(err, rc, "%s", file->store->name);
	file->map_cache.map = map;
	file->map_cache.valid = true;
	return 0;
}

static bool get_bit(const uint8_t *bits, uint64_t group)
{
	uint64_t index = (group - 1) % NAOS_MAP_GROUPS;
	return bits[index / 8] >> (index % 8) & 1;
}

static void put_bit(uint8_t *bits, uint64_t group, bool value)
{
	uint64_t index = (group - 1) % NAOS_MAP_GROUPS;
	uint8_t mask = (uint8_t)(1u << (index % 8));
	bits[index / 8] = (uint8_t)(value ? bits[index / 8] | mask : bits[index / 8] & ~mask);
}

int naos_file_in_map(struct naos_sealed_file *file, uint64_t group, bool *ret_hole, struct naos_error *err)
{
	*ret_hole = false;
	if (group == 0 || !file->maybe_sparse)
		return 0;
	(void)pthread_mutex_lock(&file->map_cache.lock);
	int rc = load_map(file, naos_layout_map_of(group), err);
	if (rc == 0)
		*ret_hole = get_bit(file->map_cache.bits, group);
	(void)pthread_mutex_unlock(&file->map_cache.lock);
	return rc;
}

/* One map page.  Groups outside it are ignored. */
static int put_map_page(struct naos_sealed_file *file, uint64_t map, uint64_t first_hole, uint64_t last_hole, const uint64_t *filled,
			size_t filled_count, struct naos_error *err)
{
	uint64_t offset = naos_layout_map_page(map) * NAOS_CHUNK_BYTES, low = 1 + map * NAOS_MAP_GROUPS, high = low + NAOS_MAP_GROUPS - 1;
	uint8_t old[NAOS_MAP_BYTES], page[NAOS_CHUNK_BYTES];
	(void)pthread_mutex_lock(&file->map_cache.lock);
	int rc = load_map(file, map, err);
	if (rc == 0) {
		uint8_t *bits = file->map_cache.bits;
		memcpy(old, bits, sizeof(old));
		for (uint64_t group = first_hole > low ? first_hole : low; group <= last_hole && group <= high; group++)
			put_bit(bits, group, true);
		for (size_t i = 0; i < filled_count; i++)
			if (filled[i] >= low && filled[i] <= high)
				put_bit(bits, filled[i], false);
		if (memcmp(old, bits, sizeof(old)) != 0) {
			rc = naos_map_encode(file->keys, map, bits, page, err);
			if (rc == 0)
				rc = file->store->ops->write(file->store, page, sizeof(page), offset, err);
		}
		file->map_cache.valid = rc == 0;
	}
	(void)pthread_mutex_unlock(&file->map_cache.lock);
	return rc;
}

int naos_file_put_map(struct naos_sealed_file *file, uint64_t first_hole, uint64_t last_hole, const uint64_t *filled,
		      size_t filled_count, struct naos_error *err)
{
	if (first_hole <= last_hole)
		file->maybe_sparse = true;
	for (uint64_t group = first_hole; group <= last_hole;) {
		uint64_t map = naos_layout_map_of(group);
		int rc = put_map_page(file, map, first_hole, last_hole, NULL, 0, err);
		if (rc != 0)
			return rc;
		group = 1 + (map + 1) * NAOS_MAP_GROUPS;
	}
	for (size_t i = 0; i < filled_count;) { /* ascending: one page write for all groups of a page */
		uint64_t map = naos_layout_map_of(filled[i]);
		size_t to = i;
		while (to < filled_count && naos_layout_map_of(filled[to]) == map)
			to++;
		int rc = put_map_page(file, map, 1, 0, filled + i, to - i, err);
		if (rc != 0)
			return rc;
		i = to;
	}
	return 0;
}

int naos_file_has_tags(struct naos_sealed_file *file, uint64_t group, bool *ret, struct naos_error *err)
{
	uint8_t page[NAOS_CHUNK_BYTES];
	size_t got;
	int rc = file->store->ops->read(file->store, page, sizeof(page), naos_layout_tag_page(group) * NAOS_CHUNK_BYTES, &got, err);
	if (rc == 0)
		*ret = !naos_is_zero(page, got);
	return rc;
}

/* A copy of a map page's bits. */
static int copy_bits(struct naos_sealed_file *file, uint64_t map, uint8_t bits[static NAOS_MAP_BYTES], struct naos_error *err)
{
	(void)pthread_mutex_lock(&file->map_cache.lock);
	int rc = load_map(file, map, err);
	if (rc == 0)
		memcpy(bits, file->map_cache.bits, NAOS_MAP_BYTES);
	(void)pthread_mutex_unlock(&file->map_cache.lock);
	return rc;
}

int naos_file_skip_map_holes(struct naos_sealed_file *file, uint64_t group, uint64_t limit, uint64_t *ret_group, struct naos_error *err)
{
	/* groups before the next allocated block have zero tag pages: only their bits need be looked at */
	uint64_t data_offset = 0, loaded = UINT64_MAX;
	uint8_t bits[NAOS_MAP_BYTES];
	for (; group < limit && file->maybe_sparse; group++) {
		uint64_t tag_offset = naos_layout_tag_page(group) * NAOS_CHUNK_BYTES;
		bool tags;
		if (naos_layout_map_of(group) != loaded) {
			loaded = naos_layout_map_of(group);
			int rc = copy_bits(file, loaded, bits, err);
			if (rc != 0)
				return rc;
		}
		if (!get_bit(bits, group))
			break;
		if (tag_offset + NAOS_CHUNK_BYTES > data_offset) {
			int rc = file->store->ops->next_data(file->store, tag_offset, &data_offset, err);
			if (rc != 0)
				return rc;
		}
		if (tag_offset + NAOS_CHUNK_BYTES > data_offset) {
			int rc = naos_file_has_tags(file, group, &tags, err);
			if (rc != 0)
				return rc;
			if (tags)
				break;
		}
	}
	*ret_group = group;
	return 0;
}

int naos_file_next_map(struct naos_sealed_file *file, uint64_t map, bool *ret_any, uint64_t *ret_map, struct naos_error *err)
{
	uint64_t end = naos_layout_physical(file->size), offset = naos_layout_map_page(map) * NAOS_CHUNK_BYTES;
	*ret_any = false;
	if (offset >= end)
		return 0;
	int rc = file->store->ops->next_data(file->store, offset, &offset, err);
	if (rc != 0 || offset >= end)
		return rc;
	*ret_map = naos_layout_map_from(offset / NAOS_CHUNK_BYTES);
	*ret_any = naos_layout_map_page(*ret_map) * NAOS_CHUNK_BYTES < end;
	return 0;
}

int naos_file_next_allocated(struct naos_sealed_file *file, uint64_t group, uint64_t limit, uint64_t *ret_group, struct naos_error *err)
{
	uint64_t offset;
	if (group > 0 && group < limit) {
		int rc = file->store->ops->next_data(file->store, naos_layout_tag_page(group) * NAOS_CHUNK_BYTES, &offset, err);
		if (rc != 0)
			return rc;
		uint64_t next = offset == UINT64_MAX ? limit : naos_layout_group_of_page(offset / NAOS_CHUNK_BYTES);
		group = next > group ? next : group;
	}
	*ret_group = group < limit ? group : limit;
	return 0;
}

/* Index of group in the ascending list, or of the first greater one. */
static size_t filled_index(const struct naos_sealed_file *file, uint64_t group)
{
	size_t low = 0, high = file->filled_count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (file->filled[middle] < group)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int naos_file_remember_filled(struct naos_sealed_file *file, uint64_t group, struct naos_error *err)
{
	size_t at = filled_index(file, group);
	if (at < file->filled_count && file->filled[at] == group)
		return 0;
	if (file->filled_count == file->filled_room) {
		size_t room = file->filled_room ? 2 * file->filled_room : 16;
		uint64_t *grown = reallocarray(file->filled, room, sizeof(*grown));
		if (!grown)
			return naos_error_set(err, NAOS_E_NOMEM, "no memory to write %s", file->store->name);
		file->filled = grown;
		file->filled_room = room;
	}
	memmove(&file->filled[at + 1], &file->filled[at], (file->filled_count - at) * sizeof(*file->filled));
	file->filled[at] = group;
	file->filled_count++;
	return 0;
}

/* Another writer may have cut a group off since, and made it a hole again. */
static int forget_cut_groups(struct naos_sealed_file *file, struct naos_error *err)
{
	size_t kept = 0;
	for (size_t i = 0; i < file->filled_count; i++) {
		bool tags;
		int rc = naos_file_has_tags(file, file->filled[i], &tags, err);
		if (rc != 0)
			return rc;
		if (tags)
			file->filled[kept++] = file->filled[i];
	}
	file->filled_count = kept;
	return 0;
}

int naos_file_put_filled(struct naos_sealed_file *file, struct naos_error *err)
{
	int rc = file->mode == NAOS_SEALED_SHARED ? forget_cut_groups(file, err) : 0;
	if (rc == 0)
		rc = naos_file_put_map(file, 1, 0, file->filled, file->filled_count, err);
	if (rc == 0)
		file->filled_count = 0;
	return rc;
}

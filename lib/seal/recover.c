/* Recovery of a file whose last writer did not seal it: rule 14.  Run again from any crash it gives the same file.
 * SPDX-License-Identifier: Apache-2.0 */
#include "seal/file.h"

#include <string.h>

/* What recovery changes in one group. */
struct group_fix {
	uint64_t chunks[NAOS_GROUP_CHUNKS];
	struct naos_entry entries[NAOS_GROUP_CHUNKS][2];
	size_t count;
	bool has_entries;
};

static void add_fix(struct group_fix *fix, uint64_t chunk, const struct naos_entry *keep)
{
	fix->chunks[fix->count] = chunk;
	memset(fix->entries[fix->count], 0, sizeof(fix->entries[0]));
	if (keep)
		fix->entries[fix->count][keep->seq & 1] = *keep;
	fix->count++;
}

/* A chunk below the size: a newer version that lost to the older one is cleared.  What does not open at all stays as it is
 * and is refused when it is read. */
static int look_at_chunk(struct naos_sealed_file *file, struct naos_group_view *view, uint64_t chunk, struct naos_entry *pair,
			 struct group_fix *fix, struct naos_error *err)
{
	const struct naos_entry *newer, *older;
	struct naos_entry picked, before[2] = { pair[0], pair[1] };
	bool present;
	naos_entry_sort(before, &newer, &older);
	if (newer->epoch <= file->sealed_epoch)
		return 0;
	int rc = naos_file_pick(file, view, chunk, file->size, &picked, &present, NULL, err);
	if (rc == NAOS_E_INTEGRITY)
		return 0;
	if (rc == 0 && !naos_entry_equal(&picked, newer))
		add_fix(fix, chunk, &picked);
	return rc;
}

static int look_at_group(struct naos_sealed_file *file, struct naos_group_view *view, uint64_t group, uint64_t chunks,
			 struct group_fix *fix, struct naos_error *err)
{
	uint64_t absent[NAOS_GROUP_CHUNKS];
	size_t absent_count = 0;
	*fix = (struct group_fix){ .count = 0 };
	for (uint64_t chunk = naos_layout_first(group); chunk < naos_layout_first(group + 1); chunk++) {
		struct naos_sector *sector;
		int rc = naos_file_sector(file, view, chunk, &sector, err);
		if (rc != 0)
			return rc;
		struct naos_entry *pair = naos_sector_pair(sector, chunk);
		bool any = pair[0].seq || pair[1].seq;
		fix->has_entries |= any && chunk < chunks;
		if (any && chunk >= chunks)
			add_fix(fix, chunk, NULL);
		else if (any)
			rc = look_at_chunk(file, view, chunk, pair, fix, err);
		else if (sector->absent && chunk < chunks)
			absent[absent_count++] = chunk;
		if (rc != 0)
			return rc;
	}
	/* a group that is partly filled: no zero sector may stay */
	for (size_t i = 0; fix->has_entries && i < absent_count; i++) {
		struct naos_entry hole;
		int rc = naos_file_hole_entry(file, 1, naos_chunk_room(absent[i], file->size), &hole, err);
		if (rc != 0)
			return rc;
		add_fix(fix, absent[i], &hole);
	}
	return 0;
}

static void sort_fix(struct group_fix *fix)
{
	for (size_t i = 1; i < fix->count; i++)
		for (size_t j = i; j > 0 && fix->chunks[j] < fix->chunks[j - 1]; j--) {
			uint64_t chunk = fix->chunks[j];
			struct naos_entry pair[2];
			memcpy(pair, fix->entries[j], sizeof(pair));
			fix->chunks[j] = fix->chunks[j - 1];
			memcpy(fix->entries[j], fix->entries[j - 1], sizeof(pair));
			fix->chunks[j - 1] = chunk;
			memcpy(fix->entries[j - 1], pair, sizeof(pair));
		}
}

/* Gives back what lies in the bytes [from, to). */
static int clear_range(struct naos_sealed_file *file, uint64_t from, uint64_t to, struct naos_error *err)
{
	for (;;) {
		int rc = naos_file_find_data(file, from, to, &from, err);
		if (rc != 0 || from >= to)
			return rc;
		uint64_t piece = NAOS_CHUNK_BYTES - from % NAOS_CHUNK_BYTES;
		piece = to - from < piece ? to - from : piece;
		rc = file->store->ops->deallocate(file->store, from, piece, err);
		if (rc != 0)
			return rc;
		from += piece;
	}
}

/* What a writer that died left where nothing should be: below holes (data comes before its tag) and behind short chunks.
 * The entries are durable by now. */
static int give_back_group(struct naos_sealed_file *file, struct naos_group_view *view, uint64_t group, uint64_t chunks,
			   struct naos_error *err)
{
	for (uint64_t chunk = naos_layout_first(group); chunk < naos_layout_first(group + 1) && chunk < chunks; chunk++) {
		struct naos_sector *sector;
		const struct naos_entry *newer, *older;
		int rc = naos_file_sector(file, view, chunk, &sector, err);
		if (rc != 0)
			return rc;
		naos_entry_sort(naos_sector_pair(sector, chunk), &newer, &older);
		uint64_t start = naos_layout_data_offset(chunk);
		if (newer && (newer->hole || newer->epoch > file->sealed_epoch))
			rc = clear_range(file, start + (newer->hole ? 0 : newer->length), start + NAOS_CHUNK_BYTES, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* The same for a group that has no entries: it is a hole by the map, or damaged and left as it is. */
static int give_back_hole_group(struct naos_sealed_file *file, uint64_t group, struct naos_error *err)
{
	uint64_t from = naos_layout_tag_page(group) * NAOS_CHUNK_BYTES;
	bool hole;
	int rc = naos_file_in_map(file, group, &hole, err);
	return rc || !hole ? rc : clear_range(file, from, from + (1 + NAOS_GROUP_CHUNKS) * NAOS_CHUNK_BYTES, err);
}

static int give_back(struct naos_sealed_file *file, struct naos_error *err)
{
	naos_autoview struct naos_group_view *view = naos_file_borrow_view(file, err);
	uint64_t chunks = naos_layout_chunks(file->size), limit = naos_layout_group(chunks ? chunks - 1 : 0) + 1;
	int rc = view ? 0 : NAOS_E_NOMEM;
	for (uint64_t group = 0; rc == 0; group++) {
		bool tags = true;
		rc = naos_file_next_allocated(file, group, limit, &group, err);
		if (rc != 0 || group == limit)
			break;
		if (group > 0)
			rc = naos_file_has_tags(file, group, &tags, err);
		if (rc == 0)
			rc = tags ? give_back_group(file, view, group, chunks, err) : give_back_hole_group(file, group, err);
	}
	return rc;
}

/* Mends the entries of each group that has any. */
static int mend(struct naos_sealed_file *file, struct naos_error *err)
{
	naos_autoview struct naos_group_view *view = naos_file_borrow_view(file, err);
	naos_autofree struct group_fix *fix = malloc(sizeof(*fix));
	uint64_t chunks = naos_layout_chunks(file->size), limit = naos_layout_group(chunks ? chunks - 1 : 0) + 1;
	int rc = view && fix ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory to recover %s", file->store->name);
	for (uint64_t group = 0; rc == 0; group++) {
		rc = naos_file_next_allocated(file, group, limit, &group, err);
		if (rc != 0 || group == limit)
			break;
		rc = look_at_group(file, view, group, chunks, fix, err);
		if (rc == 0 && fix->count) {
			sort_fix(fix);
			rc = naos_file_put_entries(file, fix->chunks, (const struct naos_entry(*)[2])fix->entries, fix->count, err);
		}
		bool mapped = false;
		if (rc == 0 && fix->has_entries)
			rc = naos_file_in_map(file, group, &mapped, err);
		if (rc == 0 && mapped)
			rc = naos_file_remember_filled(file, group, err);
	}
	return rc;
}

/* Whether map pages below the end hold bits. */
static int any_map_bits(struct naos_sealed_file *file, bool *ret, struct naos_error *err)
{
	*ret = false;
	for (uint64_t map = 0;; map++) {
		uint8_t page[NAOS_CHUNK_BYTES];
		bool more;
		size_t got;
		int rc = naos_file_next_map(file, map, &more, &map, err);
		if (rc != 0 || !more)
			return rc;
		rc = file->store->ops->read(file->store, page, sizeof(page), naos_layout_map_page(map) * NAOS_CHUNK_BYTES, &got, err);
		if (rc != 0)
			return rc;
		if (!naos_is_zero(page, got)) {
			*ret = true;
			return 0;
		}
	}
}

int naos_file_recover(struct naos_sealed_file *file, struct naos_error *err)
{
	int rc = naos_file_store_flush(file, err);
	if (rc == 0)
		rc = naos_file_read_state(file, err);
	if (rc != 0 || file->state.clean)
		return rc;
	file->epoch = file->state.epoch;
	file->sealed_epoch = file->state.sealed_epoch;
	file->maybe_sparse = true;
	file->filled_count = 0;
	rc = naos_file_extent(file, &file->size, err);
	if (rc == 0)
		rc = mend(file, err);
	if (rc == 0)
		rc = naos_file_store_resize(file, naos_layout_physical(file->size), err);
	if (rc == 0)
		rc = naos_file_store_flush(file, err);
	if (rc == 0)
		rc = give_back(file, err);
	if (rc == 0)
		rc = naos_file_put_filled(file, err);
	if (rc == 0)
		rc = naos_file_store_flush(file, err);
	if (rc != 0)
		return rc;
	struct naos_state next = file->state;
	rc = any_map_bits(file, &next.sparse, err);
	if (rc != 0)
		return rc;
	next.sealed_epoch = next.epoch;
	next.size = next.durable_size = file->size;
	next.clean = true;
	next.shared = false;
	rc = naos_file_put_clean_state(file, &next, err);
	if (rc != 0)
		return rc;
	file->sealed_epoch = file->state.sealed_epoch;
	file->recovered = true;
	file->dirty = file->untidy = false;
	naos_seen_clear(&file->seen);
	naos_seen_clear(&file->trim);
	return 0;
}

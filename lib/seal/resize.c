/* Extending and truncating: rules 8, 10 and 11.  The executable model is Writer.extend and Writer.truncate.
 * SPDX-License-Identifier: Apache-2.0 */
#include "seal/file.h"

#include <string.h>

/* Puts a chunk again with another length: the same text, zero-extended or cut. */
static int put_with_length(struct naos_sealed_file *file, uint64_t chunk, const struct naos_entry *entry, const uint8_t *text,
			   uint32_t length, struct naos_error *err)
{
	const struct naos_change change = { .chunk = chunk, .text = entry->hole ? NULL : text, .length = length };
	return naos_file_put(file, &change, 1, err);
}

/* Hole entries for chunks [from, to) of one group. */
static int put_holes(struct naos_sealed_file *file, uint64_t from, uint64_t to, uint64_t size, struct naos_error *err)
{
	struct naos_change changes[NAOS_GROUP_CHUNKS];
	size_t count = 0;
	for (uint64_t chunk = from; chunk < to; chunk++)
		changes[count++] = (struct naos_change){ .chunk = chunk, .length = naos_chunk_room(chunk, size) };
	return count ? naos_file_put(file, changes, count, err) : 0;
}

/* The last chunk's length is where the file ends: before anything may follow it, it is made as long as it must be. */
static int lengthen_last(struct naos_sealed_file *file, uint64_t size, struct naos_error *err)
{
	naos_autoview struct naos_group_view *view = naos_file_borrow_view(file, err);
	uint8_t text[NAOS_CHUNK_BYTES];
	struct naos_entry entry;
	bool present;
	uint64_t last = naos_layout_chunks(file->size) - 1;
	if (!view)
		return NAOS_E_NOMEM;
	int rc = naos_file_pick(file, view, last, file->size, &entry, &present, text, err);
	if (rc == 0 && !present)
		rc = naos_file_damage(file, last, err, "it has no version below the size of the file");
	if (rc == 0 && entry.seq)
		rc = put_with_length(file, last, &entry, text, naos_chunk_room(last, size), err);
	naos_wipe(text, sizeof(text));
	return rc;
}

int naos_file_extend(struct naos_sealed_file *file, uint64_t size, struct naos_error *err)
{
	uint64_t old = file->size, chunks = naos_layout_chunks(old), target = naos_layout_chunks(size);
	uint64_t last = naos_layout_group(chunks ? chunks - 1 : 0), tail = naos_layout_group(target - 1), physical;
	bool mapped, tags = true;
	int rc = naos_file_bear(file, err);
	if (rc != 0)
		return rc;
	rc = old % NAOS_CHUNK_BYTES ? lengthen_last(file, size, err) : 0;
	if (rc == 0)
		rc = naos_file_in_map(file, last, &mapped, err);
	if (rc == 0 && mapped) /* filled by this or another writer, its bit not yet cleared? */
		rc = naos_file_has_tags(file, last, &tags, err);
	if (rc != 0)
		return rc;
	mapped = mapped && !tags;
	if (!mapped) {
		uint64_t end = naos_layout_first(last + 1);
		rc = put_holes(file, chunks, target < end ? target : end, size, err);
	}
	if (rc == 0 && (tail > last || mapped)) { /* whole groups by the map, never by entries */
		struct naos_state next;
		rc = naos_file_put_map(file, last + 1, tail, NULL, 0, err);
		if (rc == 0)
			rc = naos_file_store_flush(file, err);
		next = file->state;
		next.size = size;
		next.sparse = true;
		if (rc == 0)
			rc = naos_file_put_state(file, &next, err);
	}
	if (rc != 0)
		return rc;
	file->size = size;
	rc = file->store->ops->size(file->store, &physical, err);
	if (rc == 0 && naos_layout_physical(size) > physical)
		rc = naos_file_store_resize(file, naos_layout_physical(size), err);
	return rc;
}

/* Rule 10, second half: exact length of the new last chunk and len-0 entries over the removed chunks of its group. */
static int cut_entries(struct naos_sealed_file *file, uint64_t size, struct naos_error *err)
{
	naos_autoview struct naos_group_view *view = naos_file_borrow_view(file, err);
	struct naos_change changes[NAOS_GROUP_CHUNKS + 1];
	uint8_t text[NAOS_CHUNK_BYTES];
	uint64_t chunks = naos_layout_chunks(size), group = naos_layout_group(chunks);
	size_t count = 0;
	int rc = 0;
	if (!view)
		return NAOS_E_NOMEM;
	if (size) {
		struct naos_entry entry;
		bool present;
		uint32_t end = naos_chunk_room(chunks - 1, size);
		rc = naos_file_pick(file, view, chunks - 1, file->size, &entry, &present, text, err);
		if (rc == 0 && !present)
			rc = naos_file_damage(file, chunks - 1, err, "it has no version below the size of the file");
		if (rc == 0 && entry.seq && entry.length > end) {
			changes[count++] = (struct naos_change){ .chunk = chunks - 1, .text = entry.hole ? NULL : text, .length = end };
		} else if (rc == 0 && entry.seq && entry.length < end) { /* durable before a len-0 entry can make it the last one */
			rc = put_with_length(file, chunks - 1, &entry, text, end, err);
			if (rc == 0)
				rc = naos_file_store_flush(file, err);
			view->valid = false;
		}
	}
	for (uint64_t chunk = chunks; rc == 0 && chunk < naos_layout_first(group + 1); chunk++) {
		struct naos_sector *sector;
		rc = naos_file_sector(file, view, chunk, &sector, err);
		if (rc == 0 && (naos_sector_pair(sector, chunk)[0].seq || naos_sector_pair(sector, chunk)[1].seq))
			changes[count++] = (struct naos_change){ .chunk = chunk };
	}
	if (rc == 0 && count) {
		rc = naos_file_put(file, changes, count, err);
		if (rc == 0)
			rc = naos_file_store_flush(file, err);
	}
	naos_wipe(text, sizeof(text));
	return rc;
}

/* What is remembered of groups that are gone. */
static void forget_behind(struct naos_sealed_file *file, uint64_t last_group)
{
	struct naos_seen *tables[] = { &file->seen, &file->trim };
	for (unsigned t = 0; t < 2; t++) {
		/* collected first: removal moves rows */
		for (size_t i = 0; i < tables[t]->room;) {
			const struct naos_seen_row *row = &tables[t]->rows[i];
			if (row->stamp && naos_layout_group(row->chunk) > last_group)
				naos_seen_remove(tables[t], row->chunk);
			else
				i++;
		}
	}
	size_t kept = 0;
	for (size_t i = 0; i < file->filled_count; i++)
		if (file->filled[i] <= last_group)
			file->filled[kept++] = file->filled[i];
	file->filled_count = kept;
}

int naos_file_resize(struct naos_sealed_file *file, uint64_t size, struct naos_error *err)
{
	if (size > NAOS_MAX_FILE_BYTES)
		return naos_error_set(err, NAOS_E_LIMIT, "%s: a file has at most 2^60 bytes", file->store->name);
	if (size == file->size)
		return 0;
	if (size > file->size)
		return naos_file_extend(file, size, err);
	struct naos_state next = file->state;
	next.size = next.size < size ? next.size : size;
	next.durable_size = next.durable_size < size ? next.durable_size : size;
	int rc = naos_file_put_state(file, &next, err);
	if (rc == 0)
		rc = naos_file_store_flush(file, err);
	if (rc == 0)
		rc = cut_entries(file, size, err);
	if (rc == 0) {
		rc = naos_file_store_resize(file, naos_layout_physical(size), err);
		if (rc != 0) /* what the entries say is cut already: recovery, at the next opening, goes on from here */
			file->failed = rc;
	}
	if (rc != 0)
		return rc;
	uint64_t chunks = naos_layout_chunks(size);
	forget_behind(file, naos_layout_group(chunks ? chunks - 1 : 0));
	file->size = size;
	return 0;
}

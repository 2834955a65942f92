/* Checking all of a sealed file, also what reading does not reach.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/file.h"

#include <string.h>

/* Bytes [from, to) of the file must be zero (or lie behind its end). */
static int check_zero(struct naos_sealed_file *file, uint64_t from, uint64_t to, uint64_t chunk, const char *what, struct naos_error *err)
{
	uint64_t at;
	int rc = naos_file_find_data(file, from, to, &at, err);
	return rc == 0 && at < to ? naos_file_damage(file, chunk, err, what) : rc;
}

/* Groups [from, to) are holes by the map: nothing may lie in them. */
static int check_map_holes(struct naos_sealed_file *file, uint64_t from, uint64_t to, struct naos_error *err)
{
	for (uint64_t group = from; group < to;) {
		uint64_t first, end, next = naos_layout_run(group, to, &first, &end);
		int rc = check_zero(file, first, end, naos_layout_first(group), "there is data in a group that the map calls a hole", err);
		if (rc != 0)
			return rc;
		group = next;
	}
	return 0;
}

static int check_chunk(struct naos_sealed_file *file, struct naos_group_view *view, uint64_t chunk, struct naos_error *err)
{
	struct naos_entry entry;
	bool present;
	uint8_t text[NAOS_CHUNK_BYTES];
	int rc = naos_file_pick(file, view, chunk, file->size, &entry, &present, text, err);
	naos_wipe(text, sizeof(text));
	if (rc == 0)
		rc = naos_file_check_fit(file, chunk, file->size, &entry, present, err);
	if (rc != 0 || !file->state.clean)
		return rc;
	/* below a hole, and behind a short chunk inside the file, there is nothing but zeros */
	uint64_t start = naos_layout_data_offset(chunk);
	uint64_t from = start + (entry.hole ? 0 : entry.length), to = start + NAOS_CHUNK_BYTES;
	return check_zero(file, from, to, chunk, entry.hole ? "there is data below a hole" : "there is data behind its end", err);
}

static int check_groups(struct naos_sealed_file *file, struct naos_error *err)
{
	naos_autoview struct naos_group_view *view = naos_file_borrow_view(file, err);
	uint64_t chunks = naos_layout_chunks(file->size), limit = naos_layout_group(chunks ? chunks - 1 : 0) + 1;
	if (!view)
		return NAOS_E_NOMEM;
	view->valid = false; /* what is on the store counts */
	for (uint64_t group = 0; group < limit; group++) {
		uint64_t next = group;
		int rc = group && file->maybe_sparse ? naos_file_skip_map_holes(file, group, limit, &next, err) : 0;
		if (rc == 0 && next > group && file->state.clean)
			rc = check_map_holes(file, group, next, err);
		if (rc != 0 || next == limit)
			return rc;
		group = next;
		for (uint64_t chunk = naos_layout_first(group); chunk < naos_layout_first(group + 1); chunk++) {
			struct naos_sector *sector; /* sectors behind the end of the file must be authentic too */
			rc = chunk < chunks ? check_chunk(file, view, chunk, err) : naos_file_sector(file, view, chunk, &sector, err);
			if (rc != 0)
				return rc;
		}
	}
	return 0;
}

/* Map pages below the end: authentic; all zero in a file that says that it is not sparse. */
static int check_maps(struct naos_sealed_file *file, struct naos_error *err)
{
	for (uint64_t map = 0;; map++) {
		uint8_t page[NAOS_CHUNK_BYTES], bits[NAOS_MAP_BYTES];
		bool more;
		size_t got;
		int rc = naos_file_next_map(file, map, &more, &map, err);
		if (rc != 0 || !more)
			return rc;
		rc = file->store->ops->read(file->store, page, sizeof(page), naos_layout_map_page(map) * NAOS_CHUNK_BYTES, &got, err);
		if (rc != 0)
			return rc;
		memset(page + got, 0, sizeof(page) - got);
		rc = naos_map_decode(file->keys, map, page, bits, err);
		if (rc != 0)
			return naos_error_prefix(err, rc, "%s", file->store->name);
		if (file->state.clean && !file->state.sparse && !naos_is_zero(page, sizeof(page)))
			return naos_error_set(err, NAOS_E_INTEGRITY, "%s: map page %llu holds bits, but the file is not sparse",
					      file->store->name, (unsigned long long)map);
	}
}

int naos_sealed_file_verify(struct naos_sealed_file *file, struct naos_error *err)
{
	(void)pthread_rwlock_rdlock(&file->lock);
	int rc = file->unborn ? 0 : check_maps(file, err); /* nothing of a file without page 0 is read */
	if (rc == 0 && !file->unborn)
		rc = check_groups(file, err);
	(void)pthread_rwlock_unlock(&file->lock);
	return rc;
}

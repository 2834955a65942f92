/* Finding the version that a chunk reads as.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/file.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RETRIES 16 /* a reader beside a live writer reads the tags again */

int naos_file_damage(const struct naos_sealed_file *file, uint64_t chunk, struct naos_error *err, const char *what)
{
	return naos_error_set(err, NAOS_E_INTEGRITY, "%s: chunk %llu (from byte %llu): %s", file->store->name,
			      (unsigned long long)chunk, (unsigned long long)chunk * NAOS_CHUNK_BYTES, what);
}

struct naos_group_view *naos_file_borrow_view(struct naos_sealed_file *file, struct naos_error *err)
{
	struct naos_group_view *view = atomic_exchange(&file->view, NULL);
	if (!view)
		view = malloc(sizeof(*view));
	else if (view->stamp == file->tag_writes)
		return view;
	if (!view) {
		(void)naos_error_set(err, NAOS_E_NOMEM, "no memory for tags of %s", file->store->name);
		return NULL;
	}
	view->file = file;
	view->valid = false;
	view->stamp = file->tag_writes;
	return view;
}

void naos_file_return_view(struct naos_group_view **borrowed)
{
	struct naos_group_view *view = *borrowed;
	/* only a LOCAL writer knows that nobody else changes tags */
	if (view && view->file->mode == NAOS_SEALED_LOCAL)
		view = atomic_exchange(&view->file->view, view);
	free(view);
}

void naos_file_seed_view(struct naos_sealed_file *file, const uint8_t page[static NAOS_CHUNK_BYTES])
{
	naos_autoview struct naos_group_view *view = naos_file_borrow_view(file, NULL);
	const size_t tag_bytes = NAOS_FIRST_GROUP_SECTORS * NAOS_SECTOR_BYTES;
	if (!view)
		return;
	memcpy(view->raw, page + NAOS_FIRST_SECTORS_OFFSET, tag_bytes);
	memset(view->decoded, 0, sizeof(view->decoded));
	for (unsigned place = 0; place < NAOS_FIRST_GROUP_SECTORS; place++)
		view->loaded[place] = true;
	view->group = 0;
	view->valid = true;
}

/* Reads sectors [from, to) of the view's group. */
static int load_sectors(struct naos_sealed_file *file, struct naos_group_view *view, unsigned from, unsigned to, struct naos_error *err)
{
	uint64_t offset = naos_layout_sector_offset(view->group * NAOS_TAG_PAGE_SECTORS + from);
	size_t want = (size_t)(to - from) * NAOS_SECTOR_BYTES, got;
	uint8_t *raw = view->raw + from * NAOS_SECTOR_BYTES;
	int rc = file->store->ops->read(file->store, raw, want, offset, &got, err);
	if (rc != 0)
		return rc;
	memset(raw + got, 0, want - got);
	for (unsigned place = from; place < to; place++)
		view->loaded[place] = true; /* one that was decoded before stays so: somebody may point to it */
	return 0;
}

/* Makes a sector of a group ready to be decoded.  Who goes from group to group gets the whole page at once; who jumps about gets
 * one sector first. */
static int load_view(struct naos_sealed_file *file, struct naos_group_view *view, uint64_t group, unsigned place, struct naos_error *err)
{
	bool same = view->valid && view->group == group, whole = same || !view->valid || view->group + 1 == group;
	if (same && view->loaded[place])
		return 0;
	if (!same) {
		view->valid = false;
		view->group = group;
		view->stamp = file->tag_writes;
		memset(view->loaded, 0, sizeof(view->loaded));
		memset(view->decoded, 0, sizeof(view->decoded));
	}
	int rc = load_sectors(file, view, whole ? 0 : place,
			      !whole ? place + 1 : group ? NAOS_TAG_PAGE_SECTORS : NAOS_FIRST_GROUP_SECTORS, err);
	view->valid = rc == 0;
	return rc;
}

int naos_file_sector(struct naos_sealed_file *file, struct naos_group_view *view, uint64_t chunk, struct naos_sector **ret,
		     struct naos_error *err)
{
	uint64_t sector = naos_layout_sector(chunk), group = sector / NAOS_TAG_PAGE_SECTORS;
	unsigned place = (unsigned)(sector % NAOS_TAG_PAGE_SECTORS);
	int rc = load_view(file, view, group, place, err);
	if (rc == 0 && !view->decoded[place]) {
		rc = naos_sector_decode(file->keys, sector, view->raw + place * NAOS_SECTOR_BYTES, &view->sectors[place], err);
		if (rc != 0)
			return naos_error_prefix(err, rc, "%s", file->store->name);
		view->decoded[place] = true;
	}
	if (rc == 0)
		*ret = &view->sectors[place];
	return rc;
}

struct naos_entry *naos_sector_pair(struct naos_sector *sector, uint64_t chunk)
{
	uint64_t group = naos_layout_group(chunk);
	return sector->entries[(chunk - naos_layout_first(group)) % NAOS_SECTOR_CHUNKS];
}

/* Without a key (naos_sealed_inspect) a version counts as opening if the file has bytes where its data should be. */
static int is_inside(struct naos_sealed_file *file, uint64_t chunk, const struct naos_entry *entry, uint8_t *text, bool *ret_opened,
		     struct naos_error *err)
{
	uint64_t physical;
	int rc = file->store->ops->size(file->store, &physical, err);
	if (rc != 0)
		return rc;
	memset(text, 0, entry->length);
	*ret_opened = naos_layout_data_offset(chunk) + entry->length <= physical;
	return 0;
}

int naos_file_open_version(struct naos_sealed_file *file, uint64_t chunk, const struct naos_entry *entry, uint8_t *text,
			   bool *ret_opened, struct naos_error *err)
{
	if (entry->hole) {
		memset(text, 0, entry->length);
		*ret_opened = true;
		return 0;
	}
	if (!file->keys)
		return is_inside(file, chunk, entry, text, ret_opened, err);
	size_t got;
	int rc = file->store->ops->read(file->store, text, entry->length, naos_layout_data_offset(chunk), &got, err);
	if (rc != 0)
		return rc;
	*ret_opened = false;
	if (got < entry->length) {
		memset(text, 0, entry->length);
		return 0;
	}
	uint8_t associated[NAOS_CHUNK_ASSOCIATED_BYTES], tag[NAOS_GCM_TAG_BYTES];
	naos_entry_associated(&file->header.file_id, chunk, entry, associated);
	memcpy(tag, entry->tag, sizeof(tag));
	struct naos_data_key *key;
	rc = naos_file_keys_get(file->keys, chunk, entry->seq, &key, err);
	if (rc != 0) {
		memset(text, 0, entry->length);
		return rc;
	}
	const struct naos_gcm_message message = {
		.nonce = entry->nonce, .associated = associated, .associated_bytes = sizeof(associated),
		.in = text, .out = text, .bytes = entry->length, .tag = tag,
	};
	rc = naos_gcm_open(naos_data_key_gcm(key), &message, NULL);
	naos_file_keys_put(file->keys, key);
	*ret_opened = rc == 0;
	return rc == 0 || rc == NAOS_E_INTEGRITY ? 0 : naos_error_set(err, rc, "%s: decryption failed", file->store->name);
}

/* One try with the tags as view has them.  *ret_tried false: the chunk has no version at all. */
static int pick_once(struct naos_sealed_file *file, uint64_t chunk, struct naos_entry *pair, struct naos_entry *ret, uint8_t *text,
		     bool *ret_opened, const char **ret_why, struct naos_error *err)
{
	const struct naos_entry *newer, *older;
	naos_entry_sort(pair, &newer, &older);
	*ret_opened = false;
	if (newer->epoch > file->state.epoch) { /* an older page 0 was put back */
		*ret_why = "its tag is newer than the state of the file";
		return 0;
	}
	*ret_why = "its data does not match its tag";
	int rc = naos_file_open_version(file, chunk, newer, text, ret_opened, err);
	if (rc == 0 && *ret_opened)
		*ret = *newer;
	/* rule 2: the older version only for one that no flush can have made durable */
	if (rc == 0 && !*ret_opened && older && newer->epoch > file->sealed_epoch) {
		rc = naos_file_open_version(file, chunk, older, text, ret_opened, err);
		if (rc == 0 && *ret_opened)
			*ret = *older;
	}
	return rc;
}

int naos_file_pick(struct naos_sealed_file *file, struct naos_group_view *view, uint64_t chunk, uint64_t size,
		   struct naos_entry *ret, bool *ret_present, uint8_t *text, struct naos_error *err)
{
	uint8_t own[NAOS_CHUNK_BYTES], *into = text ? text : own;
	struct naos_entry entry, tried[2] = { { .seq = 0 } };
	const char *why = "";
	for (int attempt = 0; attempt < MAX_RETRIES; attempt++) {
		struct naos_sector *sector;
		bool opened, hole;
		int rc = naos_file_sector(file, view, chunk, &sector, err);
		if (rc != 0)
			return rc;
		if (sector->absent && chunk * NAOS_CHUNK_BYTES < size) {
			rc = naos_file_in_map(file, naos_layout_group(chunk), &hole, err);
			if (rc != 0)
				return rc;
			if (hole) {
				memset(into, 0, NAOS_CHUNK_BYTES);
				*ret = (struct naos_entry){ .length = naos_chunk_room(chunk, size), .hole = true };
				*ret_present = true;
				return 0;
			}
		}
		struct naos_entry *pair = naos_sector_pair(sector, chunk);
		if (pair[0].seq == 0 && pair[1].seq == 0) {
			*ret_present = false;
			return 0;
		}
		rc = pick_once(file, chunk, pair, &entry, into, &opened, &why, err);
		if (rc != 0)
			return rc;
		if (opened) {
			memset(into + entry.length, 0, NAOS_CHUNK_BYTES - entry.length);
			*ret = entry;
			*ret_present = true;
			return 0;
		}
		if (attempt > 0 && naos_entry_equal(&tried[0], &pair[0]) && naos_entry_equal(&tried[1], &pair[1]))
			break; /* nobody is changing it */
		memcpy(tried, pair, sizeof(tried));
		view->valid = false;
	}
	naos_wipe(into, NAOS_CHUNK_BYTES);
	return naos_file_damage(file, chunk, err, why);
}

int naos_file_find_data(struct naos_sealed_file *file, uint64_t from, uint64_t to, uint64_t *ret_at, struct naos_error *err)
{
	uint8_t page[NAOS_CHUNK_BYTES];
	for (uint64_t at = from; at < to;) {
		uint64_t data;
		size_t got;
		int rc = file->store->ops->next_data(file->store, at, &data, err);
		if (rc != 0)
			return rc;
		if (data >= to)
			break;
		at = data > at ? data : at;
		uint64_t want = NAOS_CHUNK_BYTES - at % NAOS_CHUNK_BYTES;
		want = to - at < want ? to - at : want;
		rc = file->store->ops->read(file->store, page, (size_t)want, at, &got, err);
		if (rc != 0)
			return rc;
		if (!naos_is_zero(page, got)) {
			*ret_at = at;
			return 0;
		}
		at += want;
	}
	*ret_at = to;
	return 0;
}

int naos_file_check_fit(const struct naos_sealed_file *file, uint64_t chunk, uint64_t size, const struct naos_entry *entry,
			bool present, struct naos_error *err)
{
	uint32_t room = naos_chunk_room(chunk, size);
	if (!present)
		return naos_file_damage(file, chunk, err, "it has no version below the size of the file");
	bool exact = file->state.clean && chunk == naos_layout_chunks(size) - 1;
	if (entry->length == 0 || entry->length > room || (exact && entry->length != room))
		return naos_file_damage(file, chunk, err, "its length contradicts the size of the file");
	return 0;
}

/* What was durable must reach up to durable_size: something stands at its last chunk.  So nobody is sent through a file that
 * only its state calls endless. */
static int check_durable(struct naos_sealed_file *file, struct naos_group_view *view, struct naos_error *err)
{
	uint64_t chunks = naos_layout_chunks(file->state.durable_size);
	struct naos_sector *sector;
	bool hole;
	if (chunks == 0 || naos_file_sector(file, view, chunks - 1, &sector, NULL) != 0 || !sector->absent)
		return 0; /* what is damaged is refused when it is read */
	int rc = naos_file_in_map(file, naos_layout_group(chunks - 1), &hole, err);
	return rc || hole ? rc : naos_file_damage(file, chunks - 1, err, "it has no version below the durable size of the file");
}

/* Where the search for the end begins.  An earlier one need not be repeated while the state is the same: a truncation writes a
 * state before it takes anything away, so the file can only have grown.  A reader, who locks nothing, may have looked while one
 * was on its way: it looks whether its end is still there. */
static int scan_from(struct naos_sealed_file *file, struct naos_group_view *view, uint64_t *ret, struct naos_error *err)
{
	uint64_t durable = file->state.durable_size, last = naos_layout_chunks(file->scanned.size) - 1;
	bool known = file->scanned.seq == file->state.seq && file->scanned.size > durable;
	if (known && file->mode == NAOS_SEALED_READ) {
		struct naos_sector *sector;
		const struct naos_entry *newer, *older;
		int rc = naos_file_sector(file, view, last, &sector, err);
		if (rc != 0)
			return rc == NAOS_E_INTEGRITY ? (*ret = durable, 0) : rc;
		naos_entry_sort(naos_sector_pair(sector, last), &newer, &older);
		known = newer && newer->length > 0;
	}
	*ret = known ? file->scanned.size : durable;
	return 0;
}

/* Rule 7: from durable_size on, up to the first chunk that is absent, truncated or unreadable. */
static int scan(struct naos_sealed_file *file, uint64_t *ret_size, struct naos_error *err)
{
	naos_autoview struct naos_group_view *view = naos_file_borrow_view(file, err);
	uint64_t durable = file->state.durable_size, chunk, size;
	if (!view)
		return NAOS_E_NOMEM;
	int checked = check_durable(file, view, err);
	if (checked == 0)
		checked = scan_from(file, view, &chunk, err);
	if (checked != 0)
		return checked;
	chunk /= NAOS_CHUNK_BYTES;
	size = chunk * NAOS_CHUNK_BYTES;
	for (;; chunk++) {
		struct naos_entry entry;
		bool present;
		uint64_t group = naos_layout_group(chunk);
		if (group > 0 && chunk == naos_layout_first(group) && chunk * NAOS_CHUNK_BYTES < file->state.size) {
			/* whole groups that the map calls holes are passed in one step */
			uint64_t limit = naos_layout_group(naos_layout_chunks(file->state.size) - 1) + 1, next;
			int rc = naos_file_skip_map_holes(file, group, limit, &next, err);
			if (rc != 0)
				return rc;
			if (next > group) {
				chunk = naos_layout_first(next);
				size = chunk * NAOS_CHUNK_BYTES;
				if (size > file->state.size)
					size = file->state.size;
				if (naos_layout_chunks(size) < chunk)
					break; /* else the next group may hold more, written since */
			}
		}
		int rc = naos_file_pick(file, view, chunk, file->state.size, &entry, &present, NULL, err);
		if (rc == NAOS_E_INTEGRITY && chunk * NAOS_CHUNK_BYTES >= durable)
			break;
		if (rc != 0)
			return rc;
		if (!present || entry.length == 0)
			break;
		size = chunk * NAOS_CHUNK_BYTES + entry.length;
	}
	if (size < durable)
		return naos_file_damage(file, durable / NAOS_CHUNK_BYTES, err, "the file is shorter than its last flush made it");
	*ret_size = size;
	return 0;
}

int naos_file_extent(struct naos_sealed_file *file, uint64_t *ret_size, struct naos_error *err)
{
	if (file->unborn) {
		*ret_size = 0;
		return 0;
	}
	if (!file->state.clean)
		return scan(file, ret_size, err);
	uint64_t physical, expected = naos_layout_physical(file->state.size);
	int rc = file->store->ops->size(file->store, &physical, err);
	if (rc != 0)
		return rc;
	if (physical != expected)
		return naos_error_set(err, NAOS_E_INTEGRITY, "%s: the file has %llu bytes, its sealed state says %llu: it was %s",
				      file->store->name, (unsigned long long)physical, (unsigned long long)expected,
				      physical < expected ? "truncated" : "lengthened");
	*ret_size = file->state.size;
	return 0;
}

/* Reading: runs of whole chunks straight into the caller's buffer, the rest by way of one chunk of memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "seal/file.h"

#include <string.h>

#define RANGE_CHUNKS 4096 /* of data that are told at once: a call ends soon */

/* One chunk, as a person reads it: picked, checked against the size, zero-extended. */
static int read_chunk(struct naos_sealed_file *file, struct naos_group_view *view, uint64_t chunk, uint64_t size, uint8_t *text,
		      struct naos_error *err)
{
	struct naos_entry entry;
	bool present;
	const uint8_t *gathered = naos_gather_find(&file->gather, chunk, NULL);
	if (gathered) {
		memcpy(text, gathered, NAOS_CHUNK_BYTES);
		return 0;
	}
	int rc = naos_file_pick(file, view, chunk, size, &entry, &present, text, err);
	if (rc == 0)
		rc = naos_file_check_fit(file, chunk, size, &entry, present, err);
	if (rc != 0)
		naos_wipe(text, NAOS_CHUNK_BYTES);
	return rc;
}

/* Chunks [first, first + count) of one group, all inside the buffer.  Those whose newest version is plain data are read in
 * one go and opened in place; `done` says which of them are right, the others need read_chunk. */
static int read_run(struct naos_sealed_file *file, struct naos_group_view *view, uint64_t first, size_t count, uint64_t size,
		    uint8_t *buffer, bool *done, struct naos_error *err)
{
	const struct naos_entry *entries[NAOS_GROUP_CHUNKS];
	size_t low = count, high = 0, got;
	for (size_t i = 0; i < count; i++) {
		struct naos_sector *sector;
		const struct naos_entry *newer, *older;
		done[i] = false;
		entries[i] = NULL;
		if (naos_gather_find(&file->gather, first + i, NULL))
			continue;
		int rc = naos_file_sector(file, view, first + i, &sector, err);
		if (rc != 0)
			return rc;
		naos_entry_sort(naos_sector_pair(sector, first + i), &newer, &older);
		bool plain = newer && !newer->hole && newer->length == naos_chunk_room(first + i, size) && newer->epoch <= file->state.epoch;
		if (!plain)
			continue;
		entries[i] = newer;
		low = i < low ? i : low;
		high = i + 1;
	}
	if (low >= high)
		return 0;
	size_t bytes = (high - 1 - low) * NAOS_CHUNK_BYTES + naos_chunk_room(first + high - 1, size);
	uint64_t offset = naos_layout_data_offset(first + low);
	int rc = file->store->ops->read(file->store, buffer + low * NAOS_CHUNK_BYTES, bytes, offset, &got, err);
	struct naos_gcm_message messages[NAOS_GROUP_CHUNKS];
	uint8_t associated[NAOS_GROUP_CHUNKS][NAOS_CHUNK_ASSOCIATED_BYTES], tags[NAOS_GROUP_CHUNKS][NAOS_GCM_TAG_BYTES];
	for (size_t i = low; rc == 0 && i < high;) {
		struct naos_data_key *key = NULL;
		size_t members[NAOS_GROUP_CHUNKS], used = 0;
		for (; i < high; i++) {
			const struct naos_entry *entry = entries[i];
			uint8_t *at = buffer + i * NAOS_CHUNK_BYTES;
			if (!entry || (i - low) * NAOS_CHUNK_BYTES + entry->length > got)
				continue;
			if (key && !naos_data_key_covers(key, first + i, entry->seq))
				break;
			if (!key) {
				rc = naos_file_keys_get(file->keys, first + i, entry->seq, &key, err);
				if (rc != 0)
					break;
			}
			naos_entry_associated(&file->header.file_id, first + i, entry, associated[used]);
			memcpy(tags[used], entry->tag, NAOS_GCM_TAG_BYTES);
			messages[used] = (struct naos_gcm_message){
				.nonce = entry->nonce, .associated = associated[used], .associated_bytes = NAOS_CHUNK_ASSOCIATED_BYTES,
				.in = at, .out = at, .bytes = entry->length, .tag = tags[used],
			};
			members[used++] = i;
		}
		if (used) {
			int opened = naos_gcm_open_many(naos_data_key_gcm(key), messages, used, err);
			if (opened != 0 && opened != NAOS_E_INTEGRITY)
				rc = rc ? rc : opened;
		}
		for (size_t j = 0; rc == 0 && j < used; j++)
			done[members[j]] = messages[j].result == 0;
		naos_file_keys_put(file->keys, key);
	}
	return rc;
}

static int read_group(struct naos_sealed_file *file, struct naos_group_view *view, uint64_t first, size_t count, uint64_t size,
		      uint8_t *buffer, struct naos_error *err)
{
	bool done[NAOS_GROUP_CHUNKS];
	uint8_t text[NAOS_CHUNK_BYTES];
	int rc = read_run(file, view, first, count, size, buffer, done, err);
	for (size_t i = 0; rc == 0 && i < count; i++) {
		if (done[i])
			continue;
		rc = read_chunk(file, view, first + i, size, text, err);
		if (rc == 0)
			memcpy(buffer + i * NAOS_CHUNK_BYTES, text, naos_chunk_room(first + i, size));
	}
	return rc;
}

/* What a caller asked for, and how much of it was read. */
struct reading {
	uint8_t *buffer;
	size_t bytes;
	uint64_t offset;
	size_t done;
};

static int read_locked(struct naos_sealed_file *file, struct reading *reading, struct naos_error *err)
{
	uint64_t size = file->size, offset = reading->offset;
	size_t bytes = reading->bytes, done = 0;
	uint8_t *buffer = reading->buffer;
	reading->done = 0;
	if (offset >= size || bytes == 0)
		return 0;
	if (bytes > size - offset)
		bytes = (size_t)(size - offset);
	naos_autoview struct naos_group_view *view = naos_file_borrow_view(file, err);
	uint8_t text[NAOS_CHUNK_BYTES];
	int rc = 0;
	if (!view)
		return NAOS_E_NOMEM;
	while (rc == 0 && done < bytes) {
		uint64_t at = offset + done, chunk = at / NAOS_CHUNK_BYTES;
		uint32_t skip = (uint32_t)(at % NAOS_CHUNK_BYTES), room = naos_chunk_room(chunk, size);
		size_t want = bytes - done;
		if (skip == 0 && want >= room) {
			uint64_t end = naos_layout_first(naos_layout_group(chunk) + 1);
			size_t count = 0, taken = 0;
			while (chunk + count < end && taken < want && want - taken >= naos_chunk_room(chunk + count, size)) {
				taken += naos_chunk_room(chunk + count, size);
				count++;
			}
			rc = read_group(file, view, chunk, count, size, buffer + done, err);
			done += taken;
			continue;
		}
		rc = read_chunk(file, view, chunk, size, text, err);
		size_t take = room - skip < want ? room - skip : want;
		if (rc == 0)
			memcpy(buffer + done, text + skip, take);
		done += take;
	}
	naos_wipe(text, sizeof(text));
	if (rc == 0)
		reading->done = bytes;
	else
		memset(buffer, 0, bytes);
	return rc;
}

/* What looks damaged may be a change half done by a live writer: so the reader looks again before it says so. */
static int read_again(struct naos_sealed_file *file, struct reading *reading, int rc, struct naos_error *err)
{
	for (unsigned attempt = 0; rc == NAOS_E_INTEGRITY && attempt < NAOS_FOLLOW_ATTEMPTS; attempt++) {
		bool settled;
		(void)pthread_rwlock_wrlock(&file->lock);
		int followed = naos_file_follow(file, attempt, &settled, err);
		if (followed != 0)
			rc = followed;
		else if (!settled)
			rc = read_locked(file, reading, err);
		(void)pthread_rwlock_unlock(&file->lock);
		if (settled)
			break;
	}
	return rc;
}

static int read_whole(struct naos_sealed_file *file, void *context, struct naos_error *err)
{
	return read_locked(file, context, err);
}

int naos_sealed_file_read(struct naos_sealed_file *file, void *buffer, size_t bytes, uint64_t offset, size_t *ret_bytes,
			  struct naos_error *err)
{
	struct reading reading = { .buffer = buffer, .bytes = bytes, .offset = offset };
	bool shared = file->mode == NAOS_SEALED_SHARED; /* other writers may have changed state and size */
	(void)(shared ? pthread_rwlock_wrlock(&file->lock) : pthread_rwlock_rdlock(&file->lock));
	int rc = shared ? naos_file_refresh(file, err) : 0;
	if (rc == 0)
		rc = read_locked(file, &reading, err);
	if (rc == NAOS_E_INTEGRITY && shared)
		rc = naos_file_whole(file, read_whole, &reading, err);
	(void)pthread_rwlock_unlock(&file->lock);
	if (file->mode == NAOS_SEALED_READ)
		rc = read_again(file, &reading, rc, err);
	if (rc == 0)
		*ret_bytes = reading.done;
	return rc;
}

/* Whether a chunk holds data, by its newest entry. */
static int holds_data(struct naos_sealed_file *file, struct naos_group_view *view, uint64_t chunk, bool *ret, struct naos_error *err)
{
	struct naos_sector *sector;
	const struct naos_entry *newer, *older;
	if (naos_gather_find(&file->gather, chunk, NULL)) {
		*ret = true;
		return 0;
	}
	int rc = naos_file_sector(file, view, chunk, &sector, err);
	if (rc != 0)
		return rc;
	naos_entry_sort(naos_sector_pair(sector, chunk), &newer, &older);
	bool hole = false;
	if (!newer)
		rc = naos_file_in_map(file, naos_layout_group(chunk), &hole, err);
	/* an absent chunk counts as data, so that reading it reports the damage */
	*ret = newer ? !newer->hole : !hole;
	return rc;
}

static int next_data_locked(struct naos_sealed_file *file, uint64_t offset, uint64_t *ret_start, uint64_t *ret_end, struct naos_error *err)
{
	uint64_t chunk = offset / NAOS_CHUNK_BYTES, chunks = naos_layout_chunks(file->size), start = 0;
	naos_autoview struct naos_group_view *view = naos_file_borrow_view(file, err);
	bool found = false;
	if (!view)
		return NAOS_E_NOMEM;
	for (; chunk < chunks; chunk++) {
		uint64_t group = naos_layout_group(chunk), next;
		bool data;
		if (!found && group > 0 && chunk == naos_layout_first(group) && file->maybe_sparse) {
			int rc = naos_file_skip_map_holes(file, group, naos_layout_group(chunks - 1) + 1, &next, err);
			if (rc != 0)
				return rc;
			if (next > group) {
				chunk = naos_layout_first(next) - 1;
				continue;
			}
		}
		int rc = holds_data(file, view, chunk, &data, err);
		if (rc != 0)
			return rc;
		if (found && (!data || chunk - start == RANGE_CHUNKS))
			break;
		if (!found && data) {
			found = true;
			start = chunk;
		}
	}
	if (chunk > chunks)
		chunk = chunks;
	uint64_t from = start * NAOS_CHUNK_BYTES, to = chunk * NAOS_CHUNK_BYTES;
	*ret_start = !found ? file->size : from > offset ? from : offset;
	*ret_end = !found || to > file->size ? file->size : to;
	return 0;
}

int naos_sealed_file_next_data(struct naos_sealed_file *file, uint64_t offset, uint64_t *ret_start, uint64_t *ret_end,
			       struct naos_error *err)
{
	(void)pthread_rwlock_rdlock(&file->lock);
	int rc = next_data_locked(file, offset, ret_start, ret_end, err);
	(void)pthread_rwlock_unlock(&file->lock);
	return rc;
}

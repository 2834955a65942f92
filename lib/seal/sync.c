/* From memory to the store, and making durable: rules 6, 12 and 16.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/file.h"

/* --- what is gathered --------------------------------------------------------------------------------------------------- */

#define KEPT_ROOM 16 /* chunks: memory for them is kept over flushes */

static int by_chunk(const void *left, const void *right)
{
	const struct naos_change *a = left, *b = right;
	return a->chunk < b->chunk ? -1 : a->chunk > b->chunk;
}

/* All that is gathered, in ascending batches that share their flushes. */
static int put_gathered(struct naos_sealed_file *file, struct naos_error *err)
{
	const struct naos_gather *gather = &file->gather;
	naos_autofree struct naos_change *changes = malloc(gather->used * sizeof(*changes));
	int rc = changes ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory to write %s", file->store->name);
	for (size_t i = 0; rc == 0 && i < gather->used; i++)
		changes[i] = (struct naos_change){
			.chunk = gather->rows[i].chunk, .text = gather->texts + i * NAOS_CHUNK_BYTES, .length = gather->rows[i].length,
		};
	if (rc == 0)
		qsort(changes, gather->used, sizeof(*changes), by_chunk);
	for (size_t i = 0, count; rc == 0 && i < gather->used; i += count) {
		count = gather->used - i < NAOS_BATCH_CHUNKS ? gather->used - i : NAOS_BATCH_CHUNKS;
		rc = naos_file_put(file, changes + i, count, err);
	}
	return rc;
}

int naos_file_settle(struct naos_sealed_file *file, struct naos_error *err)
{
	struct naos_error why = NAOS_ERROR_INIT;
	if (file->gather.used == 0)
		return 0;
	int rc = put_gathered(file, &why);
	if (rc == 0) {
		naos_gather_empty(&file->gather);
		return 0;
	}
	file->untidy = true;
	file->gather.failure = why;
	if (err)
		*err = why; /* with its errno: a quota is no full disk */
	return rc;
}

int naos_file_settle_and_tell(struct naos_sealed_file *file, struct naos_error *err)
{
	struct naos_error before = file->gather.failure;
	int rc = naos_file_settle(file, err);
	if (rc == 0 && file->gather.room > KEPT_ROOM)
		naos_gather_clear(&file->gather);
	file->gather.failure = (struct naos_error)NAOS_ERROR_INIT;
	if (rc != 0 || before.code == 0)
		return rc;
	if (err)
		*err = before;
	return before.code;
}

int naos_sealed_file_gather(struct naos_sealed_file *file, size_t limit_bytes, struct naos_error *err)
{
	if (file->mode != NAOS_SEALED_LOCAL)
		return naos_error_set(err, NAOS_E_USAGE, "%s: only the only writer may gather changes", file->store->name);
	(void)pthread_rwlock_wrlock(&file->lock);
	size_t limit = limit_bytes / NAOS_CHUNK_BYTES;
	int rc = limit < file->gather.limit ? naos_file_settle(file, err) : 0;
	if (rc == 0)
		file->gather.limit = limit;
	(void)pthread_rwlock_unlock(&file->lock);
	return rc;
}

int naos_sealed_file_settle(struct naos_sealed_file *file, struct naos_error *err)
{
	(void)pthread_rwlock_wrlock(&file->lock);
	int rc = naos_file_settle(file, err);
	if (rc == 0)
		naos_gather_clear(&file->gather);
	(void)pthread_rwlock_unlock(&file->lock);
	return rc;
}

size_t naos_sealed_file_gathered(struct naos_sealed_file *file)
{
	(void)pthread_rwlock_rdlock(&file->lock);
	size_t bytes = file->gather.used * NAOS_CHUNK_BYTES;
	(void)pthread_rwlock_unlock(&file->lock);
	return bytes;
}

/* --- durable ------------------------------------------------------------------------------------------------------------ */

/* Rule 12: blocks below holes that are durable now and still the newest version. */
int naos_file_give_back(struct naos_sealed_file *file, struct naos_error *err)
{
	if (file->trim.used == 0)
		return 0;
	naos_autoview struct naos_group_view *view = naos_file_borrow_view(file, err);
	if (!view)
		return NAOS_E_NOMEM;
	for (size_t i = 0; i < file->trim.room; i++) {
		const struct naos_seen_row *row = &file->trim.rows[i];
		struct naos_sector *sector;
		const struct naos_entry *newer, *older;
		if (!row->stamp)
			continue;
		int rc = naos_file_sector(file, view, row->chunk, &sector, err);
		if (rc != 0)
			return rc;
		naos_entry_sort(naos_sector_pair(sector, row->chunk), &newer, &older);
		if (newer && naos_seen_is(row, newer))
			rc = file->store->ops->deallocate(file->store, naos_layout_data_offset(row->chunk),
							  naos_chunk_room(row->chunk, file->size), err);
		if (rc != 0)
			return rc;
	}
	naos_seen_clear(&file->trim);
	return 0;
}

int naos_file_flushed(struct naos_sealed_file *file, struct naos_error *err)
{
	int rc = naos_file_give_back(file, err);
	if (rc == 0)
		rc = naos_file_put_filled(file, err);
	if (rc != 0)
		return rc;
	struct naos_state next = file->state;
	next.size = next.durable_size = file->size;
	rc = naos_file_put_state(file, &next, err);
	if (rc == 0)
		file->dirty = false;
	return rc;
}

int naos_file_sync(struct naos_sealed_file *file, struct naos_error *err)
{
	int rc = naos_file_store_flush(file, err);
	return rc ? rc : naos_file_flushed(file, err);
}

int naos_sealed_file_flush(struct naos_sealed_file *file, struct naos_error *err)
{
	const struct naos_claim claim = { .whole = true };
	(void)pthread_rwlock_wrlock(&file->lock);
	int rc = naos_file_bear(file, err);
	if (rc == 0)
		rc = naos_file_settle_and_tell(file, err);
	if (rc == 0 && (file->dirty || file->mode == NAOS_SEALED_SHARED)) { /* what others wrote, too, as fsync does */
		rc = naos_file_lock_claim(file, &claim, err);
		naos_file_note_time(file);
		if (rc == 0)
			rc = naos_file_sync(file, err);
		naos_file_restore_time(file);
	}
	return naos_file_end_change(file, rc);
}

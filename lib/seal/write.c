/* Public changes of a file: write, punch, truncate, flush; the locks that let several nodes write one file.
 * SPDX-License-Identifier: Apache-2.0 */
#include "seal/file.h"

#include <string.h>

/* --- begin and end of a change -------------------------------------------------------------------------------------- */

/* What a change needs for itself among writers of other nodes (rule 15): a range of tag sectors, or the whole file. */
struct claim {
	bool whole;
	uint64_t first_chunk, last_chunk;
};

static void unlock_claim(struct naos_sealed_file *file)
{
	if (file->mode == NAOS_SEALED_SHARED) /* everything but the writer's byte; failure would show at the next lock */
		(void)file->store->ops->lock(file->store, 0, NAOS_WRITER_LOCK_OFFSET, NAOS_UNLOCK, true, NULL);
}

static int take_locks(struct naos_sealed_file *file, const struct claim *claim, struct naos_error *err)
{
	const struct naos_store_ops *ops = file->store->ops;
	int rc = ops->lock(file->store, NAOS_STATE_OFFSET, 2 * NAOS_SECTOR_BYTES,
			   claim->whole ? NAOS_LOCK_EXCLUSIVE : NAOS_LOCK_SHARED, true, err);
	if (rc != 0 || claim->whole)
		return rc;
	uint64_t from = naos_layout_sector_offset(naos_layout_sector(claim->first_chunk));
	uint64_t to = naos_layout_sector_offset(naos_layout_sector(claim->last_chunk)) + NAOS_SECTOR_BYTES;
	return ops->lock(file->store, from, to - from, NAOS_LOCK_EXCLUSIVE, true, err);
}

/* Widens a claim that does not cover what its change will touch; *ret_wider false if it does. */
static int widen(struct naos_sealed_file *file, struct claim *claim, bool *ret_wider, struct naos_error *err)
{
	uint64_t chunks = naos_layout_chunks(file->size), end = naos_layout_group(chunks ? chunks - 1 : 0);
	uint64_t groups[] = { naos_layout_group(claim->first_chunk), naos_layout_group(claim->last_chunk) };
	struct claim wide = { .first_chunk = naos_layout_first(groups[0]), .last_chunk = naos_layout_first(groups[1] + 1) - 1 };
	bool hole = false;
	*ret_wider = false;
	/* a gap is filled first; a group is begun or filled up, behind which a dead writer may have left its tag page */
	if (claim->first_chunk > chunks || naos_layout_group(claim->last_chunk + 1) > end)
		wide.whole = true;
	for (unsigned i = 0; i < 2 && !hole && !wide.whole; i++) {
		int rc = naos_file_in_map(file, groups[i], &hole, err);
		if (rc != 0)
			return rc;
	}
	bool covered = claim->first_chunk == wide.first_chunk && claim->last_chunk == wide.last_chunk;
	if (wide.whole || (hole && !covered)) { /* rule 9 writes the whole tag page */
		*claim = wide;
		*ret_wider = true;
	}
	return 0;
}

static int lock_claim(struct naos_sealed_file *file, const struct claim *wanted, struct naos_error *err)
{
	struct claim claim = *wanted;
	if (file->mode != NAOS_SEALED_SHARED)
		return 0;
	for (;;) {
		bool wider = false;
		int rc = take_locks(file, &claim, err);
		if (rc == 0)
			rc = naos_file_refresh(file, err);
		if (claim.whole)
			return rc ? rc : naos_file_drop_stale_group(file, err);
		if (rc == NAOS_E_INTEGRITY) /* perhaps a change half done by another: look again when there is none */
			claim.whole = wider = true;
		else if (rc == 0)
			rc = widen(file, &claim, &wider, err);
		if (!wider)
			return rc;
		unlock_claim(file);
	}
}

static int begin(struct naos_sealed_file *file, const struct claim *claim, struct naos_error *err)
{
	(void)pthread_rwlock_wrlock(&file->lock);
	if (file->mode == NAOS_SEALED_READ)
		return naos_error_set(err, NAOS_E_USAGE, "%s is open for reading only", file->store->name);
	if (file->failed)
		return naos_file_refuse_failed(file, err);
	int rc = lock_claim(file, claim, err);
	if (rc == 0)
		rc = naos_file_begin_epoch(file, err);
	if (rc == 0)
		file->dirty = true;
	return rc;
}

static int end(struct naos_sealed_file *file, int rc)
{
	/* a failed write may leave data below holes, or entries behind the end; one of an unpublished file ends its making */
	if (rc != 0 && rc != NAOS_E_INTEGRITY && file->mode != NAOS_SEALED_READ) {
		file->untidy = true;
		file->failed = file->unpublished && !file->failed ? rc : file->failed;
	}
	unlock_claim(file);
	(void)pthread_rwlock_unlock(&file->lock);
	return rc;
}

/* --- write ------------------------------------------------------------------------------------------------------------ */

/* The text of a chunk with a part replaced: read, zero-extended, merged into text. */
static int merge_chunk(struct naos_sealed_file *file, uint64_t chunk, uint32_t skip, const uint8_t *part, uint32_t bytes,
		       uint8_t *text, struct naos_change *ret, struct naos_error *err)
{
	uint32_t room = naos_chunk_room(chunk, file->size);
	memset(text, 0, NAOS_CHUNK_BYTES);
	if (room) {
		naos_autofree struct naos_group_view *view = calloc(1, sizeof(*view));
		struct naos_entry entry;
		bool present;
		if (!view)
			return naos_error_set(err, NAOS_E_NOMEM, "no memory to write %s", file->store->name);
		int rc = naos_file_pick(file, view, chunk, file->size, &entry, &present, text, err);
		if (rc == 0)
			rc = naos_file_check_fit(file, chunk, file->size, &entry, present, err);
		if (rc != 0)
			return rc;
	}
	if (part)
		memcpy(text + skip, part, bytes);
	else
		memset(text + skip, 0, bytes);
	*ret = (struct naos_change){ .chunk = chunk, .text = text, .length = skip + bytes > room ? skip + bytes : room };
	return 0;
}

/* One batch: as much of the range as fits.  buffer NULL writes zeros (only to parts of chunks). */
static int write_batch(struct naos_sealed_file *file, const uint8_t *buffer, size_t bytes, uint64_t offset, size_t *ret_done,
		       struct naos_error *err)
{
	naos_autofree struct naos_change *changes = malloc(NAOS_BATCH_CHUNKS * sizeof(*changes));
	uint8_t head[NAOS_CHUNK_BYTES], tail[NAOS_CHUNK_BYTES];
	size_t done = 0, count = 0;
	int rc = 0;
	if (!changes)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to write %s", file->store->name);
	while (rc == 0 && done < bytes && count < NAOS_BATCH_CHUNKS) {
		uint64_t chunk = (offset + done) / NAOS_CHUNK_BYTES;
		uint32_t skip = (uint32_t)((offset + done) % NAOS_CHUNK_BYTES), room = NAOS_CHUNK_BYTES - skip;
		uint32_t take = bytes - done < room ? (uint32_t)(bytes - done) : room;
		bool whole = buffer && skip == 0 && take >= naos_chunk_room(chunk, file->size);
		if (whole)
			changes[count] = (struct naos_change){ .chunk = chunk, .text = buffer + done, .length = take };
		else
			rc = merge_chunk(file, chunk, skip, buffer ? buffer + done : NULL, take, count == 0 ? head : tail,
					 &changes[count], err);
		count++;
		done += take;
	}
	if (rc == 0)
		rc = naos_file_put(file, changes, count, err);
	naos_wipe(head, sizeof(head));
	naos_wipe(tail, sizeof(tail));
	if (rc == 0)
		*ret_done = done;
	return rc;
}

static int write_range(struct naos_sealed_file *file, const uint8_t *buffer, size_t bytes, uint64_t offset, struct naos_error *err)
{
	uint64_t first = offset / NAOS_CHUNK_BYTES;
	int rc = 0;
	if (first > naos_layout_chunks(file->size))
		rc = naos_file_extend(file, first * NAOS_CHUNK_BYTES, err);
	for (size_t done = 0, step = 0; rc == 0 && done < bytes; done += step)
		rc = write_batch(file, buffer ? buffer + done : NULL, bytes - done, offset + done, &step, err);
	return rc;
}

int naos_sealed_file_write(struct naos_sealed_file *file, const void *buffer, size_t bytes, uint64_t offset, struct naos_error *err)
{
	if (bytes == 0)
		return 0;
	if (offset > NAOS_MAX_FILE_BYTES || bytes > NAOS_MAX_FILE_BYTES - offset)
		return naos_error_set(err, NAOS_E_LIMIT, "%s: a file has at most 2^60 bytes", file->store->name);
	const struct claim claim = { .first_chunk = offset / NAOS_CHUNK_BYTES, .last_chunk = (offset + bytes - 1) / NAOS_CHUNK_BYTES };
	int rc = begin(file, &claim, err);
	if (rc == 0)
		rc = write_range(file, buffer, bytes, offset, err);
	return end(file, rc);
}

int naos_sealed_file_truncate(struct naos_sealed_file *file, uint64_t size, struct naos_error *err)
{
	const struct claim claim = { .whole = true };
	int rc = begin(file, &claim, err);
	if (rc == 0)
		rc = naos_file_resize(file, size, err);
	return end(file, rc);
}

/* --- punch ------------------------------------------------------------------------------------------------------------ */

/* Chunks [from, to) become holes; those that are holes stay as they are. */
static int punch_chunks(struct naos_sealed_file *file, uint64_t from, uint64_t to, struct naos_error *err)
{
	naos_autofree struct naos_group_view *view = calloc(1, sizeof(*view));
	naos_autofree struct naos_change *changes = malloc(NAOS_BATCH_CHUNKS * sizeof(*changes));
	size_t count = 0;
	int rc = view && changes ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory to change %s", file->store->name);
	for (uint64_t chunk = from; rc == 0 && (chunk < to || count);) {
		uint64_t group = naos_layout_group(chunk), next = group;
		struct naos_sector *sector;
		const struct naos_entry *newer, *older;
		if (chunk == to || count == NAOS_BATCH_CHUNKS) {
			rc = naos_file_put(file, changes, count, err);
			if (rc == 0 && file->trim.used > NAOS_SEEN_MAX / 2) /* before the table of blocks to give back is full */
				rc = naos_file_sync(file, err);
			view->valid = false;
			count = 0;
			continue;
		}
		if (group > 0 && chunk == naos_layout_first(group)) /* what has no data is a hole already */
			rc = naos_file_next_allocated(file, group, naos_layout_group(to - 1) + 1, &next, err);
		if (rc == 0 && next > group) {
			chunk = naos_layout_first(next) < to ? naos_layout_first(next) : to;
			continue;
		}
		if (rc == 0)
			rc = naos_file_sector(file, view, chunk, &sector, err);
		if (rc != 0)
			break;
		naos_entry_sort(naos_sector_pair(sector, chunk), &newer, &older);
		if (newer && !newer->hole)
			changes[count++] = (struct naos_change){ .chunk = chunk, .length = naos_chunk_room(chunk, file->size) };
		chunk++;
	}
	return rc;
}

static int punch_range(struct naos_sealed_file *file, uint64_t offset, uint64_t bytes, struct naos_error *err)
{
	if (offset >= file->size || bytes == 0)
		return 0;
	uint64_t end_offset = bytes > file->size - offset ? file->size : offset + bytes;
	uint64_t first = naos_layout_chunks(offset), last = end_offset / NAOS_CHUNK_BYTES;
	if (end_offset == file->size)
		last = naos_layout_chunks(file->size);
	int rc = 0;
	if (offset % NAOS_CHUNK_BYTES) {
		uint64_t stop = first * NAOS_CHUNK_BYTES < end_offset ? first * NAOS_CHUNK_BYTES : end_offset;
		rc = write_range(file, NULL, (size_t)(stop - offset), offset, err);
	}
	if (rc == 0 && first < last)
		rc = punch_chunks(file, first, last, err);
	if (rc == 0 && last >= first && last * NAOS_CHUNK_BYTES < end_offset)
		rc = write_range(file, NULL, (size_t)(end_offset - last * NAOS_CHUNK_BYTES), last * NAOS_CHUNK_BYTES, err);
	return rc;
}

int naos_sealed_file_punch(struct naos_sealed_file *file, uint64_t offset, uint64_t bytes, struct naos_error *err)
{
	const struct claim claim = { .whole = true };
	int rc = begin(file, &claim, err);
	if (rc == 0)
		rc = punch_range(file, offset, bytes, err);
	return end(file, rc);
}

/* --- flush ------------------------------------------------------------------------------------------------------------ */

/* Rule 12: blocks below holes that are durable now and still the newest version. */
int naos_file_give_back(struct naos_sealed_file *file, struct naos_error *err)
{
	if (file->trim.used == 0)
		return 0;
	naos_autofree struct naos_group_view *view = calloc(1, sizeof(*view));
	if (!view)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to change %s", file->store->name);
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
		if (newer && naos_entry_equal(newer, &row->entry))
			rc = file->store->ops->deallocate(file->store, naos_layout_data_offset(row->chunk),
							  naos_chunk_room(row->chunk, file->size), err);
		if (rc != 0)
			return rc;
	}
	naos_seen_clear(&file->trim);
	return 0;
}

int naos_file_sync(struct naos_sealed_file *file, struct naos_error *err)
{
	int rc = naos_file_store_flush(file, err);
	if (rc == 0)
		rc = naos_file_give_back(file, err);
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

int naos_file_whole(struct naos_sealed_file *file, int (*then)(struct naos_sealed_file *file, void *context, struct naos_error *err),
		    void *context, struct naos_error *err)
{
	const struct claim claim = { .whole = true };
	int rc = lock_claim(file, &claim, err);
	if (rc == 0)
		rc = then(file, context, err);
	unlock_claim(file);
	return rc;
}

int naos_sealed_file_flush(struct naos_sealed_file *file, struct naos_error *err)
{
	const struct claim claim = { .whole = true };
	(void)pthread_rwlock_wrlock(&file->lock);
	int rc = 0;
	if (file->dirty || file->mode == NAOS_SEALED_SHARED) { /* what others wrote, too, as fsync does */
		rc = lock_claim(file, &claim, err);
		if (rc == 0)
			rc = naos_file_sync(file, err);
	}
	return end(file, rc);
}

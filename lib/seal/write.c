/* Writing, appending and setting the size.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/file.h"

#include <string.h>

/* The text of a chunk with a part replaced: read, zero-extended, merged into text. */
static int merge_chunk(struct naos_sealed_file *file, struct naos_group_view *view, uint64_t chunk, uint32_t skip, const uint8_t *part,
		       uint32_t bytes, uint8_t *text, struct naos_change *ret, struct naos_error *err)
{
	uint32_t room = naos_chunk_room(chunk, file->size);
	memset(text, 0, NAOS_CHUNK_BYTES);
	if (room) {
		struct naos_entry entry;
		bool present;
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

/* A batch on its way: what is put at once, and where parts of chunks are put together. */
struct writing {
	struct naos_group_view *view;
	struct naos_change *changes;
	size_t count;
	uint8_t parts[2][NAOS_CHUNK_BYTES]; /* the first and the last chunk may be written in part */
	bool partly;
};

static void writing_free(struct writing *writing)
{
	if (writing->partly)
		naos_wipe(writing->parts, sizeof(writing->parts));
	free(writing->changes);
	naos_file_return_view(&writing->view);
}

/* Bytes of a gathered chunk replaced. */
static void merge_gathered(struct naos_sealed_file *file, struct naos_gathered *row, uint8_t *text, uint32_t skip, const uint8_t *part,
			   uint32_t bytes)
{
	uint32_t length = naos_chunk_room(row->chunk, file->size);
	if (part)
		memcpy(text + skip, part, bytes);
	else
		memset(text + skip, 0, bytes);
	length = length > row->length ? length : row->length;
	row->length = skip + bytes > length ? skip + bytes : length;
}

/* Gathers a change if it would cost a flush of its own.  *ret_kept false: it is to be put. */
static int keep_back(struct naos_sealed_file *file, struct writing *writing, const struct naos_change *change, bool *ret_kept,
		     struct naos_error *err)
{
	struct naos_sector *sector;
	*ret_kept = false;
	if (!file->gather.limit)
		return 0;
	int rc = naos_file_sector(file, writing->view, change->chunk, &sector, err);
	if (rc != 0 || !naos_file_put_waits(file, change->chunk, naos_sector_pair(sector, change->chunk)))
		return rc;
	*ret_kept = naos_gather_put(&file->gather, change->chunk, change->text, change->length, NULL) == 0; /* no memory: put */
	return 0;
}

/* Bytes of one chunk: merged into what is gathered, gathered, or added to the batch.  buffer NULL: zeros. */
static int write_chunk(struct naos_sealed_file *file, struct writing *writing, uint64_t chunk, uint32_t skip, const uint8_t *buffer,
		       uint32_t bytes, bool first, struct naos_error *err)
{
	struct naos_gathered *row;
	struct naos_change change = { .chunk = chunk, .text = buffer, .length = bytes };
	uint64_t end = chunk * NAOS_CHUNK_BYTES + skip + bytes;
	uint8_t *gathered = naos_gather_find(&file->gather, chunk, &row);
	bool kept = gathered != NULL, partly = !buffer || skip || bytes < naos_chunk_room(chunk, file->size);
	int rc = 0;
	writing->partly |= partly && !gathered;
	if (gathered)
		merge_gathered(file, row, gathered, skip, buffer, bytes);
	else if (partly)
		rc = merge_chunk(file, writing->view, chunk, skip, buffer, bytes, writing->parts[first ? 0 : 1], &change, err);
	if (rc == 0 && !gathered)
		rc = keep_back(file, writing, &change, &kept, err);
	if (rc != 0)
		return rc;
	if (!kept)
		writing->changes[writing->count++] = change;
	else if (end > file->size)
		file->size = end;
	return 0;
}

/* One batch: as much of the range as fits. */
static int write_batch(struct naos_sealed_file *file, const uint8_t *buffer, size_t bytes, uint64_t offset, size_t *ret_done,
		       struct naos_error *err)
{
	naos_cleanup(writing_free) struct writing writing;
	size_t limit = file->gather.limit, most = limit && limit < NAOS_BATCH_CHUNKS ? limit : NAOS_BATCH_CHUNKS, done = 0;
	uint64_t chunks = (offset + bytes - 1) / NAOS_CHUNK_BYTES - offset / NAOS_CHUNK_BYTES + 1;
	most = chunks < most ? (size_t)chunks : most;
	writing.count = 0;
	writing.partly = false;
	writing.view = NULL;
	writing.changes = malloc(most * sizeof(*writing.changes));
	int rc = writing.changes ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory to write %s", file->store->name);
	if (rc == 0 && limit && file->gather.used + most > limit)
		rc = naos_file_settle(file, err);
	writing.view = rc == 0 ? naos_file_borrow_view(file, err) : NULL;
	if (!writing.view)
		return rc ? rc : NAOS_E_NOMEM;
	for (size_t seen = 0; rc == 0 && done < bytes && seen < most; seen++) {
		uint64_t chunk = (offset + done) / NAOS_CHUNK_BYTES;
		uint32_t skip = (uint32_t)((offset + done) % NAOS_CHUNK_BYTES), room = NAOS_CHUNK_BYTES - skip;
		uint32_t take = bytes - done < room ? (uint32_t)(bytes - done) : room;
		rc = write_chunk(file, &writing, chunk, skip, buffer ? buffer + done : NULL, take, seen == 0, err);
		done += take;
	}
	naos_file_return_view(&writing.view); /* for naos_file_put */
	writing.view = NULL;
	if (rc == 0 && writing.count)
		rc = naos_file_put(file, writing.changes, writing.count, err);
	if (rc == 0)
		*ret_done = done;
	return rc;
}

int naos_file_write_range(struct naos_sealed_file *file, const uint8_t *buffer, size_t bytes, uint64_t offset, struct naos_error *err)
{
	uint64_t first = offset / NAOS_CHUNK_BYTES;
	int rc = 0;
	if (first > naos_layout_chunks(file->size)) {
		rc = naos_file_settle(file, err);
		if (rc == 0)
			rc = naos_file_extend(file, first * NAOS_CHUNK_BYTES, err);
	}
	for (size_t done = 0, step = 0; rc == 0 && done < bytes; done += step)
		rc = write_batch(file, buffer ? buffer + done : NULL, bytes - done, offset + done, &step, err);
	return rc;
}

static int check_end(const struct naos_sealed_file *file, uint64_t offset, size_t bytes, struct naos_error *err)
{
	if (offset > NAOS_MAX_FILE_BYTES || bytes > NAOS_MAX_FILE_BYTES - offset)
		return naos_error_set(err, NAOS_E_LIMIT, "%s: a file has at most 2^60 bytes", file->store->name);
	return 0;
}

int naos_sealed_file_write(struct naos_sealed_file *file, const void *buffer, size_t bytes, uint64_t offset, struct naos_error *err)
{
	int rc = check_end(file, offset, bytes, err);
	if (rc != 0 || bytes == 0)
		return rc;
	const struct naos_claim claim = { .first_chunk = offset / NAOS_CHUNK_BYTES, .last_chunk = (offset + bytes - 1) / NAOS_CHUNK_BYTES };
	rc = naos_file_begin_change(file, &claim, err);
	if (rc == 0)
		rc = naos_file_write_range(file, buffer, bytes, offset, err);
	return naos_file_end_change(file, rc);
}

int naos_sealed_file_append(struct naos_sealed_file *file, const void *buffer, size_t bytes, uint64_t *ret_offset, struct naos_error *err)
{
	const struct naos_claim claim = { .whole = true };
	int rc = naos_file_begin_change(file, &claim, err);
	uint64_t offset = file->size;
	if (rc == 0)
		rc = check_end(file, offset, bytes, err);
	if (rc == 0 && bytes)
		rc = naos_file_write_range(file, buffer, bytes, offset, err);
	rc = naos_file_end_change(file, rc);
	if (rc == 0)
		*ret_offset = offset;
	return rc;
}

int naos_sealed_file_truncate(struct naos_sealed_file *file, uint64_t size, struct naos_error *err)
{
	const struct naos_claim claim = { .whole = true };
	int rc = naos_file_begin_change(file, &claim, err);
	if (rc == 0)
		rc = naos_file_settle(file, err);
	if (rc == 0)
		rc = naos_file_resize(file, size, err);
	return naos_file_end_change(file, rc);
}

/* Ranges that become zeros or get their blocks before they are written.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/file.h"

/* Chunks [from, to) become holes; those that are holes stay as they are. */
static int punch_chunks(struct naos_sealed_file *file, uint64_t from, uint64_t to, struct naos_error *err)
{
	naos_autoview struct naos_group_view *view = naos_file_borrow_view(file, err);
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
		rc = naos_file_write_range(file, NULL, (size_t)(stop - offset), offset, err);
	}
	if (rc == 0 && first < last)
		rc = punch_chunks(file, first, last, err);
	if (rc == 0 && last >= first && last * NAOS_CHUNK_BYTES < end_offset)
		rc = naos_file_write_range(file, NULL, (size_t)(end_offset - last * NAOS_CHUNK_BYTES), last * NAOS_CHUNK_BYTES, err);
	return rc;
}

/* `then` with what is gathered written before, while no other writer changes the file. */
static int change_range(struct naos_sealed_file *file, uint64_t offset, uint64_t bytes, bool keep_size,
			int (*then)(struct naos_sealed_file *file, uint64_t offset, uint64_t bytes, bool keep_size, struct naos_error *err),
			struct naos_error *err)
{
	const struct naos_claim claim = { .whole = true };
	int rc = naos_file_begin_change(file, &claim, err);
	if (rc == 0)
		rc = naos_file_settle(file, err);
	if (rc == 0)
		rc = then(file, offset, bytes, keep_size, err);
	return naos_file_end_change(file, rc);
}

static int check_limit(const struct naos_sealed_file *file, uint64_t offset, uint64_t bytes, struct naos_error *err)
{
	if (offset > NAOS_MAX_FILE_BYTES || bytes > NAOS_MAX_FILE_BYTES - offset)
		return naos_error_set(err, NAOS_E_LIMIT, "%s: a file has at most 2^60 bytes", file->store->name);
	return 0;
}

static int zero_range(struct naos_sealed_file *file, uint64_t offset, uint64_t bytes, bool keep_size, struct naos_error *err)
{
	int rc = punch_range(file, offset, bytes, err);
	return rc == 0 && !keep_size && offset + bytes > file->size ? naos_file_resize(file, offset + bytes, err) : rc;
}

int naos_sealed_file_punch(struct naos_sealed_file *file, uint64_t offset, uint64_t bytes, struct naos_error *err)
{
	const uint64_t most = offset < UINT64_MAX - bytes ? bytes : UINT64_MAX - offset; /* what lies behind the end is no matter */
	return change_range(file, offset, most, true, zero_range, err);
}

int naos_sealed_file_zero(struct naos_sealed_file *file, uint64_t offset, uint64_t bytes, bool keep_size, struct naos_error *err)
{
	int rc = check_limit(file, offset, bytes, err);
	return rc ? rc : change_range(file, offset, bytes, keep_size, zero_range, err);
}

/* --- allocate ----------------------------------------------------------------------------------------------------------- */

static int allocate_range(struct naos_sealed_file *file, uint64_t offset, uint64_t bytes, bool keep_size, struct naos_error *err)
{
	const struct naos_store_ops *ops = file->store->ops;
	uint64_t end = offset + bytes, first = offset / NAOS_CHUNK_BYTES, last = (end - 1) / NAOS_CHUNK_BYTES;
	uint64_t group = naos_layout_group(first), from = naos_layout_tag_page(group) * NAOS_CHUNK_BYTES;
	uint64_t to = naos_layout_data_offset(last) + NAOS_CHUNK_BYTES;
	if (!ops->reserve)
		return naos_error_set(err, NAOS_E_UNSUPPORTED, "%s: blocks can't be reserved where it lies", file->store->name);
	if (group > 0 && (group - 1) % NAOS_MAP_GROUPS == 0)
		from -= NAOS_CHUNK_BYTES; /* the map page of these groups */
	/* blocks below holes that wait to be given back would go after they were reserved */
	int rc = file->trim.used ? naos_file_sync(file, err) : 0;
	if (rc == 0)
		rc = ops->reserve(file->store, from, to - from, err);
	if (rc == 0 && !keep_size && end > file->size)
		rc = naos_file_resize(file, end, err);
	return rc;
}

int naos_sealed_file_allocate(struct naos_sealed_file *file, uint64_t offset, uint64_t bytes, bool keep_size, struct naos_error *err)
{
	int rc = check_limit(file, offset, bytes, err);
	if (rc == 0 && bytes == 0)
		rc = naos_error_set(err, NAOS_E_USAGE, "%s: a range to allocate has at least one byte", file->store->name);
	return rc ? rc : change_range(file, offset, bytes, keep_size, allocate_range, err);
}

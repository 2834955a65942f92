/* State slots: reading, writing, the sealed end of an epoch.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/file.h"

#include <string.h>
#include <time.h>

#define MAX_RETRIES 16

/* Authentic and of this file, or the reason why not. */
int naos_file_take_state(struct naos_sealed_file *file, const uint8_t page[static NAOS_CHUNK_BYTES], size_t bytes,
			 struct naos_error *err)
{
	if (bytes < NAOS_CHUNK_BYTES)
		return naos_error_set(err, NAOS_E_INTEGRITY, "%s: page 0 is cut off", file->store->name);
	if (memcmp(page, file->header_raw, sizeof(file->header_raw)) != 0)
		return naos_error_set(err, NAOS_E_INTEGRITY, "%s: page 0: the static header was replaced while the file was open",
				      file->store->name);
	int rc = naos_state_pick(file->keys, page, &file->state, err);
	return rc ? naos_error_prefix(err, rc, "%s", file->store->name) : 0;
}

int naos_file_read_state(struct naos_sealed_file *file, struct naos_error *err)
{
	uint8_t pages[2][NAOS_CHUNK_BYTES] = { { 0 }, { 0 } };
	size_t got = 0, before;
	for (unsigned attempt = 0;; attempt++) {
		uint8_t *page = pages[attempt % 2];
		before = got;
		int rc = file->store->ops->read(file->store, page, sizeof(pages[0]), 0, &got, err);
		if (rc == 0)
			rc = naos_file_take_state(file, page, got, err);
		if (rc == NAOS_E_INTEGRITY && file->unborn && file->mode == NAOS_SEALED_READ)
			return 0; /* still not there: the state is that of an empty file */
		if (rc == 0 && file->unborn) { /* another writer recovered it: what is in memory must never be written over it */
			free(file->unborn);
			file->unborn = NULL;
		}
		/* beside a writer half a slot may have been read: another read tells it from damage */
		bool same = attempt > 0 && got == before && memcmp(pages[0], pages[1], sizeof(pages[0])) == 0;
		if (rc != NAOS_E_INTEGRITY || file->mode == NAOS_SEALED_LOCAL || same || attempt == MAX_RETRIES)
			return rc;
	}
}

int naos_file_put_state(struct naos_sealed_file *file, const struct naos_state *next, struct naos_error *err)
{
	uint8_t slot[NAOS_SECTOR_BYTES];
	struct naos_state state = *next;
	if (file->state.seq == UINT64_MAX)
		return naos_error_set(err, NAOS_E_LIMIT, "%s: its state was written 2^64 times: copy the file", file->store->name);
	state.seq = file->state.seq + 1;
	int rc = naos_state_encode(file->keys, file->header_raw, &state, slot, err);
	if (rc == 0)
		rc = file->store->ops->write(file->store, slot, sizeof(slot), naos_state_offset(state.seq), err);
	if (rc == 0)
		file->state = state;
	return rc;
}

int naos_file_empty_other_state(struct naos_sealed_file *file, struct naos_error *err)
{
	static const uint8_t empty[NAOS_SECTOR_BYTES];
	int rc = file->store->ops->write(file->store, empty, sizeof(empty), naos_state_offset(file->state.seq + 1), err);
	file->unfinished &= rc != 0;
	return rc;
}

int naos_file_put_clean_state(struct naos_sealed_file *file, const struct naos_state *next, struct naos_error *err)
{
	int rc = naos_file_put_state(file, next, err);
	if (rc == 0)
		rc = naos_file_store_flush(file, err);
	return rc ? rc : naos_file_empty_other_state(file, err);
}

int naos_file_refuse_failed(const struct naos_sealed_file *file, struct naos_error *err)
{
	return naos_error_set(err, file->failed, "%s: an earlier flush failed; close the file and open it again", file->store->name);
}

void naos_file_mark_flushed(struct naos_sealed_file *file)
{
	naos_seen_flushed(&file->seen);
	naos_seen_flushed(&file->trim);
}

int naos_file_store_flush(struct naos_sealed_file *file, struct naos_error *err)
{
	if (file->failed)
		return naos_error_set(err, file->failed, "%s: an earlier flush failed; close the file and open it again",
				      file->store->name);
	/* an unpublished file is flushed once, by its maker, before it gets its name */
	int rc = file->unpublished ? 0 : naos_file_grown(file, false, err);
	if (rc == 0 && !file->unpublished)
		rc = file->store->ops->flush(file->store, err);
	if (rc != 0) {
		/* after a failed flush the kernel may have dropped pages: nothing may be acknowledged on top of them */
		file->failed = rc;
		return rc;
	}
	naos_file_mark_flushed(file);
	return 0;
}

void naos_file_note_time(struct naos_sealed_file *file)
{
	if (file->mode == NAOS_SEALED_SHARED && file->store->ops->note_time)
		file->store->ops->note_time(file->store);
}

void naos_file_restore_time(struct naos_sealed_file *file)
{
	if (file->mode == NAOS_SEALED_SHARED && file->store->ops->restore_time)
		file->store->ops->restore_time(file->store);
}

int naos_file_store_resize(struct naos_sealed_file *file, uint64_t bytes, struct naos_error *err)
{
	file->map_cache.valid = false; /* its page may be cut off */
	naos_file_tags_written(file);
	return file->store->ops->resize(file->store, bytes, err);
}

int naos_file_begin_epoch(struct naos_sealed_file *file, struct naos_error *err)
{
	if (!file->state.clean)
		return 0;
	struct naos_state next = file->state;
	if (next.sealed_epoch == UINT32_MAX)
		return naos_error_set(err, NAOS_E_LIMIT, "%s was opened for writing 2^32 times: copy the file", file->store->name);
	next.epoch = next.sealed_epoch + 1;
	next.clean = false;
	next.shared = false;
	int rc = naos_file_put_state(file, &next, err);
	if (rc == 0)
		rc = naos_file_store_flush(file, err);
	if (rc != 0)
		return rc;
	file->epoch = file->state.epoch;
	file->unfinished = false;
	return 0;
}

int naos_file_refresh(struct naos_sealed_file *file, struct naos_error *err)
{
	if (file->mode != NAOS_SEALED_SHARED)
		return 0;
	int rc = naos_file_read_state(file, err);
	if (rc != 0 || !file->state.shared)
		return rc;
	file->maybe_sparse = true;
	return naos_file_extent(file, &file->size, err);
}

int naos_file_drop_stale_group(struct naos_sealed_file *file, struct naos_error *err)
{
	if (!file->state.shared)
		return 0;
	uint64_t chunks = naos_layout_chunks(file->size), last = naos_layout_group(chunks ? chunks - 1 : 0);
	bool stale;
	int rc = naos_file_has_tags(file, last + 1, &stale, err);
	if (rc == 0 && stale)
		rc = naos_file_store_resize(file, naos_layout_physical(file->size), err);
	return rc;
}

static bool same_state(const struct naos_state *a, const struct naos_state *b)
{
	return a->clean && b->clean && a->seq == b->seq;
}

/* State and size anew, for a reader. */
static int follow(struct naos_sealed_file *file, bool *ret_settled, struct naos_error *err)
{
	const struct naos_state before = file->state;
	int rc = naos_file_read_state(file, err);
	*ret_settled = rc == 0 && same_state(&before, &file->state);
	if (rc != 0 || *ret_settled)
		return rc;
	file->epoch = file->state.epoch;
	file->sealed_epoch = file->state.sealed_epoch;
	file->maybe_sparse = !file->state.clean || file->state.sparse;
	file->map_cache.valid = false;
	rc = naos_file_extent(file, &file->size, err);
	file->scanned.seq = rc == 0 && !file->state.clean ? file->state.seq : 0;
	file->scanned.size = file->size;
	return rc;
}

int naos_file_follow(struct naos_sealed_file *file, unsigned attempt, bool *ret_settled, struct naos_error *err)
{
	const struct timespec pause = { .tv_nsec = attempt * 500000 };
	(void)nanosleep(&pause, NULL);
	file->scanned.seq = 0; /* what looks damaged may be a wrong end */
	return follow(file, ret_settled, err);
}

int naos_sealed_file_refresh(struct naos_sealed_file *file, struct naos_error *err)
{
	bool settled = false;
	if (file->mode == NAOS_SEALED_LOCAL)
		return 0;
	(void)pthread_rwlock_wrlock(&file->lock);
	int rc = file->mode == NAOS_SEALED_SHARED ? naos_file_refresh(file, err) : follow(file, &settled, err);
	for (unsigned i = 1; rc == NAOS_E_INTEGRITY && file->mode == NAOS_SEALED_READ && i < NAOS_FOLLOW_ATTEMPTS; i++) {
		rc = naos_file_follow(file, i, &settled, err);
		rc = settled ? naos_file_extent(file, &file->size, err) : rc; /* the state is the same, the size was not right */
	}
	if (rc != 0 && file->mode == NAOS_SEALED_READ)
		file->state.clean = false; /* the next one finds the size anew */
	(void)pthread_rwlock_unlock(&file->lock);
	return rc;
}

bool naos_sealed_file_failed(struct naos_sealed_file *file)
{
	(void)pthread_rwlock_rdlock(&file->lock);
	bool failed = file->failed != 0;
	(void)pthread_rwlock_unlock(&file->lock);
	return failed;
}

/* Sealing: rule 13, at close or step by step for many files at once.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/file.h"

static struct naos_state sealed_state(const struct naos_sealed_file *file)
{
	struct naos_state next = file->state;
	next.sealed_epoch = next.epoch;
	next.size = next.durable_size = file->size;
	next.clean = true;
	next.shared = false;
	return next;
}

static int resize_exactly(struct naos_sealed_file *file, struct naos_error *err)
{
	uint64_t physical, wanted = naos_layout_physical(file->size);
	int rc = file->store->ops->size(file->store, &physical, err);
	return rc || physical == wanted ? rc : naos_file_store_resize(file, wanted, err);
}

/* Rule 13 for the only writer. */
static int seal_alone(struct naos_sealed_file *file, struct naos_error *err)
{
	if (file->untidy)
		return naos_file_recover(file, err);
	int rc = naos_file_sync(file, err);
	if (rc == 0)
		rc = resize_exactly(file, err);
	if (rc == 0)
		rc = naos_file_store_flush(file, err);
	const struct naos_state next = sealed_state(file);
	return rc ? rc : naos_file_put_clean_state(file, &next, err);
}

/* The last of several writers runs recovery instead; the others only flush. */
static int seal_shared(struct naos_sealed_file *file, struct naos_error *err)
{
	const struct naos_store_ops *ops = file->store->ops;
	int rc = ops->lock(file->store, NAOS_STATE_OFFSET, 2 * NAOS_SECTOR_BYTES, NAOS_LOCK_EXCLUSIVE, true, err);
	naos_file_note_time(file);
	if (rc == 0)
		rc = naos_file_refresh(file, err);
	if (rc == 0)
		rc = naos_file_drop_stale_group(file, err);
	if (rc == 0)
		rc = naos_file_sync(file, err);
	naos_file_restore_time(file);
	(void)ops->lock(file->store, NAOS_STATE_OFFSET, 2 * NAOS_SECTOR_BYTES, NAOS_UNLOCK, true, NULL);
	if (rc != 0 || ops->lock(file->store, NAOS_WRITER_LOCK_OFFSET, 1, NAOS_LOCK_EXCLUSIVE, false, NULL) != 0)
		return rc;
	naos_file_note_time(file);
	rc = naos_file_read_state(file, err);
	if (rc == 0 && !file->state.clean)
		rc = file->state.shared || file->untidy ? naos_file_recover(file, err) : seal_alone(file, err);
	naos_file_restore_time(file);
	return rc;
}

static int seal_unpublished(struct naos_sealed_file *file, struct naos_error *err)
{
	int rc = naos_file_give_back(file, err);
	if (rc == 0)
		rc = naos_file_put_filled(file, err);
	if (rc == 0)
		rc = resize_exactly(file, err);
	const struct naos_state next = sealed_state(file);
	return rc ? rc : naos_file_put_clean_state(file, &next, err);
}

/* The clean state was written step by step: what is missing. */
static int finish(struct naos_sealed_file *file, struct naos_error *err)
{
	int rc = naos_file_store_flush(file, err);
	return rc ? rc : naos_file_empty_other_state(file, err);
}

static int seal(struct naos_sealed_file *file, struct naos_error *err)
{
	if (file->failed)
		return naos_error_set(err, file->failed, "%s: an earlier flush failed; it was not sealed", file->store->name);
	if (file->state.clean)
		return file->unfinished ? finish(file, err) : 0;
	if (file->unpublished)
		return seal_unpublished(file, err);
	return file->mode == NAOS_SEALED_SHARED ? seal_shared(file, err) : seal_alone(file, err);
}

int naos_sealed_file_close(struct naos_sealed_file *file, bool with_seal, struct naos_error *err)
{
	int rc = 0;
	if (file->mode != NAOS_SEALED_READ) {
		rc = naos_file_bear(file, err);
		if (rc == 0)
			rc = naos_file_settle_and_tell(file, err);
		if (rc == 0 && with_seal)
			rc = seal(file, err);
	}
	naos_file_free(file);
	return rc;
}

/* --- step by step ------------------------------------------------------------------------------------------------------- */

/* What the caller's flush lies between.  Each step follows a flush of all that the one before wrote. */
enum { SETTLE, SETTLED, SIZED, CLEAN };

/* The clean state, for the next flush to make it durable. */
static int put_clean(struct naos_sealed_file *file, struct naos_error *err)
{
	const struct naos_state next = sealed_state(file);
	int rc = naos_file_put_state(file, &next, err);
	if (rc != 0)
		return rc;
	file->sealed_epoch = file->state.sealed_epoch;
	file->dirty = false;
	file->unfinished = true;
	naos_seen_free(&file->seen);
	return 0;
}

/* *ret_settled: between the first and the second flush of rule 13 nothing is to be written, so that they are one: as in most files that
 * were made and written once. */
static int is_settled(const struct naos_sealed_file *file, bool *ret_settled, struct naos_error *err)
{
	uint64_t physical;
	int rc = file->store->ops->size(file->store, &physical, err);
	if (rc == 0)
		*ret_settled = physical == naos_layout_physical(file->size) && file->trim.used == 0 && file->filled_count == 0;
	return rc;
}

static int take_step(struct naos_sealed_file *file, unsigned *step, bool *ret_done, struct naos_error *err)
{
	bool settled = false;
	int rc;
	switch (*step) {
	case SETTLE:
		rc = naos_file_bear(file, err);
		if (rc == 0)
			rc = naos_file_settle(file, err);
		if (rc == 0)
			naos_gather_clear(&file->gather);
		if (rc == 0 && file->unfinished) {
			*step = SIZED;
			break;
		}
		*ret_done = rc == 0 && (file->state.clean || file->untidy);
		if (*ret_done && !file->state.clean) /* a change stopped half way: flushes of its own */
			rc = naos_file_recover(file, err);
		break;
	case SETTLED:
		naos_file_mark_flushed(file);
		rc = naos_file_grown(file, true, err);
		if (rc == 0)
			rc = is_settled(file, &settled, err);
		if (rc == 0 && settled) {
			rc = put_clean(file, err);
			*step = SIZED;
			break;
		}
		rc = rc == 0 && file->dirty ? naos_file_flushed(file, err) : rc;
		if (rc == 0)
			rc = resize_exactly(file, err);
		break;
	case SIZED:
		rc = put_clean(file, err);
		break;
	default:
		rc = naos_file_empty_other_state(file, err);
		*ret_done = rc == 0;
	}
	++*step;
	return rc;
}

int naos_sealed_file_seal_step(struct naos_sealed_file *file, struct naos_sealing *progress, bool *ret_done, struct naos_error *err)
{
	bool done = false;
	if (file->mode != NAOS_SEALED_LOCAL || file->unpublished)
		return naos_error_set(err, NAOS_E_USAGE, "%s: only a published file with one writer is sealed step by step", file->store->name);
	(void)pthread_rwlock_wrlock(&file->lock);
	if (progress->step && progress->changes != file->changes) {
		progress->step = SETTLE;
		progress->restarts++;
	}
	progress->changes = file->changes;
	int rc = file->failed ? naos_file_refuse_failed(file, err) : take_step(file, &progress->step, &done, err);
	if (rc != 0 || done)
		progress->step = SETTLE;
	(void)pthread_rwlock_unlock(&file->lock);
	if (rc == 0)
		*ret_done = done;
	return rc;
}

/* Begin and end of a change: the locks that let several nodes write one file (rule 15), and the epoch (rule 1).
 * SPDX-License-Identifier: Apache-2.0 */
#include "seal/file.h"

static void unlock_claim(struct naos_sealed_file *file)
{
	if (file->mode == NAOS_SEALED_SHARED) /* everything but the writer's byte; failure would show at the next lock */
		(void)file->store->ops->lock(file->store, 0, NAOS_WRITER_LOCK_OFFSET, NAOS_UNLOCK, true, NULL);
}

static int take_locks(struct naos_sealed_file *file, const struct naos_claim *claim, struct naos_error *err)
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
static int widen(struct naos_sealed_file *file, struct naos_claim *claim, bool *ret_wider, struct naos_error *err)
{
	uint64_t chunks = naos_layout_chunks(file->size), end = naos_layout_group(chunks ? chunks - 1 : 0);
	uint64_t groups[] = { naos_layout_group(claim->first_chunk), naos_layout_group(claim->last_chunk) };
	struct naos_claim wide = { .first_chunk = naos_layout_first(groups[0]), .last_chunk = naos_layout_first(groups[1] + 1) - 1 };
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

/* While the locks of a claim are held nobody truncates: where the file ends now is where the next search begins. */
static void remember_end(struct naos_sealed_file *file)
{
	file->scanned.seq = file->state.shared ? file->state.seq : 0;
	file->scanned.size = file->size;
}

int naos_file_lock_claim(struct naos_sealed_file *file, const struct naos_claim *wanted, struct naos_error *err)
{
	struct naos_claim claim = *wanted;
	if (file->mode != NAOS_SEALED_SHARED)
		return 0;
	for (;;) {
		bool wider = false;
		int rc = take_locks(file, &claim, err);
		if (rc == 0)
			rc = naos_file_refresh(file, err);
		if (rc == 0)
			remember_end(file);
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

int naos_file_begin_change(struct naos_sealed_file *file, const struct naos_claim *claim, struct naos_error *err)
{
	(void)pthread_rwlock_wrlock(&file->lock);
	if (file->mode == NAOS_SEALED_READ)
		return naos_error_set(err, NAOS_E_USAGE, "%s is open for reading only", file->store->name);
	if (file->failed)
		return naos_file_refuse_failed(file, err);
	int rc = claim->whole ? naos_file_bear(file, err) : 0; /* a write puts page 0 and its data together */
	if (rc == 0)
		rc = naos_file_lock_claim(file, claim, err);
	if (rc == 0)
		rc = naos_file_begin_epoch(file, err);
	if (rc != 0)
		return rc;
	file->dirty = true;
	file->changes++;
	return 0;
}

int naos_file_end_change(struct naos_sealed_file *file, int rc)
{
	/* a failed write may leave data below holes, or entries behind the end; one of an unpublished file ends its making */
	if (rc != 0 && rc != NAOS_E_INTEGRITY && file->mode != NAOS_SEALED_READ) {
		file->untidy = true;
		file->failed = file->unpublished && !file->failed ? rc : file->failed;
	}
	if (rc == 0 && file->mode == NAOS_SEALED_SHARED)
		remember_end(file);
	unlock_claim(file);
	(void)pthread_rwlock_unlock(&file->lock);
	return rc;
}

int naos_file_whole(struct naos_sealed_file *file, int (*then)(struct naos_sealed_file *file, void *context, struct naos_error *err),
		    void *context, struct naos_error *err)
{
	const struct naos_claim claim = { .whole = true };
	int rc = naos_file_lock_claim(file, &claim, err);
	if (rc == 0)
		rc = then(file, context, err);
	unlock_claim(file);
	return rc;
}

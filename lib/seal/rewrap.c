/* Changing the wrapped copies of a file's key without touching data (docs/formats/sealed-file.md, section 4.3).
 * SPDX-License-Identifier: Apache-2.0 */
#include "seal/file.h"

#include <string.h>

/* A slot for the new copy: an empty one, else the oldest of those that are replaced.  The only working slot is never it. */
static unsigned choose_slot(const struct naos_sealed_file *file, const bool *replaced)
{
	unsigned best = 0;
	for (unsigned i = 0; i < NAOS_FEK_SLOTS; i++)
		if (!file->slots[i].used)
			return i;
	for (unsigned i = 0; i < NAOS_FEK_SLOTS; i++)
		if (replaced[i] && (!replaced[best] || file->slots[i].generation < file->slots[best].generation))
			best = i;
	return best;
}

static int write_slot(struct naos_sealed_file *file, unsigned index, struct naos_error *err)
{
	return file->store->ops->write(file->store, file->slots[index].raw, NAOS_FEK_SLOT_BYTES, naos_fek_slot_offset(index), err);
}

static int set_slot(struct naos_sealed_file *file, unsigned index, uint32_t generation, const struct naos_blob *blob,
		    struct naos_error *err)
{
	struct naos_fek_slot slot = { .used = true, .generation = generation, .blob = *blob };
	int rc = naos_fek_slot_encode(file->keys, &file->header.file_id, &slot, err);
	if (rc != 0)
		return rc;
	file->slots[index] = slot;
	return write_slot(file, index, err);
}

static int rewrap_locked(struct naos_sealed_file *file, const struct naos_blob *blob, const struct naos_uuid *only_mek,
			 struct naos_error *err)
{
	bool replaced[NAOS_FEK_SLOTS];
	uint32_t generation = file->state.key_generation;
	for (unsigned i = 0; i < NAOS_FEK_SLOTS; i++) {
		replaced[i] = file->slots[i].used && (!only_mek || naos_uuid_equal(only_mek, &file->slots[i].blob.mek_id));
		if (file->slots[i].used && file->slots[i].generation > generation)
			generation = file->slots[i].generation;
	}
	if (generation > UINT32_MAX - NAOS_FEK_SLOTS - 1)
		return naos_error_set(err, NAOS_E_LIMIT, "%s: its key was wrapped 2^32 times", file->store->name);
	/* 1. the new copy, durable in page 0 and in the attribute */
	uint32_t lowest = generation + 1;
	unsigned chosen = choose_slot(file, replaced);
	replaced[chosen] = false;
	int rc = set_slot(file, chosen, lowest, blob, err);
	if (rc == 0)
		rc = file->store->ops->set_attribute(file->store, file->slots[chosen].raw, NAOS_FEK_SLOT_BYTES, err);
	if (rc == 0)
		rc = naos_file_store_flush(file, err);
	/* 2. copies that stay get a generation of their own, the others go */
	for (unsigned i = 0; rc == 0 && i < NAOS_FEK_SLOTS; i++) {
		if (i == chosen)
			continue;
		if (file->slots[i].used && !replaced[i]) {
			rc = set_slot(file, i, ++generation + 1, &file->slots[i].blob, err);
		} else { /* also what was not well-formed */
			file->slots[i] = (struct naos_fek_slot){ .used = false };
			rc = write_slot(file, i, err);
		}
	}
	if (rc == 0)
		rc = naos_file_store_flush(file, err);
	if (rc != 0)
		return rc;
	/* 3. from here on what was removed is refused */
	struct naos_state next = file->state;
	next.key_generation = lowest;
	if (file->state.clean)
		return naos_file_put_clean_state(file, &next, err);
	rc = naos_file_put_state(file, &next, err);
	return rc ? rc : naos_file_store_flush(file, err);
}

int naos_sealed_file_rewrap(struct naos_sealed_file *file, const struct naos_blob *blob, const struct naos_uuid *only_mek,
			    struct naos_error *err)
{
	if (file->mode != NAOS_SEALED_LOCAL)
		return naos_error_set(err, NAOS_E_USAGE, "%s: changing its wrapped key needs the only writer", file->store->name);
	(void)pthread_rwlock_wrlock(&file->lock);
	file->changes++;
	int rc = naos_file_bear(file, err);
	if (rc == 0)
		rc = rewrap_locked(file, blob, only_mek, err);
	(void)pthread_rwlock_unlock(&file->lock);
	return rc;
}

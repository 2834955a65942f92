/* Page 0 of a new file, until it is durable: rule 17.  No flush is paid when a file is made, so a power cut may keep its name, its length
 * and other pages, and lose page 0.  Until a flush has covered it, the attribute says so, and holds all that the first page 0 was made
 * of: such a file is empty, and is recovered to that.  Without the record the same file is damage.
 * SPDX-License-Identifier: Apache-2.0 */
#include "seal/file.h"

#include <string.h>

int naos_file_bear(struct naos_sealed_file *file, struct naos_error *err)
{
	int rc = file->unborn ? file->store->ops->write(file->store, file->unborn, NAOS_CHUNK_BYTES, 0, err) : 0;
	if (rc != 0)
		return rc;
	free(file->unborn);
	file->unborn = NULL;
	return 0;
}

/* Both state slots are written, so that an unclean file always has two. */
static int fill_first_page(struct naos_sealed_file *file, const struct naos_fek_slot *slot, struct naos_error *err)
{
	uint8_t *page = calloc(1, NAOS_CHUNK_BYTES);
	if (!page)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to make %s", file->store->name);
	free(file->unborn);
	file->unborn = page;
	memcpy(page, file->header_raw, sizeof(file->header_raw));
	memcpy(page + naos_fek_slot_offset(0), slot->raw, NAOS_FEK_SLOT_BYTES);
	file->state = (struct naos_state){ .epoch = 1, .key_generation = slot->generation };
	for (file->state.seq = 1;; file->state.seq++) {
		int rc = naos_state_encode(file->keys, file->header_raw, &file->state, page + naos_state_offset(file->state.seq), err);
		if (rc != 0 || file->state.seq == 2)
			return rc;
	}
}

int naos_file_make_first_page(struct naos_sealed_file *file, bool lazy, struct naos_error *err)
{
	uint8_t attribute[NAOS_NEW_ATTRIBUTE_BYTES];
	int rc = fill_first_page(file, &file->slots[0], err);
	if (rc == 0)
		rc = naos_birth_encode(file->keys, &file->slots[0], file->header_raw, attribute, err);
	if (rc != 0)
		return rc;
	if (file->mode == NAOS_SEALED_LOCAL)
		naos_file_seed_view(file, file->unborn);
	/* before page 0, so that no length is without a record; what is unpublished is durable before anybody sees it */
	file->newborn = !file->unpublished;
	rc = file->store->ops->set_attribute(file->store, attribute, file->newborn ? sizeof(attribute) : NAOS_FEK_SLOT_BYTES, err);
	return rc || lazy ? rc : naos_file_bear(file, err);
}

int naos_file_grown(struct naos_sealed_file *file, bool durable, struct naos_error *err)
{
	uint8_t attribute[NAOS_NEW_ATTRIBUTE_BYTES];
	size_t got = 0;
	if (!file->newborn)
		return 0;
	int rc = durable || !file->store->ops->write_out ? 0 : file->store->ops->write_out(file->store, err);
	/* as it is now: another writer may have put a newer copy of the key there */
	if (rc == 0)
		rc = file->store->ops->get_attribute(file->store, attribute, sizeof(attribute), &got, err);
	if (rc == 0 && got == sizeof(attribute))
		rc = file->store->ops->set_attribute(file->store, attribute, NAOS_FEK_SLOT_BYTES, err);
	file->newborn = rc != 0;
	return rc;
}

int naos_file_take_birth(struct naos_sealed_file *file, const struct naos_sealed_info *info, const uint8_t page[static NAOS_CHUNK_BYTES],
			 int rc, struct naos_error *err)
{
	file->newborn = true;
	/* that page 0 is lost is believed only if who had the key said that it might be; what is lost is zeros, anything else was changed */
	if (rc != NAOS_E_INTEGRITY || naos_birth_verify(file->keys, info->birth, NULL) != 0 ||
	    naos_state_check_slots(file->keys, page, NULL) != 0)
		return rc;
	return fill_first_page(file, &info->attribute, err);
}

int naos_file_revive(struct naos_sealed_file *file, struct naos_error *err)
{
	if (!file->unborn)
		return 0;
	if (file->mode == NAOS_SEALED_SHARED && naos_file_read_state(file, NULL) == 0) /* another writer did it meanwhile */
		return 0;
	/* sectors of page 0 that are not lost, and pages behind it, would come back if this page 0 were torn in turn */
	int rc = naos_file_store_resize(file, 0, err);
	if (rc == 0)
		rc = file->store->ops->flush(file->store, err);
	return rc ? rc : naos_file_bear(file, err);
}

/* A sealed file's life: probe, create, open, close.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/file.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* --- what needs no key ------------------------------------------------------------------------------------------------ */

/* The attribute: a copy of the wrapped key, and in a new file what page 0 is made of.  If page 0 has no header yet, it gets both here. */
static int probe_attribute(struct naos_store *store, uint8_t page[static NAOS_CHUNK_BYTES], struct naos_sealed_info *ret,
			   struct naos_error *err)
{
	uint8_t value[NAOS_NEW_ATTRIBUTE_BYTES], header[NAOS_SECTOR_BYTES], *slot = page + naos_fek_slot_offset(0);
	struct naos_sealed_header parsed;
	size_t got = 0;
	int rc = store->ops->get_attribute(store, value, sizeof(value), &got, err);
	if (rc != 0 && rc != NAOS_E_INTEGRITY)
		return rc;
	bool birth = rc == 0 && got == sizeof(value), empty = naos_is_zero(page, sizeof(header));
	bool parses = birth || (rc == 0 && got == NAOS_FEK_SLOT_BYTES);
	memcpy(header, page, sizeof(header));
	if (birth) {
		naos_birth_header(value, header);
		parses = empty || memcmp(header, page, sizeof(header)) == 0;
	}
	if (parses && naos_header_decode(header, &parsed, NULL) == 0 &&
	    naos_fek_slot_decode(value, &parsed.file_id, &ret->attribute, NULL) == 0 && ret->attribute.used) {
		ret->newborn = birth;
		ret->unborn = birth && empty;
	} else {
		ret->attribute = (struct naos_fek_slot){ .used = false };
		ret->attribute_damaged = rc != 0 || got != 0;
	}
	if (ret->newborn)
		memcpy(ret->birth, value, sizeof(value));
	if (ret->unborn)
		memcpy(page, header, sizeof(header));
	if (ret->unborn && naos_is_zero(slot, NAOS_FEK_SLOT_BYTES))
		memcpy(slot, value, NAOS_FEK_SLOT_BYTES);
	return 0;
}

static int probe_page(struct naos_store *store, uint8_t page[static NAOS_CHUNK_BYTES], struct naos_sealed_info *ret,
		      struct naos_error *err)
{
	size_t got;
	int rc = store->ops->read(store, page, NAOS_CHUNK_BYTES, 0, &got, err);
	if (rc != 0)
		return rc;
	memset(page + got, 0, NAOS_CHUNK_BYTES - got);
	rc = probe_attribute(store, page, ret, err);
	if (rc != 0)
		return rc;
	if (got < NAOS_CHUNK_BYTES && !ret->unborn)
		return naos_error_set(err, NAOS_E_FORMAT, "%s: not a sealed file (%zu bytes are less than its first page)", store->name,
				      got);
	rc = naos_header_decode(page, &ret->header, err);
	if (rc != 0)
		return naos_error_prefix(err, rc, "%s", store->name);
	for (unsigned i = 0; i < NAOS_FEK_SLOTS; i++)
		if (naos_fek_slot_decode(page + naos_fek_slot_offset(i), &ret->header.file_id, &ret->slots[i], NULL) != 0) {
			ret->slots[i] = (struct naos_fek_slot){ .used = false };
			ret->slot_damaged = true;
		}
	return store->ops->size(store, &ret->physical_bytes, err);
}

int naos_sealed_probe(struct naos_store *store, struct naos_sealed_info *ret, struct naos_error *err)
{
	uint8_t page[NAOS_CHUNK_BYTES];
	struct naos_sealed_info info = { .physical_bytes = 0 };
	int rc = probe_page(store, page, &info, err);
	if (rc == 0)
		*ret = info;
	return rc;
}

/* --- the key ------------------------------------------------------------------------------------------------------------ */

void naos_file_free(struct naos_sealed_file *file)
{
	if (!file)
		return;
	naos_seen_free(&file->seen);
	naos_seen_free(&file->trim);
	naos_gather_clear(&file->gather);
	free(file->filled);
	free(file->unborn);
	free(atomic_load(&file->view));
	(void)naos_file_keys_free(file->keys);
	(void)naos_secret_free(file->fek);
	(void)pthread_mutex_destroy(&file->map_cache.lock);
	(void)pthread_rwlock_destroy(&file->lock);
	file->store->ops->close(file->store);
	free(file);
}

/* Takes the store; NULL and err set if there is no memory. */
static struct naos_sealed_file *file_alloc(struct naos_store *store, enum naos_sealed_mode mode, struct naos_error *err)
{
	struct naos_sealed_file *file = calloc(1, sizeof(*file));
	if (!file) {
		store->ops->close(store);
		(void)naos_error_set(err, NAOS_E_NOMEM, "no memory to open a sealed file");
		return NULL;
	}
	file->store = store;
	file->mode = mode;
	(void)pthread_rwlock_init(&file->lock, NULL);
	(void)pthread_mutex_init(&file->map_cache.lock, NULL);
	return file;
}

/* Derives the keys and compares the commitment: tells a wrong key from damage. */
static int take_fek(struct naos_sealed_file *file, struct naos_secret *fek, struct naos_error *err)
{
	file->fek = fek;
	int rc = naos_file_keys_create(file->header.algorithm, &file->header.file_id, &file->header.fileset_id, fek, &file->keys, err);
	if (rc == 0 && memcmp(naos_file_keys_commit(file->keys), file->header.commit, NAOS_COMMIT_BYTES) != 0)
		rc = naos_error_set(err, NAOS_E_WRONG_KEY, "the key does not match the key commitment in the static header");
	return rc;
}

/* Tries one wrapped key.  *ret_opened false: it can't be unwrapped here, another copy may. */
static int try_slot(struct naos_sealed_file *file, const struct naos_fek_source *source, const struct naos_fek_slot *slot,
		    struct naos_error *err)
{
	const struct naos_wrap_context wrap = {
		.kind = NAOS_WRAP_FILE, .group_id = file->header.fileset_id, .object_id = file->header.file_id,
	};
	struct naos_secret *fek;
	int rc = source->unwrap(source->context, &wrap, &slot->blob, &fek, err);
	if (rc != 0)
		return rc;
	rc = take_fek(file, fek, err);
	if (rc == 0)
		rc = naos_fek_slot_verify(file->keys, slot, err);
	if (rc != 0) {
		file->keys = naos_file_keys_free(file->keys);
		file->fek = naos_secret_free(file->fek);
	}
	return rc;
}

static bool is_damage(int rc)
{
	return rc == NAOS_E_INTEGRITY || rc == NAOS_E_FORMAT || rc == NAOS_E_WRONG_KEY;
}

/* Newest generation first; a copy that can't be unwrapped is passed over for the next, damage is not (unless tolerated). */
static int find_fek(struct naos_sealed_file *file, const struct naos_fek_source *source, const struct naos_sealed_info *info,
		    struct naos_error *err)
{
	const struct naos_fek_slot *order[NAOS_FEK_SLOTS + 1];
	size_t count = 0;
	for (unsigned i = 0; i < NAOS_FEK_SLOTS; i++)
		if (info->slots[i].used)
			order[count++] = &info->slots[i];
	for (size_t i = 1; i < count; i++)
		for (size_t j = i; j > 0 && order[j]->generation > order[j - 1]->generation; j--) {
			const struct naos_fek_slot *swap = order[j];
			order[j] = order[j - 1];
			order[j - 1] = swap;
		}
	/* the attribute only where no slot of the header parses */
	if (info->attribute.used && (count == 0 || source->tolerate_damaged_slots))
		order[count++] = &info->attribute;
	if (count == 0)
		return naos_error_set(err, NAOS_E_INTEGRITY,
				      info->slot_damaged ? "page 0: every slot of the wrapped file key is damaged" :
				      "the wrapped file key is gone from page 0 and from the attribute user.naos.key");
	int rc = 0, damage = 0;
	for (size_t i = 0; i < count; i++) {
		rc = try_slot(file, source, order[i], err);
		if (rc == 0)
			return 0;
		if (is_damage(rc) && !source->tolerate_damaged_slots)
			return rc;
		damage = is_damage(rc) ? rc : damage;
	}
	return damage ? damage : rc;
}

/* With key and state known: every copy of the key must be authentic and not one that was removed. */
static int check_slots(struct naos_sealed_file *file, const struct naos_sealed_info *info, bool tolerate, struct naos_error *err)
{
	if (info->slot_damaged && !tolerate)
		return naos_error_set(err, NAOS_E_INTEGRITY,
				      "page 0: a slot of the wrapped file key is malformed ('naos rewrap --repair' rebuilds it from a good copy)");
	if (info->attribute_damaged && !tolerate)
		return naos_error_set(err, NAOS_E_INTEGRITY,
				      "the attribute user.naos.key is malformed ('naos rewrap --repair' rebuilds it)");
	for (unsigned i = 0; i <= NAOS_FEK_SLOTS; i++) {
		bool attribute = i == NAOS_FEK_SLOTS;
		const struct naos_fek_slot *slot = attribute ? &info->attribute : &info->slots[i];
		if (!slot->used)
			continue;
		int rc = naos_fek_slot_verify(file->keys, slot, err);
		if (rc == 0 && attribute && info->newborn)
			rc = naos_birth_verify(file->keys, info->birth, err);
		if (rc == 0 && slot->generation < file->state.key_generation)
			rc = naos_error_set(err, NAOS_E_INTEGRITY, "%s brings back a wrapped key that was removed",
					    attribute ? "the attribute user.naos.key" : "page 0");
		if (rc != 0 && attribute)
			(void)naos_error_prefix(err, rc, "attribute user.naos.key");
		if (rc != 0 && !tolerate)
			return rc;
		if (rc == 0 && !attribute)
			file->slots[i] = *slot;
	}
	return 0;
}

/* --- open --------------------------------------------------------------------------------------------------------------- */

/* Becomes a writer: alone (recovery if the last one did not seal), or as one more of several (rule 15).  A LOCAL one has its lock. */
static int become_writer(struct naos_sealed_file *file, struct naos_error *err)
{
	const struct naos_store_ops *ops = file->store->ops;
	bool shared = file->mode == NAOS_SEALED_SHARED;
	int rc = shared ? ops->lock(file->store, NAOS_WRITER_LOCK_OFFSET, 1, NAOS_LOCK_EXCLUSIVE, false, err) : 0;
	if (rc == NAOS_E_BUSY && shared) { /* waits while the first one recovers */
		rc = ops->lock(file->store, NAOS_WRITER_LOCK_OFFSET, 1, NAOS_LOCK_SHARED, true, err);
		if (rc == 0)
			rc = ops->lock(file->store, NAOS_STATE_OFFSET, 2 * NAOS_SECTOR_BYTES, NAOS_LOCK_EXCLUSIVE, true, err);
		naos_file_note_time(file);
		if (rc == 0)
			rc = naos_file_read_state(file, err);
		if (rc == 0 && file->state.clean) /* the others left in the meantime */
			rc = naos_file_begin_epoch(file, err);
		struct naos_state next = file->state;
		next.shared = true;
		if (rc == 0 && !file->state.shared)
			rc = naos_file_put_state(file, &next, err);
		if (rc == 0)
			rc = naos_file_store_flush(file, err);
		naos_file_restore_time(file);
		(void)ops->lock(file->store, NAOS_STATE_OFFSET, 2 * NAOS_SECTOR_BYTES, NAOS_UNLOCK, true, NULL);
		return rc;
	}
	if (rc != 0)
		return rc;
	naos_file_note_time(file);
	rc = naos_file_revive(file, err);
	if (rc == 0 && shared)
		rc = naos_file_read_state(file, err);
	if (rc == 0 && !file->state.clean)
		rc = naos_file_recover(file, err);
	if (rc == 0 && shared) {
		rc = naos_file_begin_epoch(file, err);
		naos_file_restore_time(file);
		if (rc == 0)
			rc = ops->lock(file->store, NAOS_WRITER_LOCK_OFFSET, 1, NAOS_LOCK_SHARED, true, err);
	}
	return rc;
}

/* Page 0, the keys that it gives, and its state. */
static int open_first_page(struct naos_sealed_file *file, const struct naos_fek_source *source, uint8_t page[static NAOS_CHUNK_BYTES],
			   struct naos_error *err)
{
	struct naos_sealed_info info = { .physical_bytes = 0 };
	int rc = probe_page(file->store, page, &info, err);
	if (rc != 0)
		return rc; /* names the file already */
	memcpy(file->header_raw, page, sizeof(file->header_raw));
	file->header = info.header;
	if (source->fileset_id && !naos_uuid_equal(source->fileset_id, &info.header.fileset_id))
		rc = naos_error_set(err, NAOS_E_WRONG_KEY, "the file belongs to another file set");
	if (rc == 0 && source->algorithm && source->algorithm != info.header.algorithm)
		rc = naos_error_set(err, NAOS_E_INTEGRITY, "the file uses %s, its file set demands %s",
				    naos_algorithm_name(info.header.algorithm), naos_algorithm_name(source->algorithm));
	if (rc == 0)
		rc = find_fek(file, source, &info, err);
	if (rc != 0)
		return naos_error_prefix(err, rc, "%s", file->store->name);
	rc = info.unborn ? naos_error_set(err, NAOS_E_INTEGRITY, "%s: page 0 is not there", file->store->name) :
			   naos_file_take_state(file, page, NAOS_CHUNK_BYTES, err);
	if (rc == NAOS_E_INTEGRITY && file->mode != NAOS_SEALED_LOCAL && !info.newborn) /* beside a writer half a slot may have been read */
		rc = naos_file_read_state(file, err);
	if (info.newborn)
		rc = naos_file_take_birth(file, &info, page, rc, err);
	if (rc != 0)
		return rc;
	rc = check_slots(file, &info, source->tolerate_damaged_slots, err);
	return rc ? naos_error_prefix(err, rc, "%s", file->store->name) : 0;
}

/* Beside a change of the wrapped key a slot may be read half written, or slots of before with a state of after: damage is what looks
 * the same after a pause. */
static int open_settled_page(struct naos_sealed_file *file, const struct naos_fek_source *source, uint8_t page[static NAOS_CHUNK_BYTES],
			     struct naos_error *err)
{
	uint8_t before[NAOS_CHUNK_BYTES];
	for (unsigned attempt = 0;; attempt++) {
		const struct timespec pause = { .tv_nsec = (attempt + 1) * 500000 };
		int rc = open_first_page(file, source, page, err);
		bool same = attempt > 0 && memcmp(page, before, sizeof(before)) == 0;
		if (!is_damage(rc) || file->mode == NAOS_SEALED_LOCAL || same || attempt == NAOS_FOLLOW_ATTEMPTS)
			return rc;
		memcpy(before, page, sizeof(before));
		file->keys = naos_file_keys_free(file->keys);
		file->fek = naos_secret_free(file->fek);
		memset(file->slots, 0, sizeof(file->slots));
		(void)nanosleep(&pause, NULL);
	}
}

/* A lock on the whole file finds its size when no change is half done. */
static int nothing(struct naos_sealed_file *file, void *context, struct naos_error *err)
{
	return 0;
}

static int open_file(struct naos_sealed_file *file, const struct naos_fek_source *source, struct naos_error *err)
{
	uint8_t page[NAOS_CHUNK_BYTES] = { 0 };
	/* a LOCAL writer takes its lock first: what it reads then stays so */
	int rc = file->mode != NAOS_SEALED_LOCAL ? 0 :
		 file->store->ops->lock(file->store, NAOS_WRITER_LOCK_OFFSET, 1, NAOS_LOCK_EXCLUSIVE, false, err);
	if (rc == 0)
		rc = open_settled_page(file, source, page, err);
	if (rc != 0)
		return rc;
	if (file->mode == NAOS_SEALED_LOCAL)
		naos_file_seed_view(file, file->unborn ? file->unborn : page);
	file->epoch = file->state.epoch;
	file->maybe_sparse = !file->state.clean || file->state.sparse;
	if (file->mode != NAOS_SEALED_READ)
		rc = become_writer(file, err);
	file->epoch = file->state.epoch;
	file->sealed_epoch = file->state.sealed_epoch;
	file->maybe_sparse = !file->state.clean || file->state.sparse;
	if (rc == 0)
		rc = naos_file_extent(file, &file->size, err);
	if (rc == NAOS_E_INTEGRITY && file->mode == NAOS_SEALED_SHARED)
		rc = naos_file_whole(file, nothing, NULL, err);
	bool settled = false;
	for (unsigned i = 0; rc == NAOS_E_INTEGRITY && file->mode == NAOS_SEALED_READ && !settled && i < NAOS_FOLLOW_ATTEMPTS; i++) {
		int followed = naos_file_follow(file, i, &settled, err);
		rc = settled ? rc : followed;
	}
	return rc;
}

int naos_sealed_file_open(struct naos_store *store, enum naos_sealed_mode mode, const struct naos_fek_source *source,
			  struct naos_sealed_file **ret, struct naos_error *err)
{
	struct naos_sealed_file *file = file_alloc(store, mode, err);
	if (!file)
		return NAOS_E_NOMEM;
	int rc = open_file(file, source, err);
	if (rc != 0) {
		naos_file_free(file);
		return rc;
	}
	*ret = file;
	return 0;
}

/* --- create ------------------------------------------------------------------------------------------------------------- */

static int create_file(struct naos_sealed_file *file, const struct naos_sealed_new *what, struct naos_error *err)
{
	struct naos_secret *fek;
	file->header = (struct naos_sealed_header){
		.algorithm = what->algorithm, .file_id = what->file_id, .fileset_id = what->fileset_id,
	};
	int rc = naos_secret_clone(what->fek, &fek, err);
	if (rc != 0)
		return rc;
	file->fek = fek;
	rc = naos_file_keys_create(what->algorithm, &what->file_id, &what->fileset_id, fek, &file->keys, err);
	if (rc != 0)
		return rc;
	memcpy(file->header.commit, naos_file_keys_commit(file->keys), NAOS_COMMIT_BYTES);
	naos_header_encode(&file->header, file->header_raw);
	file->slots[0] = (struct naos_fek_slot){ .used = true, .generation = 1, .blob = *what->blob };
	rc = naos_fek_slot_encode(file->keys, &what->file_id, &file->slots[0], err);
	file->unpublished = what->unpublished;
	if (rc == 0 && !what->unpublished)
		rc = file->store->ops->lock(file->store, NAOS_WRITER_LOCK_OFFSET, 1,
					    what->mode == NAOS_SEALED_SHARED ? NAOS_LOCK_SHARED : NAOS_LOCK_EXCLUSIVE, false, err);
	if (rc == 0)
		rc = naos_file_make_first_page(file, what->lazy && what->mode == NAOS_SEALED_LOCAL, err);
	file->epoch = file->state.epoch;
	file->dirty = true;
	return rc;
}

int naos_sealed_file_create(struct naos_store *store, const struct naos_sealed_new *what, struct naos_sealed_file **ret,
			    struct naos_error *err)
{
	struct naos_sealed_file *file = file_alloc(store, what->mode, err);
	if (!file)
		return NAOS_E_NOMEM;
	int rc = create_file(file, what, err);
	if (rc != 0) {
		naos_file_free(file);
		return rc;
	}
	*ret = file;
	return 0;
}

/* --- what a file says of itself ----------------------------------------------------------------------------------------- */

uint64_t naos_sealed_file_size(struct naos_sealed_file *file)
{
	bool follow = file->mode == NAOS_SEALED_SHARED;
	(void)(follow ? pthread_rwlock_wrlock(&file->lock) : pthread_rwlock_rdlock(&file->lock));
	/* on failure the last known size stands; reading reports the reason */
	int rc = follow ? naos_file_refresh(file, NULL) : 0;
	uint64_t size = file->size;
	(void)rc;
	(void)pthread_rwlock_unlock(&file->lock);
	return size;
}

const struct naos_sealed_header *naos_sealed_file_header(const struct naos_sealed_file *file)
{
	return &file->header;
}

bool naos_sealed_file_recovered(const struct naos_sealed_file *file)
{
	return file->recovered;
}

bool naos_sealed_file_clean(struct naos_sealed_file *file)
{
	(void)pthread_rwlock_rdlock(&file->lock);
	bool clean = file->state.clean;
	(void)pthread_rwlock_unlock(&file->lock);
	return clean;
}

bool naos_sealed_file_sparse(const struct naos_sealed_file *file)
{
	return file->maybe_sparse;
}

struct naos_store *naos_sealed_file_store(struct naos_sealed_file *file)
{
	return file->store;
}

const struct naos_secret *naos_sealed_file_fek(const struct naos_sealed_file *file)
{
	return file->fek;
}

/* Looking at a sealed file without a key: the same checks as with one, but for authenticity.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/inspect.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/io.h"
#include "seal/file.h"

#define ATTEMPTS 4 /* beside a writer a first look may meet half a change */
#define PAUSE_NS 20000000
#define MAGIC_BYTES 8

bool naos_sealed_has_writer(int fd)
{
	struct flock range = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)NAOS_WRITER_LOCK_OFFSET, .l_len = 1,
	};
	return fcntl(fd, F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}

bool naos_sealed_is_unborn(int fd)
{
	static const char magic[MAGIC_BYTES] = { 'N', 'A', 'O', 'S', 'S', 'F', '1', '\n' };
	uint8_t page[NAOS_CHUNK_BYTES];
	size_t got = 0;
	if (naos_io_pread(fd, page, sizeof(page), 0, &got, "", NULL) != 0)
		return false;
	/* a whole page that has the magic is damaged, not unborn */
	return naos_is_zero(page, got) ||
	       (got < sizeof(page) && memcmp(page, magic, got < sizeof(magic) ? got : sizeof(magic)) == 0);
}

bool naos_sealed_copies_agree(const struct naos_sealed_info *info)
{
	bool any = false;
	if (info->slot_damaged || info->attribute_damaged || !info->attribute.used)
		return false;
	for (unsigned i = 0; i < NAOS_FEK_SLOTS; i++)
		any |= info->slots[i].used && memcmp(info->slots[i].raw, info->attribute.raw, NAOS_FEK_SLOT_BYTES) == 0;
	return any;
}

static int check_copies(const struct naos_sealed_info *info, uint32_t key_generation, struct naos_error *err)
{
	unsigned used = 0;
	if (info->slot_damaged)
		return naos_error_set(err, NAOS_E_INTEGRITY, "page 0: a slot of the wrapped file key is damaged");
	if (info->attribute_damaged)
		return naos_error_set(err, NAOS_E_INTEGRITY, "the attribute user.naos.key is malformed");
	for (unsigned i = 0; i < NAOS_FEK_SLOTS; i++) {
		used += info->slots[i].used;
		if (info->slots[i].used && info->slots[i].generation < key_generation)
			return naos_error_set(err, NAOS_E_INTEGRITY, "page 0 brings back a wrapped key that was removed");
	}
	if (used == 0 && !info->attribute.used)
		return naos_error_set(err, NAOS_E_INTEGRITY,
				      "the wrapped file key is gone from page 0 and from the attribute user.naos.key");
	if (used && info->attribute.used && !naos_sealed_copies_agree(info))
		return naos_error_set(err, NAOS_E_INTEGRITY, "the attribute user.naos.key is none of the wrapped keys of page 0");
	return 0;
}

static int check_demand(const struct naos_sealed_header *header, const struct naos_inspect_demand *demand, struct naos_error *err)
{
	char id[NAOS_UUID_TEXT_BYTES];
	if (demand->fileset_id && !naos_uuid_equal(demand->fileset_id, &header->fileset_id))
		return naos_error_set(err, NAOS_E_WRONG_KEY, "it belongs to another file set, %s",
				      naos_uuid_format(&header->fileset_id, id));
	if (demand->algorithm && demand->algorithm != header->algorithm)
		return naos_error_set(err, NAOS_E_INTEGRITY, "it uses %s, its file set demands %s", naos_algorithm_name(header->algorithm),
				      naos_algorithm_name(demand->algorithm));
	return 0;
}

/* In an unclean file at least what was durable is there; extent() says the rest. */
static int check_length(struct naos_sealed_file *file, struct naos_error *err)
{
	uint64_t physical, durable = naos_layout_physical(file->state.durable_size);
	int rc = file->store->ops->size(file->store, &physical, err);
	if (rc == 0 && !file->state.clean && physical < durable)
		rc = naos_error_set(err, NAOS_E_INTEGRITY, "%s: the file has %llu bytes, its last flush made it %llu: it was truncated",
				    file->store->name, (unsigned long long)physical, (unsigned long long)durable);
	return rc;
}

/* A slot of zeros: it is lost, not changed. */
static bool lacks_state(const uint8_t page[static NAOS_CHUNK_BYTES])
{
	return naos_is_zero(page + NAOS_STATE_OFFSET, NAOS_SECTOR_BYTES) ||
	       naos_is_zero(page + NAOS_STATE_OFFSET + NAOS_SECTOR_BYTES, NAOS_SECTOR_BYTES);
}

static int look(struct naos_sealed_file *file, const struct naos_inspect_demand *demand, struct naos_error *err)
{
	struct naos_sealed_info info;
	uint8_t page[NAOS_CHUNK_BYTES];
	size_t got;
	int rc = naos_sealed_probe(file->store, &info, err);
	if (rc != 0)
		return rc;
	file->header = info.header;
	rc = file->store->ops->read(file->store, page, sizeof(page), 0, &got, err);
	if (rc == 0 && got < sizeof(page))
		rc = naos_error_set(err, NAOS_E_INTEGRITY, "page 0 is cut off");
	if (rc == 0)
		rc = naos_state_pick(NULL, page, &file->state, err);
	bool unborn = info.unborn || (rc == NAOS_E_INTEGRITY && info.newborn && lacks_state(page));
	if (unborn) { /* page 0 never became durable: an empty file, which its next writer recovers */
		file->state = (struct naos_state){ .clean = false };
		rc = 0;
	}
	if (rc == 0)
		rc = check_demand(&info.header, demand, err);
	if (rc == 0)
		rc = check_copies(&info, file->state.key_generation, err);
	if (rc != 0)
		return naos_error_prefix(err, rc, "%s", file->store->name);
	file->size = 0;
	if (unborn)
		return 0;
	file->epoch = file->state.epoch;
	file->sealed_epoch = file->state.sealed_epoch;
	file->maybe_sparse = !file->state.clean || file->state.sparse;
	file->map_cache.valid = false;
	rc = check_length(file, err);
	if (rc == 0)
		rc = naos_file_extent(file, &file->size, err);
	return rc ? rc : naos_sealed_file_verify(file, err);
}

int naos_sealed_inspect(struct naos_store *store, const struct naos_inspect_demand *demand, bool *ret_clean, uint64_t *ret_size,
			struct naos_error *err)
{
	const struct timespec pause = { .tv_nsec = PAUSE_NS };
	naos_autofree struct naos_sealed_file *file = calloc(1, sizeof(*file));
	int rc = 0;
	if (!file)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to look at %s", store->name);
	file->store = store;
	file->mode = NAOS_SEALED_READ;
	(void)pthread_rwlock_init(&file->lock, NULL);
	(void)pthread_mutex_init(&file->map_cache.lock, NULL);
	for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
		rc = look(file, demand, err);
		if (rc != NAOS_E_INTEGRITY)
			break;
		(void)nanosleep(&pause, NULL);
	}
	if (rc == 0) {
		*ret_clean = file->state.clean;
		*ret_size = file->size;
	}
	(void)pthread_mutex_destroy(&file->map_cache.lock);
	(void)pthread_rwlock_destroy(&file->lock);
	return rc;
}

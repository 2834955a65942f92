/* The recording disk and its store.  SPDX-License-Identifier: Apache-2.0 */
#include "disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

struct rng rng_seed(uint64_t seed)
{
	struct rng rng = { seed };
	return (struct rng){ rng_next(&rng) }; /* mixed, or one seed's numbers would be the next one's, shifted */
}

uint64_t rng_next(struct rng *rng)
{
	uint64_t x = rng->state += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

enum page_kind disk_page_kind(uint64_t page)
{
	if (page < naos_layout_map_page(0))
		return page ? PAGE_DATA : PAGE_SECTORS;
	uint64_t in_map = (page - naos_layout_map_page(0)) % ((uint64_t)NAOS_MAP_GROUPS * (1 + NAOS_GROUP_CHUNKS) + 1);
	return in_map == 0 ? PAGE_MAP : (in_map - 1) % (1 + NAOS_GROUP_CHUNKS) == 0 ? PAGE_SECTORS : PAGE_DATA;
}

/* --- contents --------------------------------------------------------------------------------------------------------- */

static void content_room(struct content *content, uint64_t page)
{
	if (page < content->room)
		return;
	size_t room = (size_t)page + 64 + (size_t)page / 2;
	content->pages = must(reallocarray(content->pages, room, sizeof(*content->pages)));
	memset(content->pages + content->room, 0, (room - content->room) * sizeof(*content->pages));
	content->room = room;
}

static void content_put(struct content *content, uint64_t page, unsigned first, unsigned bytes, const uint8_t *data)
{
	if (page >= content->room && !data)
		return;
	content_room(content, page);
	if (!content->pages[page]) {
		if (!data)
			return;
		content->pages[page] = must(calloc(1, NAOS_CHUNK_BYTES));
	}
	if (data)
		memcpy(content->pages[page] + first, data, bytes);
	else
		memset(content->pages[page] + first, 0, bytes);
}

static struct content content_copy(const struct content *from)
{
	struct content to = { .room = from->room, .bytes = from->bytes };
	to.pages = from->room ? must(calloc(from->room, sizeof(*to.pages))) : NULL;
	for (size_t i = 0; i < from->room; i++)
		if (from->pages[i]) {
			to.pages[i] = must(malloc(NAOS_CHUNK_BYTES));
			memcpy(to.pages[i], from->pages[i], NAOS_CHUNK_BYTES);
		}
	return to;
}

static void content_free(struct content *content)
{
	for (size_t i = 0; i < content->room; i++)
		free(content->pages[i]);
	free(content->pages);
	*content = (struct content){ 0 };
}

/* Nothing lies behind the end. */
static void content_cut(struct content *content)
{
	for (uint64_t page = content->bytes / NAOS_CHUNK_BYTES; page < content->room; page++) {
		if (!content->pages[page])
			continue;
		unsigned keep = page == content->bytes / NAOS_CHUNK_BYTES ? (unsigned)(content->bytes % NAOS_CHUNK_BYTES) : 0;
		memset(content->pages[page] + keep, 0, NAOS_CHUNK_BYTES - keep);
	}
}

/* --- the disk ----------------------------------------------------------------------------------------------------------- */

struct disk *disk_new(void)
{
	return must(calloc(1, sizeof(struct disk)));
}

static struct record *add_record(struct disk *disk)
{
	if (disk->log_count == disk->log_room) {
		disk->log_room = disk->log_room ? 2 * disk->log_room : 64;
		disk->log = must(reallocarray(disk->log, disk->log_room, sizeof(*disk->log)));
	}
	struct record *record = &disk->log[disk->log_count++];
	*record = (struct record){ .call = disk->calls };
	return record;
}

static void clear_log(struct disk *disk)
{
	for (size_t i = 0; i < disk->log_count; i++)
		free(disk->log[i].data);
	disk->log_count = 0;
}

struct disk *disk_copy(const struct disk *disk)
{
	struct disk *copy = disk_new();
	copy->now = content_copy(&disk->now);
	copy->durable = content_copy(&disk->durable);
	for (size_t i = 0; i < disk->log_count; i++) {
		struct record *record = add_record(copy);
		*record = disk->log[i];
		if (record->data) {
			record->data = must(malloc(record->bytes));
			memcpy(record->data, disk->log[i].data, record->bytes);
		}
	}
	copy->attribute = disk->attribute;
	copy->durable_attribute = disk->durable_attribute;
	copy->written_out = disk->written_out;
	copy->calls = disk->calls;
	return copy;
}

struct disk *disk_free(struct disk *disk)
{
	if (!disk)
		return NULL;
	clear_log(disk);
	content_free(&disk->now);
	content_free(&disk->durable);
	for (size_t i = 0; disk->history && i < disk->history->count; i++)
		free(disk->history->versions[i].data);
	if (disk->history)
		free(disk->history->versions);
	free(disk->history);
	free(disk->log);
	free(disk->locks);
	free(disk);
	return NULL;
}

void disk_keep_history(struct disk *disk)
{
	disk->history = must(calloc(1, sizeof(*disk->history)));
}

static void remember(struct disk_history *history, const struct content *content, uint64_t page)
{
	if (!history || page >= content->room || !content->pages[page])
		return;
	if (history->count == history->room) {
		history->room = history->room ? 2 * history->room : 64;
		history->versions = must(reallocarray(history->versions, history->room, sizeof(*history->versions)));
	}
	history->versions[history->count].page = page;
	history->versions[history->count].data = must(malloc(NAOS_CHUNK_BYTES));
	memcpy(history->versions[history->count++].data, content->pages[page], NAOS_CHUNK_BYTES);
}

/* Writes (data NULL: zeroes) a range that lies inside the file. */
static void change(struct disk *disk, uint64_t offset, uint64_t bytes, const uint8_t *data)
{
	while (bytes) {
		uint64_t page = offset / NAOS_CHUNK_BYTES;
		unsigned first = (unsigned)(offset % NAOS_CHUNK_BYTES);
		unsigned step = NAOS_CHUNK_BYTES - first < bytes ? NAOS_CHUNK_BYTES - first : (unsigned)bytes;
		if (data || (page < disk->now.room && disk->now.pages[page])) {
			struct record *record = add_record(disk);
			record->page = page;
			record->first = first;
			record->bytes = step;
			if (data) {
				record->data = must(malloc(step));
				memcpy(record->data, data, step);
			}
			content_put(&disk->now, page, first, step, data);
			remember(disk->history, &disk->now, page);
		} else if (!data && page >= disk->now.room) {
			break;
		}
		offset += step;
		bytes -= step;
		data = data ? data + step : NULL;
	}
}

static void set_length(struct disk *disk, uint64_t length)
{
	if (length == disk->now.bytes)
		return;
	if (length < disk->now.bytes)
		change(disk, length, disk->now.bytes - length, NULL);
	disk->now.bytes = length;
	struct record *record = add_record(disk);
	record->kind = RECORD_LENGTH;
	record->page = DISK_LENGTH;
	record->length = length;
}

static void made_durable(struct disk *disk)
{
	for (size_t i = 0; i < disk->log_count; i++) {
		const struct record *record = &disk->log[i];
		if (record->kind == RECORD_LENGTH)
			disk->durable.bytes = record->length;
		else if (record->kind == RECORD_PAGE)
			content_put(&disk->durable, record->page, record->first, record->bytes, record->data);
	}
	disk->durable_attribute = disk->attribute;
	disk->written_out = 0;
	clear_log(disk);
}

static void tell(struct disk *disk, enum disk_event event, const struct naos_store *store, uint64_t offset, uint64_t bytes)
{
	if (disk->hook)
		disk->hook(disk->context, disk, event, store, offset, bytes);
}

/* --- what a power cut leaves ------------------------------------------------------------------------------------------------- */

struct touch {
	uint64_t page;
	unsigned first, bytes;
	size_t record;
};

static int by_unit(const void *left, const void *right)
{
	const struct touch *a = left, *b = right;
	if (a->page != b->page)
		return a->page < b->page ? -1 : 1;
	if (a->first != b->first)
		return a->first < b->first ? -1 : 1;
	return a->record < b->record ? -1 : a->record > b->record;
}

void disk_units(const struct disk *disk, bool torn, struct units *ret)
{
	size_t room = disk->log_count * (NAOS_CHUNK_BYTES / NAOS_SECTOR_BYTES) + 1, used = 0;
	struct touch *touches = must(calloc(room, sizeof(*touches)));
	for (size_t i = 0; i < disk->log_count; i++) {
		const struct record *record = &disk->log[i];
		if (record->kind != RECORD_PAGE || !torn || disk_page_kind(record->page) != PAGE_SECTORS) {
			touches[used++] = (struct touch){ record->page, 0, NAOS_CHUNK_BYTES, i };
			continue;
		}
		unsigned from = record->first / NAOS_SECTOR_BYTES, to = (record->first + record->bytes - 1) / NAOS_SECTOR_BYTES;
		for (unsigned sector = from; sector <= to; sector++)
			touches[used++] = (struct touch){ record->page, sector * NAOS_SECTOR_BYTES, NAOS_SECTOR_BYTES, i };
	}
	qsort(touches, used, sizeof(*touches), by_unit);
	*ret = (struct units){ .list = must(calloc(used + 1, sizeof(*ret->list))), .storage = must(calloc(used + 1, sizeof(size_t))) };
	for (size_t i = 0; i < used; i++) {
		if (i == 0 || touches[i].page != touches[i - 1].page || touches[i].first != touches[i - 1].first)
			ret->list[ret->count++] = (struct unit){ touches[i].page, touches[i].first, touches[i].bytes, &ret->storage[i], 0 };
		ret->storage[i] = touches[i].record;
		ret->list[ret->count - 1].count++;
	}
	free(touches);
}

void units_free(struct units *units)
{
	free(units->list);
	free(units->storage);
}

/* The part of a record that falls into a unit. */
static void apply(struct disk *image, const struct record *record, const struct unit *unit)
{
	if (record->kind == RECORD_LENGTH)
		image->durable.bytes = record->length;
	if (record->kind == RECORD_ATTRIBUTE) {
		image->attribute.bytes = record->bytes;
		memcpy(image->attribute.value, record->data, record->bytes);
	}
	if (record->kind != RECORD_PAGE)
		return;
	unsigned from = record->first > unit->first ? record->first : unit->first;
	unsigned end = record->first + record->bytes, unit_end = unit->first + unit->bytes, to = end < unit_end ? end : unit_end;
	if (from < to)
		content_put(&image->durable, record->page, from, to - from, record->data ? record->data + (from - record->first) : NULL);
}

/* Records before these took place whatever the choice: `journal` lengths and attributes, `pages` all others. */
static void find_bounds(const struct disk *disk, const struct units *units, const size_t *choice, size_t *ret_journal, size_t *ret_pages)
{
	size_t journal = 0, pages = 0;
	for (size_t i = 0; i < units->count; i++)
		if (units->list[i].page >= DISK_ATTRIBUTE && choice[i] && units->list[i].records[choice[i] - 1] >= journal)
			journal = units->list[i].records[choice[i] - 1] + 1;
	for (size_t i = 0; i < journal; i++)
		if (disk->log[i].kind == RECORD_ATTRIBUTE && disk->log[i].follows > pages)
			pages = disk->log[i].follows;
	*ret_pages = pages;
	*ret_journal = journal > pages ? journal : pages; /* what is written out has its length */
}

struct disk *disk_image(const struct disk *disk, const struct units *units, const size_t *choice)
{
	struct disk *image = disk_new();
	size_t journal, pages;
	find_bounds(disk, units, choice, &journal, &pages);
	image->durable = content_copy(&disk->durable);
	image->attribute = disk->durable_attribute;
	for (size_t i = 0; i < units->count; i++) {
		const struct unit *unit = &units->list[i];
		size_t bound = unit->page >= DISK_ATTRIBUTE ? journal : pages;
		for (size_t j = 0; j < unit->count && (j < choice[i] || unit->records[j] < bound); j++)
			apply(image, &disk->log[unit->records[j]], unit);
	}
	content_cut(&image->durable);
	image->now = content_copy(&image->durable);
	image->durable_attribute = image->attribute;
	return image;
}

/* --- the store ---------------------------------------------------------------------------------------------------------------- */

struct disk_store {
	struct naos_store store;
	struct disk *disk;
	bool doomed;
};

static struct disk *disk_of(struct naos_store *store)
{
	return ((struct disk_store *)store)->disk;
}

static int gone(struct naos_store *store, struct naos_error *err)
{
	return ((struct disk_store *)store)->doomed ? naos_error_set(err, NAOS_E_SYSTEM, "the process is dead (planted)") : 0;
}

static int store_read(struct naos_store *store, void *buffer, size_t bytes, uint64_t offset, size_t *ret_bytes, struct naos_error *err)
{
	const struct content *now = &disk_of(store)->now;
	int rc = gone(store, err);
	uint64_t left = offset < now->bytes ? now->bytes - offset : 0;
	size_t got = left < bytes ? (size_t)left : bytes;
	for (size_t done = 0; rc == 0 && done < got;) {
		uint64_t page = (offset + done) / NAOS_CHUNK_BYTES;
		size_t first = (size_t)((offset + done) % NAOS_CHUNK_BYTES);
		size_t step = NAOS_CHUNK_BYTES - first < got - done ? NAOS_CHUNK_BYTES - first : got - done;
		if (page < now->room && now->pages[page])
			memcpy((uint8_t *)buffer + done, now->pages[page] + first, step);
		else
			memset((uint8_t *)buffer + done, 0, step);
		done += step;
	}
	if (rc == 0)
		*ret_bytes = got;
	return rc;
}

static int store_write(struct naos_store *store, const void *buffer, size_t bytes, uint64_t offset, struct naos_error *err)
{
	struct disk *disk = disk_of(store);
	int rc = gone(store, err);
	if (rc != 0)
		return rc;
	disk->calls++;
	disk->changes++;
	change(disk, offset, bytes, buffer);
	if (offset + bytes > disk->now.bytes)
		set_length(disk, offset + bytes);
	tell(disk, DISK_WRITE, store, offset, bytes);
	return 0;
}

static int store_flush(struct naos_store *store, struct naos_error *err)
{
	struct disk *disk = disk_of(store);
	int rc = gone(store, err);
	if (rc != 0)
		return rc;
	disk->calls++;
	tell(disk, DISK_FLUSH, store, 0, 0);
	rc = gone(store, err); /* it may have died at this point */
	if (rc != 0)
		return rc;
	disk->flushes++;
	made_durable(disk);
	return 0;
}

static int store_resize(struct naos_store *store, uint64_t bytes, struct naos_error *err)
{
	struct disk *disk = disk_of(store);
	int rc = gone(store, err);
	if (rc != 0)
		return rc;
	if (bytes == disk->now.bytes)
		return 0;
	disk->calls++;
	disk->changes++;
	set_length(disk, bytes);
	tell(disk, DISK_RESIZE, store, bytes, 0);
	return 0;
}

static int store_size(struct naos_store *store, uint64_t *ret_bytes, struct naos_error *err)
{
	int rc = gone(store, err);
	if (rc == 0)
		*ret_bytes = disk_of(store)->now.bytes;
	return rc;
}

static int store_deallocate(struct naos_store *store, uint64_t offset, uint64_t bytes, struct naos_error *err)
{
	struct disk *disk = disk_of(store);
	int rc = gone(store, err);
	if (rc != 0)
		return rc;
	disk->calls++;
	uint64_t left = offset < disk->now.bytes ? disk->now.bytes - offset : 0;
	size_t before = disk->log_count;
	change(disk, offset, bytes < left ? bytes : left, NULL);
	if (disk->log_count == before) /* nothing was there */
		return 0;
	disk->changes++;
	tell(disk, DISK_DEALLOCATE, store, offset, bytes);
	return 0;
}

static int store_next_data(struct naos_store *store, uint64_t offset, uint64_t *ret_offset, struct naos_error *err)
{
	const struct content *now = &disk_of(store)->now;
	int rc = gone(store, err);
	if (rc != 0)
		return rc;
	*ret_offset = UINT64_MAX;
	for (uint64_t page = offset / NAOS_CHUNK_BYTES; page < now->room && page * NAOS_CHUNK_BYTES < now->bytes; page++)
		if (now->pages[page]) {
			*ret_offset = page * NAOS_CHUNK_BYTES > offset ? page * NAOS_CHUNK_BYTES : offset;
			break;
		}
	return 0;
}

static void add_lock(struct disk *disk, struct disk_lock lock)
{
	if (disk->lock_count == disk->lock_room) {
		disk->lock_room = disk->lock_room ? 2 * disk->lock_room : 8;
		disk->locks = must(reallocarray(disk->locks, disk->lock_room, sizeof(*disk->locks)));
	}
	disk->locks[disk->lock_count++] = lock;
}

/* Takes [from, to) away from what owner holds. */
static void drop_locks(struct disk *disk, const struct naos_store *owner, uint64_t from, uint64_t to)
{
	for (size_t i = 0; i < disk->lock_count;) {
		struct disk_lock lock = disk->locks[i];
		if (lock.owner != owner || lock.to <= from || lock.from >= to) {
			i++;
			continue;
		}
		disk->locks[i] = disk->locks[--disk->lock_count];
		if (lock.from < from)
			add_lock(disk, (struct disk_lock){ owner, lock.from, from, lock.exclusive });
		if (lock.to > to)
			add_lock(disk, (struct disk_lock){ owner, to, lock.to, lock.exclusive });
	}
}

static int store_lock(struct naos_store *store, uint64_t offset, uint64_t bytes, enum naos_lock lock, bool wait, struct naos_error *err)
{
	struct disk *disk = disk_of(store);
	uint64_t to = offset + bytes;
	int rc = gone(store, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; lock != NAOS_UNLOCK && i < disk->lock_count; i++) {
		const struct disk_lock *other = &disk->locks[i];
		if (other->owner == store || other->to <= offset || other->from >= to)
			continue;
		if (!other->exclusive && lock == NAOS_LOCK_SHARED)
			continue;
		if (wait) /* operations of one thread never wait for each other: somebody left a lock behind */
			violation("a lock of [%llu, %llu) would wait for ever", (unsigned long long)offset, (unsigned long long)to);
		return naos_error_set(err, NAOS_E_BUSY, "%s is being written by another process", store->name);
	}
	drop_locks(disk, store, offset, to);
	if (lock != NAOS_UNLOCK)
		add_lock(disk, (struct disk_lock){ store, offset, to, lock == NAOS_LOCK_EXCLUSIVE });
	return 0;
}

static int store_get_attribute(struct naos_store *store, void *value, size_t room, size_t *ret_bytes, struct naos_error *err)
{
	struct disk *disk = disk_of(store);
	memcpy(value, disk->attribute.value, disk->attribute.bytes < room ? disk->attribute.bytes : room);
	*ret_bytes = disk->attribute.bytes;
	return gone(store, err);
}

static int store_set_attribute(struct naos_store *store, const void *value, size_t bytes, struct naos_error *err)
{
	struct disk *disk = disk_of(store);
	int rc = gone(store, err);
	if (rc != 0)
		return rc;
	if (bytes > sizeof(disk->attribute.value))
		violation("an attribute of %zu bytes", bytes);
	struct record *record = add_record(disk);
	record->kind = RECORD_ATTRIBUTE;
	record->page = DISK_ATTRIBUTE;
	record->bytes = (unsigned)bytes;
	record->follows = disk->written_out;
	record->data = must(malloc(bytes + 1));
	memcpy(record->data, value, bytes);
	memcpy(disk->attribute.value, value, bytes);
	disk->attribute.bytes = bytes;
	return 0;
}

static int store_write_out(struct naos_store *store, struct naos_error *err)
{
	disk_of(store)->written_out = disk_of(store)->log_count;
	return gone(store, err);
}

static void store_close(struct naos_store *store)
{
	drop_locks(disk_of(store), store, 0, UINT64_MAX);
	free(store);
}

static const struct naos_store_ops store_ops = {
	.read = store_read, .write = store_write, .flush = store_flush, .resize = store_resize, .size = store_size,
	.deallocate = store_deallocate, .next_data = store_next_data, .lock = store_lock,
	.get_attribute = store_get_attribute, .set_attribute = store_set_attribute, .write_out = store_write_out,
	.close = store_close,
};

struct naos_store *disk_store(struct disk *disk)
{
	struct disk_store *store = must(calloc(1, sizeof(*store)));
	*store = (struct disk_store){ .store = { .ops = &store_ops, .name = "disk" }, .disk = disk };
	return &store->store;
}

void disk_store_doom(struct naos_store *store)
{
	((struct disk_store *)store)->doomed = true;
}

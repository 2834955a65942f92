/* A file whose every write, since the last flush, is remembered: what a power cut may leave of it, and a store on it.
 *
 * The crash model (tests/model/README.md): each page, and the file's length, independently holds any version written since the last
 * flush; with `torn` the 512-byte sectors of page 0 and of tag pages do so independently too.  Lengths and the
 * attribute become durable in their order, as in a journal; an attribute not before what was written out before it was set.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_TESTS_CRASH_DISK_H
#define NAOS_TESTS_CRASH_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "seal/page0.h"
#include "seal/store.h"

struct rng {
	uint64_t state;
};
struct rng rng_seed(uint64_t seed);
uint64_t rng_next(struct rng *rng);
/* 0 … limit - 1 */
static inline uint64_t rng_below(struct rng *rng, uint64_t limit)
{
	return rng_next(rng) % limit;
}

/* The contents of a file, page by page; a page that was never written is NULL. */
struct content {
	uint8_t **pages;
	size_t room;
	uint64_t bytes;
};

/* A part of one page was written (data NULL: zeroed), or the length changed, or the attribute was set (data). */
enum record_kind { RECORD_PAGE, RECORD_LENGTH, RECORD_ATTRIBUTE };
struct record {
	enum record_kind kind;
	unsigned call; /* number of the store call since the disk was made */
	uint64_t page;
	unsigned first, bytes;
	uint8_t *data;
	uint64_t length;
	size_t follows; /* an attribute: as many records were written out before */
};

struct disk_attribute {
	uint8_t value[NAOS_NEW_ATTRIBUTE_BYTES];
	size_t bytes;
};

enum disk_event { DISK_WRITE, DISK_RESIZE, DISK_DEALLOCATE, DISK_FLUSH };

struct disk_lock {
	const struct naos_store *owner;
	uint64_t from, to;
	bool exclusive;
};

struct disk {
	struct content now, durable;
	struct record *log; /* since the last flush */
	size_t log_count, log_room;
	struct disk_attribute attribute, durable_attribute;
	size_t written_out; /* so many records of the log */
	unsigned calls, flushes, changes;
	struct disk_lock *locks;
	size_t lock_count, lock_room;
	/* Called after each change, and before each flush takes effect. */
	void (*hook)(void *context, struct disk *disk, enum disk_event event, const struct naos_store *store, uint64_t offset, uint64_t bytes);
	void *context;
	/* Every version that a page had, for attacks after a clean close (NULL unless kept). */
	struct disk_history *history;
};

struct disk_history {
	struct {
		uint64_t page;
		uint8_t *data;
	} *versions;
	size_t count, room;
};

struct disk *disk_new(void);
/* What is in the cache, what is durable and what was written since, but no locks: its processes died. */
struct disk *disk_copy(const struct disk *disk);
struct disk *disk_free(struct disk *disk);
void disk_keep_history(struct disk *disk);

/* A process's view of the file.  After `doom` its calls fail and change nothing. */
struct naos_store *disk_store(struct disk *disk);
void disk_store_doom(struct naos_store *store);

/* What a power cut may leave.  A unit is a page, or a sector, or the length (page DISK_LENGTH), or the attribute. */
#define DISK_LENGTH UINT64_MAX
#define DISK_ATTRIBUTE (UINT64_MAX - 1)
struct unit {
	uint64_t page;
	unsigned first, bytes;
	size_t *records; /* that touch it, ascending */
	size_t count;
};
struct units {
	struct unit *list;
	size_t count;
	size_t *storage;
};
void disk_units(const struct disk *disk, bool torn, struct units *ret);
void units_free(struct units *units);
/* choice[i]: how many of the unit's records took place.  What must have taken place before those is there too. */
struct disk *disk_image(const struct disk *disk, const struct units *units, const size_t *choice);

/* Page 0 and tag pages are written sector by sector; map pages and data pages as one aligned 4 KiB. */
enum page_kind { PAGE_SECTORS, PAGE_MAP, PAGE_DATA };
enum page_kind disk_page_kind(uint64_t page);

#endif

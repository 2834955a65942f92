/* Inside of a sealed file, shared by the files of lib/seal.  Rule numbers are those of docs/formats/sealed-file.md, section 8.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_FILE_H
#define NAOS_SEAL_FILE_H

#include <pthread.h>

#include "seal/gather.h"
#include "seal/sealed_file.h"
#include "seal/seen.h"
#include "seal/tagsector.h"

#define NAOS_BATCH_CHUNKS 1024u /* chunks that share their flushes */

struct naos_sealed_file {
	struct naos_store *store;
	enum naos_sealed_mode mode;
	struct naos_sealed_header header;
	uint8_t header_raw[NAOS_SECTOR_BYTES];
	struct naos_secret *fek;
	struct naos_file_keys *keys; /* NULL only inside naos_sealed_inspect */
	struct naos_fek_slot slots[NAOS_FEK_SLOTS];
	bool recovered;
	bool unpublished;
	uint8_t *unborn; /* page 0 of a new file that is not written yet, or never became durable */
	bool newborn;    /* the attribute says that page 0 may not be durable yet */
	_Atomic(struct naos_group_view *) view; /* not in use by any thread; NULL if there is none */

	pthread_rwlock_t lock; /* reads shared, changes exclusive; guards what follows */
	struct naos_state state;
	uint32_t epoch, sealed_epoch;
	uint64_t size;
	uint64_t tag_writes;          /* counts up with each change of tags: views of before are stale */
	struct {                      /* the end as it was found while nobody could truncate, and the state then (READ: last found) */
		uint64_t seq, size;
	} scanned;
	uint64_t changes;             /* counts up with each change: sealing step by step sees that there was one */
	bool dirty;                   /* changed since the last flush */
	bool untidy;                  /* a change stopped half way: only recovery can seal the file */
	bool unfinished;              /* the clean state is written, but not flushed, and the other slot is not emptied */
	bool maybe_sparse;            /* a map page may hold bits */
	int failed;                   /* code of a failed flush or state write: nothing is acknowledged any more */
	struct naos_seen seen;        /* versions that this writer wrote or saw, and which of them a flush covered */
	struct naos_gather gather;    /* changes in memory only; never any while the state is clean */
	struct naos_seen trim;        /* hole entries whose blocks are given back after a flush */
	uint64_t *filled;             /* groups whose map bit is cleared after a flush, ascending */
	size_t filled_count, filled_room;
	struct {
		pthread_mutex_t lock; /* readers share the cache */
		uint64_t map;
		bool valid;
		uint8_t bits[NAOS_MAP_BYTES];
	} map_cache;
};

/* One version to be put: a chunk's whole text, or a hole of a length (text NULL; length 0: truncated away). */
struct naos_change {
	uint64_t chunk;
	const uint8_t *text;
	uint32_t length;
};

/* The tag sectors of one group, read once and decoded as needed.  A LOCAL writer keeps the last one from call to call. */
struct naos_group_view {
	struct naos_sealed_file *file;
	uint64_t stamp; /* file->tag_writes when it was right */
	bool valid;
	uint64_t group;
	uint8_t raw[NAOS_CHUNK_BYTES];
	bool loaded[NAOS_TAG_PAGE_SECTORS], decoded[NAOS_TAG_PAGE_SECTORS];
	struct naos_sector sectors[NAOS_TAG_PAGE_SECTORS];
};

/* --- birth.c: page 0 of a new file, until it is durable (rule 17) ----------------------------------------------------- */

/* Page 0 of an empty file, in memory; `lazy`: it is written later. */
int naos_file_make_first_page(struct naos_sealed_file *file, bool lazy, struct naos_error *err) naos_must_check;
/* Writes a page 0 that is in memory only; nothing else may be written before. */
int naos_file_bear(struct naos_sealed_file *file, struct naos_error *err) naos_must_check;
/* The attribute says no more that page 0 may not be durable.  `durable`: a flush covers page 0; else the next one must cover the
 * attribute too. */
int naos_file_grown(struct naos_sealed_file *file, bool durable, struct naos_error *err) naos_must_check;
/* With the key: the state of a new file.  page: page 0; rc: why it gives no state (0: it does).  Returns 0 if there is one: that of page
 * 0, or of an empty file if page 0 never became durable. */
int naos_file_take_birth(struct naos_sealed_file *file, const struct naos_sealed_info *info, const uint8_t page[static NAOS_CHUNK_BYTES],
			 int rc, struct naos_error *err) naos_must_check;
/* The first step of recovery, holding the writers' lock exclusively. */
int naos_file_revive(struct naos_sealed_file *file, struct naos_error *err) naos_must_check;

/* --- file.c -------------------------------------------------------------------------------------------------------- */

void naos_file_free(struct naos_sealed_file *file);

/* --- entry.c: finding and opening versions ------------------------------------------------------------------ */

/* A view for the calling thread, which holds file->lock until it gives it back (naos_autoview); NULL and NAOS_E_NOMEM in err.  Who
 * changes tags while it has one sets valid to false itself. */
struct naos_group_view *naos_file_borrow_view(struct naos_sealed_file *file, struct naos_error *err);
void naos_file_return_view(struct naos_group_view **view);
/* For the next borrower: the tags of group 0, from page 0. */
void naos_file_seed_view(struct naos_sealed_file *file, const uint8_t page[static NAOS_CHUNK_BYTES]);
#define naos_autoview naos_cleanup(naos_file_return_view)
/* Tags were written that other views may hold. */
static inline void naos_file_tags_written(struct naos_sealed_file *file)
{
	file->tag_writes++;
}

/* The sector of a chunk, by way of view, which is refilled when it is of another group. Valid until view changes. */
int naos_file_sector(struct naos_sealed_file *file, struct naos_group_view *view, uint64_t chunk, struct naos_sector **ret,
		     struct naos_error *err) naos_must_check;
/* The two versions of a chunk in its sector. */
struct naos_entry *naos_sector_pair(struct naos_sector *sector, uint64_t chunk);
/* Plaintext of one version into text (entry->length bytes are written); *ret_opened false if it does not open.  Errors are
 * those of reading only. */
int naos_file_open_version(struct naos_sealed_file *file, uint64_t chunk, const struct naos_entry *entry, uint8_t *text,
			   bool *ret_opened, struct naos_error *err) naos_must_check;
/* The version that a chunk reads as, within `size`.  Absent: *ret_present false.  A hole by the map: a hole entry of seq 0.
 * text (NAOS_CHUNK_BYTES, zero-extended) may be NULL.  NAOS_E_INTEGRITY if nothing that may be accepted opens. */
int naos_file_pick(struct naos_sealed_file *file, struct naos_group_view *view, uint64_t chunk, uint64_t size,
		   struct naos_entry *ret, bool *ret_present, uint8_t *text, struct naos_error *err) naos_must_check;
/* Whether a picked version may stand at this place of a file of this size; NAOS_E_INTEGRITY with the reason if not. */
int naos_file_check_fit(const struct naos_sealed_file *file, uint64_t chunk, uint64_t size, const struct naos_entry *entry,
			bool present, struct naos_error *err) naos_must_check;
/* Logical size by the rules 7 and 13, for the state in file->state. */
int naos_file_extent(struct naos_sealed_file *file, uint64_t *ret_size, struct naos_error *err) naos_must_check;
/* NAOS_E_INTEGRITY "NAME: chunk N (bytes …): what". */
int naos_file_damage(const struct naos_sealed_file *file, uint64_t chunk, struct naos_error *err, const char *what);

/* The first piece (of at most a page) of the bytes [from, to) that is not all zero; *ret_at = to if there is none. */
int naos_file_find_data(struct naos_sealed_file *file, uint64_t from, uint64_t to, uint64_t *ret_at,
			struct naos_error *err) naos_must_check;

/* --- map.c ------------------------------------------------------------------------------------------------------ */

int naos_file_in_map(struct naos_sealed_file *file, uint64_t group, bool *ret_hole, struct naos_error *err) naos_must_check;
/* Sets the bits of groups [first_hole, last_hole] (none if first > last) and clears those of `filled` (ascending). */
int naos_file_put_map(struct naos_sealed_file *file, uint64_t first_hole, uint64_t last_hole, const uint64_t *filled,
		      size_t filled_count, struct naos_error *err) naos_must_check;
/* First group ≥ group and < limit that is not wholly a hole by the map (or limit). */
int naos_file_skip_map_holes(struct naos_sealed_file *file, uint64_t group, uint64_t limit, uint64_t *ret_group,
			     struct naos_error *err) naos_must_check;
/* The next map page ≥ map inside the file that may hold bits. */
int naos_file_next_map(struct naos_sealed_file *file, uint64_t map, bool *ret_any, uint64_t *ret_map,
		       struct naos_error *err) naos_must_check;
/* First group ≥ group of which any page may hold data, or limit: what lies between has neither entries nor data. */
int naos_file_next_allocated(struct naos_sealed_file *file, uint64_t group, uint64_t limit, uint64_t *ret_group,
			     struct naos_error *err) naos_must_check;
/* Whether a group (≥ 1) has any entry, whatever the map says. */
int naos_file_has_tags(struct naos_sealed_file *file, uint64_t group, bool *ret, struct naos_error *err) naos_must_check;
int naos_file_remember_filled(struct naos_sealed_file *file, uint64_t group, struct naos_error *err) naos_must_check;
/* Clears the bits of the groups that are remembered as filled, after a flush. */
int naos_file_put_filled(struct naos_sealed_file *file, struct naos_error *err) naos_must_check;

/* --- state.c ---------------------------------------------------------------------------------------------------- */

/* The state in page 0, as it was read. */
int naos_file_take_state(struct naos_sealed_file *file, const uint8_t page[static NAOS_CHUNK_BYTES], size_t bytes,
			 struct naos_error *err) naos_must_check;
int naos_file_read_state(struct naos_sealed_file *file, struct naos_error *err) naos_must_check;
/* Writes *next (a changed copy of file->state) under the next sequence number.  Not flushed. */
int naos_file_put_state(struct naos_sealed_file *file, const struct naos_state *next, struct naos_error *err) naos_must_check;
/* Writes a clean state, flushes, and empties the other slot. */
int naos_file_put_clean_state(struct naos_sealed_file *file, const struct naos_state *next, struct naos_error *err) naos_must_check;
/* A sealed file has one state slot: an older one that is put back is noticed. */
int naos_file_empty_other_state(struct naos_sealed_file *file, struct naos_error *err) naos_must_check;
int naos_file_store_flush(struct naos_sealed_file *file, struct naos_error *err) naos_must_check;
/* A flush has ended that covers all that was written: by the store, or by others (syncfs). */
void naos_file_mark_flushed(struct naos_sealed_file *file);
/* What the format writes between the two is no change of a user's.  In shared files, while nobody else changes data. */
void naos_file_note_time(struct naos_sealed_file *file);
void naos_file_restore_time(struct naos_sealed_file *file);
int naos_file_store_resize(struct naos_sealed_file *file, uint64_t bytes, struct naos_error *err) naos_must_check;
/* A reader beside a writer that met what looks like damage takes state and size anew, after a pause.  *ret_settled: the file
 * is sealed and was so before, there is no writer to wait for. */
#define NAOS_FOLLOW_ATTEMPTS 12u /* together about 30 ms */
int naos_file_follow(struct naos_sealed_file *file, unsigned attempt, bool *ret_settled, struct naos_error *err) naos_must_check;
/* The error of whatever follows a failed flush. */
int naos_file_refuse_failed(const struct naos_sealed_file *file, struct naos_error *err);
/* Rule 15: another node may have changed the size.  Does nothing unless the file is shared. */
int naos_file_refresh(struct naos_sealed_file *file, struct naos_error *err) naos_must_check;
/* Rule 15: a tag page behind the last group was left by a truncation whose writer died.  Holding the state range exclusively. */
int naos_file_drop_stale_group(struct naos_sealed_file *file, struct naos_error *err) naos_must_check;
/* --- change.c --------------------------------------------------------------------------------------------------- */

/* What a change needs for itself among writers of other nodes (rule 15): a range of tag sectors, or the whole file. */
struct naos_claim {
	bool whole;
	uint64_t first_chunk, last_chunk;
};
/* Takes file->lock and the locks of the claim; begins the epoch.  `end` must follow also on failure. */
int naos_file_begin_change(struct naos_sealed_file *file, const struct naos_claim *claim, struct naos_error *err) naos_must_check;
/* Releases what begin took; returns rc. */
int naos_file_end_change(struct naos_sealed_file *file, int rc);
int naos_file_lock_claim(struct naos_sealed_file *file, const struct naos_claim *wanted, struct naos_error *err) naos_must_check;
/* Calls `then` while no other writer of a shared file changes it. */
int naos_file_whole(struct naos_sealed_file *file, int (*then)(struct naos_sealed_file *file, void *context, struct naos_error *err),
		    void *context, struct naos_error *err) naos_must_check;

/* --- write.c, sync.c --------------------------------------------------------------------------------------------- */

/* Inside of a change; buffer NULL writes zeros (only to parts of chunks). */
int naos_file_write_range(struct naos_sealed_file *file, const uint8_t *buffer, size_t bytes, uint64_t offset,
			  struct naos_error *err) naos_must_check;
/* Writes what is gathered.  On failure all of it stays gathered, and the next flush or close tells the error too. */
int naos_file_settle(struct naos_sealed_file *file, struct naos_error *err) naos_must_check;
/* The same for a flush or close: tells what an earlier settling met. */
int naos_file_settle_and_tell(struct naos_sealed_file *file, struct naos_error *err) naos_must_check;
/* Blocks below durable holes. */
int naos_file_give_back(struct naos_sealed_file *file, struct naos_error *err) naos_must_check;
/* Flush, then what may follow it (rules 6 and 12). */
int naos_file_sync(struct naos_sealed_file *file, struct naos_error *err) naos_must_check;
/* What may follow a flush. */
int naos_file_flushed(struct naos_sealed_file *file, struct naos_error *err) naos_must_check;

/* --- put.c, resize.c, recover.c --------------------------------------------------------------------------------------- */

/* Rules 3, 4, 5, 9: one batch of at most NAOS_BATCH_CHUNKS changes in ascending order. */
int naos_file_put(struct naos_sealed_file *file, const struct naos_change *changes, size_t count, struct naos_error *err) naos_must_check;
/* Whether a chunk with these versions can only be written with a flush before its data (rules 3 and 4). */
bool naos_file_put_waits(const struct naos_sealed_file *file, uint64_t chunk, const struct naos_entry pair[static 2]);
/* Replaces versions of chunks as they are (recovery): entries[i] is the pair of chunks[i]; ascending. */
int naos_file_put_entries(struct naos_sealed_file *file, const uint64_t *chunks, const struct naos_entry (*entries)[2], size_t count,
			  struct naos_error *err) naos_must_check;
int naos_file_extend(struct naos_sealed_file *file, uint64_t size, struct naos_error *err) naos_must_check;
int naos_file_resize(struct naos_sealed_file *file, uint64_t size, struct naos_error *err) naos_must_check;
/* Rule 14.  Needs the exclusive writer lock. */
int naos_file_recover(struct naos_sealed_file *file, struct naos_error *err) naos_must_check;

/* Rule 1, at the first change of a clean file. */
int naos_file_begin_epoch(struct naos_sealed_file *file, struct naos_error *err) naos_must_check;

/* A random hole entry of this epoch. */
int naos_file_hole_entry(struct naos_sealed_file *file, uint32_t seq, uint32_t length, struct naos_entry *ret,
			 struct naos_error *err) naos_must_check;

static inline uint32_t naos_chunk_room(uint64_t chunk, uint64_t size)
{
	uint64_t start = chunk * NAOS_CHUNK_BYTES, left = size > start ? size - start : 0;
	return left < NAOS_CHUNK_BYTES ? (uint32_t)left : NAOS_CHUNK_BYTES;
}

#endif

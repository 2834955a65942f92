/* One sealed file with random access (docs/formats/sealed-file.md): read, write, truncate, extend, punch, flush.
 *
 * Guarantee: after a crash or power cut at any point each chunk reads as its content at the last flush or one written
 * since; damage is an error that names the chunk, never wrong data.  Any number of threads may use one file: reads run
 * side by side, changes one at a time.
 *
 * Every error message names the file.  Integrity errors are NAOS_E_INTEGRITY, NAOS_E_FORMAT or NAOS_E_WRONG_KEY.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_SEALED_FILE_H
#define NAOS_SEAL_SEALED_FILE_H

#include "seal/page0.h"
#include "seal/store.h"

struct naos_sealed_file;

enum naos_sealed_mode {
	NAOS_SEALED_READ,   /* never writes; takes no lock; may run beside a writer */
	NAOS_SEALED_LOCAL,  /* reads and writes; the only writer (others get NAOS_E_BUSY) */
	NAOS_SEALED_SHARED, /* reads and writes; other writers may join, on this or another node */
};

/* What page 0 and the attribute tell without a key. */
struct naos_sealed_info {
	struct naos_sealed_header header;
	struct naos_fek_slot slots[NAOS_FEK_SLOTS];
	struct naos_fek_slot attribute; /* used false if there is none */
	bool slot_damaged;              /* a slot is neither empty nor well-formed */
	bool attribute_damaged;
	bool newborn; /* the attribute says that page 0 may not be durable yet */
	bool unborn;  /* newborn, and page 0 is not there: header and slots are those that recovery will write */
	uint8_t birth[NAOS_NEW_ATTRIBUTE_BYTES]; /* the attribute, if newborn */
	uint64_t physical_bytes;
};
/* NAOS_E_FORMAT if it is no sealed file. */
int naos_sealed_probe(struct naos_store *store, struct naos_sealed_info *ret, struct naos_error *err) naos_must_check;

/* How a file gets its FEK: unwrap is asked for the blobs of the file, newest first, until one opens. */
struct naos_fek_source {
	int (*unwrap)(void *context, const struct naos_wrap_context *wrap, const struct naos_blob *blob, struct naos_secret **ret,
		      struct naos_error *err);
	void *context;
	/* If set, a file of another file set or algorithm is refused. */
	const struct naos_uuid *fileset_id;
	enum naos_algorithm algorithm; /* 0: any */
	/* Opens a file of which one slot or the attribute is damaged, if another copy of the key works; for repair only. */
	bool tolerate_damaged_slots;
};

/* Opens a file.  Takes ownership of the store, also on failure.  Opening an unclean file for writing recovers it first
 * (*naos_sealed_file_recovered). */
int naos_sealed_file_open(struct naos_store *store, enum naos_sealed_mode mode, const struct naos_fek_source *source,
			  struct naos_sealed_file **ret, struct naos_error *err) naos_must_check;

/* What a new file is made of.  The FEK was made and wrapped by the caller for this file_id. */
struct naos_sealed_new {
	enum naos_sealed_mode mode; /* LOCAL or SHARED */
	enum naos_algorithm algorithm;
	struct naos_uuid file_id;
	struct naos_uuid fileset_id;
	const struct naos_secret *fek; /* borrowed for the call */
	const struct naos_blob *blob;
	/* The file has a temporary name and is of no value until it is published: no flush is paid for crash safety while
	 * it is written; naos_sealed_file_close seals it, the caller flushes and renames. */
	bool unpublished;
	/* Page 0 goes to the store with the first write (together, where it begins the file), or at the latest with flush or close.  Until
	 * then the store is empty: others can't open it, and a process that dies leaves an empty file.  Only for LOCAL. */
	bool lazy;
};
/* Writes page 0 of an empty store.  Takes ownership of the store, also on failure. */
int naos_sealed_file_create(struct naos_store *store, const struct naos_sealed_new *what, struct naos_sealed_file **ret,
			    struct naos_error *err) naos_must_check;

/* Frees; a writer writes what is gathered and seals the file first (rule 13) if `seal`; else it leaves it unclean, to be sealed
 * later, without a flush unless something was gathered.  With `seal` an unpublished file is made clean without a flush.  The handle
 * is gone even if an error is returned. */
int naos_sealed_file_close(struct naos_sealed_file *file, bool seal, struct naos_error *err) naos_must_check;

uint64_t naos_sealed_file_size(struct naos_sealed_file *file);
/* Takes note of what other writers did since the file was opened or refreshed, its size above all: for READ files (SHARED files do
 * so in each operation; the only writer has nothing to note).  NAOS_E_INTEGRITY as reading tells it. */
int naos_sealed_file_refresh(struct naos_sealed_file *file, struct naos_error *err) naos_must_check;
const struct naos_sealed_header *naos_sealed_file_header(const struct naos_sealed_file *file);
bool naos_sealed_file_recovered(const struct naos_sealed_file *file);
/* True after a flush failed: nothing is written any more, for nobody knows what the kernel dropped.  A new opening starts afresh. */
bool naos_sealed_file_failed(struct naos_sealed_file *file);
bool naos_sealed_file_clean(struct naos_sealed_file *file);
/* False: no hole of a whole group; there may still be short ones. */
bool naos_sealed_file_sparse(const struct naos_sealed_file *file);
struct naos_store *naos_sealed_file_store(struct naos_sealed_file *file); /* borrowed */

/* Up to `bytes` from offset; fewer only at the end of the file.  On failure the buffer holds no plaintext and no ciphertext. */
int naos_sealed_file_read(struct naos_sealed_file *file, void *buffer, size_t bytes, uint64_t offset, size_t *ret_bytes,
			  struct naos_error *err) naos_must_check;
/* All of it; writes beyond the end extend the file.  Visible to readers at once, durable after a flush. */
int naos_sealed_file_write(struct naos_sealed_file *file, const void *buffer, size_t bytes, uint64_t offset,
			   struct naos_error *err) naos_must_check;
int naos_sealed_file_truncate(struct naos_sealed_file *file, uint64_t size, struct naos_error *err) naos_must_check;
/* Writes at the end, wherever it is then: two that append never overwrite each other, on several nodes neither.  *ret_offset is
 * where the first byte went. */
int naos_sealed_file_append(struct naos_sealed_file *file, const void *buffer, size_t bytes, uint64_t *ret_offset,
			    struct naos_error *err) naos_must_check;
/* Makes a range read as zeros; whole chunks inside it become holes.  The size stays. */
int naos_sealed_file_punch(struct naos_sealed_file *file, uint64_t offset, uint64_t bytes, struct naos_error *err) naos_must_check;
/* The same; unless keep_size a range that reaches behind the end extends the file. */
int naos_sealed_file_zero(struct naos_sealed_file *file, uint64_t offset, uint64_t bytes, bool keep_size,
			  struct naos_error *err) naos_must_check;
/* Takes blocks for a range, so that a later write into it can't meet a full disk; the content stays.  Unless keep_size a range
 * that reaches behind the end extends the file with zeros.  NAOS_E_UNSUPPORTED, and nothing changed, where the file system
 * below can't. */
int naos_sealed_file_allocate(struct naos_sealed_file *file, uint64_t offset, uint64_t bytes, bool keep_size,
			      struct naos_error *err) naos_must_check;
/* Makes durable all that was written, of this writer and in a shared file of the others. */
int naos_sealed_file_flush(struct naos_sealed_file *file, struct naos_error *err) naos_must_check;

/* From now on, in a LOCAL file: a change of a chunk that could only be written with a flush of its own (over durable data) is kept
 * in memory, up to limit_bytes (whole chunks; 0 ends it), and written together with others of its kind, so that they share their
 * flushes: when the limit is reached, by naos_sealed_file_settle, and before flush, truncate, punch, zero, allocate and close.
 * Reads see it; other readers of the file, and a crash, don't.  What needs no flush is written at once, so that whoever writes is
 * told of a full disk.  If what is gathered can't be written it stays, reads go on seeing it, and the next flush or close fails with
 * the reason. */
int naos_sealed_file_gather(struct naos_sealed_file *file, size_t limit_bytes, struct naos_error *err) naos_must_check;
/* Writes what is gathered; it is no more durable than another write. */
int naos_sealed_file_settle(struct naos_sealed_file *file, struct naos_error *err) naos_must_check;
/* Bytes gathered now.  The memory for the most that was gathered since the last flush or settling stays in use. */
size_t naos_sealed_file_gathered(struct naos_sealed_file *file);

/* Seals many open LOCAL files with few flushes (rules 13 and 16): calls seal_step for each file that is not done, then makes
 * everything durable (one syncfs), and so on, until each is done after three or four steps.  The file may be used as usual meanwhile;
 * if it was changed between two steps it starts over (counted in `restarts`: a caller may give up a file that is busy; nothing is to be
 * undone).  Done, the file is clean and open; its next change begins an epoch.  A file that needs recovery is recovered in the
 * first step, with flushes of its own.  A step that fails starts over, too, if it is called again. */
struct naos_sealing { /* of one file; all zero at the beginning */
	unsigned step, restarts;
	uint64_t changes;
};
int naos_sealed_file_seal_step(struct naos_sealed_file *file, struct naos_sealing *progress, bool *ret_done,
			       struct naos_error *err) naos_must_check;

/* The next range at or after offset that holds data (not holes), in chunks, or the beginning of it; *ret_start = size if there is none. */
int naos_sealed_file_next_data(struct naos_sealed_file *file, uint64_t offset, uint64_t *ret_start, uint64_t *ret_end,
			       struct naos_error *err) naos_must_check;

/* Checks what reading does not reach: unused entries, holes without data behind them, the map, the exact physical size.
 * Reads and opens every chunk.  `first_bad` may be NULL. */
int naos_sealed_file_verify(struct naos_sealed_file *file, struct naos_error *err) naos_must_check;

/* FEK slots.  rewrap: puts blob (the same FEK under another MEK or version) in place of every slot of its MEK, or of all
 * slots if only_mek is NULL; no data is touched.  The old slot works until the new one is durable, and is refused after. */
int naos_sealed_file_rewrap(struct naos_sealed_file *file, const struct naos_blob *blob, const struct naos_uuid *only_mek,
			    struct naos_error *err) naos_must_check;
const struct naos_secret *naos_sealed_file_fek(const struct naos_sealed_file *file); /* for wrapping; borrowed */

#endif

/* Where the bytes of one sealed file lie: a seam, so that the same code writes to a POSIX file, to the memory of a test that
 * cuts the power, and later to other places.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_STORE_H
#define NAOS_SEAL_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "base/errors.h"

enum naos_lock { NAOS_UNLOCK, NAOS_LOCK_SHARED, NAOS_LOCK_EXCLUSIVE };

/* The byte that writers of a file hold shared, and recovery exclusively. */
#define NAOS_WRITER_LOCK_OFFSET ((uint64_t)1 << 62)
/* The byte that readers hold shared which must not miss what is written later, and who puts another file in this one's place exclusively.
 * The byte between is for locks of users. */
#define NAOS_READER_LOCK_OFFSET (NAOS_WRITER_LOCK_OFFSET + 2)

struct naos_store;

struct naos_store_ops {
	/* Until `bytes` or the end of the file; the count is in *ret_bytes. */
	int (*read)(struct naos_store *store, void *buffer, size_t bytes, uint64_t offset, size_t *ret_bytes, struct naos_error *err);
	int (*write)(struct naos_store *store, const void *buffer, size_t bytes, uint64_t offset, struct naos_error *err);
	/* Everything written so far, sizes and attributes too, survives a power cut after this returns. */
	int (*flush)(struct naos_store *store, struct naos_error *err);
	int (*resize)(struct naos_store *store, uint64_t bytes, struct naos_error *err);
	int (*size)(struct naos_store *store, uint64_t *ret_bytes, struct naos_error *err);
	/* Gives blocks back; they read as zero afterwards, also where the file system can't give back (zeros are written). */
	int (*deallocate)(struct naos_store *store, uint64_t offset, uint64_t bytes, struct naos_error *err);
	/* Optional.  Takes blocks for a range now, so that a later write can't meet a full disk; the size stays, also where the
	 * range lies behind it.  NAOS_E_UNSUPPORTED where the file system can't. */
	int (*reserve)(struct naos_store *store, uint64_t offset, uint64_t bytes, struct naos_error *err);
	/* First offset ≥ offset that may hold other than zeros; UINT64_MAX if there is none. */
	int (*next_data)(struct naos_store *store, uint64_t offset, uint64_t *ret_offset, struct naos_error *err);
	/* Byte-range lock of this open file; NAOS_E_BUSY if wait is false and another holds it. */
	int (*lock)(struct naos_store *store, uint64_t offset, uint64_t bytes, enum naos_lock lock, bool wait, struct naos_error *err);
	/* The extended attribute user.naos.key.  *ret_bytes 0 if there is none or the file system has none. */
	int (*get_attribute)(struct naos_store *store, void *value, size_t room, size_t *ret_bytes, struct naos_error *err);
	int (*set_attribute)(struct naos_store *store, const void *value, size_t bytes, struct naos_error *err);
	/* Optional.  What was written so far reaches the storage before an attribute that is set afterwards; neither is durable for that.
	 * It is no flush: the storage may keep it in a cache. */
	int (*write_out)(struct naos_store *store, struct naos_error *err);
	/* Optional.  Between the two the format writes for itself, which is no change of a user's: the time of the last change is put
	 * back.  While no other writer can change data. */
	void (*note_time)(struct naos_store *store);
	void (*restore_time)(struct naos_store *store);
	void (*close)(struct naos_store *store);
};

struct naos_store {
	const struct naos_store_ops *ops;
	const char *name; /* for messages, printable; borrowed until the store is closed */
};

/* A regular file.  Takes ownership of fd on success.  `name` is copied. */
int naos_store_posix(int fd, const char *name, struct naos_store **ret, struct naos_error *err) naos_must_check;

#endif

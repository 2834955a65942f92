/* The database of a catalogue (docs/formats/catalogue.md): SQLite behind this interface.  One thread at a time; one program at a time
 * may write (a lock beside the file says so).  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_CATALOGUE_STORE_H
#define NAOS_CATALOGUE_STORE_H

#include "keys/blob.h"

/* One frame: what it tells without a key, and either its sealed attributes (code 0) or why it could not be read. */
struct naos_catalogue_row {
	const char *path; /* absolute */
	struct naos_uuid collection_id, frame_id; /* zero where the frame does not even tell them */
	uint64_t bytes, inode;
	int64_t mtime_ns, ctime_ns;
	int code;
	const char *reason;
	const uint8_t *sealed; /* NULL unless code is 0 */
	size_t sealed_bytes;
};

struct naos_catalogue_store;

/* writing: makes what is absent, and takes the lock.  NAOS_E_BUSY: another program writes; NAOS_E_NOTFOUND; NAOS_E_FORMAT: it is none. */
int naos_catalogue_store_open(const char *path, bool writing, struct naos_catalogue_store **ret, struct naos_error *err) naos_must_check;
/* Takes NULL, returns NULL; what was not committed is undone. */
struct naos_catalogue_store *naos_catalogue_store_close(struct naos_catalogue_store *store);
const struct naos_uuid *naos_catalogue_store_id(const struct naos_catalogue_store *store);

int naos_catalogue_store_begin(struct naos_catalogue_store *store, struct naos_error *err) naos_must_check;
int naos_catalogue_store_commit(struct naos_catalogue_store *store, struct naos_error *err) naos_must_check;
void naos_catalogue_store_undo(struct naos_catalogue_store *store);

/* The wrapped catalogue key of a collection; *ret_found false: it has none yet. */
int naos_catalogue_store_key(struct naos_catalogue_store *store, const struct naos_uuid *collection_id, struct naos_blob *ret,
			     bool *ret_found, struct naos_error *err) naos_must_check;
int naos_catalogue_store_put_key(struct naos_catalogue_store *store, const struct naos_uuid *collection_id, const struct naos_blob *blob,
				 struct naos_error *err) naos_must_check;

/* *ret_current: a row with this path, size, times and inode is there, and not that of a failure; *ret_known: any row of this path. */
int naos_catalogue_store_look(struct naos_catalogue_store *store, const struct naos_catalogue_row *row, bool *ret_current,
			      bool *ret_known, struct naos_error *err) naos_must_check;
int naos_catalogue_store_put(struct naos_catalogue_store *store, const struct naos_catalogue_row *row,
			     struct naos_error *err) naos_must_check;
int naos_catalogue_store_remove(struct naos_catalogue_store *store, const char *path, struct naos_error *err) naos_must_check;
/* Every row in the order of paths, until `each` returns a code; below NULL: all, else this path and what lies below it.  `each` may not
 * change the store. */
int naos_catalogue_store_each(struct naos_catalogue_store *store, const char *below,
			      int (*each)(void *context, const struct naos_catalogue_row *row, struct naos_error *err), void *context,
			      struct naos_error *err) naos_must_check;

static inline void naos_catalogue_store_close_pointer(struct naos_catalogue_store **store)
{
	*store = naos_catalogue_store_close(*store);
}
#define naos_autocatalogue naos_cleanup(naos_catalogue_store_close_pointer)

#endif

/* Metadata of MEKs kept beside a token, durable before each call returns: what a token can't hold (state, counted uses)
 * or should not be asked to change.  SQLite behind this interface; PostgreSQL may come later.  Thread-safe; several
 * processes may share a store.  Not to be used across fork().
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYS_STORE_H
#define NAOS_KEYS_STORE_H

#include "keys/provider.h"

struct naos_key_store;

/* Where a row is in its life; only settled rows are seen by users. */
enum naos_key_store_phase {
	NAOS_KEY_STORE_SETTLED = 0,
	NAOS_KEY_STORE_CREATING = 1,   /* written before the key is made: what a crash left is swept by it */
	NAOS_KEY_STORE_DESTROYING = 2, /* written before the key is destroyed: the state is already "destroyed" */
};

struct naos_key_store_row {
	struct naos_mek mek;
	enum naos_key_store_phase phase;
	struct naos_blob proof; /* known answer of the key, made with it; iv_bytes 0 before */
};

/* The file is made (mode 0600) if it is absent; its directory must be there. */
int naos_key_store_open(const char *path, struct naos_key_store **ret, struct naos_error *err) naos_must_check;
struct naos_key_store *naos_key_store_close(struct naos_key_store *store);
const char *naos_key_store_path(const struct naos_key_store *store);

/* All rows by name and version; the caller frees *ret. */
int naos_key_store_list(struct naos_key_store *store, struct naos_key_store_row **ret, size_t *ret_count,
		struct naos_error *err) naos_must_check;
/* Whether another connection or process has changed the store since the last call. */
bool naos_key_store_changed(struct naos_key_store *store);

/* First step of a creation: a row in phase creating.  rotating false: version 1 of a new MEK, NAOS_E_EXISTS if the name
 * was ever used; true: the next version, NAOS_E_NOKEY if there is none. */
int naos_key_store_begin_create(struct naos_key_store *store, const char *name, bool rotating, struct naos_mek *ret,
			    struct naos_error *err) naos_must_check;
/* Last step: the version is active with `uses` counted, the ones that were active are deactivated, in one transaction. */
int naos_key_store_finish_create(struct naos_key_store *store, struct naos_mek *mek, const struct naos_blob *proof, uint64_t uses,
			     struct naos_error *err) naos_must_check;
/* The creation did not happen. */
int naos_key_store_abandon_create(struct naos_key_store *store, const struct naos_mek *mek, struct naos_error *err)
		naos_must_check;

/* Changes the state of a version (0: the newest) if the rules allow it: NAOS_E_KEY_STATE, NAOS_E_NOKEY.
 * To NAOS_MEK_DESTROYED: the row goes to phase destroying; settle it when the key is gone. */
int naos_key_store_set_state(struct naos_key_store *store, const char *name, uint32_t version, enum naos_mek_state to,
			 struct naos_mek *ret, struct naos_error *err) naos_must_check;
int naos_key_store_settle(struct naos_key_store *store, const struct naos_mek *mek, struct naos_error *err) naos_must_check;

/* Counts up to `wanted` wraps ahead; *ret_granted of them (≥ 1) may be done.  NAOS_E_KEY_USES at the limit. */
int naos_key_store_reserve_uses(struct naos_key_store *store, const struct naos_mek *mek, uint64_t wanted, uint64_t *ret_granted,
			    struct naos_error *err) naos_must_check;
/* Gives back what was reserved and not used. */
int naos_key_store_return_uses(struct naos_key_store *store, const struct naos_mek *mek, uint64_t unused,
		struct naos_error *err) naos_must_check;

/* The lock over all changes and searches of token objects, held across processes (a file beside the store): shared to search,
 * exclusive to change.  wait false: NAOS_E_BUSY at once if it is taken.  Returns a descriptor to close. */
int naos_key_store_lock(struct naos_key_store *store, bool exclusive, bool wait, int *ret_fd, struct naos_error *err)
		naos_must_check;

static inline void naos_key_store_close_pointer(struct naos_key_store **store)
{
	*store = naos_key_store_close(*store);
}
#define naos_autokeystore naos_cleanup(naos_key_store_close_pointer)

#endif

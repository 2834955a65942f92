/* Metadata of keys in memory, so that a wrap or unwrap reads no database: what this process changes is seen at once, what
 * another process changes (a revocation) within a quarter of a second.  Uses are counted ahead in growing steps.
 * Thread-safe.  Used by the PKCS#11 provider only.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYS_CACHE_H
#define NAOS_KEYS_CACHE_H

#include "keys/store.h"
#include "keys/token.h"

struct naos_key_cache;

/* store and token are borrowed. */
int naos_key_cache_create(struct naos_key_store *store, struct naos_token *token, struct naos_key_cache **ret,
			  struct naos_error *err) naos_must_check;
/* Gives back the uses that were counted ahead. */
struct naos_key_cache *naos_key_cache_free(struct naos_key_cache *cache);

/* The version that wraps under this name, with one use counted.  NAOS_E_NOKEY, NAOS_E_KEY_STATE, NAOS_E_KEY_USES. */
int naos_key_cache_use(struct naos_key_cache *cache, const char *name, struct naos_key_store_row *ret,
		       struct naos_error *err) naos_must_check;
/* The version that unwraps.  NAOS_E_NOKEY, NAOS_E_KEY_STATE. */
int naos_key_cache_find(struct naos_key_cache *cache, const struct naos_uuid *mek_id, uint32_t version,
		struct naos_key_store_row *ret,
			struct naos_error *err) naos_must_check;
/* After a change through this process's store. */
void naos_key_cache_refresh(struct naos_key_cache *cache);

#endif

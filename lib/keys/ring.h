/* Key ring: unwrapped keys kept for reuse, by object id, with a limit of size (least recently used go first) and of age.
 * While the key manager is away, keys in the ring go on; others fail with its error.  Thread-safe: two threads that want
 * the same key cause one unwrap.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYS_RING_H
#define NAOS_KEYS_RING_H

#include "keys/provider.h"

struct naos_ring;

/* provider is borrowed for the life of the ring.  max_age_s counts from the last use. */
int naos_ring_create(struct naos_provider *provider, size_t max_keys, uint64_t max_age_s, struct naos_ring **ret,
		     struct naos_error *err) naos_must_check;
struct naos_ring *naos_ring_free(struct naos_ring *ring);

/* A copy of the key of this object, from the ring or by unwrapping blob.  The caller frees *ret.  The blob is part of the
 * look-up: another blob for the same object is unwrapped anew. */
int naos_ring_get(struct naos_ring *ring, const struct naos_wrap_context *context, const struct naos_blob *blob,
		  struct naos_secret **ret, struct naos_error *err) naos_must_check;
/* Unwraps what is missing in one batch; failures are left for naos_ring_get to report. */
void naos_ring_prefetch(struct naos_ring *ring, const struct naos_wrap_context *contexts, const struct naos_blob *blobs, size_t count);
/* Puts in a key that the caller just made and wrapped (copied). */
int naos_ring_put(struct naos_ring *ring, const struct naos_wrap_context *context, const struct naos_blob *blob,
		  const struct naos_secret *key, struct naos_error *err) naos_must_check;
/* Whether the key of this object is here, ready. */
bool naos_ring_has(struct naos_ring *ring, const struct naos_wrap_context *context, const struct naos_blob *blob);
/* Wipes the keys that came from versions of this MEK which unwrap no more: those that are not in `versions` (all that the key
 * manager shows of it) as active or deactivated. */
void naos_ring_forget(struct naos_ring *ring, const struct naos_uuid *mek_id, const struct naos_mek *versions, size_t count);
/* Wipes what is older than the limit of age (called now and then by daemons), or everything. */
void naos_ring_expire(struct naos_ring *ring);
void naos_ring_clear(struct naos_ring *ring);
size_t naos_ring_count(struct naos_ring *ring);

#endif

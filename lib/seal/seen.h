/* A bounded table chunk → version, with the flush that made it durable.  Forgetting is always safe: a version that is not
 * in the table is treated as not durable and costs one flush more (rules 2 and 4).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_SEEN_H
#define NAOS_SEAL_SEEN_H

#include <string.h>

#include "seal/tagsector.h"

#define NAOS_SEEN_MAX ((size_t)1 << 18)

struct naos_seen_row {
	uint64_t chunk;
	uint64_t stamp; /* flushes begun when it was entered; 0: free row */
	uint8_t nonce[NAOS_GCM_NONCE_BYTES]; /* of the version: no two are alike, and tags are authentic */
};

struct naos_seen {
	struct naos_seen_row *rows;
	size_t room, used;
	uint64_t flushes; /* begun so far + 1 */
};

/* Whether a row stands for exactly this version. */
static inline bool naos_seen_is(const struct naos_seen_row *row, const struct naos_entry *entry)
{
	return memcmp(row->nonce, entry->nonce, sizeof(row->nonce)) == 0;
}

/* Enters or replaces.  False if everything else was dropped for it (the table is full, or memory is short). */
bool naos_seen_put(struct naos_seen *seen, uint64_t chunk, const struct naos_entry *entry);
const struct naos_seen_row *naos_seen_find(const struct naos_seen *seen, uint64_t chunk);
void naos_seen_remove(struct naos_seen *seen, uint64_t chunk);
/* A flush has ended: what was entered before is durable. */
void naos_seen_flushed(struct naos_seen *seen);
static inline bool naos_seen_durable(const struct naos_seen *seen, const struct naos_seen_row *row)
{
	return row->stamp < seen->flushes;
}
void naos_seen_clear(struct naos_seen *seen);
void naos_seen_free(struct naos_seen *seen);

#endif

/* Memory of one decoded message: taken in small pieces, given back all at once, bounded.  It holds structures that point
 * into the message, never a copy of what the message says, so no key byte gets into it.  One thread at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KMIP_ARENA_H
#define NAOS_KMIP_ARENA_H

#include <stddef.h>

#include "base/errors.h"

/* Of one message: eight times the longest.  Only a message made to use memory (a megabyte of empty texts) needs more. */
#define NAOS_KMIP_ARENA_BYTES ((size_t)8 << 20)

struct naos_kmip_arena;

/* Nothing is taken from the system before the first use. */
int naos_kmip_arena_create(size_t max_bytes, struct naos_kmip_arena **ret, struct naos_error *err) naos_must_check;
/* count * bytes zeroed bytes, aligned for any structure, valid until reset or free; NULL if that is over the limit or
 * there is no memory. */
void *naos_kmip_arena_take(struct naos_kmip_arena *arena, size_t count, size_t bytes) naos_must_check;
/* Empties the arena for the next message; up to 16 KiB stay with it. */
void naos_kmip_arena_reset(struct naos_kmip_arena *arena);
struct naos_kmip_arena *naos_kmip_arena_free(struct naos_kmip_arena *arena);

static inline void naos_kmip_arena_free_pointer(struct naos_kmip_arena **arena)
{
	*arena = naos_kmip_arena_free(*arena);
}
#define naos_autoarena naos_cleanup(naos_kmip_arena_free_pointer)

#endif

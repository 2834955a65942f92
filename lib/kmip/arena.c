/* Memory of one message, in blocks.  SPDX-License-Identifier: Apache-2.0 */
#include "kmip/arena.h"

#include <string.h>

#define BLOCK_BYTES ((size_t)16 << 10)
#define ALIGNMENT _Alignof(max_align_t)

struct block {
	struct block *next;
	size_t capacity, used;
	_Alignas(max_align_t) unsigned char data[];
};

struct naos_kmip_arena {
	struct block *blocks; /* the newest first */
	size_t max_bytes, bytes;
};

int naos_kmip_arena_create(size_t max_bytes, struct naos_kmip_arena **ret, struct naos_error *err)
{
	struct naos_kmip_arena *arena = calloc(1, sizeof(*arena));
	if (!arena)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for KMIP messages");
	arena->max_bytes = max_bytes;
	*ret = arena;
	return 0;
}

static struct block *add_block(struct naos_kmip_arena *arena, size_t bytes)
{
	size_t capacity = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
	struct block *block = malloc(sizeof(*block) + capacity);
	if (!block)
		return NULL;
	*block = (struct block){ .next = arena->blocks, .capacity = capacity };
	arena->blocks = block;
	return block;
}

void *naos_kmip_arena_take(struct naos_kmip_arena *arena, size_t count, size_t bytes)
{
	size_t wanted;
	if (__builtin_mul_overflow(count, bytes, &wanted) || wanted > arena->max_bytes - arena->bytes)
		return NULL;
	wanted = (wanted + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	struct block *block = arena->blocks;
	if (!block || wanted > block->capacity - block->used)
		block = add_block(arena, wanted);
	if (!block)
		return NULL;
	void *taken = block->data + block->used;
	block->used += wanted;
	arena->bytes = wanted > arena->max_bytes - arena->bytes ? arena->max_bytes : arena->bytes + wanted;
	return memset(taken, 0, wanted);
}

void naos_kmip_arena_reset(struct naos_kmip_arena *arena)
{
	while (arena->blocks && (arena->blocks->next || arena->blocks->capacity > BLOCK_BYTES)) {
		struct block *next = arena->blocks->next;
		free(arena->blocks);
		arena->blocks = next;
	}
	if (arena->blocks)
		arena->blocks->used = 0;
	arena->bytes = 0;
}

struct naos_kmip_arena *naos_kmip_arena_free(struct naos_kmip_arena *arena)
{
	int saved = errno;
	while (arena && arena->blocks) {
		struct block *next = arena->blocks->next;
		free(arena->blocks);
		arena->blocks = next;
	}
	free(arena);
	errno = saved;
	return NULL;
}

/* Words to operations, and random operations.  SPDX-License-Identifier: Apache-2.0 */
#include "ops.h"

#include <stdio.h>
#include <stdlib.h>

#define CHUNK ((uint64_t)NAOS_CHUNK_BYTES)

char op_parse(const char *word, uint8_t fill, struct op *ret)
{
	char *at;
	struct op op = { .fill = fill };
	uint64_t first = strtoull(word + 1, &at, 10);
	op.offset = first * CHUNK;
	op.bytes = CHUNK;
	if (*at == '-') {
		op.bytes = (strtoull(at + 1, &at, 10) + 1 - first) * CHUNK;
	} else if (*at == '+') {
		op.offset += strtoull(at + 1, &at, 10);
		if (*at == ',')
			op.bytes = strtoull(at + 1, &at, 10);
	}
	if (*at)
		return 0;
	switch (word[0]) {
	case 'w': op.kind = OP_WRITE; break;
	case 'p': op.kind = OP_PUNCH; break;
	case 't': op.kind = OP_TRUNCATE; break;
	case 'z': op.kind = OP_ZERO; break;
	case 'f': op.kind = OP_FLUSH; break;
	case 's': op.kind = OP_STEP; break;
	case 'c': op.kind = OP_SEAL; break;
	case 'l': op.kind = OP_LEAVE; break;
	case 'o': op.kind = OP_OPEN; break;
	case 'x':
	case 'k': return word[0];
	default: return 0;
	}
	*ret = op;
	return word[0];
}

/* A chunk at a border, or any. */
static uint64_t near_border(struct rng *rng, uint64_t max_chunks)
{
	static const uint64_t borders[] = { 0, 1, 6, 12, 17, 18, 19, 24, 65, 66, 67, 72, 113, 114, 115 };
	uint64_t chunk = rng_below(rng, 3) ? borders[rng_below(rng, NAOS_ARRAY_LENGTH(borders))] : rng_below(rng, max_chunks);
	return chunk < max_chunks ? chunk : rng_below(rng, max_chunks);
}

struct op op_random(struct rng *rng, uint64_t size, uint64_t max_chunks)
{
	uint64_t dice = rng_below(rng, 100), chunk = near_border(rng, max_chunks);
	struct op op = { .fill = (uint8_t)rng_next(rng), .offset = chunk * CHUNK };
	uint64_t end = (size + CHUNK - 1) / CHUNK;
	if (rng_below(rng, 3) && chunk > end) /* gaps are the exception */
		op.offset = chunk = rng_below(rng, end + 1), op.offset *= CHUNK;
	uint64_t count = 1 + (rng_below(rng, 3) ? 0 : rng_below(rng, 8));
	op.bytes = (chunk + count < max_chunks ? count : 1) * CHUNK;
	if (rng_below(rng, 3) == 0) { /* a part */
		op.offset += rng_below(rng, CHUNK);
		op.bytes = 1 + rng_below(rng, rng_below(rng, 4) ? CHUNK : 3 * CHUNK);
	}
	op.kind = dice < 55 ? OP_WRITE : dice < 70 ? OP_TRUNCATE : dice < 78 ? OP_PUNCH : dice < 82 ? OP_ZERO : dice < 91 ? OP_FLUSH : OP_STEP;
	if (op.kind == OP_TRUNCATE && rng_below(rng, 4) == 0)
		op.offset = size > CHUNK ? size - 1 - rng_below(rng, CHUNK) : 0;
	return op;
}

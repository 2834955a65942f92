/* What a file may read as after a crash: each chunk its content at the last flush or any written since, its size any it had since.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_TESTS_CRASH_ORACLE_H
#define NAOS_TESTS_CRASH_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a file reads: a number per chunk that stands for its zero-extended text. */
struct view {
	uint64_t size;
	uint64_t *texts;
	size_t count;
};
struct view view_of(const uint8_t *data, uint64_t size);
void view_free(struct view *view);
bool view_equal(const struct view *left, const struct view *right);

enum op_kind { OP_WRITE, OP_TRUNCATE, OP_PUNCH, OP_ZERO, OP_FLUSH, OP_STEP, OP_SEAL, OP_LEAVE, OP_OPEN };
struct op {
	enum op_kind kind;
	uint64_t offset; /* or the new size */
	uint64_t bytes;
	uint8_t fill; /* written bytes depend on it and on their place in the chunk */
};
/* The bytes that a write of `fill` puts at an offset. */
uint8_t op_byte(uint8_t fill, uint64_t offset);

struct allowed {
	uint64_t *texts;
	size_t count, room;
};

struct oracle {
	uint8_t *now;
	uint64_t size;
	size_t room;
	struct allowed *chunks;
	size_t chunk_room;
	uint64_t low, high;
};

void oracle_free(struct oracle *oracle);
/* Starts from what a file reads as; data of `size` bytes. */
void oracle_start(struct oracle *oracle, const uint8_t *data, uint64_t size);
/* The same, but nothing of it is durable: what was allowed stays allowed. */
void oracle_survive(struct oracle *oracle, const uint8_t *data, uint64_t size);
/* Before the operation, so that its effects are allowed while it runs. */
void oracle_allow(struct oracle *oracle, const struct op *op);
/* After a flush: only the present content is allowed. */
void oracle_sync(struct oracle *oracle);
/* NULL, or what is wrong (static text; the chunk in *ret_chunk). */
const char *oracle_judge(const struct oracle *oracle, const struct view *view, uint64_t *ret_chunk);

#endif

/* What a file should hold, byte by byte, and which older contents of each chunk a crash may bring back.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_TEST_FS_MODEL_H
#define NAOS_TEST_FS_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_CHUNK 4096u
#define MODEL_CHUNKS 280u /* more than five groups of the format */
#define MODEL_BYTES (MODEL_CHUNK * MODEL_CHUNKS)

struct model_version {
	struct model_version *older;
	uint8_t bytes[MODEL_CHUNK];
};

struct model {
	uint8_t bytes[MODEL_BYTES]; /* zeros at and behind size */
	uint64_t size;
	struct model_version *versions[MODEL_CHUNKS]; /* older contents since the last fsync */
	uint64_t size_min, size_max;                  /* since then */
	bool mapped; /* written through a mapping since then: write-back and other writes may mix within a chunk */
};

void model_free(struct model *model);
void model_write(struct model *model, uint64_t at, const uint8_t *bytes, size_t count);
void model_zero(struct model *model, uint64_t at, uint64_t count, bool keep_size);
void model_truncate(struct model *model, uint64_t size);
/* An fsync was acknowledged: a crash brings back nothing older. */
void model_durable(struct model *model);
/* After a crash: takes over what the file holds now.  Returns the first chunk that holds what it never held since the last fsync,
 * MODEL_CHUNKS if the size is none that it had, -1 if all is well. */
int model_adopt(struct model *model, const uint8_t *bytes, uint64_t size);

/* The same sequence for the same beginning. */
uint32_t model_random(uint64_t *state);
/* Bytes that tell where they lie and to which word they belong. */
void model_fill(uint8_t *bytes, size_t count, uint32_t word);

#endif

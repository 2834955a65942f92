/* SPDX-License-Identifier: Apache-2.0 */
#include "fs_model.h"

#include <stdlib.h>
#include <string.h>

static void forget(struct model *model, unsigned chunk)
{
	for (struct model_version *at = model->versions[chunk], *older; at; at = older) {
		older = at->older;
		free(at);
	}
	model->versions[chunk] = NULL;
}

void model_free(struct model *model)
{
	for (unsigned i = 0; i < MODEL_CHUNKS; i++)
		forget(model, i);
	free(model);
}

/* Keeps the contents of chunks that are about to change. */
static void keep(struct model *model, uint64_t at, uint64_t count)
{
	for (uint64_t i = at / MODEL_CHUNK; count && i <= (at + count - 1) / MODEL_CHUNK && i < MODEL_CHUNKS; i++) {
		struct model_version *version = malloc(sizeof(*version));
		if (!version)
			abort();
		version->older = model->versions[i];
		memcpy(version->bytes, model->bytes + i * MODEL_CHUNK, MODEL_CHUNK);
		model->versions[i] = version;
	}
}

static void resize(struct model *model, uint64_t size)
{
	model->size = size;
	model->size_min = size < model->size_min ? size : model->size_min;
	model->size_max = size > model->size_max ? size : model->size_max;
}

void model_write(struct model *model, uint64_t at, const uint8_t *bytes, size_t count)
{
	keep(model, at, count);
	memcpy(model->bytes + at, bytes, count);
	if (count && at + count > model->size)
		resize(model, at + count);
}

void model_zero(struct model *model, uint64_t at, uint64_t count, bool keep_size)
{
	if (keep_size && at >= model->size)
		return;
	if (keep_size && at + count > model->size)
		count = model->size - at;
	keep(model, at, count);
	memset(model->bytes + at, 0, count);
	if (at + count > model->size)
		resize(model, at + count);
}

void model_truncate(struct model *model, uint64_t size)
{
	if (size < model->size) {
		keep(model, size, model->size - size);
		memset(model->bytes + size, 0, model->size - size);
	}
	resize(model, size);
}

void model_durable(struct model *model)
{
	for (unsigned i = 0; i < MODEL_CHUNKS; i++)
		forget(model, i);
	model->size_min = model->size_max = model->size;
	model->mapped = false;
}

static bool was_byte(const struct model *model, unsigned chunk, size_t place, uint8_t byte)
{
	bool found = model->bytes[(size_t)chunk * MODEL_CHUNK + place] == byte;
	for (const struct model_version *at = model->versions[chunk]; at && !found; at = at->older)
		found = at->bytes[place] == byte;
	return found;
}

static bool was(const struct model *model, unsigned chunk, const uint8_t *bytes, size_t count)
{
	if (memcmp(model->bytes + (size_t)chunk * MODEL_CHUNK, bytes, count) == 0)
		return true;
	for (const struct model_version *at = model->versions[chunk]; at; at = at->older)
		if (memcmp(at->bytes, bytes, count) == 0)
			return true;
	for (size_t i = 0; model->mapped && i < count; i++)
		if (!was_byte(model, chunk, i, bytes[i]))
			return false;
	return model->mapped;
}

int model_adopt(struct model *model, const uint8_t *bytes, uint64_t size)
{
	if (size < model->size_min || size > model->size_max)
		return MODEL_CHUNKS;
	for (unsigned i = 0; i < MODEL_CHUNKS && (uint64_t)i * MODEL_CHUNK < size; i++) {
		uint64_t left = size - (uint64_t)i * MODEL_CHUNK;
		if (!was(model, i, bytes + (size_t)i * MODEL_CHUNK, left < MODEL_CHUNK ? (size_t)left : MODEL_CHUNK))
			return (int)i;
	}
	memcpy(model->bytes, bytes, (size_t)size);
	memset(model->bytes + size, 0, MODEL_BYTES - (size_t)size);
	model->size = size;
	model_durable(model);
	return -1;
}

uint32_t model_random(uint64_t *state)
{
	*state += 0x9e3779b97f4a7c15u; /* splitmix64 */
	uint64_t z = *state;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (uint32_t)((z ^ (z >> 31)) >> 11);
}

void model_fill(uint8_t *bytes, size_t count, uint32_t word)
{
	for (size_t i = 0; i < count; i++)
		bytes[i] = (uint8_t)((word >> (i % 4 * 8)) + i / 1000);
}

/* The oracle.  SPDX-License-Identifier: Apache-2.0 */
#include "oracle.h"

#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "seal/layout.h"

static uint64_t text_number(const uint8_t *data, size_t bytes)
{
	uint64_t words[NAOS_CHUNK_BYTES / 8] = { 0 }, sum = 0x243f6a8885a308d3u;
	memcpy(words, data, bytes);
	for (size_t i = 0; i < NAOS_CHUNK_BYTES / 8; i++) {
		sum = (sum ^ words[i]) * 0x9e3779b97f4a7c15u;
		sum ^= sum >> 29;
	}
	return sum;
}

struct view view_of(const uint8_t *data, uint64_t size)
{
	struct view view = { .size = size, .count = (size_t)naos_layout_chunks(size) };
	view.texts = must(calloc(view.count + 1, sizeof(*view.texts)));
	for (size_t i = 0; i < view.count; i++) {
		uint64_t left = size - i * NAOS_CHUNK_BYTES;
		view.texts[i] = text_number(data + i * NAOS_CHUNK_BYTES, left < NAOS_CHUNK_BYTES ? (size_t)left : NAOS_CHUNK_BYTES);
	}
	return view;
}

void view_free(struct view *view)
{
	free(view->texts);
	*view = (struct view){ 0 };
}

bool view_equal(const struct view *left, const struct view *right)
{
	return left->size == right->size && memcmp(left->texts, right->texts, left->count * sizeof(*left->texts)) == 0;
}

uint8_t op_byte(uint8_t fill, uint64_t offset)
{
	return (uint8_t)(fill + offset % NAOS_CHUNK_BYTES / 64 + 1);
}

static void resize(struct oracle *oracle, uint64_t size)
{
	if (size > oracle->room) {
		oracle->room = (size_t)size + 65536;
		oracle->now = must(realloc(oracle->now, oracle->room));
	}
	if (size > oracle->size)
		memset(oracle->now + oracle->size, 0, (size_t)(size - oracle->size));
	oracle->size = size;
}

static void allow_text(struct oracle *oracle, size_t chunk, uint64_t text)
{
	if (chunk >= oracle->chunk_room) {
		size_t room = chunk + 64;
		oracle->chunks = must(reallocarray(oracle->chunks, room, sizeof(*oracle->chunks)));
		memset(oracle->chunks + oracle->chunk_room, 0, (room - oracle->chunk_room) * sizeof(*oracle->chunks));
		oracle->chunk_room = room;
	}
	struct allowed *allowed = &oracle->chunks[chunk];
	for (size_t i = 0; i < allowed->count; i++)
		if (allowed->texts[i] == text)
			return;
	if (allowed->count == allowed->room) {
		allowed->room += 8;
		allowed->texts = must(reallocarray(allowed->texts, allowed->room, sizeof(uint64_t)));
	}
	allowed->texts[allowed->count++] = text;
}

static void allow_now(struct oracle *oracle)
{
	struct view view = view_of(oracle->now, oracle->size);
	for (size_t i = 0; i < view.count; i++)
		allow_text(oracle, i, view.texts[i]);
	oracle->low = oracle->size < oracle->low ? oracle->size : oracle->low;
	oracle->high = oracle->size > oracle->high ? oracle->size : oracle->high;
	view_free(&view);
}

void oracle_sync(struct oracle *oracle)
{
	for (size_t i = 0; i < oracle->chunk_room; i++)
		oracle->chunks[i].count = 0;
	oracle->low = oracle->high = oracle->size;
	allow_now(oracle);
}

void oracle_free(struct oracle *oracle)
{
	for (size_t i = 0; i < oracle->chunk_room; i++)
		free(oracle->chunks[i].texts);
	free(oracle->chunks);
	free(oracle->now);
	*oracle = (struct oracle){ 0 };
}

void oracle_start(struct oracle *oracle, const uint8_t *data, uint64_t size)
{
	resize(oracle, 0);
	resize(oracle, size);
	if (size)
		memcpy(oracle->now, data, (size_t)size);
	oracle_sync(oracle);
}

void oracle_survive(struct oracle *oracle, const uint8_t *data, uint64_t size)
{
	resize(oracle, 0);
	resize(oracle, size);
	if (size)
		memcpy(oracle->now, data, (size_t)size);
	allow_now(oracle);
}

void oracle_allow(struct oracle *oracle, const struct op *op)
{
	uint64_t end = op->offset + op->bytes;
	/* a write goes chunk by chunk: the file may end, and each chunk may stand, anywhere between */
	if (op->kind == OP_WRITE && op->bytes) {
		uint64_t start = op->offset / NAOS_CHUNK_BYTES * NAOS_CHUNK_BYTES;
		if (start > oracle->size) { /* the gap is filled first */
			resize(oracle, start);
			allow_now(oracle);
		}
		if (end > oracle->size)
			resize(oracle, end);
		for (uint64_t i = op->offset; i < end; i++)
			oracle->now[i] = op_byte(op->fill, i);
	} else if (op->kind == OP_TRUNCATE) {
		resize(oracle, op->offset);
	} else if (op->kind == OP_PUNCH && op->offset < oracle->size) {
		uint64_t to = end < oracle->size ? end : oracle->size;
		memset(oracle->now + op->offset, 0, (size_t)(to - op->offset));
	} else if (op->kind == OP_ZERO) {
		if (op->offset < oracle->size)
			memset(oracle->now + op->offset, 0, (size_t)((end < oracle->size ? end : oracle->size) - op->offset));
		allow_now(oracle); /* then it is extended */
		if (end > oracle->size)
			resize(oracle, end);
	} else {
		return;
	}
	allow_now(oracle);
}

const char *oracle_judge(const struct oracle *oracle, const struct view *view, uint64_t *ret_chunk)
{
	*ret_chunk = 0;
	if (view->size < oracle->low || view->size > oracle->high)
		return "the size is none that the file had since the last flush";
	for (size_t i = 0; i < view->count; i++) {
		bool found = false;
		for (size_t j = 0; i < oracle->chunk_room && j < oracle->chunks[i].count && !found; j++)
			found = oracle->chunks[i].texts[j] == view->texts[i];
		*ret_chunk = i;
		if (!found)
			return "a chunk reads as what it never was since the last flush";
	}
	return NULL;
}

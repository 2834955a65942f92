/* The bounded cursor.  SPDX-License-Identifier: Apache-2.0 */
#include "base/cursor.h"

#include <string.h>

struct naos_cursor naos_cursor_reader(const void *data, size_t bytes)
{
	return (struct naos_cursor){ .view = data, .bytes = bytes };
}

struct naos_cursor naos_cursor_writer(void *data, size_t bytes)
{
	return (struct naos_cursor){ .data = data, .view = data, .bytes = bytes };
}

bool naos_cursor_ok(const struct naos_cursor *cursor)
{
	return !cursor->failed;
}

size_t naos_cursor_left(const struct naos_cursor *cursor)
{
	return cursor->bytes - cursor->position;
}

bool naos_cursor_at_end(const struct naos_cursor *cursor)
{
	return !cursor->failed && cursor->position == cursor->bytes;
}

void naos_cursor_fail(struct naos_cursor *cursor)
{
	cursor->failed = true;
}

const uint8_t *naos_cursor_get_view(struct naos_cursor *cursor, size_t bytes)
{
	if (cursor->failed || bytes > naos_cursor_left(cursor)) {
		cursor->failed = true;
		return NULL;
	}
	const uint8_t *at = cursor->view + cursor->position;
	cursor->position += bytes;
	return at;
}

/* Inlined, so that each width becomes one load. */
static inline __attribute__((always_inline)) uint64_t get_integer(struct naos_cursor *cursor, unsigned bytes, bool big_endian)
{
	const uint8_t *at = naos_cursor_get_view(cursor, bytes);
	uint64_t value = 0;
	for (unsigned i = 0; at && i < bytes; i++)
		value |= (uint64_t)at[i] << (8 * (big_endian ? bytes - 1 - i : i));
	return value;
}

uint8_t naos_cursor_get_u8(struct naos_cursor *cursor) { return (uint8_t)get_integer(cursor, 1, false); }
uint16_t naos_cursor_get_u16(struct naos_cursor *cursor) { return (uint16_t)get_integer(cursor, 2, false); }
uint32_t naos_cursor_get_u32(struct naos_cursor *cursor) { return (uint32_t)get_integer(cursor, 4, false); }
uint64_t naos_cursor_get_u64(struct naos_cursor *cursor) { return get_integer(cursor, 8, false); }
uint32_t naos_cursor_get_u32be(struct naos_cursor *cursor) { return (uint32_t)get_integer(cursor, 4, true); }
uint64_t naos_cursor_get_u64be(struct naos_cursor *cursor) { return get_integer(cursor, 8, true); }

void naos_cursor_get(struct naos_cursor *cursor, void *destination, size_t bytes)
{
	const uint8_t *at = naos_cursor_get_view(cursor, bytes);
	if (at)
		memcpy(destination, at, bytes);
	else
		memset(destination, 0, bytes);
}

void naos_cursor_get_zero(struct naos_cursor *cursor, size_t bytes)
{
	const uint8_t *at = naos_cursor_get_view(cursor, bytes);
	uint8_t any = 0;
	for (size_t i = 0; at && i < bytes; i++)
		any |= at[i];
	if (any)
		cursor->failed = true;
}

void naos_cursor_get_match(struct naos_cursor *cursor, const void *expected, size_t bytes)
{
	const uint8_t *at = naos_cursor_get_view(cursor, bytes);
	if (at && memcmp(at, expected, bytes) != 0)
		cursor->failed = true;
}

static uint8_t *put_room(struct naos_cursor *cursor, size_t bytes)
{
	if (cursor->failed || !cursor->data || bytes > naos_cursor_left(cursor)) {
		cursor->failed = true;
		return NULL;
	}
	uint8_t *at = cursor->data + cursor->position;
	cursor->position += bytes;
	return at;
}

static inline __attribute__((always_inline)) void put_integer(struct naos_cursor *cursor, uint64_t value, unsigned bytes, bool big_endian)
{
	uint8_t *at = put_room(cursor, bytes);
	for (unsigned i = 0; at && i < bytes; i++)
		at[i] = (uint8_t)(value >> (8 * (big_endian ? bytes - 1 - i : i)));
}

void naos_cursor_put_u8(struct naos_cursor *cursor, uint8_t value) { put_integer(cursor, value, 1, false); }
void naos_cursor_put_u16(struct naos_cursor *cursor, uint16_t value) { put_integer(cursor, value, 2, false); }
void naos_cursor_put_u32(struct naos_cursor *cursor, uint32_t value) { put_integer(cursor, value, 4, false); }
void naos_cursor_put_u64(struct naos_cursor *cursor, uint64_t value) { put_integer(cursor, value, 8, false); }
void naos_cursor_put_u32be(struct naos_cursor *cursor, uint32_t value) { put_integer(cursor, value, 4, true); }
void naos_cursor_put_u64be(struct naos_cursor *cursor, uint64_t value) { put_integer(cursor, value, 8, true); }

void naos_cursor_put(struct naos_cursor *cursor, const void *source, size_t bytes)
{
	uint8_t *at = put_room(cursor, bytes);
	if (at && bytes)
		memcpy(at, source, bytes);
}

void naos_cursor_put_zero(struct naos_cursor *cursor, size_t bytes)
{
	uint8_t *at = put_room(cursor, bytes);
	if (at && bytes)
		memset(at, 0, bytes);
}

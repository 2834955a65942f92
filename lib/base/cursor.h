/* The one bounded cursor that parses and writes every wire and disk record.
 *
 * A cursor is a window of bytes and a position.  Each get or put checks the room that is left; the first that does not
 * fit marks the cursor as failed, and from then on gets return zero and puts do nothing.  So a record is read in a row
 * of small steps and checked once at the end with naos_cursor_ok().  Little-endian unless the name says `be`.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_BASE_CURSOR_H
#define NAOS_BASE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct naos_cursor {
	uint8_t *data;       /* writable window; NULL for a reader */
	const uint8_t *view; /* the same bytes for reading */
	size_t bytes;        /* of the window */
	size_t position;     /* ≤ bytes */
	bool failed;
};

struct naos_cursor naos_cursor_reader(const void *data, size_t bytes);
struct naos_cursor naos_cursor_writer(void *data, size_t bytes);

bool naos_cursor_ok(const struct naos_cursor *cursor);
size_t naos_cursor_left(const struct naos_cursor *cursor);
/* True if nothing failed and the whole window was used. */
bool naos_cursor_at_end(const struct naos_cursor *cursor);
void naos_cursor_fail(struct naos_cursor *cursor);

uint8_t naos_cursor_get_u8(struct naos_cursor *cursor);
uint16_t naos_cursor_get_u16(struct naos_cursor *cursor);
uint32_t naos_cursor_get_u32(struct naos_cursor *cursor);
uint64_t naos_cursor_get_u64(struct naos_cursor *cursor);
uint32_t naos_cursor_get_u32be(struct naos_cursor *cursor);
uint64_t naos_cursor_get_u64be(struct naos_cursor *cursor);
/* Copies bytes out; zero-fills destination on failure. */
void naos_cursor_get(struct naos_cursor *cursor, void *destination, size_t bytes);
/* A borrowed view of the next bytes (valid as long as the window is), NULL on failure. */
const uint8_t *naos_cursor_get_view(struct naos_cursor *cursor, size_t bytes);
/* Skips reserved bytes and fails if one of them is not zero. */
void naos_cursor_get_zero(struct naos_cursor *cursor, size_t bytes);
/* Compares with a fixed text, such as a magic, and fails if it differs. */
void naos_cursor_get_match(struct naos_cursor *cursor, const void *expected, size_t bytes);

void naos_cursor_put_u8(struct naos_cursor *cursor, uint8_t value);
void naos_cursor_put_u16(struct naos_cursor *cursor, uint16_t value);
void naos_cursor_put_u32(struct naos_cursor *cursor, uint32_t value);
void naos_cursor_put_u64(struct naos_cursor *cursor, uint64_t value);
void naos_cursor_put_u32be(struct naos_cursor *cursor, uint32_t value);
void naos_cursor_put_u64be(struct naos_cursor *cursor, uint64_t value);
void naos_cursor_put(struct naos_cursor *cursor, const void *source, size_t bytes);
void naos_cursor_put_zero(struct naos_cursor *cursor, size_t bytes);

#endif

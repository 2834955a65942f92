/* The small types that KMIP messages are made of.
 *
 * Text, bytes and lists are borrowed: after decoding they point into the message and the arena, and live as long as those
 * do; before encoding they point at whatever the caller has.  So key bytes are never copied: they are in the message, which
 * is held in secret memory (message.h), or in the caller's struct naos_secret.
 *
 * What may be absent: text and bytes with data NULL, a pointer NULL, a list of count 0, an enumeration 0 (no enumeration of
 * KMIP uses 0, but result status, which is never absent), and the others with present false.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KMIP_TYPES_H
#define NAOS_KMIP_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kmip/tables.h"

/* UTF-8 without a NUL, inside or behind. */
struct naos_kmip_text {
	const char *data;
	size_t bytes;
};

struct naos_kmip_bytes {
	const uint8_t *data;
	size_t bytes;
};

struct naos_kmip_integer {
	bool present;
	int32_t value;
};

struct naos_kmip_long {
	bool present;
	int64_t value;
};

struct naos_kmip_boolean {
	bool present;
	bool value;
};

struct naos_kmip_date {
	bool present;
	int64_t unix_s;
};

struct naos_kmip_interval {
	bool present;
	uint32_t seconds;
};

/* An item that is kept as it stands on the wire; type 0: absent. */
struct naos_kmip_raw {
	uint8_t type;                 /* enum naos_kmip_type */
	struct naos_kmip_bytes value; /* without padding */
};

struct naos_kmip_texts {
	const struct naos_kmip_text *items;
	size_t count;
};

/* Values of one enumeration, or protocol versions. */
struct naos_kmip_numbers {
	const uint32_t *items;
	size_t count;
};

static inline struct naos_kmip_text naos_kmip_text(const char *text)
{
	return (struct naos_kmip_text){ .data = text, .bytes = text ? strlen(text) : 0 };
}

static inline bool naos_kmip_text_equal(struct naos_kmip_text left, const char *right)
{
	return left.data && strlen(right) == left.bytes && memcmp(left.data, right, left.bytes) == 0;
}

static inline struct naos_kmip_bytes naos_kmip_bytes(const void *data, size_t bytes)
{
	return (struct naos_kmip_bytes){ .data = data, .bytes = bytes };
}

static inline struct naos_kmip_integer naos_kmip_integer(int32_t value)
{
	return (struct naos_kmip_integer){ .present = true, .value = value };
}

static inline struct naos_kmip_long naos_kmip_long(int64_t value)
{
	return (struct naos_kmip_long){ .present = true, .value = value };
}

static inline struct naos_kmip_boolean naos_kmip_boolean(bool value)
{
	return (struct naos_kmip_boolean){ .present = true, .value = value };
}

static inline struct naos_kmip_date naos_kmip_date(int64_t unix_s)
{
	return (struct naos_kmip_date){ .present = true, .unix_s = unix_s };
}

static inline struct naos_kmip_interval naos_kmip_interval(uint32_t seconds)
{
	return (struct naos_kmip_interval){ .present = true, .seconds = seconds };
}

#endif

/* TTLV, the encoding of KMIP (specification 9.1): tag (3 bytes), type (1), length (4), value, zero padding to 8 bytes;
 * big-endian.  Generic: knows items, not messages.  Nothing here recurses, allocates or copies a value.
 *
 * A message comes off the wire in this order: naos_kmip_frame() says how many bytes it has (or refuses it as early as
 * can be decided); naos_kmip_check() proves that all of it is well formed; after that items are read with a cursor.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KMIP_TTLV_H
#define NAOS_KMIP_TTLV_H

#include "base/cursor.h"
#include "base/errors.h"
#include "kmip/types.h"

#define NAOS_KMIP_HEADER_BYTES 8 /* tag, type and length */
/* What a peer controls, and its limits.  A whole message fits one struct naos_secret. */
#define NAOS_KMIP_MAX_MESSAGE_BYTES ((size_t)1 << 20) /* one message, with its first 8 bytes */
#define NAOS_KMIP_MAX_FIRST_MESSAGE_BYTES ((size_t)64 << 10) /* until the first good request of a connection */
#define NAOS_KMIP_MAX_DEPTH 32   /* structures in structures */
#define NAOS_KMIP_MAX_BATCH 1000 /* items of one message */

enum naos_kmip_role { NAOS_KMIP_REQUESTS, NAOS_KMIP_RESPONSES };

/* Looks at the first `available` bytes of a message (0 is allowed) and writes how many it has in all, as far as they
 * tell: 8 until its length is known.  Call it again when that many are there; it is complete when available ≥ *ret_bytes.
 * Errors, at the first byte that decides: NAOS_E_FORMAT (not a KMIP message of this role), NAOS_E_LIMIT (longer than
 * max_message_bytes). */
int naos_kmip_frame(enum naos_kmip_role role, const void *data, size_t available, size_t max_message_bytes, size_t *ret_bytes,
		    struct naos_error *err) naos_must_check;

/* Proves that the bytes are exactly one well-formed item: known types, exact lengths, zero padding, true or false, UTF-8
 * without NUL, structures filled exactly, at most NAOS_KMIP_MAX_DEPTH deep, at most NAOS_KMIP_MAX_BATCH batch items.
 * Errors: NAOS_E_FORMAT and NAOS_E_LIMIT, with the offset. */
int naos_kmip_check(const void *message, size_t bytes, struct naos_error *err) naos_must_check;

/* One item.  value points into the window and has `bytes` bytes, without padding. */
struct naos_kmip_item {
	uint32_t tag;
	uint8_t type;
	size_t bytes;
	const uint8_t *value;
};

/* The next item and its padding; false, with the cursor failed, if there is none whole and well formed (the content of a
 * structure is not looked at). */
bool naos_kmip_get(struct naos_cursor *in, struct naos_kmip_item *ret) naos_must_check;

/* The value of an item of the right type (0 of another one). */
int32_t naos_kmip_item_integer(const struct naos_kmip_item *item);
int64_t naos_kmip_item_long(const struct naos_kmip_item *item); /* also of a date and time */
uint32_t naos_kmip_item_number(const struct naos_kmip_item *item); /* of an enumeration or interval */
bool naos_kmip_item_boolean(const struct naos_kmip_item *item);

/* One item each.  Like all writes of a cursor they do nothing once it failed. */
void naos_kmip_put_integer(struct naos_cursor *out, uint32_t tag, int32_t value);
void naos_kmip_put_long(struct naos_cursor *out, uint32_t tag, int64_t value);
void naos_kmip_put_enum(struct naos_cursor *out, uint32_t tag, uint32_t value);
void naos_kmip_put_boolean(struct naos_cursor *out, uint32_t tag, bool value);
void naos_kmip_put_text(struct naos_cursor *out, uint32_t tag, struct naos_kmip_text value);
void naos_kmip_put_bytes(struct naos_cursor *out, uint32_t tag, struct naos_kmip_bytes value);
void naos_kmip_put_date(struct naos_cursor *out, uint32_t tag, int64_t unix_s);
void naos_kmip_put_interval(struct naos_cursor *out, uint32_t tag, uint32_t seconds);
/* Any value as it stands on the wire, without padding. */
void naos_kmip_put_raw(struct naos_cursor *out, uint32_t tag, struct naos_kmip_raw value);
/* Opens a structure; what is put until naos_kmip_close(out, mark) is inside. */
size_t naos_kmip_open(struct naos_cursor *out, uint32_t tag);
void naos_kmip_close(struct naos_cursor *out, size_t mark);

/* Well-formed UTF-8 (RFC 3629) without a NUL. */
bool naos_kmip_text_valid(const void *data, size_t bytes);

#endif

/* Reading and writing TTLV items.  SPDX-License-Identifier: Apache-2.0 */
#include "kmip/ttlv.h"

#define NEVER_FIXED UINT32_MAX

static size_t padding(size_t bytes)
{
	return (8 - bytes % 8) % 8;
}

/* The length that a type has always; NEVER_FIXED if it varies. */
static uint32_t fixed_bytes(uint8_t type)
{
	switch (type) {
	case NAOS_KMIP_TYPE_INTEGER:
	case NAOS_KMIP_TYPE_ENUMERATION:
	case NAOS_KMIP_TYPE_INTERVAL:
		return 4;
	case NAOS_KMIP_TYPE_LONG_INTEGER:
	case NAOS_KMIP_TYPE_BOOLEAN:
	case NAOS_KMIP_TYPE_DATE_TIME:
	case NAOS_KMIP_TYPE_DATE_TIME_EXTENDED:
		return 8;
	default:
		return NEVER_FIXED;
	}
}

static bool length_valid(uint8_t type, uint32_t bytes)
{
	if (type < NAOS_KMIP_TYPE_STRUCTURE || type > NAOS_KMIP_TYPE_DATE_TIME_EXTENDED)
		return false;
	if (type == NAOS_KMIP_TYPE_STRUCTURE)
		return bytes % 8 == 0;
	if (type == NAOS_KMIP_TYPE_BIG_INTEGER)
		return bytes != 0 && bytes % 8 == 0;
	return fixed_bytes(type) == NEVER_FIXED || fixed_bytes(type) == bytes;
}

bool naos_kmip_text_valid(const void *data, size_t bytes)
{
	static const uint32_t smallest[] = { 0, 0, 0x80, 0x800, 0x10000 };
	const uint8_t *at = data;
	for (size_t i = 0; i < bytes;) {
		uint8_t first = at[i];
		size_t length = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
		uint32_t point = length == 1 ? first : first & (0x7fu >> length);
		if (length == 0 || length > bytes - i)
			return false;
		for (size_t j = 1; j < length; j++) {
			if (at[i + j] >> 6 != 2)
				return false;
			point = point << 6 | (at[i + j] & 0x3f);
		}
		if (point == 0 || point < smallest[length] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
			return false;
		i += length;
	}
	return true;
}

bool naos_kmip_get(struct naos_cursor *in, struct naos_kmip_item *ret)
{
	uint32_t head = naos_cursor_get_u32be(in), bytes = naos_cursor_get_u32be(in);
	struct naos_kmip_item item = { .tag = head >> 8, .type = (uint8_t)head, .bytes = bytes };
	if (!length_valid(item.type, bytes))
		naos_cursor_fail(in);
	item.value = naos_cursor_get_view(in, bytes);
	naos_cursor_get_zero(in, padding(bytes));
	if (item.value && item.type == NAOS_KMIP_TYPE_BOOLEAN) {
		struct naos_cursor value = naos_cursor_reader(item.value, item.bytes);
		if (naos_cursor_get_u64be(&value) > 1)
			naos_cursor_fail(in);
	}
	if (item.value && item.type == NAOS_KMIP_TYPE_TEXT && !naos_kmip_text_valid(item.value, item.bytes))
		naos_cursor_fail(in);
	if (!naos_cursor_ok(in))
		return false;
	*ret = item;
	return true;
}

int32_t naos_kmip_item_integer(const struct naos_kmip_item *item)
{
	struct naos_cursor value = naos_cursor_reader(item->value, item->bytes);
	return (int32_t)naos_cursor_get_u32be(&value);
}

int64_t naos_kmip_item_long(const struct naos_kmip_item *item)
{
	struct naos_cursor value = naos_cursor_reader(item->value, item->bytes);
	return (int64_t)naos_cursor_get_u64be(&value);
}

uint32_t naos_kmip_item_number(const struct naos_kmip_item *item)
{
	return (uint32_t)naos_kmip_item_integer(item);
}

bool naos_kmip_item_boolean(const struct naos_kmip_item *item)
{
	return naos_kmip_item_long(item) != 0;
}

int naos_kmip_frame(enum naos_kmip_role role, const void *data, size_t available, size_t max_message_bytes, size_t *ret_bytes,
		    struct naos_error *err)
{
	const uint8_t expected[4] = { 0x42, 0x00, role == NAOS_KMIP_REQUESTS ? 0x78 : 0x7b, NAOS_KMIP_TYPE_STRUCTURE };
	size_t seen = available < NAOS_KMIP_HEADER_BYTES ? available : NAOS_KMIP_HEADER_BYTES;
	struct naos_cursor in = naos_cursor_reader(data, seen);
	naos_cursor_get_match(&in, expected, seen < sizeof(expected) ? seen : sizeof(expected));
	if (!naos_cursor_ok(&in))
		return naos_error_set(err, NAOS_E_FORMAT, "this is not a KMIP %s: it does not begin with 42 00 %02x 01",
				      role == NAOS_KMIP_REQUESTS ? "request" : "response", expected[2]);
	/* Bytes of the length that are not there yet count as zero: the message is at least so long. */
	uint64_t length = 0;
	for (size_t i = sizeof(expected); i < NAOS_KMIP_HEADER_BYTES; i++)
		length = length << 8 | (i < seen ? naos_cursor_get_u8(&in) : 0);
	if (length + NAOS_KMIP_HEADER_BYTES > max_message_bytes)
		return naos_error_set(err, NAOS_E_LIMIT, "a KMIP message of %llu bytes or more is over the limit of %zu",
				      (unsigned long long)length + NAOS_KMIP_HEADER_BYTES, max_message_bytes);
	if (seen == NAOS_KMIP_HEADER_BYTES && length % 8 != 0)
		return naos_error_set(err, NAOS_E_FORMAT, "a KMIP message can't have the length %llu: it is no multiple of 8",
				      (unsigned long long)length);
	*ret_bytes = NAOS_KMIP_HEADER_BYTES + (seen == NAOS_KMIP_HEADER_BYTES ? (size_t)length : 0);
	return 0;
}

int naos_kmip_check(const void *message, size_t bytes, struct naos_error *err)
{
	size_t ends[NAOS_KMIP_MAX_DEPTH]; /* where the open structures end, in the message */
	size_t depth = 0, batch = 0;
	struct naos_cursor in = naos_cursor_reader(message, bytes);
	do {
		size_t start = in.position;
		struct naos_kmip_item item;
		/* An item must lie inside its structure: it is read through a window that ends there. */
		struct naos_cursor window = naos_cursor_reader(message, depth ? ends[depth - 1] : bytes);
		window.position = start;
		if (!naos_kmip_get(&window, &item))
			return naos_error_set(err, NAOS_E_FORMAT, "the KMIP message is malformed at byte %zu", start);
		in.position = window.position;
		if (depth == 1 && item.tag == NAOS_KMIP_TAG_BATCH_ITEM && ++batch > NAOS_KMIP_MAX_BATCH)
			return naos_error_set(err, NAOS_E_LIMIT, "the KMIP message has more than %d batch items", NAOS_KMIP_MAX_BATCH);
		if (item.type == NAOS_KMIP_TYPE_STRUCTURE) {
			if (depth == NAOS_KMIP_MAX_DEPTH)
				return naos_error_set(err, NAOS_E_LIMIT, "the KMIP message is nested more than %d deep at byte %zu",
						      NAOS_KMIP_MAX_DEPTH, start);
			ends[depth++] = in.position;
			in.position -= item.bytes;
		}
		while (depth > 0 && in.position == ends[depth - 1])
			depth--;
	} while (depth > 0);
	if (!naos_cursor_at_end(&in))
		return naos_error_set(err, NAOS_E_FORMAT, "the KMIP message has %zu bytes too many", naos_cursor_left(&in));
	return 0;
}

static void put_head(struct naos_cursor *out, uint32_t tag, uint8_t type, size_t bytes)
{
	if (bytes > NAOS_KMIP_MAX_MESSAGE_BYTES)
		naos_cursor_fail(out);
	naos_cursor_put_u32be(out, tag << 8 | type);
	naos_cursor_put_u32be(out, (uint32_t)bytes);
}

void naos_kmip_put_raw(struct naos_cursor *out, uint32_t tag, struct naos_kmip_raw value)
{
	put_head(out, tag, value.type, value.value.bytes);
	naos_cursor_put(out, value.value.data, value.value.bytes);
	naos_cursor_put_zero(out, padding(value.value.bytes));
}

static void put_u32(struct naos_cursor *out, uint32_t tag, uint8_t type, uint32_t value)
{
	put_head(out, tag, type, 4);
	naos_cursor_put_u32be(out, value);
	naos_cursor_put_zero(out, 4);
}

static void put_u64(struct naos_cursor *out, uint32_t tag, uint8_t type, uint64_t value)
{
	put_head(out, tag, type, 8);
	naos_cursor_put_u64be(out, value);
}

void naos_kmip_put_integer(struct naos_cursor *out, uint32_t tag, int32_t value)
{
	put_u32(out, tag, NAOS_KMIP_TYPE_INTEGER, (uint32_t)value);
}

void naos_kmip_put_long(struct naos_cursor *out, uint32_t tag, int64_t value)
{
	put_u64(out, tag, NAOS_KMIP_TYPE_LONG_INTEGER, (uint64_t)value);
}

void naos_kmip_put_enum(struct naos_cursor *out, uint32_t tag, uint32_t value)
{
	put_u32(out, tag, NAOS_KMIP_TYPE_ENUMERATION, value);
}

void naos_kmip_put_boolean(struct naos_cursor *out, uint32_t tag, bool value)
{
	put_u64(out, tag, NAOS_KMIP_TYPE_BOOLEAN, value);
}

void naos_kmip_put_date(struct naos_cursor *out, uint32_t tag, int64_t unix_s)
{
	put_u64(out, tag, NAOS_KMIP_TYPE_DATE_TIME, (uint64_t)unix_s);
}

void naos_kmip_put_interval(struct naos_cursor *out, uint32_t tag, uint32_t seconds)
{
	put_u32(out, tag, NAOS_KMIP_TYPE_INTERVAL, seconds);
}

void naos_kmip_put_text(struct naos_cursor *out, uint32_t tag, struct naos_kmip_text value)
{
	if (!naos_kmip_text_valid(value.data, value.bytes))
		naos_cursor_fail(out);
	naos_kmip_put_raw(out, tag, (struct naos_kmip_raw){ .type = NAOS_KMIP_TYPE_TEXT,
							    .value = { (const uint8_t *)value.data, value.bytes } });
}

void naos_kmip_put_bytes(struct naos_cursor *out, uint32_t tag, struct naos_kmip_bytes value)
{
	naos_kmip_put_raw(out, tag, (struct naos_kmip_raw){ .type = NAOS_KMIP_TYPE_BYTES, .value = value });
}

size_t naos_kmip_open(struct naos_cursor *out, uint32_t tag)
{
	put_head(out, tag, NAOS_KMIP_TYPE_STRUCTURE, 0);
	return out->position;
}

void naos_kmip_close(struct naos_cursor *out, size_t mark)
{
	if (!naos_cursor_ok(out))
		return;
	struct naos_cursor length = naos_cursor_writer(out->data, mark);
	length.position = mark - 4;
	naos_cursor_put_u32be(&length, (uint32_t)(out->position - mark));
}

/* Framing and the check of whole messages: what is hostile or damaged is refused, as early as it can be told.
 * SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "kmip/ttlv.h"

static int frame(const void *data, size_t available, size_t limit, size_t *ret)
{
	struct naos_error err = NAOS_ERROR_INIT;
	int rc = naos_kmip_frame(NAOS_KMIP_REQUESTS, data, available, limit, ret, &err);
	if (rc != 0)
		assert_true(err.code == rc && err.message[0]);
	return rc;
}

static void a_frame_says_how_much_it_needs(void **state)
{
	const uint8_t head[] = { 0x42, 0x00, 0x78, 0x01, 0x00, 0x00, 0x01, 0x00 };
	size_t bytes = 0;
	for (size_t seen = 0; seen < sizeof(head); seen++) {
		assert_int_equal(frame(head, seen, 1 << 20, &bytes), 0);
		assert_int_equal(bytes, NAOS_KMIP_HEADER_BYTES);
	}
	assert_int_equal(frame(head, sizeof(head), 1 << 20, &bytes), 0);
	assert_int_equal(bytes, 0x100 + NAOS_KMIP_HEADER_BYTES);
}

static void what_is_not_kmip_is_refused_at_its_first_wrong_byte(void **state)
{
	const uint8_t head[] = { 0x42, 0x00, 0x78, 0x01 }, response[] = { 0x42, 0x00, 0x7b, 0x01 };
	size_t bytes = 7;
	assert_code(frame("GET / HTTP/1.1\r\n", 1, 1 << 20, &bytes), NAOS_E_FORMAT);
	assert_code(frame("\x16\x03\x01", 3, 1 << 20, &bytes), NAOS_E_FORMAT);
	for (size_t wrong = 0; wrong < sizeof(head); wrong++) {
		uint8_t other[4];
		memcpy(other, head, sizeof(head));
		other[wrong] ^= 1;
		assert_code(frame(other, wrong, 1 << 20, &bytes), 0);
		bytes = 7;
		assert_code(frame(other, wrong + 1, 1 << 20, &bytes), NAOS_E_FORMAT);
		assert_int_equal(bytes, 7); /* written on success only */
	}
	assert_code(frame(response, sizeof(response), 1 << 20, &bytes), NAOS_E_FORMAT);
	struct naos_error err = NAOS_ERROR_INIT;
	assert_ok(naos_kmip_frame(NAOS_KMIP_RESPONSES, response, sizeof(response), 1 << 20, &bytes, &err), &err);
	assert_code(naos_kmip_frame(NAOS_KMIP_RESPONSES, head, sizeof(head), 1 << 20, &bytes, &err), NAOS_E_FORMAT);
}

static void a_message_too_long_is_refused_as_soon_as_that_is_certain(void **state)
{
	const uint8_t two_gib[] = { 0x42, 0x00, 0x78, 0x01, 0x7f, 0xff, 0xff, 0xf8 };
	const uint8_t all_ones[] = { 0x42, 0x00, 0x78, 0x01, 0xff, 0xff, 0xff, 0xff };
	size_t bytes;
	assert_code(frame(two_gib, 4, 1 << 20, &bytes), 0);
	assert_code(frame(two_gib, 5, 1 << 20, &bytes), NAOS_E_LIMIT);
	assert_code(frame(all_ones, sizeof(all_ones), 1 << 20, &bytes), NAOS_E_LIMIT);
	/* The limit itself, with and without one item more; the limit for the first message. */
	const uint8_t longest[] = { 0x42, 0x00, 0x78, 0x01, 0x00, 0x0f, 0xff, 0xf8 };
	const uint8_t longer[] = { 0x42, 0x00, 0x78, 0x01, 0x00, 0x10, 0x00, 0x00 };
	assert_code(frame(longest, 8, NAOS_KMIP_MAX_MESSAGE_BYTES, &bytes), 0);
	assert_int_equal(bytes, NAOS_KMIP_MAX_MESSAGE_BYTES);
	assert_code(frame(longer, 8, NAOS_KMIP_MAX_MESSAGE_BYTES, &bytes), NAOS_E_LIMIT);
	assert_code(frame(longer, 6, NAOS_KMIP_MAX_MESSAGE_BYTES, &bytes), NAOS_E_LIMIT);
	assert_code(frame(longest, 6, NAOS_KMIP_MAX_FIRST_MESSAGE_BYTES, &bytes), NAOS_E_LIMIT);
	const uint8_t odd[] = { 0x42, 0x00, 0x78, 0x01, 0x00, 0x00, 0x00, 0x09 };
	assert_code(frame(odd, 7, 1 << 20, &bytes), 0);
	assert_code(frame(odd, 8, 1 << 20, &bytes), NAOS_E_FORMAT);
}

static int check(const void *data, size_t bytes)
{
	struct naos_error err = NAOS_ERROR_INIT;
	int rc = naos_kmip_check(data, bytes, &err);
	if (rc != 0)
		assert_true(err.code == rc && err.message[0]);
	return rc;
}

/* One item with a value of 8 bytes. */
static int check_item(uint8_t type, uint32_t length, uint64_t value)
{
	uint8_t item[16];
	struct naos_cursor out = naos_cursor_writer(item, sizeof(item));
	naos_cursor_put_u32be(&out, NAOS_KMIP_TAG_DATA << 8 | type);
	naos_cursor_put_u32be(&out, length);
	naos_cursor_put_u64be(&out, value);
	return check(item, sizeof(item));
}

static void each_type_has_its_length_and_padding(void **state)
{
	for (unsigned type = 0; type < 256; type++)
		for (uint32_t length = 0; length <= 17; length++) {
			bool fixed4 = type == NAOS_KMIP_TYPE_INTEGER || type == NAOS_KMIP_TYPE_ENUMERATION || type == NAOS_KMIP_TYPE_INTERVAL;
			bool fixed8 = type == NAOS_KMIP_TYPE_LONG_INTEGER || type == NAOS_KMIP_TYPE_BIG_INTEGER ||
				      type == NAOS_KMIP_TYPE_BOOLEAN || type == NAOS_KMIP_TYPE_DATE_TIME ||
				      type == NAOS_KMIP_TYPE_DATE_TIME_EXTENDED;
			bool varies = type == NAOS_KMIP_TYPE_BYTES; /* text holds no NUL, a structure no zero item */
			bool good = (fixed4 && length == 4) || (fixed8 && length == 8) || (varies && length >= 1 && length <= 8);
			assert_int_equal(check_item((uint8_t)type, length, 0) == 0, good);
		}
	/* Padding */
	assert_int_equal(check_item(NAOS_KMIP_TYPE_INTEGER, 4, 0xffffffff00000000), 0);
	for (unsigned bit = 0; bit < 32; bit++)
		assert_code(check_item(NAOS_KMIP_TYPE_INTEGER, 4, (uint64_t)1 << bit), NAOS_E_FORMAT);
	assert_int_equal(check_item(NAOS_KMIP_TYPE_BYTES, 7, 0xffffffffffffff00), 0);
	assert_code(check_item(NAOS_KMIP_TYPE_BYTES, 7, 1), NAOS_E_FORMAT);
	/* Booleans */
	assert_int_equal(check_item(NAOS_KMIP_TYPE_BOOLEAN, 8, 1), 0);
	assert_code(check_item(NAOS_KMIP_TYPE_BOOLEAN, 8, 2), NAOS_E_FORMAT);
	assert_code(check_item(NAOS_KMIP_TYPE_BOOLEAN, 8, (uint64_t)1 << 63), NAOS_E_FORMAT);
}

static void text_is_utf8_without_nul(void **state)
{
	static const char *const good[] = { "", "abc", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x94\x91", "\xf4\x8f\xbf\xbf",
					    "\xee\x80\x80" };
	static const char *const bad[] = { "\x80", "\xc3", "\xc0\xaf", "\xc1\xbf", "\xe0\x80\xaf", "\xe2\x82", "\xed\xa0\x80",
					   "\xf0\x80\x80\xaf", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xff", "a\xe2\x28\xa1" };
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(good); i++)
		assert_true(naos_kmip_text_valid(good[i], strlen(good[i])));
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(bad); i++)
		assert_false(naos_kmip_text_valid(bad[i], strlen(bad[i])));
	assert_false(naos_kmip_text_valid("a\0b", 3));
	assert_int_equal(check_item(NAOS_KMIP_TYPE_TEXT, 2, 0xc3a4000000000000), 0);
	assert_code(check_item(NAOS_KMIP_TYPE_TEXT, 1, 0xc300000000000000), NAOS_E_FORMAT);
}

static size_t nested(uint8_t *buffer, size_t room, size_t depth)
{
	struct naos_cursor out = naos_cursor_writer(buffer, room);
	size_t marks[64];
	for (size_t i = 0; i < depth; i++)
		marks[i] = naos_kmip_open(&out, i == 0 ? NAOS_KMIP_TAG_REQUEST_MESSAGE : NAOS_KMIP_TAG_ATTRIBUTE);
	naos_kmip_put_boolean(&out, NAOS_KMIP_TAG_FRESH, true);
	for (size_t i = depth; i > 0; i--)
		naos_kmip_close(&out, marks[i - 1]);
	assert_true(naos_cursor_ok(&out));
	return out.position;
}

static void depth_has_a_limit(void **state)
{
	uint8_t buffer[1024];
	assert_int_equal(check(buffer, nested(buffer, sizeof(buffer), NAOS_KMIP_MAX_DEPTH)), 0);
	assert_code(check(buffer, nested(buffer, sizeof(buffer), NAOS_KMIP_MAX_DEPTH + 1)), NAOS_E_LIMIT);
}

static size_t batch(uint8_t *buffer, size_t room, size_t items)
{
	struct naos_cursor out = naos_cursor_writer(buffer, room);
	size_t mark = naos_kmip_open(&out, NAOS_KMIP_TAG_REQUEST_MESSAGE);
	for (size_t i = 0; i < items; i++)
		naos_kmip_close(&out, naos_kmip_open(&out, NAOS_KMIP_TAG_BATCH_ITEM));
	naos_kmip_close(&out, mark);
	assert_true(naos_cursor_ok(&out));
	return out.position;
}

static void a_batch_has_a_limit(void **state)
{
	static uint8_t buffer[1 << 16];
	assert_int_equal(check(buffer, batch(buffer, sizeof(buffer), NAOS_KMIP_MAX_BATCH)), 0);
	assert_code(check(buffer, batch(buffer, sizeof(buffer), NAOS_KMIP_MAX_BATCH + 1)), NAOS_E_LIMIT);
	assert_code(check(buffer, batch(buffer, sizeof(buffer), 3000)), NAOS_E_LIMIT);
}

/* An inner item may not reach out of its structure, nor may a structure be left open or be followed by anything. */
static void structures_are_filled_exactly(void **state)
{
	uint8_t buffer[64];
	struct naos_cursor out = naos_cursor_writer(buffer, sizeof(buffer));
	size_t mark = naos_kmip_open(&out, NAOS_KMIP_TAG_REQUEST_MESSAGE);
	size_t inner = naos_kmip_open(&out, NAOS_KMIP_TAG_REQUEST_HEADER);
	naos_kmip_put_integer(&out, NAOS_KMIP_TAG_BATCH_COUNT, 1);
	naos_kmip_close(&out, inner);
	naos_kmip_put_integer(&out, NAOS_KMIP_TAG_BATCH_COUNT, 1);
	naos_kmip_close(&out, mark);
	assert_int_equal(out.position, 48);
	assert_int_equal(check(buffer, 48), 0);
	for (size_t cut = 0; cut < 48; cut++)
		assert_code(check(buffer, cut), NAOS_E_FORMAT);
	memset(buffer + 48, 0, 8);
	assert_code(check(buffer, 56), NAOS_E_FORMAT);
	const uint8_t lengths[] = { 0, 8, 24, 0x80 };
	for (size_t i = 0; i < sizeof(lengths); i++) {
		buffer[inner - 1] = lengths[i];
		assert_int_equal(check(buffer, 48) == 0, lengths[i] == 0); /* empty: its item becomes the next one */
	}
	buffer[inner - 1] = 16;
	buffer[inner + 7] = 0x0c; /* the integer's length */
	assert_code(check(buffer, 48), NAOS_E_FORMAT);
}

static void names_are_found_both_ways(void **state)
{
	assert_string_equal(naos_kmip_tag_name(NAOS_KMIP_TAG_UNIQUE_IDENTIFIER), "UniqueIdentifier");
	assert_string_equal(naos_kmip_tag_name(0x420001), "ActivationDate");
	assert_null(naos_kmip_tag_name(0x420000));
	assert_null(naos_kmip_tag_name(0x540001));
	assert_int_equal(naos_kmip_tag_find("AuthenticatedEncryptionTag"), 0x4200ff);
	assert_int_equal(naos_kmip_tag_find("Nothing"), 0);
	for (uint32_t tag = 0x420000; tag < 0x420200; tag++)
		assert_true(!naos_kmip_tag_name(tag) || naos_kmip_tag_find(naos_kmip_tag_name(tag)) == tag);
	assert_string_equal(naos_kmip_enum_name(NAOS_KMIP_TAG_STATE, NAOS_KMIP_STATE_ACTIVE), "Active");
	assert_string_equal(naos_kmip_enum_name(NAOS_KMIP_TAG_OBJECT_TYPE, 2), "SymmetricKey");
	assert_null(naos_kmip_enum_name(NAOS_KMIP_TAG_STATE, 77));
	assert_null(naos_kmip_enum_name(NAOS_KMIP_TAG_DATA, 1));
	assert_string_equal(naos_kmip_type_name(NAOS_KMIP_TYPE_TEXT), "TextString");
	assert_null(naos_kmip_type_name(0));
	assert_null(naos_kmip_type_name(12));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_frame_says_how_much_it_needs),
		cmocka_unit_test(what_is_not_kmip_is_refused_at_its_first_wrong_byte),
		cmocka_unit_test(a_message_too_long_is_refused_as_soon_as_that_is_certain),
		cmocka_unit_test(each_type_has_its_length_and_padding),
		cmocka_unit_test(text_is_utf8_without_nul),
		cmocka_unit_test(depth_has_a_limit),
		cmocka_unit_test(a_batch_has_a_limit),
		cmocka_unit_test(structures_are_filled_exactly),
		cmocka_unit_test(names_are_found_both_ways),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

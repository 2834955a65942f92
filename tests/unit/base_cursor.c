/* The bounded cursor: nothing outside the window, failure sticks.  SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "base/cursor.h"

static void writes_and_reads_back(void **state)
{
	uint8_t buffer[40];
	struct naos_cursor w = naos_cursor_writer(buffer, sizeof(buffer));
	naos_cursor_put_u8(&w, 0x12);
	naos_cursor_put_u16(&w, 0x3456);
	naos_cursor_put_u32(&w, 0x789abcde);
	naos_cursor_put_u64(&w, 0x1122334455667788);
	naos_cursor_put_u32be(&w, 0x01020304);
	naos_cursor_put_u64be(&w, 0x05060708090a0b0c);
	naos_cursor_put(&w, "abcde", 5);
	naos_cursor_put_zero(&w, 8);
	assert_true(naos_cursor_at_end(&w));
	assert_int_equal(buffer[1], 0x56);
	assert_int_equal(buffer[15], 0x01);
	struct naos_cursor r = naos_cursor_reader(buffer, sizeof(buffer));
	assert_int_equal(naos_cursor_get_u8(&r), 0x12);
	assert_int_equal(naos_cursor_get_u16(&r), 0x3456);
	assert_int_equal(naos_cursor_get_u32(&r), 0x789abcde);
	assert_true(naos_cursor_get_u64(&r) == 0x1122334455667788);
	assert_int_equal(naos_cursor_get_u32be(&r), 0x01020304);
	assert_true(naos_cursor_get_u64be(&r) == 0x05060708090a0b0c);
	naos_cursor_get_match(&r, "abcde", 5);
	naos_cursor_get_zero(&r, 8);
	assert_true(naos_cursor_at_end(&r));
}

static void failure_sticks(void **state)
{
	uint8_t buffer[4] = { 1, 2, 3, 4 }, out[8] = { 9, 9, 9, 9, 9, 9, 9, 9 };
	struct naos_cursor r = naos_cursor_reader(buffer, sizeof(buffer));
	naos_cursor_get(&r, out, 8);
	assert_false(naos_cursor_ok(&r));
	assert_int_equal(out[0], 0);
	assert_int_equal(naos_cursor_get_u8(&r), 0);
	assert_int_equal(r.position, 0);
	struct naos_cursor huge = naos_cursor_reader(buffer, sizeof(buffer));
	assert_null(naos_cursor_get_view(&huge, SIZE_MAX));
	struct naos_cursor w = naos_cursor_writer(buffer, sizeof(buffer));
	naos_cursor_put_u64(&w, 0);
	naos_cursor_put_u8(&w, 7);
	assert_false(naos_cursor_ok(&w));
	assert_int_equal(buffer[0], 1);
	struct naos_cursor readonly = naos_cursor_reader(buffer, sizeof(buffer));
	naos_cursor_put_u8(&readonly, 7);
	assert_false(naos_cursor_ok(&readonly));
}

static void reserved_bytes_and_magic_are_checked(void **state)
{
	struct naos_cursor r = naos_cursor_reader("\0\0\1", 3);
	naos_cursor_get_zero(&r, 3);
	assert_false(naos_cursor_ok(&r));
	r = naos_cursor_reader("NAOX", 4);
	naos_cursor_get_match(&r, "NAOS", 4);
	assert_false(naos_cursor_ok(&r));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(writes_and_reads_back),
		cmocka_unit_test(failure_sticks),
		cmocka_unit_test(reserved_bytes_and_magic_are_checked),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The keystream of GpuFitsCrypt, against values that its own code gave.  SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "base/uuid.h"
#include "fits/legacy.h"

static struct naos_error err;

static void expect(enum naos_legacy_mode mode, uint64_t offset, const char *digits)
{
	uint8_t raw[16], nonce[12], expected[32], data[32] = { 0 };
	naos_autosecret struct naos_secret *key = NULL;
	for (unsigned i = 0; i < sizeof(raw); i++)
		raw[i] = (uint8_t)i;
	for (unsigned i = 0; i < sizeof(nonce); i++)
		nonce[i] = (uint8_t)(0x11 + i);
	assert_ok(naos_secret_take(raw, sizeof(raw), &key, &err), &err);
	assert_true(naos_hex_parse(digits, expected, sizeof(expected)));
	assert_ok(naos_legacy_crypt(key, nonce, mode, data, sizeof(data), offset, &err), &err);
	assert_memory_equal(data, expected, sizeof(expected));
}

static void test_keystream(void **state)
{
	expect(NAOS_LEGACY_CTR, 0, "17e1ab9f6287f6e9d916a163df701194b52a419402d509ddc489218d75e0ea46");
	expect(NAOS_LEGACY_CTR, 128, "153627feec1378cb7b96fae3934d6e91a54c946528d5d2ae1e7640e34df4493d");
	expect(NAOS_LEGACY_GCM, 0, "16e0ab9f6386f7e8d817a162de711195b42b419502d408dcc489208c75e1ea47");
}

/* Its period is 512 MiB: counter bits are lost. */
static void test_the_period_is_that_of_the_fault(void **state)
{
	uint8_t raw[16] = { 1 }, nonce[12] = { 2 }, here[32] = { 0 }, there[32] = { 0 };
	naos_autosecret struct naos_secret *key = NULL;
	assert_ok(naos_secret_take(raw, sizeof(raw), &key, &err), &err);
	assert_ok(naos_legacy_crypt(key, nonce, NAOS_LEGACY_CTR, here, sizeof(here), 4096, &err), &err);
	assert_ok(naos_legacy_crypt(key, nonce, NAOS_LEGACY_CTR, there, sizeof(there), ((uint64_t)512 << 20) + 4096, &err), &err);
	assert_memory_equal(here, there, sizeof(here));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keystream),
		cmocka_unit_test(test_the_period_is_that_of_the_fault),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

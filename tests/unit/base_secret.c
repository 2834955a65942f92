/* Secret memory: locked, zero in a child, wiped when freed, a clear message under a small RLIMIT_MEMLOCK.
 * SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/secret.h"

static struct naos_error err;

static void thousands_of_keys_fit_64_kib(void **state)
{
	struct naos_secret *keys[1900];
	size_t used, locked;
	for (size_t i = 0; i < 1900; i++)
		assert_ok(naos_secret_create(32, &keys[i], &err), &err);
	naos_secret_usage(&used, &locked);
	assert_int_equal(used, 1900 * 32);
	assert_true(locked <= 64 * 1024);
	for (size_t i = 0; i < 1900; i++)
		keys[i] = naos_secret_free(keys[i]);
	naos_secret_usage(&used, &locked);
	assert_int_equal(used, 0);
}

static void freed_memory_is_zero_and_reused(void **state)
{
	struct naos_secret *first, *second;
	static const uint8_t zero[32];
	assert_ok(naos_secret_random(32, &first, &err), &err);
	uint8_t *where = naos_secret_data(first);
	naos_secret_free(first);
	assert_memory_equal(where, zero, 32);
	assert_ok(naos_secret_create(32, &second, &err), &err);
	assert_ptr_equal(naos_secret_data(second), where);
	naos_secret_free(second);
}

static void large_and_small_do_not_overlap(void **state)
{
	struct naos_secret *sizes[40];
	for (size_t i = 0; i < 40; i++) {
		assert_ok(naos_secret_create(1 + i * 997, &sizes[i], &err), &err);
		memset(naos_secret_data(sizes[i]), (int)i + 1, naos_secret_bytes(sizes[i]));
	}
	for (size_t i = 0; i < 40; i++) {
		const uint8_t *data = naos_secret_view(sizes[i]);
		for (size_t j = 0; j < naos_secret_bytes(sizes[i]); j++)
			assert_int_equal(data[j], i + 1);
	}
	for (size_t i = 0; i < 40; i += 2)
		naos_secret_free(sizes[i]);
	for (size_t i = 1; i < 40; i += 2)
		naos_secret_free(sizes[i]);
}

static void child_sees_zeros(void **state)
{
	struct naos_secret *key;
	assert_ok(naos_secret_random(64, &key, &err), &err);
	pid_t child = fork();
	if (child == 0) {
		int any = 0;
		for (size_t i = 0; i < 64; i++)
			any |= naos_secret_view(key)[i];
		_exit(any ? 1 : 0);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	naos_secret_free(key);
}

static void guard_page_stops_an_overrun(void **state)
{
	struct naos_secret *key;
	assert_ok(naos_secret_create(NAOS_SECRET_MAX_BYTES, &key, &err), &err);
	pid_t child = fork();
	if (child == 0) {
		struct rlimit none = { 0, 0 };
		(void)setrlimit(RLIMIT_CORE, &none);
		(void)signal(SIGSEGV, SIG_DFL); /* cmocka's handler would go on with the next test in this child */
		volatile uint8_t *data = naos_secret_data(key);
		for (size_t i = 0; i < NAOS_SECRET_SLAB_BYTES * 2; i += 4096)
			data[i] = 1;
		_exit(0);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	naos_secret_free(key);
}

static void small_memlock_says_what_to_do(void **state)
{
	if (UNDER_ADDRESS_SANITIZER) {
		print_message("AddressSanitizer replaces mlock by nothing; builds without it run this test\n");
		skip();
	}
	pid_t child = fork();
	if (child == 0) {
		struct rlimit small = { 16 * 1024, 16 * 1024 };
		struct naos_secret *key;
		if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0)
			_exit(3);
		if (setrlimit(RLIMIT_MEMLOCK, &small) != 0)
			_exit(4);
		for (int i = 0; i < 1000; i++)
			if (naos_secret_create(4096, &key, &err) != 0)
				_exit(err.code == NAOS_E_MEMLOCK && strstr(err.message, "RLIMIT_MEMLOCK is 16 KiB") ? 0 : 1);
		_exit(2);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void limits_are_kept(void **state)
{
	struct naos_secret *key;
	assert_code(naos_secret_create(0, &key, &err), NAOS_E_LIMIT);
	assert_code(naos_secret_create(NAOS_SECRET_MAX_BYTES + 1, &key, &err), NAOS_E_LIMIT);
	uint8_t source[32] = { 1, 2, 3 };
	assert_ok(naos_secret_take(source, sizeof(source), &key, &err), &err);
	assert_int_equal(source[0], 0);
	assert_true(naos_secret_equal(key, "\1\2\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 32));
	assert_false(naos_secret_equal(key, "\1\2\3", 3));
	naos_secret_free(key);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(thousands_of_keys_fit_64_kib), cmocka_unit_test(freed_memory_is_zero_and_reused),
		cmocka_unit_test(large_and_small_do_not_overlap), cmocka_unit_test(child_sees_zeros),
		cmocka_unit_test(guard_page_stops_an_overrun), cmocka_unit_test(small_memlock_says_what_to_do),
		cmocka_unit_test(limits_are_kept),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

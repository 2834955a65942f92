/* A sealed file against a plain buffer: random operations, two ways of closing, changes of its wrapped key.
 * SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "memory_store.h"

static struct naos_error err;
static uint64_t random_state = 88172645463325252u;

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* The plain twin of a sealed file. */
struct twin {
	uint8_t *data;
	size_t bytes;
};
#define TWIN_ROOM ((size_t)1 << 20)

static void twin_resize(struct twin *twin, size_t bytes)
{
	if (bytes > twin->bytes)
		memset(twin->data + twin->bytes, 0, bytes - twin->bytes);
	twin->bytes = bytes;
}

static void compare(struct naos_sealed_file *file, const struct twin *twin)
{
	static uint8_t buffer[TWIN_ROOM + 10];
	size_t got;
	assert_int_equal(naos_sealed_file_size(file), twin->bytes);
	assert_ok(naos_sealed_file_read(file, buffer, sizeof(buffer), 0, &got, &err), &err);
	assert_int_equal(got, twin->bytes);
	if (memcmp(buffer, twin->data, got) != 0)
		for (size_t i = 0; i < got; i++)
			if (buffer[i] != twin->data[i])
				fail_msg("byte %zu differs", i);
	for (int i = 0; i < 5 && twin->bytes; i++) {
		size_t at = next_random() % twin->bytes, want = next_random() % 20000;
		assert_ok(naos_sealed_file_read(file, buffer, want, at, &got, &err), &err);
		assert_int_equal(got, want < twin->bytes - at ? want : twin->bytes - at);
		assert_memory_equal(buffer, twin->data + at, got);
	}
}

static void random_write(struct naos_sealed_file *file, struct twin *twin)
{
	static uint8_t buffer[200000];
	size_t bytes = next_random() % (next_random() % 4 ? 9000 : sizeof(buffer));
	size_t at = next_random() % (twin->bytes + 5000 + (next_random() % 8 ? 0 : 300000));
	if (at + bytes > TWIN_ROOM)
		return;
	for (size_t i = 0; i < bytes; i++)
		buffer[i] = (uint8_t)next_random();
	assert_ok(naos_sealed_file_write(file, buffer, bytes, at, &err), &err);
	if (bytes == 0)
		return;
	if (at + bytes > twin->bytes)
		twin_resize(twin, at + bytes);
	memcpy(twin->data + at, buffer, bytes);
}

static void random_step(struct naos_sealed_file *file, struct twin *twin)
{
	unsigned dice = (unsigned)(next_random() % 100);
	if (dice < 55) {
		random_write(file, twin);
	} else if (dice < 70) {
		size_t bytes = next_random() % (next_random() % 3 ? twin->bytes + 10000 : TWIN_ROOM);
		bytes = bytes > TWIN_ROOM ? TWIN_ROOM : bytes;
		assert_ok(naos_sealed_file_truncate(file, bytes, &err), &err);
		twin_resize(twin, bytes);
	} else if (dice < 85) {
		size_t at = next_random() % (twin->bytes + 1), bytes = next_random() % 100000;
		assert_ok(naos_sealed_file_punch(file, at, bytes, &err), &err);
		if (at < twin->bytes)
			memset(twin->data + at, 0, bytes < twin->bytes - at ? bytes : twin->bytes - at);
	} else {
		assert_ok(naos_sealed_file_flush(file, &err), &err);
	}
}

static void behaves_as_a_plain_file(void **state)
{
	for (int round = 0; round < 60; round++) {
		struct memory_file memory = { 0 };
		struct test_key key;
		struct twin twin = { .data = calloc(1, TWIN_ROOM) };
		struct naos_sealed_file *file;
		test_key_make(&key, (uint8_t)round, 1);
		file = test_create(&memory, &key, round % 4 == 0);
		for (int session = 0; session < 4; session++) {
			assert_ok(naos_sealed_file_gather(file, (size_t)(round % 5) * 30000, &err), &err);
			for (int step = 0; step < 25; step++) {
				random_step(file, &twin);
				compare(file, &twin);
			}
			bool seal = next_random() % 2 || (session == 0 && round % 4 == 0);
			assert_ok(naos_sealed_file_close(file, seal, &err), &err);
			assert_ok(test_open(&memory, &key, NAOS_SEALED_READ, &file, &err), &err);
			assert_int_equal(naos_sealed_file_clean(file), seal);
			compare(file, &twin);
			assert_ok(naos_sealed_file_verify(file, &err), &err);
			assert_ok(naos_sealed_file_close(file, true, &err), &err);
			assert_ok(test_open(&memory, &key, NAOS_SEALED_LOCAL, &file, &err), &err);
			assert_int_equal(naos_sealed_file_recovered(file), !seal);
			compare(file, &twin);
			assert_ok(naos_sealed_file_verify(file, &err), &err);
		}
		assert_ok(naos_sealed_file_close(file, true, &err), &err);
		memory_file_free(&memory);
		naos_secret_free(key.fek);
		free(twin.data);
	}
}

static void the_layout_is_as_written_down(void **state)
{
	assert_int_equal(naos_layout_physical(0), 4096);
	assert_int_equal(naos_layout_physical(1), 4097);
	assert_int_equal(naos_layout_physical(18 * 4096), 19 * 4096);
	assert_int_equal(naos_layout_physical(18 * 4096 + 1), 21 * 4096 + 1); /* map page 0 and the tag page of group 1 */
	uint64_t map_full = (18 + (uint64_t)48 * 31744) * 4096;
	assert_true(naos_layout_physical(map_full + 1) == (1 + 18 + 1 + (uint64_t)49 * 31744 + 2) * 4096 + 1);
	for (uint64_t i = 0; i < 20000; i++) {
		uint64_t size = i * 977 + (i % 7) * 4096 * 48, back;
		assert_true(naos_layout_logical(naos_layout_physical(size), &back));
		assert_true(back == size);
	}
	uint64_t back;
	assert_false(naos_layout_logical(4095, &back));
	assert_false(naos_layout_logical(20 * 4096, &back)); /* between groups 0 and 1 */
}

static void huge_sparse_files_are_cheap(void **state)
{
	/* 2 GiB in memory would be too much: a hole of many groups, then one chunk */
	struct memory_file memory = { 0 };
	struct test_key key;
	struct naos_sealed_file *file;
	uint64_t start, stop;
	test_key_make(&key, 7, 1);
	file = test_create(&memory, &key, false);
	assert_ok(naos_sealed_file_write(file, "begin", 5, 0, &err), &err);
	assert_ok(naos_sealed_file_write(file, "end", 3, 300 << 20, &err), &err);
	assert_true(memory.writes < 80);
	assert_ok(naos_sealed_file_next_data(file, 4096, &start, &stop, &err), &err);
	assert_int_equal(start, 300 << 20);
	assert_int_equal(stop, (300 << 20) + 3);
	assert_ok(naos_sealed_file_close(file, true, &err), &err);
	assert_ok(test_open(&memory, &key, NAOS_SEALED_READ, &file, &err), &err);
	assert_ok(naos_sealed_file_verify(file, &err), &err);
	assert_ok(naos_sealed_file_close(file, true, &err), &err);
	memory_file_free(&memory);
	naos_secret_free(key.fek);
}

/* Makes a sealed file of 3 chunks that was written in three sessions, so that it has dead versions. */
static void make_small(struct memory_file *memory, struct test_key *key)
{
	static const char text[] = "the quick brown fox jumps over the lazy dog";
	struct naos_sealed_file *file = test_create(memory, key, false);
	for (unsigned i = 0; i < 9000; i += 40)
		assert_ok(naos_sealed_file_write(file, text, 40, i, &err), &err);
	assert_ok(naos_sealed_file_close(file, true, &err), &err);
	assert_ok(test_open(memory, key, NAOS_SEALED_LOCAL, &file, &err), &err);
	assert_ok(naos_sealed_file_write(file, text, 40, 5000, &err), &err);
	assert_ok(naos_sealed_file_close(file, true, &err), &err);
}

static void a_rewrapped_key_replaces_the_old_one(void **state)
{
	struct memory_file memory = { 0 };
	struct test_key old, new;
	struct naos_sealed_file *file;
	uint8_t slots[NAOS_FEK_SLOTS * NAOS_FEK_SLOT_BYTES], attribute[256];
	test_key_make(&old, 5, 1);
	test_key_make(&new, 5, 2);
	make_small(&memory, &old);
	memcpy(slots, memory.data + NAOS_FEK_OFFSET, sizeof(slots));
	memcpy(attribute, memory.attribute, sizeof(attribute));
	assert_ok(test_open(&memory, &old, NAOS_SEALED_LOCAL, &file, &err), &err);
	assert_ok(naos_sealed_file_rewrap(file, &new.blob, NULL, &err), &err);
	assert_true(naos_sealed_file_clean(file));
	assert_ok(naos_sealed_file_close(file, true, &err), &err);
	assert_code(test_open(&memory, &old, NAOS_SEALED_READ, &file, &err), NAOS_E_NOKEY);
	assert_ok(test_open(&memory, &new, NAOS_SEALED_READ, &file, &err), &err);
	assert_ok(naos_sealed_file_verify(file, &err), &err);
	assert_ok(naos_sealed_file_close(file, true, &err), &err);
	/* the removed slot is brought back: in page 0, by the attribute, by the attribute alone */
	uint8_t now[sizeof(slots)], now_attribute[256];
	memcpy(now, memory.data + NAOS_FEK_OFFSET, sizeof(now));
	memcpy(now_attribute, memory.attribute, sizeof(now_attribute));
	memcpy(memory.data + NAOS_FEK_OFFSET, slots, sizeof(slots));
	assert_code(test_open(&memory, &old, NAOS_SEALED_READ, &file, &err), NAOS_E_INTEGRITY);
	memcpy(memory.data + NAOS_FEK_OFFSET, now, sizeof(now));
	memcpy(memory.attribute, attribute, sizeof(attribute));
	assert_code(test_open(&memory, &new, NAOS_SEALED_READ, &file, &err), NAOS_E_INTEGRITY);
	memset(memory.data + NAOS_FEK_OFFSET, 0, sizeof(now));
	assert_code(test_open(&memory, &old, NAOS_SEALED_READ, &file, &err), NAOS_E_INTEGRITY);
	assert_non_null(strstr(err.message, "removed"));
	/* the attribute as it should be opens a file whose slots are gone, and rewrap rebuilds them */
	memcpy(memory.attribute, now_attribute, sizeof(now_attribute));
	assert_ok(test_open(&memory, &new, NAOS_SEALED_LOCAL, &file, &err), &err);
	assert_ok(naos_sealed_file_rewrap(file, &new.blob, NULL, &err), &err);
	assert_ok(naos_sealed_file_close(file, true, &err), &err);
	memory.attribute_bytes = 0;
	assert_ok(test_open(&memory, &new, NAOS_SEALED_READ, &file, &err), &err);
	assert_ok(naos_sealed_file_close(file, true, &err), &err);
	memory_file_free(&memory);
	naos_secret_free(old.fek);
	naos_secret_free(new.fek);
}

/* Slots of the wrapped key, state slots: each byte may be read half written once, but not for ever. */
static void a_reader_beside_a_rewrap_looks_again(void **state)
{
	struct memory_file memory = { 0 };
	struct test_key key;
	struct naos_sealed_file *file;
	test_key_make(&key, 3, 1);
	make_small(&memory, &key);
	for (size_t at = NAOS_STATE_OFFSET; at < NAOS_FEK_OFFSET + 2 * NAOS_FEK_SLOT_BYTES; at += 64) {
		memory.torn_offset = at;
		memory.torn_reads = 1;
		assert_ok(test_open(&memory, &key, NAOS_SEALED_READ, &file, &err), &err);
		assert_int_equal(memory.torn_reads, 0);
		assert_ok(naos_sealed_file_close(file, false, &err), &err);
		memory.torn_reads = 1;
		assert_int_not_equal(test_open(&memory, &key, NAOS_SEALED_LOCAL, &file, &err), 0); /* nobody else writes */
		memory.torn_reads = 1000;
		assert_int_not_equal(test_open(&memory, &key, NAOS_SEALED_READ, &file, &err), 0);
		memory.torn_reads = 0;
	}
	memory_file_free(&memory);
	naos_secret_free(key.fek);
}

static void failures_below_are_reported_and_nothing_is_acknowledged_on_top(void **state)
{
	struct test_key key;
	uint8_t text[10000];
	test_key_make(&key, 3, 1);
	memset(text, 'x', sizeof(text));
	for (int after = 1; after < 12; after++) {
		struct memory_file memory = { 0 };
		struct naos_sealed_file *file = test_create(&memory, &key, false);
		size_t got;
		uint8_t back[10000];
		assert_ok(naos_sealed_file_write(file, text, sizeof(text), 0, &err), &err);
		assert_ok(naos_sealed_file_flush(file, &err), &err);
		memory.fail_write_after = after;
		int rc = naos_sealed_file_write(file, "changed", 7, 4090, &err);
		rc = rc ? rc : naos_sealed_file_flush(file, &err);
		assert_true(rc == 0 || rc == NAOS_E_NOSPACE);
		memory.fail_write_after = 0;
		assert_int_equal(naos_sealed_file_close(file, false, NULL), 0);
		assert_ok(test_open(&memory, &key, NAOS_SEALED_LOCAL, &file, &err), &err);
		assert_ok(naos_sealed_file_read(file, back, sizeof(back), 0, &got, &err), &err);
		assert_int_equal(got, sizeof(text));
		if (rc == 0)
			assert_memory_equal(back + 4090, "changed", 7);
		assert_memory_equal(back, text, 4090);
		assert_ok(naos_sealed_file_close(file, true, &err), &err);
		memory_file_free(&memory);
	}
	struct memory_file memory = { 0 };
	struct naos_sealed_file *file = test_create(&memory, &key, false);
	assert_ok(naos_sealed_file_write(file, text, sizeof(text), 0, &err), &err);
	memory.fail_flush = true;
	assert_int_not_equal(naos_sealed_file_flush(file, &err), 0);
	memory.fail_flush = false;
	assert_int_not_equal(naos_sealed_file_flush(file, &err), 0); /* the kernel may have dropped pages: no second chance */
	assert_int_not_equal(naos_sealed_file_close(file, true, &err), 0);
	memory_file_free(&memory);
	naos_secret_free(key.fek);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_layout_is_as_written_down),
		cmocka_unit_test(behaves_as_a_plain_file),
		cmocka_unit_test(huge_sparse_files_are_cheap),
		cmocka_unit_test(a_rewrapped_key_replaces_the_old_one),
		cmocka_unit_test(a_reader_beside_a_rewrap_looks_again),
		cmocka_unit_test(failures_below_are_reported_and_nothing_is_acknowledged_on_top),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Every bit of a sealed file counts: bits flipped, files cut at every length, parts exchanged and zeroed.  A damaged file is
 * refused; one that was not sealed may read as an older text where nothing was flushed since, never as anything else.
 * With --slow all eight bits of each byte are tried, else one.  SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "unit.h"

#include "memory_store.h"

#define MAX_BYTES ((size_t)32 << 10)

static struct naos_error err;
static bool slow;
static uint64_t random_state = 88172645463325252u;

/* Nobody writes these files while they are read: their reader need not wait before it looks again. */
int nanosleep(const struct timespec *time, struct timespec *left)
{
	return 0;
}

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* A file, and the texts that it may read as: the newest, and for an unclean file the one before. */
struct sample {
	struct memory_file memory;
	struct test_key key;
	uint8_t now[MAX_BYTES], before[MAX_BYTES];
	size_t bytes, durable_bytes;
	bool clean;
};

static void put(struct sample *s, struct naos_sealed_file *file, size_t offset, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		s->now[offset + i] = (uint8_t)next_random();
	s->bytes = offset + bytes > s->bytes ? offset + bytes : s->bytes;
	assert_ok(naos_sealed_file_write(file, s->now + offset, bytes, offset, &err), &err);
}

static struct naos_sealed_file *reopen(struct sample *s, struct naos_sealed_file *file, bool seal)
{
	assert_ok(naos_sealed_file_close(file, seal, &err), &err);
	assert_ok(test_open(&s->memory, &s->key, NAOS_SEALED_LOCAL, &file, &err), &err);
	return file;
}

/* Three chunks and a bit, sealed at once. */
static void make_plain(struct sample *s)
{
	struct naos_sealed_file *file = test_create(&s->memory, &s->key, false);
	put(s, file, 0, 9000);
	assert_ok(naos_sealed_file_close(file, true, &err), &err);
	s->clean = true;
}

/* The same after sessions that left dead versions, a hole, and entries of chunks that were cut off. */
static void make_worked(struct sample *s)
{
	struct naos_sealed_file *file = test_create(&s->memory, &s->key, false);
	put(s, file, 0, 20000);
	file = reopen(s, file, true);
	put(s, file, 5000, 4000);
	assert_ok(naos_sealed_file_punch(file, 0, 4096, &err), &err);
	memset(s->now, 0, 4096);
	file = reopen(s, file, true);
	assert_ok(naos_sealed_file_truncate(file, 13000, &err), &err);
	s->bytes = 13000;
	put(s, file, 4100, 10);
	assert_ok(naos_sealed_file_close(file, true, &err), &err);
	s->clean = true;
}

/* Not sealed: chunks with two versions, one above the durable size. */
static void make_unclean(struct sample *s)
{
	struct naos_sealed_file *file = test_create(&s->memory, &s->key, false);
	put(s, file, 0, 13000);
	file = reopen(s, file, true);
	memcpy(s->before, s->now, sizeof(s->before));
	put(s, file, 4096, 4096);
	assert_ok(naos_sealed_file_flush(file, &err), &err);
	memcpy(s->before + 4096, s->now + 4096, 4096);
	s->durable_bytes = s->bytes;
	put(s, file, 100, 50);
	put(s, file, 13000, 9000);
	assert_ok(naos_sealed_file_close(file, false, &err), &err);
}

/* One chunk of what was read must be one of its texts. */
static void check_chunk(const struct sample *s, const uint8_t *read, size_t chunk, size_t bytes, const char *what)
{
	size_t at = chunk * NAOS_CHUNK_BYTES, length = bytes - at < NAOS_CHUNK_BYTES ? bytes - at : NAOS_CHUNK_BYTES;
	if (memcmp(read + at, s->now + at, length) == 0)
		return;
	if (s->clean || memcmp(read + at, s->before + at, length) != 0)
		fail_msg("%s: wrong data in chunk %zu", what, chunk);
}

/* True if the file is read without an error; fails if anything that is read is wrong. */
static bool reads(struct sample *s, const char *what)
{
	static uint8_t buffer[MAX_BYTES];
	struct naos_sealed_file *file;
	size_t got = 0;
	int rc = test_open(&s->memory, &s->key, NAOS_SEALED_READ, &file, &err);
	if (rc == 0) {
		rc = naos_sealed_file_read(file, buffer, sizeof(buffer), 0, &got, &err);
		if (rc == 0 && (got > s->bytes || got < (s->clean ? s->bytes : s->durable_bytes)))
			fail_msg("%s: %zu bytes instead of %zu", what, got, s->bytes);
		for (size_t chunk = 0; rc == 0 && chunk * NAOS_CHUNK_BYTES < got; chunk++)
			check_chunk(s, buffer, chunk, got, what);
		if (rc == 0)
			rc = naos_sealed_file_verify(file, &err);
		assert_int_equal(naos_sealed_file_close(file, false, NULL), 0);
	}
	if (rc != 0 && naos_error_exit_status(rc) != 4)
		fail_msg("%s: code %d: %s", what, rc, err.message);
	if (rc != 0 && (err.message[0] == 0 || !strstr(err.message, "memory")))
		fail_msg("%s: the message does not name the file: %s", what, err.message);
	return rc == 0;
}

/* The damage that was just done must be refused, where the file is sealed. */
static void refused(struct sample *s, const char *what)
{
	if (reads(s, what) && s->clean)
		fail_msg("%s is not noticed", what);
}

static void flip_bits(struct sample *s, uint8_t *data, size_t bytes, const char *name)
{
	char what[100];
	for (size_t i = 0; i < bytes; i++)
		for (unsigned bit = 0; bit < 8; bit++) {
			if (!slow && bit != (i * 5 + i / 8) % 8)
				continue;
			(void)snprintf(what, sizeof(what), "bit %u of byte %zu of the %s", bit, i, name);
			data[i] ^= (uint8_t)(1u << bit);
			refused(s, what);
			data[i] ^= (uint8_t)(1u << bit);
		}
}

static void cut(struct sample *s)
{
	size_t bytes = s->memory.bytes;
	char what[100];
	for (size_t length = 0; length < bytes; length += slow || length % 512 == 0 || length + 9 > bytes ? 1 : 17) {
		s->memory.bytes = length;
		(void)snprintf(what, sizeof(what), "a cut at byte %zu", length);
		refused(s, what);
	}
	s->memory.bytes = bytes;
}

static void lengthen(struct sample *s)
{
	size_t bytes = s->memory.bytes;
	s->memory.data = realloc(s->memory.data, bytes + 8192);
	assert_non_null(s->memory.data);
	s->memory.room = bytes + 8192;
	for (unsigned fill = 0; fill < 2; fill++)
		for (size_t more = 1; more <= 8192; more = more * 2 - 1 + (more == 1)) {
			memset(s->memory.data + bytes, fill ? 0xa5 : 0, 8192);
			s->memory.bytes = bytes + more;
			refused(s, "bytes behind the end");
		}
	s->memory.bytes = bytes;
}

static bool in_fek_slots(size_t offset)
{
	return offset >= NAOS_FEK_OFFSET && offset < NAOS_FIRST_SECTORS_OFFSET;
}

/* Block i is replaced by block j, then both are exchanged, then block i is zeroed. */
static void exchange_two(struct sample *s, size_t block, size_t i, size_t j)
{
	uint8_t left[NAOS_CHUNK_BYTES], right[NAOS_CHUNK_BYTES], *at = s->memory.data + i, *other = s->memory.data + j;
	bool harmless = in_fek_slots(i) && in_fek_slots(j); /* the order of FEK slots means nothing */
	char what[100];
	if (memcmp(at, other, block) == 0)
		return;
	memcpy(left, at, block);
	memcpy(right, other, block);
	memcpy(at, right, block);
	(void)snprintf(what, sizeof(what), "%zu bytes at %zu copied to %zu", block, j, i);
	if (harmless && naos_is_zero(left, block))
		assert_true(reads(s, what));
	else
		refused(s, what);
	memcpy(other, left, block);
	(void)snprintf(what, sizeof(what), "%zu bytes at %zu exchanged with %zu", block, i, j);
	if (harmless)
		assert_true(reads(s, what));
	else
		refused(s, what);
	memcpy(other, right, block);
	memset(at, 0, block);
	(void)snprintf(what, sizeof(what), "%zu bytes at %zu zeroed", block, i);
	if (!naos_is_zero(left, block))
		refused(s, what);
	memcpy(at, left, block);
}

/* State slots, tag sectors, FEK slots, pages: every two blocks of a size. */
static void exchange(struct sample *s, size_t block)
{
	for (size_t i = 0; i + block <= s->memory.bytes; i += block)
		for (size_t j = 0; j + block <= s->memory.bytes; j += block)
			exchange_two(s, block, i, j);
}

static void damage_all(void (*make)(struct sample *s))
{
	struct sample *s = calloc(1, sizeof(*s));
	assert_non_null(s);
	test_key_make(&s->key, 9, 1);
	make(s);
	assert_true(reads(s, "undamaged"));
	flip_bits(s, s->memory.data, s->memory.bytes, "file");
	if (s->clean)
		flip_bits(s, s->memory.attribute, s->memory.attribute_bytes, "attribute");
	size_t attribute_bytes = s->memory.attribute_bytes;
	for (s->memory.attribute_bytes = 1; s->memory.attribute_bytes < attribute_bytes; s->memory.attribute_bytes++)
		refused(s, "a cut attribute");
	s->memory.attribute_bytes = 0; /* without it, a damaged slot can't be hidden by it */
	assert_true(reads(s, "without the attribute"));
	flip_bits(s, s->memory.data, NAOS_CHUNK_BYTES, "file without attribute");
	cut(s);
	lengthen(s);
	exchange(s, 4096);
	exchange(s, 512);
	if (slow)
		exchange(s, 256);
	assert_true(reads(s, "undamaged"));
	memory_file_free(&s->memory);
	s->key.fek = naos_secret_free(s->key.fek);
	free(s);
}

static void a_plain_file(void **state)
{
	damage_all(make_plain);
}

static void a_file_with_dead_versions(void **state)
{
	damage_all(make_worked);
}

static void a_file_that_was_not_sealed(void **state)
{
	damage_all(make_unclean);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_plain_file),
		cmocka_unit_test(a_file_with_dead_versions),
		cmocka_unit_test(a_file_that_was_not_sealed),
	};
	slow = argc > 1 && strcmp(argv[1], "--slow") == 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}

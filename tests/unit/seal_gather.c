/* Changes gathered in memory, sealing step by step, and what else a mounted file system asks of a sealed file.
 * SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "memory_store.h"

#define CHUNK ((size_t)NAOS_CHUNK_BYTES)

static struct naos_error err;

struct world {
	struct memory_file memory;
	struct test_key key;
	struct naos_sealed_file *file;
	uint8_t text[40 * NAOS_CHUNK_BYTES];
};

/* A clean file of `bytes` bytes 'a', open for writing, with gathering. */
static struct world *world_new(size_t bytes, size_t gather_chunks)
{
	struct world *world = calloc(1, sizeof(*world));
	assert_non_null(world);
	test_key_make(&world->key, 4, 1);
	memset(world->text, 'a', sizeof(world->text));
	world->file = test_create(&world->memory, &world->key, false);
	assert_ok(naos_sealed_file_write(world->file, world->text, bytes, 0, &err), &err);
	assert_ok(naos_sealed_file_close(world->file, true, &err), &err);
	assert_ok(test_open(&world->memory, &world->key, NAOS_SEALED_LOCAL, &world->file, &err), &err);
	assert_ok(naos_sealed_file_gather(world->file, gather_chunks * CHUNK + 100, &err), &err);
	return world;
}

static void world_free(struct world *world)
{
	if (world->file)
		assert_ok(naos_sealed_file_close(world->file, true, &err), &err);
	memory_file_free(&world->memory);
	naos_secret_free(world->key.fek);
	free(world);
}

static void write_at(struct world *world, size_t chunk, size_t skip, char fill, size_t bytes)
{
	uint8_t buffer[20 * NAOS_CHUNK_BYTES];
	memset(buffer, fill, bytes);
	assert_ok(naos_sealed_file_write(world->file, buffer, bytes, chunk * CHUNK + skip, &err), &err);
}

/* The byte at an offset, as the writer or a reader beside it sees it. */
static char byte_at(struct naos_sealed_file *file, uint64_t offset)
{
	char byte = 0;
	size_t got;
	assert_ok(naos_sealed_file_read(file, &byte, 1, offset, &got, &err), &err);
	return got ? byte : '-';
}

static char stored_byte(struct world *world, uint64_t offset)
{
	struct naos_sealed_file *reader;
	assert_ok(test_open(&world->memory, &world->key, NAOS_SEALED_READ, &reader, &err), &err);
	char byte = byte_at(reader, offset);
	assert_ok(naos_sealed_file_close(reader, false, &err), &err);
	return byte;
}

static void overwrites_of_durable_chunks_share_their_flushes(void **state)
{
	struct world *world = world_new(40 * CHUNK, 64);
	unsigned before = world->memory.flushes;
	for (size_t i = 0; i < 40; i++)
		write_at(world, i, 0, 'b', CHUNK);
	assert_int_equal(world->memory.flushes - before, 1); /* the beginning of the epoch */
	assert_int_equal(naos_sealed_file_gathered(world->file), 40 * CHUNK);
	assert_int_equal(byte_at(world->file, 7 * CHUNK), 'b');
	assert_int_equal(stored_byte(world, 7 * CHUNK), 'a');
	assert_ok(naos_sealed_file_flush(world->file, &err), &err);
	assert_int_equal(world->memory.flushes - before, 3); /* tags before data, and the flush that was asked for */
	assert_int_equal(naos_sealed_file_gathered(world->file), 0);
	assert_int_equal(stored_byte(world, 7 * CHUNK), 'b');
	world_free(world);
}

static void parts_are_put_together_in_memory(void **state)
{
	struct world *world = world_new(2 * CHUNK + 100, 8);
	uint64_t start, end;
	write_at(world, 0, 10, 'b', 20);
	write_at(world, 0, 25, 'c', 20);
	write_at(world, 2, 50, 'd', 200); /* the last chunk grows */
	assert_int_equal(naos_sealed_file_size(world->file), 2 * CHUNK + 250);
	assert_int_equal(naos_sealed_file_gathered(world->file), 2 * CHUNK);
	assert_int_equal(byte_at(world->file, 9), 'a');
	assert_int_equal(byte_at(world->file, 24), 'b');
	assert_int_equal(byte_at(world->file, 25), 'c');
	assert_int_equal(byte_at(world->file, 45), 'a');
	assert_int_equal(byte_at(world->file, 2 * CHUNK + 249), 'd');
	write_at(world, 3, 0, 'e', CHUNK); /* a new chunk goes through at once */
	assert_int_equal(naos_sealed_file_gathered(world->file), 2 * CHUNK);
	assert_int_equal(byte_at(world->file, 2 * CHUNK + 250), 0);
	assert_int_equal(stored_byte(world, 3 * CHUNK), 'e');
	assert_ok(naos_sealed_file_next_data(world->file, 0, &start, &end, &err), &err);
	assert_int_equal(end, 4 * CHUNK);
	assert_ok(naos_sealed_file_close(world->file, false, &err), &err); /* written also when it is not sealed */
	assert_int_equal(stored_byte(world, 24), 'b');
	assert_int_equal(stored_byte(world, 2 * CHUNK + 249), 'd');
	world->file = NULL;
	world_free(world);
}

static void gathered_data_over_a_hole_counts_as_data(void **state)
{
	struct world *world = world_new(4 * CHUNK, 8);
	uint64_t start, end;
	assert_ok(naos_sealed_file_punch(world->file, CHUNK, CHUNK, &err), &err); /* not durable, over durable data */
	write_at(world, 1, 0, 'b', CHUNK);
	assert_int_equal(naos_sealed_file_gathered(world->file), CHUNK);
	assert_ok(naos_sealed_file_next_data(world->file, CHUNK, &start, &end, &err), &err);
	assert_int_equal(start, CHUNK);
	assert_ok(naos_sealed_file_punch(world->file, CHUNK, CHUNK, &err), &err);
	assert_int_equal(naos_sealed_file_gathered(world->file), 0);
	assert_ok(naos_sealed_file_next_data(world->file, CHUNK, &start, &end, &err), &err);
	assert_int_equal(start, 2 * CHUNK);
	world_free(world);
}

static void the_limit_writes_the_batch(void **state)
{
	struct world *world = world_new(40 * CHUNK, 4);
	for (size_t i = 0; i < 4; i++)
		write_at(world, 3 * i, 0, 'b', CHUNK);
	assert_int_equal(naos_sealed_file_gathered(world->file), 4 * CHUNK);
	write_at(world, 0, 0, 'c', CHUNK); /* in place of one that is there: no room is needed, but the batch may go */
	write_at(world, 20, 0, 'b', CHUNK);
	assert_in_range(naos_sealed_file_gathered(world->file), CHUNK, 2 * CHUNK);
	assert_int_equal(stored_byte(world, 3 * CHUNK), 'b');
	write_at(world, 10, 0, 'd', 20 * CHUNK); /* longer than the limit */
	assert_true(naos_sealed_file_gathered(world->file) <= 4 * CHUNK);
	assert_ok(naos_sealed_file_gather(world->file, 0, &err), &err);
	assert_int_equal(naos_sealed_file_gathered(world->file), 0);
	for (size_t i = 10; i < 30; i++)
		assert_int_equal(stored_byte(world, i * CHUNK), 'd');
	assert_int_equal(stored_byte(world, 0), 'c');
	world_free(world);
}

static void a_settling_that_fails_is_told_by_the_next_flush(void **state)
{
	struct world *world = world_new(4 * CHUNK, 8);
	write_at(world, 1, 0, 'b', CHUNK);
	world->memory.fail_write_after = 1;
	assert_int_equal(naos_sealed_file_settle(world->file, &err), NAOS_E_NOSPACE);
	assert_int_equal(byte_at(world->file, CHUNK), 'b'); /* nothing is lost */
	assert_int_equal(naos_sealed_file_gathered(world->file), CHUNK);
	assert_int_equal(naos_sealed_file_flush(world->file, &err), NAOS_E_NOSPACE);
	assert_non_null(strstr(err.message, "planted"));
	assert_ok(naos_sealed_file_flush(world->file, &err), &err); /* told once; written by now */
	assert_int_equal(stored_byte(world, CHUNK), 'b');
	write_at(world, 2, 0, 'c', CHUNK);
	world->memory.fail_write_after = 1;
	assert_int_equal(naos_sealed_file_close(world->file, false, &err), NAOS_E_NOSPACE);
	assert_int_equal(stored_byte(world, 2 * CHUNK), 'a');
	world->file = NULL;
	world_free(world);
}

/* At each write in turn: the disk is full for one write, later there is room again. */
static void a_disk_full_for_a_moment_loses_nothing(void **state)
{
	for (int after = 1; after < 8; after++) {
		struct world *world = world_new(30 * CHUNK, 16);
		for (size_t i = 0; i < 12; i++)
			write_at(world, 2 * i, 100, 'b', 3000);
		world->memory.fail_write_after = after;
		int rc = naos_sealed_file_settle(world->file, &err);
		assert_true(rc == 0 || rc == NAOS_E_NOSPACE);
		world->memory.fail_write_after = 0;
		assert_int_equal(naos_sealed_file_flush(world->file, &err), rc);
		assert_ok(naos_sealed_file_close(world->file, true, &err), &err);
		assert_ok(test_open(&world->memory, &world->key, NAOS_SEALED_LOCAL, &world->file, &err), &err);
		assert_false(naos_sealed_file_recovered(world->file));
		assert_ok(naos_sealed_file_verify(world->file, &err), &err);
		for (size_t i = 0; i < 12; i++)
			assert_int_equal(byte_at(world->file, 2 * i * CHUNK + 100), 'b');
		world_free(world);
	}
}

static void a_full_disk_is_told_to_whoever_writes(void **state)
{
	struct world *world = world_new(4 * CHUNK, 8);
	uint8_t more[2 * NAOS_CHUNK_BYTES] = { 0 };
	write_at(world, 1, 0, 'b', CHUNK);
	world->memory.limit = world->memory.bytes + 100;
	assert_int_equal(naos_sealed_file_write(world->file, more, sizeof(more), 4 * CHUNK, &err), NAOS_E_NOSPACE);
	assert_ok(naos_sealed_file_flush(world->file, &err), &err);
	assert_int_equal(stored_byte(world, CHUNK), 'b');
	world_free(world);
}

static unsigned steps_until_done(struct world *world, struct naos_sealing *sealing)
{
	bool done = false;
	unsigned steps = 0;
	while (!done) {
		assert_ok(naos_sealed_file_seal_step(world->file, sealing, &done, &err), &err);
		assert_true(++steps < 20);
	}
	return steps;
}

static void sealing_step_by_step_leaves_the_flushes_to_the_caller(void **state)
{
	struct world *world = world_new(30 * CHUNK, 8);
	struct naos_sealing sealing = { 0 };
	assert_int_equal(steps_until_done(world, &sealing), 1); /* clean already */
	assert_ok(naos_sealed_file_truncate(world->file, 300 * CHUNK, &err), &err);
	assert_ok(naos_sealed_file_punch(world->file, CHUNK, CHUNK, &err), &err);
	write_at(world, 200, 0, 'b', CHUNK);
	unsigned flushes = world->memory.flushes;
	assert_false(naos_sealed_file_clean(world->file));
	assert_int_equal(steps_until_done(world, &sealing), 4);
	assert_int_equal(sealing.restarts, 0);
	assert_int_equal(world->memory.flushes, flushes);
	assert_true(naos_sealed_file_clean(world->file));
	assert_int_equal(byte_at(world->file, 200 * CHUNK), 'b');
	assert_ok(naos_sealed_file_verify(world->file, &err), &err);
	write_at(world, 5, 0, 'c', CHUNK); /* the next epoch */
	assert_false(naos_sealed_file_clean(world->file));
	assert_int_equal(steps_until_done(world, &sealing), 3); /* nothing to write between the first two flushes */
	assert_int_equal(stored_byte(world, 5 * CHUNK), 'c');
	world_free(world);
}

static void starts_over(unsigned steps, bool holes)
{
	for (unsigned at = 1; at < steps; at++) {
		struct world *world = world_new(10 * CHUNK, 8);
		struct naos_sealing sealing = { 0 };
		bool done = false;
		write_at(world, 1, 0, 'b', CHUNK);
		if (holes)
			assert_ok(naos_sealed_file_punch(world->file, 5 * CHUNK, CHUNK, &err), &err);
		for (unsigned i = 0; i < at; i++) {
			assert_ok(naos_sealed_file_seal_step(world->file, &sealing, &done, &err), &err);
			assert_false(done);
		}
		write_at(world, 2, 0, 'c', CHUNK);
		assert_false(naos_sealed_file_clean(world->file));
		assert_int_equal(steps_until_done(world, &sealing), holes && at == 1 ? 4 : 3);
		assert_int_equal(sealing.restarts, 1);
		assert_int_equal(stored_byte(world, 2 * CHUNK), 'c');
		assert_ok(naos_sealed_file_verify(world->file, &err), &err);
		world_free(world);
	}
}

static void sealing_starts_over_when_the_file_was_changed(void **state)
{
	starts_over(3, false);
	starts_over(4, true);
}

static void a_close_between_the_steps_finishes_sealing(void **state)
{
	struct world *world = world_new(3 * CHUNK, 0);
	static const uint8_t empty[NAOS_SECTOR_BYTES];
	struct naos_sealing sealing = { 0 };
	bool done;
	write_at(world, 1, 0, 'b', CHUNK);
	for (unsigned i = 0; i < 2; i++)
		assert_ok(naos_sealed_file_seal_step(world->file, &sealing, &done, &err), &err);
	unsigned flushes = world->memory.flushes;
	assert_ok(naos_sealed_file_close(world->file, true, &err), &err);
	assert_int_equal(world->memory.flushes, flushes + 1);
	bool first = memcmp(world->memory.data + NAOS_STATE_OFFSET, empty, sizeof(empty)) == 0;
	bool second = memcmp(world->memory.data + NAOS_STATE_OFFSET + sizeof(empty), empty, sizeof(empty)) == 0;
	assert_true(first != second);
	world->file = NULL;
	world_free(world);
}

static void a_file_with_a_change_half_done_is_recovered_instead(void **state)
{
	struct world *world = world_new(3 * CHUNK, 0);
	struct naos_sealing sealing = { 0 };
	uint8_t text[100] = { 0 };
	write_at(world, 1, 0, 'b', CHUNK);
	world->memory.fail_write_after = 1;
	assert_int_equal(naos_sealed_file_write(world->file, text, sizeof(text), 5 * CHUNK, &err), NAOS_E_NOSPACE);
	assert_int_equal(steps_until_done(world, &sealing), 1);
	assert_true(naos_sealed_file_clean(world->file));
	assert_ok(naos_sealed_file_verify(world->file, &err), &err);
	assert_int_equal(byte_at(world->file, CHUNK), 'b');
	write_at(world, 1, 0, 'c', CHUNK);
	world_free(world);
}

static void appending_goes_to_the_end(void **state)
{
	struct world *world = world_new(CHUNK + 10, 8);
	uint64_t at;
	assert_ok(naos_sealed_file_append(world->file, "one", 3, &at, &err), &err);
	assert_int_equal(at, CHUNK + 10);
	assert_ok(naos_sealed_file_append(world->file, "two", 3, &at, &err), &err);
	assert_int_equal(at, CHUNK + 13);
	assert_int_equal(byte_at(world->file, CHUNK + 13), 't');
	assert_int_equal(naos_sealed_file_size(world->file), CHUNK + 16);
	assert_int_equal(naos_sealed_file_append(world->file, "x", (size_t)NAOS_MAX_FILE_BYTES, &at, &err), NAOS_E_LIMIT);
	assert_int_equal(at, CHUNK + 13);
	world_free(world);
}

static void zeroing_extends_unless_the_size_is_kept(void **state)
{
	struct world *world = world_new(3 * CHUNK, 8);
	write_at(world, 2, 0, 'b', 10);
	assert_ok(naos_sealed_file_zero(world->file, 2 * CHUNK + 5, 4 * CHUNK, true, &err), &err);
	assert_int_equal(naos_sealed_file_size(world->file), 3 * CHUNK);
	assert_int_equal(byte_at(world->file, 2 * CHUNK + 4), 'b');
	assert_int_equal(byte_at(world->file, 2 * CHUNK + 5), 0);
	assert_int_equal(byte_at(world->file, 3 * CHUNK - 1), 0);
	assert_ok(naos_sealed_file_zero(world->file, 10 * CHUNK, 7, false, &err), &err);
	assert_int_equal(naos_sealed_file_size(world->file), 10 * CHUNK + 7);
	assert_int_equal(naos_sealed_file_zero(world->file, NAOS_MAX_FILE_BYTES, 1, false, &err), NAOS_E_LIMIT);
	world_free(world);
}

static void allocating_takes_blocks_and_keeps_the_content(void **state)
{
	struct world *world = world_new(3 * CHUNK, 8);
	struct memory_file *memory = &world->memory;
	write_at(world, 1, 0, 'b', CHUNK);
	size_t before = memory->bytes;
	assert_ok(naos_sealed_file_allocate(world->file, CHUNK, 100 * CHUNK, true, &err), &err);
	assert_int_equal(naos_sealed_file_size(world->file), 3 * CHUNK);
	assert_int_equal(memory->bytes, before);
	assert_int_equal(memory->reserved_from, 0);
	assert_int_equal(memory->reserved_to, naos_layout_data_offset(100) + CHUNK);
	assert_ok(naos_sealed_file_allocate(world->file, 18 * CHUNK, 1, false, &err), &err);
	assert_int_equal(memory->reserved_from, naos_layout_map_page(0) * CHUNK);
	assert_int_equal(naos_sealed_file_size(world->file), 18 * CHUNK + 1);
	assert_int_equal(byte_at(world->file, CHUNK), 'b');
	assert_int_equal(byte_at(world->file, 18 * CHUNK), 0);
	memory->fail_reserve = true;
	assert_int_equal(naos_sealed_file_allocate(world->file, 0, 100 * CHUNK, false, &err), NAOS_E_NOSPACE);
	assert_int_equal(naos_sealed_file_size(world->file), 18 * CHUNK + 1);
	assert_int_equal(naos_sealed_file_allocate(world->file, 0, 0, false, &err), NAOS_E_USAGE);
	world_free(world);
}

static void only_the_only_writer_gathers(void **state)
{
	struct world *world = world_new(CHUNK, 0);
	struct naos_sealed_file *reader;
	struct naos_sealing sealing = { 0 };
	bool done;
	assert_ok(test_open(&world->memory, &world->key, NAOS_SEALED_READ, &reader, &err), &err);
	assert_int_equal(naos_sealed_file_gather(reader, CHUNK, &err), NAOS_E_USAGE);
	assert_int_equal(naos_sealed_file_seal_step(reader, &sealing, &done, &err), NAOS_E_USAGE);
	assert_ok(naos_sealed_file_close(reader, false, &err), &err);
	world_free(world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(overwrites_of_durable_chunks_share_their_flushes),
		cmocka_unit_test(parts_are_put_together_in_memory),
		cmocka_unit_test(gathered_data_over_a_hole_counts_as_data),
		cmocka_unit_test(the_limit_writes_the_batch),
		cmocka_unit_test(a_settling_that_fails_is_told_by_the_next_flush),
		cmocka_unit_test(a_disk_full_for_a_moment_loses_nothing),
		cmocka_unit_test(a_full_disk_is_told_to_whoever_writes),
		cmocka_unit_test(sealing_step_by_step_leaves_the_flushes_to_the_caller),
		cmocka_unit_test(sealing_starts_over_when_the_file_was_changed),
		cmocka_unit_test(a_close_between_the_steps_finishes_sealing),
		cmocka_unit_test(a_file_with_a_change_half_done_is_recovered_instead),
		cmocka_unit_test(appending_goes_to_the_end),
		cmocka_unit_test(zeroing_extends_unless_the_size_is_kept),
		cmocka_unit_test(allocating_takes_blocks_and_keeps_the_content),
		cmocka_unit_test(only_the_only_writer_gathers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* New files, until their page 0 is durable: what is lost is empty, what is damaged is an error; and after a flush all that is lost is
 * damage.  SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "memory_store.h"
#include "seal/inspect.h"

static struct naos_error err;

struct world {
	struct memory_file memory;
	struct test_key key;
	struct naos_sealed_file *file;
};

/* A new file of 20 chunks, of which nothing was flushed. */
static struct world *world_new(void)
{
	static uint8_t text[20 * NAOS_CHUNK_BYTES];
	struct world *world = calloc(1, sizeof(*world));
	assert_non_null(world);
	test_key_make(&world->key, 4, 1);
	memset(text, 'a', sizeof(text));
	world->file = test_create(&world->memory, &world->key, false);
	assert_ok(naos_sealed_file_write(world->file, text, sizeof(text), 0, &err), &err);
	assert_int_equal(world->memory.attribute_bytes, NAOS_NEW_ATTRIBUTE_BYTES);
	assert_int_equal(world->memory.flushes, 0);
	return world;
}

static void close_file(struct world *world, bool seal)
{
	assert_ok(naos_sealed_file_close(world->file, seal, &err), &err);
	world->file = NULL;
}

static void world_free(struct world *world)
{
	if (world->file)
		close_file(world, false);
	memory_file_free(&world->memory);
	naos_secret_free(world->key.fek);
	free(world);
}

static void lose(struct world *world, size_t from, size_t bytes)
{
	memset(world->memory.data + from, 0, bytes);
}

static uint64_t size_of(struct world *world)
{
	assert_ok(test_open(&world->memory, &world->key, NAOS_SEALED_READ, &world->file, &err), &err);
	uint64_t size = naos_sealed_file_size(world->file);
	assert_false(naos_sealed_file_clean(world->file));
	assert_ok(naos_sealed_file_verify(world->file, &err), &err);
	close_file(world, false);
	return size;
}

static void refused(struct world *world, int code)
{
	for (unsigned mode = NAOS_SEALED_READ; mode <= NAOS_SEALED_SHARED; mode++)
		assert_int_equal(test_open(&world->memory, &world->key, (enum naos_sealed_mode)mode, &world->file, &err), code);
	world->file = NULL;
}

static void a_new_file_without_page_0_is_empty_and_is_recovered(void **state)
{
	const struct naos_inspect_demand none = { .fileset_id = NULL };
	const size_t lost[][2] = { { 0, NAOS_CHUNK_BYTES }, { 0, 512 }, { 512, 512 }, { 1024, 512 }, { 0, 1536 } };
	for (unsigned i = 0; i < 2 * NAOS_ARRAY_LENGTH(lost); i++) {
		struct world *world = world_new();
		uint8_t byte;
		size_t got;
		uint64_t bytes;
		bool clean = true;
		close_file(world, false);
		lose(world, lost[i / 2][0], lost[i / 2][1]);
		assert_int_equal(size_of(world), 0);
		struct naos_store *store = memory_store(&world->memory);
		assert_ok(naos_sealed_inspect(store, &none, &clean, &bytes, &err), &err);
		store->ops->close(store);
		assert_false(clean);
		assert_int_equal(bytes, 0);
		assert_ok(test_open(&world->memory, &world->key, i % 2 ? NAOS_SEALED_SHARED : NAOS_SEALED_LOCAL, &world->file, &err), &err);
		assert_true(naos_sealed_file_recovered(world->file));
		assert_int_equal(world->memory.attribute_bytes, NAOS_FEK_SLOT_BYTES);
		assert_int_equal(world->memory.bytes, NAOS_CHUNK_BYTES); /* what lay behind is gone */
		assert_ok(naos_sealed_file_read(world->file, &byte, 1, 0, &got, &err), &err);
		assert_int_equal(got, 0);
		assert_ok(naos_sealed_file_write(world->file, "new", 3, 0, &err), &err);
		close_file(world, true);
		assert_ok(test_open(&world->memory, &world->key, NAOS_SEALED_READ, &world->file, &err), &err);
		assert_true(naos_sealed_file_clean(world->file));
		assert_ok(naos_sealed_file_verify(world->file, &err), &err);
		world_free(world);
	}
}

static void a_reader_sees_a_file_that_is_recovered_meanwhile(void **state)
{
	struct world *world = world_new();
	struct naos_sealed_file *reader;
	close_file(world, false);
	lose(world, 0, NAOS_CHUNK_BYTES);
	assert_ok(test_open(&world->memory, &world->key, NAOS_SEALED_READ, &reader, &err), &err);
	assert_ok(naos_sealed_file_refresh(reader, &err), &err);
	assert_int_equal(naos_sealed_file_size(reader), 0);
	assert_ok(test_open(&world->memory, &world->key, NAOS_SEALED_LOCAL, &world->file, &err), &err);
	assert_ok(naos_sealed_file_write(world->file, "new", 3, 0, &err), &err);
	assert_ok(naos_sealed_file_refresh(reader, &err), &err);
	assert_int_equal(naos_sealed_file_size(reader), 3);
	assert_ok(naos_sealed_file_close(reader, false, &err), &err);
	world_free(world);
}

static uint8_t first_page[NAOS_CHUNK_BYTES];

static void put_first_page(struct memory_file *file)
{
	memcpy(file->data, first_page, sizeof(first_page));
}

static void a_writer_that_joins_leaves_page_0_of_the_one_that_recovered_it(void **state)
{
	struct world *world = world_new();
	close_file(world, false);
	memcpy(first_page, world->memory.data, sizeof(first_page));
	lose(world, 0, NAOS_CHUNK_BYTES);
	world->memory.on_wait = put_first_page;
	assert_ok(test_open(&world->memory, &world->key, NAOS_SEALED_SHARED, &world->file, &err), &err);
	assert_int_equal(naos_sealed_file_size(world->file), 20 * NAOS_CHUNK_BYTES);
	assert_ok(naos_sealed_file_flush(world->file, &err), &err);
	assert_int_equal(naos_sealed_file_size(world->file), 20 * NAOS_CHUNK_BYTES);
	close_file(world, true);
	assert_ok(test_open(&world->memory, &world->key, NAOS_SEALED_READ, &world->file, &err), &err);
	assert_int_equal(naos_sealed_file_size(world->file), 20 * NAOS_CHUNK_BYTES);
	assert_ok(naos_sealed_file_verify(world->file, &err), &err);
	world_free(world);
}

/* Each way to make a file durable ends its record. */
enum durably { BY_FLUSH, BY_CLOSE, BY_STEPS, BY_OPENING };

static void make_durable(struct world *world, enum durably how)
{
	struct naos_sealing sealing = { 0 };
	bool done = false;
	switch (how) {
	case BY_FLUSH:
		assert_ok(naos_sealed_file_flush(world->file, &err), &err);
		break;
	case BY_CLOSE:
		close_file(world, true);
		return;
	case BY_STEPS:
		while (!done)
			assert_ok(naos_sealed_file_seal_step(world->file, &sealing, &done, &err), &err);
		break;
	case BY_OPENING:
		close_file(world, false);
		assert_ok(test_open(&world->memory, &world->key, NAOS_SEALED_LOCAL, &world->file, &err), &err);
	}
	close_file(world, false);
}

static void a_durable_file_without_page_0_is_damaged(void **state)
{
	for (enum durably how = BY_FLUSH; how <= BY_OPENING; how++) {
		struct world *world = world_new();
		make_durable(world, how);
		assert_int_equal(world->memory.attribute_bytes, NAOS_FEK_SLOT_BYTES);
		lose(world, 0, NAOS_CHUNK_BYTES);
		refused(world, NAOS_E_FORMAT);
		world_free(world);
	}
}

static void only_zeros_are_lost_and_only_with_an_authentic_record(void **state)
{
	struct world *world = world_new();
	close_file(world, false);
	lose(world, 0, NAOS_CHUNK_BYTES);
	for (size_t i = 0; i < world->memory.attribute_bytes; i++) {
		world->memory.attribute[i] ^= 1;
		assert_int_not_equal(test_open(&world->memory, &world->key, NAOS_SEALED_READ, &world->file, &err), 0);
		world->memory.attribute[i] ^= 1;
	}
	for (size_t i = 0; i < NAOS_FEK_OFFSET; i++) {
		world->memory.data[i] ^= 1;
		assert_int_not_equal(test_open(&world->memory, &world->key, NAOS_SEALED_READ, &world->file, &err), 0);
		world->memory.data[i] ^= 1;
	}
	world->file = NULL;
	assert_int_equal(size_of(world), 0);
	world->memory.attribute_bytes = NAOS_FEK_SLOT_BYTES;
	refused(world, NAOS_E_FORMAT);
	world->memory.attribute_bytes = 0;
	refused(world, NAOS_E_FORMAT);
	world_free(world);
}

static void an_unpublished_file_has_no_record(void **state)
{
	struct world *world = calloc(1, sizeof(*world));
	assert_non_null(world);
	test_key_make(&world->key, 4, 1);
	world->file = test_create(&world->memory, &world->key, true);
	assert_int_equal(world->memory.attribute_bytes, NAOS_FEK_SLOT_BYTES);
	world_free(world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_new_file_without_page_0_is_empty_and_is_recovered),
		cmocka_unit_test(a_reader_sees_a_file_that_is_recovered_meanwhile),
		cmocka_unit_test(a_writer_that_joins_leaves_page_0_of_the_one_that_recovered_it),
		cmocka_unit_test(a_durable_file_without_page_0_is_damaged),
		cmocka_unit_test(only_zeros_are_lost_and_only_with_an_authentic_record),
		cmocka_unit_test(an_unpublished_file_has_no_record),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

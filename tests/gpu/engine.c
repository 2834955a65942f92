/* The engine's GPU: opening into the memory of the device, what failures leave, falling back to the CPU, numbers of FITS.
 *
 * Usage: test_gpu_engine PLUGIN    the emulation also fails on demand
 * SPDX-License-Identifier: Apache-2.0 */
#include "../unit/engine_helper.h"

#include <dlfcn.h>

#include "engine/cost.h"
#include "engine/gpu_inside.h"

#define LONGEST ((size_t)100000)
#define MOST 40u

static const char *plugin_path;
static unsigned (*emulated_fail)(unsigned at, int code);
static uint64_t (*emulated_live)(void);

/* A thing of many segments, sealed by the CPU. */
struct world {
	struct naos_gpu *gpu;
	struct naos_gcm_key *key;
	uint64_t count, bytes;
	struct naos_gpu_segment segments[MOST];
	uint8_t *plain, *sealed;
};

static int describe(void *context, uint64_t index, struct naos_gpu_segment *ret, struct naos_error *error)
{
	const struct world *world = context;
	*ret = world->segments[index];
	return 0;
}

static int read_some(void *context, uint64_t index, uint32_t count, uint8_t *buffer, size_t bytes, struct naos_error *error)
{
	const struct world *world = context;
	for (uint64_t i = index; i < index + count; buffer += world->segments[i++].bytes)
		memcpy(buffer, world->sealed + world->segments[i].offset, world->segments[i].bytes);
	return 0;
}

static struct naos_gpu_source source_of(struct world *world, unsigned jobs)
{
	return (struct naos_gpu_source){ describe, read_some, world, world->count, LONGEST, jobs };
}

static void make_world(struct world *world, enum naos_algorithm algorithm, uint64_t count)
{
	const struct naos_engine_backend *cpu;
	uint64_t seed = 5;
	uint8_t raw[32];
	memset(world, 0, sizeof(*world));
	assert_ok(naos_gpu_get(&world->gpu, &err), &err);
	assert_ok(naos_engine_cpu(&cpu, &err), &err);
	fill_random(&seed, raw, sizeof(raw));
	world->key = make_key(cpu, algorithm, raw);
	world->count = count;
	for (uint64_t i = 0; i < count; i++) {
		struct naos_gpu_segment *s = &world->segments[i];
		s->bytes = i % 5 == 3 ? (size_t)(next_random(&seed) % LONGEST) : LONGEST / (1 + i % 3);
		s->offset = world->bytes;
		s->associated_bytes = i % 2 ? 88 : 0;
		fill_random(&seed, s->associated, s->associated_bytes);
		fill_random(&seed, s->nonce, sizeof(s->nonce));
		world->bytes += s->bytes;
	}
	world->plain = malloc(world->bytes + 1);
	world->sealed = malloc(world->bytes + 1);
	fill_random(&seed, world->plain, world->bytes);
	for (uint64_t i = 0; i < count; i++) {
		struct naos_gpu_segment *s = &world->segments[i];
		struct naos_gcm_message m = { s->nonce, s->associated, s->associated_bytes, world->plain + s->offset,
					      world->sealed + s->offset, s->bytes, s->tag, 0 };
		assert_ok(naos_gcm_seal(world->key, &m, &err), &err);
	}
}

static void end_world(struct world *world)
{
	naos_gcm_key_free(world->key);
	free(world->plain);
	free(world->sealed);
}

static void segments_are_opened_into_the_memory_of_the_device(void **state)
{
	struct world world;
	for (enum naos_algorithm a = NAOS_AES_128_GCM; a <= NAOS_AES_256_GCM; a++) {
		make_world(&world, a, a == NAOS_AES_128_GCM ? MOST : 3);
		for (unsigned jobs = 1; jobs <= 3; jobs += 2) {
			naos_autogpumemory struct naos_gpu_memory *memory = NULL;
			struct naos_gpu_source source = source_of(&world, jobs);
			uint64_t failed;
			assert_ok(naos_gpu_memory_create(world.gpu, world.bytes, &memory, &err), &err);
			assert_ok(naos_gpu_open(world.gpu, world.key, &source, memory, &failed, &err), &err);
			naos_autofree uint8_t *got = malloc(world.bytes);
			assert_ok(naos_gpu_memory_read(memory, 0, got, world.bytes, &err), &err);
			assert_memory_equal(got, world.plain, world.bytes);
		}
		end_world(&world);
	}
}

static void a_changed_segment_leaves_nothing_in_the_memory(void **state)
{
	struct world world;
	make_world(&world, NAOS_AES_256_GCM, 12);
	naos_autofree uint8_t *got = malloc(world.bytes);
	for (unsigned turn = 0; turn < 3; turn++) {
		naos_autogpumemory struct naos_gpu_memory *memory = NULL;
		struct naos_gpu_source source = source_of(&world, 2);
		uint64_t failed = 99;
		uint8_t *changed = turn == 0 ? world.segments[7].tag : turn == 1 ? &world.segments[7].associated[3] :
								       world.sealed + world.segments[7].offset + 5;
		*changed ^= 0x10;
		assert_ok(naos_gpu_memory_create(world.gpu, world.bytes, &memory, &err), &err);
		assert_int_equal(naos_gpu_open(world.gpu, world.key, &source, memory, &failed, &err), NAOS_E_INTEGRITY);
		assert_int_equal(failed, 7);
		assert_ok(naos_gpu_memory_read(memory, 0, got, world.bytes, &err), &err);
		assert_true(all_zero(got, world.bytes));
		*changed ^= 0x10;
	}
	end_world(&world);
}

static int read_fails(void *context, uint64_t index, uint32_t count, uint8_t *buffer, size_t bytes, struct naos_error *error)
{
	if (index <= 5 && 5 < index + count)
		return naos_error_set(error, NAOS_E_CHANGED, "the file changed");
	return read_some(context, index, count, buffer, bytes, error);
}

static void an_error_of_the_reader_is_handed_on_and_leaves_nothing(void **state)
{
	struct world world;
	make_world(&world, NAOS_AES_128_GCM, 12);
	naos_autogpumemory struct naos_gpu_memory *memory = NULL;
	struct naos_gpu_source source = source_of(&world, 2);
	naos_autofree uint8_t *got = malloc(world.bytes);
	uint64_t failed;
	source.read = read_fails;
	assert_ok(naos_gpu_memory_create(world.gpu, world.bytes, &memory, &err), &err);
	assert_int_equal(naos_gpu_open(world.gpu, world.key, &source, memory, &failed, &err), NAOS_E_CHANGED);
	assert_string_equal(err.message, "the file changed");
	assert_ok(naos_gpu_memory_read(memory, 0, got, world.bytes, &err), &err);
	assert_true(all_zero(got, world.bytes));
	world.segments[2].offset = world.bytes; /* beyond the memory */
	source.read = read_some;
	assert_int_equal(naos_gpu_open(world.gpu, world.key, &source, memory, &failed, &err), NAOS_E_USAGE);
	end_world(&world);
}

/* --- numbers ------------------------------------------------------------------------------------------------------------------ */

static void put_big(uint8_t *to, uint64_t bits, unsigned size)
{
	for (unsigned i = 0; i < size; i++)
		to[i] = (uint8_t)(bits >> 8 * (size - 1 - i));
}

static void numbers_of_fits_become_native_ones(void **state)
{
	static const int kinds[] = { 8, 16, 32, 64, -32, -64 };
	enum { COUNT = 301 };
	struct naos_gpu *gpu;
	assert_ok(naos_gpu_get(&gpu, &err), &err);
	for (unsigned k = 0; k < NAOS_ARRAY_LENGTH(kinds); k++) {
		const unsigned size = (unsigned)abs(kinds[k]) / 8;
		uint8_t stored[COUNT * 8], native[COUNT * 8];
		double want[COUNT];
		for (unsigned i = 0; i < COUNT; i++) {
			int64_t whole = ((int64_t)i - 150) * 97 + (size >= 4 ? (int64_t)i << 20 : 0);
			double real = (double)whole / 7;
			float single = (float)real;
			uint64_t bits = (uint64_t)whole;
			if (kinds[k] == 8)
				whole = (uint8_t)bits;
			if (kinds[k] == 16)
				whole = (int16_t)bits;
			if (kinds[k] == -32)
				memcpy(&bits, &single, 4);
			if (kinds[k] == -64)
				memcpy(&bits, &real, 8);
			put_big(stored + i * size, bits, size);
			want[i] = 32768 + 0.5 * (kinds[k] > 0 ? (double)whole : kinds[k] == -32 ? (double)single : real);
			if (kinds[k] == 16 && whole == -150 * 97)
				want[i] = -1; /* BLANK */
			memcpy(native + i * size, &bits, size); /* little-endian */
		}
		naos_autogpumemory struct naos_gpu_memory *in = NULL, *out = NULL;
		const int64_t blank = -150 * 97;
		double doubles[COUNT];
		float floats[COUNT];
		uint8_t same[COUNT * 8];
		assert_ok(naos_gpu_memory_create(gpu, COUNT * size, &in, &err), &err);
		assert_ok(naos_gpu_memory_create(gpu, COUNT * 8, &out, &err), &err);
		assert_ok(naos_gpu_memory_write(in, 0, stored, COUNT * size, &err), &err);
		assert_ok(naos_gpu_memory_convert(in, out, COUNT, kinds[k], NAOS_CUDA_FLOAT64, 0.5, 32768, kinds[k] == 16 ? &blank : NULL, &err),
			  &err);
		assert_ok(naos_gpu_memory_read(out, 0, doubles, sizeof(doubles), &err), &err);
		assert_ok(naos_gpu_memory_convert(in, out, COUNT, kinds[k], NAOS_CUDA_FLOAT32, 0.5, 32768, NULL, &err), &err);
		assert_ok(naos_gpu_memory_read(out, 0, floats, sizeof(floats), &err), &err);
		assert_ok(naos_gpu_memory_convert(in, in, COUNT, kinds[k], NAOS_CUDA_SAME, 1, 0, NULL, &err), &err);
		assert_ok(naos_gpu_memory_read(in, 0, same, COUNT * size, &err), &err);
		for (unsigned i = 0; i < COUNT; i++) {
			if (want[i] == -1) {
				assert_true(doubles[i] != doubles[i]);
				continue;
			}
			assert_true(doubles[i] == want[i]);
			assert_true(floats[i] == (float)want[i]);
		}
		assert_memory_equal(same, native, COUNT * size);
	}
}

static void a_conversion_that_does_not_fit_is_refused(void **state)
{
	struct naos_gpu *gpu;
	naos_autogpumemory struct naos_gpu_memory *memory = NULL;
	assert_ok(naos_gpu_get(&gpu, &err), &err);
	assert_ok(naos_gpu_memory_create(gpu, 160, &memory, &err), &err);
	assert_int_equal(naos_gpu_memory_convert(memory, memory, 41, -32, NAOS_CUDA_SAME, 1, 0, NULL, &err), NAOS_E_USAGE);
	assert_int_equal(naos_gpu_memory_convert(memory, memory, 10, 16, NAOS_CUDA_FLOAT32, 1, 0, NULL, &err), NAOS_E_USAGE);
	assert_int_equal(naos_gpu_memory_convert(memory, memory, 10, 24, NAOS_CUDA_SAME, 1, 0, NULL, &err), NAOS_E_USAGE);
	assert_int_equal(naos_gpu_memory_read(memory, 100, memory, 61, &err), NAOS_E_USAGE);
}

/* --- failures ------------------------------------------------------------------------------------------------------------------- */

/* Every call of the device fails once, as if memory had run out: the back end goes on with the CPU, and nothing of the device's
 * memory is lost. */
static void without_memory_of_the_device_the_cpu_does_it(void **state)
{
	enum { BYTES = 5000 };
	static uint8_t plain[BYTES], sealed[BYTES], want[BYTES];
	static const uint8_t raw[32] = { 9 }, nonce[12] = { 1 };
	uint8_t tag[16], want_tag[16];
	struct naos_gpu *gpu;
	if (!emulated_fail)
		skip();
	assert_ok(naos_gpu_get(&gpu, &err), &err);
	uint64_t seed = 3;
	fill_random(&seed, plain, BYTES);
	struct naos_gcm_key *key = make_key(&naos_engine_cuda, NAOS_AES_256_GCM, raw);
	struct naos_gcm_message m = { nonce, NULL, 0, plain, want, BYTES, want_tag, 0 };
	assert_ok(naos_gcm_seal(key->contexts, &m, &err), &err);
	(void)emulated_fail(0, 0);
	m.out = sealed, m.tag = tag;
	assert_ok(naos_gcm_seal(key, &m, &err), &err);
	unsigned calls = emulated_fail(0, 0);
	assert_true(calls > 10);
	uint64_t live = emulated_live();
	unsigned denied = 0;
	for (unsigned at = 1; at <= calls; at++) {
		memset(sealed, 0, sizeof(sealed));
		memset(tag, 0, sizeof(tag));
		(void)emulated_fail(at, NAOS_CUDA_NOMEM);
		int rc = naos_gcm_seal(key, &m, &err);
		(void)emulated_fail(0, 0);
		if (rc != 0) { /* only while results are fetched */
			assert_int_equal(rc, NAOS_E_SYSTEM);
			denied++;
			continue;
		}
		assert_memory_equal(sealed, want, BYTES);
		assert_memory_equal(tag, want_tag, 16);
	}
	assert_true(denied < 6);
	assert_true(emulated_live() <= live);
	const char *warning = naos_gpu_warning();
	assert_non_null(warning);
	assert_non_null(strstr(warning, "the CPU does its work from here on"));
	assert_null(naos_gpu_warning());
	naos_gcm_key_free(key);
}

/* The same for opening into the device: an error, and the memory is empty.  Ends with the device lost. */
static void a_failing_device_opens_nothing_and_is_not_used_again(void **state)
{
	struct world world;
	if (!emulated_fail)
		skip();
	make_world(&world, NAOS_AES_128_GCM, 6);
	naos_autogpumemory struct naos_gpu_memory *memory = NULL;
	struct naos_gpu_source source = source_of(&world, 1);
	naos_autofree uint8_t *got = malloc(world.bytes);
	uint64_t failed;
	assert_ok(naos_gpu_memory_create(world.gpu, world.bytes, &memory, &err), &err);
	(void)emulated_fail(0, 0);
	assert_ok(naos_gpu_open(world.gpu, world.key, &source, memory, &failed, &err), &err);
	unsigned calls = emulated_fail(0, 0);
	for (unsigned at = 1; at <= calls; at++) {
		(void)emulated_fail(at, NAOS_CUDA_NOMEM);
		int rc = naos_gpu_open(world.gpu, world.key, &source, memory, &failed, &err);
		(void)emulated_fail(0, 0);
		if (rc == 0)
			continue;
		assert_int_equal(rc, NAOS_E_NOMEM);
		assert_ok(naos_gpu_memory_read(memory, 0, got, world.bytes, &err), &err);
		assert_true(all_zero(got, world.bytes));
	}
	(void)emulated_fail(calls / 2, NAOS_CUDA_LOST);
	assert_int_equal(naos_gpu_open(world.gpu, world.key, &source, memory, &failed, &err), NAOS_E_UNSUPPORTED);
	struct naos_gpu *gpu;
	assert_int_equal(naos_gpu_get(&gpu, &err), NAOS_E_UNSUPPORTED);
	(void)emulated_fail(0, 0);
	end_world(&world);
	/* the back end still works, by the CPU */
	static const uint8_t raw[32] = { 9 }, nonce[12] = { 1 };
	uint8_t text[100] = { 7 }, tag[16];
	struct naos_gcm_key *key = make_key(&naos_engine_cuda, NAOS_AES_128_GCM, raw);
	struct naos_gcm_message m = { nonce, NULL, 0, text, text, sizeof(text), tag, 0 };
	assert_ok(naos_gcm_seal(key, &m, &err), &err);
	assert_ok(naos_gcm_open(key, &m, &err), &err);
	assert_int_equal(text[0], 7);
	naos_gcm_key_free(key);
}

/* --- policy and costs ---------------------------------------------------------------------------------------------------------- */

static void set_policy(enum naos_gpu_use use, bool demand_confidential)
{
	naos_gpu_policy_set(&(struct naos_gpu_policy){ .use = use, .demand_confidential = demand_confidential }, true);
}

static void the_policy_is_kept(void **state)
{
	struct naos_gpu *gpu = NULL;
	set_policy(NAOS_GPU_NEVER, false);
	assert_code(naos_gpu_get(&gpu, &err), NAOS_E_UNSUPPORTED);
	assert_non_null(strstr(err.message, "use = never"));
	set_policy(NAOS_GPU_AUTO, true);
	int rc = naos_gpu_get(&gpu, &err);
	if (rc == 0) { /* only in that mode */
		assert_int_equal(naos_gpu_info(gpu)->confidential, 1);
	} else {
		assert_int_equal(rc, NAOS_E_DENIED);
		assert_non_null(strstr(err.message, "[gpu] confidential"));
		assert_null(gpu);
	}
	/* what a program forces is stronger than a configuration */
	naos_gpu_policy_set(&(struct naos_gpu_policy){ .use = NAOS_GPU_NEVER }, false);
	assert_int_equal(naos_gpu_get(&gpu, &err), rc);
	set_policy(NAOS_GPU_AUTO, false);
	assert_ok(naos_gpu_get(&gpu, &err), &err);
}

static const char *row_for(uint64_t bytes)
{
	naos_autosecret struct naos_secret *secret = NULL;
	naos_autogcmkey struct naos_gcm_key *key = NULL;
	assert_ok(naos_secret_random(32, &secret, &err), &err);
	assert_ok(naos_gcm_key_create_for(NAOS_AES_256_GCM, secret, bytes, true, &key, &err), &err);
	return key->backend->name;
}

static void large_work_is_given_to_whom_the_policy_says(void **state)
{
	assert_ok(naos_engine_select("auto", false, &err), &err);
	set_policy(NAOS_GPU_ALWAYS, false);
	assert_string_equal(row_for((uint64_t)1 << 30), "cuda");
	assert_string_not_equal(row_for(4096), "cuda");
	set_policy(NAOS_GPU_NEVER, false);
	assert_string_not_equal(row_for((uint64_t)1 << 30), "cuda");
	set_policy(NAOS_GPU_ALWAYS, false);
	assert_ok(naos_engine_select("openssl", false, &err), &err); /* asked for by name */
	assert_string_equal(row_for((uint64_t)1 << 30), "openssl");
	assert_ok(naos_engine_select("auto", false, &err), &err);
	set_policy(NAOS_GPU_AUTO, false);
}

static void rates_of_the_device_are_measured(void **state)
{
	struct naos_cost_rates rates;
	assert_ok(naos_cost_rates(true, &rates, &err), &err);
	assert_true(rates.gpu);
	assert_string_equal(naos_cost_no_gpu(), "");
	for (unsigned i = 0; i < 4; i++)
		assert_true(rates.kernel_bytes_s[i / 2][i % 2] > 1e6);
	assert_true(rates.up_bytes_s > 1e6 && rates.down_bytes_s > 1e6 && rates.both_bytes_s > 1e6 && rates.stage_bytes_s > 1e6);
	assert_true(rates.fixed_s > 0 && rates.fixed_s < 1 && rates.start_s > 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(segments_are_opened_into_the_memory_of_the_device),
		cmocka_unit_test(a_changed_segment_leaves_nothing_in_the_memory),
		cmocka_unit_test(an_error_of_the_reader_is_handed_on_and_leaves_nothing),
		cmocka_unit_test(numbers_of_fits_become_native_ones),
		cmocka_unit_test(a_conversion_that_does_not_fit_is_refused),
		cmocka_unit_test(the_policy_is_kept),
		cmocka_unit_test(large_work_is_given_to_whom_the_policy_says),
		cmocka_unit_test(rates_of_the_device_are_measured),
		cmocka_unit_test(without_memory_of_the_device_the_cpu_does_it),
		cmocka_unit_test(a_failing_device_opens_nothing_and_is_not_used_again),
	};
	struct naos_gpu *gpu;
	plugin_path = argc > 1 ? argv[1] : "";
	const struct naos_gpu_settings settings = { .plugin = plugin_path };
	void *plugin = dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL);
	if (plugin) {
		*(void **)&emulated_fail = dlsym(plugin, "naos_emulated_fail");
		*(void **)&emulated_live = dlsym(plugin, "naos_emulated_live_bytes");
	}
	naos_gpu_configure(&settings);
	(void)setenv("XDG_CACHE_HOME", "/nonexistent", 1); /* rates are not kept */
	int rc = naos_gpu_get(&gpu, &err);
	if (rc == NAOS_E_UNSUPPORTED) {
		printf("skipped: no CUDA device (%s)\n", err.message);
		return SKIP_EXIT;
	}
	printf("run: %s\n", rc == 0 ? naos_gpu_info(gpu)->kernels : err.message);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

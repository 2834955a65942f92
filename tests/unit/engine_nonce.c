/* Nonces: none comes twice, from threads, from forked children, from a cloned machine; what was used is wiped.
 * The source is included, so that the batch can be seen and each of its two halves can be tested without the other:
 * either alone would hide a fault of the other.
 * SPDX-License-Identifier: Apache-2.0 */
#include <sys/mman.h>
#include <sys/wait.h>

static int watched_munmap(void *area, size_t bytes);
#define munmap watched_munmap
#include "engine/nonce.c"
#undef munmap

#include "engine_helper.h"

static unsigned unmapped, unmapped_with_content;

static int watched_munmap(void *area, size_t bytes)
{
	unmapped++;
	if (!all_zero(area, bytes))
		unmapped_with_content++;
	return munmap(area, bytes);
}

enum halves { BOTH, BATCH_ONLY, SYSTEM_CALL };
static vdso_getrandom real_draw;
static bool real_may_be_cloned;

static void use(enum halves halves)
{
	kernel.draw = halves == BOTH ? real_draw : NULL;
	kernel.may_be_cloned = halves == BOTH ? real_may_be_cloned : halves == SYSTEM_CALL;
}

static int start(void **state)
{
	uint8_t nonce[12];
	if (naos_nonce_next(nonce, &err) != 0)
		return -1;
	real_draw = kernel.draw;
	real_may_be_cloned = kernel.may_be_cloned;
	printf("the kernel's part comes from %s\n", real_draw ? "the vDSO" : real_may_be_cloned ? "the system call" : "nowhere (bare metal)");
	return 0;
}

static int compare(const void *a, const void *b)
{
	return memcmp(a, b, NAOS_GCM_NONCE_BYTES);
}

static bool any_twice(uint8_t *nonces, size_t count)
{
	qsort(nonces, count, NAOS_GCM_NONCE_BYTES, compare);
	for (size_t i = 1; i < count; i++)
		if (compare(nonces + (i - 1) * NAOS_GCM_NONCE_BYTES, nonces + i * NAOS_GCM_NONCE_BYTES) == 0)
			return true;
	return false;
}

#define THREADS 8
#define PER_THREAD ((size_t)125000)

static void *draw_many(void *argument)
{
	uint8_t *at = argument, *end = at + PER_THREAD * NAOS_GCM_NONCE_BYTES;
	for (size_t piece = 1; at < end; at += piece * NAOS_GCM_NONCE_BYTES, piece = (piece * 7 + 1) % 1000 + 1) {
		size_t left = (size_t)(end - at) / NAOS_GCM_NONCE_BYTES;
		piece = piece < left ? piece : left;
		if ((piece == 1 ? naos_nonce_next(at, NULL) : naos_nonce_fill(at, piece, NULL)) != 0)
			return argument;
	}
	return NULL;
}

static void a_million_from_threads_are_all_different(void **state)
{
	static const enum halves all[] = { BOTH, BATCH_ONLY };
	uint8_t *nonces = malloc(THREADS * PER_THREAD * NAOS_GCM_NONCE_BYTES);
	assert_non_null(nonces);
	for (size_t h = 0; h < NAOS_ARRAY_LENGTH(all); h++) {
		pthread_t threads[THREADS];
		use(all[h]);
		for (size_t t = 0; t < THREADS; t++)
			assert_int_equal(pthread_create(&threads[t], NULL, draw_many, nonces + t * PER_THREAD * NAOS_GCM_NONCE_BYTES), 0);
		for (size_t t = 0; t < THREADS; t++) {
			void *failed;
			assert_int_equal(pthread_join(threads[t], &failed), 0);
			assert_null(failed);
		}
		assert_false(any_twice(nonces, THREADS * PER_THREAD));
	}
	free(nonces);
}

static void bits_are_even(void **state)
{
	enum { COUNT = 40000 };
	static uint8_t nonces[COUNT][NAOS_GCM_NONCE_BYTES];
	for (enum halves h = BOTH; h <= SYSTEM_CALL; h++) {
		use(h);
		assert_ok(naos_nonce_fill(nonces[0], COUNT, &err), &err);
		for (size_t bit = 0; bit < 96; bit++) {
			size_t ones = 0;
			for (size_t i = 0; i < COUNT; i++)
				ones += nonces[i][bit / 8] >> bit % 8 & 1;
			assert_in_range(ones, COUNT / 2 - 1000, COUNT / 2 + 1000); /* ten standard deviations */
		}
	}
}

static void a_child_draws_others(void **state)
{
	enum { COUNT = 2 * BATCH };
	static uint8_t nonces[2 * COUNT][NAOS_GCM_NONCE_BYTES];
	for (enum halves h = BOTH; h <= SYSTEM_CALL; h++) {
		int ends[2], status;
		use(h);
		assert_ok(naos_nonce_next(nonces[0], &err), &err); /* the parent has a batch to inherit */
		assert_int_equal(pipe(ends), 0);
		pid_t child = fork();
		if (child == 0) {
			int rc = naos_nonce_fill(nonces[0], COUNT, NULL);
			_exit(rc != 0 || write(ends[1], nonces, COUNT * NAOS_GCM_NONCE_BYTES) != COUNT * NAOS_GCM_NONCE_BYTES);
		}
		assert_int_equal(close(ends[1]), 0);
		for (size_t done = 0; done < COUNT * NAOS_GCM_NONCE_BYTES;) {
			ssize_t got = read(ends[0], nonces[0] + done, COUNT * NAOS_GCM_NONCE_BYTES - done);
			assert_true(got > 0);
			done += (size_t)got;
		}
		assert_int_equal(close(ends[0]), 0);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
		assert_ok(naos_nonce_fill(nonces[COUNT], COUNT, &err), &err);
		assert_false(any_twice(nonces[0], 2 * COUNT));
	}
}

/* The same batch in memory twice, as in two machines resumed from one snapshot: the kernel's part must part them. */
static void a_clone_draws_others(void **state)
{
	static uint8_t nonces[2 * 100][NAOS_GCM_NONCE_BYTES];
	static const enum halves all[] = { BOTH, SYSTEM_CALL };
	if (!real_draw && !real_may_be_cloned) {
		printf("only the system call: bare metal without a vDSO generator\n");
		real_may_be_cloned = true;
	}
	for (size_t h = 0; h < NAOS_ARRAY_LENGTH(all); h++) {
		struct batch snapshot;
		use(all[h]);
		do {
			assert_ok(naos_nonce_next(nonces[0], &err), &err);
		} while (mine->left < 100);
		snapshot = *mine;
		assert_ok(naos_nonce_fill(nonces[0], 100, &err), &err);
		*mine = snapshot;
		assert_ok(naos_nonce_fill(nonces[100], 100, &err), &err);
		assert_false(any_twice(nonces[0], 200));
	}
}

static void used_nonces_are_wiped(void **state)
{
	uint8_t nonces[100][NAOS_GCM_NONCE_BYTES];
	use(BATCH_ONLY);
	while (mine->left != 0)
		assert_ok(naos_nonce_next(nonces[0], &err), &err);
	assert_true(all_zero(mine->nonces[0], sizeof(mine->nonces)));
	assert_ok(naos_nonce_fill(nonces[0], 100, &err), &err);
	assert_int_equal(mine->left, BATCH - 100);
	assert_true(all_zero(mine->nonces[mine->left], 100 * NAOS_GCM_NONCE_BYTES));
	assert_false(all_zero(mine->nonces[mine->left - 1], NAOS_GCM_NONCE_BYTES));
}

static void *draw_one(void *argument)
{
	return naos_nonce_next(argument, NULL) == 0 ? NULL : argument;
}

static void the_end_of_a_thread_wipes_its_batch(void **state)
{
	uint8_t nonce[12];
	pthread_t thread;
	void *failed;
	use(BOTH);
	unmapped = unmapped_with_content = 0;
	assert_int_equal(pthread_create(&thread, NULL, draw_one, nonce), 0);
	assert_int_equal(pthread_join(thread, &failed), 0);
	assert_null(failed);
	assert_int_equal(unmapped, real_draw ? 2 : 1);
	assert_int_equal(unmapped_with_content, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_million_from_threads_are_all_different), cmocka_unit_test(bits_are_even),
		cmocka_unit_test(a_child_draws_others), cmocka_unit_test(a_clone_draws_others),
		cmocka_unit_test(used_nonces_are_wiped), cmocka_unit_test(the_end_of_a_thread_wipes_its_batch),
	};
	return cmocka_run_group_tests_name("engine nonce", tests, start, NULL);
}

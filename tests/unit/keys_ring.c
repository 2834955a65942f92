/* The key ring over a real token: one unwrap for many, limits of size and age, no key after a fork. SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "softhsm.h"

#include <pthread.h>

#include "keys/ring.h"
#include "shim_token.h"

enum { KEYS = 20 };

static struct naos_error err;
static struct soft_token token;
static struct shim *shim;
static struct naos_provider *provider;
static struct naos_secret *secrets[KEYS];
static struct naos_wrap_context contexts[KEYS];
static struct naos_blob blobs[KEYS];

static struct naos_ring *make_ring(size_t max_keys, uint64_t max_age_s)
{
	struct naos_ring *ring = NULL;
	assert_ok(naos_ring_create(provider, max_keys, max_age_s, &ring, &err), &err);
	return ring;
}

static void gives(struct naos_ring *ring, size_t i)
{
	naos_autosecret struct naos_secret *key = NULL;
	assert_ok(naos_ring_get(ring, &contexts[i], &blobs[i], &key, &err), &err);
	assert_true(naos_secret_equal(key, naos_secret_view(secrets[i]), 32));
}

static void a_key_is_unwrapped_once(void **state)
{
	struct naos_ring *ring = make_ring(KEYS, 600);
	int before = atomic_load(&shim->decrypts);
	for (int round = 0; round < 3; round++)
		for (size_t i = 0; i < KEYS; i++)
			gives(ring, i);
	assert_int_equal(atomic_load(&shim->decrypts) - before, KEYS);
	assert_int_equal(naos_ring_count(ring), KEYS);
	naos_ring_free(ring);
}

static void the_least_recently_used_goes_first(void **state)
{
	struct naos_ring *ring = make_ring(3, 600);
	gives(ring, 0);
	gives(ring, 1);
	gives(ring, 2);
	gives(ring, 0); /* now 1 is the oldest */
	gives(ring, 3);
	assert_int_equal(naos_ring_count(ring), 3);
	int before = atomic_load(&shim->decrypts);
	gives(ring, 0);
	gives(ring, 2);
	gives(ring, 3);
	assert_int_equal(atomic_load(&shim->decrypts), before);
	gives(ring, 1);
	assert_int_equal(atomic_load(&shim->decrypts), before + 1);
	naos_ring_free(ring);
}

static void nothing_is_kept_where_nothing_may_be(void **state)
{
	struct naos_ring *ring = make_ring(0, 600), *aging = make_ring(KEYS, 0);
	gives(ring, 0);
	assert_int_equal(naos_ring_count(ring), 0);
	gives(aging, 0);
	naos_ring_expire(aging);
	assert_int_equal(naos_ring_count(aging), 0);
	naos_ring_free(ring);
	naos_ring_free(aging);
}

static void age_counts_from_the_last_use(void **state)
{
	struct naos_ring *ring = make_ring(KEYS, 1);
	gives(ring, 0);
	gives(ring, 1);
	(void)usleep(600000);
	gives(ring, 0);
	(void)usleep(600000);
	int before = atomic_load(&shim->decrypts);
	naos_ring_expire(ring);
	assert_int_equal(naos_ring_count(ring), 1);
	gives(ring, 1); /* too old, so unwrapped anew */
	assert_int_equal(atomic_load(&shim->decrypts), before + 1);
	naos_ring_free(ring);
}

static void expired_keys_are_wiped(void **state)
{
	size_t used_before, used_after, locked;
	struct naos_ring *ring = make_ring(KEYS, 600);
	naos_secret_usage(&used_before, &locked);
	for (size_t i = 0; i < KEYS; i++)
		gives(ring, i);
	naos_secret_usage(&used_after, &locked);
	assert_int_equal(used_after - used_before, KEYS * 32);
	naos_ring_clear(ring);
	naos_secret_usage(&used_after, &locked);
	assert_int_equal(used_after, used_before);
	naos_ring_free(ring);
}

static void another_blob_of_the_same_object_is_unwrapped_anew(void **state)
{
	struct naos_ring *ring = make_ring(KEYS, 600);
	naos_autosecret struct naos_secret *key = NULL;
	struct naos_blob damaged = blobs[0];
	gives(ring, 0);
	damaged.tag[3] ^= 4;
	assert_code(naos_ring_get(ring, &contexts[0], &damaged, &key, &err), NAOS_E_INTEGRITY);
	struct naos_wrap_context other = contexts[0];
	other.object_id.bytes[0] ^= 1;
	assert_code(naos_ring_get(ring, &other, &blobs[0], &key, &err), NAOS_E_INTEGRITY);
	assert_null(key);
	assert_int_equal(naos_ring_count(ring), 1); /* failures are not kept */
	naos_ring_free(ring);
}

struct crowd {
	struct naos_ring *ring;
	const struct naos_blob *blob;
	atomic_int failures;
};

static void *ask(void *argument)
{
	struct crowd *crowd = argument;
	struct naos_error error = NAOS_ERROR_INIT;
	struct naos_secret *key = NULL;
	int rc = naos_ring_get(crowd->ring, &contexts[5], crowd->blob, &key, &error);
	if (rc != 0 || !naos_secret_equal(key, naos_secret_view(secrets[5]), 32))
		(void)atomic_fetch_add(&crowd->failures, rc == NAOS_E_INTEGRITY && strstr(error.message, "damaged") ? 1 : 100);
	naos_secret_free(key);
	return NULL;
}

static int crowd_asks(struct naos_ring *ring, const struct naos_blob *blob)
{
	pthread_t threads[8];
	struct crowd crowd = { .ring = ring, .blob = blob };
	for (size_t i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, ask, &crowd), 0);
	for (size_t i = 0; i < 8; i++)
		(void)pthread_join(threads[i], NULL);
	return atomic_load(&crowd.failures);
}

static void threads_that_want_the_same_key_cause_one_unwrap(void **state)
{
	struct naos_ring *ring = make_ring(KEYS, 600);
	atomic_store(&shim->decrypt_delay_us, 100000);
	int before = atomic_load(&shim->decrypts);
	assert_int_equal(crowd_asks(ring, &blobs[5]), 0);
	assert_int_equal(atomic_load(&shim->decrypts) - before, 1);
	struct naos_blob damaged = blobs[5];
	damaged.tag[0] ^= 1;
	assert_int_equal(crowd_asks(ring, &damaged), 8); /* all of them hear why */
	atomic_store(&shim->decrypt_delay_us, 0);
	naos_ring_free(ring);
}

static void a_ring_that_keeps_nothing_still_serves_a_crowd(void **state)
{
	struct naos_ring *ring = make_ring(0, 600);
	atomic_store(&shim->decrypt_delay_us, 50000);
	assert_int_equal(crowd_asks(ring, &blobs[5]), 0);
	atomic_store(&shim->decrypt_delay_us, 0);
	naos_ring_free(ring);
}

static void prefetch_fills_and_leaves_failures_for_later(void **state)
{
	struct naos_ring *ring = make_ring(KEYS, 600);
	naos_autosecret struct naos_secret *key = NULL;
	struct naos_blob mixed[KEYS];
	memcpy(mixed, blobs, sizeof(mixed));
	mixed[7].tag[0] ^= 1;
	gives(ring, 0);
	naos_ring_prefetch(ring, contexts, mixed, KEYS);
	assert_int_equal(naos_ring_count(ring), KEYS - 1);
	int before = atomic_load(&shim->decrypts);
	for (size_t i = 0; i < KEYS; i++)
		if (i != 7)
			gives(ring, i);
	assert_int_equal(atomic_load(&shim->decrypts), before);
	assert_code(naos_ring_get(ring, &contexts[7], &mixed[7], &key, &err), NAOS_E_INTEGRITY);
	naos_ring_free(ring);
}

static void a_key_put_in_is_found(void **state)
{
	struct naos_ring *ring = make_ring(KEYS, 600);
	int before = atomic_load(&shim->decrypts);
	assert_ok(naos_ring_put(ring, &contexts[1], &blobs[1], secrets[1], &err), &err);
	assert_ok(naos_ring_put(ring, &contexts[1], &blobs[1], secrets[1], &err), &err);
	gives(ring, 1);
	assert_int_equal(atomic_load(&shim->decrypts), before);
	assert_int_equal(naos_ring_count(ring), 1);
	naos_ring_free(ring);
}

static void keys_in_the_ring_go_on_while_the_token_is_away(void **state)
{
	struct naos_ring *ring = make_ring(KEYS, 600);
	naos_autosecret struct naos_secret *key = NULL;
	gives(ring, 2);
	atomic_store(&shim->decrypt.rv, 0x32); /* CKR_DEVICE_REMOVED */
	atomic_store(&shim->decrypt.count, 1000);
	gives(ring, 2);
	assert_code(naos_ring_get(ring, &contexts[3], &blobs[3], &key, &err), NAOS_E_KEYMANAGER);
	atomic_store(&shim->decrypt.count, 0);
	gives(ring, 3);
	naos_ring_free(ring);
}

static void a_child_gets_no_key_of_zeros(void **state)
{
	struct naos_ring *ring = make_ring(KEYS, 600);
	gives(ring, 4);
	pid_t child = fork();
	if (child == 0) {
		struct naos_secret *key = NULL;
		int rc = naos_ring_get(ring, &contexts[4], &blobs[4], &key, &err);
		_exit(rc == NAOS_E_UNSUPPORTED && !key && strstr(err.message, "forked") && naos_ring_count(ring) == 0 ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	naos_ring_free(ring);
}

static int set_up(void **state)
{
	struct naos_mek mek;
	soft_token_make(&token);
	shim = shim_token(&token);
	assert_ok(naos_provider_open(token.uri, token.store, &provider, &err), &err);
	assert_ok(naos_mek_create(provider, "ring", &mek, &err), &err);
	for (size_t i = 0; i < KEYS; i++) {
		struct naos_wrap_item item = { .context = { .kind = NAOS_WRAP_FILE, .object_id = { { (uint8_t)(i + 1) } } } };
		assert_ok(naos_secret_random(32, &secrets[i], &err), &err);
		item.key = secrets[i];
		assert_ok(naos_keys_wrap(provider, "ring", &item, 1, &err), &err);
		contexts[i] = item.context;
		blobs[i] = item.blob;
	}
	return 0;
}

static int tear_down(void **state)
{
	for (size_t i = 0; i < KEYS; i++)
		naos_secret_free(secrets[i]);
	naos_provider_close(provider);
	soft_token_remove(&token);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_key_is_unwrapped_once),
		cmocka_unit_test(the_least_recently_used_goes_first),
		cmocka_unit_test(nothing_is_kept_where_nothing_may_be),
		cmocka_unit_test(age_counts_from_the_last_use),
		cmocka_unit_test(expired_keys_are_wiped),
		cmocka_unit_test(another_blob_of_the_same_object_is_unwrapped_anew),
		cmocka_unit_test(threads_that_want_the_same_key_cause_one_unwrap),
		cmocka_unit_test(a_ring_that_keeps_nothing_still_serves_a_crowd),
		cmocka_unit_test(prefetch_fills_and_leaves_failures_for_later),
		cmocka_unit_test(a_key_put_in_is_found),
		cmocka_unit_test(keys_in_the_ring_go_on_while_the_token_is_away),
		cmocka_unit_test(a_child_gets_no_key_of_zeros),
	};
	if (!soft_is_installed()) {
		(void)puts("skipped: SoftHSM 2 is not installed");
		return 77;
	}
	return cmocka_run_group_tests(tests, set_up, tear_down);
}

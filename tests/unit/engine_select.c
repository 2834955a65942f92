/* Which back end is used and that a wrong one is refused; keys: who may use them, and that a fork ends them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine_helper.h"

#include <pthread.h>
#include <sys/wait.h>

static const uint8_t raw[32] = { 9, 8, 7, 6, 5, 4, 3, 2, 1 };
static const uint8_t nonce[NAOS_GCM_NONCE_BYTES] = "a dozen byte";

static void names_choose(void **state)
{
	assert_ok(naos_engine_select("openssl", false, &err), &err);
	assert_string_equal(naos_engine_name(), "openssl");
	assert_code(naos_engine_select("abacus", false, &err), NAOS_E_UNSUPPORTED);
	assert_non_null(strstr(err.message, "abacus"));
	assert_string_equal(naos_engine_name(), "openssl"); /* a failure changes nothing */
	assert_ok(naos_engine_select("auto", false, &err), &err);
	assert_string_equal(naos_engine_name(), rows[0]->name);
	for (size_t i = 0; i < row_count; i++) {
		assert_ok(naos_engine_select(rows[i]->name, rows[i]->fips, &err), &err);
		assert_string_equal(naos_engine_name(), rows[i]->name);
	}
	assert_ok(naos_engine_select("auto", false, &err), &err);
	assert_string_equal(naos_algorithm_name(NAOS_AES_256_GCM), "aes-256-gcm");
	assert_null(naos_algorithm_name((enum naos_algorithm)3));
	enum naos_algorithm algorithm;
	assert_true(naos_algorithm_parse("aes-128-gcm", &algorithm) && algorithm == NAOS_AES_128_GCM);
	assert_false(naos_algorithm_parse("aes-192-gcm", &algorithm));
}

/* Where the FIPS provider is not installed the refusal says what to do; where it is, it is used. */
static void fips_is_used_or_refused_never_ignored(void **state)
{
	static const char *const names[] = { "auto", "openssl" };
	uint8_t drawn[NAOS_GCM_NONCE_BYTES];
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(names); i++) {
		assert_ok(naos_engine_select("auto", false, &err), &err);
		int rc = naos_engine_select(names[i], true, &err);
		if (rc == 0) {
			assert_string_equal(naos_engine_name(), "openssl fips");
			assert_non_null(naos_engine_library_context());
			assert_ok(naos_nonce_next(drawn, &err), &err);
		} else {
			assert_int_equal(rc, NAOS_E_UNSUPPORTED);
			assert_non_null(strstr(err.message, "fipsinstall"));
			assert_null(naos_engine_library_context());
		}
	}
	assert_code(naos_engine_select("ipsec-mb", true, &err), NAOS_E_UNSUPPORTED);
	assert_ok(naos_engine_select("auto", false, &err), &err);
}

/* Back ends that compute wrongly: each differs from a right one in one thing. */
static const struct naos_engine_backend *right;

static int seal_with_wrong_tag(const struct naos_gcm_key *key, const struct naos_gcm_message *messages, size_t count, struct naos_error *e)
{
	int rc = right->seal(key, messages, count, e);
	messages[count - 1].tag[15] ^= messages[count - 1].bytes > 4096; /* only after the widest loop */
	return rc;
}

static int seal_with_wrong_data(const struct naos_gcm_key *key, const struct naos_gcm_message *messages, size_t count, struct naos_error *e)
{
	int rc = right->seal(key, messages, count, e);
	if (messages->bytes)
		messages->out[messages->bytes - 1] ^= 1;
	return rc;
}

/* Wrong in the same way as seal_with_wrong_tag, so that it opens what that sealed. */
static int open_with_wrong_tag(const struct naos_gcm_key *key, struct naos_gcm_message *messages, size_t count, struct naos_error *e)
{
	struct naos_gcm_message copy = *messages;
	uint8_t tag[16];
	memcpy(tag, messages->tag, 16);
	tag[15] ^= messages->bytes > 4096;
	copy.tag = tag;
	int rc = right->open(key, &copy, count, e);
	messages->result = copy.result;
	return rc;
}

static int open_all(const struct naos_gcm_key *key, struct naos_gcm_message *messages, size_t count, struct naos_error *e)
{
	for (size_t i = 0; i < count; i++) {
		struct naos_gcm_message copy = messages[i];
		uint8_t tag[16];
		copy.tag = tag;
		if (right->seal(key, &copy, 1, e) != 0) /* counter mode: sealing opens */
			return NAOS_E_SYSTEM;
		naos_gcm_settle(&messages[i], true);
	}
	return 0;
}

static int update_wrongly(struct naos_gcm_stream *stream, const uint8_t *in, uint8_t *out, size_t bytes, struct naos_error *e)
{
	int rc = right->stream_update(stream, in, out, bytes, e);
	out[0] ^= 1;
	return rc;
}

static int match_always(struct naos_gcm_stream *stream, uint8_t *tag, bool *ret_matches, struct naos_error *e)
{
	int rc = right->stream_finish(stream, tag, ret_matches, e);
	*ret_matches = true;
	return rc;
}

static void a_wrong_back_end_is_refused(void **state)
{
	for (size_t i = 0; i < row_count; i++) {
		right = rows[i];
		struct naos_engine_backend wrong[6] = { *right, *right, *right, *right, *right, *right }, same = *right;
		wrong[0].seal = seal_with_wrong_tag;
		wrong[1].seal = seal_with_wrong_data;
		wrong[2].open = open_all;
		wrong[3].stream_update = update_wrongly;
		wrong[4].stream_finish = match_always;
		wrong[5].seal = seal_with_wrong_tag;
		wrong[5].open = open_with_wrong_tag;
		assert_ok(naos_engine_selftest(&same, &err), &err);
		for (size_t w = 0; w < NAOS_ARRAY_LENGTH(wrong); w++) {
			assert_code(naos_engine_selftest(&wrong[w], &err), NAOS_E_SELFTEST);
			assert_non_null(strstr(err.message, right->name));
		}
	}
}

static void wrong_keys_are_refused(void **state)
{
	struct naos_secret *secret;
	struct naos_gcm_key *key = NULL;
	uint8_t copy[32] = { 1 };
	assert_ok(naos_secret_take(copy, 16, &secret, &err), &err);
	assert_code(naos_gcm_key_create(NAOS_AES_256_GCM, secret, &key, &err), NAOS_E_USAGE);
	assert_code(naos_gcm_key_create((enum naos_algorithm)3, secret, &key, &err), NAOS_E_UNSUPPORTED);
	assert_code(naos_gcm_key_create(NAOS_AES_128_GCM, NULL, &key, &err), NAOS_E_USAGE);
	assert_null(key);
	assert_ok(naos_gcm_key_create(NAOS_AES_128_GCM, secret, &key, &err), &err);
	assert_int_equal(naos_gcm_key_algorithm(key), NAOS_AES_128_GCM);
	naos_gcm_key_free(key);
	naos_secret_free(secret);
	assert_null(naos_gcm_key_free(NULL));
}

static void keys_leave_no_secret_memory_behind(void **state)
{
	size_t before, after, locked;
	for (size_t i = 0; i < row_count; i++) {
		naos_secret_usage(&before, &locked);
		struct naos_gcm_key *key = make_key(rows[i], NAOS_AES_256_GCM, raw);
		struct naos_gcm_stream *stream;
		assert_ok(naos_gcm_stream_create(key, true, nonce, NULL, 0, &stream, &err), &err);
		naos_secret_usage(&after, &locked);
		assert_true(after >= before + 32);
		naos_gcm_stream_free(stream); /* unfinished */
		naos_gcm_key_free(key);
		naos_secret_usage(&after, &locked);
		assert_int_equal(after, before);
	}
}

/* More threads than OpenSSL's back end keeps contexts, each sealing and opening its own data under one key. */
#define THREADS 24
static struct naos_gcm_key *shared_key;
static pthread_barrier_t barrier;

static void *use_shared_key(void *argument)
{
	uint64_t seed = (uint64_t)(uintptr_t)argument;
	struct naos_gcm_stream *stream;
	struct naos_error own;
	(void)pthread_barrier_wait(&barrier);
	for (int round = 0; round < 60; round++) {
		uint8_t plain[3000], data[3000], tag[16], stream_tag[16], own_nonce[12];
		size_t bytes = next_random(&seed) % sizeof(plain);
		fill_random(&seed, plain, bytes);
		fill_random(&seed, own_nonce, 12);
		struct naos_gcm_message m = { own_nonce, own_nonce, 7, plain, data, bytes, tag, 0 };
		if (naos_gcm_seal(shared_key, &m, &own) != 0 ||
		    naos_gcm_stream_create(shared_key, false, own_nonce, own_nonce, 7, &stream, &own) != 0)
			return argument;
		memcpy(stream_tag, tag, 16);
		uint8_t opened[3000];
		int rc = naos_gcm_stream_update(stream, data, opened, bytes, &own);
		rc = rc ? rc : naos_gcm_stream_finish(stream, stream_tag, &own);
		naos_gcm_stream_free(stream);
		m.in = m.out = data;
		if (rc != 0 || memcmp(opened, plain, bytes) != 0 || naos_gcm_open(shared_key, &m, &own) != 0 || memcmp(data, plain, bytes) != 0)
			return argument;
	}
	return NULL;
}

static void threads_share_a_key(void **state)
{
	for (size_t i = 0; i < row_count; i++) {
		pthread_t threads[THREADS];
		void *failed;
		size_t failures = 0;
		shared_key = make_key(rows[i], NAOS_AES_256_GCM, raw);
		assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
		for (uintptr_t t = 0; t < THREADS; t++)
			assert_int_equal(pthread_create(&threads[t], NULL, use_shared_key, (void *)(t + 1)), 0);
		for (size_t t = 0; t < THREADS; t++) {
			assert_int_equal(pthread_join(threads[t], &failed), 0);
			failures += failed != NULL;
		}
		assert_int_equal(failures, 0);
		assert_int_equal(pthread_barrier_destroy(&barrier), 0);
		naos_gcm_key_free(shared_key);
	}
}

/* All at once, then finished one after the other: OpenSSL's back end keeps some contexts and must free the rest. */
static void many_streams_share_a_key(void **state)
{
	for (size_t i = 0; i < row_count; i++) {
		struct naos_gcm_key *key = make_key(rows[i], NAOS_AES_256_GCM, raw);
		struct naos_gcm_stream *streams[3 * THREADS];
		uint8_t data[40] = { 0 }, tag[16], expected[16];
		struct naos_gcm_message m = { nonce, NULL, 0, data, data, 40, expected, 0 };
		for (int round = 0; round < 2; round++) {
			for (size_t s = 0; s < NAOS_ARRAY_LENGTH(streams); s++)
				assert_ok(naos_gcm_stream_create(key, true, nonce, NULL, 0, &streams[s], &err), &err);
			for (size_t s = 0; s < NAOS_ARRAY_LENGTH(streams); s++) {
				memset(data, 0, sizeof(data));
				assert_ok(naos_gcm_stream_update(streams[s], data, data, 40, &err), &err);
				assert_ok(naos_gcm_stream_finish(streams[s], tag, &err), &err);
				memset(data, 0, sizeof(data));
				assert_ok(naos_gcm_seal(key, &m, &err), &err);
				assert_memory_equal(tag, expected, 16);
			}
			for (size_t s = 0; s < NAOS_ARRAY_LENGTH(streams); s++)
				naos_gcm_stream_free(streams[s]);
		}
		naos_gcm_key_free(key);
	}
}

/* In a child the key schedule is zero; sealing under it would look right and protect nothing. */
static void a_forked_child_can_not_use_the_key(void **state)
{
	for (size_t i = 0; i < row_count; i++) {
		struct naos_gcm_key *key = make_key(rows[i], NAOS_AES_128_GCM, raw);
		struct naos_gcm_stream *stream, *another;
		uint8_t data[32] = { 0 }, tag[16];
		struct naos_gcm_message m = { nonce, NULL, 0, data, data, 32, tag, 0 };
		assert_ok(naos_gcm_seal(key, &m, &err), &err);
		assert_ok(naos_gcm_stream_create(key, true, nonce, NULL, 0, &stream, &err), &err);
		pid_t child = fork();
		if (child == 0) {
			int wrong = naos_gcm_seal(key, &m, NULL) != NAOS_E_NOKEY;
			wrong |= (naos_gcm_open(key, &m, NULL) != NAOS_E_NOKEY) << 1;
			wrong |= (naos_gcm_seal_many(key, &m, 1, NULL) != NAOS_E_NOKEY) << 2;
			wrong |= (naos_gcm_open_many(key, &m, 1, NULL) != NAOS_E_NOKEY) << 3;
			wrong |= (naos_gcm_stream_create(key, true, nonce, NULL, 0, &another, NULL) != NAOS_E_NOKEY) << 4;
			wrong |= (naos_gcm_stream_update(stream, data, data, 32, NULL) != NAOS_E_NOKEY) << 5;
			wrong |= (naos_gcm_stream_finish(stream, tag, NULL) != NAOS_E_NOKEY) << 6;
			naos_gcm_stream_free(stream);
			naos_gcm_key_free(key);
			_exit(wrong);
		}
		int status;
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
		assert_ok(naos_gcm_open(key, &m, &err), &err); /* the parent's is whole */
		assert_ok(naos_gcm_stream_finish(stream, tag, &err), &err);
		naos_gcm_stream_free(stream);
		naos_gcm_key_free(key);
	}
}

int main(void)
{
	/* before anything was chosen */
	if (strcmp(naos_engine_name(), "none") != 0)
		return 1;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_choose), cmocka_unit_test(fips_is_used_or_refused_never_ignored),
		cmocka_unit_test(a_wrong_back_end_is_refused), cmocka_unit_test(wrong_keys_are_refused),
		cmocka_unit_test(keys_leave_no_secret_memory_behind), cmocka_unit_test(threads_share_a_key),
		cmocka_unit_test(many_streams_share_a_key),
		cmocka_unit_test(a_forked_child_can_not_use_the_key),
	};
	return cmocka_run_group_tests_name("engine select", tests, start_rows, NULL);
}

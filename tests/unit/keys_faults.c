/* What tokens do differently, and what goes wrong with them: IVs, faults, sessions, PIN, fork, a directory that is away.
 * SPDX-License-Identifier: Apache-2.0 */
#include "token_world.h"

#include <pthread.h>

/* ---- IVs */

static void an_iv_that_the_hsm_appends_is_stored(void **state)
{
	struct naos_mek mek;
	struct naos_wrap_item item;
	atomic_store(&shim->luna, true);
	naos_autoprovider struct naos_provider *provider = open_with_key(&mek);
	assert_ok(wrap(provider, &item), &err);
	assert_int_equal(item.blob.iv_bytes, 16);
	assert_ok(unwrap(provider, &item), &err);
	atomic_store(&shim->luna, false);
	assert_ok(unwrap(provider, &item), &err);
}

static void an_iv_that_the_hsm_writes_over_ours_is_stored(void **state)
{
	struct naos_mek mek;
	struct naos_wrap_item item;
	atomic_store(&shim->writes_iv, true);
	naos_autoprovider struct naos_provider *provider = open_with_key(&mek);
	assert_ok(wrap(provider, &item), &err);
	assert_int_equal(item.blob.iv_bytes, 12);
	assert_ok(unwrap(provider, &item), &err);
}

static void a_wrapped_key_is_bound_also_without_associated_data(void **state)
{
	struct naos_mek mek;
	struct naos_wrap_item item;
	atomic_store(&shim->drops_associated, true);
	naos_autoprovider struct naos_provider *provider = open_with_key(&mek);
	assert_ok(wrap(provider, &item), &err);
	assert_ok(unwrap(provider, &item), &err);
	item.context.object_id.bytes[0] ^= 1;
	assert_code(unwrap(provider, &item), NAOS_E_INTEGRITY);
	message_has("belongs to another object");
}

/* ---- faults and damage */

static void a_fault_that_passes_is_not_damage(void **state)
{
	struct naos_mek mek;
	struct naos_wrap_item item;
	naos_autoprovider struct naos_provider *provider = open_with_key(&mek);
	assert_ok(wrap(provider, &item), &err);
	fault(&shim->decrypt, CKR_GENERAL_ERROR, 1);
	assert_ok(unwrap(provider, &item), &err);
	fault(&shim->decrypt, CKR_DEVICE_ERROR, 1);
	assert_ok(unwrap(provider, &item), &err);
	(void)usleep(150000); /* a token that fails again at once is not connected again at once */
	fault(&shim->encrypt, CKR_DEVICE_REMOVED, 1);
	assert_ok(wrap(provider, &item), &err);
}

static void a_token_that_fails_is_not_damage_and_comes_back(void **state)
{
	struct naos_mek mek;
	struct naos_wrap_item item, other;
	naos_autoprovider struct naos_provider *provider = open_with_key(&mek);
	assert_ok(wrap(provider, &item), &err);
	fault(&shim->decrypt, CKR_GENERAL_ERROR, 10000);
	assert_code(unwrap(provider, &item), NAOS_E_KEYMANAGER);
	message_has("CKR_GENERAL_ERROR (0x5)");
	assert_code(unwrap(provider, &item), NAOS_E_KEYMANAGER);
	fault(&shim->decrypt, 0, 0);
	assert_ok(unwrap(provider, &item), &err);
	fault(&shim->encrypt, CKR_FUNCTION_FAILED, 10000);
	assert_code(wrap(provider, &other), NAOS_E_KEYMANAGER);
	fault(&shim->encrypt, 0, 0);
	assert_ok(wrap(provider, &other), &err);
	assert_ok(unwrap(provider, &other), &err);
}

static void a_token_that_refuses_the_login_again_is_reached_later(void **state)
{
	struct naos_mek mek;
	struct naos_wrap_item item;
	naos_autoprovider struct naos_provider *provider = open_with_key(&mek);
	assert_ok(wrap(provider, &item), &err);
	fault(&shim->decrypt, CKR_SESSION_HANDLE_INVALID, 1);
	fault(&shim->open_session, CKR_DEVICE_REMOVED, 10000);
	assert_code(unwrap(provider, &item), NAOS_E_KEYMANAGER);
	int logins = atomic_load(&shim->logins);
	for (int i = 0; i < 50; i++) /* no storm of attempts */
		assert_code(unwrap(provider, &item), NAOS_E_KEYMANAGER);
	assert_true(atomic_load(&shim->logins) <= logins + 2);
	fault(&shim->open_session, 0, 0);
	(void)usleep(1100000); /* attempts are a second apart */
	assert_ok(unwrap(provider, &item), &err);
}

static void failed_operations_leave_no_session_behind(void **state)
{
	struct naos_mek mek;
	struct naos_wrap_item item;
	naos_autoprovider struct naos_provider *provider = open_with_key(&mek);
	assert_ok(wrap(provider, &item), &err);
	struct naos_wrap_item damaged = item;
	damaged.blob.tag[0] ^= 1;
	for (int i = 0; i < 100; i++) {
		assert_code(unwrap(provider, &damaged), NAOS_E_INTEGRITY);
		fault(&shim->encrypt, CKR_HOST_MEMORY, 1); /* the operation stays active in its session */
		(void)wrap(provider, &item);
		assert_ok(wrap(provider, &item), &err);
	}
	assert_true(atomic_load(&shim->sessions) <= 3);
}

static void the_known_answer_costs_no_encryption(void **state)
{
	struct naos_mek mek;
	struct naos_wrap_item item;
	naos_autoprovider struct naos_provider *provider = open_with_key(&mek);
	assert_ok(wrap(provider, &item), &err);
	item.blob.tag[0] ^= 1;
	int before = atomic_load(&shim->encrypts);
	for (int i = 0; i < 10; i++)
		assert_code(unwrap(provider, &item), NAOS_E_INTEGRITY);
	assert_int_equal(atomic_load(&shim->encrypts), before); /* each would count against the limit of the key */
}

/* ---- sessions */

struct crowd {
	struct naos_provider *provider;
	int rounds;
	atomic_int failures;
	struct naos_error error; /* of one of them */
};

static void *work(void *argument)
{
	struct crowd *crowd = argument;
	for (int i = 0; i < crowd->rounds; i++) {
		struct naos_error error = NAOS_ERROR_INIT;
		struct naos_wrap_item item = { .context = { .kind = NAOS_WRAP_FILE, .object_id = { { (uint8_t)i } } }, .key = key };
		int rc = naos_keys_wrap(crowd->provider, name, &item, 1, &error);
		if (rc == 0)
			rc = naos_keys_unwrap(crowd->provider, &item, 1, &error);
		if (rc != 0 || !naos_secret_equal(item.unwrapped, naos_secret_view(key), naos_secret_bytes(key))) {
			if (atomic_fetch_add(&crowd->failures, 1) == 0)
				crowd->error = error;
		}
		naos_secret_free(item.unwrapped);
	}
	return NULL;
}

static void start(pthread_t threads[static 8], struct crowd *crowd)
{
	for (size_t i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work, crowd), 0);
}

static void join(pthread_t threads[static 8], struct crowd *crowd)
{
	for (size_t i = 0; i < 8; i++)
		(void)pthread_join(threads[i], NULL);
	if (atomic_load(&crowd->failures) != 0)
		fail_msg("%d failures, one of them: %s", atomic_load(&crowd->failures), crowd->error.message);
}

static void threads_share_a_token_with_few_sessions(void **state)
{
	struct naos_mek mek;
	pthread_t threads[8];
	naos_autoprovider struct naos_provider *provider = open_with_key(&mek);
	struct crowd crowd = { .provider = provider, .rounds = 200 };
	struct naos_wrap_item item;
	assert_ok(wrap(provider, &item), &err);
	atomic_store(&shim->max_sessions, 3); /* the anchor and two */
	start(threads, &crowd);
	join(threads, &crowd);
	assert_true(atomic_load(&shim->sessions) <= 3);
}

static void a_token_without_a_session_left_says_so(void **state)
{
	struct naos_mek mek;
	struct naos_wrap_item item;
	naos_autoprovider struct naos_provider *provider = open_with_key(&mek);
	struct naos_provider *second = NULL;
	/* close the pool's session, so that one is needed */
	fault(&shim->encrypt, CKR_DEVICE_ERROR, 1);
	assert_ok(wrap(provider, &item), &err);
	item.blob.tag[0] ^= 1;
	atomic_store(&shim->max_sessions, 1);
	(void)unwrap(provider, &item);
	assert_code(wrap(provider, &item), NAOS_E_KEYMANAGER);
	message_has("CKR_SESSION_COUNT");
	assert_int_not_equal(naos_provider_open(token.uri, token.store, &second, &err), 0);
	message_has("CKR_SESSION_COUNT");
	atomic_store(&shim->max_sessions, 0);
	(void)usleep(1100000);
	assert_ok(wrap(provider, &item), &err);
	assert_ok(unwrap(provider, &item), &err);
}

static void threads_go_on_while_keys_are_made(void **state)
{
	struct naos_mek mek;
	pthread_t threads[8];
	naos_autoprovider struct naos_provider *provider = open_with_key(&mek);
	struct crowd crowd = { .provider = provider, .rounds = 1500 };
	int before = atomic_load(&shim->initializes);
	start(threads, &crowd);
	for (int i = 0; i < 12; i++)
		assert_ok(naos_mek_rotate(provider, name, &mek, &err), &err);
	join(threads, &crowd);
	assert_true(atomic_load(&shim->initializes) >= before + 12); /* each creation looked with fresh eyes */
	assert_false(atomic_load(&shim->overlapped));
	assert_false(atomic_load(&shim->finalized_under_use));
	assert_false(atomic_load(&shim->wrote_attribute));
}

static void *create_some(void *argument)
{
	struct naos_provider *provider = argument;
	struct naos_error error = NAOS_ERROR_INIT;
	for (int i = 0; i < 4; i++) {
		char own[48];
		struct naos_mek mek;
		(void)snprintf(own, sizeof(own), "%s-t%lx-%d", name, (unsigned long)pthread_self(), i);
		if (naos_mek_create(provider, own, &mek, &error) != 0)
			return strdup(error.message);
	}
	return NULL;
}

static void keys_made_by_many_threads_and_providers_are_all_there(void **state)
{
	struct naos_mek mek, *all = NULL;
	size_t count, found = 0;
	pthread_t threads[6];
	naos_autoprovider struct naos_provider *one = open_with_key(&mek), *two = open_provider();
	for (size_t i = 0; i < 6; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, create_some, i % 2 ? one : two), 0);
	for (size_t i = 0; i < 6; i++) {
		void *failure;
		(void)pthread_join(threads[i], &failure);
		if (failure)
			fail_msg("%s", (char *)failure);
	}
	assert_false(atomic_load(&shim->overlapped));
	assert_ok(naos_mek_list(one, &all, &count, &err), &err);
	for (size_t i = 0; i < count; i++) {
		struct naos_wrap_item item = { .context = { .kind = NAOS_WRAP_FILE }, .key = key };
		if (strncmp(all[i].name, name, strlen(name)) != 0 || all[i].name[strlen(name)] != '-')
			continue;
		found++;
		assert_ok(naos_keys_wrap(one, all[i].name, &item, 1, &err), &err);
		assert_ok(unwrap(two, &item), &err);
	}
	assert_int_equal(found, 24);
	free(all);
}

/* ---- PIN */

static int open_with_pin(const char *pin, const char *source)
{
	struct naos_provider *provider = NULL;
	char uri[600], path[160];
	(void)snprintf(path, sizeof(path), "%s/other-pin", token.dir);
	soft_write(path, pin);
	(void)snprintf(uri, sizeof(uri), "pkcs11:token=unit?module-path=%s&pin-source=%s", token.module, source ? source : "");
	if (!source)
		(void)snprintf(uri, sizeof(uri), "pkcs11:token=unit?module-path=%s&pin-source=file:%s", token.module, path);
	int rc = naos_provider_open(uri, token.store, &provider, &err);
	naos_provider_close(provider);
	return rc;
}

static void a_wrong_pin_is_tried_once_and_never_shown(void **state)
{
	int logins = atomic_load(&shim->logins);
	assert_code(open_with_pin("wr0ng-Pin-76543210\n", NULL), NAOS_E_PIN);
	assert_int_equal(atomic_load(&shim->logins), logins + 1);
	assert_null(strstr(err.message, "wr0ng"));
	message_has("CKR_PIN_INCORRECT");
	assert_code(open_with_pin(SOFT_PIN "\n", NULL), 0);
	assert_code(open_with_pin("", NULL), NAOS_E_PIN);
	assert_code(open_with_pin("", "file:/nowhere/pin"), NAOS_E_PIN);
	assert_code(open_with_pin("", "fd:99999"), NAOS_E_PIN);
	assert_code(open_with_pin("", SOFT_PIN), NAOS_E_PIN); /* in the wrong place: not repeated */
	assert_null(strstr(err.message, SOFT_PIN));
}

static void the_last_try_is_left_to_a_person(void **state)
{
	int logins = atomic_load(&shim->logins);
	atomic_store(&shim->final_try, true);
	assert_code(open_with_pin(SOFT_PIN "\n", NULL), NAOS_E_PIN);
	message_has("next wrong PIN");
	assert_int_equal(atomic_load(&shim->logins), logins);
}

static void a_pin_refused_later_is_not_tried_again(void **state)
{
	struct naos_mek mek;
	struct naos_wrap_item item;
	naos_autoprovider struct naos_provider *provider = open_with_key(&mek);
	assert_ok(wrap(provider, &item), &err);
	int logins = atomic_load(&shim->logins);
	fault(&shim->login, CKR_PIN_INCORRECT, 1);
	fault(&shim->decrypt, CKR_DEVICE_REMOVED, 1);
	(void)unwrap(provider, &item);
	(void)usleep(1100000);
	assert_code(unwrap(provider, &item), NAOS_E_PIN);
	assert_int_equal(atomic_load(&shim->logins), logins + 1);
}

/* ---- fork */

static void a_child_is_told_to_open_again(void **state)
{
	struct naos_mek mek, *list = NULL;
	struct naos_wrap_item item;
	size_t count;
	naos_autoprovider struct naos_provider *provider = open_with_key(&mek);
	assert_ok(wrap(provider, &item), &err);
	pid_t child = fork();
	if (child == 0) {
		struct naos_provider *second = NULL;
		bool right = wrap(provider, &item) == NAOS_E_UNSUPPORTED && strstr(err.message, "after the last fork") &&
			     naos_mek_list(provider, &list, &count, &err) == NAOS_E_UNSUPPORTED &&
			     naos_mek_rotate(provider, name, &mek, &err) == NAOS_E_UNSUPPORTED &&
			     naos_provider_open(token.uri, token.store, &second, &err) == NAOS_E_UNSUPPORTED;
		naos_provider_close(provider); /* must not end the parent's session */
		_exit(right ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_ok(unwrap(provider, &item), &err);
	assert_ok(naos_mek_rotate(provider, name, &mek, &err), &err);
}

/* ---- the token's directory */

static void a_token_that_is_away_is_an_error_until_it_is_back(void **state)
{
	struct naos_mek mek, next;
	struct naos_wrap_item item;
	struct naos_provider *provider = open_with_key(&mek), *second = NULL;
	char away[300];
	assert_ok(wrap(provider, &item), &err);
	assert_ok(naos_mek_rotate(provider, name, &next, &err), &err);
	assert_ok(unwrap(provider, &item), &err);
	struct naos_provider *fresh = open_provider(); /* has used no key yet */
	(void)snprintf(away, sizeof(away), "%s/away", token.dir); /* not below tokens: SoftHSM takes any name there */
	assert_int_equal(rename(token.objects, away), 0);
	struct naos_mek unmade;
	assert_code(naos_mek_create(provider, "away", &unmade, &err), NAOS_E_KEYMANAGER);
	assert_ok(unwrap(provider, &item), &err); /* a key in use goes on */
	assert_code(unwrap(fresh, &item), NAOS_E_KEYMANAGER);
	assert_int_equal(rename(away, token.objects), 0);
	(void)usleep(1100000);
	assert_ok(unwrap(fresh, &item), &err);
	assert_ok(wrap(fresh, &item), &err);
	assert_ok(naos_mek_create(fresh, "away", &unmade, &err), &err);
	naos_provider_close(provider);
	naos_provider_close(fresh);

	assert_int_equal(rename(token.objects, away), 0);
	assert_code(naos_provider_open(token.uri, token.store, &second, &err), NAOS_E_KEYMANAGER);
	message_has("no token 'unit'");
	assert_int_equal(rename(away, token.objects), 0);
	provider = open_provider();
	assert_ok(unwrap(provider, &item), &err);
	naos_provider_close(provider);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_iv_that_the_hsm_appends_is_stored),
		TEST(an_iv_that_the_hsm_writes_over_ours_is_stored),
		TEST(a_wrapped_key_is_bound_also_without_associated_data),
		TEST(a_fault_that_passes_is_not_damage),
		TEST(a_token_that_fails_is_not_damage_and_comes_back),
		TEST(a_token_that_refuses_the_login_again_is_reached_later),
		TEST(failed_operations_leave_no_session_behind),
		TEST(the_known_answer_costs_no_encryption),
		TEST(threads_share_a_token_with_few_sessions),
		TEST(a_token_without_a_session_left_says_so),
		TEST(threads_go_on_while_keys_are_made),
		TEST(keys_made_by_many_threads_and_providers_are_all_there),
		TEST(a_wrong_pin_is_tried_once_and_never_shown),
		TEST(the_last_try_is_left_to_a_person),
		TEST(a_pin_refused_later_is_not_tried_again),
		TEST(a_child_is_told_to_open_again),
		TEST(a_token_that_is_away_is_an_error_until_it_is_back),
	};
	if (!soft_is_installed()) {
		(void)puts("skipped: SoftHSM 2 is not installed");
		return 77;
	}
	return cmocka_run_group_tests(tests, set_up, tear_down);
}

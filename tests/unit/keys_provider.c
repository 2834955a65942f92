/* Keys in a real SoftHSM token: life of a key, wrapping bound to its object, counted uses.  SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "softhsm.h"

#include <sqlite3.h>

#include "keys/provider.h"

static struct naos_error err;
static struct soft_token token;

static struct naos_provider *open_provider(void)
{
	struct naos_provider *provider = NULL;
	assert_ok(naos_provider_open(token.uri, token.store, &provider, &err), &err);
	return provider;
}

static struct naos_mek make_key(struct naos_provider *provider, const char *name)
{
	struct naos_mek mek;
	assert_ok(naos_mek_create(provider, name, &mek, &err), &err);
	return mek;
}

static struct naos_secret *random_key(size_t bytes)
{
	struct naos_secret *key = NULL;
	assert_ok(naos_secret_random(bytes, &key, &err), &err);
	return key;
}

static struct naos_wrap_item wrap(struct naos_provider *provider, const char *name, const struct naos_secret *key)
{
	struct naos_wrap_item item = { .context = { .kind = NAOS_WRAP_FILE, .group_id = { { 1, 2 } }, .object_id = { { 3, 4 } } }, .key = key };
	assert_ok(naos_keys_wrap(provider, name, &item, 1, &err), &err);
	return item;
}

static void unwraps_to(struct naos_provider *provider, const struct naos_wrap_item *wrapped, const struct naos_secret *key)
{
	struct naos_wrap_item item = *wrapped;
	assert_ok(naos_keys_unwrap(provider, &item, 1, &err), &err);
	assert_true(naos_secret_equal(item.unwrapped, naos_secret_view(key), naos_secret_bytes(key)));
	naos_secret_free(item.unwrapped);
}

static int unwrap_code(struct naos_provider *provider, const struct naos_wrap_item *wrapped)
{
	struct naos_wrap_item item = *wrapped;
	int rc = naos_keys_unwrap(provider, &item, 1, &err);
	assert_int_equal(rc, item.result);
	if (rc == 0)
		naos_secret_free(item.unwrapped);
	else
		assert_null(item.unwrapped);
	return rc;
}

static void message_has(const char *text)
{
	if (!strstr(err.message, text))
		fail_msg("'%s' lacks '%s'", err.message, text);
}

static void keys_of_both_sizes_come_back(void **state)
{
	naos_autoprovider struct naos_provider *provider = open_provider();
	(void)make_key(provider, "both");
	for (size_t bytes = 16; bytes <= 32; bytes += 16) {
		naos_autosecret struct naos_secret *key = random_key(bytes);
		struct naos_wrap_item item = wrap(provider, "both", key);
		assert_int_equal(item.blob.ciphertext_bytes, bytes + 32);
		unwraps_to(provider, &item, key);
	}
	naos_autosecret struct naos_secret *odd = random_key(24);
	struct naos_wrap_item item = { .context = { .kind = NAOS_WRAP_FILE }, .key = odd };
	assert_code(naos_keys_wrap(provider, "both", &item, 1, &err), NAOS_E_LIMIT);
}

static void a_batch_goes_on_behind_a_failed_item(void **state)
{
	enum { COUNT = 100 };
	naos_autoprovider struct naos_provider *provider = open_provider();
	(void)make_key(provider, "batch");
	naos_autosecret struct naos_secret *key = random_key(32);
	struct naos_wrap_item items[COUNT];
	for (size_t i = 0; i < COUNT; i++)
		items[i] = (struct naos_wrap_item){ .context = { .kind = NAOS_WRAP_FILE, .object_id = { { (uint8_t)i } } }, .key = key };
	assert_ok(naos_keys_wrap(provider, "batch", items, COUNT, &err), &err);
	items[40].blob.tag[0] ^= 1;
	items[41].blob.mek_id.bytes[0] ^= 1;
	assert_code(naos_keys_unwrap(provider, items, COUNT, &err), NAOS_E_INTEGRITY);
	for (size_t i = 0; i < COUNT; i++) {
		assert_int_equal(items[i].result, i == 40 ? NAOS_E_INTEGRITY : i == 41 ? NAOS_E_NOKEY : 0);
		if (items[i].result == 0)
			assert_true(naos_secret_equal(items[i].unwrapped, naos_secret_view(key), 32));
		naos_secret_free(items[i].unwrapped);
	}
}

static void a_wrapped_key_opens_for_its_own_object_only(void **state)
{
	naos_autoprovider struct naos_provider *provider = open_provider();
	struct naos_mek mek;
	(void)make_key(provider, "bound");
	naos_autosecret struct naos_secret *key = random_key(32);
	struct naos_wrap_item right = wrap(provider, "bound", key), wrong = right;
	assert_ok(naos_mek_rotate(provider, "bound", &mek, &err), &err);
	assert_int_equal(mek.version, 2);
	unwraps_to(provider, &right, key);
	wrong.context.kind = NAOS_WRAP_FRAME_HEADER;
	assert_code(unwrap_code(provider, &wrong), NAOS_E_INTEGRITY);
	wrong = right;
	wrong.context.group_id.bytes[15] ^= 1;
	assert_code(unwrap_code(provider, &wrong), NAOS_E_INTEGRITY);
	wrong = right;
	wrong.context.object_id.bytes[0] ^= 1;
	assert_code(unwrap_code(provider, &wrong), NAOS_E_INTEGRITY);
	wrong = right;
	wrong.blob.mek_version = 2; /* exists, but did not wrap it */
	assert_code(unwrap_code(provider, &wrong), NAOS_E_INTEGRITY);
	wrong.blob.mek_version = 3;
	assert_code(unwrap_code(provider, &wrong), NAOS_E_NOKEY);
	unwraps_to(provider, &right, key);
}

static void any_flipped_bit_of_a_blob_is_an_error(void **state)
{
	naos_autoprovider struct naos_provider *provider = open_provider();
	(void)make_key(provider, "bits");
	naos_autosecret struct naos_secret *key = random_key(32);
	struct naos_wrap_item item = wrap(provider, "bits", key);
	uint8_t bytes[NAOS_BLOB_MAX_BYTES];
	struct naos_cursor out = naos_cursor_writer(bytes, sizeof(bytes));
	naos_blob_encode(&item.blob, &out);
	for (size_t bit = 0; bit < 8 * out.position; bit++) {
		struct naos_wrap_item damaged = item;
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		struct naos_cursor in = naos_cursor_reader(bytes, out.position);
		int rc = naos_blob_decode(&in, &damaged.blob, &err);
		if (rc == 0)
			rc = unwrap_code(provider, &damaged);
		if (rc != NAOS_E_FORMAT && rc != NAOS_E_INTEGRITY && rc != NAOS_E_NOKEY)
			fail_msg("bit %zu: code %d: %s", bit, rc, err.message);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	unwraps_to(provider, &item, key);
}

static void a_key_lives_by_its_states(void **state)
{
	naos_autoprovider struct naos_provider *provider = open_provider();
	naos_autosecret struct naos_secret *key = random_key(32);
	struct naos_mek mek = make_key(provider, "life");
	struct naos_wrap_item first = wrap(provider, "life", key), second = { .key = key, .context = first.context };
	assert_int_equal(mek.state, NAOS_MEK_ACTIVE);
	assert_code(naos_mek_destroy(provider, "life", 1, &err), NAOS_E_KEY_STATE); /* active */
	assert_ok(naos_mek_rotate(provider, "life", &mek, &err), &err);
	second = wrap(provider, "life", key);
	assert_int_equal(second.blob.mek_version, 2);
	unwraps_to(provider, &first, key); /* deactivated: still unwraps */
	assert_code(naos_mek_activate(provider, "life", 1, &err), NAOS_E_KEY_STATE);
	assert_ok(naos_mek_revoke(provider, "life", 0, &err), &err);
	assert_code(unwrap_code(provider, &second), NAOS_E_KEY_STATE);
	message_has("version 2 of the key 'life' is revoked");
	assert_code(naos_keys_wrap(provider, "life", &second, 1, &err), NAOS_E_KEY_STATE);
	assert_ok(naos_mek_activate(provider, "life", 2, &err), &err);
	unwraps_to(provider, &second, key);
	assert_ok(naos_mek_destroy(provider, "life", 1, &err), &err);
	assert_code(unwrap_code(provider, &first), NAOS_E_KEY_STATE);
	assert_code(naos_mek_revoke(provider, "life", 1, &err), NAOS_E_KEY_STATE);
	assert_code(naos_mek_destroy(provider, "life", 1, &err), NAOS_E_KEY_STATE);
	struct naos_mek *versions = NULL;
	size_t count = 0;
	assert_ok(naos_mek_find(provider, "life", &versions, &count, &err), &err);
	assert_int_equal(count, 2);
	assert_int_equal(versions[0].version, 2); /* newest first */
	assert_int_equal(versions[0].state, NAOS_MEK_ACTIVE);
	assert_int_equal(versions[1].state, NAOS_MEK_DESTROYED);
	free(versions);
}

static void names_are_checked(void **state)
{
	naos_autoprovider struct naos_provider *provider = open_provider();
	struct naos_mek mek;
	char longest[NAOS_MEK_NAME_BYTES + 1];
	static const char *const bad[] = { "", "-x", ".x", "a b", "a/b", "ä", "a'b" };
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(bad); i++)
		assert_code(naos_mek_create(provider, bad[i], &mek, &err), NAOS_E_USAGE);
	memset(longest, 'n', sizeof(longest));
	longest[NAOS_MEK_NAME_BYTES] = 0;
	assert_code(naos_mek_create(provider, longest, &mek, &err), NAOS_E_USAGE);
	longest[NAOS_MEK_NAME_BYTES - 1] = 0;
	assert_ok(naos_mek_create(provider, longest, &mek, &err), &err);
	assert_string_equal(mek.name, longest);
	assert_code(naos_mek_create(provider, longest, &mek, &err), NAOS_E_EXISTS);
	assert_code(naos_mek_rotate(provider, "nobody", &mek, &err), NAOS_E_NOKEY);
	assert_code(naos_mek_revoke(provider, longest, 9, &err), NAOS_E_NOKEY);
	/* a destroyed key's name is not given to another */
	assert_ok(naos_mek_revoke(provider, longest, 1, &err), &err);
	assert_ok(naos_mek_destroy(provider, longest, 1, &err), &err);
	assert_code(naos_mek_create(provider, longest, &mek, &err), NAOS_E_EXISTS);
	assert_code(naos_mek_rotate(provider, longest, &mek, &err), NAOS_E_KEY_STATE);
}

static uint64_t uses_of(struct naos_provider *provider, const char *name)
{
	struct naos_mek *versions = NULL;
	size_t count;
	assert_ok(naos_mek_find(provider, name, &versions, &count, &err), &err);
	uint64_t uses = versions[0].uses;
	free(versions);
	return uses;
}

static void set_uses(const char *name, uint64_t uses)
{
	sqlite3 *db;
	char sql[200];
	assert_int_equal(sqlite3_open(token.store, &db), SQLITE_OK);
	(void)snprintf(sql, sizeof(sql), "UPDATE mek SET uses = %llu WHERE name = '%s'", (unsigned long long)uses, name);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void uses_are_counted_ahead_and_given_back(void **state)
{
	struct naos_provider *provider = open_provider();
	naos_autosecret struct naos_secret *key = random_key(32);
	(void)make_key(provider, "uses");
	uint64_t before = uses_of(provider, "uses");
	assert_in_range(before, 1, 10); /* the known-answer test */
	for (uint64_t i = 1; i <= 300; i++) {
		(void)wrap(provider, "uses", key);
		assert_true(uses_of(provider, "uses") >= before + i); /* so a crash now counts enough */
	}
	provider = naos_provider_close(provider);
	provider = open_provider();
	assert_int_equal(uses_of(provider, "uses"), before + 300);
	naos_provider_close(provider);
}

static void a_killed_process_counts_enough(void **state)
{
	struct naos_provider *provider = open_provider();
	(void)make_key(provider, "killed");
	uint64_t before = uses_of(provider, "killed");
	naos_provider_close(provider);
	pid_t child = fork();
	if (child == 0) {
		naos_autosecret struct naos_secret *key = random_key(32);
		provider = open_provider();
		for (int i = 0; i < 123; i++)
			(void)wrap(provider, "killed", key);
		(void)kill(getpid(), SIGKILL);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	provider = open_provider();
	assert_true(uses_of(provider, "killed") >= before + 123);
	naos_provider_close(provider);
}

static void the_limit_of_uses_is_kept(void **state)
{
	struct naos_provider *provider = open_provider();
	naos_autosecret struct naos_secret *key = random_key(32);
	(void)make_key(provider, "limit");
	set_uses("limit", NAOS_MEK_MAX_USES - 3);
	struct naos_wrap_item item = { .context = { .kind = NAOS_WRAP_FILE }, .key = key };
	for (int i = 0; i < 3; i++)
		assert_ok(naos_keys_wrap(provider, "limit", &item, 1, &err), &err);
	assert_code(naos_keys_wrap(provider, "limit", &item, 1, &err), NAOS_E_KEY_USES);
	unwraps_to(provider, &item, key);
	struct naos_mek mek;
	assert_ok(naos_mek_rotate(provider, "limit", &mek, &err), &err);
	assert_ok(naos_keys_wrap(provider, "limit", &item, 1, &err), &err);
	naos_provider_close(provider);
}

static void another_process_is_heard_of(void **state)
{
	naos_autoprovider struct naos_provider *here = open_provider(), *there = open_provider();
	naos_autosecret struct naos_secret *key = random_key(32);
	(void)make_key(there, "shared");
	struct naos_wrap_item item = wrap(here, "shared", key); /* made elsewhere after this one was opened */
	unwraps_to(here, &item, key);
	assert_ok(naos_mek_revoke(there, "shared", 1, &err), &err);
	(void)usleep(300000); /* the promise is a quarter of a second */
	assert_code(unwrap_code(here, &item), NAOS_E_KEY_STATE);
	assert_ok(naos_mek_destroy(there, "shared", 1, &err), &err);
	(void)usleep(300000);
	assert_code(unwrap_code(here, &item), NAOS_E_KEY_STATE);
}

static void unknown_kinds_of_key_manager_say_what_exists(void **state)
{
	struct naos_provider *provider = NULL;
	assert_code(naos_provider_open("vault+https://secret:pw@host/transit", NULL, &provider, &err), NAOS_E_UNSUPPORTED);
	message_has("'vault+https:'; there is pkcs11:");
	assert_null(strstr(err.message, "secret"));
	assert_code(naos_provider_open("/dev/null", NULL, &provider, &err), NAOS_E_USAGE);
	assert_code(naos_provider_open("", NULL, &provider, &err), NAOS_E_CONFIG);
	assert_null(provider);
}

static int make_token(void **state)
{
	soft_token_make(&token);
	return 0;
}

static int remove_token(void **state)
{
	soft_token_remove(&token);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_of_both_sizes_come_back),
		cmocka_unit_test(a_batch_goes_on_behind_a_failed_item),
		cmocka_unit_test(a_wrapped_key_opens_for_its_own_object_only),
		cmocka_unit_test(any_flipped_bit_of_a_blob_is_an_error),
		cmocka_unit_test(a_key_lives_by_its_states),
		cmocka_unit_test(names_are_checked),
		cmocka_unit_test(uses_are_counted_ahead_and_given_back),
		cmocka_unit_test(a_killed_process_counts_enough),
		cmocka_unit_test(the_limit_of_uses_is_kept),
		cmocka_unit_test(another_process_is_heard_of),
		cmocka_unit_test(unknown_kinds_of_key_manager_say_what_exists),
	};
	if (!soft_is_installed()) {
		(void)puts("skipped: SoftHSM 2 is not installed");
		return 77;
	}
	return cmocka_run_group_tests(tests, make_token, remove_token);
}

/* Keys of file sets as a daemon needs them: kept ready, dropped when their MEK's version is, at hand for files just made.
 * SPDX-License-Identifier: Apache-2.0 */
#include "seal/fileset.h" /* before what gives globals short names */

#include <pthread.h>

#include "token_world.h"

static struct naos_provider *provider; /* another client of the same key manager */
static const struct naos_fileset *set;

static struct naos_filesets *open_again(void)
{
	struct naos_config *config = NULL;
	struct naos_filesets *sets = NULL;
	char text[1024];
	int bytes = snprintf(text, sizeof(text), "[keymanager]\nuri = %s\nstore = %s\n[fileset genomes]\nmek = %s\n", token.uri, token.store,
			     name);
	assert_ok(naos_config_parse(text, (size_t)bytes, "test", &config, &err), &err);
	assert_ok(naos_filesets_open(config, "genomes", NULL, &sets, &err), &err);
	assert_ok(naos_filesets_find(sets, "genomes", &set, &err), &err);
	naos_config_free(config);
	return sets;
}

static struct naos_filesets *open_sets(void)
{
	struct naos_mek mek;
	naos_provider_close(provider);
	provider = open_with_key(&mek);
	return open_again();
}

/* A file's wrapped key as its header holds it. */
static struct naos_sealed_info make_file(struct naos_filesets *sets)
{
	struct naos_new_key made;
	struct naos_sealed_info info = { .slots[1] = { .used = true } };
	assert_ok(naos_filesets_new_key(sets, set, &made, &err), &err);
	info.header.fileset_id = set->id;
	info.header.file_id = made.file_id;
	info.slots[1].blob = made.blob;
	(void)naos_secret_free(made.fek);
	return info;
}

static int open_file(struct naos_filesets *sets, const struct naos_sealed_info *info)
{
	struct naos_secret *fek = NULL;
	const struct naos_fek_source source = naos_filesets_source(sets, set, info);
	const struct naos_wrap_context context = { NAOS_WRAP_FILE, info->header.fileset_id, info->header.file_id };
	int rc = source.unwrap(source.context, &context, &info->slots[1].blob, &fek, &err);
	(void)naos_secret_free(fek);
	return rc;
}

static void keys_are_made_ahead_only_where_files_will_be_made(void **state)
{
	struct naos_filesets *sets = open_sets();
	int before = atomic_load(&shim->encrypts);
	naos_filesets_tend(sets);
	assert_int_equal(atomic_load(&shim->encrypts), before);
	naos_filesets_prepare(sets, set);
	naos_filesets_tend(sets);
	int ready = atomic_load(&shim->encrypts) - before;
	assert_in_range(ready, 2, NAOS_FILESET_POOL);
	for (int i = 0; i < ready; i++)
		(void)make_file(sets);
	assert_int_equal(atomic_load(&shim->encrypts) - before, ready);
	naos_filesets_tend(sets); /* it was used up: twice as many now */
	assert_int_equal(atomic_load(&shim->encrypts) - before, 3 * ready);
	naos_filesets_close(sets);
}

static void files_are_made_and_opened_while_the_key_manager_is_away(void **state)
{
	struct naos_filesets *sets = open_sets();
	naos_filesets_prepare(sets, set);
	naos_filesets_tend(sets);
	assert_ok(naos_filesets_condition(sets, &err), &err);
	fault(&shim->encrypt, CKR_DEVICE_REMOVED, 1000);
	fault(&shim->decrypt, CKR_DEVICE_REMOVED, 1000);
	for (int i = 0; i < 10; i++) {
		struct naos_sealed_info info = make_file(sets);
		assert_true(naos_filesets_knows(sets, &info));
		assert_ok(open_file(sets, &info), &err);
	}
	naos_filesets_tend(sets);
	assert_code(naos_filesets_condition(sets, &err), NAOS_E_KEYMANAGER);
	message_has("genomes");
	naos_filesets_close(sets);
}

static void a_file_that_was_not_opened_is_not_at_hand(void **state)
{
	struct naos_filesets *sets = open_sets();
	struct naos_sealed_info info = make_file(sets), other = info;
	other.header.file_id.bytes[3] ^= 1;
	assert_true(naos_filesets_knows(sets, &info));
	assert_false(naos_filesets_knows(sets, &other));
	other = info;
	other.slots[1].used = false;
	assert_false(naos_filesets_knows(sets, &other));
	naos_filesets_close(sets);
}

static void a_rotation_is_noticed(void **state)
{
	struct naos_filesets *sets = open_sets();
	struct naos_mek mek;
	naos_filesets_prepare(sets, set);
	naos_filesets_tend(sets);
	struct naos_sealed_info first = make_file(sets);
	assert_int_equal(first.slots[1].blob.mek_version, 1);
	assert_ok(naos_mek_rotate(provider, name, &mek, &err), &err);
	naos_filesets_refresh(sets);
	assert_int_equal(make_file(sets).slots[1].blob.mek_version, 2);
	assert_ok(naos_filesets_active(sets, set, &mek, &err), &err);
	assert_int_equal(mek.version, 2);
	assert_true(naos_filesets_knows(sets, &first)); /* the version before still opens it */
	naos_filesets_close(sets);
}

static void a_revocation_is_noticed(void **state)
{
	struct naos_filesets *sets = open_sets();
	struct naos_new_key made;
	naos_filesets_prepare(sets, set);
	naos_filesets_tend(sets);
	struct naos_sealed_info info = make_file(sets);
	/* not by another client: this one would see it only after a moment */
	assert_ok(naos_mek_revoke(naos_filesets_provider(sets), name, 1, &err), &err);
	naos_filesets_refresh(sets);
	assert_false(naos_filesets_knows(sets, &info));
	assert_code(open_file(sets, &info), NAOS_E_KEY_STATE);
	assert_code(naos_filesets_new_key(sets, set, &made, &err), NAOS_E_KEY_STATE);
	assert_code(naos_filesets_condition(sets, &err), NAOS_E_KEY_STATE);
	assert_ok(naos_mek_activate(naos_filesets_provider(sets), name, 1, &err), &err);
	naos_filesets_refresh(sets);
	assert_ok(open_file(sets, &info), &err);
	(void)make_file(sets);
	assert_ok(naos_filesets_condition(sets, &err), &err);
	naos_filesets_close(sets);
}

static void a_destroyed_key_is_forgotten_though_nothing_was_made_with_it_here(void **state)
{
	struct naos_filesets *maker = open_sets();
	struct naos_sealed_info info = make_file(maker);
	struct naos_mek mek;
	naos_filesets_close(maker);
	struct naos_filesets *reader = open_again();
	assert_ok(open_file(reader, &info), &err);
	assert_ok(naos_filesets_active(reader, set, &mek, &err), &err);
	assert_ok(naos_mek_revoke(provider, name, 1, &err), &err);
	assert_ok(naos_mek_destroy(provider, name, 1, &err), &err);
	naos_filesets_refresh(reader);
	assert_false(naos_filesets_knows(reader, &info));
	assert_code(naos_filesets_active(reader, set, &mek, &err), NAOS_E_KEY_STATE);
	naos_filesets_close(reader);
}

static void *tend(void *sets)
{
	naos_filesets_tend(sets);
	return NULL;
}

static void nobody_waits_while_keys_are_made_ahead(void **state)
{
	struct naos_filesets *sets = open_sets();
	pthread_t thread;
	naos_filesets_prepare(sets, set);
	naos_filesets_tend(sets);
	int ready = atomic_load(&shim->encrypts);
	while (atomic_load(&shim->encrypts) == ready) { /* until tending finds too few and asks for more, which is held up */
		(void)make_file(sets);
		atomic_store(&shim->holds_encrypt, true);
		assert_int_equal(pthread_create(&thread, NULL, tend, sets), 0);
		(void)usleep(20000);
		if (atomic_load(&shim->encrypts) == ready) {
			atomic_store(&shim->holds_encrypt, false);
			(void)pthread_join(thread, NULL);
		}
	}
	(void)make_file(sets); /* a deadlock here is the test's timeout */
	atomic_store(&shim->holds_encrypt, false);
	(void)pthread_join(thread, NULL);
	naos_filesets_close(sets);
}

static void waiting_ends_when_keys_run_short(void **state)
{
	struct naos_filesets *sets = open_sets();
	naos_filesets_prepare(sets, set);
	naos_filesets_await(sets, 600); /* preparing asks for tending */
	int before = atomic_load(&shim->encrypts);
	naos_filesets_tend(sets);
	for (int ready = atomic_load(&shim->encrypts) - before; ready > 0; ready -= 2)
		(void)make_file(sets);
	naos_filesets_await(sets, 600);
	naos_filesets_close(sets);
}

static void a_set_with_an_id_opens_while_the_token_is_away(void **state)
{
	struct naos_filesets *sets = open_sets(), *other = NULL;
	struct naos_sealed_info info = make_file(sets);
	struct naos_new_key made;
	struct naos_config *config = NULL;
	char text[1024], id[NAOS_UUID_TEXT_BYTES];
	int bytes = snprintf(text, sizeof(text),
			     "[keymanager]\nuri = %s\nstore = %s\n[fileset genomes]\nmek = %s\nid = %s\n[fileset second]\nmek = absent\n", token.uri,
			     token.store, name, naos_uuid_format(&set->id, id));
	naos_filesets_close(sets);
	naos_provider_close(provider); /* so that the next one opens sessions of its own */
	provider = NULL;
	assert_ok(naos_config_parse(text, (size_t)bytes, "test", &config, &err), &err);
	fault(&shim->open_session, CKR_DEVICE_REMOVED, 100000);
	assert_code(naos_filesets_open(config, "second", NULL, &other, &err), NAOS_E_KEYMANAGER); /* its id is not known here */
	assert_ok(naos_filesets_open(config, "genomes", NULL, &sets, &err), &err);
	naos_config_free(config);
	assert_ok(naos_filesets_find(sets, "genomes", &set, &err), &err);
	assert_code(open_file(sets, &info), NAOS_E_KEYMANAGER);
	assert_code(naos_filesets_new_key(sets, set, &made, &err), NAOS_E_KEYMANAGER);
	naos_filesets_prepare(sets, set);
	naos_filesets_tend(sets);
	assert_code(naos_filesets_condition(sets, &err), NAOS_E_KEYMANAGER);
	fault(&shim->open_session, 0, 0);
	assert_ok(open_file(sets, &info), &err);
	(void)make_file(sets);
	naos_filesets_refresh(sets);
	assert_ok(naos_filesets_condition(sets, &err), &err);
	naos_filesets_close(sets);
}

static int finish(void **state)
{
	naos_provider_close(provider);
	return tear_down(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(keys_are_made_ahead_only_where_files_will_be_made),
		TEST(files_are_made_and_opened_while_the_key_manager_is_away),
		TEST(a_file_that_was_not_opened_is_not_at_hand),
		TEST(a_rotation_is_noticed),
		TEST(a_revocation_is_noticed),
		TEST(a_destroyed_key_is_forgotten_though_nothing_was_made_with_it_here),
		TEST(nobody_waits_while_keys_are_made_ahead),
		TEST(a_set_with_an_id_opens_while_the_token_is_away),
		TEST(waiting_ends_when_keys_run_short),
	};
	if (!soft_is_installed()) {
		(void)puts("skipped: SoftHSM 2 is not installed");
		return 77;
	}
	return cmocka_run_group_tests(tests, set_up, finish);
}

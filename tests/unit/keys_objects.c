/* Objects of a token: the right attributes, impostors refused, nothing left by crashes and nothing else removed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "token_world.h"

#include <sqlite3.h>
#include <sys/syscall.h>

/* ---- durability: this program's fsync stands before the C library's, so SQLite and Naos are heard */

static char synced[200][300];
static size_t synced_count;

__attribute__((visibility("default"))) int fsync(int fd);
int fsync(int fd)
{
	char link[64];
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (synced_count < NAOS_ARRAY_LENGTH(synced)) {
		ssize_t bytes = readlink(link, synced[synced_count], sizeof(synced[0]) - 1);
		synced[synced_count++][bytes > 0 ? bytes : 0] = 0;
	}
	return (int)syscall(SYS_fsync, fd);
}

__attribute__((visibility("default"))) int fdatasync(int fd);
int fdatasync(int fd)
{
	return fsync(fd);
}

/* Behind position `from`, or synced_count. */
static size_t position_of(const char *text, size_t from)
{
	while (from < synced_count && !strstr(synced[from], text))
		from++;
	return from;
}

static void the_newest_object(char *ret, size_t bytes)
{
	DIR *directory = opendir(token.objects);
	const struct dirent *entry;
	struct timespec newest = { 0, 0 };
	while ((entry = readdir(directory))) {
		struct stat info;
		if (!strstr(entry->d_name, "-") || !strstr(entry->d_name, ".object") || fstatat(dirfd(directory), entry->d_name, &info, 0) != 0)
			continue;
		if (info.st_ctim.tv_sec > newest.tv_sec || (info.st_ctim.tv_sec == newest.tv_sec && info.st_ctim.tv_nsec > newest.tv_nsec)) {
			newest = info.st_ctim;
			(void)snprintf(ret, bytes, "%s", entry->d_name);
		}
	}
	(void)closedir(directory);
}

static void a_key_is_on_the_disk_before_it_is_acknowledged(void **state)
{
	struct naos_mek mek;
	char object[300] = "";
	naos_autoprovider struct naos_provider *provider = open_provider();
	synced_count = 0;
	assert_ok(naos_mek_create(provider, "durable", &mek, &err), &err);
	the_newest_object(object, sizeof(object));
	size_t row = position_of("keys.db-wal", 0), key_file = position_of(object, 0), folder = position_of(token.objects, key_file + 1);
	while (folder < synced_count && strcmp(synced[folder], token.objects) != 0)
		folder = position_of(token.objects, folder + 1);
	size_t active = position_of("keys.db-wal", folder);
	/* the row "creating", the object, its directory, the row "active" */
	assert_true(row < key_file && key_file < folder && folder < active && active < synced_count);
}

/* ---- copies and templates */

static void a_key_is_copied_once_and_the_copy_is_no_lesser_key(void **state)
{
	struct naos_mek mek;
	struct naos_wrap_item item;
	naos_autoprovider struct naos_provider *provider = open_with_key(&mek);
	int before = atomic_load(&shim->copies);
	for (int i = 0; i < 10; i++)
		assert_ok(wrap(provider, &item), &err);
	assert_true(atomic_load(&shim->copies) <= before + 1);
	/* where copies are refused the object itself serves */
	fault(&shim->copy, CKR_ACTION_PROHIBITED, 1000);
	naos_autoprovider struct naos_provider *other = open_provider();
	assert_ok(unwrap(other, &item), &err);
}

static void expect_attribute(CK_SESSION_HANDLE session, CK_OBJECT_HANDLE object, CK_ATTRIBUTE_TYPE type, CK_BBOOL expected)
{
	CK_BBOOL value = 2;
	CK_ATTRIBUTE attribute = { type, &value, 1 };
	assert_int_equal(raw->C_GetAttributeValue(session, object, &attribute, 1), CKR_OK);
	if (value != expected)
		fail_msg("attribute 0x%lx is %d", type, value);
}

static void a_key_has_the_right_attributes(void **state)
{
	for (int other_vendor = 0; other_vendor < 2; other_vendor++) {
		struct naos_mek mek;
		CK_OBJECT_HANDLE object = 0;
		atomic_store(&shim->other_vendor, other_vendor);
		struct naos_provider *provider = open_with_key(&mek);
		CK_SESSION_HANDLE session = raw_session();
		assert_int_equal(raw_find(session, &mek, &object), 1);
		expect_attribute(session, object, CKA_SENSITIVE, CK_TRUE);
		expect_attribute(session, object, CKA_ALWAYS_SENSITIVE, CK_TRUE);
		expect_attribute(session, object, CKA_EXTRACTABLE, CK_FALSE);
		expect_attribute(session, object, CKA_NEVER_EXTRACTABLE, CK_TRUE);
		expect_attribute(session, object, CKA_ENCRYPT, CK_TRUE);
		expect_attribute(session, object, CKA_DECRYPT, CK_TRUE);
		expect_attribute(session, object, CKA_WRAP, CK_FALSE);
		expect_attribute(session, object, CKA_UNWRAP, CK_FALSE);
		expect_attribute(session, object, CKA_SIGN, CK_FALSE);
		expect_attribute(session, object, CKA_DERIVE, CK_FALSE);
		/* only for the copy that makes SoftHSM fast */
		expect_attribute(session, object, CKA_MODIFIABLE, !other_vendor);
		expect_attribute(session, object, CKA_COPYABLE, !other_vendor);
		(void)raw->C_CloseSession(session);
		int copies = atomic_load(&shim->copies);
		struct naos_wrap_item item;
		assert_ok(wrap(provider, &item), &err);
		assert_ok(unwrap(provider, &item), &err);
		if (other_vendor)
			assert_int_equal(atomic_load(&shim->copies), copies);
		naos_provider_close(provider);
	}
}

static void a_key_stays_where_it_is(void **state)
{
	struct naos_mek mek, second;
	CK_OBJECT_HANDLE object = 0, other = 0, copy;
	uint8_t value[64];
	CK_BBOOL yes = CK_TRUE;
	CK_ULONG bytes = sizeof(value);
	CK_ATTRIBUTE read = { CKA_VALUE, value, sizeof(value) }, extractable = { CKA_EXTRACTABLE, &yes, 1 };
	CK_MECHANISM wrapping = { CKM_AES_KEY_WRAP_PAD, NULL, 0 };
	naos_autoprovider struct naos_provider *provider = open_with_key(&mek);
	assert_ok(naos_mek_rotate(provider, name, &second, &err), &err);
	CK_SESSION_HANDLE session = raw_session();
	assert_int_equal(raw_find(session, &mek, &object), 1);
	assert_int_equal(raw_find(session, &second, &other), 1);
	assert_int_equal(raw->C_GetAttributeValue(session, object, &read, 1), CKR_ATTRIBUTE_SENSITIVE);
	assert_int_not_equal(raw->C_SetAttributeValue(session, object, &extractable, 1), CKR_OK);
	assert_int_not_equal(raw->C_CopyObject(session, object, &extractable, 1, &copy), CKR_OK);
	assert_int_not_equal(raw->C_WrapKey(session, &wrapping, other, object, value, &bytes), CKR_OK);
	(void)raw->C_CloseSession(session);
}

static void keys_are_searched_for_once(void **state)
{
	struct naos_mek mek;
	struct naos_wrap_item item;
	struct naos_provider *provider = open_with_key(&mek);
	assert_ok(wrap(provider, &item), &err);
	naos_provider_close(provider);
	provider = open_provider();
	int finds = atomic_load(&shim->finds); /* a search of 1,000 keys takes 50 ms */
	for (int i = 0; i < 50; i++)
		assert_ok(unwrap(provider, &item), &err);
	assert_int_equal(atomic_load(&shim->finds), finds);
	item.blob.mek_id.bytes[0] ^= 1; /* a file that names an unknown key causes none either */
	assert_code(unwrap(provider, &item), NAOS_E_NOKEY);
	assert_int_equal(atomic_load(&shim->finds), finds);
	naos_provider_close(provider);
}

/* ---- keys that are not what they should be */

enum impostor { EXTRACTABLE, WRAPS, ANOTHER, TWICE };

static int with_impostor(enum impostor kind)
{
	struct naos_mek mek;
	struct naos_wrap_item item;
	CK_OBJECT_HANDLE object = 0;
	struct naos_provider *provider = open_with_key(&mek);
	assert_ok(wrap(provider, &item), &err);
	CK_SESSION_HANDLE session = raw_session();
	assert_int_equal(raw_find(session, &mek, &object), 1);
	if (kind != TWICE)
		assert_int_equal(raw->C_DestroyObject(session, object), CKR_OK);
	raw_generate(session, &mek, kind == EXTRACTABLE, kind == WRAPS);
	(void)raw->C_CloseSession(session);
	naos_provider_close(provider);
	provider = open_provider();
	int rc = unwrap(provider, &item);
	struct naos_error first = err;
	assert_int_equal(wrap(provider, &item), rc);
	err = first;
	naos_provider_close(provider);
	return rc;
}

static void a_key_that_may_leave_is_refused(void **state)
{
	assert_code(with_impostor(EXTRACTABLE), NAOS_E_KEY_STATE);
	message_has("extractable");
}

static void a_key_that_wraps_and_decrypts_is_refused(void **state)
{
	assert_code(with_impostor(WRAPS), NAOS_E_KEY_STATE);
	message_has("gives other keys away");
}

static void another_key_under_the_same_id_is_found_out(void **state)
{
	assert_code(with_impostor(ANOTHER), NAOS_E_WRONG_KEY);
	message_has("was the token replaced?");
}

static void two_keys_under_one_id_are_refused(void **state)
{
	assert_code(with_impostor(TWICE), NAOS_E_KEY_STATE);
	message_has("two objects");
}

static void a_token_that_ignores_tags_is_not_used(void **state)
{
	struct naos_mek mek, *found = NULL;
	size_t count;
	naos_autoprovider struct naos_provider *provider = open_provider();
	atomic_store(&shim->accepts_bad_tag, true);
	assert_code(naos_mek_create(provider, "no-tag", &mek, &err), NAOS_E_SELFTEST);
	assert_code(naos_mek_find(provider, "no-tag", &found, &count, &err), NAOS_E_NOKEY);
	atomic_store(&shim->accepts_bad_tag, false);
	assert_ok(naos_mek_create(provider, "no-tag", &mek, &err), &err);
}

static void a_failed_creation_leaves_nothing(void **state)
{
	struct naos_mek mek, *found = NULL;
	size_t count;
	naos_autoprovider struct naos_provider *provider = open_provider();
	fault(&shim->generate, CKR_TEMPLATE_INCONSISTENT, 1); /* SoftHSM's answer under parallel use */
	assert_code(naos_mek_create(provider, "fails", &mek, &err), NAOS_E_KEYMANAGER);
	assert_code(naos_mek_find(provider, "fails", &found, &count, &err), NAOS_E_NOKEY);
	assert_ok(naos_mek_create(provider, "fails", &mek, &err), &err);
	assert_int_equal(mek.version, 1);
}

static void a_destruction_that_did_not_happen_is_noticed_and_ended_later(void **state)
{
	struct naos_mek mek, next, *versions = NULL;
	size_t count;
	struct naos_provider *provider = open_with_key(&mek);
	assert_ok(naos_mek_rotate(provider, name, &next, &err), &err);
	atomic_store(&shim->keeps_destroyed, true);
	assert_code(naos_mek_destroy(provider, name, 1, &err), NAOS_E_KEYMANAGER);
	message_has("recorded as destroyed");
	assert_ok(naos_mek_find(provider, name, &versions, &count, &err), &err);
	assert_int_equal(versions[1].state, NAOS_MEK_DESTROYED);
	free(versions);
	naos_provider_close(provider);
	atomic_store(&shim->keeps_destroyed, false);
	assert_int_equal(objects_of(&mek), 0); /* the next start ended it */
	assert_int_equal(objects_of(&next), 1);
}

/* ---- leftovers */

static void run_sql(const char *sql)
{
	sqlite3 *db;
	char *message = NULL;
	assert_int_equal(sqlite3_open(token.store, &db), SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
		fail_msg("%s: %s", sql, message);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static size_t stunted_objects(void)
{
	size_t count = 0;
	DIR *directory = opendir(token.objects);
	const struct dirent *entry;
	while ((entry = readdir(directory))) {
		struct stat info;
		if (strstr(entry->d_name, ".object") && fstatat(dirfd(directory), entry->d_name, &info, 0) == 0 && info.st_size < 100)
			count++;
	}
	(void)closedir(directory);
	return count;
}

static void what_a_crash_left_is_swept_and_nothing_else(void **state)
{
	struct naos_mek dead, mine, foreign = { .version = 1 }, *found = NULL;
	size_t count;
	char path[400], sql[200];
	struct naos_provider *provider = open_with_key(&mine);
	assert_ok(naos_mek_create(provider, "dead", &dead, &err), &err);
	memset(foreign.id.bytes, 0x77, sizeof(foreign.id.bytes));
	CK_SESSION_HANDLE session = raw_session();
	raw_generate(session, &foreign, false, false); /* of another store: not ours to remove */
	(void)raw->C_CloseSession(session);
	naos_provider_close(provider);
	(void)snprintf(path, sizeof(path), "%s/11111111-2222-3333-4444-555555555555.object", token.objects);
	soft_write(path, "");
	/* the sizes that kills leave: nothing, a generation, a generation and one attribute */
	(void)snprintf(path, sizeof(path), "%s/11111111-2222-3333-4444-666666666666.object", token.objects);
	soft_write_bytes(path, "\0\0\0\0\0\0\0\1", 8);
	(void)snprintf(path, sizeof(path), "%s/11111111-2222-3333-4444-777777777777.object", token.objects);
	soft_write_bytes(path, "\0\0\0\0\0\0\0\2\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\x1f", 32);
	(void)snprintf(sql, sizeof(sql), "UPDATE mek SET phase = 1, state = 1 WHERE name = 'dead'");
	run_sql(sql); /* as if killed before the acknowledgement */
	assert_int_equal(stunted_objects(), 3);

	provider = open_provider();
	assert_code(naos_mek_find(provider, "dead", &found, &count, &err), NAOS_E_NOKEY);
	naos_provider_close(provider);
	assert_int_equal(stunted_objects(), 0);
	assert_int_equal(objects_of(&dead), 0);
	assert_int_equal(objects_of(&mine), 1);
	assert_int_equal(objects_of(&foreign), 1);
}

static void a_version_without_an_object_is_named(void **state)
{
	struct naos_mek mek;
	struct naos_wrap_item item;
	CK_OBJECT_HANDLE object = 0;
	struct naos_provider *provider = open_with_key(&mek);
	assert_ok(wrap(provider, &item), &err);
	CK_SESSION_HANDLE session = raw_session();
	assert_int_equal(raw_find(session, &mek, &object), 1);
	assert_int_equal(raw->C_DestroyObject(session, object), CKR_OK);
	(void)raw->C_CloseSession(session);
	naos_provider_close(provider);
	provider = open_provider();
	assert_code(unwrap(provider, &item), NAOS_E_NOKEY);
	message_has("restored from an older backup");
	naos_provider_close(provider);
}

static void other_files_are_not_taken_for_a_key_store(void **state)
{
	struct naos_provider *provider = NULL;
	char path[160];
	(void)snprintf(path, sizeof(path), "%s/text", token.dir);
	soft_write(path, "this is a letter, not a database, and long enough to show it to everybody who looks at it");
	assert_code(naos_provider_open(token.uri, path, &provider, &err), NAOS_E_INTEGRITY);
	assert_code(naos_provider_open(token.uri, "/nowhere/keys.db", &provider, &err), NAOS_E_NOTFOUND);
	message_has("keymanager.store");
	(void)snprintf(path, sizeof(path), "%s/other.db", token.dir);
	sqlite3 *db;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "PRAGMA application_id = 7; CREATE TABLE a (b)", NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
	assert_code(naos_provider_open(token.uri, path, &provider, &err), NAOS_E_FORMAT);
	(void)snprintf(path, sizeof(path), "pkcs11:token=unit?module-path=%s/text", token.dir);
	assert_code(naos_provider_open(path, token.store, &provider, &err), NAOS_E_KEYMANAGER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_key_is_on_the_disk_before_it_is_acknowledged),
		TEST(a_key_is_copied_once_and_the_copy_is_no_lesser_key),
		TEST(a_key_has_the_right_attributes),
		TEST(a_key_stays_where_it_is),
		TEST(keys_are_searched_for_once),
		TEST(a_key_that_may_leave_is_refused),
		TEST(a_key_that_wraps_and_decrypts_is_refused),
		TEST(another_key_under_the_same_id_is_found_out),
		TEST(two_keys_under_one_id_are_refused),
		TEST(a_token_that_ignores_tags_is_not_used),
		TEST(a_failed_creation_leaves_nothing),
		TEST(a_destruction_that_did_not_happen_is_noticed_and_ended_later),
		TEST(what_a_crash_left_is_swept_and_nothing_else),
		TEST(a_version_without_an_object_is_named),
		TEST(other_files_are_not_taken_for_a_key_store),
	};
	if (!soft_is_installed()) {
		(void)puts("skipped: SoftHSM 2 is not installed");
		return 77;
	}
	return cmocka_run_group_tests(tests, set_up, tear_down);
}

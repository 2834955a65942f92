/* Objects, their database and their states.  SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keyd/kept.h"
#include "keyd/hsm_wire.h"
#include "keyd/store.h"

static struct naos_error err;
static char directory[64], path[96];

static int set_up(void **state)
{
	(void)state;
	(void)snprintf(directory, sizeof(directory), "/tmp/naos-unit-keyd-XXXXXX");
	assert_non_null(mkdtemp(directory));
	(void)snprintf(path, sizeof(path), "%s/objects.db", directory);
	return 0;
}

static int tear_down(void **state)
{
	static const char *const suffixes[] = { "", "-wal", "-shm", ".lock" };
	char name[128];
	(void)state;
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(suffixes); i++) {
		(void)snprintf(name, sizeof(name), "%s%s", path, suffixes[i]);
		(void)unlink(name);
	}
	return rmdir(directory);
}

static struct naos_object *make_object(const char *name, int64_t activation, int64_t deactivation)
{
	const struct naos_kmip_name value = { naos_kmip_text(name), NAOS_KMIP_NAME_TYPE_UNINTERPRETED_TEXT_STRING };
	const struct naos_kmip_attribute attributes[] = {
		naos_kmip_attribute_enum(NAOS_KMIP_TAG_OBJECT_TYPE, NAOS_KMIP_OBJECT_TYPE_SYMMETRIC_KEY),
		naos_kmip_attribute_enum(NAOS_KMIP_TAG_STATE, NAOS_KMIP_STATE_PRE_ACTIVE),
		naos_kmip_attribute_structure(NAOS_KMIP_TAG_NAME, &value),
		naos_kmip_attribute_date(NAOS_KMIP_TAG_ACTIVATION_DATE, activation),
		naos_kmip_attribute_date(NAOS_KMIP_TAG_DEACTIVATION_DATE, deactivation),
		{ .name = naos_kmip_text("x-mine"), .value = { .type = NAOS_KMIP_TYPE_INTEGER, .integer = 7 } },
		{ .name = naos_kmip_text("x-mine"), .value = { .type = NAOS_KMIP_TYPE_INTEGER, .integer = 8 } },
	};
	naos_autoedit edit = { .count = 0 };
	struct naos_object *object = NULL;
	assert_ok(naos_edit_begin(NULL, &edit, &err), &err);
	assert_ok(naos_uuid_random(&edit.core.id, &err), &err);
	edit.core.object_class = NAOS_CLASS_EXPORTABLE;
	edit.core.kept = (uint8_t *)"kept value";
	edit.core.kept_bytes = 10;
	(void)snprintf(edit.core.owner, sizeof(edit.core.owner), "owner");
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(attributes); i++)
		assert_ok(naos_edit_add(&edit, &attributes[i], &err), &err);
	assert_ok(naos_object_make(&edit, &object, &err), &err);
	return object;
}

static void dates_decide_the_state(void **state)
{
	(void)state;
	naos_autoobject struct naos_object *object = make_object("n", 100, 200);
	assert_int_equal(naos_object_state(object, 99), NAOS_KMIP_STATE_PRE_ACTIVE);
	assert_int_equal(naos_object_state(object, 100), NAOS_KMIP_STATE_ACTIVE);
	assert_int_equal(naos_object_state(object, 199), NAOS_KMIP_STATE_ACTIVE);
	assert_int_equal(naos_object_state(object, 200), NAOS_KMIP_STATE_DEACTIVATED);
}

static void an_edit_keeps_indices_and_the_old_snapshot(void **state)
{
	(void)state;
	naos_autoobject struct naos_object *object = make_object("n", 1, 2), *next = NULL;
	naos_autoedit edit = { .count = 0 };
	const struct naos_kmip_text mine = naos_kmip_text("x-mine");
	assert_ok(naos_edit_begin(object, &edit, &err), &err);
	naos_edit_remove(&edit, naos_edit_find(&edit, 0, mine, 0));
	assert_null(naos_edit_find(&edit, 0, mine, 0));
	assert_int_equal(naos_edit_find(&edit, 0, mine, 1)->value.integer, 8);
	const struct naos_kmip_attribute third = { .name = mine, .value = { .type = NAOS_KMIP_TYPE_INTEGER, .integer = 9 } };
	assert_ok(naos_edit_add(&edit, &third, &err), &err);
	assert_int_equal(naos_edit_find(&edit, 0, mine, 2)->value.integer, 9);
	assert_ok(naos_object_make(&edit, &next, &err), &err);
	assert_int_equal(object->attributes.count, 7);
	assert_int_equal(next->attributes.count, 7);
	assert_memory_equal(next->core.kept, "kept value", 10);
}

static void an_object_has_so_many_attributes_and_no_more(void **state)
{
	(void)state;
	naos_autoedit edit = { .count = 0 };
	const struct naos_kmip_attribute one = { .name = naos_kmip_text("x-n"), .value = { .type = NAOS_KMIP_TYPE_INTEGER,
			.integer = 1 } };
	assert_ok(naos_edit_begin(NULL, &edit, &err), &err);
	for (size_t i = 0; i < NAOS_KEYD_MAX_ATTRIBUTES; i++)
		assert_ok(naos_edit_add(&edit, &one, &err), &err);
	assert_code(naos_edit_add(&edit, &one, &err), NAOS_E_LIMIT);
}

struct seen {
	size_t objects, approvals;
	uint64_t uses;
	char name[64];
};

static int see_object(void *context, const struct naos_object_core *core, const uint8_t *attributes, size_t bytes, uint64_t uses,
		      struct naos_error *error)
{
	struct seen *seen = context;
	naos_autoobject struct naos_object *object = NULL;
	int rc = naos_object_read(core, attributes, bytes, &object, error);
	if (rc != 0)
		return rc;
	const struct naos_kmip_name *name = naos_object_attribute(object, NAOS_KMIP_TAG_NAME, 0)->value.name;
	(void)snprintf(seen->name, sizeof(seen->name), "%.*s", (int)name->value.bytes, name->value.data);
	seen->objects++;
	seen->uses += uses;
	return 0;
}

static int see_approval(void *context, const struct naos_uuid *id, const char *identity, int64_t unix_s, struct naos_error *error)
{
	struct seen *seen = context;
	(void)id, (void)identity, (void)unix_s, (void)error;
	seen->approvals++;
	return 0;
}

static struct seen look(void)
{
	struct seen seen = { .objects = 0 };
	const struct naos_keyd_store_reader reader = { &seen, see_object, see_approval };
	struct naos_keyd_store *store;
	assert_ok(naos_keyd_store_open(path, &store, &err), &err);
	assert_ok(naos_keyd_store_read(store, &reader, &err), &err);
	(void)naos_keyd_store_close(store);
	return seen;
}

/* A child commits and is killed at once. */
static void what_was_committed_is_there_after_sigkill(void **state)
{
	(void)state;
	pid_t child = fork();
	int status;
	if (child == 0) {
		struct naos_keyd_store *store;
		struct naos_object *object = make_object("survivor", 1, 2);
		const struct naos_change changes[] = {
			{ .kind = NAOS_CHANGE_OBJECT, .object = object },
			{ .kind = NAOS_CHANGE_USES, .id = object->core.id, .uses = 4096 },
			{ .kind = NAOS_CHANGE_USES, .id = object->core.id, .uses = 17 }, /* never goes down */
			{ .kind = NAOS_CHANGE_APPROVE, .id = object->core.id, .identity = "a", .unix_s = 1 },
			{ .kind = NAOS_CHANGE_APPROVE, .id = object->core.id, .identity = "b", .unix_s = 1 },
			{ .kind = NAOS_CHANGE_APPROVE, .id = object->core.id, .identity = "a", .unix_s = 2 },
		};
		if (naos_keyd_store_open(path, &store, NULL) == 0 && naos_keyd_store_commit(store, changes,
				NAOS_ARRAY_LENGTH(changes), NULL) == 0)
			(void)kill(getpid(), SIGKILL);
		_exit(1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	struct seen seen = look();
	assert_int_equal(seen.objects, 1);
	assert_int_equal(seen.uses, 4096);
	assert_int_equal(seen.approvals, 2);
	assert_string_equal(seen.name, "survivor");
}

#define THREADS 8
#define EACH 25

static void *commit_many(void *argument)
{
	struct naos_keyd_store *store = argument;
	for (size_t i = 0; i < EACH; i++) {
		naos_autoobject struct naos_object *object = make_object("one of many", 1, 2);
		const struct naos_change change = { .kind = NAOS_CHANGE_OBJECT, .object = object };
		if (naos_keyd_store_commit(store, &change, 1, NULL) != 0)
			return argument;
	}
	return NULL;
}

static void changes_of_many_threads_share_transactions_and_are_all_there(void **state)
{
	(void)state;
	struct naos_keyd_store *store;
	pthread_t threads[THREADS];
	void *failed;
	assert_ok(naos_keyd_store_open(path, &store, &err), &err);
	for (size_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, commit_many, store), 0);
	for (size_t i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(threads[i], &failed), 0);
		assert_null(failed);
	}
	(void)naos_keyd_store_close(store);
	assert_int_equal(look().objects, THREADS * EACH);
}

static void a_second_key_manager_is_refused(void **state)
{
	(void)state;
	struct naos_keyd_store *store, *second;
	assert_ok(naos_keyd_store_open(path, &store, &err), &err);
	assert_code(naos_keyd_store_open(path, &second, &err), NAOS_E_BUSY);
	(void)naos_keyd_store_close(store);
}

static void a_database_of_another_program_is_refused(void **state)
{
	(void)state;
	struct naos_keyd_store *store;
	sqlite3 *db;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "PRAGMA application_id = 7; CREATE TABLE t (a)", NULL, NULL, NULL), SQLITE_OK);
	(void)sqlite3_close(db);
	assert_code(naos_keyd_store_open(path, &store, &err), NAOS_E_FORMAT);
}

static void a_kept_record_is_checked(void **state)
{
	(void)state;
	uint8_t record[NAOS_KEPT_HEADER_BYTES + 4];
	const struct naos_kept kept = { .storage_version = 3, .iv_bytes = 12, .iv = "abcdefghijkl", .tag = "0123456789abcde" };
	struct naos_cursor out = naos_cursor_writer(record, sizeof(record));
	struct naos_kept back;
	naos_kept_encode(&kept, &out);
	naos_cursor_put(&out, "text", 4);
	assert_true(naos_cursor_at_end(&out));
	assert_true(naos_kept_decode(record, sizeof(record), &back));
	assert_int_equal(back.storage_version, 3);
	assert_memory_equal(back.ciphertext, "text", 4);
	for (size_t bytes = 0; bytes <= NAOS_KEPT_HEADER_BYTES; bytes++)
		assert_false(naos_kept_decode(record, bytes, &back));
	for (size_t at = 0; at < 8; at++) { /* magic, version, length of the IV, reserved */
		record[at] ^= 0x40;
		assert_false(naos_kept_decode(record, sizeof(record), &back));
		record[at] ^= 0x40;
	}
}

static void a_job_comes_back_from_its_record(void **state)
{
	(void)state;
	uint8_t frame[512];
	struct naos_hsm_crypt item = { .key = { .id = { "0123456789abcdef" }, .kept = (const uint8_t *)"kept",
			.kept_bytes = 4 }, .encrypt = true,
				       .mode = NAOS_HSM_GCM, .associated = (const uint8_t *)"about", .associated_bytes = 5,
				       .in = (const uint8_t *)"in", .in_bytes = 2, .iv_bytes = 12, .tag_bytes = 16 }, back;
	const struct naos_hsm_job job = { .operation = NAOS_HSM_CRYPT, .item = &item, .wanted = 9 };
	struct naos_hsm_job read;
	struct naos_cursor out = naos_cursor_writer(frame, sizeof(frame));
	naos_hsm_request_encode(&job, &out);
	assert_int_equal(out.position, naos_hsm_request_bytes(&job));
	struct naos_cursor in = naos_cursor_reader(frame, out.position);
	assert_true(naos_hsm_request_decode(&in, &read, &back));
	assert_int_equal(read.wanted, 9);
	assert_memory_equal(back.in, "in", 2);
	assert_memory_equal(back.associated, "about", 5);
	for (size_t bytes = 0; bytes < out.position; bytes++) {
		in = naos_cursor_reader(frame, bytes);
		assert_false(naos_hsm_request_decode(&in, &read, &back));
	}
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(dates_decide_the_state), CASE(an_edit_keeps_indices_and_the_old_snapshot),
				CASE(an_object_has_so_many_attributes_and_no_more),
		CASE(what_was_committed_is_there_after_sigkill),
				CASE(changes_of_many_threads_share_transactions_and_are_all_there),
		CASE(a_second_key_manager_is_refused), CASE(a_database_of_another_program_is_refused),
				CASE(a_kept_record_is_checked),
		CASE(a_job_comes_back_from_its_record),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What tokens do differently, and what goes wrong with them: every trap has its test.  SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"
#include "softhsm.h"

#include <p11-kit/pkcs11.h>
#include <pthread.h>
#include <sqlite3.h>

#include "keys/provider.h"
#include "shim_token.h"

static struct naos_error err;
static struct soft_token token;
static struct shim *shim;
static struct naos_secret *key;
static char name[32]; /* of this test's key */

static struct naos_provider *open_provider(void)
{
	struct naos_provider *provider = NULL;
	assert_ok(naos_provider_open(token.uri, token.store, &provider, &err), &err);
	return provider;
}

/* A provider with a fresh key of this test. */
static struct naos_provider *open_with_key(struct naos_mek *mek)
{
	static int count;
	struct naos_provider *provider = open_provider();
	(void)snprintf(name, sizeof(name), "key-%d", count++);
	assert_ok(naos_mek_create(provider, name, mek, &err), &err);
	return provider;
}

static int wrap(struct naos_provider *provider, struct naos_wrap_item *ret)
{
	*ret = (struct naos_wrap_item){ .context = { .kind = NAOS_WRAP_FILE, .object_id = { { 9 } } }, .key = key };
	return naos_keys_wrap(provider, name, ret, 1, &err);
}

static int unwrap(struct naos_provider *provider, const struct naos_wrap_item *wrapped)
{
	struct naos_wrap_item item = *wrapped;
	int rc = naos_keys_unwrap(provider, &item, 1, &err);
	if (rc == 0)
		assert_true(naos_secret_equal(item.unwrapped, naos_secret_view(key), naos_secret_bytes(key)));
	naos_secret_free(item.unwrapped);
	return rc;
}

static void message_has(const char *text)
{
	if (!strstr(err.message, text))
		fail_msg("'%s' lacks '%s'", err.message, text);
}

static void fault(struct shim_fault *which, CK_RV rv, int count)
{
	atomic_store(&which->rv, rv);
	atomic_store(&which->count, count);
}

static int reset_shim(void **state)
{
	memset(shim, 0, offsetof(struct shim, encrypts));
	atomic_store(&shim->overlapped, false);
	return 0;
}

/* ---- the token by its own API, beside the provider that is open and logged in */

static CK_FUNCTION_LIST *raw;

static CK_SESSION_HANDLE raw_session(void)
{
	CK_C_GetFunctionList get_list;
	CK_SLOT_ID slots[4];
	CK_ULONG count = NAOS_ARRAY_LENGTH(slots);
	CK_SESSION_HANDLE session;
	void *library = dlopen("/usr/lib/softhsm/libsofthsm2.so", RTLD_NOW | RTLD_LOCAL);
	assert_non_null(library);
	*(void **)&get_list = dlsym(library, "C_GetFunctionList");
	assert_int_equal(get_list(&raw), CKR_OK);
	assert_int_equal(raw->C_GetSlotList(CK_TRUE, slots, &count), CKR_OK);
	for (CK_ULONG i = 0; i < count; i++) {
		CK_TOKEN_INFO info;
		assert_int_equal(raw->C_GetTokenInfo(slots[i], &info), CKR_OK);
		if (info.flags & CKF_TOKEN_INITIALIZED) {
			assert_int_equal(raw->C_OpenSession(slots[i], CKF_SERIAL_SESSION | CKF_RW_SESSION, NULL, NULL, &session), CKR_OK);
			return session;
		}
	}
	fail_msg("no token");
	return 0;
}

static void id_of(const struct naos_mek *mek, uint8_t ret[static 20])
{
	memcpy(ret, mek->id.bytes, 16);
	for (unsigned i = 0; i < 4; i++)
		ret[16 + i] = (uint8_t)(mek->version >> (24 - 8 * i));
}

static size_t raw_find(CK_SESSION_HANDLE session, const struct naos_mek *mek, CK_OBJECT_HANDLE *ret)
{
	uint8_t id[20];
	CK_BBOOL yes = CK_TRUE;
	CK_OBJECT_HANDLE found[8];
	CK_ULONG count = 0;
	id_of(mek, id);
	CK_ATTRIBUTE template[] = { { CKA_ID, id, sizeof(id) }, { CKA_TOKEN, &yes, 1 } };
	assert_int_equal(raw->C_FindObjectsInit(session, template, 2), CKR_OK);
	assert_int_equal(raw->C_FindObjects(session, found, 8, &count), CKR_OK);
	assert_int_equal(raw->C_FindObjectsFinal(session), CKR_OK);
	if (count > 0)
		*ret = found[0];
	return count;
}

static size_t objects_of(const struct naos_mek *mek)
{
	struct naos_provider *provider = open_provider();
	CK_OBJECT_HANDLE object;
	CK_SESSION_HANDLE session = raw_session();
	size_t count = raw_find(session, mek, &object);
	(void)raw->C_CloseSession(session);
	naos_provider_close(provider);
	return count;
}

/* Another key under the id of a MEK. */
static void raw_generate(CK_SESSION_HANDLE session, const struct naos_mek *mek, bool extractable, bool wraps)
{
	uint8_t id[20];
	char label[] = "naos:impostor";
	CK_BBOOL yes = CK_TRUE, no = CK_FALSE;
	CK_ULONG bytes = 32;
	CK_MECHANISM mechanism = { CKM_AES_KEY_GEN, NULL, 0 };
	CK_OBJECT_HANDLE object;
	id_of(mek, id);
	CK_ATTRIBUTE template[] = {
		{ CKA_TOKEN, &yes, 1 }, { CKA_PRIVATE, &yes, 1 }, { CKA_ID, id, sizeof(id) }, { CKA_LABEL, label, sizeof(label) - 1 },
		{ CKA_VALUE_LEN, &bytes, sizeof(bytes) }, { CKA_SENSITIVE, &yes, 1 }, { CKA_EXTRACTABLE, extractable ? &yes : &no, 1 },
		{ CKA_ENCRYPT, &yes, 1 }, { CKA_DECRYPT, &yes, 1 }, { CKA_WRAP, wraps ? &yes : &no, 1 }, { CKA_UNWRAP, &no, 1 },
	};
	assert_int_equal(raw->C_GenerateKey(session, &mechanism, template, NAOS_ARRAY_LENGTH(template), &object), CKR_OK);
}

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

static size_t empty_objects(void)
{
	size_t count = 0;
	DIR *directory = opendir(token.objects);
	const struct dirent *entry;
	while ((entry = readdir(directory))) {
		struct stat info;
		if (strstr(entry->d_name, ".object") && fstatat(dirfd(directory), entry->d_name, &info, 0) == 0 && info.st_size == 0)
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
	(void)snprintf(sql, sizeof(sql), "UPDATE mek SET phase = 1, state = 1 WHERE name = 'dead'");
	run_sql(sql); /* as if killed before the acknowledgement */
	assert_int_equal(empty_objects(), 1);

	provider = open_provider();
	assert_code(naos_mek_find(provider, "dead", &found, &count, &err), NAOS_E_NOKEY);
	naos_provider_close(provider);
	assert_int_equal(empty_objects(), 0);
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

static int set_up(void **state)
{
	soft_token_make(&token);
	shim = shim_token(&token);
	return naos_secret_random(32, &key, &err);
}

static int tear_down(void **state)
{
	key = naos_secret_free(key);
	soft_token_remove(&token);
	return 0;
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, reset_shim, reset_shim)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_iv_that_the_hsm_appends_is_stored),
		TEST(an_iv_that_the_hsm_writes_over_ours_is_stored),
		TEST(a_fault_that_passes_is_not_damage),
		TEST(a_token_that_fails_is_not_damage_and_comes_back),
		TEST(a_token_that_refuses_the_login_again_is_reached_later),
		TEST(failed_operations_leave_no_session_behind),
		TEST(the_known_answer_costs_no_encryption),
		TEST(threads_share_a_token_with_few_sessions),
		TEST(a_token_without_a_session_left_says_so),
		TEST(threads_go_on_while_keys_are_made),
		TEST(keys_made_by_many_threads_and_providers_are_all_there),
		TEST(a_key_is_copied_once_and_the_copy_is_no_lesser_key),
		TEST(a_key_has_the_right_attributes),
		TEST(a_key_that_may_leave_is_refused),
		TEST(a_key_that_wraps_and_decrypts_is_refused),
		TEST(another_key_under_the_same_id_is_found_out),
		TEST(two_keys_under_one_id_are_refused),
		TEST(a_token_that_ignores_tags_is_not_used),
		TEST(a_failed_creation_leaves_nothing),
		TEST(a_destruction_that_did_not_happen_is_noticed_and_ended_later),
		TEST(a_wrong_pin_is_tried_once_and_never_shown),
		TEST(the_last_try_is_left_to_a_person),
		TEST(a_pin_refused_later_is_not_tried_again),
		TEST(a_child_is_told_to_open_again),
		TEST(a_token_that_is_away_is_an_error_until_it_is_back),
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

/* What the tests of tokens share: a private token behind the shim, a provider with a fresh key, the token's own API beside it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_TESTS_TOKEN_WORLD_H
#define NAOS_TESTS_TOKEN_WORLD_H

#include "unit.h"
#include "softhsm.h"

#include <p11-kit/pkcs11.h>

#include "keys/provider.h"
#include "shim_token.h"

static struct naos_error err;
static struct soft_token token;
static struct shim *shim;
static struct naos_secret *key;
static char name[32]; /* of this test's key */

static naos_unused struct naos_provider *open_provider(void)
{
	struct naos_provider *provider = NULL;
	assert_ok(naos_provider_open(token.uri, token.store, &provider, &err), &err);
	return provider;
}

/* A provider with a fresh key of this test. */
static naos_unused struct naos_provider *open_with_key(struct naos_mek *mek)
{
	static int count;
	struct naos_provider *provider = open_provider();
	(void)snprintf(name, sizeof(name), "key-%d", count++);
	assert_ok(naos_mek_create(provider, name, mek, &err), &err);
	return provider;
}

static naos_unused int wrap(struct naos_provider *provider, struct naos_wrap_item *ret)
{
	*ret = (struct naos_wrap_item){ .context = { .kind = NAOS_WRAP_FILE, .object_id = { { 9 } } }, .key = key };
	return naos_keys_wrap(provider, name, ret, 1, &err);
}

static naos_unused int unwrap(struct naos_provider *provider, const struct naos_wrap_item *wrapped)
{
	struct naos_wrap_item item = *wrapped;
	int rc = naos_keys_unwrap(provider, &item, 1, &err);
	if (rc == 0)
		assert_true(naos_secret_equal(item.unwrapped, naos_secret_view(key), naos_secret_bytes(key)));
	naos_secret_free(item.unwrapped);
	return rc;
}

static naos_unused void message_has(const char *text)
{
	if (!strstr(err.message, text))
		fail_msg("'%s' lacks '%s'", err.message, text);
}

static naos_unused void fault(struct shim_fault *which, CK_RV rv, int count)
{
	atomic_store(&which->rv, rv);
	atomic_store(&which->count, count);
}

static naos_unused int reset_shim(void **state)
{
	memset(shim, 0, offsetof(struct shim, encrypts));
	atomic_store(&shim->overlapped, false);
	return 0;
}

/* ---- the token by its own API, beside the provider that is open and logged in */

static CK_FUNCTION_LIST *raw;

static naos_unused CK_SESSION_HANDLE raw_session(void)
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

static naos_unused void id_of(const struct naos_mek *mek, uint8_t ret[static 20])
{
	memcpy(ret, mek->id.bytes, 16);
	for (unsigned i = 0; i < 4; i++)
		ret[16 + i] = (uint8_t)(mek->version >> (24 - 8 * i));
}

static naos_unused size_t raw_find(CK_SESSION_HANDLE session, const struct naos_mek *mek, CK_OBJECT_HANDLE *ret)
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

static naos_unused size_t objects_of(const struct naos_mek *mek)
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
static naos_unused void raw_generate(CK_SESSION_HANDLE session, const struct naos_mek *mek, bool extractable, bool wraps)
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

static naos_unused int set_up(void **state)
{
	soft_token_make(&token);
	shim = shim_token(&token);
	return naos_secret_random(32, &key, &err);
}

static naos_unused int tear_down(void **state)
{
	key = naos_secret_free(key);
	soft_token_remove(&token);
	return 0;
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, reset_shim, reset_shim)

#endif

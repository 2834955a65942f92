/* A PKCS#11 module between the tests and the real SoftHSM: see p11_shim.h.  SPDX-License-Identifier: Apache-2.0 */
#include "p11_shim.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <p11-kit/pkcs11.h>

#define REAL "/usr/lib/softhsm/libsofthsm2.so"
#define EXPORT __attribute__((visibility("default")))

EXPORT extern struct shim naos_shim;
EXPORT CK_RV C_GetFunctionList(CK_FUNCTION_LIST **ret);

struct shim naos_shim;
static CK_FUNCTION_LIST *real, list;

static bool fails(struct shim_fault *fault, CK_RV *ret)
{
	int left = atomic_load(&fault->count);
	while (left > 0 && !atomic_compare_exchange_weak(&fault->count, &left, left - 1))
		;
	*ret = atomic_load(&fault->rv);
	return left > 0;
}

static void enter_change(void)
{
	if (atomic_fetch_add(&naos_shim.changing, 1) > 0)
		atomic_store(&naos_shim.overlapped, true);
}

static void leave_change(void)
{
	(void)atomic_fetch_sub(&naos_shim.changing, 1);
}

/* One call of the real module that only one thread may make at a time. */
#define CHANGE(call) \
	(__extension__({ \
		enter_change(); \
		CK_RV rv_ = (call); \
		leave_change(); \
		rv_; \
	}))

static CK_RV get_info(CK_INFO *info)
{
	CK_RV rv = real->C_GetInfo(info);
	if (rv == CKR_OK && naos_shim.other_vendor)
		memset(info->manufacturerID, 'X', sizeof(info->manufacturerID));
	return rv;
}

static CK_RV initialize(void *args)
{
	(void)atomic_fetch_add(&naos_shim.initializes, 1);
	atomic_store(&naos_shim.sessions, 0);
	return real->C_Initialize(args);
}

static CK_RV finalize(void *reserved)
{
	if (atomic_load(&naos_shim.inside) > 0)
		atomic_store(&naos_shim.finalized_under_use, true);
	return real->C_Finalize(reserved);
}

static CK_RV get_token_info(CK_SLOT_ID slot, CK_TOKEN_INFO *info)
{
	CK_RV rv = real->C_GetTokenInfo(slot, info);
	if (rv == CKR_OK && naos_shim.final_try)
		info->flags |= CKF_USER_PIN_FINAL_TRY;
	return rv;
}

static CK_RV open_session(CK_SLOT_ID slot, CK_FLAGS flags, void *application, CK_NOTIFY notify, CK_SESSION_HANDLE *ret)
{
	CK_RV rv;
	int max = atomic_load(&naos_shim.max_sessions);
	if (fails(&naos_shim.open_session, &rv))
		return rv;
	if (max > 0 && atomic_load(&naos_shim.sessions) >= max)
		return CKR_SESSION_COUNT;
	rv = real->C_OpenSession(slot, flags, application, notify, ret);
	if (rv == CKR_OK)
		(void)atomic_fetch_add(&naos_shim.sessions, 1);
	return rv;
}

static CK_RV close_session(CK_SESSION_HANDLE session)
{
	CK_RV rv = real->C_CloseSession(session);
	if (rv == CKR_OK)
		(void)atomic_fetch_sub(&naos_shim.sessions, 1);
	return rv;
}

static CK_RV login(CK_SESSION_HANDLE session, CK_USER_TYPE user, CK_UTF8CHAR *pin, CK_ULONG bytes)
{
	CK_RV rv;
	(void)atomic_fetch_add(&naos_shim.logins, 1);
	return fails(&naos_shim.login, &rv) ? rv : real->C_Login(session, user, pin, bytes);
}

static CK_RV copy_object(CK_SESSION_HANDLE session, CK_OBJECT_HANDLE object, CK_ATTRIBUTE *template, CK_ULONG count, CK_OBJECT_HANDLE *ret)
{
	CK_RV rv;
	(void)atomic_fetch_add(&naos_shim.copies, 1);
	return fails(&naos_shim.copy, &rv) ? rv : CHANGE(real->C_CopyObject(session, object, template, count, ret));
}

static CK_RV destroy_object(CK_SESSION_HANDLE session, CK_OBJECT_HANDLE object)
{
	return naos_shim.keeps_destroyed ? CKR_OK : CHANGE(real->C_DestroyObject(session, object));
}

static CK_RV set_attributes(CK_SESSION_HANDLE session, CK_OBJECT_HANDLE object, CK_ATTRIBUTE *template, CK_ULONG count)
{
	atomic_store(&naos_shim.wrote_attribute, true);
	return real->C_SetAttributeValue(session, object, template, count);
}

/* A search lasts from here to find_final. */
static CK_RV find_init(CK_SESSION_HANDLE session, CK_ATTRIBUTE *template, CK_ULONG count)
{
	CK_RV rv;
	(void)atomic_fetch_add(&naos_shim.finds, 1);
	if (fails(&naos_shim.find, &rv))
		return rv;
	enter_change();
	rv = real->C_FindObjectsInit(session, template, count);
	if (rv != CKR_OK)
		leave_change();
	return rv;
}

static CK_RV find_final(CK_SESSION_HANDLE session)
{
	leave_change();
	return real->C_FindObjectsFinal(session);
}

static CK_RV generate(CK_SESSION_HANDLE session, CK_MECHANISM *mechanism, CK_ATTRIBUTE *template, CK_ULONG count, CK_OBJECT_HANDLE *ret)
{
	CK_RV rv;
	return fails(&naos_shim.generate, &rv) ? rv : CHANGE(real->C_GenerateKey(session, mechanism, template, count, ret));
}

/* The IV that the "HSM" makes; per thread, for each thread has its session. */
static _Thread_local uint8_t own_iv[16];

static CK_RV encrypt_init(CK_SESSION_HANDLE session, CK_MECHANISM *mechanism, CK_OBJECT_HANDLE key)
{
	CK_GCM_PARAMS *params = mechanism->pParameter, own = *params;
	CK_MECHANISM changed = { mechanism->mechanism, &own, sizeof(own) };
	if (naos_shim.drops_associated)
		own.aad_len = 0;
	if (!naos_shim.luna && !naos_shim.writes_iv)
		return real->C_EncryptInit(session, &changed, key);
	(void)real->C_GenerateRandom(session, own_iv, sizeof(own_iv));
	own.iv_ptr = own_iv;
	own.iv_len = naos_shim.luna ? 16 : 12;
	own.iv_bits = 8 * own.iv_len;
	if (naos_shim.writes_iv)
		memcpy(params->iv_ptr, own_iv, own.iv_len);
	return real->C_EncryptInit(session, &changed, key);
}

static CK_RV encrypt(CK_SESSION_HANDLE session, uint8_t *in, CK_ULONG in_bytes, uint8_t *out, CK_ULONG *out_bytes)
{
	CK_RV rv;
	(void)atomic_fetch_add(&naos_shim.encrypts, 1);
	while (atomic_load(&naos_shim.holds_encrypt))
		(void)usleep(1000);
	if (fails(&naos_shim.encrypt, &rv))
		return rv; /* the operation stays active in the session */
	CK_ULONG room = *out_bytes;
	(void)atomic_fetch_add(&naos_shim.inside, 1);
	rv = real->C_Encrypt(session, in, in_bytes, out, out_bytes);
	(void)atomic_fetch_sub(&naos_shim.inside, 1);
	if (rv != CKR_OK || !naos_shim.luna)
		return rv;
	if (room < *out_bytes + 16)
		return CKR_BUFFER_TOO_SMALL;
	memcpy(out + *out_bytes, own_iv, 16);
	*out_bytes += 16;
	return CKR_OK;
}

static CK_RV decrypt_init(CK_SESSION_HANDLE session, CK_MECHANISM *mechanism, CK_OBJECT_HANDLE key)
{
	CK_GCM_PARAMS own = *(CK_GCM_PARAMS *)mechanism->pParameter;
	CK_MECHANISM changed = { mechanism->mechanism, &own, sizeof(own) };
	if (naos_shim.drops_associated)
		own.aad_len = 0;
	return real->C_DecryptInit(session, &changed, key);
}

static CK_RV decrypt(CK_SESSION_HANDLE session, uint8_t *in, CK_ULONG in_bytes, uint8_t *out, CK_ULONG *out_bytes)
{
	CK_RV rv;
	(void)atomic_fetch_add(&naos_shim.decrypts, 1);
	if (fails(&naos_shim.decrypt, &rv))
		return rv;
	(void)atomic_fetch_add(&naos_shim.inside, 1);
	if (atomic_load(&naos_shim.decrypt_delay_us) > 0)
		(void)usleep((useconds_t)atomic_load(&naos_shim.decrypt_delay_us));
	rv = real->C_Decrypt(session, in, in_bytes, out, out_bytes);
	(void)atomic_fetch_sub(&naos_shim.inside, 1);
	if (rv != CKR_OK && naos_shim.accepts_bad_tag) {
		*out_bytes = in_bytes - 16;
		memset(out, 0, *out_bytes);
		return CKR_OK;
	}
	return rv;
}

CK_RV C_GetFunctionList(CK_FUNCTION_LIST **ret)
{
	void *library = dlopen(REAL, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	CK_C_GetFunctionList get_list;
	if (!library)
		return CKR_GENERAL_ERROR;
	*(void **)&get_list = dlsym(library, "C_GetFunctionList");
	if (!get_list || get_list(&real) != CKR_OK)
		return CKR_GENERAL_ERROR;
	list = *real;
	list.C_GetFunctionList = C_GetFunctionList;
	list.C_GetInfo = get_info;
	list.C_Initialize = initialize;
	list.C_Finalize = finalize;
	list.C_GetTokenInfo = get_token_info;
	list.C_OpenSession = open_session;
	list.C_CloseSession = close_session;
	list.C_Login = login;
	list.C_CopyObject = copy_object;
	list.C_DestroyObject = destroy_object;
	list.C_SetAttributeValue = set_attributes;
	list.C_FindObjectsInit = find_init;
	list.C_FindObjectsFinal = find_final;
	list.C_GenerateKey = generate;
	list.C_EncryptInit = encrypt_init;
	list.C_Encrypt = encrypt;
	list.C_DecryptInit = decrypt_init;
	list.C_Decrypt = decrypt;
	*ret = &list;
	return CKR_OK;
}

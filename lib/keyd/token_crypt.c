/* AES modes inside a token, with what HSMs do differently.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <openssl/rand.h>

#include "keyd/hsm_token.h"

#define BLOCK_BYTES 16
#define IV_BYTES 16

bool naos_hsm_prepare_iv(struct naos_hsm_crypt *item)
{
	size_t usual = item->mode == NAOS_HSM_GCM ? 12 : IV_BYTES;
	if (item->mode == NAOS_HSM_ECB || item->mode == NAOS_HSM_ECB_PKCS5 || item->mode == NAOS_HSM_KEY_WRAP)
		return item->iv_bytes == 0;
	if (item->iv_bytes == 0) { /* tokens accept an empty one for GCM, which must never be */
		item->iv_bytes = usual;
		return item->encrypt && RAND_bytes(item->iv, (int)usual) == 1;
	}
	return item->mode == NAOS_HSM_GCM ? item->iv_bytes >= 1 && item->iv_bytes <= NAOS_HSM_MAX_IV_BYTES : item->iv_bytes == IV_BYTES;
}

/* ciphertext || tag as one text, for tokens want it so. */
static CK_RV gcm_decrypt(CK_FUNCTION_LIST *f, CK_SESSION_HANDLE session, struct naos_hsm_crypt *item)
{
	naos_autofree uint8_t *in = malloc(item->in_bytes + item->tag_bytes);
	CK_ULONG bytes = item->in_bytes + NAOS_HSM_GROWTH_BYTES;
	if (!in)
		return CKR_HOST_MEMORY;
	memcpy(in, item->in, item->in_bytes);
	memcpy(in + item->in_bytes, item->tag, item->tag_bytes);
	CK_RV rv = f->C_Decrypt(session, in, item->in_bytes + item->tag_bytes, item->out, &bytes);
	item->out_bytes = bytes;
	return rv;
}

/* Which IV was used?  SoftHSM takes ours.  Some modules write their own over it; Luna and ProtectServer in FIPS mode make one of
 * 16 (or 12) bytes and append it behind the tag. */
static CK_RV gcm_encrypt(CK_FUNCTION_LIST *f, CK_SESSION_HANDLE session, const CK_GCM_PARAMS *params, struct naos_hsm_crypt *item)
{
	CK_ULONG bytes = item->in_bytes + NAOS_HSM_GROWTH_BYTES;
	CK_RV rv = f->C_Encrypt(session, (uint8_t *)item->in, item->in_bytes, item->out, &bytes);
	if (rv != CKR_OK)
		return rv;
	if (bytes < item->in_bytes + item->tag_bytes)
		return CKR_FUNCTION_FAILED;
	size_t appended = bytes - item->in_bytes - item->tag_bytes;
	if (appended != 0 && appended != 12 && appended != IV_BYTES)
		return CKR_FUNCTION_FAILED;
	memset(item->tag, 0, sizeof(item->tag));
	memcpy(item->tag, item->out + item->in_bytes, item->tag_bytes);
	if (appended) {
		memcpy(item->iv, item->out + item->in_bytes + item->tag_bytes, appended);
		item->iv_bytes = appended;
	} else if (params->iv_len == item->iv_bytes) {
		memcpy(item->iv, params->iv_ptr, item->iv_bytes);
	}
	item->out_bytes = item->in_bytes;
	return CKR_OK;
}

static CK_RV gcm(struct naos_token *token, CK_SESSION_HANDLE session, CK_OBJECT_HANDLE key, struct naos_hsm_crypt *item)
{
	CK_FUNCTION_LIST *f = token->module->functions;
	uint8_t iv[NAOS_HSM_MAX_IV_BYTES];
	memcpy(iv, item->iv, sizeof(iv));
	CK_GCM_PARAMS params = { .iv_ptr = iv, .iv_len = item->iv_bytes, .iv_bits = 8 * item->iv_bytes,
				 .aad_ptr = (uint8_t *)item->associated, .aad_len = item->associated_bytes, .tag_bits = 8 * item->tag_bytes };
	CK_MECHANISM mechanism = { CKM_AES_GCM, &params, sizeof(params) };
	CK_RV rv = item->encrypt ? f->C_EncryptInit(session, &mechanism, key) : f->C_DecryptInit(session, &mechanism, key);
	if (rv != CKR_OK)
		return rv;
	return item->encrypt ? gcm_encrypt(f, session, &params, item) : gcm_decrypt(f, session, item);
}

/* ECB has no padding in PKCS#11. */
static CK_RV pad(const struct naos_hsm_crypt *item, struct naos_secret **ret, struct naos_error *err)
{
	size_t fill = BLOCK_BYTES - item->in_bytes % BLOCK_BYTES;
	if (naos_secret_create(item->in_bytes + fill, ret, err) != 0)
		return CKR_HOST_MEMORY;
	uint8_t *padded = naos_secret_data(*ret);
	if (item->in_bytes > 0)
		memcpy(padded, item->in, item->in_bytes); /* lint-ok: from slab to slab */
	memset(padded + item->in_bytes, (int)fill, fill);
	return CKR_OK;
}

static CK_RV unpad(struct naos_hsm_crypt *item)
{
	unsigned bad = item->out_bytes == 0 || item->out_bytes % BLOCK_BYTES != 0;
	uint8_t fill = bad ? 1 : item->out[item->out_bytes - 1];
	bad |= fill == 0 || fill > BLOCK_BYTES;
	for (size_t i = 1; !bad && i <= BLOCK_BYTES; i++)
		bad |= i <= fill && item->out[item->out_bytes - i] != fill;
	if (bad)
		return CKR_ENCRYPTED_DATA_INVALID;
	item->out_bytes -= fill;
	return CKR_OK;
}

static CK_RV block(struct naos_token *token, CK_SESSION_HANDLE session, CK_OBJECT_HANDLE key, struct naos_hsm_crypt *item)
{
	CK_FUNCTION_LIST *f = token->module->functions;
	CK_AES_CTR_PARAMS counter = { .counter_bits = 128 };
	CK_MECHANISM mechanism = { CKM_AES_ECB, NULL, 0 };
	naos_autosecret struct naos_secret *padded = NULL;
	const uint8_t *in = item->in;
	CK_ULONG in_bytes = item->in_bytes, bytes = item->in_bytes + NAOS_HSM_GROWTH_BYTES;
	CK_RV rv = CKR_OK;
	if (item->mode == NAOS_HSM_CBC || item->mode == NAOS_HSM_CBC_PKCS5)
		mechanism = (CK_MECHANISM){ item->mode == NAOS_HSM_CBC ? CKM_AES_CBC : CKM_AES_CBC_PAD, item->iv, IV_BYTES };
	if (item->mode == NAOS_HSM_CTR) {
		memcpy(counter.cb, item->iv, sizeof(counter.cb));
		mechanism = (CK_MECHANISM){ CKM_AES_CTR, &counter, sizeof(counter) };
	}
	if (item->mode == NAOS_HSM_ECB_PKCS5 && item->encrypt) {
		rv = pad(item, &padded, NULL);
		if (rv != CKR_OK)
			return rv;
		in = naos_secret_view(padded);
		in_bytes = naos_secret_bytes(padded);
	}
	rv = item->encrypt ? f->C_EncryptInit(session, &mechanism, key) : f->C_DecryptInit(session, &mechanism, key);
	if (rv == CKR_OK)
		rv = item->encrypt ? f->C_Encrypt(session, (uint8_t *)in, in_bytes, item->out, &bytes) :
				     f->C_Decrypt(session, (uint8_t *)in, in_bytes, item->out, &bytes);
	if (rv != CKR_OK)
		return rv;
	item->out_bytes = bytes;
	return item->mode == NAOS_HSM_ECB_PKCS5 && !item->encrypt ? unpad(item) : CKR_OK;
}

CK_RV naos_token_crypt(struct naos_token *token, CK_OBJECT_HANDLE key, struct naos_hsm_crypt *item, const char **ret_text)
{
	CK_SESSION_HANDLE session;
	bool whole_blocks = item->mode == NAOS_HSM_CBC || item->mode == NAOS_HSM_ECB ||
			    (!item->encrypt && (item->mode == NAOS_HSM_CBC_PKCS5 || item->mode == NAOS_HSM_ECB_PKCS5));
	*ret_text = NULL;
	if (item->mode == NAOS_HSM_KEY_WRAP)
		*ret_text = "a key inside the token never wraps others";
	else if (whole_blocks && (item->in_bytes == 0 || item->in_bytes % BLOCK_BYTES != 0))
		*ret_text = "the data are not whole blocks of 16 bytes";
	else if (!naos_hsm_prepare_iv(item))
		*ret_text = "the IV is missing or has a wrong length";
	if (*ret_text)
		return CKR_ARGUMENTS_BAD;
	if (naos_session_acquire(token, &session, NULL) != 0)
		return CKR_SESSION_COUNT;
	CK_RV rv = item->mode == NAOS_HSM_GCM ? gcm(token, session, key, item) : block(token, session, key, item);
	naos_session_release(token, session, rv);
	return rv;
}

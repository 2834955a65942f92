/* AES-GCM inside a token, with what HSMs do differently.  SPDX-License-Identifier: Apache-2.0 */
#include "keys/token.h"

#include <string.h>
#include <openssl/rand.h>

#define TAG_BYTES 16
#define IV_BYTES 12

static int refused(const struct naos_token *token, const char *doing, CK_RV rv, struct naos_error *err)
{
	char text[NAOS_RV_TEXT_BYTES];
	return naos_error_set(err, NAOS_E_KEYMANAGER, "token '%s' cannot %s: %s", token->label, doing, naos_rv_text(rv, text));
}

static CK_GCM_PARAMS parameters(uint8_t *iv, size_t iv_bytes, const struct naos_token_message *message)
{
	return (CK_GCM_PARAMS){ .iv_ptr = iv, .iv_len = iv_bytes, .iv_bits = 8 * iv_bytes, .aad_ptr = (uint8_t *)message->associated,
				.aad_len = message->associated_bytes, .tag_bits = 8 * TAG_BYTES };
}

/* Which IV was used?  SoftHSM takes ours.  Some modules write their own over it; Luna and ProtectServer in FIPS mode make
 * one of 16 (or 12) bytes and append it behind the tag. */
static bool take_output(const uint8_t *out, size_t out_bytes, size_t plain_bytes, const CK_GCM_PARAMS *params, const uint8_t *iv,
			struct naos_blob *blob)
{
	if (plain_bytes > sizeof(blob->ciphertext) || out_bytes < plain_bytes + TAG_BYTES)
		return false;
	size_t appended = out_bytes - plain_bytes - TAG_BYTES;
	size_t iv_bytes = appended ? appended : params->iv_len;
	if (iv_bytes != 12 && iv_bytes != NAOS_BLOB_MAX_IV_BYTES)
		return false;
	memset(blob->iv, 0, sizeof(blob->iv));
	memcpy(blob->iv, appended ? out + plain_bytes + TAG_BYTES : iv, iv_bytes);
	blob->iv_bytes = (uint8_t)iv_bytes;
	memcpy(blob->ciphertext, out, plain_bytes);
	blob->ciphertext_bytes = (uint16_t)plain_bytes;
	memcpy(blob->tag, out + plain_bytes, TAG_BYTES);
	return true;
}

static CK_RV encrypt(struct naos_token *token, CK_SESSION_HANDLE session, CK_OBJECT_HANDLE key, CK_GCM_PARAMS *params,
		     const uint8_t *plaintext, size_t bytes, uint8_t *out, CK_ULONG *out_bytes)
{
	CK_FUNCTION_LIST *f = token->module->functions;
	CK_MECHANISM mechanism = { CKM_AES_GCM, params, sizeof(*params) };
	CK_RV rv = f->C_EncryptInit(session, &mechanism, key);
	return rv != CKR_OK ? rv : f->C_Encrypt(session, (uint8_t *)plaintext, bytes, out, out_bytes);
}

int naos_token_seal(struct naos_token *token, CK_OBJECT_HANDLE key, const uint8_t *plaintext, size_t bytes,
		    const struct naos_token_message *message, struct naos_error *err)
{
	uint8_t iv[NAOS_BLOB_MAX_IV_BYTES] = { 0 }, out[NAOS_BLOB_MAX_CIPHERTEXT_BYTES + TAG_BYTES + NAOS_BLOB_MAX_IV_BYTES];
	CK_ULONG out_bytes = sizeof(out);
	CK_SESSION_HANDLE session;
	if (RAND_bytes(iv, IV_BYTES) != 1)
		return naos_error_set(err, NAOS_E_SYSTEM, "the random generator failed");
	CK_GCM_PARAMS params = parameters(iv, IV_BYTES, message);
	int rc = naos_session_acquire(token, &session, err);
	if (rc != 0)
		return rc;
	CK_RV rv = encrypt(token, session, key, &params, plaintext, bytes, out, &out_bytes);
	naos_session_release(token, session, rv);
	if (rv != CKR_OK)
		return refused(token, "encrypt", rv, err);
	if (!take_output(out, out_bytes, bytes, &params, iv, message->blob))
		return naos_error_set(err, NAOS_E_UNSUPPORTED, "token '%s' answers AES-GCM with %lu bytes for %zu and an IV of %lu: not known here",
				      token->label, out_bytes, bytes, params.iv_len);
	return 0;
}

static CK_RV decrypt(struct naos_token *token, CK_OBJECT_HANDLE key, const struct naos_token_message *message, uint8_t *plaintext,
		     CK_ULONG *bytes, int *ret_session_rc, struct naos_error *err)
{
	CK_FUNCTION_LIST *f = token->module->functions;
	const struct naos_blob *blob = message->blob;
	uint8_t in[NAOS_BLOB_MAX_CIPHERTEXT_BYTES + TAG_BYTES], iv[NAOS_BLOB_MAX_IV_BYTES];
	CK_SESSION_HANDLE session;
	*ret_session_rc = naos_session_acquire(token, &session, err);
	if (*ret_session_rc != 0)
		return CKR_SESSION_COUNT;
	memcpy(iv, blob->iv, sizeof(iv));
	memcpy(in, blob->ciphertext, blob->ciphertext_bytes);
	memcpy(in + blob->ciphertext_bytes, blob->tag, TAG_BYTES);
	CK_GCM_PARAMS params = parameters(iv, blob->iv_bytes, message);
	CK_MECHANISM mechanism = { CKM_AES_GCM, &params, sizeof(params) };
	CK_RV rv = f->C_DecryptInit(session, &mechanism, key);
	if (rv == CKR_OK)
		rv = f->C_Decrypt(session, in, (CK_ULONG)blob->ciphertext_bytes + TAG_BYTES, plaintext, bytes);
	naos_session_release(token, session, rv);
	return rv;
}

/* Answers that tokens give to a bad tag; SoftHSM before 2.7 and others say CKR_GENERAL_ERROR, which may also be a fault. */
static bool may_be_bad_tag(CK_RV rv)
{
	static const CK_RV aead_decrypt_failed = 0x42; /* PKCS#11 3.0 */
	return rv == CKR_GENERAL_ERROR || rv == CKR_FUNCTION_FAILED || rv == CKR_ENCRYPTED_DATA_INVALID ||
	       rv == CKR_ENCRYPTED_DATA_LEN_RANGE || rv == CKR_SIGNATURE_INVALID || rv == aead_decrypt_failed;
}

static bool opens(struct naos_token *token, CK_OBJECT_HANDLE key, const struct naos_token_message *known)
{
	uint8_t back[NAOS_TOKEN_PLAINTEXT_BYTES]; /* of a known plaintext, not of a secret */
	CK_ULONG bytes = sizeof(back);
	int rc;
	return decrypt(token, key, known, back, &bytes, &rc, NULL) == CKR_OK && rc == 0;
}

int naos_token_unseal(struct naos_token *token, CK_OBJECT_HANDLE key, const struct naos_token_message *message,
		      const struct naos_token_message *known, uint8_t *plaintext, size_t *ret_bytes,
		      struct naos_error *err)
{
	char text[NAOS_RV_TEXT_BYTES];
	CK_RV rv = CKR_OK;
	/* twice: a fault that passes must not look like damage */
	for (int attempt = 0; attempt < 2; attempt++) {
		CK_ULONG bytes = NAOS_TOKEN_PLAINTEXT_BYTES;
		int rc;
		rv = decrypt(token, key, message, plaintext, &bytes, &rc, err);
		if (rc != 0)
			return rc;
		if (rv == CKR_OK) {
			*ret_bytes = bytes;
			return 0;
		}
		if (!may_be_bad_tag(rv) || !opens(token, key, known))
			return refused(token, "decrypt", rv, err);
	}
	return naos_error_set(err, NAOS_E_INTEGRITY, "the wrapped key is damaged, or belongs to another object (token '%s': %s)", token->label,
			      naos_rv_text(rv, text));
}

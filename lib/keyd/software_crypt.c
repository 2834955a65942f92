/* AES modes by OpenSSL, for kept keys.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <openssl/evp.h>

#include "keyd/hsm_token.h"

#define BLOCK_BYTES 16

static void free_context(EVP_CIPHER_CTX **context)
{
	EVP_CIPHER_CTX_free(*context);
}

static const EVP_CIPHER *cipher_of(enum naos_hsm_mode mode, size_t key_bytes)
{
	const EVP_CIPHER *const table[][3] = {
		[NAOS_HSM_GCM] = { EVP_aes_128_gcm(), EVP_aes_192_gcm(), EVP_aes_256_gcm() },
		[NAOS_HSM_CBC_PKCS5] = { EVP_aes_128_cbc(), EVP_aes_192_cbc(), EVP_aes_256_cbc() },
		[NAOS_HSM_CBC] = { EVP_aes_128_cbc(), EVP_aes_192_cbc(), EVP_aes_256_cbc() },
		[NAOS_HSM_ECB_PKCS5] = { EVP_aes_128_ecb(), EVP_aes_192_ecb(), EVP_aes_256_ecb() },
		[NAOS_HSM_ECB] = { EVP_aes_128_ecb(), EVP_aes_192_ecb(), EVP_aes_256_ecb() },
		[NAOS_HSM_CTR] = { EVP_aes_128_ctr(), EVP_aes_192_ctr(), EVP_aes_256_ctr() },
		[NAOS_HSM_KEY_WRAP] = { EVP_aes_128_wrap(), EVP_aes_192_wrap(), EVP_aes_256_wrap() },
	};
	if (mode < NAOS_HSM_GCM || mode > NAOS_HSM_KEY_WRAP || (key_bytes != 16 && key_bytes != 24 && key_bytes != 32))
		return NULL;
	return table[mode][key_bytes / 8 - 2];
}

static bool start(EVP_CIPHER_CTX *context, const EVP_CIPHER *cipher, const uint8_t *key, struct naos_hsm_crypt *item)
{
	bool padded = item->mode == NAOS_HSM_CBC_PKCS5 || item->mode == NAOS_HSM_ECB_PKCS5, gcm = item->mode == NAOS_HSM_GCM;
	int written;
	EVP_CIPHER_CTX_set_flags(context, EVP_CIPHER_CTX_FLAG_WRAP_ALLOW);
	if (EVP_CipherInit_ex(context, cipher, NULL, NULL, NULL, item->encrypt) != 1 ||
	    (gcm && EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_IVLEN, (int)item->iv_bytes, NULL) != 1) ||
	    (gcm && !item->encrypt && EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, (int)item->tag_bytes, item->tag) != 1) ||
	    EVP_CipherInit_ex(context, NULL, NULL, key, item->iv_bytes ? item->iv : NULL, -1) != 1)
		return false;
	(void)EVP_CIPHER_CTX_set_padding(context, padded);
	return item->associated_bytes == 0 || !gcm ||
	       EVP_CipherUpdate(context, NULL, &written, item->associated, (int)item->associated_bytes) == 1;
}

int naos_software_crypt(const uint8_t *key, size_t key_bytes, struct naos_hsm_crypt *item, struct naos_error *err)
{
	const EVP_CIPHER *cipher = cipher_of(item->mode, key_bytes);
	naos_cleanup(free_context) EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
	int body = 0, rest = 0;
	if (!context)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a cipher");
	if (!cipher)
		return naos_error_set(err, NAOS_E_USAGE, "a key of %zu bytes is not an AES key", key_bytes);
	bool whole_blocks = item->mode == NAOS_HSM_CBC || item->mode == NAOS_HSM_ECB ||
			    (!item->encrypt && (item->mode == NAOS_HSM_CBC_PKCS5 || item->mode == NAOS_HSM_ECB_PKCS5));
	if ((whole_blocks && (item->in_bytes == 0 || item->in_bytes % BLOCK_BYTES != 0)) ||
	    (item->mode == NAOS_HSM_KEY_WRAP && (item->in_bytes < BLOCK_BYTES || item->in_bytes % 8 != 0)))
		return naos_error_set(err, NAOS_E_USAGE, "the data are not whole blocks");
	if (!naos_hsm_prepare_iv(item))
		return naos_error_set(err, NAOS_E_USAGE, "the IV is missing or has a wrong length");
	if (!start(context, cipher, key, item))
		return naos_error_set(err, NAOS_E_SYSTEM, "OpenSSL cannot start the cipher");
	if ((item->in_bytes > 0 && EVP_CipherUpdate(context, item->out, &body, item->in, (int)item->in_bytes) != 1) ||
	    EVP_CipherFinal_ex(context, item->out + body, &rest) != 1)
		return naos_error_set(err, NAOS_E_INTEGRITY, "the data do not belong to this key, or were changed");
	item->out_bytes = (size_t)(body + rest);
	if (item->mode == NAOS_HSM_GCM && item->encrypt) {
		memset(item->tag, 0, sizeof(item->tag));
		if (EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, (int)item->tag_bytes, item->tag) != 1)
			return naos_error_set(err, NAOS_E_SYSTEM, "OpenSSL gives no tag");
	}
	return 0;
}

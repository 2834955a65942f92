/* SPDX-License-Identifier: Apache-2.0 */
#include "fits/framekeys.h"

#include <string.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>

/* HKDF-SHA256 with the frame id as salt. */
static int derive(const struct naos_frame_manifest *manifest, enum naos_frame_part part, const char *purpose,
		  const struct naos_secret *key,
		  uint8_t *out, size_t out_bytes, struct naos_error *err)
{
	uint8_t info[64];
	struct naos_cursor w = naos_cursor_writer(info, sizeof(info));
	naos_cursor_put(&w, manifest->version == 1 ? "naos/fr/1/" : "naos/fr/2/", 10);
	naos_cursor_put(&w, purpose, strlen(purpose) + 1);
	naos_cursor_put_u8(&w, (uint8_t)part);
	naos_cursor_put_u8(&w, (uint8_t)manifest->algorithm);
	naos_cursor_put(&w, manifest->collection_id.bytes, NAOS_UUID_BYTES);
	EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
	EVP_KDF_CTX *context = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)(uintptr_t)"SHA256", 0),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)(uintptr_t)naos_secret_view(key),
			naos_secret_bytes(key)),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)(uintptr_t)manifest->frame_id.bytes,
			NAOS_UUID_BYTES),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info, w.position),
		OSSL_PARAM_construct_end(),
	};
	bool ok = context && naos_cursor_ok(&w) && EVP_KDF_derive(context, out, out_bytes, params) == 1;
	EVP_KDF_CTX_free(context);
	EVP_KDF_free(kdf);
	return ok ? 0 : naos_error_set(err, NAOS_E_SYSTEM, "key derivation (HKDF-SHA256) failed in the cryptographic library");
}

int naos_frame_key_derive(const struct naos_frame_manifest *manifest, enum naos_frame_part part, const struct naos_secret *key,
			  uint8_t ret_commit[static NAOS_FRAME_COMMIT_BYTES], struct naos_secret **ret, struct naos_error *err)
{
	size_t bytes = naos_secret_bytes(key), wanted = naos_algorithm_key_bytes(manifest->algorithm);
	naos_autosecret struct naos_secret *derived = NULL;
	uint8_t commit[NAOS_FRAME_COMMIT_BYTES];
	if (bytes != 16 && bytes != 32)
		return naos_error_set(err, NAOS_E_USAGE, "the %s key has %zu bytes; it must have 16 or 32",
				      part == NAOS_FRAME_HEADER ? "header" : "data", bytes);
	int rc = derive(manifest, part, "commit", key, commit, sizeof(commit), err);
	if (rc == 0 && ret)
		rc = naos_secret_create(wanted, &derived, err);
	if (rc == 0 && ret)
		rc = derive(manifest, part, manifest->version == 1 ? "message" : "segments", key, naos_secret_data(derived), wanted, err);
	if (rc != 0)
		return rc;
	memcpy(ret_commit, commit, sizeof(commit));
	if (ret)
		*ret = naos_steal(derived);
	return 0;
}

void naos_frame_associated(const struct naos_frame_manifest *manifest, const struct naos_frame_row *row, uint64_t total,
			   uint8_t ret[static NAOS_FRAME_ASSOCIATED_BYTES])
{
	struct naos_cursor w = naos_cursor_writer(ret, NAOS_FRAME_ASSOCIATED_BYTES);
	naos_cursor_put(&w, "NFR2SEG1", 8);
	naos_cursor_put(&w, manifest->frame_id.bytes, NAOS_UUID_BYTES);
	naos_cursor_put(&w, manifest->digest, sizeof(manifest->digest));
	naos_cursor_put_u8(&w, (uint8_t)row->part);
	naos_cursor_put_zero(&w, 3);
	naos_cursor_put_u32(&w, row->hdu);
	naos_cursor_put_u64(&w, row->index);
	naos_cursor_put_u64(&w, total);
	naos_cursor_put_u64(&w, row->bytes);
}

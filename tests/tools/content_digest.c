/* Digest of what a sealed file reads as.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <openssl/evp.h>

#include "base/cursor.h"
#include "content_digest.h"

static int add_range(struct naos_sealed_file *file, EVP_MD_CTX *sha, uint64_t start, uint64_t end, bool numbered, struct naos_error *err)
{
	uint8_t chunk[NAOS_CHUNK_BYTES], number[8];
	for (uint64_t at = start; at < end; at += NAOS_CHUNK_BYTES) {
		size_t got;
		int rc = naos_sealed_file_read(file, chunk, sizeof(chunk), at, &got, err);
		if (rc != 0)
			return rc;
		if (!numbered) {
			(void)EVP_DigestUpdate(sha, chunk, got);
			continue;
		}
		memset(chunk + got, 0, sizeof(chunk) - got);
		if (naos_is_zero(chunk, sizeof(chunk)))
			continue;
		struct naos_cursor w = naos_cursor_writer(number, sizeof(number));
		naos_cursor_put_u64(&w, at / NAOS_CHUNK_BYTES);
		(void)EVP_DigestUpdate(sha, number, sizeof(number));
		(void)EVP_DigestUpdate(sha, chunk, sizeof(chunk));
	}
	return 0;
}

int content_digest(struct naos_sealed_file *file, char ret[static DIGEST_TEXT_BYTES], struct naos_error *err)
{
	uint64_t size = naos_sealed_file_size(file);
	bool numbered = size > PLAIN_DIGEST_MAX;
	EVP_MD_CTX *sha = EVP_MD_CTX_new();
	uint8_t sum[32];
	int rc = sha && EVP_DigestInit_ex(sha, EVP_sha256(), NULL) == 1 ? 0 : naos_error_set(err, NAOS_E_SYSTEM, "no SHA-256");
	for (uint64_t at = 0, start = 0, end = size; rc == 0 && at < size; at = end) {
		if (numbered)
			rc = naos_sealed_file_next_data(file, at, &start, &end, err);
		if (rc == 0)
			rc = add_range(file, sha, start, end, numbered, err);
	}
	if (rc == 0 && EVP_DigestFinal_ex(sha, sum, NULL) == 1) {
		int used = snprintf(ret, DIGEST_TEXT_BYTES, "%s:", numbered ? "data" : "sha256");
		for (unsigned i = 0; i < sizeof(sum); i++)
			used += snprintf(ret + used, 3, "%02x", sum[i]);
	}
	EVP_MD_CTX_free(sha);
	return rc;
}

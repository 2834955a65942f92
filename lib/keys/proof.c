/* The known answer of a key.  SPDX-License-Identifier: Apache-2.0 */
#include "keys/token.h"

#include <string.h>

static const uint8_t known_plaintext[NAOS_BLOB_MAX_CIPHERTEXT_BYTES] = "naos known answer: this text is sealed when a MEK is made       ";

struct naos_token_message naos_proof_message(const struct naos_blob *proof, uint8_t *associated)
{
	static const struct naos_wrap_context none; /* kind 0: no object's wrapped key can stand in for a proof */
	naos_blob_associated(&none, proof, associated);
	return (struct naos_token_message){ .associated = associated, .associated_bytes = NAOS_BLOB_ASSOCIATED_BYTES,
					    .blob = (struct naos_blob *)proof };
}

int naos_proof_make(struct naos_token *token, CK_OBJECT_HANDLE key, const struct naos_mek *mek, struct naos_blob *ret,
		    struct naos_error *err)
{
	struct naos_blob proof = { .mek_id = mek->id, .mek_version = mek->version, .algorithm = NAOS_WRAP_AES_256_GCM };
	uint8_t associated[NAOS_BLOB_ASSOCIATED_BYTES];
	struct naos_token_message message = naos_proof_message(&proof, associated);
	int rc = naos_token_seal(token, key, known_plaintext, sizeof(known_plaintext), &message, err);
	if (rc == 0)
		*ret = proof;
	return rc;
}

int naos_proof_check(struct naos_token *token, CK_OBJECT_HANDLE key, const struct naos_blob *proof, struct naos_error *err)
{
	uint8_t associated[NAOS_BLOB_ASSOCIATED_BYTES], back[NAOS_TOKEN_PLAINTEXT_BYTES], own_associated[NAOS_BLOB_ASSOCIATED_BYTES];
	char id[NAOS_UUID_TEXT_BYTES];
	const struct naos_mek mek = { .id = proof->mek_id, .version = proof->mek_version };
	struct naos_token_message message = naos_proof_message(proof, associated);
	struct naos_blob own;
	size_t bytes = 0;
	int rc = naos_token_unseal(token, key, &message, &message, back, &bytes, err);
	if (rc == 0 && bytes == sizeof(known_plaintext) && memcmp(back, known_plaintext, bytes) == 0)
		return 0;
	if (rc == NAOS_E_KEYMANAGER) { /* another key, or a fault of the token?  A fresh proof tells. */
		if (naos_proof_make(token, key, &mek, &own, NULL) != 0)
			return rc;
		message = naos_proof_message(&own, own_associated);
		if (naos_token_unseal(token, key, &message, &message, back, &bytes, NULL) != 0)
			return rc;
	}
	return naos_error_set(err, NAOS_E_WRONG_KEY, "token '%s' holds another key under the id of key %s version %u: was the token replaced?",
			      token->label, naos_uuid_format(&proof->mek_id, id), proof->mek_version);
}

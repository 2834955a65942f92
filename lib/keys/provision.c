/* Creation and destruction of keys as rows of durable steps.  SPDX-License-Identifier: Apache-2.0 */
#include "keys/provision.h"

#include "keys/softhsm.h"

#define PROOF_USES 2 /* wraps that the known-answer test makes */

static int make_durable(struct naos_token *token, struct naos_error *err)
{
	return token->module->softhsm ? naos_softhsm_sync(token->serial, err) : 0;
}

static int destroy_objects(struct naos_token *token, const struct naos_mek *mek, struct naos_error *err)
{
	size_t count = 0;
	int rc = naos_token_enter_alone(token, err);
	if (rc != 0)
		return rc;
	rc = naos_token_destroy(token, mek, &count, err);
	naos_token_leave(token);
	if (rc == 0 && count > 0)
		rc = make_durable(token, err);
	return rc;
}

/* The lock over token objects is held: what is in phase creating belongs to a dead process. */
static int sweep_creations(struct naos_key_store *store, struct naos_token *token, const struct naos_key_store_row *rows,
		size_t count,
			   struct naos_error *err)
{
	size_t swept = 0, pending = 0;
	uint64_t epoch;
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < count; i++)
		if (rows[i].phase == NAOS_KEY_STORE_CREATING) {
			pending++;
			rc = destroy_objects(token, &rows[i].mek, err);
		}
	if (rc != 0 || pending == 0)
		return rc;
	if (token->module->softhsm) {
		rc = naos_softhsm_sweep_stunted(token->serial, &swept, err);
		if (rc == 0)
			rc = naos_token_enter(token, &epoch, err);
		if (rc != 0)
			return rc;
		rc = naos_token_sweep_partial(token, &swept, err);
		naos_token_leave(token);
	}
	for (size_t i = 0; rc == 0 && i < count; i++)
		if (rows[i].phase == NAOS_KEY_STORE_CREATING)
			rc = naos_key_store_abandon_create(store, &rows[i].mek, err);
	return rc;
}

static int count_objects(struct naos_token *token, const struct naos_mek *mek, size_t *ret_count, struct naos_error *err)
{
	uint64_t epoch;
	int rc = naos_token_reopen(token, err);
	if (rc == 0)
		rc = naos_token_enter(token, &epoch, err);
	if (rc != 0)
		return rc;
	rc = naos_token_find(token, mek, ret_count, err);
	naos_token_leave(token);
	return rc;
}

/* A token may drop the handle before the object, which then returns at its next start: so look again after re-opening. */
static int finish_destroy(struct naos_key_store *store, struct naos_token *token, const struct naos_mek *mek,
		struct naos_error *err)
{
	size_t left = 1;
	int rc = 0;
	for (int attempt = 0; rc == 0 && left > 0 && attempt < 3; attempt++) {
		rc = destroy_objects(token, mek, err);
		if (rc == 0)
			rc = count_objects(token, mek, &left, err);
	}
	if (rc == 0 && left > 0)
		rc = naos_error_set(err, NAOS_E_KEYMANAGER, "token '%s' says that it destroyed a key but has it still",
				token->label);
	if (rc == 0)
		return naos_key_store_settle(store, mek, err);
	return naos_error_prefix(err, rc,
			"version %u of '%s' is recorded as destroyed, its object is not gone yet (run the command again)",
				 mek->version, mek->name);
}

static int sweep(struct naos_key_store *store, struct naos_token *token, struct naos_error *err)
{
	naos_autofree struct naos_key_store_row *rows = NULL;
	size_t count;
	int rc = naos_key_store_list(store, &rows, &count, err);
	if (rc == 0)
		rc = sweep_creations(store, token, rows, count, err);
	for (size_t i = 0; rc == 0 && i < count; i++)
		if (rows[i].phase == NAOS_KEY_STORE_DESTROYING)
			rc = finish_destroy(store, token, &rows[i].mek, err);
	return rc;
}

int naos_provision_sweep(struct naos_key_store *store, struct naos_token *token, struct naos_error *err)
{
	naos_autofree struct naos_key_store_row *rows = NULL;
	naos_autoclose int lock = -1;
	size_t count;
	bool pending = false;
	int rc = naos_key_store_list(store, &rows, &count, err);
	for (size_t i = 0; rc == 0 && i < count; i++)
		pending |= rows[i].phase != NAOS_KEY_STORE_SETTLED;
	if (rc != 0 || !pending)
		return rc;
	rc = naos_key_store_lock(store, true, false, &lock, err);
	return rc == NAOS_E_BUSY ? 0 : rc ? rc : sweep(store, token, err);
}

static int generate(struct naos_token *token, const struct naos_mek *mek, struct naos_blob *ret_proof, struct naos_error *err)
{
	CK_OBJECT_HANDLE key;
	uint64_t epoch;
	int rc = naos_token_enter(token, &epoch, err);
	if (rc != 0)
		return rc;
	rc = naos_token_generate(token, mek, &key, err);
	if (rc == 0)
		rc = naos_proof_make(token, key, mek, ret_proof, err);
	naos_token_leave(token);
	return rc;
}

/* What was sealed before the re-opening was opened when the key was made ready.  A new one must open too, a damaged one not. */
static int test_key(struct naos_token *token, CK_OBJECT_HANDLE key, const struct naos_mek *mek, const struct naos_blob *proof,
		    struct naos_error *err)
{
	uint8_t associated[NAOS_BLOB_ASSOCIATED_BYTES], known_associated[NAOS_BLOB_ASSOCIATED_BYTES],
			back[NAOS_TOKEN_PLAINTEXT_BYTES];
	struct naos_blob second;
	struct naos_error ignored;
	size_t bytes;
	int rc = naos_proof_make(token, key, mek, &second, err);
	if (rc == 0)
		rc = naos_proof_check(token, key, &second, err);
	if (rc != 0)
		return rc;
	second.tag[0] ^= 1;
	struct naos_token_message damaged = naos_proof_message(&second, associated), known = naos_proof_message(proof,
			known_associated);
	rc = naos_token_unseal(token, key, &damaged, &known, back, &bytes, &ignored);
	if (rc == NAOS_E_INTEGRITY)
		return 0;
	return rc ? naos_error_set(err, rc, "%s", ignored.message) :
		    naos_error_set(err, NAOS_E_SELFTEST, "token '%s' does not check the tag of AES-GCM: it must not be used",
				token->label);
}

static int prove(struct naos_token *token, const struct naos_mek *mek, const struct naos_blob *proof, struct naos_error *err)
{
	CK_OBJECT_HANDLE key = 0;
	size_t count = 0;
	uint64_t epoch;
	int rc = count_objects(token, mek, &count, err);
	if (rc == 0)
		rc = naos_token_enter(token, &epoch, err);
	if (rc != 0)
		return rc;
	rc = naos_token_key(token, mek, proof, &key, err);
	if (rc == 0 && count == 1 && key != 0)
		rc = test_key(token, key, mek, proof, err);
	else if (rc == 0)
		rc = naos_error_set(err, NAOS_E_KEYMANAGER, "token '%s' made a key, but has %zu of it after re-opening",
				token->label, count);
	naos_token_leave(token);
	return rc;
}

int naos_provision_create(struct naos_key_store *store, struct naos_token *token, const char *name, bool rotating,
		struct naos_mek *ret,
			  struct naos_error *err)
{
	naos_autoclose int lock = -1;
	struct naos_mek mek;
	struct naos_blob proof;
	int rc = naos_key_store_lock(store, true, true, &lock, err);
	if (rc == 0)
		rc = sweep(store, token, err);
	if (rc == 0)
		rc = naos_key_store_begin_create(store, name, rotating, &mek, err);
	if (rc != 0)
		return rc;
	rc = generate(token, &mek, &proof, err);
	if (rc == 0)
		rc = make_durable(token, err);
	if (rc == 0)
		rc = prove(token, &mek, &proof, err);
	if (rc != 0) {
		int swept = sweep(store, token, NULL);
		(void)swept; /* what can't be cleared away now is found by its row at the next start */
		return rc;
	}
	/* if this fails, nobody knows whether it is on the disk: the key stays, and the next start decides by what it reads */
	rc = naos_key_store_finish_create(store, &mek, &proof, PROOF_USES, err);
	if (rc == 0)
		*ret = mek;
	return rc;
}

int naos_provision_destroy(struct naos_key_store *store, struct naos_token *token, const char *name, uint32_t version,
		struct naos_error *err)
{
	naos_autoclose int lock = -1;
	struct naos_mek mek;
	int rc = naos_key_store_lock(store, true, true, &lock, err);
	if (rc == 0)
		rc = naos_key_store_set_state(store, name, version, NAOS_MEK_DESTROYED, &mek, err);
	return rc ? rc : finish_destroy(store, token, &mek, err);
}

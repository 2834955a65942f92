/* Keys of the HSM worker: in the token by id, kept ones under the storage key.  SPDX-License-Identifier: Apache-2.0 */
#include "keyd/hsm_token.h"

#include <string.h>
#include <openssl/evp.h>

#include "keyd/kept.h"
#include "keys/provision.h"
#include "keys/softhsm.h"

#define STORAGE_KEY "keyd.storage"
#define TAG_BYTES 16

struct naos_hsm_token {
	struct naos_token *token;
	struct naos_key_store *store;
	pthread_rwlock_t lock; /* over rows */
	struct naos_key_store_row *rows; /* sorted by name; a resident key's name is its id as text */
	size_t row_count;
	struct naos_mek storage; /* the version that wraps */
};

static int refresh(struct naos_hsm_token *t, struct naos_error *err)
{
	struct naos_key_store_row *rows = NULL;
	size_t count = 0;
	int rc = naos_key_store_list(t->store, &rows, &count, err);
	if (rc != 0)
		return rc;
	(void)pthread_rwlock_wrlock(&t->lock);
	struct naos_key_store_row *former = t->rows;
	t->rows = rows;
	t->row_count = count;
	(void)pthread_rwlock_unlock(&t->lock);
	free(former);
	return 0;
}

/* The row of a version, 0 for the newest settled one. */
static bool find_row(struct naos_hsm_token *t, const char *name, uint32_t version, struct naos_key_store_row *ret)
{
	bool found = false;
	(void)pthread_rwlock_rdlock(&t->lock);
	size_t low = 0, high = t->row_count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (strcmp(t->rows[middle].mek.name, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < t->row_count && strcmp(t->rows[low].mek.name, name) == 0; low++)
		if (t->rows[low].phase == NAOS_KEY_STORE_SETTLED && (version == 0 || t->rows[low].mek.version == version)) {
			*ret = t->rows[low];
			found = true;
		}
	(void)pthread_rwlock_unlock(&t->lock);
	return found;
}

static int search_token(struct naos_hsm_token *t, struct naos_error *err)
{
	naos_autoclose int lock = -1;
	uint64_t epoch;
	int rc = naos_key_store_lock(t->store, false, true, &lock, err);
	if (rc == 0 && t->token->module->softhsm && !naos_softhsm_is_present(t->token->serial))
		rc = naos_error_set(err, NAOS_E_KEYMANAGER, "the directory of token '%s' is away or can't be read",
				t->token->label);
	if (rc == 0)
		rc = naos_token_enter(t->token, &epoch, err);
	if (rc != 0)
		return rc;
	rc = naos_token_search(t->token, err);
	naos_token_leave(t->token);
	return rc;
}

/* Entered on return if 0. */
static int enter_with_key(struct naos_hsm_token *t, const struct naos_key_store_row *row, CK_OBJECT_HANDLE *ret, uint64_t *epoch,
			  struct naos_error *err)
{
	for (int attempt = 0;; attempt++) {
		CK_OBJECT_HANDLE key = 0;
		int rc = naos_token_enter(t->token, epoch, err);
		if (rc != 0)
			return rc;
		rc = naos_token_key(t->token, &row->mek, &row->proof, &key, err);
		if (rc == 0 && key != 0) {
			*ret = key;
			return 0;
		}
		naos_token_leave(t->token);
		if (attempt > 0)
			return rc ? rc : naos_error_set(err, NAOS_E_NOKEY,
					"token '%s' has no object for key %s: was the token replaced, or "
							"restored from an older backup?", t->token->label, row->mek.name);
		if (rc == 0 || rc == NAOS_E_KEYMANAGER) /* no such object, or no longer: it was re-opened meanwhile */
			rc = search_token(t, err);
		if (rc != 0)
			return rc;
	}
}

/* Answers that tokens give to a bad tag or padding; SoftHSM before 2.7 says CKR_GENERAL_ERROR, which may also be a fault. */
static bool may_be_bad_data(CK_RV rv)
{
	return rv == CKR_GENERAL_ERROR || rv == CKR_FUNCTION_FAILED || rv == CKR_ENCRYPTED_DATA_INVALID ||
	       rv == CKR_ENCRYPTED_DATA_LEN_RANGE || rv == CKR_SIGNATURE_INVALID ||
			rv == 0x42 /* PKCS#11 3.0: AEAD decrypt failed */;
}

static int token_answer(struct naos_hsm_token *t, const struct naos_key_store_row *row, CK_OBJECT_HANDLE key,
			const struct naos_hsm_crypt *item, CK_RV rv, struct naos_error *err)
{
	char text[NAOS_RV_TEXT_BYTES];
	if (!item->encrypt && may_be_bad_data(rv) && naos_proof_check(t->token, key, &row->proof, NULL) == 0)
		return naos_error_set(err, NAOS_E_INTEGRITY, "the data do not belong to this key, or were changed");
	if (rv == CKR_DATA_LEN_RANGE || rv == CKR_MECHANISM_PARAM_INVALID || rv == CKR_MECHANISM_INVALID)
		return naos_error_set(err, NAOS_E_UNSUPPORTED, "token '%s' does not do this: %s", t->token->label,
				naos_rv_text(rv, text));
	return naos_error_set(err, NAOS_E_KEYMANAGER, "token '%s' cannot %s: %s", t->token->label, item->encrypt ?
			"encrypt" : "decrypt",
			      naos_rv_text(rv, text));
}

static int crypt_in_token(struct naos_hsm_token *t, const char *name, uint32_t version, struct naos_hsm_crypt *item,
			  struct naos_error *err)
{
	struct naos_key_store_row row;
	if (!find_row(t, name, version, &row))
		return naos_error_set(err, NAOS_E_NOKEY, "the HSM worker has no key %s", name);
	const size_t iv_bytes = item->iv_bytes;
	for (int attempt = 0;; attempt++) {
		CK_OBJECT_HANDLE key = 0;
		uint64_t epoch = 0;
		const char *refusal = NULL;
		int rc = enter_with_key(t, &row, &key, &epoch, err);
		if (rc == 0) {
			CK_RV rv = naos_token_crypt(t->token, key, item, &refusal);
			rc = refusal ? naos_error_set(err, NAOS_E_USAGE, "%s", refusal) :
			     rv != CKR_OK ? token_answer(t, &row, key, item, rv, err) : 0;
			naos_token_leave(t->token);
		}
		if (rc != NAOS_E_KEYMANAGER || attempt > 0 || naos_token_recover(t->token, epoch, NULL) != 0)
			return rc;
		item->iv_bytes = iv_bytes;
	}
}

/* The value of a kept key, in a secret of its own. */
static int open_kept(struct naos_hsm_token *t, const struct naos_hsm_key *key, struct naos_secret **ret, struct naos_error *err)
{
	uint8_t associated[NAOS_KEPT_ASSOCIATED_BYTES];
	struct naos_kept kept;
	naos_autosecret struct naos_secret *value = NULL;
	if (!naos_kept_decode(key->kept, key->kept_bytes, &kept))
		return naos_error_set(err, NAOS_E_FORMAT, "a kept key of the database is damaged");
	naos_kept_associated(&key->id, associated);
	int rc = naos_secret_create(kept.ciphertext_bytes + NAOS_HSM_GROWTH_BYTES, &value, err);
	if (rc != 0)
		return rc;
	struct naos_hsm_crypt item = { .mode = NAOS_HSM_GCM, .iv_bytes = kept.iv_bytes, .associated = associated,
				       .associated_bytes = sizeof(associated), .in = kept.ciphertext,
						.in_bytes = kept.ciphertext_bytes,
				       .out = naos_secret_data(value), .tag_bytes = TAG_BYTES };
	memcpy(item.iv, kept.iv, sizeof(kept.iv));
	memcpy(item.tag, kept.tag, sizeof(item.tag));
	rc = crypt_in_token(t, STORAGE_KEY, kept.storage_version, &item, err);
	if (rc != 0)
		return rc;
	naos_secret_shrink(value, item.out_bytes);
	*ret = naos_steal(value);
	return 0;
}

static int keep(struct naos_hsm_token *t, struct naos_hsm_crypt *job, const uint8_t *value, size_t bytes, struct naos_error *err)
{
	uint8_t associated[NAOS_KEPT_ASSOCIATED_BYTES];
	naos_kept_associated(&job->key.id, associated);
	if (bytes == 0 || bytes > NAOS_HSM_MAX_VALUE_BYTES)
		return naos_error_set(err, NAOS_E_LIMIT, "a value of %zu bytes can't be kept: 1 to %zu can", bytes,
				NAOS_HSM_MAX_VALUE_BYTES);
	/* the token may write more than the ciphertext behind it, so the header goes in front afterwards */
	naos_autofree uint8_t *sealed = malloc(bytes + NAOS_HSM_GROWTH_BYTES);
	if (!sealed)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a kept key");
	struct naos_hsm_crypt item = { .encrypt = true,
				       .mode = NAOS_HSM_GCM,
				       .associated = associated,
				       .associated_bytes = sizeof(associated),
				       .in = value,
				       .in_bytes = bytes,
				       .out = sealed,
				       .tag_bytes = TAG_BYTES };
	int rc = crypt_in_token(t, STORAGE_KEY, t->storage.version, &item, err);
	if (rc != 0)
		return rc;
	struct naos_kept kept = { .storage_version = t->storage.version, .iv_bytes = item.iv_bytes };
	memcpy(kept.iv, item.iv, sizeof(kept.iv));
	memcpy(kept.tag, item.tag, sizeof(kept.tag));
	struct naos_cursor out = naos_cursor_writer(job->out, bytes + NAOS_HSM_GROWTH_BYTES);
	naos_kept_encode(&kept, &out);
	naos_cursor_put(&out, sealed, item.out_bytes);
	job->out_bytes = out.position;
	return naos_cursor_ok(&out) ? 0 : naos_error_set(err, NAOS_E_FORMAT, "a kept key can't be written");
}

static int create_kept(struct naos_hsm_token *t, struct naos_hsm_crypt *item, size_t bytes, struct naos_error *err)
{
	naos_autosecret struct naos_secret *value = NULL;
	int rc = naos_secret_random(bytes ? bytes : 1, &value, err);
	return rc ? rc : keep(t, item, naos_secret_view(value), bytes, err);
}

static int create_resident(struct naos_hsm_token *t, const struct naos_uuid *id, struct naos_error *err)
{
	char name[NAOS_UUID_TEXT_BYTES];
	struct naos_key_store_row row;
	struct naos_mek mek;
	if (find_row(t, naos_uuid_format(id, name), 0, &row))
		return 0;
	int rc = naos_provision_create(t->store, t->token, name, false, &mek, err);
	if (rc == NAOS_E_EXISTS && refresh(t, err) == 0 && find_row(t, name, 0, &row) && row.mek.state == NAOS_MEK_ACTIVE)
		rc = 0; /* an earlier attempt whose answer was lost */
	if (rc == 0)
		rc = refresh(t, err);
	return rc ? rc : search_token(t, err);
}

static int destroy_resident(struct naos_hsm_token *t, const struct naos_uuid *id, struct naos_error *err)
{
	char name[NAOS_UUID_TEXT_BYTES];
	struct naos_key_store_row row;
	struct naos_mek mek;
	naos_uuid_format(id, name);
	int rc, tries = 3;
	do { /* a creation by another thread may end just now: its key is active then, though it was not here when we looked */
		rc = refresh(t, err);
		if (rc != 0)
			return rc;
		bool settled = find_row(t, name, 0, &row);
		if (settled && row.mek.state == NAOS_MEK_DESTROYED)
			return 0;
		if (settled && row.mek.state == NAOS_MEK_ACTIVE)
			rc = naos_key_store_set_state(t->store, name, 0, NAOS_MEK_REVOKED, &mek, err);
		if (rc == 0)
			rc = naos_provision_destroy(t->store, t->token, name, 0, err);
	} while (rc == NAOS_E_KEY_STATE && --tries > 0);
	if (rc == NAOS_E_NOKEY)
		rc = 0;
	int after = refresh(t, NULL), found = search_token(t, NULL);
	(void)after; /* the next use looks again */
	(void)found;
	return rc;
}

static int digest(struct naos_hsm_token *t, struct naos_hsm_crypt *item, struct naos_error *err)
{
	naos_autosecret struct naos_secret *value = NULL;
	int rc = open_kept(t, &item->key, &value, err);
	if (rc != 0)
		return rc;
	if (EVP_Digest(naos_secret_view(value), naos_secret_bytes(value), item->out, NULL, EVP_sha256(), NULL) != 1)
		return naos_error_set(err, NAOS_E_SYSTEM, "OpenSSL cannot compute SHA-256");
	item->out_bytes = 32;
	return 0;
}

static int release(struct naos_hsm_token *t, struct naos_hsm_crypt *item, struct naos_error *err)
{
	naos_autosecret struct naos_secret *value = NULL;
	int rc = open_kept(t, &item->key, &value, err);
	if (rc != 0)
		return rc;
	item->out_bytes = naos_secret_bytes(value);
	memcpy(item->out, naos_secret_view(value), item->out_bytes); /* lint-ok: from slab to slab */
	return 0;
}

static int crypt_with(struct naos_hsm_token *t, struct naos_hsm_crypt *item, struct naos_error *err)
{
	naos_autosecret struct naos_secret *value = NULL;
	char name[NAOS_UUID_TEXT_BYTES];
	if (item->key.resident)
		return crypt_in_token(t, naos_uuid_format(&item->key.id, name), 0, item, err);
	int rc = open_kept(t, &item->key, &value, err);
	return rc ? rc : naos_software_crypt(naos_secret_view(value), naos_secret_bytes(value), item, err);
}

/* From the token's generator. */
static int random_bytes(struct naos_hsm_token *t, struct naos_hsm_crypt *item, size_t bytes, struct naos_error *err)
{
	CK_SESSION_HANDLE session;
	char text[NAOS_RV_TEXT_BYTES];
	uint64_t epoch;
	int rc = naos_token_enter(t->token, &epoch, err);
	if (rc != 0)
		return rc;
	rc = naos_session_acquire(t->token, &session, err);
	if (rc == 0) {
		CK_RV rv = t->token->module->functions->C_GenerateRandom(session, item->out, bytes);
		naos_session_release(t->token, session, rv);
		if (rv != CKR_OK)
			rc = naos_error_set(err, NAOS_E_KEYMANAGER, "token '%s' gives no random bytes: %s", t->token->label,
					    naos_rv_text(rv, text));
		else
			item->out_bytes = bytes;
	}
	naos_token_leave(t->token);
	return rc;
}

void naos_hsm_token_run(struct naos_hsm_token *t, const struct naos_hsm_job *job)
{
	struct naos_hsm_crypt *item = job->item;
	item->out_bytes = 0;
	switch (job->operation) {
	case NAOS_HSM_CREATE: item->result = create_resident(t, &item->key.id, &item->error); break;
	case NAOS_HSM_DESTROY: item->result = destroy_resident(t, &item->key.id, &item->error); break;
	case NAOS_HSM_CRYPT: item->result = crypt_with(t, item, &item->error); break;
	case NAOS_HSM_KEEP: item->result = keep(t, item, item->in, item->in_bytes, &item->error); break;
	case NAOS_HSM_RELEASE: item->result = release(t, item, &item->error); break;
	case NAOS_HSM_CREATE_KEPT: item->result = create_kept(t, item, job->wanted, &item->error); break;
	case NAOS_HSM_DIGEST: item->result = digest(t, item, &item->error); break;
	case NAOS_HSM_RANDOM: item->result = random_bytes(t, item, job->wanted, &item->error); break;
	default: item->result = naos_error_set(&item->error, NAOS_E_UNSUPPORTED, "the HSM worker does not know this operation");
	}
	if (item->result != 0 && item->out) /* nothing unverified leaves */
		naos_wipe(item->out, naos_hsm_output_bytes(job));
}

/* The storage key: made once, or found. */
static int prepare_storage(struct naos_hsm_token *t, struct naos_error *err)
{
	struct naos_key_store_row row;
	int rc = refresh(t, err);
	if (rc == 0 && !find_row(t, STORAGE_KEY, 0, &row)) {
		rc = naos_provision_create(t->store, t->token, STORAGE_KEY, false, &row.mek, err);
		if (rc == 0)
			rc = refresh(t, err);
		if (rc == 0)
			rc = search_token(t, err);
	}
	if (rc == 0)
		t->storage = row.mek;
	return rc;
}

int naos_hsm_token_open(const char *uri, const char *store_path, struct naos_hsm_token **ret, struct naos_error *err)
{
	struct naos_hsm_token *t = calloc(1, sizeof(*t));
	if (!t)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the HSM worker");
	(void)pthread_rwlock_init(&t->lock, NULL);
	int rc = naos_token_open(uri, &t->token, err);
	if (rc == 0)
		rc = naos_key_store_open(store_path, &t->store, err);
	if (rc == 0)
		rc = naos_provision_sweep(t->store, t->token, err);
	if (rc == 0)
		rc = search_token(t, err);
	if (rc == 0)
		rc = prepare_storage(t, err);
	if (rc != 0)
		t = naos_hsm_token_close(t);
	else
		*ret = t;
	return rc;
}

struct naos_hsm_token *naos_hsm_token_close(struct naos_hsm_token *t)
{
	if (!t)
		return NULL;
	(void)naos_key_store_close(t->store);
	(void)naos_token_close(t->token);
	(void)pthread_rwlock_destroy(&t->lock);
	free(t->rows);
	free(t);
	return NULL;
}

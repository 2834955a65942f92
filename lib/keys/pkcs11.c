/* The PKCS#11 provider: metadata from the store, keys in the token.  SPDX-License-Identifier: Apache-2.0 */
#include "keys/pkcs11.h"

#include <stdatomic.h>
#include <string.h>
#include <openssl/evp.h>

#include "keys/cache.h"
#include "keys/provision.h"
#include "keys/softhsm.h"

#define DIGEST_BYTES 32

struct pkcs11 {
	struct naos_key_store *store;
	struct naos_token *token;
	struct naos_key_cache *cache;
	EVP_MD *sha256;
	atomic_bool was_away; /* the token's directory, as far as was seen */
};

static void pkcs11_close(void *state)
{
	struct pkcs11 *p = state;
	bool forked = p->token && p->token->pid != getpid();
	if (!forked) { /* a database must not be touched in a child either */
		(void)naos_key_cache_free(p->cache);
		(void)naos_key_store_close(p->store);
	}
	(void)naos_token_close(p->token);
	EVP_MD_free(p->sha256);
	free(p);
}

/* SoftHSM answers a search of a directory that is away with "nothing found". */
static bool is_away(const struct pkcs11 *p)
{
	return p->token->module->softhsm && !naos_softhsm_is_present(p->token->serial);
}

/* Searches the token; other processes' changes of objects are waited for. */
static int search_token(struct pkcs11 *p, struct naos_error *err)
{
	naos_autoclose int lock = -1;
	uint64_t epoch;
	int rc = naos_key_store_lock(p->store, false, true, &lock, err);
	if (rc != 0)
		return rc;
	if (is_away(p)) {
		atomic_store(&p->was_away, true);
		return naos_error_set(err, NAOS_E_KEYMANAGER, "the directory of token '%s' is away or can't be read",
				p->token->label);
	}
	/* SoftHSM has dropped what it did not find, and looks for it again only when it starts */
	if (atomic_exchange(&p->was_away, false))
		rc = naos_token_reopen(p->token, err);
	if (rc == 0)
		rc = naos_token_enter(p->token, &epoch, err);
	if (rc != 0)
		return rc;
	rc = naos_token_search(p->token, err);
	naos_token_leave(p->token);
	return rc;
}

static int pkcs11_open(const char *uri, const char *store_path, void **ret_state, struct naos_error *err)
{
	struct pkcs11 *p = calloc(1, sizeof(*p));
	if (!p)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the key manager");
	p->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
	int rc = p->sha256 ? naos_token_open(uri, &p->token, err) : naos_error_set(err, NAOS_E_SYSTEM,
			"OpenSSL offers no SHA-256");
	if (rc == 0)
		rc = naos_key_store_open(store_path, &p->store, err);
	if (rc == 0)
		rc = naos_provision_sweep(p->store, p->token, err);
	if (rc == 0)
		rc = search_token(p, err);
	if (rc == 0)
		rc = naos_key_cache_create(p->store, p->token, &p->cache, err);
	if (rc != 0)
		pkcs11_close(p);
	else
		*ret_state = p;
	return rc;
}

/* A database connection does not survive a fork either, so nothing is begun. */
static int check_fork(const struct pkcs11 *p, struct naos_error *err)
{
	uint64_t epoch;
	if (p->token->pid == getpid())
		return 0;
	return naos_token_enter(p->token, &epoch, err); /* says it */
}

static int create(struct pkcs11 *p, const char *name, bool rotating, struct naos_mek *ret, struct naos_error *err)
{
	int rc = check_fork(p, err);
	if (rc != 0)
		return rc;
	rc = naos_provision_create(p->store, p->token, name, rotating, ret, err);
	naos_key_cache_refresh(p->cache);
	return rc;
}

static int pkcs11_create(void *state, const char *name, struct naos_mek *ret, struct naos_error *err)
{
	return create(state, name, false, ret, err);
}

static int pkcs11_rotate(void *state, const char *name, struct naos_mek *ret, struct naos_error *err)
{
	return create(state, name, true, ret, err);
}

static int pkcs11_set_state(void *state, const char *name, uint32_t version, enum naos_mek_state to, struct naos_error *err)
{
	struct pkcs11 *p = state;
	struct naos_mek mek;
	int rc = check_fork(p, err);
	if (rc != 0)
		return rc;
	rc = naos_key_store_set_state(p->store, name, version, to, &mek, err);
	naos_key_cache_refresh(p->cache);
	return rc;
}

static int pkcs11_destroy(void *state, const char *name, uint32_t version, struct naos_error *err)
{
	struct pkcs11 *p = state;
	int rc = check_fork(p, err);
	if (rc != 0)
		return rc;
	rc = naos_provision_destroy(p->store, p->token, name, version, err);
	naos_key_cache_refresh(p->cache);
	return rc;
}

static int pkcs11_list(void *state, struct naos_mek **ret, size_t *ret_count, struct naos_error *err)
{
	struct pkcs11 *p = state;
	naos_autofree struct naos_key_store_row *rows = NULL;
	size_t count, kept = 0;
	int rc = check_fork(p, err);
	if (rc == 0)
		rc = naos_key_store_list(p->store, &rows, &count, err);
	if (rc != 0)
		return rc;
	struct naos_mek *meks = calloc(count + 1, sizeof(*meks));
	if (!meks)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the list of keys");
	for (size_t i = 0; i < count; i++)
		if (rows[i].phase != NAOS_KEY_STORE_CREATING)
			meks[kept++] = rows[i].mek;
	*ret_count = kept;
	*ret = meks;
	return 0;
}

/* The handle of a key that a row names; searches again if the token seems not to have it. Entered, and entered on return if 0. */
static int handle_of(struct pkcs11 *p, const struct naos_key_store_row *row, CK_OBJECT_HANDLE *ret, uint64_t *epoch,
		struct naos_error *err)
{
	const struct naos_mek *mek = &row->mek;
	int rc = naos_token_enter(p->token, epoch, err);
	if (rc != 0)
		return rc;
	rc = naos_token_key(p->token, mek, &row->proof, ret, err);
	if (rc == 0 && *ret != 0)
		return 0;
	naos_token_leave(p->token);
	if (rc == 0 || rc == NAOS_E_KEYMANAGER) /* no such object, or no longer */
		rc = search_token(p, err);
	if (rc == 0)
		rc = naos_token_enter(p->token, epoch, err);
	if (rc != 0)
		return rc;
	rc = naos_token_key(p->token, mek, &row->proof, ret, err);
	if (rc == 0 && *ret == 0)
		rc = naos_error_set(err, NAOS_E_NOKEY,
				    "token '%s' has no object for version %u of the key '%s': was the token replaced, or restored from an older backup?",
				    p->token->label, mek->version, mek->name);
	if (rc != 0)
		naos_token_leave(p->token);
	return rc;
}

/* What is done with a key while the token is entered. */
struct job {
	const struct naos_key_store_row *row;
	struct naos_wrap_item *item;
	uint8_t *plaintext; /* NAOS_TOKEN_PLAINTEXT_BYTES of a secret */
	size_t bytes;
	const uint8_t *associated;
};

static int seal_job(struct pkcs11 *p, CK_OBJECT_HANDLE key, struct job *job, struct naos_error *err)
{
	struct naos_token_message message = { job->associated, NAOS_BLOB_ASSOCIATED_BYTES, &job->item->blob };
	return naos_token_seal(p->token, key, job->plaintext, job->bytes, &message, err);
}

static int unseal_job(struct pkcs11 *p, CK_OBJECT_HANDLE key, struct job *job, struct naos_error *err)
{
	uint8_t known_associated[NAOS_BLOB_ASSOCIATED_BYTES];
	struct naos_token_message message = { job->associated, NAOS_BLOB_ASSOCIATED_BYTES, &job->item->blob };
	struct naos_token_message known = naos_proof_message(&job->row->proof, known_associated);
	return naos_token_unseal(p->token, key, &message, &known, job->plaintext, &job->bytes, err);
}

typedef int job_function(struct pkcs11 *p, CK_OBJECT_HANDLE key, struct job *job, struct naos_error *err);

/* Runs a job with the key of its row.  A token that was lost meanwhile is connected anew, once. */
static int with_key(struct pkcs11 *p, struct job *job, job_function *function, struct naos_error *err)
{
	for (int attempt = 0;; attempt++) {
		CK_OBJECT_HANDLE key = 0;
		uint64_t epoch = 0;
		int rc = handle_of(p, job->row, &key, &epoch, err);
		if (rc == 0) {
			rc = function(p, key, job, err);
			naos_token_leave(p->token);
		}
		/* while the directory is away, the copies in this session are all there is: keep it */
		if (rc != NAOS_E_KEYMANAGER || attempt > 0 || is_away(p) || naos_token_recover(p->token, epoch, NULL) != 0)
			return rc;
	}
}

static int digest(const struct pkcs11 *p, const uint8_t *associated, uint8_t ret[static DIGEST_BYTES], struct naos_error *err)
{
	if (EVP_Digest(associated, NAOS_BLOB_ASSOCIATED_BYTES, ret, NULL, p->sha256, NULL) != 1)
		return naos_error_set(err, NAOS_E_SYSTEM, "OpenSSL cannot compute SHA-256");
	return 0;
}

static int wrap_item(struct pkcs11 *p, const char *name, struct naos_wrap_item *item, struct naos_secret *scratch,
		struct naos_error *err)
{
	struct naos_key_store_row row;
	uint8_t associated[NAOS_BLOB_ASSOCIATED_BYTES], *plaintext = naos_secret_data(scratch);
	size_t key_bytes = naos_secret_bytes(item->key);
	if (key_bytes != 16 && key_bytes != 32)
		return naos_error_set(err, NAOS_E_LIMIT, "a key of %zu bytes can't be wrapped, only 16 or 32", key_bytes);
	int rc = naos_key_cache_use(p->cache, name, &row, err);
	if (rc != 0)
		return rc;
	item->blob = (struct naos_blob){ .mek_id = row.mek.id, .mek_version = row.mek.version,
			.algorithm = NAOS_WRAP_AES_256_GCM };
	naos_blob_associated(&item->context, &item->blob, associated);
	memcpy(plaintext, naos_secret_view(item->key), key_bytes); /* lint-ok: from slab to slab */
	rc = digest(p, associated, plaintext + key_bytes, err);
	if (rc != 0)
		return rc;
	struct job job = { .row = &row, .item = item, .plaintext = plaintext, .bytes = key_bytes + DIGEST_BYTES,
			.associated = associated };
	return with_key(p, &job, seal_job, err);
}

static int unwrap_item(struct pkcs11 *p, struct naos_wrap_item *item, struct naos_secret *scratch, struct naos_error *err)
{
	struct naos_key_store_row row;
	uint8_t associated[NAOS_BLOB_ASSOCIATED_BYTES], expected[DIGEST_BYTES], *plaintext = naos_secret_data(scratch);
	if (item->blob.algorithm != NAOS_WRAP_AES_256_GCM || (item->blob.iv_bytes != 12 && item->blob.iv_bytes != 16) ||
	    (item->blob.ciphertext_bytes != 16 + DIGEST_BYTES && item->blob.ciphertext_bytes != 32 + DIGEST_BYTES))
		return naos_error_set(err, NAOS_E_FORMAT, "a wrapped key with an unknown algorithm or a wrong length");
	int rc = naos_key_cache_find(p->cache, &item->blob.mek_id, item->blob.mek_version, &row, err);
	if (rc != 0)
		return rc;
	naos_blob_associated(&item->context, &item->blob, associated);
	struct job job = { .row = &row, .item = item, .plaintext = plaintext, .associated = associated };
	rc = with_key(p, &job, unseal_job, err);
	if (rc == 0)
		rc = digest(p, associated, expected, err);
	if (rc != 0)
		return rc;
	size_t key_bytes = (size_t)item->blob.ciphertext_bytes - DIGEST_BYTES;
	if (job.bytes != key_bytes + DIGEST_BYTES || CRYPTO_memcmp(plaintext + key_bytes, expected, DIGEST_BYTES) != 0)
		return naos_error_set(err, NAOS_E_INTEGRITY, "the wrapped key belongs to another object");
	return naos_secret_take(plaintext, key_bytes, &item->unwrapped, err);
}

/* The first failed item is the result of a batch. */
static void settle_item(struct naos_wrap_item *item, int rc, int *first, struct naos_error *err)
{
	item->result = rc;
	if (rc == 0 || *first != 0)
		return;
	*first = rc;
	if (err && err != &item->error)
		*err = item->error;
}

static int pkcs11_wrap(void *state, const char *name, struct naos_wrap_item *items, size_t count, struct naos_error *err)
{
	struct pkcs11 *p = state;
	naos_autosecret struct naos_secret *scratch = NULL;
	int first = 0, rc = check_fork(p, err);
	if (rc == 0)
		rc = naos_secret_create(NAOS_TOKEN_PLAINTEXT_BYTES, &scratch, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < count; i++)
		settle_item(&items[i], wrap_item(p, name, &items[i], scratch, &items[i].error), &first, err);
	return first;
}

static int pkcs11_unwrap(void *state, struct naos_wrap_item *items, size_t count, struct naos_error *err)
{
	struct pkcs11 *p = state;
	naos_autosecret struct naos_secret *scratch = NULL;
	int first = 0, rc = check_fork(p, err);
	if (rc == 0)
		rc = naos_secret_create(NAOS_TOKEN_PLAINTEXT_BYTES, &scratch, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < count; i++) {
		items[i].unwrapped = NULL;
		settle_item(&items[i], unwrap_item(p, &items[i], scratch, &items[i].error), &first, err);
	}
	return first;
}

const struct naos_provider_ops naos_pkcs11_provider = {
	.scheme = "pkcs11",
	.open = pkcs11_open,
	.close = pkcs11_close,
	.create = pkcs11_create,
	.rotate = pkcs11_rotate,
	.set_state = pkcs11_set_state,
	.destroy = pkcs11_destroy,
	.no_import = "keys of a token are made in it and were never outside: 'naos key create'.  Exportable keys can be given to a KMIP server "
		     "(--keys kmip://…)",
	.list = pkcs11_list,
	.wrap = pkcs11_wrap,
	.unwrap = pkcs11_unwrap,
};

/* Derivation of a file's keys, HMAC contexts and a small cache of data keys.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/filekeys.h"

#include <pthread.h>
#include <string.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>

#include "base/cursor.h"

#define CACHED_DATA_KEYS 4
#define CACHED_MACS 4 /* contexts kept for reuse, one per thread that is inside at once */
#define CHUNKS_PER_KEY 65536u
#define SEQS_PER_KEY 1024u

struct naos_data_key {
	uint64_t chunk_range;
	uint32_t seq_range;
	unsigned users;
	bool cached;
	uint64_t used_at;
	struct naos_gcm_key *gcm;
};

/* HMAC-SHA256 with one key. */
struct mac {
	struct naos_secret *key;
	EVP_MAC_CTX *spare[CACHED_MACS]; /* keyed; a new one is made when none is left */
};

struct naos_file_keys {
	enum naos_algorithm algorithm;
	struct naos_uuid fileset_id;
	struct naos_secret *prk;
	uint8_t commit[NAOS_COMMIT_BYTES];
	pthread_mutex_t lock;
	struct mac macs[2];
	struct naos_data_key *data[CACHED_DATA_KEYS];
	uint64_t clock;
};

static EVP_MAC_CTX *hmac_sha256; /* without a key, to be duplicated: looking it up by name costs more than using it */

static void make_hmac_sha256(void)
{
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)(uintptr_t)"SHA256", 0),
		OSSL_PARAM_construct_end(),
	};
	EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
	EVP_MAC_CTX *context = hmac ? EVP_MAC_CTX_new(hmac) : NULL;
	EVP_MAC_free(hmac);
	if (context && EVP_MAC_CTX_set_params(context, params) == 1)
		hmac_sha256 = naos_steal(context);
	EVP_MAC_CTX_free(context);
}

/* Gives a context another key: what it was made for is wiped from it.  NULL is passed on. */
static EVP_MAC_CTX *change_key(EVP_MAC_CTX *context, const struct naos_secret *key)
{
	if (context && EVP_MAC_init(context, naos_secret_view(key), naos_secret_bytes(key), NULL) == 1)
		return context;
	EVP_MAC_CTX_free(context);
	return NULL;
}

/* NULL if the cryptographic library fails. */
static EVP_MAC_CTX *keyed_mac(const void *key, size_t bytes)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	(void)pthread_once(&once, make_hmac_sha256);
	EVP_MAC_CTX *context = hmac_sha256 ? EVP_MAC_CTX_dup(hmac_sha256) : NULL;
	if (context && EVP_MAC_init(context, key, bytes, NULL) == 1)
		return context;
	EVP_MAC_CTX_free(context);
	return NULL;
}

static bool mac_once(EVP_MAC_CTX *context, const void *first, size_t first_bytes, const void *second, size_t second_bytes,
		     uint8_t ret[static NAOS_MAC_BYTES])
{
	size_t bytes = 0;
	return context && EVP_MAC_init(context, NULL, 0, NULL) == 1 && EVP_MAC_update(context, first, first_bytes) == 1 &&
	       EVP_MAC_update(context, second, second_bytes) == 1 && EVP_MAC_final(context, ret, &bytes, NAOS_MAC_BYTES) == 1;
}

/* HKDF-Extract (RFC 5869) is one HMAC, keyed with the salt.  *ret_prk is keyed with the PRK (NULL on failure). */
static int extract(struct naos_file_keys *keys, const struct naos_uuid *file_id, const struct naos_secret *fek, EVP_MAC_CTX **ret_prk,
		   struct naos_error *err)
{
	EVP_MAC_CTX *context;
	*ret_prk = NULL;
	int rc = naos_secret_create(NAOS_MAC_BYTES, &keys->prk, err);
	if (rc != 0)
		return rc;
	context = keyed_mac(file_id->bytes, sizeof(file_id->bytes));
	if (mac_once(context, naos_secret_view(fek), naos_secret_bytes(fek), NULL, 0, naos_secret_data(keys->prk)))
		*ret_prk = change_key(naos_steal(context), keys->prk);
	EVP_MAC_CTX_free(context);
	return *ret_prk ? 0 : naos_error_set(err, NAOS_E_SYSTEM, "HMAC-SHA256 is not available in the cryptographic library");
}

/* K(purpose, x) of the format: the first block of HKDF-Expand, which is HMAC(PRK, info || 0x01).  OpenSSL's HKDF is looked up and
 * built up for each call: it takes five times as long, and a small file needs five.  prk is keyed with the PRK (open_prk), and lives
 * no longer than its caller needs it. */
static int expand(const struct naos_file_keys *keys, EVP_MAC_CTX *prk, const char *purpose, const void *x, size_t x_bytes, uint8_t *out,
		  size_t out_bytes, struct naos_error *err)
{
	uint8_t info[64], block[NAOS_MAC_BYTES];
	struct naos_cursor w = naos_cursor_writer(info, sizeof(info));
	naos_cursor_put(&w, "naos/sf/1/", 10);
	naos_cursor_put(&w, purpose, strlen(purpose) + 1); /* with its zero byte */
	naos_cursor_put_u8(&w, (uint8_t)keys->algorithm);
	naos_cursor_put_u8(&w, 12); /* log2 of the chunk size */
	naos_cursor_put(&w, keys->fileset_id.bytes, sizeof(keys->fileset_id.bytes));
	naos_cursor_put(&w, x, x_bytes);
	naos_cursor_put_u8(&w, 1);
	if (!naos_cursor_ok(&w) || out_bytes > sizeof(block))
		return naos_error_set(err, NAOS_E_SYSTEM, "key derivation input too long");
	bool ok = mac_once(prk, info, w.position, NULL, 0, block);
	if (ok)
		memcpy(out, block, out_bytes);
	naos_wipe(block, sizeof(block));
	return ok ? 0 : naos_error_set(err, NAOS_E_SYSTEM, "key derivation (HKDF-SHA256) failed in the cryptographic library");
}

static EVP_MAC_CTX *open_prk(const struct naos_file_keys *keys)
{
	return keyed_mac(naos_secret_view(keys->prk), naos_secret_bytes(keys->prk));
}

static int expand_secret(const struct naos_file_keys *keys, EVP_MAC_CTX *prk, const char *purpose, const void *x, size_t x_bytes,
			 size_t out_bytes, struct naos_secret **ret, struct naos_error *err)
{
	naos_autosecret struct naos_secret *secret = NULL;
	int rc = naos_secret_create(out_bytes, &secret, err);
	if (rc == 0)
		rc = expand(keys, prk, purpose, x, x_bytes, naos_secret_data(secret), out_bytes, err);
	if (rc == 0)
		*ret = naos_steal(secret);
	return rc;
}

static int data_key_create(const struct naos_file_keys *keys, EVP_MAC_CTX *prk, uint64_t chunk, uint32_t seq,
			   struct naos_data_key **ret, struct naos_error *err)
{
	uint8_t x[12];
	struct naos_cursor w = naos_cursor_writer(x, sizeof(x));
	naos_cursor_put_u64(&w, chunk / CHUNKS_PER_KEY);
	naos_cursor_put_u32(&w, seq / SEQS_PER_KEY);
	naos_autosecret struct naos_secret *secret = NULL;
	int rc = expand_secret(keys, prk, "data", x, sizeof(x), naos_algorithm_key_bytes(keys->algorithm), &secret, err);
	if (rc != 0)
		return rc;
	naos_autofree struct naos_data_key *key = calloc(1, sizeof(*key));
	if (!key)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a data key");
	rc = naos_gcm_key_create(keys->algorithm, secret, &key->gcm, err);
	if (rc != 0)
		return rc;
	key->chunk_range = chunk / CHUNKS_PER_KEY;
	key->seq_range = seq / SEQS_PER_KEY;
	*ret = naos_steal(key);
	return 0;
}

int naos_file_keys_create(enum naos_algorithm algorithm, const struct naos_uuid *file_id, const struct naos_uuid *fileset_id,
			  const struct naos_secret *fek, struct naos_file_keys **ret, struct naos_error *err)
{
	if (naos_secret_bytes(fek) != NAOS_FEK_BYTES || !naos_algorithm_name(algorithm))
		return naos_error_set(err, NAOS_E_WRONG_KEY, "a file key must have %d bytes", NAOS_FEK_BYTES);
	struct naos_file_keys *keys = calloc(1, sizeof(*keys));
	if (!keys)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the keys of a file");
	keys->algorithm = algorithm;
	keys->fileset_id = *fileset_id;
	(void)pthread_mutex_init(&keys->lock, NULL);
	EVP_MAC_CTX *prk;
	int rc = extract(keys, file_id, fek, &prk, err);
	if (rc == 0)
		rc = expand(keys, prk, "commit", NULL, 0, keys->commit, sizeof(keys->commit), err);
	if (rc == 0)
		rc = expand_secret(keys, prk, "header", NULL, 0, NAOS_MAC_BYTES, &keys->macs[NAOS_MAC_HEADER].key, err);
	if (rc == 0)
		rc = expand_secret(keys, prk, "tagsector", NULL, 0, NAOS_MAC_BYTES, &keys->macs[NAOS_MAC_TAGSECTOR].key, err);
	if (rc == 0)
		rc = data_key_create(keys, prk, 0, 0, &keys->data[0], err);
	if (rc == 0)
		keys->data[0]->cached = true;
	if (rc == 0) /* the first use of the header's key comes at once */
		keys->macs[NAOS_MAC_HEADER].spare[0] = change_key(naos_steal(prk), keys->macs[NAOS_MAC_HEADER].key);
	EVP_MAC_CTX_free(prk);
	if (rc != 0) {
		(void)naos_file_keys_free(keys);
		return rc;
	}
	*ret = keys;
	return 0;
}

static void data_key_free(struct naos_data_key *key)
{
	(void)naos_gcm_key_free(key->gcm);
	free(key);
}

struct naos_file_keys *naos_file_keys_free(struct naos_file_keys *keys)
{
	if (!keys)
		return NULL;
	for (unsigned i = 0; i < CACHED_DATA_KEYS; i++)
		if (keys->data[i])
			data_key_free(keys->data[i]);
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(keys->macs); i++) {
		for (unsigned j = 0; j < CACHED_MACS; j++)
			EVP_MAC_CTX_free(keys->macs[i].spare[j]);
		(void)naos_secret_free(keys->macs[i].key);
	}
	(void)naos_secret_free(keys->prk);
	(void)pthread_mutex_destroy(&keys->lock);
	free(keys);
	return NULL;
}

const uint8_t *naos_file_keys_commit(const struct naos_file_keys *keys)
{
	return keys->commit;
}

static EVP_MAC_CTX *borrow_mac(struct naos_file_keys *keys, struct mac *mac)
{
	EVP_MAC_CTX *context = NULL;
	(void)pthread_mutex_lock(&keys->lock);
	for (unsigned i = 0; i < CACHED_MACS && !context; i++)
		if (mac->spare[i])
			context = naos_steal(mac->spare[i]);
	(void)pthread_mutex_unlock(&keys->lock);
	return context ? context : keyed_mac(naos_secret_view(mac->key), naos_secret_bytes(mac->key));
}

static void return_mac(struct naos_file_keys *keys, struct mac *mac, EVP_MAC_CTX *context)
{
	(void)pthread_mutex_lock(&keys->lock);
	for (unsigned i = 0; i < CACHED_MACS && context; i++)
		if (!mac->spare[i])
			mac->spare[i] = naos_steal(context);
	(void)pthread_mutex_unlock(&keys->lock);
	EVP_MAC_CTX_free(context);
}

int naos_file_keys_mac(struct naos_file_keys *keys, enum naos_mac_purpose purpose, const void *first, size_t first_bytes,
		       const void *second, size_t second_bytes, uint8_t ret[static NAOS_MAC_BYTES], struct naos_error *err)
{
	struct mac *mac = &keys->macs[purpose];
	EVP_MAC_CTX *context = borrow_mac(keys, mac);
	bool ok = mac_once(context, first, first_bytes, second, second_bytes, ret);
	return_mac(keys, mac, context);
	return ok ? 0 : naos_error_set(err, NAOS_E_SYSTEM, "HMAC-SHA256 failed in the cryptographic library");
}

bool naos_data_key_covers(const struct naos_data_key *key, uint64_t chunk, uint32_t seq)
{
	return key->chunk_range == chunk / CHUNKS_PER_KEY && key->seq_range == seq / SEQS_PER_KEY;
}

const struct naos_gcm_key *naos_data_key_gcm(const struct naos_data_key *key)
{
	return key->gcm;
}

int naos_file_keys_get(struct naos_file_keys *keys, uint64_t chunk, uint32_t seq, struct naos_data_key **ret,
		       struct naos_error *err)
{
	struct naos_data_key *key = NULL;
	unsigned oldest = 0;
	(void)pthread_mutex_lock(&keys->lock);
	for (unsigned i = 0; i < CACHED_DATA_KEYS && !key; i++)
		if (keys->data[i] && naos_data_key_covers(keys->data[i], chunk, seq))
			key = keys->data[i];
	int rc = 0;
	if (!key) {
		EVP_MAC_CTX *prk = open_prk(keys);
		rc = data_key_create(keys, prk, chunk, seq, &key, err);
		EVP_MAC_CTX_free(prk);
	}
	if (rc == 0 && !key->cached) {
		for (unsigned i = 0; i < CACHED_DATA_KEYS; i++) {
			if (!keys->data[i]) {
				oldest = i;
				break;
			}
			if (keys->data[i]->used_at < keys->data[oldest]->used_at)
				oldest = i;
		}
		struct naos_data_key *out = keys->data[oldest];
		if (out) {
			out->cached = false; /* freed here, or by its last user */
			if (out->users == 0)
				data_key_free(out);
		}
		keys->data[oldest] = key;
		key->cached = true;
	}
	if (rc == 0) {
		key->users++;
		key->used_at = ++keys->clock;
		*ret = key;
	}
	(void)pthread_mutex_unlock(&keys->lock);
	return rc;
}

void naos_file_keys_put(struct naos_file_keys *keys, struct naos_data_key *key)
{
	if (!key)
		return;
	(void)pthread_mutex_lock(&keys->lock);
	if (--key->users == 0 && !key->cached)
		data_key_free(key);
	(void)pthread_mutex_unlock(&keys->lock);
}

/* AES-GCM by OpenSSL's EVP, in two flavours: the default provider, and the FIPS provider in a library context of its own.
 *
 * An EVP context can be used by one thread at a time, so a key keeps the idle ones: each use takes one (or makes it from
 * the raw key) and puts it back.  Contexts live in OpenSSL's heap, which is wiped on free but neither locked nor left out
 * of core dumps: README.md says so.
 * SPDX-License-Identifier: Apache-2.0 */
#include <openssl/conf.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/provider.h>
#include <pthread.h>
#include <string.h>

#include "engine/backend.h"

#define RAW_KEY_BYTES 32
#define MAX_IDLE 16              /* more threads than this on one key make and free contexts, about 0.5 us each */
#define PIECE ((size_t)1 << 30) /* EVP counts in int */

struct flavour {
	bool fips;
	OSSL_LIB_CTX *library;
	EVP_CIPHER *ciphers[NAOS_AES_256_GCM + 1];
};
static struct flavour flavours[NAOS_OPENSSL_FLAVOURS] = { { .fips = false }, { .fips = true } };

struct contexts {
	pthread_mutex_t lock;
	size_t count;
	EVP_CIPHER_CTX *idle[MAX_IDLE];
};

/* The reason that OpenSSL gives last; its queue is left empty. */
static int failed(struct naos_error *err, const char *what)
{
	const char *reason = ERR_reason_error_string(ERR_peek_last_error());
	int rc = naos_error_set(err, NAOS_E_SYSTEM, "OpenSSL can't %s: %s", what, reason ? reason : "no reason given");
	ERR_clear_error();
	return rc;
}

/* The FIPS provider needs the integrity value that `openssl fipsinstall` wrote into the configuration of OpenSSL. */
static int load_fips(struct flavour *flavour, struct naos_error *err)
{
	char *configuration = CONF_get1_default_config_file();
	OSSL_LIB_CTX *library = OSSL_LIB_CTX_new();
	bool loaded = configuration && library && OSSL_LIB_CTX_load_config(library, configuration) == 1 &&
		      OSSL_PROVIDER_load(library, "fips") && OSSL_PROVIDER_load(library, "base") &&
		      EVP_set_default_properties(library, "fips=yes") == 1;
	if (loaded) {
		flavour->library = library;
		OPENSSL_free(configuration);
		return 0;
	}
	const char *reason = ERR_reason_error_string(ERR_peek_error());
	int rc = naos_error_set(err, NAOS_E_UNSUPPORTED,
				"FIPS was asked for, but OpenSSL's FIPS provider does not load (%s): install fips.so in OpenSSL's "
				"module directory, run 'openssl fipsinstall' and include its output in %s",
				reason ? reason : "no reason given", configuration ? configuration : "openssl.cnf");
	ERR_clear_error();
	OPENSSL_free(configuration);
	OSSL_LIB_CTX_free(library);
	return rc;
}

static int start(const struct naos_engine_backend *backend, struct naos_error *err)
{
	struct flavour *flavour = &flavours[backend - naos_engine_openssl];
	int rc = flavour->fips && !flavour->library ? load_fips(flavour, err) : 0;
	if (rc != 0)
		return rc;
	flavour->ciphers[NAOS_AES_128_GCM] = EVP_CIPHER_fetch(flavour->library, "AES-128-GCM", NULL);
	flavour->ciphers[NAOS_AES_256_GCM] = EVP_CIPHER_fetch(flavour->library, "AES-256-GCM", NULL);
	if (!flavour->ciphers[NAOS_AES_128_GCM] || !flavour->ciphers[NAOS_AES_256_GCM])
		return failed(err, "provide AES-GCM");
	return 0;
}

OSSL_LIB_CTX *naos_engine_library_context(void)
{
	const struct naos_engine_backend *backend;
	if (naos_engine_current(&backend, NULL) != 0 || !backend->fips)
		return NULL;
	return flavours[backend - naos_engine_openssl].library;
}

static EVP_CIPHER_CTX *context_new(const struct naos_gcm_key *key)
{
	const struct flavour *flavour = key->backend->code;
	EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
	const EVP_CIPHER *cipher = flavour->ciphers[key->algorithm];
	if (context && EVP_CipherInit_ex2(context, cipher, naos_secret_view(key->prepared), NULL, 1, NULL) == 1)
		return context;
	EVP_CIPHER_CTX_free(context);
	return NULL;
}

static int take(const struct naos_gcm_key *key, EVP_CIPHER_CTX **ret, struct naos_error *err)
{
	struct contexts *contexts = key->contexts;
	EVP_CIPHER_CTX *context = NULL;
	(void)pthread_mutex_lock(&contexts->lock);
	if (contexts->count)
		context = contexts->idle[--contexts->count];
	(void)pthread_mutex_unlock(&contexts->lock);
	if (!context)
		context = context_new(key);
	if (!context)
		return failed(err, "make an AES-GCM context");
	*ret = context;
	return 0;
}

static void put_back(const struct naos_gcm_key *key, EVP_CIPHER_CTX *context)
{
	struct contexts *contexts = key->contexts;
	(void)pthread_mutex_lock(&contexts->lock);
	if (context && contexts->count < MAX_IDLE)
		contexts->idle[contexts->count++] = naos_steal(context);
	(void)pthread_mutex_unlock(&contexts->lock);
	EVP_CIPHER_CTX_free(context);
}

static int key_prepare(struct naos_gcm_key *key, const uint8_t *raw, struct naos_error *err)
{
	struct contexts *contexts = calloc(1, sizeof(*contexts));
	if (!contexts)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a key");
	(void)pthread_mutex_init(&contexts->lock, NULL);
	key->contexts = contexts;
	memcpy(naos_secret_data(key->prepared), raw, naos_algorithm_key_bytes(key->algorithm)); /* lint-ok: from slab to slab */
	/* the first context is made here, so that a failure shows here */
	EVP_CIPHER_CTX *context = context_new(key);
	if (!context)
		return failed(err, "make an AES-GCM context");
	put_back(key, context);
	return 0;
}

static void key_release(struct naos_gcm_key *key)
{
	struct contexts *contexts = key->contexts;
	if (!contexts)
		return;
	for (size_t i = 0; i < contexts->count; i++)
		EVP_CIPHER_CTX_free(contexts->idle[i]);
	(void)pthread_mutex_destroy(&contexts->lock);
	free(contexts);
}

/* Feeds `bytes` bytes; out NULL: associated data. */
static bool feed(EVP_CIPHER_CTX *context, const uint8_t *in, uint8_t *out, size_t bytes)
{
	int written;
	for (size_t done = 0; done < bytes; done += PIECE) {
		size_t piece = bytes - done < PIECE ? bytes - done : PIECE;
		if (EVP_CipherUpdate(context, out ? out + done : NULL, &written, in + done, (int)piece) != 1)
			return false;
	}
	return true;
}

static bool begin(EVP_CIPHER_CTX *context, bool sealing, const uint8_t *nonce, const uint8_t *associated, size_t associated_bytes)
{
	return EVP_CipherInit_ex2(context, NULL, NULL, nonce, sealing, NULL) == 1 &&
	       feed(context, associated, NULL, associated_bytes);
}

static bool end_sealing(EVP_CIPHER_CTX *context, uint8_t *tag)
{
	uint8_t none[16];
	int written;
	return EVP_CipherFinal_ex(context, none, &written) == 1 &&
	       EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, NAOS_GCM_TAG_BYTES, tag) == 1;
}

/* OpenSSL compares the tag itself, in constant time; its "no" may leave an entry in the queue of errors. */
static bool end_opening(EVP_CIPHER_CTX *context, const uint8_t *tag, bool *ret_matches)
{
	uint8_t none[16];
	int written;
	if (EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, NAOS_GCM_TAG_BYTES, (void *)(uintptr_t)tag) != 1)
		return false;
	ERR_set_mark();
	*ret_matches = EVP_CipherFinal_ex(context, none, &written) == 1;
	ERR_pop_to_mark();
	return true;
}

static int seal_messages(const struct naos_gcm_key *key, const struct naos_gcm_message *messages, size_t count,
			 struct naos_error *err)
{
	EVP_CIPHER_CTX *context = NULL;
	int rc = take(key, &context, err);
	if (rc != 0)
		return rc;
	for (const struct naos_gcm_message *m = messages; m < messages + count; m++) {
		if (!begin(context, true, m->nonce, m->associated, m->associated_bytes) ||
		    !feed(context, m->in, m->out, m->bytes) || !end_sealing(context, m->tag)) {
			EVP_CIPHER_CTX_free(context);
			return failed(err, "seal a message");
		}
	}
	put_back(key, context);
	return 0;
}

static int open_messages(const struct naos_gcm_key *key, struct naos_gcm_message *messages, size_t count, struct naos_error *err)
{
	EVP_CIPHER_CTX *context = NULL;
	int rc = take(key, &context, err);
	for (size_t i = 0; i < count; i++) {
		struct naos_gcm_message *m = &messages[i];
		bool matches = false;
		if (rc == 0 && (!begin(context, false, m->nonce, m->associated, m->associated_bytes) ||
				!feed(context, m->in, m->out, m->bytes) || !end_opening(context, m->tag, &matches)))
			rc = failed(err, "open a message");
		naos_gcm_settle(m, rc == 0 && matches);
		if (rc != 0)
			m->result = rc;
	}
	if (rc == 0)
		put_back(key, context);
	else
		EVP_CIPHER_CTX_free(context);
	return rc;
}

static int stream_start(struct naos_gcm_stream *stream, const uint8_t *nonce, const uint8_t *associated,
			size_t associated_bytes, struct naos_error *err)
{
	EVP_CIPHER_CTX *context = NULL;
	int rc = take(stream->key, &context, err);
	if (rc != 0)
		return rc;
	stream->context = context;
	return begin(context, stream->sealing, nonce, associated, associated_bytes) ? 0 : failed(err, "start a stream");
}

static int stream_update(struct naos_gcm_stream *stream, const uint8_t *in, uint8_t *out, size_t bytes, struct naos_error *err)
{
	return feed(stream->context, in, out, bytes) ? 0 : failed(err, "process a stream");
}

static int stream_finish(struct naos_gcm_stream *stream, uint8_t *tag, bool *ret_matches, struct naos_error *err)
{
	bool done = stream->sealing ? end_sealing(stream->context, tag) : end_opening(stream->context, tag, ret_matches);
	if (!done)
		return failed(err, "finish a stream");
	put_back(stream->key, stream->context);
	stream->context = NULL;
	return 0;
}

/* A stream that was not finished leaves a context in the middle of a message: it is not reused. */
static void stream_release(struct naos_gcm_stream *stream)
{
	EVP_CIPHER_CTX_free(stream->context);
}

#define ROW(index, row_name, is_fips) \
	{ .name = row_name, .family = "openssl", .fips = is_fips, .code = &flavours[index], .prepared_bytes = RAW_KEY_BYTES, \
	  .start = start, .key_prepare = key_prepare, .key_release = key_release, .seal = seal_messages, .open = open_messages, \
	  .stream_start = stream_start, .stream_update = stream_update, .stream_finish = stream_finish, \
	  .stream_release = stream_release }

const struct naos_engine_backend naos_engine_openssl[NAOS_OPENSSL_FLAVOURS] = {
	ROW(0, "openssl", false), ROW(1, "openssl fips", true),
};

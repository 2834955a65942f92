/* The calls of engine.h: every argument is checked here, once for all back ends.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

#include <string.h>

#include "engine/backend.h"

/* Stands behind the prepared key in secret memory.  A forked child finds zeros there: sealing with a key schedule of
 * zeros would look like success, so a key without its mark is refused. */
#define MARK 0x6e616f732d6b6579u

static const struct {
	enum naos_algorithm algorithm;
	size_t key_bytes;
	const char *name;
} algorithms[] = {
	{ NAOS_AES_128_GCM, 16, "aes-128-gcm" },
	{ NAOS_AES_256_GCM, 32, "aes-256-gcm" },
};

size_t naos_algorithm_key_bytes(enum naos_algorithm algorithm)
{
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(algorithms); i++)
		if (algorithms[i].algorithm == algorithm)
			return algorithms[i].key_bytes;
	return 0;
}

const char *naos_algorithm_name(enum naos_algorithm algorithm)
{
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(algorithms); i++)
		if (algorithms[i].algorithm == algorithm)
			return algorithms[i].name;
	return NULL;
}

bool naos_algorithm_parse(const char *name, enum naos_algorithm *ret)
{
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(algorithms); i++) {
		if (strcmp(algorithms[i].name, name) == 0) {
			*ret = algorithms[i].algorithm;
			return true;
		}
	}
	return false;
}

static uint8_t *mark_of(const struct naos_gcm_key *key)
{
	return naos_secret_data(key->prepared) + key->backend->prepared_bytes;
}

static int check_key(const struct naos_gcm_key *key, struct naos_error *err)
{
	uint64_t mark;
	memcpy(&mark, mark_of(key), sizeof(mark)); /* lint-ok: no secret, a constant */
	if (mark != MARK)
		return naos_error_set(err, NAOS_E_NOKEY, "this key was wiped when the process forked: make it again in the child");
	return 0;
}

int naos_gcm_key_create_on(const struct naos_engine_backend *backend, enum naos_algorithm algorithm,
			   const struct naos_secret *key, struct naos_gcm_key **ret, struct naos_error *err)
{
	static const uint64_t mark = MARK;
	size_t key_bytes = naos_algorithm_key_bytes(algorithm);
	if (key_bytes == 0)
		return naos_error_set(err, NAOS_E_UNSUPPORTED, "there is no algorithm number %d", (int)algorithm);
	if (!key || naos_secret_bytes(key) != key_bytes)
		return naos_error_set(err, NAOS_E_USAGE, "a key of %zu bytes does not fit %s, which takes %zu",
				      key ? naos_secret_bytes(key) : 0, naos_algorithm_name(algorithm), key_bytes);
	struct naos_gcm_key *made = calloc(1, sizeof(*made));
	if (!made)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a key");
	made->backend = backend;
	made->algorithm = algorithm;
	int rc = naos_secret_create(backend->prepared_bytes + sizeof(mark) + key_bytes, &made->prepared, err);
	if (rc == 0)
		rc = backend->key_prepare(made, naos_secret_view(key), err);
	if (rc != 0) {
		naos_gcm_key_free(made);
		return rc;
	}
	memcpy(mark_of(made), &mark, sizeof(mark)); /* lint-ok: no secret, a constant */
	memcpy(mark_of(made) + sizeof(mark), naos_secret_view(key), key_bytes); /* lint-ok: from slab to slab */
	*ret = made;
	return 0;
}

int naos_gcm_key_raw(const struct naos_gcm_key *key, const uint8_t **ret, struct naos_error *err)
{
	int rc = check_key(key, err);
	if (rc == 0)
		*ret = mark_of(key) + sizeof(uint64_t);
	return rc;
}

int naos_gcm_key_create(enum naos_algorithm algorithm, const struct naos_secret *key, struct naos_gcm_key **ret,
			struct naos_error *err)
{
	const struct naos_engine_backend *backend;
	int rc = naos_engine_current(&backend, err);
	return rc != 0 ? rc : naos_gcm_key_create_on(backend, algorithm, key, ret, err);
}

struct naos_gcm_key *naos_gcm_key_free(struct naos_gcm_key *key)
{
	if (!key)
		return NULL;
	int saved = errno;
	key->backend->key_release(key);
	naos_secret_free(key->prepared);
	free(key);
	errno = saved;
	return NULL;
}

enum naos_algorithm naos_gcm_key_algorithm(const struct naos_gcm_key *key)
{
	return key->algorithm;
}

static bool overlap(const uint8_t *a, size_t a_bytes, const uint8_t *b, size_t b_bytes)
{
	return a_bytes && b_bytes && (uintptr_t)a < (uintptr_t)b + b_bytes && (uintptr_t)b < (uintptr_t)a + a_bytes;
}

/* Nonce and associated data of a message or stream. */
static int check_start(const uint8_t *nonce, const uint8_t *associated, size_t associated_bytes, struct naos_error *err)
{
	if (!nonce || (!associated && associated_bytes))
		return naos_error_set(err, NAOS_E_USAGE, "a message without a nonce, or with a length but no associated data");
	if (associated_bytes > NAOS_GCM_MAX_ASSOCIATED_BYTES)
		return naos_error_set(err, NAOS_E_LIMIT, "%zu bytes of associated data are more than 2^32 - 1", associated_bytes);
	return 0;
}

/* Data of a message or of a piece of a stream that had `before` bytes. */
static int check_data(const uint8_t *in, const uint8_t *out, size_t bytes, uint64_t before, struct naos_error *err)
{
	if (bytes > NAOS_GCM_MAX_MESSAGE_BYTES - before)
		return naos_error_set(err, NAOS_E_LIMIT, "a message of more than 2^36 - 32 bytes is beyond what AES-GCM protects");
	if (bytes && (!in || !out))
		return naos_error_set(err, NAOS_E_USAGE, "a message with a length but no data");
	if (in != out && overlap(in, bytes, out, bytes))
		return naos_error_set(err, NAOS_E_USAGE, "input and output of a message overlap in part");
	return 0;
}

static int check_messages(const struct naos_gcm_message *messages, size_t count, struct naos_error *err)
{
	for (size_t i = 0; i < count; i++) {
		const struct naos_gcm_message *m = &messages[i];
		int rc = check_start(m->nonce, m->associated, m->associated_bytes, err);
		if (rc == 0)
			rc = check_data(m->in, m->out, m->bytes, 0, err);
		if (rc == 0 && (!m->tag || overlap(m->tag, NAOS_GCM_TAG_BYTES, m->out, m->bytes)))
			rc = naos_error_set(err, NAOS_E_USAGE, "the tag of a message is missing or lies in its output");
		if (rc != 0)
			return rc;
	}
	return 0;
}

void naos_gcm_settle(struct naos_gcm_message *message, bool matches)
{
	message->result = matches ? 0 : NAOS_E_INTEGRITY;
	if (!matches && message->bytes)
		memset(message->out, 0, message->bytes);
}

int naos_gcm_seal_many(const struct naos_gcm_key *key, struct naos_gcm_message *messages, size_t count, struct naos_error *err)
{
	int rc = check_messages(messages, count, err);
	if (rc == 0)
		rc = check_key(key, err);
	if (rc == 0)
		rc = key->backend->seal(key, messages, count, err);
	for (size_t i = 0; i < count; i++)
		messages[i].result = rc;
	return rc;
}

int naos_gcm_open_many(const struct naos_gcm_key *key, struct naos_gcm_message *messages, size_t count, struct naos_error *err)
{
	int rc = check_messages(messages, count, err);
	if (rc == 0)
		rc = check_key(key, err);
	for (size_t i = 0; i < count; i++)
		messages[i].result = rc;
	if (rc == 0)
		rc = key->backend->open(key, messages, count, err);
	if (rc != 0)
		return rc;
	size_t failed = 0;
	for (size_t i = 0; i < count; i++)
		failed += messages[i].result != 0;
	if (failed)
		return naos_error_set(err, NAOS_E_INTEGRITY, "the tags of %zu of %zu messages do not match", failed, count);
	return 0;
}

int naos_gcm_seal(const struct naos_gcm_key *key, const struct naos_gcm_message *message, struct naos_error *err)
{
	int rc = check_messages(message, 1, err);
	if (rc == 0)
		rc = check_key(key, err);
	return rc != 0 ? rc : key->backend->seal(key, message, 1, err);
}

int naos_gcm_open(const struct naos_gcm_key *key, const struct naos_gcm_message *message, struct naos_error *err)
{
	struct naos_gcm_message copy = *message;
	int rc = naos_gcm_open_many(key, &copy, 1, err);
	if (rc == NAOS_E_INTEGRITY)
		return naos_error_set(err, rc, "the tag of the message does not match");
	return rc;
}

int naos_gcm_stream_create(const struct naos_gcm_key *key, bool sealing, const uint8_t *nonce, const uint8_t *associated,
			   size_t associated_bytes, struct naos_gcm_stream **ret, struct naos_error *err)
{
	int rc = check_start(nonce, associated, associated_bytes, err);
	if (rc == 0)
		rc = check_key(key, err);
	if (rc != 0)
		return rc;
	struct naos_gcm_stream *stream = calloc(1, sizeof(*stream));
	if (!stream)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a stream");
	stream->key = key;
	stream->sealing = sealing;
	if (key->backend->stream_bytes)
		rc = naos_secret_create(key->backend->stream_bytes, &stream->state, err);
	if (rc == 0)
		rc = key->backend->stream_start(stream, nonce, associated, associated_bytes, err);
	if (rc != 0) {
		naos_gcm_stream_free(stream);
		return rc;
	}
	*ret = stream;
	return 0;
}

int naos_gcm_stream_update(struct naos_gcm_stream *stream, const uint8_t *in, uint8_t *out, size_t bytes, struct naos_error *err)
{
	if (stream->finished)
		return naos_error_set(err, NAOS_E_USAGE, "the stream is finished");
	int rc = check_data(in, out, bytes, stream->bytes, err);
	if (rc == 0)
		rc = check_key(stream->key, err);
	if (rc != 0 || bytes == 0)
		return rc;
	rc = stream->key->backend->stream_update(stream, in, out, bytes, err);
	stream->finished = rc != 0; /* what follows a failure has no meaning */
	stream->bytes += bytes;
	return rc;
}

int naos_gcm_stream_finish(struct naos_gcm_stream *stream, uint8_t *tag, struct naos_error *err)
{
	bool matches = false;
	if (stream->finished || !tag)
		return naos_error_set(err, NAOS_E_USAGE, "the stream is finished, or its tag is missing");
	int rc = check_key(stream->key, err);
	if (rc != 0)
		return rc;
	stream->finished = true;
	rc = stream->key->backend->stream_finish(stream, tag, &matches, err);
	if (rc == 0 && !stream->sealing && !matches)
		rc = naos_error_set(err, NAOS_E_INTEGRITY, "the tag of the stream does not match");
	return rc;
}

struct naos_gcm_stream *naos_gcm_stream_free(struct naos_gcm_stream *stream)
{
	if (!stream)
		return NULL;
	int saved = errno;
	stream->key->backend->stream_release(stream);
	naos_secret_free(stream->state);
	free(stream);
	errno = saved;
	return NULL;
}

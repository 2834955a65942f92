/* The back end "cuda": messages of the host through the GPU and back.  By name only: it is there for machines with few cores and
 * for tests; what pays is opening into the memory of the device (gpu.h).
 * Streams, and messages that the device fails at, are done by the CPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "engine/backend.h"
#include "engine/gpu.h"

static int start(const struct naos_engine_backend *backend, struct naos_error *err)
{
	struct naos_gpu *gpu;
	return naos_gpu_get(&gpu, err);
}

/* The same key for the CPU. */
static int key_prepare(struct naos_gcm_key *key, const uint8_t *raw, struct naos_error *err)
{
	naos_autosecret struct naos_secret *secret = NULL;
	struct naos_gcm_key *cpu_key = NULL;
	const struct naos_engine_backend *cpu;
	const size_t bytes = naos_algorithm_key_bytes(key->algorithm);
	int rc = naos_engine_cpu(&cpu, err);
	if (rc == 0)
		rc = naos_secret_create(bytes, &secret, err);
	if (rc != 0)
		return rc;
	memcpy(naos_secret_data(secret), raw, bytes); /* lint-ok: from slab to slab */
	rc = naos_gcm_key_create_on(cpu, key->algorithm, secret, &cpu_key, err);
	key->contexts = cpu_key;
	return rc;
}

static void key_release(struct naos_gcm_key *key)
{
	(void)naos_gcm_key_free(key->contexts);
}

/* Whether the CPU may take over: nothing was written then. */
static bool not_begun(int rc)
{
	return rc == NAOS_E_UNSUPPORTED || rc == NAOS_E_NOMEM;
}

static int seal(const struct naos_gcm_key *key, const struct naos_gcm_message *messages, size_t count, struct naos_error *err)
{
	struct naos_gpu *gpu;
	struct naos_error reason = NAOS_ERROR_INIT;
	size_t done = 0;
	naos_autofree struct naos_gcm_message *copies = calloc(count ? count : 1, sizeof(*copies));
	if (!copies)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for messages of the GPU");
	memcpy(copies, messages, count * sizeof(*copies));
	int rc = naos_gpu_get(&gpu, &reason);
	if (rc == 0)
		rc = naos_gpu_messages(gpu, key, true, copies, count, &done, &reason);
	if (not_begun(rc))
		return naos_gcm_seal_many(key->contexts, copies + done, count - done, err);
	return rc ? naos_error_set(err, rc, "%s", reason.message) : 0;
}

static int open_messages(const struct naos_gcm_key *key, struct naos_gcm_message *messages, size_t count, struct naos_error *err)
{
	struct naos_gpu *gpu;
	struct naos_error reason = NAOS_ERROR_INIT;
	size_t done = 0;
	int rc = naos_gpu_get(&gpu, &reason);
	if (rc == 0)
		rc = naos_gpu_messages(gpu, key, false, messages, count, &done, &reason);
	if (not_begun(rc)) {
		rc = naos_gcm_open_many(key->contexts, messages + done, count - done, err);
		return rc == NAOS_E_INTEGRITY ? 0 : rc; /* each message says so itself */
	}
	for (size_t i = done; rc != 0 && i < count; i++) {
		naos_gcm_settle(&messages[i], false);
		messages[i].result = rc;
	}
	return rc ? naos_error_set(err, rc, "%s", reason.message) : 0;
}

static int stream_start(struct naos_gcm_stream *stream, const uint8_t *nonce, const uint8_t *associated, size_t associated_bytes,
			struct naos_error *err)
{
	struct naos_gcm_stream *inner = NULL;
	int rc = naos_gcm_stream_create(stream->key->contexts, stream->sealing, nonce, associated, associated_bytes, &inner, err);
	stream->context = inner;
	return rc;
}

static int stream_update(struct naos_gcm_stream *stream, const uint8_t *in, uint8_t *out, size_t bytes, struct naos_error *err)
{
	return naos_gcm_stream_update(stream->context, in, out, bytes, err);
}

static int stream_finish(struct naos_gcm_stream *stream, uint8_t *tag, bool *ret_matches, struct naos_error *err)
{
	int rc = naos_gcm_stream_finish(stream->context, tag, err);
	*ret_matches = rc == 0;
	return rc == NAOS_E_INTEGRITY ? 0 : rc;
}

static void stream_release(struct naos_gcm_stream *stream)
{
	(void)naos_gcm_stream_free(stream->context);
}

const struct naos_engine_backend naos_engine_cuda = {
	.name = "cuda", .family = "cuda", .prepared_bytes = 64, .start = start, .key_prepare = key_prepare, .key_release = key_release,
	.seal = seal, .open = open_messages, .stream_start = stream_start, .stream_update = stream_update,
	.stream_finish = stream_finish, .stream_release = stream_release,
};

/* AES-GCM by intel-ipsec-mb: its direct functions, one message a call, without its job manager.
 *
 * The manager object is only asked for the functions of one code path and then freed.  A prepared key is the library's
 * struct gcm_key_data (key schedule and powers of H), which nothing writes after gcm*_pre.
 * The functions return nothing and do nothing on a bad argument: engine.c has checked them all.
 * The paths are those that every version from 1.3 on has.
 * SPDX-License-Identifier: Apache-2.0 */
#include <intel-ipsec-mb.h>
#include <openssl/crypto.h>
#include <string.h>

#include "engine/backend.h"

/* Of one key size. */
struct functions {
	aes_gcm_pre_t prepare;
	aes_gcm_enc_dec_t seal, open;
	aes_gcm_init_t start;
	aes_gcm_enc_dec_update_t seal_update, open_update;
	aes_gcm_enc_dec_finalize_t seal_finish, open_finish;
};

/* One code path.  `hide` tells the library to overlook an extension of the CPU, so that the path without VAES can be
 * tested on a CPU that has it. */
struct path {
	void (*init)(IMB_MGR *manager);
	uint64_t hide;
	uint64_t features;
	struct functions *functions; /* indexed by algorithm */
};

static struct functions vaes[NAOS_AES_256_GCM + 1], avx512[NAOS_AES_256_GCM + 1], avx2[NAOS_AES_256_GCM + 1],
	sse[NAOS_AES_256_GCM + 1];
static const struct path paths[NAOS_IPSEC_MB_PATHS] = {
	{ init_mb_mgr_avx512, 0, IMB_CPUFLAGS_AVX512_T2, vaes },
	{ init_mb_mgr_avx512, IMB_FLAG_GFNI_OFF, IMB_CPUFLAGS_AVX512, avx512 },
	{ init_mb_mgr_avx2, 0, IMB_CPUFLAGS_AVX2, avx2 },
	{ init_mb_mgr_sse, 0, IMB_CPUFLAGS_SSE, sse },
};

static int start(const struct naos_engine_backend *backend, struct naos_error *err)
{
	const struct path *path = backend->code;
	/* struct gcm_key_data grew from 1.3 to 1.4 under one soname: another library would write beyond our keys */
	if (imb_get_version() >> 8 != IMB_VERSION_NUM >> 8)
		return naos_error_set(err, NAOS_E_UNSUPPORTED, "intel-ipsec-mb %s is installed, but Naos was built with %s: build it again",
				      imb_get_version_str(), IMB_VERSION_STR);
	IMB_MGR *manager = alloc_mb_mgr(path->hide);
	if (!manager)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for intel-ipsec-mb");
	if ((manager->features & path->features) != path->features) {
		free_mb_mgr(manager);
		return naos_error_set(err, NAOS_E_UNSUPPORTED, "this CPU can't run %s", backend->name);
	}
	path->init(manager);
	if (imb_get_errno(manager) != 0) {
		int rc = naos_error_set(err, NAOS_E_SELFTEST, "intel-ipsec-mb refuses to start: %s",
					imb_get_strerror(imb_get_errno(manager)));
		free_mb_mgr(manager);
		return rc;
	}
	path->functions[NAOS_AES_128_GCM] = (struct functions){
		manager->gcm128_pre, manager->gcm128_enc, manager->gcm128_dec, manager->gcm128_init,
		manager->gcm128_enc_update, manager->gcm128_dec_update, manager->gcm128_enc_finalize, manager->gcm128_dec_finalize,
	};
	path->functions[NAOS_AES_256_GCM] = (struct functions){
		manager->gcm256_pre, manager->gcm256_enc, manager->gcm256_dec, manager->gcm256_init,
		manager->gcm256_enc_update, manager->gcm256_dec_update, manager->gcm256_enc_finalize, manager->gcm256_dec_finalize,
	};
	free_mb_mgr(manager);
	return 0;
}

static const struct functions *functions_of(const struct naos_gcm_key *key)
{
	const struct path *path = key->backend->code;
	return &path->functions[key->algorithm];
}

static const struct gcm_key_data *data_of(const struct naos_gcm_key *key)
{
	return (const struct gcm_key_data *)naos_secret_view(key->prepared);
}

static int key_prepare(struct naos_gcm_key *key, const uint8_t *raw, struct naos_error *err)
{
	functions_of(key)->prepare(raw, (struct gcm_key_data *)naos_secret_data(key->prepared));
	return 0;
}

static void key_release(struct naos_gcm_key *key)
{
}

static int seal_messages(const struct naos_gcm_key *key, const struct naos_gcm_message *messages, size_t count,
			 struct naos_error *err)
{
	const struct functions *functions = functions_of(key);
	const struct gcm_key_data *data = data_of(key);
	struct gcm_context_data context;
	for (const struct naos_gcm_message *m = messages; m < messages + count; m++)
		functions->seal(data, &context, m->out, m->in, m->bytes, m->nonce, m->associated, m->associated_bytes, m->tag,
				NAOS_GCM_TAG_BYTES);
	naos_wipe(&context, sizeof(context)); /* the hash in it and the tag give the pad of the tag away */
	return 0;
}

static int open_messages(const struct naos_gcm_key *key, struct naos_gcm_message *messages, size_t count, struct naos_error *err)
{
	const struct functions *functions = functions_of(key);
	const struct gcm_key_data *data = data_of(key);
	struct gcm_context_data context;
	uint8_t tag[NAOS_GCM_TAG_BYTES];
	for (struct naos_gcm_message *m = messages; m < messages + count; m++) {
		functions->open(data, &context, m->out, m->in, m->bytes, m->nonce, m->associated, m->associated_bytes, tag,
				sizeof(tag));
		naos_gcm_settle(m, CRYPTO_memcmp(tag, m->tag, sizeof(tag)) == 0);
	}
	naos_wipe(&context, sizeof(context));
	naos_wipe(tag, sizeof(tag)); /* of a message that did not match it would be the forger's answer */
	return 0;
}

static struct gcm_context_data *context_of(struct naos_gcm_stream *stream)
{
	return (struct gcm_context_data *)naos_secret_data(stream->state);
}

static int stream_start(struct naos_gcm_stream *stream, const uint8_t *nonce, const uint8_t *associated,
			size_t associated_bytes, struct naos_error *err)
{
	functions_of(stream->key)->start(data_of(stream->key), context_of(stream), nonce, associated, associated_bytes);
	return 0;
}

static int stream_update(struct naos_gcm_stream *stream, const uint8_t *in, uint8_t *out, size_t bytes, struct naos_error *err)
{
	const struct functions *functions = functions_of(stream->key);
	aes_gcm_enc_dec_update_t update = stream->sealing ? functions->seal_update : functions->open_update;
	update(data_of(stream->key), context_of(stream), out, in, bytes);
	return 0;
}

static int stream_finish(struct naos_gcm_stream *stream, uint8_t *tag, bool *ret_matches, struct naos_error *err)
{
	const struct functions *functions = functions_of(stream->key);
	uint8_t computed[NAOS_GCM_TAG_BYTES];
	if (stream->sealing) {
		functions->seal_finish(data_of(stream->key), context_of(stream), tag, NAOS_GCM_TAG_BYTES);
		return 0;
	}
	functions->open_finish(data_of(stream->key), context_of(stream), computed, sizeof(computed));
	*ret_matches = CRYPTO_memcmp(computed, tag, sizeof(computed)) == 0;
	naos_wipe(computed, sizeof(computed));
	return 0;
}

static void stream_release(struct naos_gcm_stream *stream)
{
}

#define ROW(index, path_name) \
	{ .name = "ipsec-mb " path_name, .family = "ipsec-mb", .code = &paths[index], \
	  .prepared_bytes = sizeof(struct gcm_key_data), .stream_bytes = sizeof(struct gcm_context_data), \
	  .start = start, .key_prepare = key_prepare, .key_release = key_release, .seal = seal_messages, .open = open_messages, \
	  .stream_start = stream_start, .stream_update = stream_update, .stream_finish = stream_finish, \
	  .stream_release = stream_release }

const struct naos_engine_backend naos_engine_ipsec_mb[NAOS_IPSEC_MB_PATHS] = {
	ROW(0, "avx512-vaes"), ROW(1, "avx512"), ROW(2, "avx2"), ROW(3, "sse"),
};

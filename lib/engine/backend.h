/* What stands behind the engine: one row a back end (or one code path of it), in the one table in select.c.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_ENGINE_BACKEND_H
#define NAOS_ENGINE_BACKEND_H

#include <openssl/types.h>

#include "engine/engine.h"

struct naos_engine_backend;

struct naos_gcm_key {
	const struct naos_engine_backend *backend;
	enum naos_algorithm algorithm;
	struct naos_secret *prepared; /* prepared_bytes of the back end, then a mark that a fork wipes with them, then the raw key */
	void *contexts;               /* of the back end, outside secret memory; NULL if it needs none */
};

struct naos_gcm_stream {
	const struct naos_gcm_key *key;
	bool sealing;
	bool finished;
	uint64_t bytes;            /* so far */
	struct naos_secret *state; /* stream_bytes of the back end; NULL if it needs none */
	void *context;             /* of the back end */
};

/* Arguments were checked by engine.c: pointers, lengths, overlaps.  Functions that can fail fill `err`. */
struct naos_engine_backend {
	const char *name;   /* "ipsec-mb avx2": this row */
	const char *family; /* "ipsec-mb": the first row of the family that this CPU can run */
	bool fips;
	const void *code;      /* of the back end: which code path this row is */
	size_t prepared_bytes; /* of a prepared key; 64-byte aligned */
	size_t stream_bytes;   /* of secret memory that a stream needs */

	/* Called once per row, under a lock.  NAOS_E_UNSUPPORTED if this machine can't run it. */
	int (*start)(const struct naos_engine_backend *backend, struct naos_error *err);
	/* raw: naos_algorithm_key_bytes; fills key->prepared and key->contexts */
	int (*key_prepare)(struct naos_gcm_key *key, const uint8_t *raw, struct naos_error *err);
	void (*key_release)(struct naos_gcm_key *key);

	int (*seal)(const struct naos_gcm_key *key, const struct naos_gcm_message *messages, size_t count, struct naos_error *err);
	/* settles each message with naos_gcm_settle */
	int (*open)(const struct naos_gcm_key *key, struct naos_gcm_message *messages, size_t count, struct naos_error *err);

	int (*stream_start)(struct naos_gcm_stream *stream, const uint8_t *nonce, const uint8_t *associated,
			    size_t associated_bytes, struct naos_error *err);
	int (*stream_update)(struct naos_gcm_stream *stream, const uint8_t *in, uint8_t *out, size_t bytes, struct naos_error *err);
	/* sealing: writes tag; opening: reads it and says whether it matches (compared in constant time) */
	int (*stream_finish)(struct naos_gcm_stream *stream, uint8_t *tag, bool *ret_matches, struct naos_error *err);
	void (*stream_release)(struct naos_gcm_stream *stream);
};

#ifdef NAOS_HAVE_IPSEC_MB
#define NAOS_IPSEC_MB_PATHS 4
extern const struct naos_engine_backend naos_engine_ipsec_mb[NAOS_IPSEC_MB_PATHS]; /* fastest first */
#endif
#define NAOS_OPENSSL_FLAVOURS 2
extern const struct naos_engine_backend naos_engine_openssl[NAOS_OPENSSL_FLAVOURS]; /* default, FIPS */
extern const struct naos_engine_backend naos_engine_cuda;

/* The index-th row of the table, fastest first; NULL behind the last one. */
const struct naos_engine_backend *naos_engine_row(unsigned index);

/* The chosen row; chooses "auto" if nothing was chosen yet. */
int naos_engine_current(const struct naos_engine_backend **ret, struct naos_error *err) naos_must_check;

/* Whether that one was not asked for by name, and another may do a piece of work. */
bool naos_engine_automatic(void);

/* Known answers for both algorithms: one message, opened and sealed, and streams.  NAOS_E_SELFTEST names the case. */
int naos_engine_selftest(const struct naos_engine_backend *backend, struct naos_error *err) naos_must_check;

/* One of those answers; false behind the last one.  Its bytes are static. */
#define NAOS_KNOWN_ANSWER_BYTES 8192u /* none is longer */
struct naos_known_answer {
	enum naos_algorithm algorithm;
	const uint8_t *key, *nonce, *associated, *plain, *tag;
	size_t associated_bytes, bytes;
};
bool naos_known_answer(unsigned index, struct naos_known_answer *ret);

/* The fastest row of the CPU that works here: what the GPU's row falls back to.  Not for FIPS. */
int naos_engine_cpu(const struct naos_engine_backend **ret, struct naos_error *err) naos_must_check;

/* naos_gcm_key_create on a given row. */
int naos_gcm_key_create_on(const struct naos_engine_backend *backend, enum naos_algorithm algorithm,
			   const struct naos_secret *key, struct naos_gcm_key **ret, struct naos_error *err) naos_must_check;

/* The library context whose DRBG makes nonces: of the FIPS provider once FIPS was chosen, else NULL (the default). */
OSSL_LIB_CTX *naos_engine_library_context(void);

/* The key itself, in secret memory, for a device that makes it ready by itself; valid as long as the key. */
int naos_gcm_key_raw(const struct naos_gcm_key *key, const uint8_t **ret, struct naos_error *err) naos_must_check;

/* Ends the opening of one message: what did not match is zeroed, in place too. */
void naos_gcm_settle(struct naos_gcm_message *message, bool matches);

#endif

/* AES-GCM: one message, many messages at once, a stream; AES-128 and AES-256; in place and out of place.
 *
 * Back ends stand behind one table (struct naos_engine_backend in backend.h): ipsec-mb (where the CPU has what it needs),
 * openssl (elsewhere, and when FIPS is asked for), later cuda.  All give the same bytes.  A back end is used only after
 * its known-answer test passed in this process.
 *
 * Limits of GCM (SP 800-38D): a message has at most 2^36 - 32 bytes, associated data at most 2^61 - 1 (here 2^32 - 1);
 * nonces are 12 bytes; tags are 16 bytes, never shorter.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_ENGINE_ENGINE_H
#define NAOS_ENGINE_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "base/errors.h"
#include "base/secret.h"

#define NAOS_GCM_NONCE_BYTES 12
#define NAOS_GCM_TAG_BYTES 16
#define NAOS_GCM_MAX_MESSAGE_BYTES (((uint64_t)1 << 36) - 32) /* one message under AES-GCM (SP 800-38D, 5.2.1.1) */
#define NAOS_GCM_MAX_ASSOCIATED_BYTES UINT32_MAX /* data that one message authenticates beside itself */

/* The numbers are those of the formats on disk and never change. */
enum naos_algorithm { NAOS_AES_128_GCM = 1, NAOS_AES_256_GCM = 2 };

/* 16 or 32, 0 for an unknown algorithm. */
size_t naos_algorithm_key_bytes(enum naos_algorithm algorithm);
/* "aes-256-gcm"; NULL for an unknown one. */
const char *naos_algorithm_name(enum naos_algorithm algorithm);
bool naos_algorithm_parse(const char *name, enum naos_algorithm *ret);

/* Chooses the back end for this process: "auto", "ipsec-mb", "openssl", or one code path by its name ("ipsec-mb avx2");
 * fips: only OpenSSL with its FIPS provider, also for nonces drawn from then on.  Runs the known-answer test of the
 * chosen one.  Optional: the first key made chooses "auto".  A key keeps the back end that it was made with.
 * Errors: NAOS_E_UNSUPPORTED (not on this CPU, or not built in), NAOS_E_SELFTEST (nothing is chosen instead). */
int naos_engine_select(const char *backend, bool fips, struct naos_error *err) naos_must_check;
/* Name of the chosen back end and of its code path ("ipsec-mb avx512-vaes"), for `naos doctor` and benchmarks; "none"
 * before the first choice.  Static. */
const char *naos_engine_name(void);

/* A key made ready (key schedule, powers of H), kept in secret memory and reused over many messages.  Immutable:
 * any number of threads may use one at once.  A forked child can't: its copy is wiped, and each use is NAOS_E_NOKEY. */
struct naos_gcm_key;
/* key must have naos_algorithm_key_bytes(algorithm) bytes; it is borrowed for the call. */
int naos_gcm_key_create(enum naos_algorithm algorithm, const struct naos_secret *key, struct naos_gcm_key **ret,
			struct naos_error *err) naos_must_check;
struct naos_gcm_key *naos_gcm_key_free(struct naos_gcm_key *key);
enum naos_algorithm naos_gcm_key_algorithm(const struct naos_gcm_key *key);

/* One message.  `out` may be `in` (in place) or not overlap it at all, and `tag` lies outside of `out`; else, and for
 * missing pointers, NAOS_E_USAGE.  NAOS_E_LIMIT beyond the limits above.  A nonce is used once per key. */
struct naos_gcm_message {
	const uint8_t *nonce;      /* NAOS_GCM_NONCE_BYTES */
	const uint8_t *associated; /* may be NULL if associated_bytes is 0 */
	size_t associated_bytes;
	const uint8_t *in;
	uint8_t *out;
	size_t bytes;
	uint8_t *tag; /* NAOS_GCM_TAG_BYTES: written by seal, read by open */
	int result;   /* set by the calls on many: 0, NAOS_E_INTEGRITY, or what the call itself returned */
};

int naos_gcm_seal(const struct naos_gcm_key *key, const struct naos_gcm_message *message, struct naos_error *err) naos_must_check;
/* NAOS_E_INTEGRITY if the tag does not match; `out` is then zeroed, in place too: nothing unverified is released. */
int naos_gcm_open(const struct naos_gcm_key *key, const struct naos_gcm_message *message, struct naos_error *err) naos_must_check;

/* Many messages under one key, the fast path for 4 KiB chunks.  open_many goes through all of them, zeroes what
 * did not open, sets each `result`, and returns NAOS_E_INTEGRITY if any failed. */
int naos_gcm_seal_many(const struct naos_gcm_key *key, struct naos_gcm_message *messages, size_t count,
		       struct naos_error *err) naos_must_check;
int naos_gcm_open_many(const struct naos_gcm_key *key, struct naos_gcm_message *messages, size_t count,
		       struct naos_error *err) naos_must_check;

/* One message in pieces.  An opening stream hands out plaintext before the tag is known: the caller must not release
 * it until naos_gcm_stream_finish has returned 0 (used for version-1 frames, which can't be verified any sooner).
 * One thread at a time; the key must outlive the stream. */
struct naos_gcm_stream;
int naos_gcm_stream_create(const struct naos_gcm_key *key, bool sealing, const uint8_t *nonce, const uint8_t *associated,
			   size_t associated_bytes, struct naos_gcm_stream **ret, struct naos_error *err) naos_must_check;
int naos_gcm_stream_update(struct naos_gcm_stream *stream, const uint8_t *in, uint8_t *out, size_t bytes,
			   struct naos_error *err) naos_must_check;
/* Sealing: writes the tag.  Opening: compares it in constant time, NAOS_E_INTEGRITY if it differs. */
int naos_gcm_stream_finish(struct naos_gcm_stream *stream, uint8_t *tag, struct naos_error *err) naos_must_check;
struct naos_gcm_stream *naos_gcm_stream_free(struct naos_gcm_stream *stream);

/* Random 12-byte nonces: of a per-thread batch of OpenSSL's DRBG, each combined with fresh bytes of the kernel's generator.
 * A forked child finds its batch empty (MADV_WIPEONFORK) and draws its own; the kernel's part differs after a VM clone
 * (README.md says from when on).  At most 2^26 per key are drawn by the formats (their key derivation sees to it).
 * For many at once naos_nonce_fill is cheaper. */
int naos_nonce_next(uint8_t nonce[static NAOS_GCM_NONCE_BYTES], struct naos_error *err) naos_must_check;
int naos_nonce_fill(uint8_t *nonces, size_t count, struct naos_error *err) naos_must_check;

static inline void naos_gcm_key_free_pointer(struct naos_gcm_key **key)
{
	*key = naos_gcm_key_free(*key);
}
#define naos_autogcmkey naos_cleanup(naos_gcm_key_free_pointer)

#endif

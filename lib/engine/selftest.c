/* Known answers, made with OpenSSL 3.0: the first of tests/data/engine/pattern_kats.txt, which says how.
 * The longest is beyond the widest vector loop of any back end.  SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <string.h>

#include "engine/backend.h"

#define LONGEST 4097
#define PIECE 1001 /* streams are cut here: no multiple of a block */

static const uint8_t raw_key[32] = {
	0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff,
	0x0f, 0x1e, 0x2d, 0x3c, 0x4b, 0x5a, 0x69, 0x78, 0x87, 0x96, 0xa5, 0xb4, 0xc3, 0xd2, 0xe1, 0xf0,
};
static const uint8_t nonce[NAOS_GCM_NONCE_BYTES] = { 0xca, 0xfe, 0xba, 0xbe, 0xfa, 0xce, 0xdb, 0xad, 0xde, 0xca, 0xf8, 0x88 };

struct answer {
	enum naos_algorithm algorithm;
	size_t associated_bytes;
	size_t bytes;
	uint8_t tag[NAOS_GCM_TAG_BYTES];
};

static const struct answer answers[] = {
	{ NAOS_AES_128_GCM, 0, 0,
	  { 0x88, 0x05, 0xaa, 0xd1, 0xbe, 0x3b, 0x02, 0xb4, 0x9a, 0xb8, 0xd6, 0x7b, 0x5d, 0xb9, 0xf0, 0xb4 } },
	{ NAOS_AES_128_GCM, 20, 17,
	  { 0xe0, 0x5c, 0x09, 0xf4, 0x9e, 0x11, 0xa6, 0x59, 0xbd, 0x1c, 0x6b, 0xa6, 0x27, 0xea, 0x56, 0x70 } },
	{ NAOS_AES_128_GCM, 4096, 257,
	  { 0x5e, 0xc1, 0x7c, 0x74, 0x1b, 0xb6, 0x0a, 0x3d, 0x65, 0x5d, 0xda, 0x4f, 0x1b, 0x3a, 0x20, 0x70 } },
	{ NAOS_AES_128_GCM, 20, 4097,
	  { 0x4a, 0x2c, 0xc5, 0x9b, 0xc6, 0xc0, 0x66, 0x69, 0xbc, 0xf0, 0x6d, 0x79, 0xc2, 0xe5, 0x40, 0x72 } },
	{ NAOS_AES_256_GCM, 0, 0,
	  { 0xe2, 0x5b, 0x94, 0x36, 0xfa, 0x30, 0x42, 0x1c, 0xae, 0x05, 0xa2, 0x2a, 0xaf, 0x91, 0xb0, 0xfd } },
	{ NAOS_AES_256_GCM, 20, 17,
	  { 0x15, 0x98, 0x46, 0xb1, 0xbd, 0xa7, 0x9a, 0x01, 0xf7, 0x64, 0x02, 0x4d, 0x45, 0xb3, 0x8d, 0x25 } },
	{ NAOS_AES_256_GCM, 4096, 257,
	  { 0xbd, 0xcd, 0x6b, 0xa1, 0x15, 0x6c, 0x59, 0xfc, 0x49, 0xae, 0x17, 0x09, 0xd3, 0x64, 0x4e, 0xbc } },
	{ NAOS_AES_256_GCM, 20, 4097,
	  { 0x20, 0x07, 0x0e, 0xda, 0x71, 0x7c, 0x9f, 0x3d, 0xf6, 0xde, 0x53, 0x60, 0xda, 0x52, 0x6e, 0x5a } },
};

struct work {
	uint8_t associated[4096];
	uint8_t plain[LONGEST];
	uint8_t sealed[LONGEST];
	uint8_t opened[LONGEST];
};

static void fill(struct work *work)
{
	for (size_t i = 0; i < sizeof(work->associated); i++)
		work->associated[i] = (uint8_t)(i * 7 + 3);
	for (size_t i = 0; i < sizeof(work->plain); i++) {
		uint32_t x = (uint32_t)(i / 4) * 2654435761u;
		x = (x ^ x >> 15) * 0x2c1b3c6du;
		x = (x ^ x >> 12) * 0x297a2d39u;
		work->plain[i] = (uint8_t)((x ^ x >> 15) >> 8 * (i % 4));
	}
}

static struct work known; /* what naos_known_answer points into */
static pthread_once_t known_once = PTHREAD_ONCE_INIT;
static void fill_known(void)
{
	fill(&known);
}

bool naos_known_answer(unsigned index, struct naos_known_answer *ret)
{
	(void)pthread_once(&known_once, fill_known);
	if (index >= NAOS_ARRAY_LENGTH(answers))
		return false;
	*ret = (struct naos_known_answer){
		.algorithm = answers[index].algorithm, .key = raw_key, .nonce = nonce, .associated = known.associated, .plain = known.plain,
		.tag = answers[index].tag, .associated_bytes = answers[index].associated_bytes, .bytes = answers[index].bytes,
	};
	return true;
}

static int one_message(const struct naos_gcm_key *key, struct work *work, const struct answer *answer, struct naos_error *err)
{
	uint8_t tag[NAOS_GCM_TAG_BYTES] = { 0 };
	struct naos_gcm_message m = { .nonce = nonce, .associated = work->associated, .associated_bytes = answer->associated_bytes,
				      .in = work->plain, .out = work->sealed, .bytes = answer->bytes, .tag = tag };
	int rc = naos_gcm_seal(key, &m, err);
	if (rc != 0 || memcmp(tag, answer->tag, sizeof(tag)) != 0)
		return rc ? rc : NAOS_E_SELFTEST;
	m.in = work->sealed;
	m.out = work->opened;
	rc = naos_gcm_open(key, &m, err);
	if (rc != 0 || memcmp(work->opened, work->plain, answer->bytes) != 0)
		return rc ? rc : NAOS_E_SELFTEST;
	tag[answer->bytes % sizeof(tag)] ^= 1;
	return naos_gcm_open(key, &m, NULL) == NAOS_E_INTEGRITY ? 0 : NAOS_E_SELFTEST;
}

static int run_stream(const struct naos_gcm_key *key, bool sealing, const struct work *work, const struct answer *answer,
		      const uint8_t *in, uint8_t *out, uint8_t *tag, struct naos_error *err)
{
	struct naos_gcm_stream *stream;
	int rc = naos_gcm_stream_create(key, sealing, nonce, work->associated, answer->associated_bytes, &stream, err);
	if (rc != 0)
		return rc;
	for (size_t done = 0; done < answer->bytes && rc == 0; done += PIECE)
		rc = naos_gcm_stream_update(stream, in + done, out + done,
					    answer->bytes - done < PIECE ? answer->bytes - done : PIECE, err);
	if (rc == 0)
		rc = naos_gcm_stream_finish(stream, tag, err);
	naos_gcm_stream_free(stream);
	return rc;
}

static int streams(const struct naos_gcm_key *key, struct work *work, const struct answer *answer, struct naos_error *err)
{
	uint8_t tag[NAOS_GCM_TAG_BYTES] = { 0 };
	int rc = run_stream(key, true, work, answer, work->plain, work->sealed, tag, err);
	if (rc != 0 || memcmp(tag, answer->tag, sizeof(tag)) != 0)
		return rc ? rc : NAOS_E_SELFTEST;
	rc = run_stream(key, false, work, answer, work->sealed, work->opened, tag, err);
	if (rc != 0 || memcmp(work->opened, work->plain, answer->bytes) != 0)
		return rc ? rc : NAOS_E_SELFTEST;
	tag[answer->bytes % sizeof(tag)] ^= 0x80;
	rc = run_stream(key, false, work, answer, work->sealed, work->opened, tag, NULL);
	return rc == NAOS_E_INTEGRITY ? 0 : NAOS_E_SELFTEST;
}

static int one_answer(const struct naos_engine_backend *backend, struct work *work, const struct answer *answer,
		      struct naos_error *err)
{
	naos_autosecret struct naos_secret *secret = NULL;
	naos_autogcmkey struct naos_gcm_key *key = NULL;
	uint8_t raw[sizeof(raw_key)];
	memcpy(raw, raw_key, sizeof(raw));
	int rc = naos_secret_take(raw, naos_algorithm_key_bytes(answer->algorithm), &secret, err);
	if (rc == 0)
		rc = naos_gcm_key_create_on(backend, answer->algorithm, secret, &key, err);
	if (rc != 0)
		return rc;
	const char *what = "one message";
	rc = one_message(key, work, answer, err);
	if (rc == 0) {
		what = "a stream";
		rc = streams(key, work, answer, err);
	}
	if (rc != NAOS_E_SELFTEST && rc != NAOS_E_INTEGRITY)
		return rc;
	return naos_error_set(err, NAOS_E_SELFTEST, "%s computes %s of %zu bytes wrongly as %s: do not use it on this machine",
			      backend->name, naos_algorithm_name(answer->algorithm), answer->bytes, what);
}

int naos_engine_selftest(const struct naos_engine_backend *backend, struct naos_error *err)
{
	naos_autofree struct work *work = malloc(sizeof(*work));
	if (!work)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the known-answer test");
	fill(work);
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(answers); i++) {
		int rc = one_answer(backend, work, &answers[i], err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* AES alone, in memory that is warm: GCM as frames use it beside CTR, which authenticates nothing: see README.md.
 *     bench_frames_aes BYTES SEGMENT-BYTES WARM-UP ROUNDS
 * One thread.  SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <openssl/evp.h>
#ifdef HAVE_IPSEC_MB
#include <intel-ipsec-mb.h>
#endif

#include "engine/engine.h"

struct work {
	uint8_t *data;
	size_t bytes, segment;
	struct naos_gcm_key *key;
	uint8_t *tags;
	EVP_CIPHER_CTX *ctr;
#ifdef HAVE_IPSEC_MB
	IMB_MGR *manager;
	DECLARE_ALIGNED(uint32_t encrypt[60], 16);
	DECLARE_ALIGNED(uint32_t decrypt[60], 16);
#endif
};

static const uint8_t raw_key[32] = { 1, 2, 3 };
static struct naos_error err;

static void die(const char *what)
{
	fprintf(stderr, "bench_frames_aes: %s: %s\n", what, err.message);
	exit(1);
}

static void gcm(struct work *work, bool seal)
{
	for (size_t at = 0, i = 0; at < work->bytes; at += work->segment, i++) {
		uint8_t nonce[NAOS_GCM_NONCE_BYTES] = { 0 }, associated[88] = { 0 };
		memcpy(nonce, &i, sizeof(i));
		const struct naos_gcm_message message = {
			.nonce = nonce, .associated = associated, .associated_bytes = sizeof(associated), .in = work->data + at,
			.out = work->data + at, .bytes = work->bytes - at < work->segment ? work->bytes - at : work->segment,
			.tag = work->tags + i * NAOS_GCM_TAG_BYTES,
		};
		if ((seal ? naos_gcm_seal(work->key, &message, &err) : naos_gcm_open(work->key, &message, &err)) != 0)
			die("AES-GCM");
	}
}

static void gcm_open(struct work *work)
{
	gcm(work, false);
}

static void ctr_openssl(struct work *work)
{
	uint8_t counter[16] = { 0 };
	int done;
	for (size_t at = 0; at < work->bytes; at += work->segment) {
		size_t bytes = work->bytes - at < work->segment ? work->bytes - at : work->segment;
		if (EVP_DecryptInit_ex(work->ctr, EVP_aes_256_ctr(), NULL, raw_key, counter) != 1 ||
		    EVP_DecryptUpdate(work->ctr, work->data + at, &done, work->data + at, (int)bytes) != 1)
			die("AES-CTR");
	}
}

#ifdef HAVE_IPSEC_MB
static void ctr_ipsec_mb(struct work *work)
{
	uint8_t counter[16] = { 0 };
	for (size_t at = 0; at < work->bytes; at += work->segment) {
		IMB_JOB *job = IMB_GET_NEXT_JOB(work->manager);
		memset(job, 0, sizeof(*job));
		job->enc_keys = work->encrypt;
		job->dec_keys = work->decrypt;
		job->key_len_in_bytes = 32;
		job->src = work->data + at;
		job->dst = work->data + at;
		job->msg_len_to_cipher_in_bytes = work->bytes - at < work->segment ? work->bytes - at : work->segment;
		job->iv = counter;
		job->iv_len_in_bytes = 16;
		job->cipher_mode = IMB_CIPHER_CNTR;
		job->cipher_direction = IMB_DIR_DECRYPT;
		job->hash_alg = IMB_AUTH_NULL;
		job->chain_order = IMB_ORDER_HASH_CIPHER;
		job = IMB_SUBMIT_JOB(work->manager);
		if (!job || job->status != IMB_STATUS_COMPLETED)
			die("AES-CTR of ipsec-mb");
	}
}
#endif

static const struct {
	const char *what;
	void (*run)(struct work *work);
} measures[] = {
	{ "AES-256-GCM, as in frames", gcm_open },
#ifdef HAVE_IPSEC_MB
	{ "AES-256-CTR, ipsec-mb", ctr_ipsec_mb },
#endif
	{ "AES-256-CTR, OpenSSL", ctr_openssl },
};

static double now_s(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
	naos_autosecret struct naos_secret *key = NULL;
	if (argc != 5)
		die("usage: bench_frames_aes BYTES SEGMENT-BYTES WARM-UP ROUNDS");
	struct work work = { .bytes = strtoull(argv[1], NULL, 10), .segment = strtoull(argv[2], NULL, 10), .ctr = EVP_CIPHER_CTX_new() };
	work.data = mmap(NULL, work.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (work.data == MAP_FAILED || work.segment == 0 || !(work.tags = calloc(work.bytes / work.segment + 1, NAOS_GCM_TAG_BYTES)))
		die("memory");
	(void)madvise(work.data, work.bytes, MADV_HUGEPAGE);
	memset(work.data, 1, work.bytes);
	if (naos_secret_random(32, &key, &err) != 0 || naos_gcm_key_create(NAOS_AES_256_GCM, key, &work.key, &err) != 0)
		die("key");
#ifdef HAVE_IPSEC_MB
	if (!(work.manager = alloc_mb_mgr(0)))
		die("ipsec-mb");
	init_mb_mgr_auto(work.manager, NULL);
	IMB_AES_KEYEXP_256(work.manager, raw_key, work.encrypt, work.decrypt);
#endif
	for (int round = 1 - atoi(argv[3]); round <= atoi(argv[4]); round++)
		for (size_t i = 0; i < sizeof(measures) / sizeof(*measures); i++) {
			if (i == 0)
				gcm(&work, true); /* tags for what is to be opened */
			double start = now_s();
			measures[i].run(&work);
			double took = now_s() - start;
			if (round > 0)
				printf("{\"what\": \"%s\", \"round\": %d, \"wall_s\": %.6f}\n", measures[i].what, round, took);
		}
	return 0;
}

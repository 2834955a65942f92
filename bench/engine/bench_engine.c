/* AES-GCM rates of the engine, beside intel-ipsec-mb and OpenSSL called directly, and memcpy: see README.md.
 * Writes one JSON object a line.  SPDX-License-Identifier: Apache-2.0 */
#include <intel-ipsec-mb.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "engine/engine.h"

#define SLICE_NS 2000000 /* of thread CPU time: shorter than the turns of a busy scheduler */
#define CLOCK_BYTES ((size_t)1 << 20) /* processed between looks at the clock, which is a system call */
#define MAX_THREADS 256
#define CHUNK 4096
#define CHUNKS 64 /* sealed in one call */
#define AAD_BYTES 48

/* Everything that one thread works on. */
struct lane {
	enum naos_algorithm algorithm;
	size_t bytes; /* of a message */
	bool in_place;
	uint8_t *in, *out;
	struct naos_gcm_key *key;
	IMB_MGR *manager;
	struct gcm_key_data *data; /* 64-byte aligned */
	EVP_CIPHER_CTX *evp;
	uint8_t aad[AAD_BYTES], tags[CHUNKS][NAOS_GCM_TAG_BYTES], nonces[CHUNKS][NAOS_GCM_NONCE_BYTES];
	const struct contender *contender;
	double seconds, best; /* to run; bytes per ns of the best slice */
	pthread_barrier_t *barrier;
};

static void die(const char *what)
{
	fprintf(stderr, "bench_engine: %s\n", what);
	exit(1);
}

static uint64_t cpu_ns(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint8_t *output(struct lane *lane)
{
	return lane->in_place ? lane->in : lane->out;
}

static void run_memcpy(struct lane *lane)
{
	memcpy(lane->out, lane->in, lane->bytes);
	__asm__ volatile("" ::: "memory");
}

static void run_naos_seal(struct lane *lane)
{
	struct naos_gcm_message m = { lane->nonces[0], NULL, 0, lane->in, output(lane), lane->bytes, lane->tags[0], 0 };
	if (naos_gcm_seal(lane->key, &m, NULL) != 0)
		die("naos_gcm_seal failed");
}

/* Opening must succeed to be measured, so it always opens what was sealed before into a third place. */
static void run_naos_open(struct lane *lane)
{
	struct naos_gcm_message m = { lane->nonces[0], NULL, 0, lane->in, lane->out, lane->bytes, lane->tags[0], 0 };
	if (naos_gcm_open(lane->key, &m, NULL) != 0)
		die("naos_gcm_open failed");
}

static void run_ipsec_mb_seal(struct lane *lane)
{
	aes_gcm_enc_dec_t seal = lane->algorithm == NAOS_AES_128_GCM ? lane->manager->gcm128_enc : lane->manager->gcm256_enc;
	struct gcm_context_data context;
	seal(lane->data, &context, output(lane), lane->in, lane->bytes, lane->nonces[0], NULL, 0, lane->tags[0], NAOS_GCM_TAG_BYTES);
}

static void run_ipsec_mb_open(struct lane *lane)
{
	aes_gcm_enc_dec_t open = lane->algorithm == NAOS_AES_128_GCM ? lane->manager->gcm128_dec : lane->manager->gcm256_dec;
	struct gcm_context_data context;
	open(lane->data, &context, lane->out, lane->in, lane->bytes, lane->nonces[0], NULL, 0, lane->tags[1], NAOS_GCM_TAG_BYTES);
}

static void run_evp_seal(struct lane *lane)
{
	int written;
	if (EVP_EncryptInit_ex(lane->evp, NULL, NULL, NULL, lane->nonces[0]) != 1 ||
	    EVP_EncryptUpdate(lane->evp, output(lane), &written, lane->in, (int)lane->bytes) != 1 ||
	    EVP_EncryptFinal_ex(lane->evp, output(lane), &written) != 1 ||
	    EVP_CIPHER_CTX_ctrl(lane->evp, EVP_CTRL_AEAD_GET_TAG, NAOS_GCM_TAG_BYTES, lane->tags[0]) != 1)
		die("EVP failed");
}

/* CHUNKS messages of 4 KiB with associated data and a fresh nonce each: what the sealed file does. */
static void run_naos_chunks(struct lane *lane)
{
	struct naos_gcm_message m[CHUNKS];
	for (size_t i = 0; i < CHUNKS; i++) {
		if (naos_nonce_next(lane->nonces[i], NULL) != 0)
			die("naos_nonce_next failed");
		m[i] = (struct naos_gcm_message){ lane->nonces[i], lane->aad, AAD_BYTES, lane->in + i * CHUNK, output(lane) + i * CHUNK,
						  CHUNK, lane->tags[i], 0 };
	}
	if (naos_gcm_seal_many(lane->key, m, CHUNKS, NULL) != 0)
		die("naos_gcm_seal_many failed");
}

static void run_ipsec_mb_chunks(struct lane *lane)
{
	aes_gcm_enc_dec_t seal = lane->algorithm == NAOS_AES_128_GCM ? lane->manager->gcm128_enc : lane->manager->gcm256_enc;
	struct gcm_context_data context;
	for (size_t i = 0; i < CHUNKS; i++)
		seal(lane->data, &context, output(lane) + i * CHUNK, lane->in + i * CHUNK, CHUNK, lane->nonces[i], lane->aad, AAD_BYTES,
		     lane->tags[i], NAOS_GCM_TAG_BYTES);
}

static void run_nonces(struct lane *lane)
{
	for (size_t i = 0; i < CHUNKS; i++)
		if (naos_nonce_next(lane->nonces[i], NULL) != 0)
			die("naos_nonce_next failed");
}

static const struct contender {
	const char *name;
	void (*run)(struct lane *lane);
	bool chunks, opening, copies; /* copies: has no in-place form */
} contenders[] = {
	{ "memcpy", run_memcpy, .copies = true },
	{ "naos seal", run_naos_seal },
	{ "ipsec-mb seal", run_ipsec_mb_seal },
	{ "openssl-evp seal", run_evp_seal },
	{ "naos open", run_naos_open, .opening = true, .copies = true },
	{ "ipsec-mb open", run_ipsec_mb_open, .opening = true, .copies = true },
	{ "naos chunks", run_naos_chunks, .chunks = true },
	{ "ipsec-mb chunks", run_ipsec_mb_chunks, .chunks = true },
	{ "naos nonces", run_nonces, .chunks = true, .copies = true },
};

static void *measure(void *argument)
{
	struct lane *lane = argument;
	size_t bytes = lane->contender->chunks ? CHUNKS * CHUNK : lane->bytes;
	size_t between = bytes < CLOCK_BYTES ? CLOCK_BYTES / bytes : 1;
	if (lane->contender->opening) { /* something that opens */
		bool in_place = lane->in_place;
		lane->in_place = true;
		run_naos_seal(lane);
		lane->in_place = in_place;
	}
	lane->contender->run(lane);
	(void)pthread_barrier_wait(lane->barrier);
	for (uint64_t begin = cpu_ns(), start, now = begin; (double)(now - begin) < lane->seconds * 1e9;) {
		size_t count = 0;
		start = now;
		do {
			for (size_t i = 0; i < between; i++)
				lane->contender->run(lane);
			count += between;
			now = cpu_ns();
		} while (now - start < SLICE_NS);
		double rate = (double)(count * bytes) / (double)(now - start);
		if (rate > lane->best)
			lane->best = rate;
	}
	return NULL;
}

static uint8_t *memory(size_t bytes)
{
	uint8_t *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (area == MAP_FAILED)
		die("no memory");
	(void)madvise(area, bytes, MADV_HUGEPAGE);
	memset(area, 0x5a, bytes);
	return area;
}

static void lane_create(struct lane *lane, enum naos_algorithm algorithm, size_t largest)
{
	static const uint8_t raw[32] = { 1, 2, 3 };
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_secret *secret;
	IMB_ARCH arch;
	uint8_t copy[32];
	memcpy(copy, raw, sizeof(copy));
	*lane = (struct lane){ .algorithm = algorithm, .in = memory(largest), .out = memory(largest) };
	if (naos_secret_take(copy, naos_algorithm_key_bytes(algorithm), &secret, &err) != 0 ||
	    naos_gcm_key_create(algorithm, secret, &lane->key, &err) != 0)
		die(err.message);
	naos_secret_free(secret);
	lane->manager = alloc_mb_mgr(0);
	lane->data = aligned_alloc(64, (sizeof(*lane->data) + 63) / 64 * 64);
	lane->evp = EVP_CIPHER_CTX_new();
	if (!lane->manager || !lane->data || !lane->evp)
		die("no memory");
	init_mb_mgr_auto(lane->manager, &arch);
	(algorithm == NAOS_AES_128_GCM ? lane->manager->gcm128_pre : lane->manager->gcm256_pre)(raw, lane->data);
	if (EVP_EncryptInit_ex(lane->evp, algorithm == NAOS_AES_128_GCM ? EVP_aes_128_gcm() : EVP_aes_256_gcm(), NULL, raw, NULL) != 1)
		die("EVP failed");
}

/* Contenders take turns within a row, round by round, so that all of them see the same machine. */
static void row(struct lane *lanes, size_t threads, size_t bytes, bool in_place, double seconds, bool chunks)
{
	enum { ROUNDS = 8 };
	double best[NAOS_ARRAY_LENGTH(contenders)] = { 0 };
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (size_t c = 0; c < NAOS_ARRAY_LENGTH(contenders); c++) {
			pthread_t ids[MAX_THREADS];
			pthread_barrier_t barrier;
			double sum = 0;
			if (contenders[c].chunks != chunks || (in_place && contenders[c].copies))
				continue;
			(void)pthread_barrier_init(&barrier, NULL, (unsigned)threads);
			for (size_t t = 0; t < threads; t++) {
				lanes[t].contender = &contenders[c];
				lanes[t].bytes = bytes;
				lanes[t].in_place = in_place;
				lanes[t].seconds = seconds / ROUNDS;
				lanes[t].best = 0;
				lanes[t].barrier = &barrier;
				if (pthread_create(&ids[t], NULL, measure, &lanes[t]) != 0)
					die("no thread");
			}
			for (size_t t = 0; t < threads; t++) {
				(void)pthread_join(ids[t], NULL);
				sum += lanes[t].best;
			}
			(void)pthread_barrier_destroy(&barrier);
			if (sum > best[c])
				best[c] = sum;
		}
	}
	for (size_t c = 0; c < NAOS_ARRAY_LENGTH(contenders); c++)
		if (best[c] > 0)
			printf("{\"what\": \"%s\", \"algorithm\": \"%s\", \"bytes\": %zu, \"threads\": %zu, \"place\": \"%s\", \"gb_per_s\": %.2f}\n",
			       contenders[c].name, naos_algorithm_name(lanes[0].algorithm), bytes, threads, in_place ? "in" : "out", best[c]);
	(void)fflush(stdout);
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = { 4096, 65536, 1 << 20, 64 << 20 };
	static struct lane lanes[MAX_THREADS];
	struct naos_error err = NAOS_ERROR_INIT;
	size_t threads = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
	double seconds = argc > 2 ? strtod(argv[2], NULL) : 0.2;
	if (threads < 1 || threads > MAX_THREADS || seconds <= 0 || argc > 3) {
		fprintf(stderr, "Usage: bench_engine [THREADS [SECONDS per figure]]\n");
		return 2;
	}
	if (naos_engine_select("auto", false, &err) != 0)
		die(err.message);
	printf("{\"engine\": \"%s\", \"ipsec_mb\": \"%s\", \"openssl\": \"%s\", \"threads\": %zu}\n", naos_engine_name(),
	       imb_get_version_str(), OpenSSL_version(OPENSSL_VERSION_STRING), threads);
	for (enum naos_algorithm algorithm = NAOS_AES_128_GCM; algorithm <= NAOS_AES_256_GCM; algorithm++) {
		for (size_t t = 0; t < threads; t++)
			lane_create(&lanes[t], algorithm, sizes[NAOS_ARRAY_LENGTH(sizes) - 1]);
		for (int in_place = 0; in_place < 2; in_place++) {
			for (size_t s = 0; s < NAOS_ARRAY_LENGTH(sizes); s++)
				row(lanes, threads, sizes[s], in_place, seconds, false);
			row(lanes, threads, CHUNK, in_place, seconds, true);
		}
		for (size_t t = 0; t < threads; t++) { /* the rest is small and goes with the process */
			(void)munmap(lanes[t].in, sizes[NAOS_ARRAY_LENGTH(sizes) - 1]);
			(void)munmap(lanes[t].out, sizes[NAOS_ARRAY_LENGTH(sizes) - 1]);
		}
	}
	return 0;
}

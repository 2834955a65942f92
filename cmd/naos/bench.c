/* naos bench: what protection costs on this machine.  SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "command.h"
#include "engine/backend.h"
#include "engine/configure.h"
#include "engine/cost.h"

#define SEGMENT_BYTES ((size_t)4 << 20)
#define REPEATS 5u
#define MOST_THREADS 64u
#define BENCH_MAX_BYTES ((uint64_t)16 << 30) /* of memory that one size may take */

/* One piece of work in segments: the same buffer all the time, sealed in place or opened to the device. */
struct work {
	const struct naos_gcm_key *key;
	uint8_t *memory, *tags;
	uint64_t bytes;
	atomic_uint_fast64_t next;
	atomic_int failed;
};

static double now_s(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t segments_of(uint64_t bytes)
{
	return (bytes + SEGMENT_BYTES - 1) / SEGMENT_BYTES;
}

static size_t segment_bytes(uint64_t bytes, uint64_t index)
{
	const uint64_t left = bytes - index * SEGMENT_BYTES;
	return left < SEGMENT_BYTES ? (size_t)left : SEGMENT_BYTES;
}

/* A nonce for each segment; of a key that is used for nothing else. */
static void number(uint8_t nonce[static NAOS_GCM_NONCE_BYTES], uint64_t index)
{
	memset(nonce, 0, NAOS_GCM_NONCE_BYTES);
	memcpy(nonce, &index, sizeof(index));
}

/* --- from host to host ---------------------------------------------------------------------------------------------------------- */

static void *seal_some(void *context)
{
	struct work *work = context;
	uint64_t i;
	while ((i = atomic_fetch_add(&work->next, 1)) < segments_of(work->bytes)) {
		uint8_t nonce[NAOS_GCM_NONCE_BYTES], *at = work->memory + i * SEGMENT_BYTES;
		number(nonce, i);
		const struct naos_gcm_message message = { .nonce = nonce, .in = at, .out = at, .bytes = segment_bytes(work->bytes, i),
							  .tag = work->tags + i * NAOS_GCM_TAG_BYTES };
		if (naos_gcm_seal(work->key, &message, NULL) != 0)
			atomic_store(&work->failed, 1);
	}
	return NULL;
}

/* Seconds of sealing all of it, by as many threads as there are segments and cores. */
static double seal_once(struct work *work, unsigned cores)
{
	pthread_t threads[MOST_THREADS];
	unsigned count = cores < MOST_THREADS ? cores : MOST_THREADS, started = 0;
	if (segments_of(work->bytes) < count)
		count = (unsigned)segments_of(work->bytes);
	work->next = 0;
	const double start = now_s();
	while (started + 1 < count && pthread_create(&threads[started], NULL, seal_some, work) == 0)
		started++;
	(void)seal_some(work);
	for (unsigned i = 0; i < started; i++)
		(void)pthread_join(threads[i], NULL);
	return now_s() - start;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double times[static REPEATS])
{
	qsort(times, REPEATS, sizeof(*times), by_value);
	return times[REPEATS / 2];
}

static int seal_on(const struct naos_engine_backend *backend, enum naos_algorithm algorithm, struct work *work, unsigned cores,
		   double *ret_s, struct naos_error *err)
{
	naos_autosecret struct naos_secret *secret = NULL;
	naos_autogcmkey struct naos_gcm_key *key = NULL;
	double times[REPEATS];
	int rc = naos_secret_random(naos_algorithm_key_bytes(algorithm), &secret, err);
	if (rc == 0)
		rc = naos_gcm_key_create_on(backend, algorithm, secret, &key, err);
	if (rc != 0)
		return rc;
	work->key = key;
	(void)seal_once(work, cores); /* warms up */
	for (unsigned i = 0; i < REPEATS; i++)
		times[i] = seal_once(work, cores);
	if (work->failed)
		return naos_error_set(err, NAOS_E_SYSTEM, "the back end %s failed while it was measured", backend->name);
	*ret_s = median(times);
	return 0;
}

/* --- from the host into the device ------------------------------------------------------------------------------------------------ */

static int describe_segment(void *context, uint64_t index, struct naos_gpu_segment *ret, struct naos_error *err)
{
	const struct work *work = context;
	*ret = (struct naos_gpu_segment){ .bytes = segment_bytes(work->bytes, index), .offset = index * SEGMENT_BYTES };
	number(ret->nonce, index);
	memcpy(ret->tag, work->tags + index * NAOS_GCM_TAG_BYTES, NAOS_GCM_TAG_BYTES);
	return 0;
}

static int read_segments(void *context, uint64_t index, uint32_t count, uint8_t *buffer, size_t bytes, struct naos_error *err)
{
	const struct work *work = context;
	memcpy(buffer, work->memory + index * SEGMENT_BYTES, bytes);
	return 0;
}

static int open_to_device(struct naos_gpu *gpu, enum naos_algorithm algorithm, struct work *work, unsigned cores, double *ret_s,
			  struct naos_error *err)
{
	naos_autosecret struct naos_secret *secret = NULL;
	naos_autogcmkey struct naos_gcm_key *key = NULL;
	naos_autogpumemory struct naos_gpu_memory *memory = NULL;
	const struct naos_gpu_source source = { .describe = describe_segment, .read = read_segments, .context = work,
						.count = segments_of(work->bytes),
						.longest = work->bytes < SEGMENT_BYTES ? (size_t)work->bytes : SEGMENT_BYTES,
						.jobs = cores };
	const struct naos_engine_backend *cpu;
	double times[REPEATS];
	uint64_t failed;
	int rc = naos_engine_cpu(&cpu, err);
	if (rc == 0)
		rc = naos_secret_random(naos_algorithm_key_bytes(algorithm), &secret, err);
	if (rc == 0)
		rc = naos_gcm_key_create_on(cpu, algorithm, secret, &key, err);
	if (rc == 0)
		rc = naos_gpu_memory_create(gpu, work->bytes, &memory, err);
	if (rc != 0)
		return rc;
	work->key = key;
	(void)seal_once(work, cores);
	rc = naos_gpu_open(gpu, key, &source, memory, &failed, err);
	for (unsigned i = 0; rc == 0 && i < REPEATS; i++) {
		const double start = now_s();
		rc = naos_gpu_open(gpu, key, &source, memory, &failed, err);
		times[i] = now_s() - start;
	}
	if (rc == 0)
		*ret_s = median(times);
	return rc;
}

/* --- the table ---------------------------------------------------------------------------------------------------------------------- */

static void show(json_t *rows, const char *way, enum naos_algorithm algorithm, uint64_t bytes, const char *by, double predicted_s,
		 double measured_s, const struct naos_cost *cost)
{
	const bool chosen = cost->gpu == (strcmp(by, "gpu") == 0);
	if (rows) {
		(void)json_array_append_new(rows, json_pack("{s:s, s:s, s:I, s:s, s:f, s:f, s:f, s:b, s:s}", "way", way, "algorithm",
							   naos_algorithm_name(algorithm), "bytes", (json_int_t)bytes, "by", by,
							   "predicted_ms", predicted_s * 1e3, "measured_ms", measured_s * 1e3, "gb_s",
							   (double)bytes / measured_s / 1e9, "chosen", chosen, "why",
							   chosen ? cost->why : ""));
		return;
	}
	printf("%-16s %-12s %12.3f MB  %s %11.3f ms %11.3f ms %8.2f GB/s  %s%s\n", way, naos_algorithm_name(algorithm), (double)bytes / 1e6,
	       by, predicted_s * 1e3, measured_s * 1e3, (double)bytes / measured_s / 1e9, chosen ? "chosen: " : "", chosen ? cost->why : "");
}

static int measure(const struct naos_cost_rates *rates, enum naos_algorithm algorithm, uint64_t bytes, json_t *rows, struct naos_error *err)
{
	const struct naos_engine_backend *cpu;
	struct naos_gpu_policy policy;
	struct naos_cost cost;
	struct naos_gpu *gpu;
	struct work work = { .bytes = bytes };
	struct naos_cost_work described = { .algorithm = algorithm, .sealing = true, .bytes = bytes, .gpu_started = true };
	double seconds;
	naos_gpu_policy_get(&policy);
	int rc = naos_engine_cpu(&cpu, err);
	if (rc == 0 && rates->gpu)
		rc = naos_gpu_get(&gpu, err);
	if (rc != 0)
		return rc;
	naos_autofree uint8_t *tags = calloc(segments_of(bytes), NAOS_GCM_TAG_BYTES);
	work.memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (work.memory == MAP_FAILED || !tags) {
		if (work.memory != MAP_FAILED)
			(void)munmap(work.memory, bytes);
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for %llu bytes", (unsigned long long)bytes);
	}
	(void)madvise(work.memory, bytes, MADV_HUGEPAGE);
	memset(work.memory, 1, bytes);
	work.tags = tags;
	naos_cost_predict(rates, &described, policy.use, &cost);
	rc = seal_on(cpu, algorithm, &work, rates->cores, &seconds, err);
	if (rc == 0)
		show(rows, "host to host", algorithm, bytes, "cpu", cost.cpu_s, seconds, &cost);
	if (rc == 0 && rates->gpu) {
		rc = seal_on(&naos_engine_cuda, algorithm, &work, rates->cores, &seconds, err);
		if (rc == 0)
			show(rows, "host to host", algorithm, bytes, "gpu", cost.gpu_s, seconds, &cost);
	}
	if (rc == 0 && rates->gpu) {
		described.sealing = false;
		described.to = NAOS_COST_DEVICE;
		naos_cost_predict(rates, &described, policy.use, &cost);
		rc = open_to_device(gpu, algorithm, &work, rates->cores, &seconds, err);
		if (rc == 0)
			show(rows, "host to device", algorithm, bytes, "gpu", cost.gpu_s, seconds, &cost);
	}
	(void)munmap(work.memory, bytes);
	return rc;
}

static json_t *rates_json(const struct naos_cost_rates *r)
{
	json_t *cpu = json_pack("{s:s, s:i, s:f, s:f, s:f, s:f, s:f}", "backend", naos_engine_name(), "cores", (int)r->cores, "core_128_gb_s",
				r->cpu_bytes_s[0] / 1e9, "core_256_gb_s", r->cpu_bytes_s[1] / 1e9, "all_128_gb_s",
				r->cpu_all_bytes_s[0] / 1e9, "all_256_gb_s", r->cpu_all_bytes_s[1] / 1e9, "memory_gb_s",
				r->memory_bytes_s / 1e9);
	if (!r->gpu)
		return json_pack("{s:o, s:n, s:o}", "cpu", cpu, "gpu", "no_gpu", naos_json_text(naos_cost_no_gpu()));
	return json_pack("{s:o, s:{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}}", "cpu", cpu, "gpu", "open_128_gb_s",
			 r->kernel_bytes_s[0][0] / 1e9, "open_256_gb_s", r->kernel_bytes_s[0][1] / 1e9, "seal_128_gb_s",
			 r->kernel_bytes_s[1][0] / 1e9, "seal_256_gb_s", r->kernel_bytes_s[1][1] / 1e9, "up_gb_s", r->up_bytes_s / 1e9,
			 "down_gb_s", r->down_bytes_s / 1e9, "both_gb_s", r->both_bytes_s / 1e9, "stage_gb_s", r->stage_bytes_s / 1e9,
			 "fixed_us", r->fixed_s * 1e6, "start_ms", r->start_s * 1e3);
}

static void print_rates(const struct naos_cost_rates *r)
{
	printf("CPU: %s, %u core%s: one %.1f GB/s (AES-128), %.1f (AES-256); all %.1f, %.1f; in memory %.1f\n", naos_engine_name(), r->cores,
	       r->cores == 1 ? "" : "s", r->cpu_bytes_s[0] / 1e9, r->cpu_bytes_s[1] / 1e9, r->cpu_all_bytes_s[0] / 1e9,
	       r->cpu_all_bytes_s[1] / 1e9, r->memory_bytes_s / 1e9);
	if (!r->gpu) {
		printf("GPU: %s\n", naos_cost_no_gpu());
		return;
	}
	printf("GPU: opens %.0f GB/s (AES-128), %.0f (AES-256), seals %.0f, %.0f; bus %.1f up, %.1f down, %.1f both ways; a reader %.1f;\n"
	       "     a call %.0f us, the first use %.0f ms\n",
	       r->kernel_bytes_s[0][0] / 1e9, r->kernel_bytes_s[0][1] / 1e9, r->kernel_bytes_s[1][0] / 1e9, r->kernel_bytes_s[1][1] / 1e9,
	       r->up_bytes_s / 1e9, r->down_bytes_s / 1e9, r->both_bytes_s / 1e9, r->stage_bytes_s / 1e9, r->fixed_s * 1e6,
	       r->start_s * 1e3);
}

static int run_engine(struct naos_invocation *invocation, struct naos_error *err)
{
	static const uint64_t sizes[] = { 65536, (uint64_t)1 << 20, (uint64_t)16 << 20, (uint64_t)256 << 20 };
	const char *size = naos_option_value(invocation, "size");
	uint64_t only = 0;
	struct naos_cost_rates rates;
	if (size && (!naos_parse_size(size, &only) || only == 0 || only > BENCH_MAX_BYTES))
		return naos_error_set(err, NAOS_E_USAGE, "--size is 1 to 16GiB");
	int rc = naos_engine_configure(invocation->config, err);
	if (rc == 0)
		rc = naos_cost_rates(true, &rates, err);
	if (rc != 0)
		return rc;
	json_t *rows = invocation->json ? json_array() : NULL;
	if (!rows) {
		print_rates(&rates);
		printf("%-16s %-12s %15s  %s %14s %14s\n", "way", "algorithm", "size", "by ", "predicted", "measured");
	}
	for (enum naos_algorithm a = NAOS_AES_128_GCM; rc == 0 && a <= NAOS_AES_256_GCM; a++)
		for (size_t i = 0; rc == 0 && i < (only ? 1 : NAOS_ARRAY_LENGTH(sizes)); i++)
			rc = measure(&rates, a, only ? only : sizes[i], rows, err);
	if (rc != 0) {
		json_decref(rows);
		return rc;
	}
	return rows ? naos_print_json(json_pack("{s:o, s:o}", "rates", rates_json(&rates), "work", rows), err) : 0;
}

static const struct naos_option engine_options[] = {
	{ "size", 0, "SIZE", "measure this size only (as 64MiB; default: 64KiB, 1MiB, 16MiB, 256MiB)" },
	{ .name = NULL },
};

const struct naos_command naos_command_bench_engine = {
	.path = "bench engine", .operands = "",
	.summary = "Measure AES-GCM by the CPU and the GPU, beside what the cost model predicts and chooses",
	.example = "naos bench engine --size 577MiB", .options = engine_options, .run = run_engine,
};

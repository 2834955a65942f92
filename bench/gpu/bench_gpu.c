/* AES-GCM on a GPU: the kernels, the ways to and from the device, and the CPU beside them.
 *
 * Usage: bench_gpu PLUGIN JSON-FILE [SECTION...]    sections: kernel setup copy timing host file cpu; default: all
 * One line of JSON a figure; a table on standard output.  GB are 10^9 bytes of plaintext.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "engine/backend.h"
#include "engine/gpu_inside.h"

#define FRAME_BYTES ((uint64_t)604920000)  /* 14200 x 10650 float32: the image of the paper, "577 MB" */
#define LARGE_BYTES ((uint64_t)3600000000) /* "3.4 GB" */
#define SEGMENT_BYTES ((size_t)4 << 20)
#define REPEATS 25

static FILE *json;
static const struct naos_cuda_table *table;
static struct naos_gpu *gpu;
static struct naos_error err;

#define need(call) \
	do { \
		if ((call) != 0) { \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, err.message[0] ? err.message : reason.text); \
			exit(1); \
		} \
	} while (0)
static struct naos_cuda_reason reason;

static double now(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* One figure: to the table and to the file. */
static void figure(const char *section, const char *what, const char *algorithm, uint64_t bytes, double ms, double best_ms)
{
	double rate = ms > 0 ? (double)bytes / ms / 1e6 : 0;
	printf("%-8s %-44s %-12s %9.1f MB %10.3f ms %8.1f GB/s (best %.1f)\n", section, what, algorithm, (double)bytes / 1e6, ms, rate,
	       best_ms > 0 ? (double)bytes / best_ms / 1e6 : 0);
	(void)fflush(stdout);
	fprintf(json, "{\"section\":\"%s\",\"what\":\"%s\",\"algorithm\":\"%s\",\"bytes\":%llu,\"ms\":%.5f,\"best_ms\":%.5f,\"gb_s\":%.2f}\n",
		section, what, algorithm, (unsigned long long)bytes, ms, best_ms, rate);
	(void)fflush(json);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}
static double median(double *values, unsigned count, double *ret_best)
{
	qsort(values, count, sizeof(*values), by_value);
	*ret_best = values[0];
	return values[count / 2];
}

static void fill_device(struct gpu_lane *lane, uint8_t *memory, uint64_t bytes)
{
	uint64_t seed = 88172645463325252u;
	for (size_t i = 0; i + 8 <= lane->buffer_bytes; i += 8) {
		seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
		memcpy(lane->buffers[0] + i, &seed, 8);
	}
	for (uint64_t at = 0; at < bytes; at += lane->buffer_bytes)
		need(table->copy(lane->cuda, memory + at, lane->buffers[0], bytes - at < lane->buffer_bytes ? bytes - at : lane->buffer_bytes,
				 &reason));
	need(table->wait(lane->cuda, &reason));
}

/* --- kernels ------------------------------------------------------------------------------------------------------------------ */

struct case_times {
	double main_ms, main_best, all_ms, all_best;
};

static struct case_times repeat(struct gpu_lane *lane, int sealing, struct naos_cuda_segment *segments, uint32_t count, unsigned repeats)
{
	double mains[64], alls[64];
	struct case_times result;
	for (unsigned i = 0; i < repeats + 3; i++) {
		struct naos_cuda_times times;
		need(table->run(lane->cuda, sealing, segments, count, &reason));
		need(table->wait(lane->cuda, &reason));
		table->times(lane->cuda, &times);
		for (uint32_t s = 0; s < count; s++)
			if (!sealing && segments[s].result != 0) {
				fprintf(stderr, "segment %u of %u does not open\n", s, count);
				exit(1);
			}
		if (i >= 3)
			mains[i - 3] = times.main_ms, alls[i - 3] = times.all_ms;
	}
	result.main_ms = median(mains, repeats, &result.main_best);
	result.all_ms = median(alls, repeats, &result.all_best);
	return result;
}

static void kernel_case(const char *what, uint32_t key_bytes, uint64_t bytes, uint32_t count, bool many_keys, unsigned repeats)
{
	const char *algorithm = key_bytes == 16 ? "aes-128-gcm" : "aes-256-gcm";
	struct naos_gpu_memory *plain, *sealed;
	struct gpu_lane *lane;
	struct naos_cuda_segment *segments = calloc(count, sizeof(*segments));
	uint8_t *keys = malloc((size_t)32 * count);
	static const uint8_t associated[88] = { 'N', 'F', 'R', '2' };
	char text[96];
	const uint64_t each = ((bytes / count) + 15) / 16 * 16;
	for (size_t i = 0; i < (size_t)32 * count; i++)
		keys[i] = (uint8_t)(i * 131 + i / 256 + 7);
	need(naos_gpu_memory_create(gpu, bytes + 16, &plain, &err));
	need(naos_gpu_memory_create(gpu, bytes + 16, &sealed, &err));
	need(gpu_lane_take(gpu, NAOS_GPU_BUFFER_BYTES, &lane, &err));
	fill_device(lane, plain->data, bytes);
	need(table->keys(lane->cuda, key_bytes, keys, many_keys ? count : 1, &reason));
	for (uint32_t i = 0; i < count; i++) {
		uint64_t at = each * i, here = bytes - at < each ? bytes - at : each;
		segments[i] = (struct naos_cuda_segment){ .in = (uint8_t *)plain->data + at, .out = (uint8_t *)sealed->data + at, .bytes = here,
							  .associated = associated, .associated_bytes = sizeof(associated),
							  .key = many_keys ? i : 0 };
		segments[i].j0[0] = (uint8_t)i, segments[i].j0[1] = (uint8_t)(i >> 8), segments[i].j0[15] = 1;
	}
	struct case_times t = repeat(lane, 1, segments, count, repeats);
	(void)snprintf(text, sizeof(text), "seal %s", what);
	figure("kernel", text, algorithm, bytes, t.main_ms, t.main_best);
	(void)snprintf(text, sizeof(text), "seal %s, all launches", what);
	figure("kernel", text, algorithm, bytes, t.all_ms, t.all_best);
	for (uint32_t i = 0; i < count; i++) {
		const void *in = segments[i].in;
		segments[i].in = segments[i].out;
		segments[i].out = (void *)(uintptr_t)in;
	}
	t = repeat(lane, 0, segments, count, repeats);
	(void)snprintf(text, sizeof(text), "open %s", what);
	figure("kernel", text, algorithm, bytes, t.main_ms, t.main_best);
	(void)snprintf(text, sizeof(text), "open %s, all launches", what);
	figure("kernel", text, algorithm, bytes, t.all_ms, t.all_best);
	gpu_lane_put(gpu, lane);
	naos_gpu_memory_free(plain);
	naos_gpu_memory_free(sealed);
	free(segments);
	free(keys);
}

static void kernels(void)
{
	for (uint32_t key_bytes = 16; key_bytes <= 32; key_bytes += 16) {
		kernel_case("577 MB, one message", key_bytes, FRAME_BYTES, 1, false, REPEATS);
		kernel_case("577 MB, 145 segments", key_bytes, FRAME_BYTES, 145, false, REPEATS);
		kernel_case("3.4 GB, one message", key_bytes, LARGE_BYTES, 1, false, 11);
		kernel_case("1000 segments of 1 MiB, one key", key_bytes, (uint64_t)1000 << 20, 1000, false, 11);
		kernel_case("1000 segments of 1 MiB, a key each", key_bytes, (uint64_t)1000 << 20, 1000, true, 11);
	}
}

/* --- what a launch costs, small messages ------------------------------------------------------------------------------------------- */

static void setups(void)
{
	static const uint64_t sizes[] = { 1024, 65536, 1 << 20, 4 << 20, 16 << 20 };
	static uint8_t keys[32 * 1000];
	struct gpu_lane *lane;
	struct naos_gpu_memory *memory;
	double times[64], best;
	need(gpu_lane_take(gpu, NAOS_GPU_BUFFER_BYTES, &lane, &err));
	need(naos_gpu_memory_create(gpu, 16 << 20, &memory, &err));
	for (uint32_t count = 1; count <= 1000; count *= 1000) {
		for (unsigned i = 0; i < 20; i++) {
			double from = now();
			need(table->keys(lane->cuda, 32, keys, count, &reason));
			need(table->wait(lane->cuda, &reason));
			times[i] = (now() - from) * 1e3;
		}
		char text[64];
		(void)snprintf(text, sizeof(text), "%u keys made ready", count);
		double ms = median(times, 20, &best);
		figure("setup", text, "aes-256-gcm", 0, ms, best);
	}
	need(table->keys(lane->cuda, 32, keys, 1, &reason));
	for (unsigned s = 0; s < NAOS_ARRAY_LENGTH(sizes); s++) {
		struct naos_cuda_segment segment = { .in = memory->data, .out = memory->data, .bytes = sizes[s] };
		struct naos_cuda_times parts = { 0 };
		for (unsigned i = 0; i < 20; i++) {
			double from = now();
			need(table->run(lane->cuda, 1, &segment, 1, &reason));
			need(table->wait(lane->cuda, &reason));
			times[i] = (now() - from) * 1e3;
			table->times(lane->cuda, &parts);
		}
		double ms = median(times, 20, &best);
		figure("setup", "one message in place, call to return", "aes-256-gcm", sizes[s], ms, best);
		figure("setup", "the same, main kernel", "aes-256-gcm", sizes[s], parts.main_ms, parts.main_ms);
	}
	gpu_lane_put(gpu, lane);
	naos_gpu_memory_free(memory);
}

/* --- copies --------------------------------------------------------------------------------------------------------------------- */

static void timed_copy(struct gpu_lane *lane, const char *what, void *to, const void *from, uint64_t bytes)
{
	double times[16], best;
	for (unsigned i = 0; i < 9; i++) {
		double start = now();
		need(table->copy(lane->cuda, to, from, bytes, &reason));
		need(table->wait(lane->cuda, &reason));
		times[i] = (now() - start) * 1e3;
	}
	double ms = median(times, 9, &best);
	figure("copy", what, "-", bytes, ms, best);
}

static void copies(void)
{
	struct gpu_lane *lane;
	struct naos_gpu_memory *a, *b;
	void *pinned;
	uint8_t *pageable = malloc(FRAME_BYTES);
	need(gpu_lane_take(gpu, NAOS_GPU_BUFFER_BYTES, &lane, &err));
	need(naos_gpu_memory_create(gpu, FRAME_BYTES, &a, &err));
	need(naos_gpu_memory_create(gpu, FRAME_BYTES, &b, &err));
	fill_device(lane, a->data, FRAME_BYTES);
	need(table->pinned(gpu->cuda, FRAME_BYTES, &pinned, &reason));
	memset(pageable, 1, FRAME_BYTES);
	timed_copy(lane, "cudaMemcpy device to device", b->data, a->data, FRAME_BYTES);
	timed_copy(lane, "cudaMemcpy device to pinned", pinned, a->data, FRAME_BYTES);
	timed_copy(lane, "cudaMemcpy pinned to device", b->data, pinned, FRAME_BYTES);
	timed_copy(lane, "cudaMemcpy pageable to device", b->data, pageable, FRAME_BYTES);
	timed_copy(lane, "cudaMemcpy device to pageable", pageable, a->data, FRAME_BYTES);
	double times[16], best;
	for (unsigned i = 0; i < 9; i++) {
		double start = now();
		need(naos_gpu_memory_convert(a, a, FRAME_BYTES / 4, -32, NAOS_CUDA_SAME, 1, 0, NULL, &err));
		times[i] = (now() - start) * 1e3;
	}
	double ms = median(times, 9, &best);
	figure("copy", "bytes of float32 exchanged in place", "-", FRAME_BYTES, ms, best);
	table->pinned_free(gpu->cuda, pinned, FRAME_BYTES);
	gpu_lane_put(gpu, lane);
	naos_gpu_memory_free(a);
	naos_gpu_memory_free(b);
	free(pageable);
}

/* --- time and data ---------------------------------------------------------------------------------------------------------------- */

/* The main kernel over zeros, equal bytes and random bytes, under a zero key and another. */
static void timings(void)
{
	const uint64_t bytes = (uint64_t)256 << 20;
	static const char *const fills[] = { "zeros", "0x53", "random" };
	struct gpu_lane *lane;
	struct naos_gpu_memory *a, *b;
	need(gpu_lane_take(gpu, NAOS_GPU_BUFFER_BYTES, &lane, &err));
	need(naos_gpu_memory_create(gpu, bytes, &a, &err));
	need(naos_gpu_memory_create(gpu, bytes, &b, &err));
	for (unsigned turn = 0; turn < 6; turn++) {
		uint8_t key[16] = { 0 };
		struct naos_cuda_segment segment = { .in = a->data, .out = b->data, .bytes = bytes };
		char text[64];
		memset(key, turn < 3 ? 0 : 0xb7, sizeof(key));
		if (turn % 3 == 2) {
			fill_device(lane, a->data, bytes);
		} else {
			memset(lane->buffers[0], turn % 3 ? 0x53 : 0, lane->buffer_bytes);
			for (uint64_t at = 0; at < bytes; at += lane->buffer_bytes)
				need(table->copy(lane->cuda, (uint8_t *)a->data + at, lane->buffers[0], lane->buffer_bytes, &reason));
		}
		need(table->keys(lane->cuda, 16, key, 1, &reason));
		struct case_times t = repeat(lane, 1, &segment, 1, 61);
		(void)snprintf(text, sizeof(text), "seal %s under key %s", fills[turn % 3], turn < 3 ? "zero" : "0xb7");
		figure("timing", text, "aes-128-gcm", bytes, t.main_ms, t.main_best);
	}
	gpu_lane_put(gpu, lane);
	naos_gpu_memory_free(a);
	naos_gpu_memory_free(b);
}

/* --- from the host to the device, through the engine --------------------------------------------------------------------------------- */

struct sealed_frame {
	uint64_t bytes;
	uint8_t *sealed; /* segments one behind the other */
	uint8_t (*tags)[16];
	int fd;
};

static int describe(void *context, uint64_t index, struct naos_gpu_segment *ret, struct naos_error *error)
{
	const struct sealed_frame *frame = context;
	uint64_t at = index * SEGMENT_BYTES, here = frame->bytes - at < SEGMENT_BYTES ? frame->bytes - at : SEGMENT_BYTES;
	memset(ret, 0, sizeof(*ret));
	ret->bytes = here;
	ret->offset = at;
	memcpy(ret->nonce, &index, sizeof(index));
	memcpy(ret->tag, frame->tags[index], 16);
	return 0;
}

static int from_memory(void *context, uint64_t index, uint32_t count, uint8_t *buffer, size_t bytes, struct naos_error *error)
{
	const struct sealed_frame *frame = context;
	if (frame->fd < 0) {
		memcpy(buffer, frame->sealed + index * SEGMENT_BYTES, bytes);
		return 0;
	}
	if (pread(frame->fd, buffer, bytes, (off_t)(index * SEGMENT_BYTES)) == (ssize_t)bytes)
		return 0;
	return naos_error_set_errno(error, errno, "cannot read");
}

static void make_frame(const struct naos_gcm_key *key, struct sealed_frame *frame, const char *path)
{
	const uint64_t count = (frame->bytes + SEGMENT_BYTES - 1) / SEGMENT_BYTES;
	frame->sealed = mmap(NULL, frame->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	frame->tags = calloc(count, 16);
	frame->fd = -1;
	uint64_t seed = 1;
	for (uint64_t i = 0; i + 8 <= frame->bytes; i += 8) {
		seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
		memcpy(frame->sealed + i, &seed, 8);
	}
	for (uint64_t i = 0; i < count; i++) {
		uint64_t at = i * SEGMENT_BYTES, here = frame->bytes - at < SEGMENT_BYTES ? frame->bytes - at : SEGMENT_BYTES;
		uint8_t nonce[12] = { 0 };
		memcpy(nonce, &i, sizeof(i));
		struct naos_gcm_message m = { .nonce = nonce, .in = frame->sealed + at, .out = frame->sealed + at, .bytes = here,
					      .tag = frame->tags[i] };
		need(naos_gcm_seal(key, &m, &err));
	}
	if (!path)
		return;
	frame->fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	for (uint64_t at = 0; at < frame->bytes;) {
		ssize_t wrote = pwrite(frame->fd, frame->sealed + at, frame->bytes - at, (off_t)at);
		if (wrote <= 0) {
			perror(path);
			exit(1);
		}
		at += (uint64_t)wrote;
	}
}

static struct naos_gcm_key *some_key(const struct naos_engine_backend *row, enum naos_algorithm algorithm)
{
	struct naos_secret *secret;
	struct naos_gcm_key *key;
	uint8_t raw[32];
	memset(raw, 0x42, sizeof(raw));
	need(naos_secret_take(raw, naos_algorithm_key_bytes(algorithm), &secret, &err));
	need(naos_gcm_key_create_on(row, algorithm, secret, &key, &err));
	naos_secret_free(secret);
	return key;
}

static void to_device(bool from_file)
{
	const struct naos_engine_backend *cpu;
	const char *path = "/dev/shm/naos-bench-gpu";
	need(naos_engine_cpu(&cpu, &err));
	for (enum naos_algorithm a = NAOS_AES_128_GCM; a <= NAOS_AES_256_GCM; a++) {
		struct naos_gcm_key *key = some_key(cpu, a);
		struct sealed_frame frame = { .bytes = FRAME_BYTES };
		struct naos_gpu_memory *memory;
		if (from_file) { /* on a disk's file system if there is one, so that the page cache is what is read */
			path = access("/tmp", W_OK) == 0 ? "/tmp/naos-bench-gpu" : path;
		}
		make_frame(key, &frame, from_file ? path : NULL);
		need(naos_gpu_memory_create(gpu, FRAME_BYTES, &memory, &err));
		for (unsigned jobs = 1; jobs <= 8; jobs *= 2) {
			double times[16], best;
			char text[64];
			struct naos_gpu_source source = {
				describe, from_memory, &frame, (FRAME_BYTES + SEGMENT_BYTES - 1) / SEGMENT_BYTES, SEGMENT_BYTES, jobs,
			};
			for (unsigned i = 0; i < 10; i++) {
				uint64_t failed;
				double start = now();
				need(naos_gpu_open(gpu, key, &source, memory, &failed, &err));
				times[i] = (now() - start) * 1e3;
			}
			fprintf(json, "{\"section\":\"first\",\"jobs\":%u,\"ms\":%.3f}\n", jobs, times[0]);
			double ms = median(times + 1, 9, &best);
			(void)snprintf(text, sizeof(text), "open, %s to device, %u threads", from_file ? "page cache" : "pageable memory", jobs);
			figure(from_file ? "file" : "host", text, naos_algorithm_name(a), FRAME_BYTES, ms, best);
		}
		naos_gpu_memory_free(memory);
		(void)munmap(frame.sealed, frame.bytes);
		free(frame.tags);
		if (frame.fd >= 0)
			(void)close(frame.fd);
		(void)unlink(path);
		naos_gcm_key_free(key);
	}
}

/* Pinned memory to pinned memory: three lanes, 16 MiB at a time. */
static void host_to_host(uint32_t key_bytes)
{
	enum { LANES = 3 };
	const uint64_t piece = 16 << 20, count = FRAME_BYTES / piece;
	struct gpu_lane *lanes[LANES];
	struct naos_gpu_memory *memory[LANES];
	struct naos_cuda_segment segments[LANES];
	void *in, *out;
	uint8_t key[32] = { 1 };
	double times[16], best;
	need(table->pinned(gpu->cuda, count * piece, &in, &reason));
	need(table->pinned(gpu->cuda, count * piece, &out, &reason));
	memset(in, 3, count * piece);
	for (unsigned i = 0; i < LANES; i++) {
		need(gpu_lane_take(gpu, 16, &lanes[i], &err));
		need(naos_gpu_memory_create(gpu, piece, &memory[i], &err));
		need(table->keys(lanes[i]->cuda, key_bytes, key, 1, &reason));
	}
	for (unsigned turn = 0; turn < 9; turn++) {
		double start = now();
		for (uint64_t i = 0; i < count + LANES; i++) {
			unsigned l = (unsigned)(i % LANES);
			if (i >= LANES)
				need(table->wait(lanes[l]->cuda, &reason));
			if (i >= count)
				continue;
			segments[l] = (struct naos_cuda_segment){ .in = memory[l]->data, .out = memory[l]->data, .bytes = piece };
			need(table->copy(lanes[l]->cuda, memory[l]->data, (uint8_t *)in + i * piece, piece, &reason));
			need(table->run(lanes[l]->cuda, 1, &segments[l], 1, &reason));
			need(table->copy(lanes[l]->cuda, (uint8_t *)out + i * piece, memory[l]->data, piece, &reason));
		}
		times[turn] = (now() - start) * 1e3;
	}
	double ms = median(times, 9, &best);
	figure("host", "seal, pinned to pinned, 3 lanes", key_bytes == 16 ? "aes-128-gcm" : "aes-256-gcm", count * piece, ms, best);
	for (unsigned i = 0; i < LANES; i++) {
		gpu_lane_put(gpu, lanes[i]);
		naos_gpu_memory_free(memory[i]);
	}
	table->pinned_free(gpu->cuda, in, count * piece);
	table->pinned_free(gpu->cuda, out, count * piece);
}

/* --- the CPU ------------------------------------------------------------------------------------------------------------------- */

struct cpu_work {
	const struct naos_gcm_key *key;
	uint8_t *memory;
	uint64_t bytes;
};
static void *cpu_worker(void *context)
{
	struct cpu_work *work = context;
	for (uint64_t at = 0; at < work->bytes; at += SEGMENT_BYTES) {
		uint8_t nonce[12] = { 0 }, tag[16];
		uint64_t here = work->bytes - at < SEGMENT_BYTES ? work->bytes - at : SEGMENT_BYTES;
		struct naos_gcm_message m = { .nonce = nonce, .in = work->memory + at, .out = work->memory + at, .bytes = here, .tag = tag };
		need(naos_gcm_seal(work->key, &m, &err));
	}
	return NULL;
}

static void cpus(void)
{
	const struct naos_engine_backend *row;
	unsigned most = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
	uint8_t *memory = mmap(NULL, FRAME_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	(void)madvise(memory, FRAME_BYTES, MADV_HUGEPAGE);
	memset(memory, 1, FRAME_BYTES);
	need(naos_engine_cpu(&row, &err));
	most = most > 64 ? 64 : most;
	for (enum naos_algorithm a = NAOS_AES_128_GCM; a <= NAOS_AES_256_GCM; a++) {
		struct naos_gcm_key *key = some_key(row, a);
		for (unsigned threads = 1; threads <= most; threads = threads < 4 || threads == most ? threads * 4 : most) {
			double times[16], best;
			char text[64];
			for (unsigned turn = 0; turn < 7; turn++) {
				pthread_t ids[64];
				struct cpu_work work[64];
				uint64_t share = FRAME_BYTES / threads;
				double start = now();
				for (unsigned i = 0; i < threads; i++) {
					work[i] = (struct cpu_work){ key, memory + i * share, share };
					(void)pthread_create(&ids[i], NULL, cpu_worker, &work[i]);
				}
				for (unsigned i = 0; i < threads; i++)
					(void)pthread_join(ids[i], NULL);
				times[turn] = (now() - start) * 1e3;
			}
			double ms = median(times, 7, &best);
			(void)snprintf(text, sizeof(text), "seal in place, %s, %u threads", row->name, threads);
			figure("cpu", text, naos_algorithm_name(a), FRAME_BYTES, ms, best);
		}
		naos_gcm_key_free(key);
	}
	(void)munmap(memory, FRAME_BYTES);
}

static bool wanted(int argc, char **argv, const char *section)
{
	for (int i = 3; i < argc; i++)
		if (strcmp(argv[i], section) == 0)
			return true;
	return argc == 3;
}

int main(int argc, char **argv)
{
	if (argc < 3) {
		fprintf(stderr, "usage: bench_gpu PLUGIN JSON-FILE [kernel] [setup] [copy] [timing] [host] [file] [cpu]\n");
		return 2;
	}
	const struct naos_gpu_settings settings = { .plugin = argv[1] };
	json = fopen(argv[2], "a");
	if (!json) {
		perror(argv[2]);
		return 1;
	}
	naos_gpu_configure(&settings);
	int rc = naos_gpu_get(&gpu, &err);
	if (rc == NAOS_E_UNSUPPORTED) {
		printf("skipped: %s\n", err.message);
		return 77;
	}
	need(rc);
	table = gpu->table;
	const struct naos_cuda_info *info = naos_gpu_info(gpu);
	printf("# %s, %u multiprocessors, driver %u, kernels: %s, confidential computing %s\n", info->name, info->multiprocessors,
	       info->driver_version, info->kernels, info->confidential == 1 ? "on" : info->confidential == 0 ? "off" : "unknown");
	fprintf(json, "{\"section\":\"machine\",\"gpu\":\"%s\",\"kernels\":\"%s\",\"driver\":%u}\n", info->name, info->kernels,
		info->driver_version);
	if (wanted(argc, argv, "kernel"))
		kernels();
	if (wanted(argc, argv, "setup"))
		setups();
	if (wanted(argc, argv, "copy"))
		copies();
	if (wanted(argc, argv, "timing"))
		timings();
	if (wanted(argc, argv, "host")) {
		to_device(false);
		host_to_host(16);
		host_to_host(32);
	}
	if (wanted(argc, argv, "file"))
		to_device(true);
	if (wanted(argc, argv, "cpu"))
		cpus();
	(void)fclose(json);
	return 0;
}

/* A frame of 577 MB, the image of the paper, from the page cache: into host memory by the CPU, into device memory by the GPU.  The way of
 * a program: libnaos opens the frame, checks both keys, reads all of it and closes it.
 *
 * Usage: bench_frame JSON-FILE [DIRECTORY [THREADS [SEGMENT-BYTES]]]    DIRECTORY (default /dev/shm) gets 1.2 GB for a while
 * One line of JSON a figure; a table on standard output.  GB are 10^9 bytes of plaintext.
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <naos/device.h>
#include <naos/frame.h>

#define COLUMNS 14200u
#define ROWS 10650u
#define DATA_BYTES ((size_t)COLUMNS * ROWS * 4)
#define BLOCK 2880u
#define REPEATS 9u
#define MOST_THREADS 64u
#define REFERENCE_MS 1177.0 /* GpuFitsCrypt, this frame, warm page cache, on one H200 (bench/gpu/README.md) */

static FILE *json;
static uint32_t segment_bytes; /* 0: the default */
static struct naos_error err;

#define need(call) \
	do { \
		if ((call) != 0) { \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, err.message); \
			exit(1); \
		} \
	} while (0)

static double now_ms(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + 1e-6 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* The first turn is told apart: it makes threads, maps memory and, with a GPU, starts the driver. */
static void figure(const char *what, const char *algorithm, double *times, unsigned count)
{
	const double first = times[0];
	qsort(times + 1, count - 1, sizeof(*times), by_value);
	const double ms = times[1 + (count - 1) / 2], best = times[1], rate = (double)DATA_BYTES / ms / 1e6;
	printf("frame    %-46s %-12s %9.3f ms %7.1f GB/s (best %.1f, first %.1f ms), %.0f times the reference\n", what, algorithm, ms, rate,
	       (double)DATA_BYTES / best / 1e6, first, REFERENCE_MS / ms);
	(void)fflush(stdout);
	fprintf(json, "{\"section\":\"frame\",\"what\":\"%s\",\"algorithm\":\"%s\",\"bytes\":%zu,\"ms\":%.4f,\"best_ms\":%.4f,"
		"\"first_ms\":%.4f,\"gb_s\":%.2f,\"times_reference\":%.1f}\n",
		what, algorithm, DATA_BYTES, ms, best, first, rate, REFERENCE_MS / ms);
	(void)fflush(json);
}

/* --- the frame ---------------------------------------------------------------------------------------------------------------- */

static uint8_t *map(size_t bytes)
{
	uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) {
		perror("memory");
		exit(1);
	}
	(void)madvise(memory, bytes, MADV_HUGEPAGE);
	return memory;
}

static void card(uint8_t *header, unsigned at, const char *text)
{
	memcpy(header + (size_t)80 * at, text, strlen(text));
}

/* A FITS file in memory: one image of numbers that don't repeat. */
static uint8_t *make_image(size_t *ret_bytes)
{
	const size_t bytes = BLOCK + (DATA_BYTES + BLOCK - 1) / BLOCK * BLOCK;
	uint8_t *file = map(bytes);
	uint64_t seed = 88172645463325252u;
	memset(file, ' ', BLOCK);
	card(file, 0, "SIMPLE  =                    T");
	card(file, 1, "BITPIX  =                  -32");
	card(file, 2, "NAXIS   =                    2");
	card(file, 3, "NAXIS1  =                14200");
	card(file, 4, "NAXIS2  =                10650");
	card(file, 5, "END");
	for (size_t i = 0; i < DATA_BYTES; i += 8) {
		seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
		uint64_t numbers = __builtin_bswap64((seed & 0x007fffff007fffff) | 0x4480000044800000); /* about 1000 */
		memcpy(file + BLOCK + i, &numbers, 8);
	}
	*ret_bytes = bytes;
	return file;
}

static void write_file(const char *path, const uint8_t *bytes, size_t count)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	for (size_t at = 0; at < count;) {
		ssize_t wrote = write(fd, bytes + at, count - at);
		if (wrote <= 0) {
			perror(path);
			exit(1);
		}
		at += (size_t)wrote;
	}
	(void)close(fd);
}

/* --- to the host ---------------------------------------------------------------------------------------------------------------- */

static void to_host(const char *path, const struct naos_frame_access *access, const char *algorithm, unsigned threads, bool fresh,
		    const uint8_t *file, size_t bytes)
{
	double times[REPEATS];
	char what[64];
	size_t got = 0;
	uint8_t *reused = fresh ? NULL : map(bytes);
	if (reused)
		memset(reused, 1, bytes);
	for (unsigned turn = 0; turn < REPEATS; turn++) {
		struct naos_frame *frame;
		double start = now_ms();
		uint8_t *to = fresh ? map(bytes) : reused;
		need(naos_frame_open(path, access, &frame, &err));
		need(naos_frame_read_parallel(frame, to, bytes, 0, threads, &got, &err));
		naos_frame_close(frame);
		times[turn] = now_ms() - start;
		if (got != bytes || memcmp(to, file, bytes) != 0) {
			fprintf(stderr, "the frame gave other bytes than were sealed\n");
			exit(1);
		}
		if (fresh)
			(void)munmap(to, bytes);
		else
			memset(to, 1, bytes);
	}
	(void)snprintf(what, sizeof(what), "open, to %s host memory, %u threads", fresh ? "fresh" : "used", threads);
	figure(what, algorithm, times, REPEATS);
	if (reused)
		(void)munmap(reused, bytes);
}

/* --- to the device -------------------------------------------------------------------------------------------------------------- */

static void to_device(const char *path, const struct naos_frame_access *access, const char *algorithm, enum naos_device_numbers numbers,
		      const uint8_t *file)
{
	double times[REPEATS];
	uint8_t *back = map(DATA_BYTES);
	for (unsigned turn = 0; turn < REPEATS; turn++) {
		struct naos_frame *frame;
		struct naos_device_array *array;
		double start = now_ms();
		need(naos_frame_open(path, access, &frame, &err));
		need(naos_frame_read_device(frame, 0, numbers, &array, &err));
		naos_frame_close(frame);
		times[turn] = now_ms() - start;
		need(naos_device_array_read(array, 0, back, DATA_BYTES, &err));
		uint32_t different = 0;
		for (size_t i = 0; i < DATA_BYTES; i += 4) {
			uint32_t a, b;
			memcpy(&a, back + i, 4);
			memcpy(&b, file + BLOCK + i, 4);
			different |= a ^ (numbers == NAOS_DEVICE_NATIVE ? __builtin_bswap32(b) : b);
		}
		if (different) {
			fprintf(stderr, "the device has other numbers than were sealed\n");
			exit(1);
		}
		naos_device_array_free(array);
	}
	figure(numbers == NAOS_DEVICE_NATIVE ? "open, to device memory, native numbers" : "open, to device memory, bytes as stored", algorithm,
	       times, REPEATS);
	(void)munmap(back, DATA_BYTES);
}

static void one_algorithm(const char *plain, const char *sealed, size_t key_bytes, unsigned threads, bool device, const uint8_t *file,
			  size_t bytes)
{
	const char *algorithm = key_bytes == 16 ? "aes-128-gcm" : "aes-256-gcm";
	static const uint8_t keys[2][32] = { { 1, 2, 3 }, { 4, 5, 6 } };
	const struct naos_frame_access access = { .header_key = keys[0], .header_key_bytes = key_bytes, .data_key = keys[1],
						  .data_key_bytes = key_bytes, .no_key_manager = true };
	double times[5];
	for (unsigned turn = 0; turn < 5; turn++) {
		double start = now_ms();
		need(naos_frame_seal(plain, sealed, &access, NULL, segment_bytes, true, threads, &err));
		times[turn] = now_ms() - start;
	}
	figure("seal, file to file", algorithm, times, 5);
	for (unsigned n = 1; n <= threads; n = n < threads && n * 4 > threads ? threads : n * 4) {
		to_host(sealed, &access, algorithm, n, false, file, bytes);
		if (n == threads)
			to_host(sealed, &access, algorithm, n, true, file, bytes);
	}
	if (device) {
		to_device(sealed, &access, algorithm, NAOS_DEVICE_STORED, file);
		to_device(sealed, &access, algorithm, NAOS_DEVICE_NATIVE, file);
	}
}

int main(int argc, char **argv)
{
	const char *dir = argc > 2 ? argv[2] : "/dev/shm";
	segment_bytes = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 0;
	long most = argc > 3 ? strtol(argv[3], NULL, 10) : sysconf(_SC_NPROCESSORS_ONLN);
	char plain[256], sealed[256], text[256];
	size_t bytes;
	if (argc < 2 || argc > 5 || most < 1) {
		fprintf(stderr, "usage: bench_frame JSON-FILE [DIRECTORY [THREADS [SEGMENT-BYTES]]]\n");
		return 2;
	}
	json = fopen(argv[1], "a");
	if (!json) {
		perror(argv[1]);
		return 1;
	}
	const unsigned threads = most > (long)MOST_THREADS ? MOST_THREADS : (unsigned)most;
	(void)snprintf(plain, sizeof(plain), "%s/naos-bench-frame.fits", dir);
	(void)snprintf(sealed, sizeof(sealed), "%s/naos-bench-frame.sealed.fits", dir);
	uint8_t *file = make_image(&bytes);
	write_file(plain, file, bytes);
	const bool device = naos_device_describe(text, sizeof(text), &err) == 0;
	printf("# %s\n", device ? text : err.message);
	one_algorithm(plain, sealed, 16, threads, device, file, bytes);
	one_algorithm(plain, sealed, 32, threads, device, file, bytes);
	(void)unlink(plain);
	(void)unlink(sealed);
	(void)fclose(json);
	return 0;
}

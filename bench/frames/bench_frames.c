/* Opening a frame until its plaintext is in memory, beside reading the plain file: see README.md.
 *     bench_frames make FILE WIDTH HEIGHT             writes an image of 32-bit floating-point numbers
 *     bench_frames measure PLAIN FRAME WARM-UP ROUNDS WHAT...
 * Each round does every WHAT once and prints a JSON object for it.  SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <naos/frame.h>

#define BLOCK 2880u

static const uint8_t header_key[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
static const uint8_t data_key[16] = { 240, 224, 208, 192, 176, 160, 144, 128, 112, 96, 80, 64, 48, 32, 16, 0 };
static const struct naos_frame_access keys = {
	.header_key = header_key, .header_key_bytes = sizeof(header_key), .data_key = data_key, .data_key_bytes = sizeof(data_key),
	.no_key_manager = true,
};
static struct naos_error err;

static void die(const char *what)
{
	fprintf(stderr, "bench_frames: %s: %s\n", what, err.message[0] ? err.message : strerror(errno));
	exit(1);
}

/* --- an image ------------------------------------------------------------------------------------------------------------- */

static void card(FILE *file, const char *keyword, const char *value)
{
	char text[81];
	(void)snprintf(text, sizeof(text), value ? "%-8s= %20s" : "%-8s", keyword, value);
	fprintf(file, "%-80s", text);
}

/* Noise between 1 and 2: no image compresses worse, and AES does not care. */
static void make(const char *path, uint64_t width, uint64_t height)
{
	uint64_t state = 88172645463325252u, pixels = width * height;
	char numbers[2][24];
	FILE *file = fopen(path, "wb");
	if (!file)
		die(path);
	(void)snprintf(numbers[0], sizeof(numbers[0]), "%llu", (unsigned long long)width);
	(void)snprintf(numbers[1], sizeof(numbers[1]), "%llu", (unsigned long long)height);
	const char *const cards[][2] = {
		{ "SIMPLE", "T" }, { "BITPIX", "-32" }, { "NAXIS", "2" }, { "NAXIS1", numbers[0] }, { "NAXIS2", numbers[1] }, { "END", NULL },
	};
	for (unsigned i = 0; i < 36; i++)
		card(file, i < 6 ? cards[i][0] : "", i < 6 ? cards[i][1] : NULL);
	for (uint64_t done = 0; done < pixels;) {
		uint8_t row[16384];
		size_t count = pixels - done < sizeof(row) / 4 ? (size_t)(pixels - done) : sizeof(row) / 4;
		for (size_t i = 0; i < count; i++) {
			state ^= state << 13;
			state ^= state >> 7;
			state ^= state << 17;
			const uint8_t number[4] = { 0x3f, (uint8_t)(0x80 | (state & 0x7f)), (uint8_t)(state >> 8), (uint8_t)(state >> 16) };
			memcpy(row + 4 * i, number, 4);
		}
		if (fwrite(row, 4, count, file) != count)
			die(path);
		done += count;
	}
	for (uint64_t i = pixels * 4; i % BLOCK != 0; i++)
		(void)fputc(0, file);
	if (fclose(file) != 0)
		die(path);
}

/* --- what is measured -------------------------------------------------------------------------------------------------------- */

struct measure {
	const char *plain, *frame, *section;
	uint8_t *memory; /* the result of the last step, fresh each time */
	size_t bytes;
};

/* Memory that nobody touched. */
static void fresh(struct measure *measure, size_t bytes, bool large_pages)
{
	measure->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	measure->bytes = bytes;
	if (measure->memory == MAP_FAILED)
		die("memory");
	(void)madvise(measure->memory, bytes, large_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

static void plain(struct measure *measure, bool large_pages)
{
	struct stat status;
	int fd = open(measure->plain, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &status) != 0)
		die(measure->plain);
	fresh(measure, (size_t)status.st_size, large_pages);
	for (size_t at = 0; at < measure->bytes;) {
		ssize_t got = read(fd, measure->memory + at, measure->bytes - at);
		if (got <= 0)
			die(measure->plain);
		at += (size_t)got;
	}
	(void)close(fd);
}

static void frame(struct measure *measure, bool large_pages, unsigned jobs)
{
	struct naos_frame *opened;
	size_t got;
	if (naos_frame_open(measure->frame, &keys, &opened, &err) != 0 || naos_frame_level(opened) != NAOS_FRAME_FULL)
		die(measure->frame);
	fresh(measure, (size_t)naos_frame_result_bytes(opened), large_pages);
	if (naos_frame_read_parallel(opened, measure->memory, measure->bytes, 0, jobs, &got, &err) != 0 || got != measure->bytes)
		die(measure->frame);
	(void)naos_frame_close(opened);
}

static void cutout(struct measure *measure)
{
	struct naos_frame *opened;
	static const char target[] = "/dev/shm/naos-bench-cutout.fits";
	(void)unlink(target);
	if (naos_frame_open(measure->frame, &keys, &opened, &err) != 0 ||
	    naos_frame_cutout(opened, 0, measure->section, target, &err) != 0)
		die(measure->frame);
	(void)naos_frame_close(opened);
	(void)unlink(target);
}

static void step(struct measure *measure, const char *what)
{
	if (strcmp(what, "plain") == 0 || strcmp(what, "plain-large-pages") == 0)
		plain(measure, strcmp(what, "plain") != 0);
	else if (strcmp(what, "frame") == 0 || strcmp(what, "frame-large-pages") == 0)
		frame(measure, strcmp(what, "frame") != 0, 0);
	else if (strcmp(what, "frame-1-thread") == 0 || strcmp(what, "frame-1-thread-large-pages") == 0)
		frame(measure, strcmp(what, "frame-1-thread") != 0, 1);
	else if (strncmp(what, "cutout", 6) == 0) {
		measure->section = what + 6;
		cutout(measure);
	} else
		die(what);
}

/* --- figures ---------------------------------------------------------------------------------------------------------------- */

static double now_s(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double cpu_s(void)
{
	struct rusage usage;
	(void)getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* Bytes that this process asked read(2) and its kin for, so far. */
static unsigned long long bytes_read(void)
{
	unsigned long long count = 0;
	FILE *file = fopen("/proc/self/io", "r");
	if (!file || fscanf(file, "rchar: %llu", &count) != 1)
		die("/proc/self/io");
	(void)fclose(file);
	return count;
}

static void measure_one(struct measure *measure, const char *what, int round)
{
	unsigned long long read_before = bytes_read();
	double cpu = cpu_s(), start = now_s();
	step(measure, what);
	double wall = now_s() - start;
	cpu = cpu_s() - cpu;
	unsigned long long read = bytes_read() - read_before;
	if (round > 0)
		printf("{\"what\": \"%s\", \"round\": %d, \"wall_s\": %.6f, \"cpu_s\": %.6f, \"bytes_read\": %llu}\n", what, round, wall,
		       cpu, read);
	if (measure->memory)
		(void)munmap(measure->memory, measure->bytes);
	measure->memory = NULL;
}

/* The last image that was read must be that of the plain file. */
static void compare(struct measure *measure)
{
	struct measure other = *measure;
	frame(measure, true, 0);
	plain(&other, true);
	if (measure->bytes != other.bytes || memcmp(measure->memory, other.memory, other.bytes) != 0)
		die("what came back differs");
	(void)munmap(measure->memory, measure->bytes);
	(void)munmap(other.memory, other.bytes);
	measure->memory = NULL;
}

int main(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "make") == 0) {
		make(argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
		return 0;
	}
	if (argc < 7 || strcmp(argv[1], "measure") != 0)
		die("usage: bench_frames make FILE WIDTH HEIGHT | measure PLAIN FRAME WARM-UP ROUNDS WHAT...");
	struct measure measure = { .plain = argv[2], .frame = argv[3] };
	compare(&measure);
	for (int round = 1 - atoi(argv[4]); round <= atoi(argv[5]); round++)
		for (int i = 6; i < argc; i++)
			measure_one(&measure, argv[i], round);
	return 0;
}

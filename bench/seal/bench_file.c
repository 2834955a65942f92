/* CPU time of lib/seal on one file and on many small ones, beside the same system calls without sealing: see README.md.
 * Usage: bench_file DIRECTORY [MiB] [ROUNDS] [NAME].  Writes one JSON object a line.  SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "seal/sealed_file.h"

#define REQUEST ((size_t)1 << 20)
#define SMALL_FILES 4000
#define RANDOM_REQUESTS 20000

struct bench {
	const char *directory;
	uint64_t bytes;
	uint8_t *buffer;
	struct naos_secret *fek;
	struct naos_blob blob;
	uint64_t random;
};

static struct naos_error err;

static void die(const char *what)
{
	fprintf(stderr, "bench_file: %s: %s\n", what, err.message[0] ? err.message : strerror(errno));
	exit(1);
}

static double cpu_s(void)
{
	struct rusage usage;
	(void)getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static uint64_t next_random(struct bench *bench)
{
	bench->random ^= bench->random << 13;
	bench->random ^= bench->random >> 7;
	bench->random ^= bench->random << 17;
	return bench->random;
}

static int path_fd(const struct bench *bench, unsigned number, int flags)
{
	char path[4096];
	(void)snprintf(path, sizeof(path), "%s/bench-%u", bench->directory, number);
	int fd = open(path, flags | O_CLOEXEC, 0600);
	if (fd < 0)
		die(path);
	return fd;
}

static void remove_file(const struct bench *bench, unsigned number)
{
	char path[4096];
	(void)snprintf(path, sizeof(path), "%s/bench-%u", bench->directory, number);
	(void)unlink(path);
}

static int unwrap(void *context, const struct naos_wrap_context *wrap, const struct naos_blob *blob, struct naos_secret **ret,
		  struct naos_error *unwrap_err)
{
	const struct bench *bench = context;
	return naos_secret_clone(bench->fek, ret, unwrap_err);
}

static struct naos_store *store_of(struct bench *bench, unsigned number, int flags)
{
	struct naos_store *store;
	if (naos_store_posix(path_fd(bench, number, flags), "bench", &store, &err) != 0)
		die("store");
	return store;
}

static struct naos_sealed_file *create_file(struct bench *bench, unsigned number)
{
	struct naos_sealed_new what = {
		.mode = NAOS_SEALED_LOCAL, .algorithm = NAOS_AES_256_GCM, .fek = bench->fek, .blob = &bench->blob, .lazy = true,
	};
	struct naos_sealed_file *file;
	uint64_t id = next_random(bench);
	memcpy(what.file_id.bytes, &id, sizeof(id));
	if (naos_sealed_file_create(store_of(bench, number, O_RDWR | O_CREAT | O_TRUNC), &what, &file, &err) != 0)
		die("create");
	return file;
}

static struct naos_sealed_file *open_file(struct bench *bench, unsigned number, enum naos_sealed_mode mode)
{
	const struct naos_fek_source source = { .unwrap = unwrap, .context = bench };
	struct naos_sealed_file *file;
	if (naos_sealed_file_open(store_of(bench, number, mode == NAOS_SEALED_READ ? O_RDONLY : O_RDWR), mode, &source, &file, &err) != 0)
		die("open");
	return file;
}

static void close_file(struct naos_sealed_file *file, bool seal)
{
	if (naos_sealed_file_close(file, seal, &err) != 0)
		die("close");
}

/* --- what is measured ----------------------------------------------------------------------------------------------------- */

static void plain_write(struct bench *bench)
{
	int fd = path_fd(bench, 0, O_RDWR | O_CREAT | O_TRUNC);
	for (uint64_t at = 0; at < bench->bytes; at += REQUEST)
		if (pwrite(fd, bench->buffer, REQUEST, (off_t)at) != (ssize_t)REQUEST)
			die("pwrite");
	(void)close(fd);
}

static void plain_read(struct bench *bench)
{
	int fd = path_fd(bench, 0, O_RDONLY);
	for (uint64_t at = 0; at < bench->bytes; at += REQUEST)
		if (pread(fd, bench->buffer, REQUEST, (off_t)at) != (ssize_t)REQUEST)
			die("pread");
	(void)close(fd);
}

static void sealed_write(struct bench *bench)
{
	struct naos_sealed_file *file = create_file(bench, 1);
	for (uint64_t at = 0; at < bench->bytes; at += REQUEST)
		if (naos_sealed_file_write(file, bench->buffer, REQUEST, at, &err) != 0)
			die("write");
	close_file(file, true);
}

static void sealed_read(struct bench *bench)
{
	struct naos_sealed_file *file = open_file(bench, 1, NAOS_SEALED_LOCAL);
	size_t got;
	for (uint64_t at = 0; at < bench->bytes; at += REQUEST)
		if (naos_sealed_file_read(file, bench->buffer, REQUEST, at, &got, &err) != 0 || got != REQUEST)
			die("read");
	close_file(file, false);
}

static void sealed_random_read(struct bench *bench)
{
	struct naos_sealed_file *file = open_file(bench, 1, NAOS_SEALED_LOCAL);
	size_t got;
	for (unsigned i = 0; i < RANDOM_REQUESTS; i++) {
		uint64_t at = next_random(bench) % (bench->bytes / 4096) * 4096;
		if (naos_sealed_file_read(file, bench->buffer, 4096, at, &got, &err) != 0)
			die("read");
	}
	close_file(file, false);
}

/* Over durable data, gathered, with a flush at the end. */
static void sealed_random_write(struct bench *bench)
{
	struct naos_sealed_file *file = open_file(bench, 1, NAOS_SEALED_LOCAL);
	if (naos_sealed_file_gather(file, (size_t)16 << 20, &err) != 0)
		die("gather");
	for (unsigned i = 0; i < RANDOM_REQUESTS; i++)
		if (naos_sealed_file_write(file, bench->buffer, 4096, next_random(bench) % (bench->bytes / 4096) * 4096, &err) != 0)
			die("write");
	if (naos_sealed_file_flush(file, &err) != 0)
		die("flush");
	close_file(file, true);
}

/* The same, each flushed. */
static void sealed_synced_write(struct bench *bench)
{
	struct naos_sealed_file *file = open_file(bench, 1, NAOS_SEALED_LOCAL);
	if (naos_sealed_file_gather(file, (size_t)16 << 20, &err) != 0)
		die("gather");
	for (unsigned i = 0; i < RANDOM_REQUESTS; i++)
		if (naos_sealed_file_write(file, bench->buffer, 4096, next_random(bench) % (bench->bytes / 4096) * 4096, &err) != 0 ||
		    naos_sealed_file_flush(file, &err) != 0)
			die("write");
	close_file(file, true);
}

static void plain_create(struct bench *bench)
{
	for (unsigned i = 0; i < SMALL_FILES; i++) {
		int fd = path_fd(bench, 10 + i, O_RDWR | O_CREAT | O_TRUNC);
		if (pwrite(fd, bench->buffer, 4096, 0) != 4096)
			die("pwrite");
		(void)close(fd);
	}
}

static void plain_open(struct bench *bench)
{
	for (unsigned i = 0; i < SMALL_FILES; i++) {
		int fd = path_fd(bench, 10 + i, O_RDONLY);
		if (pread(fd, bench->buffer, 4096, 0) != 4096)
			die("pread");
		(void)close(fd);
	}
}

static void sealed_create(struct bench *bench)
{
	for (unsigned i = 0; i < SMALL_FILES; i++) {
		struct naos_sealed_file *file = create_file(bench, 10 + i);
		if (naos_sealed_file_write(file, bench->buffer, 4096, 0, &err) != 0)
			die("write");
		close_file(file, false);
	}
}

static void sealed_open_unclean(struct bench *bench)
{
	for (unsigned i = 0; i < SMALL_FILES; i++)
		close_file(open_file(bench, 10 + i, NAOS_SEALED_LOCAL), false);
}

static void sealed_open(struct bench *bench)
{
	size_t got;
	for (unsigned i = 0; i < SMALL_FILES; i++) {
		struct naos_sealed_file *file = open_file(bench, 10 + i, NAOS_SEALED_LOCAL);
		if (naos_sealed_file_read(file, bench->buffer, 4096, 0, &got, &err) != 0)
			die("read");
		close_file(file, false);
	}
}

static void remove_small(struct bench *bench)
{
	for (unsigned i = 0; i < SMALL_FILES; i++)
		remove_file(bench, 10 + i);
}

static const struct {
	const char *name, *unit;
	void (*run)(struct bench *bench);
	double count; /* 0: GiB */
} measures[] = {
	{ "plain write 1 MiB", "s_per_GiB", plain_write, 0 },
	{ "sealed write 1 MiB", "s_per_GiB", sealed_write, 0 },
	{ "plain read 1 MiB", "s_per_GiB", plain_read, 0 },
	{ "sealed read 1 MiB", "s_per_GiB", sealed_read, 0 },
	{ "sealed random read 4 KiB", "us", sealed_random_read, RANDOM_REQUESTS },
	{ "sealed random write 4 KiB, flushed at the end", "us", sealed_random_write, RANDOM_REQUESTS },
	{ "sealed random write 4 KiB, each flushed", "us", sealed_synced_write, RANDOM_REQUESTS },
	{ "plain create + 4 KiB", "us", plain_create, SMALL_FILES },
	{ "plain open + read", "us", plain_open, SMALL_FILES },
	{ "", "", remove_small, 1 },
	{ "sealed create + 4 KiB", "us", sealed_create, SMALL_FILES },
	{ "sealed open of an unclean file", "us", sealed_open_unclean, SMALL_FILES },
	{ "sealed open + read", "us", sealed_open, SMALL_FILES },
	{ "", "", remove_small, 1 },
};

int main(int argc, char **argv)
{
	struct bench bench = { .random = 88172645463325252u };
	double best[sizeof(measures) / sizeof(*measures)] = { 0 };
	if (argc < 2)
		die("usage: bench_file DIRECTORY [MiB] [ROUNDS] [NAME]");
	bench.directory = argv[1];
	bench.bytes = (argc > 2 ? strtoull(argv[2], NULL, 10) : 1024) * REQUEST;
	const char *only = argc > 4 ? argv[4] : "";
	unsigned rounds = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 3;
	if (posix_memalign((void **)&bench.buffer, 4096, REQUEST) != 0 || naos_secret_random(NAOS_FEK_BYTES, &bench.fek, &err) != 0)
		die("memory");
	for (size_t i = 0; i < REQUEST; i++)
		bench.buffer[i] = (uint8_t)next_random(&bench);
	bench.blob = (struct naos_blob){ .mek_version = 1, .algorithm = NAOS_WRAP_AES_256_GCM, .iv_bytes = 12, .ciphertext_bytes = 64 };
	memset(bench.blob.mek_id.bytes, 0x42, sizeof(bench.blob.mek_id.bytes));
	memset(bench.blob.ciphertext, 1, bench.blob.ciphertext_bytes);
	for (unsigned round = 0; round < rounds; round++)
		for (size_t i = 0; i < sizeof(measures) / sizeof(*measures); i++) {
			bool wanted = strstr(measures[i].name, only) != NULL, needed = round == 0 && measures[i].run == sealed_write;
			if (!wanted && !needed)
				continue;
			double before = cpu_s();
			measures[i].run(&bench);
			double took = (cpu_s() - before) / (measures[i].count > 0 ? measures[i].count * 1e-6 : (double)bench.bytes / (1u << 30));
			best[i] = round == 0 || took < best[i] ? took : best[i];
		}
	for (size_t i = 0; i < sizeof(measures) / sizeof(*measures); i++)
		if (*measures[i].name)
			printf("{\"what\": \"%s\", \"least_cpu_%s\": %.3f}\n", measures[i].name, measures[i].unit, best[i]);
	remove_file(&bench, 0);
	remove_file(&bench, 1);
	(void)naos_secret_free(bench.fek);
	free(bench.buffer);
	return 0;
}

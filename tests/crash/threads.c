/* Many threads on one open file, and readers with handles of their own: every chunk always reads as one write left it.  Built with
 * ThreadSanitizer by tsan.sh.  Usage: crash_threads [--seconds N]; the file lies in $TMPDIR or /tmp.
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../unit/memory_store.h"
#include "disk.h"
#include "fail.h"

#define CHUNKS 70u
#define BYTES ((size_t)CHUNKS * NAOS_CHUNK_BYTES)

static char path[200];
static struct test_key key;
static struct naos_sealed_file *file;
static bool stop;

/* A chunk that was read whole is of one fill: every write and punch here is of whole chunks. */
static void check(const uint8_t *data, size_t bytes, const char *who)
{
	for (size_t i = 0; i + NAOS_CHUNK_BYTES <= bytes; i += NAOS_CHUNK_BYTES)
		for (size_t j = 1; j < NAOS_CHUNK_BYTES; j++)
			if (data[i + j] != data[i])
				violation("%s: chunk %zu is of two writes", who, i / NAOS_CHUNK_BYTES);
}

static struct naos_store *store_of(int flags)
{
	struct naos_store *store;
	int fd = open(path, flags | O_CLOEXEC, 0600);
	if (fd < 0 || naos_store_posix(fd, path, &store, NULL) != 0)
		violation("cannot open %s", path);
	return store;
}

static void read_some(struct naos_sealed_file *from, struct rng *rng, uint8_t *data, const char *who)
{
	struct naos_error err;
	size_t first = (size_t)rng_below(rng, CHUNKS), count = 1 + (size_t)rng_below(rng, CHUNKS - first), got;
	if (naos_sealed_file_read(from, data, count * NAOS_CHUNK_BYTES, first * NAOS_CHUNK_BYTES, &got, &err) != 0)
		violation("%s: %s", who, err.message);
	check(data, got, who);
}

static void *same_handle(void *argument)
{
	struct rng rng = rng_seed((uintptr_t)argument);
	uint8_t *data = must(malloc(BYTES));
	struct naos_error err;
	uint64_t start, end;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		read_some(file, &rng, data, "a reader of the writer's handle");
		if (naos_sealed_file_next_data(file, 0, &start, &end, &err) != 0)
			violation("next data: %s", err.message);
		if (naos_sealed_file_size(file) > BYTES)
			violation("the size is none that it had");
	}
	free(data);
	return NULL;
}

static void *own_handle(void *argument)
{
	struct rng rng = rng_seed((uintptr_t)argument);
	uint8_t *data = must(malloc(BYTES));
	const struct naos_fek_source source = test_key_source(&key);
	struct naos_sealed_file *own;
	struct naos_error err;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		if (naos_sealed_file_open(store_of(O_RDONLY), NAOS_SEALED_READ, &source, &own, &err) != 0)
			violation("a reader opens: %s", err.message);
		for (int i = 0; i < 8; i++)
			read_some(own, &rng, data, "a reader beside the writer");
		if (naos_sealed_file_close(own, false, &err) != 0)
			violation("a reader closes: %s", err.message);
	}
	free(data);
	return NULL;
}

static void *writer(void *argument)
{
	struct rng rng = rng_seed((uintptr_t)argument);
	uint8_t *data = must(malloc(8 * NAOS_CHUNK_BYTES));
	struct naos_error err;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		uint64_t first = rng_below(&rng, CHUNKS - 8), count = 1 + rng_below(&rng, 8), dice = rng_below(&rng, 20);
		int rc;
		for (uint64_t i = 0; i < count; i++)
			memset(data + i * NAOS_CHUNK_BYTES, (int)rng_next(&rng), NAOS_CHUNK_BYTES);
		if (dice < 13)
			rc = naos_sealed_file_write(file, data, (size_t)count * NAOS_CHUNK_BYTES, first * NAOS_CHUNK_BYTES, &err);
		else if (dice < 16)
			rc = naos_sealed_file_punch(file, first * NAOS_CHUNK_BYTES, count * NAOS_CHUNK_BYTES, &err);
		else if (dice < 17)
			rc = naos_sealed_file_flush(file, &err);
		else if (dice < 18)
			rc = naos_sealed_file_settle(file, &err);
		else
			rc = naos_sealed_file_truncate(file, (first + count) * NAOS_CHUNK_BYTES, &err);
		if (rc != 0)
			violation("a writer: %s", err.message);
	}
	free(data);
	return NULL;
}

int main(int argc, char **argv)
{
	static void *(*const kinds[])(void *) = { same_handle, same_handle, own_handle, own_handle, writer, writer };
	pthread_t threads[NAOS_ARRAY_LENGTH(kinds)];
	struct naos_sealed_new what = { .mode = NAOS_SEALED_LOCAL, .algorithm = NAOS_AES_256_GCM };
	struct naos_error err;
	const char *directory = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
	time_t seconds = argc > 2 && strcmp(argv[1], "--seconds") == 0 ? (time_t)strtoul(argv[2], NULL, 10) : 3;
	fail_at("threads");
	(void)snprintf(path, sizeof(path), "%s/naos-threads-%d", directory, (int)getpid());
	test_key_make(&key, 5, 1);
	what.fek = key.fek;
	what.blob = &key.blob;
	if (naos_sealed_file_create(store_of(O_RDWR | O_CREAT), &what, &file, &err) != 0)
		violation("cannot create: %s", err.message);
	if (naos_sealed_file_gather(file, 16 * NAOS_CHUNK_BYTES, &err) != 0)
		violation("gathering: %s", err.message);
	for (uintptr_t i = 0; i < NAOS_ARRAY_LENGTH(kinds); i++)
		if (pthread_create(&threads[i], NULL, kinds[i], (void *)(i + 1)) != 0)
			violation("no thread");
	const struct timespec pause = { .tv_sec = seconds };
	(void)nanosleep(&pause, NULL);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(kinds); i++)
		(void)pthread_join(threads[i], NULL);
	if (naos_sealed_file_close(file, true, &err) != 0)
		violation("closing: %s", err.message);
	(void)unlink(path);
	(void)naos_secret_free(key.fek);
	printf("every chunk was always of one write\n");
	return 0;
}

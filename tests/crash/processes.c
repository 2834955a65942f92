/* Real processes on one real file: two writers that share it (OFD locks), each with its own bytes of the same chunks, a reader beside
 * them, and now and then a SIGKILL.  No byte of either writer may be lost, no reader may see damage.
 * Usage: crash_processes [--rounds N] [--seed N]; the file lies in $TMPDIR or /tmp.
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../unit/memory_store.h"
#include "disk.h"
#include "fail.h"

#define CHUNKS 70u
#define STRIPE 512u /* byte b belongs to writer b / STRIPE % 2 */
#define BYTES ((size_t)CHUNKS * NAOS_CHUNK_BYTES)
#define OPERATIONS 60

/* Seen by all processes. */
struct shared {
	uint8_t expected[BYTES];
	struct {
		size_t offset, bytes; /* a write that may be under way; bytes 0: none */
		uint8_t fill;
		size_t end; /* of all that was written */
	} writers[2];
	bool stop;
};

static char path[200];

static struct naos_sealed_file *open_file(struct test_key *key, enum naos_sealed_mode mode)
{
	const struct naos_fek_source source = test_key_source(key);
	struct naos_sealed_file *file;
	struct naos_store *store;
	struct naos_error err;
	int fd = open(path, (mode == NAOS_SEALED_READ ? O_RDONLY : O_RDWR) | O_CLOEXEC);
	if (fd < 0 || naos_store_posix(fd, path, &store, &err) != 0)
		violation("cannot open %s", path);
	if (naos_sealed_file_open(store, mode, &source, &file, &err) != 0)
		violation("cannot open as %s: %s", mode == NAOS_SEALED_READ ? "reader" : "writer", err.message);
	return file;
}

static void create_file(struct test_key *key)
{
	struct naos_sealed_new what = { .mode = NAOS_SEALED_SHARED, .algorithm = NAOS_AES_256_GCM, .fek = key->fek, .blob = &key->blob };
	struct naos_sealed_file *file;
	struct naos_store *store;
	struct naos_error err;
	memset(what.file_id.bytes, 0x11, sizeof(what.file_id.bytes));
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || naos_store_posix(fd, path, &store, &err) != 0 || naos_sealed_file_create(store, &what, &file, &err) != 0)
		violation("cannot create %s", path);
	if (naos_sealed_file_close(file, false, &err) != 0)
		violation("closing: %s", err.message);
}

/* One write into a stripe of this writer. */
static void write_stripe(struct shared *shared, unsigned self, struct rng *rng, struct naos_sealed_file *file)
{
	struct naos_error err;
	uint8_t data[STRIPE], back[STRIPE];
	size_t last = shared->writers[self].end / NAOS_CHUNK_BYTES, got;
	size_t limit = rng_below(rng, 8) ? (last + 2 < CHUNKS ? last + 2 : CHUNKS) : CHUNKS;
	size_t stripe = (size_t)rng_below(rng, limit * NAOS_CHUNK_BYTES / STRIPE / 2) * 2 + self;
	size_t skip = (size_t)rng_below(rng, STRIPE), bytes = 1 + (size_t)rng_below(rng, STRIPE - skip), offset = stripe * STRIPE + skip;
	uint8_t fill = (uint8_t)rng_next(rng);
	memset(data, fill, bytes);
	shared->writers[self].offset = offset;
	shared->writers[self].fill = fill;
	__atomic_store_n(&shared->writers[self].bytes, bytes, __ATOMIC_SEQ_CST);
	if (naos_sealed_file_write(file, data, bytes, offset, &err) != 0)
		violation("writer %u: %s", self, err.message);
	memset(shared->expected + offset, fill, bytes);
	if (offset + bytes > shared->writers[self].end)
		shared->writers[self].end = offset + bytes;
	__atomic_store_n(&shared->writers[self].bytes, 0, __ATOMIC_SEQ_CST);
	if (naos_sealed_file_read(file, back, bytes, offset, &got, &err) != 0)
		violation("writer %u reads: %s", self, err.message);
	if (got != bytes || memcmp(back, data, bytes) != 0)
		violation("writer %u does not read what it wrote", self);
}

static void writer(struct shared *shared, unsigned self, uint64_t seed)
{
	struct rng rng = rng_seed(seed);
	struct test_key key;
	struct naos_error err;
	fail_at("writer %u, seed %llu", self, (unsigned long long)seed);
	test_key_make(&key, 5, 1); /* secrets do not survive a fork */
	struct naos_sealed_file *file = open_file(&key, NAOS_SEALED_SHARED);
	for (unsigned i = 0; i < OPERATIONS; i++) {
		write_stripe(shared, self, &rng, file);
		if (rng_below(&rng, 8) == 0 && naos_sealed_file_flush(file, &err) != 0)
			violation("writer %u flushes: %s", self, err.message);
	}
	if (naos_sealed_file_close(file, true, &err) != 0)
		violation("writer %u closes: %s", self, err.message);
	_Exit(0);
}

static void reader(struct shared *shared)
{
	static uint8_t data[BYTES + 1];
	struct test_key key;
	struct naos_error err;
	size_t got;
	fail_at("reader");
	test_key_make(&key, 5, 1);
	while (!__atomic_load_n(&shared->stop, __ATOMIC_SEQ_CST)) {
		struct naos_sealed_file *file = open_file(&key, NAOS_SEALED_READ);
		for (int i = 0; i < 10; i++)
			if (naos_sealed_file_read(file, data, sizeof(data), 0, &got, &err) != 0)
				violation("%s", err.message);
		if (naos_sealed_file_close(file, false, &err) != 0)
			violation("%s", err.message);
	}
	_Exit(0);
}

/* A write that was under way when its process was killed is there or not, chunk by chunk. */
static void settle(struct shared *shared, unsigned self, const uint8_t *data)
{
	size_t bytes = shared->writers[self].bytes, offset = shared->writers[self].offset;
	bool done = true;
	for (size_t i = offset; i < offset + bytes; i++)
		done &= data[i] == shared->writers[self].fill;
	if (done)
		memset(shared->expected + offset, shared->writers[self].fill, bytes);
	shared->writers[self].bytes = 0;
}

static void compare(struct shared *shared, enum naos_sealed_mode mode, bool killed, const char *what)
{
	static uint8_t data[BYTES + 1];
	struct test_key key;
	struct naos_error err;
	size_t got;
	test_key_make(&key, 5, 1);
	struct naos_sealed_file *file = open_file(&key, mode);
	memset(data, 0, sizeof(data));
	if (naos_sealed_file_read(file, data, sizeof(data), 0, &got, &err) != 0)
		violation("%s: %s", what, err.message);
	for (unsigned i = 0; i < 2; i++) {
		if (killed)
			settle(shared, i, data);
		if (got < shared->writers[i].end)
			violation("%s: %zu bytes, writer %u wrote up to %zu", what, got, i, shared->writers[i].end);
	}
	for (size_t i = 0; i < BYTES; i++)
		if (data[i] != shared->expected[i])
			violation("%s%s: byte %zu of writer %zu is lost (chunk %zu): it is %02x, was written as %02x", what,
				  killed ? " (one was killed)" : "", i, i / STRIPE % 2, i / NAOS_CHUNK_BYTES, data[i], shared->expected[i]);
	if (naos_sealed_file_verify(file, &err) != 0)
		violation("%s: verify: %s", what, err.message);
	if (naos_sealed_file_close(file, true, &err) != 0)
		violation("%s: %s", what, err.message);
	(void)naos_secret_free(key.fek);
}

static bool wait_for(pid_t pid, const char *who)
{
	int status;
	if (waitpid(pid, &status, 0) != pid)
		violation("waitpid");
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		return true;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		violation("%s ended with status %d", who, status);
	return false;
}

/* --- two that append ----------------------------------------------------------------------------------------------------- */

enum { RECORDS = 150, RECORD_MOST = 700 };

/* Where each record of each writer went. */
struct appended {
	uint64_t offsets[2][RECORDS];
};

static size_t record_bytes(unsigned self, unsigned number)
{
	return 1 + (number * 7919u + self * 104729u) % RECORD_MOST;
}

static void appender(struct appended *appended, unsigned self)
{
	struct test_key key;
	struct naos_error err;
	uint8_t data[RECORD_MOST];
	fail_at("appender %u", self);
	test_key_make(&key, 5, 1);
	struct naos_sealed_file *file = open_file(&key, NAOS_SEALED_SHARED);
	for (unsigned i = 0; i < RECORDS; i++) {
		memset(data, (int)(1 + self * 100 + i % 100), sizeof(data));
		if (naos_sealed_file_append(file, data, record_bytes(self, i), &appended->offsets[self][i], &err) != 0)
			violation("%s", err.message);
	}
	if (naos_sealed_file_close(file, true, &err) != 0)
		violation("%s", err.message);
	_Exit(0);
}

static void two_append(struct appended *appended)
{
	struct test_key key;
	struct naos_error err;
	pid_t pids[2];
	size_t total = 0, got;
	uint8_t data[RECORD_MOST];
	test_key_make(&key, 5, 1);
	create_file(&key);
	for (unsigned i = 0; i < 2; i++) {
		pids[i] = fork();
		if (pids[i] < 0)
			violation("fork");
		if (pids[i] == 0)
			appender(appended, i);
	}
	for (unsigned i = 0; i < 2; i++)
		(void)wait_for(pids[i], "an appender");
	struct naos_sealed_file *file = open_file(&key, NAOS_SEALED_READ);
	for (unsigned self = 0; self < 2; self++)
		for (unsigned i = 0; i < RECORDS; i++) {
			size_t bytes = record_bytes(self, i);
			if (naos_sealed_file_read(file, data, bytes, appended->offsets[self][i], &got, &err) != 0)
				violation("reading what was appended: %s", err.message);
			for (size_t at = 0; at < bytes; at++)
				if (got != bytes || data[at] != 1 + self * 100 + i % 100)
					violation("record %u of appender %u is not whole", i, self);
			total += bytes;
		}
	if (naos_sealed_file_size(file) != total)
		violation("%zu bytes were appended, the file has %llu", total, (unsigned long long)naos_sealed_file_size(file));
	if (naos_sealed_file_close(file, false, &err) != 0)
		violation("%s", err.message);
	(void)naos_secret_free(key.fek);
	printf("two processes appended %u records each: all are whole\n", (unsigned)RECORDS);
}

int main(int argc, char **argv)
{
	unsigned rounds = 100, kills = 0;
	uint64_t seed = 1;
	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--rounds") == 0)
			rounds = (unsigned)strtoul(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--seed") == 0)
			seed = strtoull(argv[i + 1], NULL, 10);
	}
	struct rng rng = rng_seed(seed);
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		violation("no memory");
	const char *directory = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
	(void)snprintf(path, sizeof(path), "%s/naos-crash-%d", directory, (int)getpid());
	struct appended *appended = mmap(NULL, sizeof(*appended), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (appended == MAP_FAILED)
		violation("no memory");
	two_append(appended);
	for (unsigned round = 0; round < rounds; round++) {
		if (round % 20 == 0) {
			struct test_key key;
			test_key_make(&key, 5, 1);
			create_file(&key);
			(void)naos_secret_free(key.fek);
			memset(shared, 0, sizeof(*shared));
		}
		shared->stop = false;
		fail_at("round %u, seed %llu", round, (unsigned long long)seed);
		pid_t pids[3];
		for (unsigned i = 0; i < 3; i++) {
			pids[i] = fork();
			if (pids[i] < 0)
				violation("fork");
			if (pids[i] == 0 && i < 2)
				writer(shared, i, seed * 1000 + round * 2 + i);
			if (pids[i] == 0)
				reader(shared);
		}
		if (rng_below(&rng, 2)) {
			const struct timespec pause = { .tv_nsec = (long)rng_below(&rng, 20000000) };
			(void)nanosleep(&pause, NULL);
			(void)kill(pids[rng_below(&rng, 2)], SIGKILL);
		}
		bool killed = wait_for(pids[0], "writer 0");
		killed |= wait_for(pids[1], "writer 1");
		kills += killed;
		__atomic_store_n(&shared->stop, true, __ATOMIC_SEQ_CST);
		(void)wait_for(pids[2], "the reader");
		compare(shared, NAOS_SEALED_READ, killed, "after the writers ended");
		compare(shared, NAOS_SEALED_LOCAL, false, "after recovery");
	}
	(void)unlink(path);
	printf("%u rounds of two writers and a reader, %u of them with a SIGKILL: nothing lost\n", rounds, kills);
	return 0;
}

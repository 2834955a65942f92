/* Group commit of the audit log: bench_audit DIRECTORY [SECONDS].  Prints one JSON object: appended records a second with 1, 8 and 32
 * threads, beside what one commit's system calls take alone and one fdatasync, in turns.  SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "audit/audit.h"
#include "base/io.h"

#define ROUNDS 3

static struct naos_audit_log *log_;
static volatile bool stop;

static double now(void)
{
	struct timespec time;
	(void)clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void must(int rc, const struct naos_error *err)
{
	if (rc == 0)
		return;
	fprintf(stderr, "%s\n", err->message);
	exit(1);
}

static void *append(void *argument)
{
	unsigned long *count = argument;
	const struct naos_audit_event event = { .actor = "alice", .action = "key.unwrap", .object = "genomes/chromosome-1.fa.gz",
						.decision = "allowed", .request_id = "3f0a1c" };
	struct naos_error err;
	for (; !stop; ++*count)
		must(naos_audit_append(log_, &event, &err), &err);
	return NULL;
}

/* Records a second. */
static double appends(unsigned threads, double seconds)
{
	pthread_t handles[64];
	unsigned long counts[64] = { 0 }, total = 0;
	stop = false;
	double begin = now();
	for (unsigned i = 0; i < threads; i++)
		if (pthread_create(&handles[i], NULL, append, &counts[i]) != 0)
			exit(1);
	(void)usleep((useconds_t)(seconds * 1e6));
	stop = true;
	for (unsigned i = 0; i < threads; i++) {
		(void)pthread_join(handles[i], NULL);
		total += counts[i];
	}
	return (double)total / (now() - begin);
}

/* Seconds of one round of the system calls: an appended record made durable and, if asked, a small file replaced. */
static double calls(int dir_fd, bool replace, double seconds)
{
	static const char record[200] = "record", checkpoint[170] = "checkpoint";
	struct naos_error err;
	unsigned long rounds = 0;
	int fd = openat(dir_fd, "calls", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0)
		exit(1);
	double begin = now();
	for (; now() - begin < seconds; rounds++) {
		must(naos_io_write(fd, record, sizeof(record), "calls", &err), &err);
		if (fdatasync(fd) != 0)
			exit(1);
		if (replace)
			must(naos_io_replace_file(dir_fd, "calls-checkpoint", checkpoint, sizeof(checkpoint), 0600, &err), &err);
	}
	double each = (now() - begin) / (double)rounds;
	(void)close(fd);
	return each;
}

static void best(double *value, double found, bool larger)
{
	if (*value == 0 || (larger ? found > *value : found < *value))
		*value = found;
}

int main(int argc, char **argv)
{
	static const unsigned threads[] = { 1, 8, 32 };
	double rates[3] = { 0 }, sync_s = 0, commit_s = 0, seconds = argc > 2 ? atof(argv[2]) : 1;
	struct naos_error err;
	char dir[4096];
	if (argc < 2)
		return 2;
	(void)snprintf(dir, sizeof(dir), "%s/bench-audit-XXXXXX", argv[1]);
	if (!mkdtemp(dir))
		return 1;
	int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	must(naos_audit_open(dir, "naos/bench", true, &log_, &err), &err);
	for (int round = 0; round < ROUNDS; round++) {
		best(&sync_s, calls(dir_fd, false, seconds), false);
		best(&commit_s, calls(dir_fd, true, seconds), false);
		for (size_t i = 0; i < NAOS_ARRAY_LENGTH(threads); i++)
			best(&rates[i], appends(threads[i], seconds), true);
	}
	log_ = naos_audit_close(log_);
	json_t *result = json_pack("{s:s, s:f, s:f, s:f, s:f, s:f}", "directory", argv[1], "fdatasync_us", sync_s * 1e6, "commit_calls_us",
				   commit_s * 1e6, "appends_per_s_1", rates[0], "appends_per_s_8", rates[1], "appends_per_s_32", rates[2]);
	(void)json_dumpf(result, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
	printf("\n");
	json_decref(result);
	fprintf(stderr, "left behind: %s\n", dir);
	return 0;
}

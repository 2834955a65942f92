/* The audit log as its callers see it: opening, appending, recovery, refusal.  SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>
#include <unistd.h>

#include "audit/audit.h"
#include "audit/checkpoint.h"
#include "base/io.h"

static struct naos_error err;
static char dir[64];
static const struct naos_audit_event event = { .actor = "alice", .action = "test.event", .object = "x", .decision = "allowed" };

static int make_dir(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/naos-audit-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *place)
{
	return remove(path);
}

static int remove_dir(void **state)
{
	return nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static const char *in_dir(const char *name)
{
	static char path[128];
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static uint64_t size_on_disk(void)
{
	struct naos_verifier verifier;
	struct naos_checkpoint checkpoint;
	assert_ok(naos_verifier_read(AT_FDCWD, in_dir("key.pub"), &verifier, &err), &err);
	assert_ok(naos_checkpoint_read(AT_FDCWD, in_dir("checkpoint"), &verifier, &checkpoint, &err), &err);
	naos_checkpoint_clear(&checkpoint);
	return checkpoint.size;
}

static struct naos_audit_log *open_log(bool create)
{
	struct naos_audit_log *log = NULL;
	assert_ok(naos_audit_open(dir, create ? "naos/test" : NULL, create, &log, &err), &err);
	return log;
}

static void append_times(struct naos_audit_log *log, unsigned times)
{
	for (unsigned i = 0; i < times; i++)
		assert_ok(naos_audit_append(log, &event, &err), &err);
}

static void a_log_keeps_its_records_over_reopening(void **state)
{
	struct naos_audit_log *log = open_log(true);
	assert_int_equal(size_on_disk(), 0);
	append_times(log, 3);
	assert_int_equal(size_on_disk(), 3);
	naos_audit_close(log);
	log = open_log(false);
	append_times(log, 300);
	assert_int_equal(size_on_disk(), 303);
	naos_audit_close(log);
	log = open_log(true); /* create takes an existing one */
	append_times(log, 1);
	assert_int_equal(size_on_disk(), 304);
	naos_audit_close(log);
}

static void batches_of_any_size_are_one_commit(void **state)
{
	static struct naos_audit_event events[NAOS_AUDIT_MAX_BATCH + 1];
	struct naos_audit_log *log = open_log(true);
	uint64_t size = 0;
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(events); i++)
		events[i] = event;
	static const size_t counts[] = { 0, 1, 255, 256, 257, 1000, NAOS_AUDIT_MAX_BATCH };
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(counts); i++) {
		assert_ok(naos_audit_append_many(log, events, counts[i], &err), &err);
		assert_int_equal(size_on_disk(), size += counts[i]);
	}
	assert_code(naos_audit_append_many(log, events, NAOS_AUDIT_MAX_BATCH + 1, &err), NAOS_E_LIMIT);
	assert_int_equal(size_on_disk(), size);
	naos_audit_close(log);
	naos_audit_close(open_log(false));
	assert_int_equal(size_on_disk(), size);
}

static void what_is_no_log_is_refused(void **state)
{
	struct naos_audit_log *log;
	assert_code(naos_audit_open(dir, NULL, false, &log, &err), NAOS_E_NOTFOUND);
	assert_int_not_equal(access(in_dir("lock"), F_OK), 0);
	assert_code(naos_audit_open(in_dir("absent"), NULL, false, &log, &err), NAOS_E_NOTFOUND);
	assert_code(naos_audit_open(dir, "two words", true, &log, &err), NAOS_E_USAGE);
	naos_audit_close(open_log(true));
	assert_code(naos_audit_open(dir, "naos/other", false, &log, &err), NAOS_E_CONFIG);
	assert_int_equal(chmod(in_dir("key"), 0640), 0);
	assert_code(naos_audit_open(dir, NULL, false, &log, &err), NAOS_E_PERMISSION);
	assert_int_equal(chmod(in_dir("key"), 0600), 0);
	assert_int_equal(unlink(in_dir("checkpoint")), 0);
	assert_int_equal(mkdir(in_dir("records"), 0700), 0);
	assert_code(naos_audit_open(dir, NULL, true, &log, &err), NAOS_E_INTEGRITY);
}

static void a_key_may_lie_elsewhere_and_must_be_the_right_one(void **state)
{
	struct naos_audit_log *log;
	struct naos_audit_options options = { .origin = "naos/test", .create = true };
	char key[128];
	snprintf(key, sizeof(key), "%s.key", dir);
	options.key_path = key;
	assert_ok(naos_audit_open_with(dir, &options, &log, &err), &err);
	append_times(log, 1);
	naos_audit_close(log);
	assert_int_not_equal(access(in_dir("key"), F_OK), 0);
	assert_code(naos_audit_open(dir, NULL, false, &log, &err), NAOS_E_NOTFOUND);
	assert_int_equal(unlink(key), 0);
	assert_code(naos_audit_open_with(dir, &options, &log, &err), NAOS_E_NOTFOUND);
	struct naos_signer other;
	assert_ok(naos_signer_create("naos/test", NAOS_NOTE_ED25519, &other, &err), &err);
	assert_ok(naos_signer_store(&other, AT_FDCWD, key, &err), &err);
	naos_signer_clear(&other);
	assert_code(naos_audit_open_with(dir, &options, &log, &err), NAOS_E_WRONG_KEY);
	assert_int_equal(unlink(key), 0);
}

/* Appends raw bytes to the first bundle, as a process does that dies in the middle of a commit. */
static void leave_torn_tail(const char *bytes)
{
	FILE *file = fopen(in_dir("records/000.jsonl"), "a");
	assert_non_null(file);
	assert_true(fputs(bytes, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static void assert_nothing_pending(void)
{
	const struct naos_audit_check check = { .key_path = NULL };
	struct naos_audit_report report;
	assert_ok(naos_audit_verify(dir, &check, &report, &err), &err);
	assert_int_equal(report.pending_bytes, 0);
}

static void a_torn_tail_is_cut_and_recorded(void **state)
{
	static char long_tail[2000];
	struct naos_audit_log *log = open_log(true);
	uint8_t *data;
	size_t bytes;
	append_times(log, 2);
	naos_audit_close(log);
	leave_torn_tail("{\"format\":1,\"half\":true}\n{\"for");
	naos_audit_close(open_log(false));
	assert_int_equal(size_on_disk(), 3);
	assert_nothing_pending();
	assert_ok(naos_io_read_file(AT_FDCWD, in_dir("records/000.jsonl"), 10000, &data, &bytes, &err), &err);
	assert_null(strstr((char *)data, "half"));
	assert_non_null(strstr((char *)data, "\"action\":\"audit.recover\""));
	assert_non_null(strstr((char *)data, "cut 30 bytes (1 whole records)"));
	free(data);
	naos_audit_close(open_log(false));
	assert_int_equal(size_on_disk(), 3); /* once */

	/* a tail longer than the record of its cutting */
	memset(long_tail, 'x', sizeof(long_tail) - 1);
	leave_torn_tail(long_tail);
	naos_audit_close(open_log(false));
	assert_int_equal(size_on_disk(), 4);
	assert_nothing_pending();
}

/* A commit that reached the next bundle and its tiles before the process died. */
static void a_torn_tail_over_bundles_is_cut(void **state)
{
	static struct naos_audit_event events[300];
	struct naos_audit_log *log = open_log(true);
	uint8_t *old;
	size_t bytes;
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(events); i++)
		events[i] = event;
	append_times(log, 3);
	assert_ok(naos_io_read_file(AT_FDCWD, in_dir("checkpoint"), 1000, &old, &bytes, &err), &err);
	assert_ok(naos_audit_append_many(log, events, NAOS_ARRAY_LENGTH(events), &err), &err);
	naos_audit_close(log);
	assert_ok(naos_io_replace_file(AT_FDCWD, in_dir("checkpoint"), old, bytes, 0600, &err), &err); /* as if not yet replaced */
	free(old);
	naos_audit_close(open_log(false));
	assert_int_equal(size_on_disk(), 4);
	assert_nothing_pending();
	assert_int_not_equal(access(in_dir("records/001.jsonl"), F_OK), 0);
	assert_int_not_equal(access(in_dir("tile/0/001"), F_OK), 0);
	assert_int_not_equal(access(in_dir("tile/1/000"), F_OK), 0);
	log = open_log(false);
	assert_ok(naos_audit_append_many(log, events, NAOS_ARRAY_LENGTH(events), &err), &err);
	naos_audit_close(log);
	assert_nothing_pending();
	assert_int_equal(size_on_disk(), 304);
}

/* After a power cut the last tile of level 0 may lack what its records have. */
static void a_lost_tile_is_written_again(void **state)
{
	struct naos_audit_log *log = open_log(true);
	append_times(log, 9);
	naos_audit_close(log);
	assert_int_equal(truncate(in_dir("tile/0/000"), 40), 0);
	naos_audit_close(open_log(false));
	assert_int_equal(size_on_disk(), 10); /* and says so */
	assert_nothing_pending();
	assert_int_equal(unlink(in_dir("tile/0/000")), 0);
	naos_audit_close(open_log(false));
	assert_int_equal(size_on_disk(), 11);
	assert_nothing_pending();
}

static void changed_records_stop_the_writer(void **state)
{
	struct naos_audit_log *log = open_log(true);
	append_times(log, 2);
	naos_audit_close(log);
	int fd = open(in_dir("records/000.jsonl"), O_WRONLY);
	assert_int_equal(pwrite(fd, "X", 1, 30), 1);
	close(fd);
	assert_code(naos_audit_open(dir, NULL, false, &log, &err), NAOS_E_INTEGRITY);
}

static void a_full_disk_refuses_and_leaves_the_log_usable(void **state)
{
	struct naos_audit_log *log = open_log(true);
	struct rlimit old, small;
	append_times(log, 2);
	/* a limit on file size stands for the disk: it hits the records at one size, the tile at another */
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
	for (rlim_t limit = 0; limit < 600; limit += 16) {
		small = old;
		small.rlim_cur = limit;
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
		int rc = naos_audit_append(log, &event, &err);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
		if (rc == 0)
			break;
		assert_int_equal(rc, NAOS_E_AUDIT);
		assert_int_equal(size_on_disk(), 2);
	}
	uint64_t size = size_on_disk();
	append_times(log, 1);
	assert_int_equal(size_on_disk(), size + 1);
	naos_audit_close(log);
	naos_audit_close(open_log(false));
	assert_int_equal(size_on_disk(), size + 1); /* nothing to recover */
}

/* What a failed commit wrote is taken back, at once or as soon as it can be. */
static void a_failed_batch_leaves_nothing(void **state)
{
	static struct naos_audit_event events[300];
	struct naos_audit_log *log = open_log(true);
	struct rlimit old, small;
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(events); i++)
		events[i] = event;
	append_times(log, 2);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
	small = old;
	small.rlim_cur = 20000; /* in the middle of the first bundle */
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	int rc = naos_audit_append_many(log, events, NAOS_ARRAY_LENGTH(events), &err);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_code(rc, NAOS_E_AUDIT);
	assert_nothing_pending();
	append_times(log, 1);
	assert_int_equal(size_on_disk(), 3);

	assert_int_equal(mkdir(in_dir("records/001.jsonl"), 0700), 0); /* the second bundle can't be made, nor cleared away */
	assert_code(naos_audit_append_many(log, events, NAOS_ARRAY_LENGTH(events), &err), NAOS_E_AUDIT);
	assert_code(naos_audit_append(log, &event, &err), NAOS_E_AUDIT);
	assert_int_equal(size_on_disk(), 3);
	assert_int_equal(rmdir(in_dir("records/001.jsonl")), 0);
	append_times(log, 1);
	assert_int_equal(size_on_disk(), 4);
	assert_nothing_pending();
	assert_ok(naos_audit_append_many(log, events, NAOS_ARRAY_LENGTH(events), &err), &err);
	assert_int_equal(size_on_disk(), 304);
	naos_audit_close(log);
	assert_nothing_pending();
}

#define THREADS 8
#define EACH 40

static void *append_many_times(void *log)
{
	append_times(log, EACH);
	return NULL;
}

static void threads_share_commits(void **state)
{
	struct naos_audit_log *log = open_log(true);
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, append_many_times, log), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(size_on_disk(), THREADS * EACH);
	naos_audit_close(log);
	naos_audit_close(open_log(false));
}

int main(void)
{
#define t(name) cmocka_unit_test_setup_teardown(name, make_dir, remove_dir)
	const struct CMUnitTest tests[] = {
		t(a_log_keeps_its_records_over_reopening), t(batches_of_any_size_are_one_commit), t(what_is_no_log_is_refused),
		t(a_key_may_lie_elsewhere_and_must_be_the_right_one), t(a_torn_tail_is_cut_and_recorded),
		t(a_torn_tail_over_bundles_is_cut), t(a_lost_tile_is_written_again),
		t(changed_records_stop_the_writer), t(a_full_disk_refuses_and_leaves_the_log_usable),
		t(a_failed_batch_leaves_nothing), t(threads_share_commits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

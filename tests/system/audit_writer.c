/* Appends to an audit log from threads, for the tests: audit_writer DIRECTORY NAME THREADS COUNT [KEY].  Each acknowledged record
 * is a line "NAME-THREAD-INDEX" on standard output, written before the thread goes on.  COUNT 0: until killed.  Exit status
 * 33 if a record was refused: the thread tries the same record again until it is taken.  SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "audit/audit.h"

static struct naos_audit_log *log_;
static const char *name;
static unsigned long count;
static bool refused;

static void *append_all(void *argument)
{
	unsigned long thread = (unsigned long)(uintptr_t)argument;
	for (unsigned long i = 0; count == 0 || i < count; i++) {
		char object[128];
		struct naos_error err = NAOS_ERROR_INIT;
		struct naos_audit_event event = { .actor = name, .action = "test.append", .object = object, .decision = "allowed" };
		(void)snprintf(object, sizeof(object), "%s-%lu-%lu\n", name, thread, i);
		size_t bytes = strlen(object);
		object[bytes - 1] = 0;
		while (naos_audit_append(log_, &event, &err) != 0) {
			if (!__atomic_exchange_n(&refused, true, __ATOMIC_RELAXED))
				fprintf(stderr, "%d %s\n", err.code, err.message);
			(void)usleep(20000);
		}
		object[bytes - 1] = '\n';
		if (write(STDOUT_FILENO, object, bytes) != (ssize_t)bytes)
			break;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[64];
	struct naos_error err = NAOS_ERROR_INIT;
	if (argc < 5)
		return 2;
	name = argv[2];
	unsigned long thread_count = strtoul(argv[3], NULL, 10);
	count = strtoul(argv[4], NULL, 10);
	const struct naos_audit_options options = { .origin = "naos/test", .create = true, .key_path = argc > 5 ? argv[5] : NULL };
	int rc = naos_audit_open_with(argv[1], &options, &log_, &err);
	if (rc != 0) {
		fprintf(stderr, "%d %s\n", rc, err.message);
		return naos_error_exit_status(rc);
	}
	for (unsigned long i = 0; i < thread_count && i < NAOS_ARRAY_LENGTH(threads); i++)
		if (pthread_create(&threads[i], NULL, append_all, (void *)(uintptr_t)i) != 0)
			return 1;
	for (unsigned long i = 0; i < thread_count && i < NAOS_ARRAY_LENGTH(threads); i++)
		(void)pthread_join(threads[i], NULL);
	log_ = naos_audit_close(log_);
	return refused ? 33 : 0;
}

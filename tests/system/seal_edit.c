/* Changes a sealed file in place through the public library, as another program would:
 * seal_edit PATH write OFFSET TEXT | truncate BYTES | punch OFFSET BYTES | read OFFSET BYTES | crash OFFSET TEXT
 * SPDX-License-Identifier: Apache-2.0 */
#include <naos/seal.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int edit(struct naos_handle *file, int argc, char **argv, struct naos_error *err)
{
	unsigned long long first = strtoull(argv[3], NULL, 0), second = argc > 4 ? strtoull(argv[4], NULL, 0) : 0;
	static char buffer[1 << 20];
	size_t got;
	if (strcmp(argv[2], "write") == 0 || strcmp(argv[2], "crash") == 0)
		return naos_handle_write(file, argv[4], strlen(argv[4]), first, err);
	if (strcmp(argv[2], "truncate") == 0)
		return naos_handle_truncate(file, first, err);
	if (strcmp(argv[2], "punch") == 0)
		return naos_handle_punch(file, first, second, err);
	int rc = naos_handle_read(file, buffer, second < sizeof(buffer) ? (size_t)second : sizeof(buffer), first, &got, err);
	return rc == 0 && fwrite(buffer, 1, got, stdout) != got ? -1 : rc;
}

int main(int argc, char **argv)
{
	struct naos_context *context = NULL;
	struct naos_handle *file = NULL;
	struct naos_error err = NAOS_ERROR_INIT;
	if (argc < 4)
		return 2;
	bool reading = strcmp(argv[2], "read") == 0;
	int rc = naos_context_open(NULL, NULL, &context, &err);
	if (rc == 0)
		rc = naos_handle_open(context, argv[1], reading ? NAOS_HANDLE_READ : NAOS_HANDLE_WRITE, &file, &err);
	if (rc == 0)
		rc = edit(file, argc, argv, &err);
	if (rc == 0 && strcmp(argv[2], "crash") == 0) {
		rc = naos_handle_flush(file, &err);
		_exit(rc == 0 ? 0 : 1); /* flushed and never closed */
	}
	if (file) {
		int closed = naos_handle_close(file, rc == 0 ? &err : NULL);
		rc = rc ? rc : closed;
	}
	naos_context_close(context);
	if (rc != 0)
		fprintf(stderr, "%s\n", err.message);
	return naos_error_exit_status(rc);
}

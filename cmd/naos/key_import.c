/* naos key import.  SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>

#include "admin.h"
#include "base/io.h"

#define MOST_BYTES 32
#define ROOM_BYTES (2 * MOST_BYTES + 3) /* as digits, with a line's end, and one more that shows that it is too long */

static const struct naos_option import_options[] = {
	NAOS_OPTION_KEYS,
	{ "from", 'f', "SOURCE", "where the key is read: file:PATH, fd:NUMBER or systemd:CREDENTIAL; else it is asked for on the terminal" },
	{ "hex", 'x', NULL, "the source holds hexadecimal digits, not bytes" },
	{ .name = NULL },
};

static int open_file(const char *path, int *ret, struct naos_error *err)
{
	struct stat info;
	naos_autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &info) != 0)
		return naos_error_set_errno(err, errno, "cannot open the key in %s", path);
	if (!S_ISREG(info.st_mode))
		return naos_error_set(err, NAOS_E_USAGE, "%s is not a regular file; a pipe is given as fd:NUMBER", path);
	if (info.st_mode & (S_IROTH | S_IWOTH | S_IWGRP))
		return naos_error_set(err, NAOS_E_PERMISSION, "%s is open to others (mode %04o), so others may know the key: it is not taken", path,
				      (unsigned)info.st_mode & 07777);
	*ret = naos_fd_steal(&fd);
	return 0;
}

static int open_credential(const char *name, int *ret, struct naos_error *err)
{
	const char *directory = secure_getenv("CREDENTIALS_DIRECTORY");
	naos_autofree char *path = NULL;
	if (name[0] == 0 || name[0] == '.' || strchr(name, '/') || !directory || directory[0] != '/')
		return naos_error_set(err, NAOS_E_USAGE,
				      "there is no credential '%s' (LoadCredential= of the unit sets CREDENTIALS_DIRECTORY)", name);
	if (asprintf(&path, "%s/%s", directory, name) < 0) {
		path = NULL;
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a file name");
	}
	return open_file(path, ret, err);
}

static int open_source(const char *source, int *ret, struct naos_error *err)
{
	char *end = NULL;
	if (strncmp(source, "file:", 5) == 0)
		return open_file(source + 5, ret, err);
	if (strncmp(source, "systemd:", 8) == 0)
		return open_credential(source + 8, ret, err);
	unsigned long number = strncmp(source, "fd:", 3) == 0 ? strtoul(source + 3, &end, 10) : 0;
	if (!end || *end || source[3] < '0' || source[3] > '9' || number > 1 << 20) /* not repeated: it may be a key in the wrong place */
		return naos_error_set(err, NAOS_E_USAGE,
				      "--from takes file:PATH, fd:NUMBER or systemd:CREDENTIAL; a key itself is never an argument");
	*ret = dup((int)number);
	return *ret >= 0 ? 0 : naos_error_set_errno(err, errno, "descriptor %lu is not open", number);
}

/* All that the descriptor gives, whole: no byte of a key is taken for a line's end. */
static int read_all(int fd, struct naos_secret **ret, struct naos_error *err)
{
	naos_autosecret struct naos_secret *secret = NULL;
	size_t bytes = 0;
	int rc = naos_secret_create(ROOM_BYTES, &secret, err);
	if (rc == 0)
		rc = naos_io_read(fd, naos_secret_data(secret), ROOM_BYTES, &bytes, "the source of the key", err);
	if (rc == 0 && (bytes == 0 || bytes == ROOM_BYTES))
		rc = bytes ? naos_error_set(err, NAOS_E_USAGE, "the source holds more than a key of 256 bits") :
			     naos_error_set(err, NAOS_E_USAGE, "the source of the key is empty");
	if (rc != 0)
		return rc;
	naos_secret_shrink(secret, bytes);
	*ret = naos_steal(secret);
	return 0;
}

static int ask(struct naos_secret **ret, struct naos_error *err)
{
	naos_autosecret struct naos_secret *secret = NULL;
	struct termios loud, quiet;
	if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &loud) != 0)
		return naos_error_set(err, NAOS_E_USAGE,
				      "there is no terminal to ask for the key; give --from file:PATH, fd:NUMBER or systemd:CREDENTIAL");
	int rc = naos_secret_create(ROOM_BYTES, &secret, err);
	if (rc != 0)
		return rc;
	(void)fputs("The key in hexadecimal digits (they are not shown): ", stderr);
	(void)fflush(stderr);
	quiet = loud;
	quiet.c_lflag &= ~(tcflag_t)ECHO;
	(void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
	ssize_t got = read(STDIN_FILENO, naos_secret_data(secret), ROOM_BYTES);
	(void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &loud);
	(void)fputc('\n', stderr);
	if (got <= 0 || got == ROOM_BYTES)
		return naos_error_set(err, NAOS_E_USAGE, "that was no key of at most 256 bits");
	naos_secret_shrink(secret, (size_t)got);
	*ret = naos_steal(secret);
	return 0;
}

static int digit_of(uint8_t letter)
{
	static const char digits[] = "0123456789abcdef";
	const char *at = letter ? strchr(digits, letter | 0x20) : NULL;
	return letter >= '0' && at ? (int)(at - digits) : -1;
}

/* Digits become bytes in the same place. */
static int decode_digits(struct naos_secret *secret, struct naos_error *err)
{
	uint8_t *data = naos_secret_data(secret);
	size_t bytes = naos_secret_bytes(secret);
	while (bytes > 0 && (data[bytes - 1] == '\n' || data[bytes - 1] == '\r'))
		bytes--;
	for (size_t i = 0; i < bytes; i++)
		if (digit_of(data[i]) < 0)
			return naos_error_set(err, NAOS_E_USAGE, "the key has something that is no hexadecimal digit at place %zu", i + 1);
	if (bytes == 0 || bytes % 2)
		return naos_error_set(err, NAOS_E_USAGE, "the key has %zu hexadecimal digits, not an even number", bytes);
	for (size_t i = 0; i < bytes / 2; i++)
		data[i] = (uint8_t)(digit_of(data[2 * i]) << 4 | digit_of(data[2 * i + 1]));
	naos_secret_shrink(secret, bytes / 2);
	return 0;
}

static int read_key(const struct naos_invocation *invocation, struct naos_secret **ret, struct naos_error *err)
{
	const char *source = naos_option_value(invocation, "from");
	naos_autosecret struct naos_secret *secret = NULL;
	naos_autoclose int fd = -1;
	int rc = source ? open_source(source, &fd, err) : ask(&secret, err);
	if (rc == 0 && source)
		rc = read_all(fd, &secret, err);
	if (rc == 0 && (!source || naos_option_given(invocation, "hex")))
		rc = decode_digits(secret, err);
	if (rc == 0)
		*ret = naos_steal(secret);
	return rc;
}

static int print_imported(const struct naos_invocation *invocation, const char *name, const char *id, size_t bytes, struct naos_error *err)
{
	if (invocation->json)
		return naos_print_json(json_pack("{s:s, s:s, s:s, s:I}", "name", name, "id", id, "state", "active", "bits",
						 (json_int_t)(8 * bytes)), err);
	(void)printf("%s: taken in as %s, active\n", name, id);
	return 0;
}

static int run_import(struct naos_invocation *invocation, struct naos_error *err)
{
	naos_autoprovider struct naos_provider *provider = NULL;
	naos_cleanup(naos_admin_close_log) struct naos_audit_log *log = NULL;
	naos_autosecret struct naos_secret *key = NULL;
	const char *name = invocation->operands[0];
	char id[NAOS_KEY_ID_BYTES];
	int rc = naos_admin_open_keys(invocation, &provider, err);
	if (rc == 0)
		rc = read_key(invocation, &key, err);
	if (rc == 0)
		rc = naos_admin_open_log(invocation, &log, err);
	if (rc == 0)
		rc = naos_admin_record(log, "key.import", name, 0, err);
	if (rc == 0)
		rc = naos_admin_finish(log, "key.import", name, naos_key_import(provider, name, key, id, err), err);
	return rc ? rc : print_imported(invocation, name, id, naos_secret_bytes(key), err);
}

const struct naos_command naos_command_key_import = {
	.path = "key import", .operands = "NAME",
	.summary = "Give an exportable key that was made elsewhere to the key manager", .example = "naos key import tape-7",
	.min_operands = 1, .max_operands = 1, .options = import_options, .run = run_import,
};

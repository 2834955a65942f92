/* SPDX-License-Identifier: Apache-2.0 */
#include "key_source.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"

static int open_file(const char *path, int *ret, struct naos_error *err)
{
	struct stat info;
	naos_autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &info) != 0)
		return naos_error_set_errno(err, errno, "cannot open the key in %s", path);
	if (!S_ISREG(info.st_mode))
		return naos_error_set(err, NAOS_E_USAGE, "%s is not a regular file; a pipe is given as fd:NUMBER", path);
	if (info.st_mode & (S_IROTH | S_IWOTH | S_IWGRP))
		return naos_error_set(err, NAOS_E_PERMISSION,
			"%s is open to others (mode %04o), so others may know the key: it is not taken", path,
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
				      "there is no credential '%s' (LoadCredential= of the unit sets CREDENTIALS_DIRECTORY)",
					      name);
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

					      "a key is given as file:PATH, fd:NUMBER or systemd:CREDENTIAL; a key itself is never an argument");
	*ret = dup((int)number);
	return *ret >= 0 ? 0 : naos_error_set_errno(err, errno, "descriptor %lu is not open", number);
}

/* All that the descriptor gives, whole: no byte of a key is taken for a line's end. */
static int read_all(int fd, struct naos_secret **ret, struct naos_error *err)
{
	naos_autosecret struct naos_secret *secret = NULL;
	size_t bytes = 0;
	int rc = naos_secret_create(NAOS_KEY_SOURCE_BYTES, &secret, err);
	if (rc == 0)
		rc = naos_io_read(fd, naos_secret_data(secret), NAOS_KEY_SOURCE_BYTES, &bytes, "the source of the key", err);
	if (rc == 0 && (bytes == 0 || bytes == NAOS_KEY_SOURCE_BYTES))
		rc = bytes ? naos_error_set(err, NAOS_E_USAGE, "the source holds more than a key of 256 bits") :
			     naos_error_set(err, NAOS_E_USAGE, "the source of the key is empty");
	if (rc != 0)
		return rc;
	naos_secret_shrink(secret, bytes);
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
int naos_key_source_decode(struct naos_secret *secret, struct naos_error *err)
{
	uint8_t *data = naos_secret_data(secret);
	size_t bytes = naos_secret_bytes(secret);
	while (bytes > 0 && (data[bytes - 1] == '\n' || data[bytes - 1] == '\r'))
		bytes--;
	for (size_t i = 0; i < bytes; i++)
		if (digit_of(data[i]) < 0)
			return naos_error_set(err, NAOS_E_USAGE,
				"the key has something that is no hexadecimal digit at place %zu", i + 1);
	if (bytes == 0 || bytes % 2)
		return naos_error_set(err, NAOS_E_USAGE, "the key has %zu hexadecimal digits, not an even number", bytes);
	for (size_t i = 0; i < bytes / 2; i++)
		data[i] = (uint8_t)(digit_of(data[2 * i]) << 4 | digit_of(data[2 * i + 1]));
	naos_secret_shrink(secret, bytes / 2);
	return 0;
}

int naos_key_source_read(const char *source, struct naos_secret **ret, struct naos_error *err)
{
	naos_autoclose int fd = -1;
	int rc = open_source(source, &fd, err);
	return rc ? rc : read_all(fd, ret, err);
}

/* Full reads and writes, atomic replacement.  SPDX-License-Identifier: Apache-2.0 */
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <openssl/rand.h>

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

#define TEMPORARY_MARK ".naos-"
#define TEMPORARY_RANDOM 8 /* letters behind the mark */

int naos_io_read(int fd, void *buffer, size_t bytes, size_t *ret_bytes, const char *name, struct naos_error *err)
{
	size_t done = 0;
	while (done < bytes) {
		ssize_t got = read(fd, (char *)buffer + done, bytes - done);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return naos_error_set_errno(err, errno, "cannot read %s", name);
		if (got == 0)
			break;
		done += (size_t)got;
	}
	*ret_bytes = done;
	return 0;
}

int naos_io_pread(int fd, void *buffer, size_t bytes, uint64_t offset, size_t *ret_bytes, const char *name,
		  struct naos_error *err)
{
	size_t done = 0;
	while (done < bytes) {
		ssize_t got = pread(fd, (char *)buffer + done, bytes - done, (off_t)(offset + done));
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return naos_error_set_errno(err, errno, "cannot read %s at offset %llu", name,
						    (unsigned long long)(offset + done));
		if (got == 0)
			break;
		done += (size_t)got;
	}
	*ret_bytes = done;
	return 0;
}

int naos_io_write(int fd, const void *buffer, size_t bytes, const char *name, struct naos_error *err)
{
	size_t done = 0;
	while (done < bytes) {
		ssize_t put = write(fd, (const char *)buffer + done, bytes - done);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return naos_error_set_errno(err, errno, "cannot write %s", name);
		done += (size_t)put;
	}
	return 0;
}

int naos_io_pwrite(int fd, const void *buffer, size_t bytes, uint64_t offset, const char *name, struct naos_error *err)
{
	size_t done = 0;
	while (done < bytes) {
		ssize_t put = pwrite(fd, (const char *)buffer + done, bytes - done, (off_t)(offset + done));
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return naos_error_set_errno(err, errno, "cannot write %s at offset %llu", name,
						    (unsigned long long)(offset + done));
		done += (size_t)put;
	}
	return 0;
}

int naos_io_read_file(int dir_fd, const char *path, size_t max_bytes, uint8_t **ret_data, size_t *ret_bytes,
		      struct naos_error *err)
{
	naos_autoclose int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot open %s", path);
	naos_autofree uint8_t *data = malloc(max_bytes + 2);
	if (!data)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to read %s", path);
	size_t bytes = 0;
	int rc = naos_io_read(fd, data, max_bytes + 1, &bytes, path, err);
	if (rc != 0)
		return rc;
	if (bytes > max_bytes)
		return naos_error_set(err, NAOS_E_LIMIT, "%s is larger than %zu bytes", path, max_bytes);
	data[bytes] = 0;
	*ret_bytes = bytes;
	*ret_data = naos_steal(data);
	return 0;
}

/* Splits path into the directory (as a length; 0: dir_fd itself) and the last component. */
static const char *last_component(const char *path, size_t *ret_dir_length)
{
	const char *slash = strrchr(path, '/');
	*ret_dir_length = slash ? (size_t)(slash - path) + 1 : 0;
	return slash ? slash + 1 : path;
}

int naos_io_temporary(int dir_fd, const char *path, mode_t mode, int *ret_fd, char **ret_name, struct naos_error *err)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz234567";
	size_t dir_length;
	const char *base = last_component(path, &dir_length);
	/* a name of 255 bytes still gets a temporary: only its first bytes are used */
	size_t keep = strnlen(base, 255 - 1 - strlen(TEMPORARY_MARK) - TEMPORARY_RANDOM);
	naos_autofree char *name = malloc(dir_length + keep + 64);
	if (!name)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a file name");
	for (int attempt = 0; attempt < 100; attempt++) {
		uint8_t random[TEMPORARY_RANDOM];
		if (RAND_bytes(random, sizeof(random)) != 1)
			return naos_error_set(err, NAOS_E_SYSTEM, "the random generator failed");
		char *at = name + dir_length;
		memcpy(name, path, dir_length);
		*at++ = '.';
		memcpy(at, base, keep);
		at += keep;
		memcpy(at, TEMPORARY_MARK, strlen(TEMPORARY_MARK));
		at += strlen(TEMPORARY_MARK);
		for (size_t i = 0; i < sizeof(random); i++)
			*at++ = letters[random[i] % 32];
		*at = 0;
		int fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
		if (fd >= 0) {
			*ret_fd = fd;
			*ret_name = naos_steal(name);
			return 0;
		}
		if (errno != EEXIST)
			break;
	}
	return naos_error_set_errno(err, errno, "cannot create a temporary file beside %s", path);
}

bool naos_io_is_temporary(const char *base_name)
{
	size_t length = strlen(base_name), mark = strlen(TEMPORARY_MARK);
	if (base_name[0] != '.' || length < 1 + mark + TEMPORARY_RANDOM)
		return false;
	const char *at = base_name + length - TEMPORARY_RANDOM;
	if (memcmp(at - mark, TEMPORARY_MARK, mark) != 0)
		return false;
	return strspn(at, "abcdefghijklmnopqrstuvwxyz234567") == TEMPORARY_RANDOM;
}

int naos_io_sync_parent(int dir_fd, const char *path, struct naos_error *err)
{
	size_t dir_length;
	(void)last_component(path, &dir_length);
	naos_autofree char *dir = dir_length ? strndup(path, dir_length) : strdup(".");
	naos_autoclose int opened = -1;
	int fd = dir_fd;
	if (!dir)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a file name");
	if (dir_length > 0 || dir_fd == AT_FDCWD || (fcntl(dir_fd, F_GETFL) & O_PATH)) /* not the directory itself, or not open for fsync */
		fd = opened = openat(dir_fd, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* EINVAL: a file system without fsync of directories */
	if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL))
		return naos_error_set_errno(err, errno, "cannot make %s durable in its directory", path);
	return 0;
}

int naos_io_rename(int dir_fd, const char *temporary, const char *path, bool replace, struct naos_error *err)
{
	int rc;
	if (replace) {
		rc = renameat(dir_fd, temporary, dir_fd, path);
	} else {
		rc = (int)syscall(SYS_renameat2, dir_fd, temporary, dir_fd, path, RENAME_NOREPLACE);
		if (rc != 0 && (errno == EINVAL || errno == ENOSYS)) { /* not on this file system: link fails if path exists */
			rc = linkat(dir_fd, temporary, dir_fd, path, 0);
			if (rc == 0)
				(void)unlinkat(dir_fd, temporary, 0);
		}
	}
	return rc == 0 ? 0 : naos_error_set_errno(err, errno, "cannot name the new file %s", path);
}

int naos_io_publish(int dir_fd, const char *temporary, const char *path, bool replace, struct naos_error *err)
{
	int rc = naos_io_rename(dir_fd, temporary, path, replace, err);
	return rc ? rc : naos_io_sync_parent(dir_fd, path, err);
}

int naos_io_replace_file(int dir_fd, const char *path, const void *data, size_t bytes, mode_t mode, struct naos_error *err)
{
	naos_autoclose int fd = -1;
	naos_autofree char *temporary = NULL;
	int rc = naos_io_temporary(dir_fd, path, mode, &fd, &temporary, err);
	if (rc != 0)
		return rc;
	rc = naos_io_write(fd, data, bytes, path, err);
	if (rc == 0 && fsync(fd) != 0)
		rc = naos_error_set_errno(err, errno, "cannot make %s durable", path);
	if (rc == 0)
		rc = naos_io_publish(dir_fd, temporary, path, true, err);
	if (rc != 0)
		(void)unlinkat(dir_fd, temporary, 0);
	return rc;
}

/* Length of the valid UTF-8 sequence at text (1 to 4), or 0. */
static size_t utf8_length(const unsigned char *text)
{
	size_t length = text[0] < 0x80 ? 1 : text[0] >= 0xc2 && text[0] < 0xe0 ? 2 : (text[0] & 0xf0) == 0xe0 ? 3 :
			text[0] >= 0xf0 && text[0] < 0xf5 ? 4 : 0;
	for (size_t i = 1; i < length; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
	    (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f))
		return 0;
	return length;
}

static const char *make_printable(const char *name, bool keep_backslash, char *buffer, size_t bytes)
{
	static const char hex[] = "0123456789abcdef";
	const unsigned char *at = (const unsigned char *)name;
	size_t used = 0;
	while (*at && used + 5 < bytes) {
		size_t length = utf8_length(at);
		/* C1 controls (U+0080..U+009F) can drive a terminal too */
		bool plain = length > 1 ? !(length == 2 && at[0] == 0xc2 && at[1] < 0xa0) :
					  length == 1 && *at >= 0x20 && *at != 0x7f && (keep_backslash || *at != '\\');
		if (plain) {
			memcpy(buffer + used, at, length);
			used += length;
			at += length;
		} else {
			buffer[used++] = '\\';
			buffer[used++] = 'x';
			buffer[used++] = hex[*at >> 4];
			buffer[used++] = hex[*at & 15];
			at++;
		}
	}
	buffer[used] = 0;
	return buffer;
}

const char *naos_io_printable(const char *name, char *buffer, size_t bytes)
{
	return make_printable(name, false, buffer, bytes);
}

const char *naos_io_printable_text(const char *text, char *buffer, size_t bytes)
{
	return make_printable(text, true, buffer, bytes);
}

int naos_io_make_absent(const char *path, mode_t mode, struct naos_error *err)
{
	struct stat status = { 0 };
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	if (fd >= 0)
		(void)close(fd);
	else if (errno != EEXIST)
		return naos_error_set_errno(err, errno, "cannot make %s", path);
	if (lstat(path, &status) != 0 || S_ISLNK(status.st_mode))
		return naos_error_set_errno(err, S_ISLNK(status.st_mode) ? ELOOP : errno, "cannot use %s", path);
	return naos_io_sync_parent(AT_FDCWD, path, err);
}

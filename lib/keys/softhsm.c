/* SoftHSM's token directory.  SPDX-License-Identifier: Apache-2.0 */
#include "keys/softhsm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "base/io.h"

#define MAX_CONFIG_BYTES 65536
#define MAX_TOKEN_BYTES 65536
#define TOKEN_FILE "token.object"
#define COPY_FILE "token.naos"
#define NEW_COPY_FILE "token.naos.new"

static void close_directory(DIR **directory)
{
	if (*directory)
		(void)closedir(*directory);
}
#define autodirectory naos_cleanup(close_directory) DIR

/* The value of directories.tokendir, or NULL.  The caller frees it. */
static char *token_root_of(const char *path)
{
	naos_autofree uint8_t *text = NULL;
	size_t bytes;
	char *save = NULL, *root = NULL;
	if (naos_io_read_file(AT_FDCWD, path, MAX_CONFIG_BYTES, &text, &bytes, NULL) != 0)
		return NULL;
	for (char *line = strtok_r((char *)text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *value = strchr(line, '=');
		line += strspn(line, " \t");
		if (!value || strncmp(line, "directories.tokendir", 20) != 0)
			continue;
		value += 1 + strspn(value + 1, " \t");
		value[strcspn(value, "#\r")] = 0;
		for (size_t length = strlen(value); length > 0 && (value[length - 1] == ' ' || value[length - 1] == '\t'); length--)
			value[length - 1] = 0;
		free(root);
		root = strdup(value);
	}
	return root;
}

/* In the order in which SoftHSM looks for its configuration. */
static char *token_root(void)
{
	const char *named = secure_getenv("SOFTHSM2_CONF"), *home = secure_getenv("HOME");
	naos_autofree char *own = NULL;
	if (named)
		return token_root_of(named);
	if (home && asprintf(&own, "%s/.config/softhsm2/softhsm2.conf", home) < 0)
		own = NULL;
	if (own && access(own, F_OK) == 0)
		return token_root_of(own);
	char *root = token_root_of("/etc/softhsm/softhsm2.conf");
	return root ? root : token_root_of("/etc/softhsm2.conf");
}

/* A token's directory is named by a UUID whose last 16 digits are its serial number. */
static bool is_directory_of(const char *name, const char *serial)
{
	char digits[64];
	size_t used = 0, length = strlen(serial);
	for (; *name && used < sizeof(digits) - 1; name++)
		if (*name != '-')
			digits[used++] = *name;
	digits[used] = 0;
	return length > 0 && used == 32 && length <= used && strcmp(digits + used - length, serial) == 0;
}

/* Descriptor of the token's directory, -1 if it can't be found. */
static int open_directory(const char *serial)
{
	naos_autofree char *root = token_root();
	autodirectory *directory = root ? opendir(root) : NULL;
	const struct dirent *entry;
	while (directory && (entry = readdir(directory)))
		if (is_directory_of(entry->d_name, serial))
			return openat(dirfd(directory), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return -1;
}

bool naos_softhsm_is_present(const char *serial)
{
	naos_autofree char *root = token_root();
	naos_autoclose int fd = open_directory(serial);
	return fd >= 0 || !root;
}

static bool has_ending(const char *name, const char *ending)
{
	size_t length = strlen(name), width = strlen(ending);
	return length > width && strcmp(name + length - width, ending) == 0;
}

static int sync_file(int dir_fd, const char *name, struct naos_error *err)
{
	naos_autoclose int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0 || fsync(fd) != 0)
		return naos_error_set_errno(err, errno, "cannot make the key in %s durable", name);
	return 0;
}

int naos_softhsm_sync(const char *serial, struct naos_error *err)
{
	naos_autoclose int fd = open_directory(serial);
	autodirectory *directory = NULL;
	const struct dirent *entry;
	int copy = fd < 0 ? -1 : dup(fd);
	if (copy < 0) {
		sync();
		return 0;
	}
	directory = fdopendir(copy);
	if (!directory) {
		(void)close(copy);
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to read a token's directory");
	}
	int rc = 0;
	while (rc == 0 && (entry = readdir(directory)))
		if (has_ending(entry->d_name, ".object") || strcmp(entry->d_name, "generation") == 0)
			rc = sync_file(fd, entry->d_name, err);
	if (rc == 0 && fsync(fd) != 0)
		rc = naos_error_set_errno(err, errno, "cannot make a token's directory durable");
	return rc;
}

/* A generation (8 bytes) and an attribute (24), but not both of what SoftHSM writes first: the kind of key and the class.
 * PKCS#11 shows such objects and can neither read nor destroy them. */
#define LEAST_OBJECT_BYTES 56

static bool is_stunted(int dir_fd, const char *name)
{
	struct stat info;
	return has_ending(name, ".object") && fstatat(dir_fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode) &&
	       info.st_size < LEAST_OBJECT_BYTES;
}

int naos_softhsm_sweep_stunted(const char *serial, size_t *ret_count, struct naos_error *err)
{
	/* SoftHSM cuts a file to zero bytes for a moment at each change: what is so at two looks is dead */
	static const struct timespec pause = { 0, 200000000L };
	naos_autoclose int fd = open_directory(serial);
	struct dirent **entries = NULL;
	size_t suspects = 0, swept = 0;
	int count = fd < 0 ? 0 : scandirat(fd, ".", &entries, NULL, NULL);
	if (count < 0)
		return naos_error_set_errno(err, errno, "cannot read a token's directory");
	for (int i = 0; i < count; i++) {
		if (!is_stunted(fd, entries[i]->d_name))
			entries[i]->d_name[0] = 0;
		else
			suspects++;
	}
	if (suspects > 0)
		(void)nanosleep(&pause, NULL);
	for (int i = 0; i < count; i++) {
		char *name = entries[i]->d_name;
		if (suspects > 0 && name[0] && is_stunted(fd, name) && unlinkat(fd, name, 0) == 0) {
			swept++;
			memcpy(name + strlen(name) - strlen("object"), "lock", sizeof("lock"));
			(void)unlinkat(fd, name, 0);
		}
		free(entries[i]);
	}
	free(entries);
	*ret_count = swept;
	return 0;
}

/* Waits until no SoftHSM writes to it (it locks the file for that); then nothing of it is half written. */
static void lock_token_file(int fd)
{
	static const struct timespec pause = { 0, 5000000L };
	struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET };
	for (int attempt = 0; attempt < 200 && fcntl(fd, F_OFD_SETLK, &lock) != 0; attempt++)
		(void)nanosleep(&pause, NULL);
}

static int read_token_file(int dir_fd, uint8_t *data, size_t *ret_bytes, struct naos_error *err)
{
	naos_autoclose int fd = openat(dir_fd, TOKEN_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot open %s of a token", TOKEN_FILE);
	lock_token_file(fd);
	return naos_io_pread(fd, data, MAX_TOKEN_BYTES, 0, ret_bytes, TOKEN_FILE, err);
}

/* One name for what is not finished, so that kills leave no row of temporaries; the directory's lock makes it ours. */
static int write_copy(int dir_fd, const char *name, const uint8_t *data, size_t bytes, struct naos_error *err)
{
	naos_autoclose int fd = openat(dir_fd, NEW_COPY_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot make a copy of a token's file");
	int rc = naos_io_write(fd, data, bytes, NEW_COPY_FILE, err);
	if (rc == 0 && fsync(fd) != 0)
		rc = naos_error_set_errno(err, errno, "cannot make the copy of a token's file durable");
	return rc ? rc : naos_io_publish(dir_fd, NEW_COPY_FILE, name, true, err);
}

int naos_softhsm_keep_token(const char *serial, struct naos_error *err)
{
	naos_autoclose int fd = open_directory(serial);
	naos_autofree uint8_t *data = malloc(MAX_TOKEN_BYTES), *copy = NULL;
	size_t bytes = 0, copy_bytes = 0;
	if (fd < 0) /* not where the configuration says: nothing can be done for it */
		return 0;
	while (flock(fd, LOCK_EX) != 0)
		if (errno != EINTR)
			return naos_error_set_errno(err, errno, "cannot lock a token's directory");
	int rc = data ? read_token_file(fd, data, &bytes, err) : naos_error_set(err, NAOS_E_NOMEM, "no memory for the copy of a token");
	if (rc != 0)
		return rc;
	if (naos_io_read_file(fd, COPY_FILE, MAX_TOKEN_BYTES, &copy, &copy_bytes, NULL) == 0 &&
	    (bytes < copy_bytes || (bytes == copy_bytes && memcmp(data, copy, bytes) == 0)))
		return 0; /* the same, or the copy is the better one */
	rc = write_copy(fd, COPY_FILE, data, bytes, err);
	return rc ? naos_error_prefix(err, rc, "the token's file can't be secured, so nobody logs in to it") : 0;
}

static bool is_shorter_than_copy(int dir_fd)
{
	struct stat copy, token = { .st_size = 0 };
	if (fstatat(dir_fd, COPY_FILE, &copy, AT_SYMLINK_NOFOLLOW) != 0)
		return false;
	if (fstatat(dir_fd, TOKEN_FILE, &token, AT_SYMLINK_NOFOLLOW) != 0 && errno != ENOENT)
		return false;
	return token.st_size < copy.st_size;
}

static bool mend_token(int dir_fd)
{
	static const struct timespec pause = { 0, 200000000L }; /* another process may be logging in */
	naos_autofree uint8_t *copy = NULL;
	size_t bytes;
	if (!is_shorter_than_copy(dir_fd) || flock(dir_fd, LOCK_EX) != 0)
		return false;
	(void)nanosleep(&pause, NULL);
	return is_shorter_than_copy(dir_fd) && naos_io_read_file(dir_fd, COPY_FILE, MAX_TOKEN_BYTES, &copy, &bytes, NULL) == 0 &&
	       write_copy(dir_fd, TOKEN_FILE, copy, bytes, NULL) == 0;
}

size_t naos_softhsm_mend_tokens(void)
{
	naos_autofree char *root = token_root();
	autodirectory *directory = root ? opendir(root) : NULL;
	const struct dirent *entry;
	size_t mended = 0;
	while (directory && (entry = readdir(directory))) {
		naos_autoclose int fd = -1;
		if (entry->d_name[0] != '.')
			fd = openat(dirfd(directory), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (fd >= 0 && mend_token(fd))
			mended++;
	}
	return mended;
}

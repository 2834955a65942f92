/* Where a file set may lie.  SPDX-License-Identifier: Apache-2.0 */
#include "fileset_place.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/io.h"
#include "base/log.h"
#include "fileset.h"
#include "seal/sealed_file.h"

/* --- paths ------------------------------------------------------------------------------------------------------------- */

/* The parent is resolved, the last component is kept. */
static int canonical_of_new(const char *option, const char *path, char ret[static PATH_MAX], struct naos_error *err)
{
	char parent[PATH_MAX], resolved[PATH_MAX];
	size_t length = strlen(path);
	while (length > 1 && path[length - 1] == '/')
		length--;
	(void)snprintf(parent, sizeof(parent), "%.*s", (int)length, path);
	char *slash = strrchr(parent, '/');
	const char *last = slash + 1;
	if (strcmp(last, "..") == 0 || strcmp(last, ".") == 0)
		return naos_error_set(err, NAOS_E_NOTFOUND, "%s: there is no %s", option, path);
	*slash = 0;
	if (!realpath(parent[0] ? parent : "/", resolved))
		return naos_error_set_errno(err, errno, "%s: the directory that shall hold it, %s", option, parent);
	int bytes = snprintf(ret, PATH_MAX, "%s/%s", strcmp(resolved, "/") == 0 ? "" : resolved, last);
	return bytes < PATH_MAX ? 0 : naos_error_set(err, NAOS_E_LIMIT, "%s: the path is too long", option);
}

int naos_place_canonical(const char *option, const char *path, char ret[static PATH_MAX], struct naos_error *err)
{
	char resolved[PATH_MAX];
	struct stat status;
	if (path[0] != '/')
		return naos_error_set(err, NAOS_E_USAGE, "%s takes an absolute path, not '%s'", option, path);
	if (strlen(path) >= PATH_MAX)
		return naos_error_set(err, NAOS_E_LIMIT, "%s: the path is too long", option);
	if (!realpath(path, resolved))
		return errno == ENOENT ? canonical_of_new(option, path, ret, err) : naos_error_set_errno(err, errno, "%s: %s", option, path);
	if (strcmp(resolved, "/") == 0)
		return naos_error_set(err, NAOS_E_USAGE, "%s can't be the root directory", option);
	if (stat(resolved, &status) == 0 && !S_ISDIR(status.st_mode))
		return naos_error_set(err, NAOS_E_EXISTS, "%s: %s is there, but no directory", option, resolved);
	(void)snprintf(ret, PATH_MAX, "%s", resolved);
	return 0;
}

bool naos_place_is_inside(const char *path, const char *folder)
{
	size_t length = strlen(folder);
	return strncmp(path, folder, length) == 0 && (path[length] == 0 || path[length] == '/');
}

static int check_pair(const char *ours, const char *theirs, const char *what, const char *whose, struct naos_error *err)
{
	char resolved[PATH_MAX];
	if (!ours[0] || !theirs[0])
		return 0;
	if (naos_place_canonical("", theirs, resolved, NULL) == 0)
		theirs = resolved;
	if (naos_place_is_inside(ours, theirs))
		return naos_error_set(err, NAOS_E_EXISTS, "%s is or lies in %s, the %s of the file set '%s': file sets can't be nested", ours,
				      theirs, what, whose);
	if (naos_place_is_inside(theirs, ours))
		return naos_error_set(err, NAOS_E_EXISTS, "%s, the %s of the file set '%s', lies in %s: file sets can't be nested", theirs, what,
				      whose, ours);
	return 0;
}

/* A file set that is mounted and not configured here. */
static int check_mounts(const char *path, const char *mountpoint, struct naos_error *err)
{
	naos_automounts struct naos_mounts mounts = { .items = NULL };
	int rc = naos_mounts_read(&mounts, err);
	for (size_t i = 0; rc == 0 && i < mounts.count; i++)
		if (naos_mount_is_fileset(&mounts.items[i])) {
			rc = check_pair(path, mounts.items[i].point, "mount", mounts.items[i].source, err);
			if (rc == 0)
				rc = check_pair(mountpoint, mounts.items[i].point, "mount", mounts.items[i].source, err);
		}
	return rc;
}

int naos_place_check_apart(const struct naos_config *config, const char *path, const char *mountpoint, struct naos_error *err)
{
	const char *const ours[] = { path, mountpoint };
	struct naos_fileset_section other;
	int rc = 0;
	if (mountpoint[0] && (naos_place_is_inside(path, mountpoint) || naos_place_is_inside(mountpoint, path)))
		return naos_error_set(err, NAOS_E_USAGE, "the sealed files in %s and the mount on %s must lie apart", path, mountpoint);
	for (unsigned i = 0; rc == 0 && naos_fileset_section_at(config, i, &other); i++)
		for (unsigned j = 0; rc == 0 && j < NAOS_ARRAY_LENGTH(ours); j++) {
			rc = check_pair(ours[j], other.path, "directory", other.name, err);
			if (rc == 0)
				rc = check_pair(ours[j], other.mountpoint, "mountpoint", other.name, err);
		}
	return rc ? rc : check_mounts(path, mountpoint, err);
}

/* --- directories -------------------------------------------------------------------------------------------------------- */

int naos_place_make(const char *option, const char *path, mode_t permissions, struct naos_error *err)
{
	if (mkdir(path, 0700) != 0)
		return errno == EEXIST ? 0 : naos_error_set_errno(err, errno, "%s: cannot make %s", option, path);
	/* whatever the umask */
	if (chmod(path, permissions) != 0)
		return naos_error_set_errno(err, errno, "%s: %s", option, path);
	return naos_io_sync_parent(AT_FDCWD, path, err);
}

static bool is_sealed(int dir_fd, const char *name)
{
	struct naos_store *store;
	struct naos_sealed_info info;
	int fd = openat(dir_fd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC);
	struct stat status;
	if (fd < 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || naos_store_posix(fd, name, &store, NULL) != 0) {
		naos_close_descriptor(&fd);
		return false;
	}
	bool is = naos_sealed_probe(store, &info, NULL) == 0;
	store->ops->close(store);
	return is;
}

int naos_place_check_empty(const char *path, struct naos_error *err)
{
	DIR *dir = opendir(path);
	char shown[512];
	int rc = 0;
	if (!dir)
		return naos_error_set_errno(err, errno, "cannot read %s", path);
	for (const struct dirent *entry; rc == 0 && (entry = readdir(dir));) {
		const char *name = entry->d_name;
		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, "lost+found") == 0)
			continue;
		(void)naos_io_printable(name, shown, sizeof(shown));
		rc = is_sealed(dirfd(dir), name) ?
			     naos_error_set(err, NAOS_E_EXISTS, "%s holds sealed files (%s): take them over with --adopt", path, shown) :
			     naos_error_set(err, NAOS_E_EXISTS,
					    "%s is not empty (%s): choose an empty directory; for a tree that is sealed already give --adopt, "
					    "and to seal files where they are see 'naos fileset migrate'", path, shown);
	}
	(void)closedir(dir);
	return rc;
}

void naos_place_warn(const char *path)
{
	naos_autoclose int fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0 && fsetxattr(fd, "user.naos.key", "", 0, 0) != 0)
		naos_log(NAOS_LOG_WARNING,
			 "the file system of %s keeps no user attributes (%s): files are complete without them, but attributes of users and "
			 "access lists can't be kept", path, strerrordesc_np(errno));
}

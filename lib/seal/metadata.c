/* Owner, mode, times, extended attributes.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/metadata.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/cursor.h"

#define OWN_ATTRIBUTES "user.naos."
#define KEY_ATTRIBUTE OWN_ATTRIBUTES "key"
#define TIMES_ATTRIBUTE OWN_ATTRIBUTES "times"
#define MAX_LIST_BYTES 65536
#define SETID_BITS (S_ISUID | S_ISGID)

/* --- extended attributes ---------------------------------------------------------------------------------------------- */

/* Those of the user, access lists, and what only root may write. The rest (labels of a security module) is the target's own. */
static bool is_kept(const char *name)
{
	return strncmp(name, OWN_ATTRIBUTES, strlen(OWN_ATTRIBUTES)) != 0 &&
	       (strncmp(name, "user.", 5) == 0 || strncmp(name, "system.posix_acl_", 17) == 0 ||
		strcmp(name, "security.capability") == 0 || strncmp(name, "trusted.", 8) == 0);
}

static bool not_taken_here(int errno_value)
{
	return errno_value == EOPNOTSUPP || errno_value == EPERM || errno_value == EACCES || errno_value == ENOSYS ||
	       errno_value == EINVAL;
}

static int copy_attribute(int from, int to, const char *attribute, const char *name, bool *ret_lost, struct naos_error *err)
{
	ssize_t bytes = fgetxattr(from, attribute, NULL, 0);
	naos_autofree void *value = bytes > 0 ? malloc((size_t)bytes) : NULL;
	if (bytes > 0 && !value)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for an extended attribute");
	if (bytes > 0)
		bytes = fgetxattr(from, attribute, value, (size_t)bytes);
	if (bytes < 0 && errno == ENODATA)
		return 0; /* removed meanwhile */
	if (bytes < 0)
		return naos_error_set_errno(err, errno, "cannot read the extended attribute %s of %s", attribute, name);
	int rc = fsetxattr(to, attribute, value, (size_t)bytes, 0);
	/* the attribute of Naos is a spare copy: it makes room for what the user put there */
	if (rc != 0 && (errno == ENOSPC || errno == E2BIG) && fremovexattr(to, KEY_ATTRIBUTE) == 0)
		rc = fsetxattr(to, attribute, value, (size_t)bytes, 0);
	if (rc != 0 && !not_taken_here(errno))
		return naos_error_set_errno(err, errno, "cannot write the extended attribute %s of %s", attribute, name);
	*ret_lost |= rc != 0;
	return 0;
}

static int copy_attributes(int from, int to, const char *name, bool *ret_lost, struct naos_error *err)
{
	char small[1024];
	naos_autofree char *large = NULL;
	char *list = small;
	ssize_t bytes = flistxattr(from, small, sizeof(small));
	if (bytes < 0 && errno == ERANGE) {
		large = malloc(MAX_LIST_BYTES);
		if (!large)
			return naos_error_set(err, NAOS_E_NOMEM, "no memory for extended attributes");
		list = large;
		bytes = flistxattr(from, large, MAX_LIST_BYTES);
	}
	if (bytes < 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
		return 0;
	if (bytes < 0)
		return naos_error_set_errno(err, errno, "cannot list the extended attributes of %s", name);
	for (const char *at = list; at < list + bytes; at += strlen(at) + 1) {
		int rc = is_kept(at) ? copy_attribute(from, to, at, name, ret_lost, err) : 0;
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* --- the whole ------------------------------------------------------------------------------------------------------------ */

/* Root keeps owner and group; others what they may.  Set-id bits stay only with their owner. */
static mode_t kept_mode(const struct stat *wanted, const struct stat *now)
{
	mode_t mode = wanted->st_mode & 07777;
	if (now->st_uid != wanted->st_uid)
		mode &= ~(mode_t)S_ISUID;
	if (now->st_gid != wanted->st_gid && !S_ISDIR(wanted->st_mode))
		mode &= ~(mode_t)S_ISGID;
	return mode;
}

int naos_metadata_copy(int from, const struct stat *status, mode_t mode_or, int to, const char *name,
		       struct naos_metadata_loss *ret_loss, struct naos_error *err)
{
	struct naos_metadata_loss loss = { .attributes = false };
	struct stat now;
	if (fchown(to, status->st_uid, status->st_gid) != 0)
		(void)!fchown(to, (uid_t)-1, status->st_gid); /* where permitted */
	if (fstat(to, &now) != 0)
		return naos_error_set_errno(err, errno, "cannot read the metadata of %s", name);
	mode_t mode = kept_mode(status, &now);
	/* what the directory's default access list gave a new file does not outlive it: the original's follows below */
	(void)!fremovexattr(to, "system.posix_acl_access");
	loss.setid = (status->st_mode & SETID_BITS) != (mode & SETID_BITS);
	/* a file system without modes (vfat) refuses what it can't keep */
	if (fchmod(to, mode | mode_or) != 0 && errno != EPERM && errno != EOPNOTSUPP)
		return naos_error_set_errno(err, errno, "cannot set the mode of %s", name);
	int rc = from >= 0 ? copy_attributes(from, to, name, &loss.attributes, err) : 0;
	if (rc != 0)
		return rc;
	const struct timespec times[2] = { status->st_atim, status->st_mtim };
	if (futimens(to, times) != 0)
		return naos_error_set_errno(err, errno, "cannot set the times of %s", name);
	*ret_loss = loss;
	return 0;
}

int naos_metadata_copy_at(const struct stat *status, int dir_fd, const char *base, const char *name, struct naos_error *err)
{
	struct stat now;
	if (fchownat(dir_fd, base, status->st_uid, status->st_gid, AT_SYMLINK_NOFOLLOW) != 0)
		(void)!fchownat(dir_fd, base, (uid_t)-1, status->st_gid, AT_SYMLINK_NOFOLLOW); /* where permitted */
	if (fstatat(dir_fd, base, &now, AT_SYMLINK_NOFOLLOW) != 0)
		return naos_error_set_errno(err, errno, "cannot read the metadata of %s", name);
	if (!S_ISLNK(now.st_mode) && fchmodat(dir_fd, base, kept_mode(status, &now), 0) != 0)
		return naos_error_set_errno(err, errno, "cannot set the mode of %s", name);
	const struct timespec times[2] = { status->st_atim, status->st_mtim };
	if (utimensat(dir_fd, base, times, AT_SYMLINK_NOFOLLOW) != 0 && errno != EOPNOTSUPP)
		return naos_error_set_errno(err, errno, "cannot set the times of %s", name);
	return 0;
}

bool naos_metadata_same_time(const struct stat *original, const struct stat *copy)
{
	const struct timespec *a = &original->st_mtim, *b = &copy->st_mtim;
	if (a->tv_sec == b->tv_sec &&
	    (a->tv_nsec == b->tv_nsec || (b->tv_nsec % 1000 == 0 && a->tv_nsec / 1000 == b->tv_nsec / 1000)))
		return true;
	/* whole seconds (some network file systems), even seconds (vfat) */
	return b->tv_nsec == 0 && (a->tv_sec == b->tv_sec || (b->tv_sec % 2 == 0 && (a->tv_sec | 1) == (b->tv_sec | 1)));
}

/* --- times of a file that is rewritten in place ------------------------------------------------------------------------- */

void naos_metadata_note_times(int fd, const struct stat *status)
{
	uint8_t value[32];
	struct naos_cursor cursor = naos_cursor_writer(value, sizeof(value));
	naos_cursor_put_u64(&cursor, (uint64_t)status->st_atim.tv_sec);
	naos_cursor_put_u64(&cursor, (uint64_t)status->st_atim.tv_nsec);
	naos_cursor_put_u64(&cursor, (uint64_t)status->st_mtim.tv_sec);
	naos_cursor_put_u64(&cursor, (uint64_t)status->st_mtim.tv_nsec);
	(void)!fsetxattr(fd, TIMES_ATTRIBUTE, value, sizeof(value), 0); /* a file system without attributes: as good as it goes */
}

void naos_metadata_put_times_back(int fd)
{
	uint8_t value[32];
	struct timespec times[2];
	if (fgetxattr(fd, TIMES_ATTRIBUTE, value, sizeof(value)) != (ssize_t)sizeof(value))
		return;
	struct naos_cursor cursor = naos_cursor_reader(value, sizeof(value));
	for (unsigned i = 0; i < 2; i++) {
		times[i].tv_sec = (time_t)naos_cursor_get_u64(&cursor);
		times[i].tv_nsec = (long)naos_cursor_get_u64(&cursor);
	}
	if (futimens(fd, times) == 0)
		(void)!fremovexattr(fd, TIMES_ATTRIBUTE);
}

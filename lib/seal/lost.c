/* Setting files aside that hold nothing.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/check_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define LONGEST_NAME 200 /* of what is kept of a path; the rest is a digest of it */
#define MOST_ALIKE 1000	 /* files set aside under one name */

/* Opens root/.naos-lost, made where it is missing.  One that someone else can look into or fill is refused. */
static int open_lost(const char *root, int *ret_fd, struct naos_error *err)
{
	naos_autoclose int root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat status;
	if (root_fd < 0)
		return naos_error_set_errno(err, errno, "cannot open the directory %s", root);
	if (mkdirat(root_fd, NAOS_LOST_DIRECTORY, 0700) == 0)
		(void)!fsync(root_fd);
	else if (errno != EEXIST)
		return naos_error_set_errno(err, errno, "cannot make the directory %s/" NAOS_LOST_DIRECTORY, root);
	naos_autoclose int fd = openat(root_fd, NAOS_LOST_DIRECTORY, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &status) != 0)
		return naos_error_set_errno(err, errno, "cannot open the directory %s/" NAOS_LOST_DIRECTORY, root);
	if (status.st_uid != geteuid() || (status.st_mode & 077) != 0)
		return naos_error_set(err, NAOS_E_PERMISSION, "%s/" NAOS_LOST_DIRECTORY " must belong to uid %u and have mode 0700", root,
				      (unsigned)geteuid());
	*ret_fd = naos_fd_steal(&fd);
	return 0;
}

/* "a/b%c" -> "a%2Fb%25c": one component, told apart from every other path. */
static void flatten(const char *below_root, char *name, size_t bytes)
{
	uint64_t hash = 0xcbf29ce484222325u;
	size_t used = 0;
	const unsigned char *at = (const unsigned char *)below_root;
	for (; *at && used + 4 < bytes && used < LONGEST_NAME; at++) {
		if (*at == '/' || *at == '%')
			used += (size_t)snprintf(name + used, bytes - used, "%%%02X", *at);
		else
			name[used++] = (char)*at;
	}
	name[used] = 0;
	if (!*at)
		return;
	for (at = (const unsigned char *)below_root; *at; at++)
		hash = (hash ^ *at) * 0x100000001b3u;
	(void)snprintf(name + used, bytes - used, "%%~%016" PRIx64, hash);
}

int naos_lost_put(const char *root, int dir_fd, const char *name, const char *below_root, int fd, const char *shown,
		  struct naos_error *err)
{
	char base[256], numbered[256 + 16];
	struct stat ours, there;
	naos_autoclose int lost = -1;
	int rc = open_lost(root, &lost, err);
	if (rc != 0)
		return rc;
	if (fstat(fd, &ours) != 0 || fstatat(dir_fd, name, &there, AT_SYMLINK_NOFOLLOW) != 0 || ours.st_ino != there.st_ino ||
	    ours.st_dev != there.st_dev || !naos_sealed_is_unborn(fd))
		return naos_error_set(err, NAOS_E_CHANGED, "%s was changed meanwhile", shown);
	flatten(below_root, base, sizeof(base));
	(void)snprintf(numbered, sizeof(numbered), "%s", base);
	for (unsigned i = 1; (rc = renameat2(dir_fd, name, lost, numbered, RENAME_NOREPLACE)) != 0 && errno == EEXIST && i < MOST_ALIKE;
	     i++)
		(void)snprintf(numbered, sizeof(numbered), "%s%%%u", base, i);
	if (rc != 0 && errno == EINVAL) /* a file system without RENAME_NOREPLACE; the directory is ours alone */
		rc = faccessat(lost, numbered, F_OK, AT_SYMLINK_NOFOLLOW) != 0 ? renameat(dir_fd, name, lost, numbered) : -1;
	if (rc != 0)
		return naos_error_set_errno(err, errno, "cannot move %s into %s/" NAOS_LOST_DIRECTORY, shown, root);
	if (fsync(lost) != 0 || fsync(dir_fd) != 0)
		return naos_error_set_errno(err, errno, "cannot make the move of %s durable", shown);
	return 0;
}

/* Checks of a directory for sealed files: what its file system can do.  SPDX-License-Identifier: Apache-2.0 */
#include "doctor.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#include "base/io.h"
#include "base/progress.h"

#define XATTR_NAME "user.naos.key"
#define XATTR_BYTES 256
#define LOCK_BYTE ((off_t)1 << 62) /* where writers of sealed files hold their lock */

static const struct {
	unsigned long magic;
	const char *name;
} file_systems[] = {
	{ EXT4_SUPER_MAGIC, "ext4" }, { XFS_SUPER_MAGIC, "xfs" },   { BTRFS_SUPER_MAGIC, "btrfs" },	 { TMPFS_MAGIC, "tmpfs" },
	{ NFS_SUPER_MAGIC, "nfs" },   { 0x0bd00bd0, "lustre" },	    { 0x47504653, "gpfs" },		 { FUSE_SUPER_MAGIC, "fuse" },
	{ 0x19830326, "beegfs" },     { CEPH_SUPER_MAGIC, "ceph" }, { OVERLAYFS_SUPER_MAGIC, "overlay" }, { 0x2fc12fc1, "zfs" },
};

static const char *file_system_name(int fd)
{
	struct statfs status;
	if (fstatfs(fd, &status) != 0)
		return "unknown file system";
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(file_systems); i++)
		if ((unsigned long)status.f_type == file_systems[i].magic)
			return file_systems[i].name;
	return "other file system";
}

static void check_space(struct naos_examination *examination, int fd)
{
	static const char why[] = "sealing needs room for one more copy of a file, and a few per cent for its tags";
	struct statvfs status;
	char size[16];
	if (fstatvfs(fd, &status) != 0)
		return;
	uint64_t free_bytes = (uint64_t)status.f_bavail * status.f_frsize;
	bool full = free_bytes < 1 << 20 || (status.f_files > 0 && status.f_favail == 0);
	naos_finding_add(examination, full ? NAOS_FINDING_PROBLEM : NAOS_FINDING_OK, "space", why, full ? "free space or inodes" : NULL,
			 "%s: %s free on %s", examination->directory, naos_format_bytes(free_bytes, size), file_system_name(fd));
}

static void check_xattr(struct naos_examination *examination, int fd)
{
	static const char why[] = "backup and bulk tools find the wrapped key in the attribute " XATTR_NAME
				  "; Naos itself uses the file's header";
	char value[XATTR_BYTES] = { 0 };
	if (fsetxattr(fd, XATTR_NAME, value, sizeof(value), 0) == 0)
		naos_finding_add(examination, NAOS_FINDING_OK, "xattr", why, NULL, "user attributes can be written");
	else
		naos_finding_add(examination, NAOS_FINDING_WARNING, "xattr", why, "mount the file system with user attributes (user_xattr)",
				 "user attributes can't be written: %s", strerrordesc_np(errno));
}

static void check_locks(struct naos_examination *examination, int fd)
{
	static const char why[] = "several writers of one file exclude each other by locks; without them a file must have one writer only";
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCK_BYTE, .l_len = 1 };
	if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
		naos_finding_add(examination, NAOS_FINDING_OK, "locks", why, NULL, "byte-range locks work");
	else
		naos_finding_add(examination, NAOS_FINDING_PROBLEM, "locks", why,
				 "mount the file system with locks (Lustre: flock; NFS: without nolock)", "byte-range locks fail: %s",
				 strerrordesc_np(errno));
}

static void check_holes(struct naos_examination *examination, int fd)
{
	static const char why[] = "where blocks can't be given back, a hole made in a sealed file frees no space";
	if (ftruncate(fd, 16384) == 0 && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096) == 0)
		naos_finding_add(examination, NAOS_FINDING_OK, "holes", why, NULL, "blocks inside a file can be given back");
	else
		naos_finding_add(examination, NAOS_FINDING_WARNING, "holes", why, "use another file system for sparse files",
				 "blocks inside a file can't be given back: %s", strerrordesc_np(errno));
}

void naos_examine_directory(struct naos_examination *examination)
{
	naos_autofree char *path = NULL, *temporary = NULL;
	naos_autoclose int fd = -1;
	struct naos_error err = NAOS_ERROR_INIT;
	if (asprintf(&path, "%s/naos-doctor", examination->directory) < 0 ||
	    naos_io_temporary(AT_FDCWD, path, 0600, &fd, &temporary, &err) != 0) {
		naos_finding_add(examination, NAOS_FINDING_PROBLEM, "directory", "sealed files are written beside their final name, then renamed",
				 "name a directory that you may write to", "%s", err.message);
		return;
	}
	(void)unlink(temporary);
	check_space(examination, fd);
	check_xattr(examination, fd);
	check_locks(examination, fd);
	check_holes(examination, fd);
}

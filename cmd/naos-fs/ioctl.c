/* Attributes of files that chattr(1) and lsattr(1) know: they are those of the file below.  SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>

#include "content.h"

static int open_any(struct naos_fs *fs, const struct inode *inode)
{
	return inode_open(fs, inode, O_RDONLY | O_NONBLOCK | (inode->type == S_IFDIR ? O_DIRECTORY : 0));
}

void fs_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned command, void *argument, struct fuse_file_info *fi, unsigned flags,
	      const void *in, size_t in_bytes, size_t out_bytes)
{
	struct naos_fs *fs = fs_of(req);
	struct inode *inode = inode_of(fs, ino);
	union {
		unsigned flags;
		struct fsxattr attributes;
	} value = { .flags = 0 };
	bool writes = command == FS_IOC_SETFLAGS || command == FS_IOC_FSSETXATTR;
	size_t bytes = command == FS_IOC_GETFLAGS || command == FS_IOC_SETFLAGS ? sizeof(value.flags) : sizeof(value.attributes);
	if (command != FS_IOC_GETFLAGS && command != FS_IOC_SETFLAGS && command != FS_IOC_FSGETXATTR && command != FS_IOC_FSSETXATTR) {
		(void)fuse_reply_err(req, ENOTTY);
		return;
	}
	if ((flags & FUSE_IOCTL_COMPAT) || (writes && in_bytes < bytes) || (!writes && out_bytes < bytes)) {
		(void)fuse_reply_err(req, EINVAL);
		return;
	}
	if (writes) {
		memcpy(&value, in, bytes);
		if (inode->type == S_IFREG) /* an immutable file can't be sealed later */
			content_seal_now(fs, inode);
	}
	naos_autoclose int fd = inode->type == S_IFREG || inode->type == S_IFDIR ? open_any(fs, inode) : -1;
	if (fd < 0) {
		(void)fuse_reply_err(req, inode->type == S_IFREG || inode->type == S_IFDIR ? errno : ENOTTY);
	} else if (ioctl(fd, command, &value) != 0) {
		(void)fuse_reply_err(req, errno);
	} else {
		if (writes) /* the time of change is another now; the kernel doesn't see that by itself */
			(void)fuse_lowlevel_notify_inval_inode(fs->session, ino, -1, 0);
		(void)fuse_reply_ioctl(req, 0, &value, writes ? 0 : bytes);
	}
}

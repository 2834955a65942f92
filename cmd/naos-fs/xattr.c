/* Extended attributes and ACLs of all name spaces go to the file below; those of Naos are hidden.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/xattr.h>

#include "content.h"
#include "identity.h"
#include "transport.h"

#define OWN_ATTRIBUTES "user.naos." /* the wrapped key, and what administration notes with a file */
#define CAPABILITY "security.capability"

/* The file itself, by way of /proc/self/fd: an O_PATH descriptor can't be used for attributes. */
struct path {
	char text[40];
};

static struct path path_of(const struct inode *inode)
{
	struct path path;
	(void)snprintf(path.text, sizeof(path.text), "/proc/self/fd/%d", inode->fd);
	return path;
}

static bool is_own(const char *name)
{
	return strncmp(name, OWN_ATTRIBUTES, strlen(OWN_ATTRIBUTES)) == 0;
}

/* An ACL changes the mode; who is not in the file's group loses set-group-id by it, as by chmod. */
static void lose_group(fuse_req_t req, const struct inode *inode)
{
	struct stat status;
	if (fuse_req_ctx(req)->uid != 0 && fstatat(inode->fd, "", &status, AT_EMPTY_PATH) == 0 && (status.st_mode & S_ISGID) &&
	    !identity_in_group(req, status.st_gid))
		(void)chmod(path_of(inode).text, status.st_mode & 07777 & ~S_ISGID);
}

void fs_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t bytes, int flags)
{
	struct naos_fs *fs = fs_of(req);
	struct inode *inode = inode_of(fs, ino);
	int rc = is_own(name) ? EPERM : 0;
	if (rc == 0) {
		/* a later write, and sealing writes, would take capabilities away again */
		if (strcmp(name, CAPABILITY) == 0) {
			inode->no_capability = false;
			content_seal_now(fs, inode);
		}
		content_begin_status(inode); /* an ACL changes the mode */
		rc = setxattr(path_of(inode).text, name, value, bytes, flags) == 0 ? 0 : errno;
		if (rc == 0 && strcmp(name, "system.posix_acl_access") == 0)
			lose_group(req, inode);
		content_end_status(inode);
	}
	(void)fuse_reply_err(req, rc);
}

void fs_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct inode *inode = inode_of(fs_of(req), ino);
	content_begin_status(inode); /* the time of change is another afterwards */
	int rc = is_own(name) ? EPERM : removexattr(path_of(inode).text, name) == 0 ? 0 : errno;
	content_end_status(inode);
	(void)fuse_reply_err(req, rc);
}

/* Answers with a value of `bytes` in the buffer, or with its size if none was asked for. */
static void reply(fuse_req_t req, const uint8_t *value, ssize_t bytes, size_t room)
{
	if (bytes < 0)
		(void)fuse_reply_err(req, errno);
	else if (room == 0)
		(void)fuse_reply_xattr(req, (size_t)bytes);
	else if ((size_t)bytes > room)
		(void)fuse_reply_err(req, ERANGE);
	else
		(void)fuse_reply_buf(req, (const char *)value, (size_t)bytes);
}

void fs_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t room)
{
	struct inode *inode = inode_of(fs_of(req), ino);
	size_t space;
	uint8_t *buffer = transport_buffer(&space);
	/* the kernel asks for capabilities before the first write to each new file */
	if (is_own(name) || (inode->no_capability && strcmp(name, CAPABILITY) == 0)) {
		(void)fuse_reply_err(req, ENODATA);
		return;
	}
	reply(req, buffer, getxattr(path_of(inode).text, name, buffer, space), room);
}

void fs_listxattr(fuse_req_t req, fuse_ino_t ino, size_t room)
{
	struct inode *inode = inode_of(fs_of(req), ino);
	bool root = fuse_req_ctx(req)->uid == 0;
	size_t space;
	char *buffer = (char *)transport_buffer(&space);
	ssize_t bytes = listxattr(path_of(inode).text, buffer, space), kept = 0;
	for (ssize_t at = 0; at < bytes;) {
		size_t length = strlen(buffer + at) + 1;
		/* only root sees the names of trusted attributes */
		if (!is_own(buffer + at) && (root || strncmp(buffer + at, "trusted.", 8) != 0)) {
			memmove(buffer + kept, buffer + at, length);
			kept += (ssize_t)length;
		}
		at += (ssize_t)length;
	}
	reply(req, (const uint8_t *)buffer, bytes < 0 ? bytes : kept, room);
}

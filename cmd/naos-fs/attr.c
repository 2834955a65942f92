/* Names and attributes: lookup, stat, chmod, chown, times, truncate.  Only truncate needs the key of the file.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#include "content.h"
#include "entry.h"
#include "identity.h"
#include "transport.h"

void entry_fill(struct naos_fs *fs, struct inode *inode, const struct stat *status, struct fuse_entry_param *ret)
{
	*ret = (struct fuse_entry_param){
		.ino = inode->node,
		.generation = reopen_generation(&inode->handle),
		.attr = *status,
		.attr_timeout = fs->attr_timeout_s,
		.entry_timeout = fs->entry_timeout_s,
	};
}

void entry_reply(fuse_req_t req, struct inode *inode, const struct stat *status)
{
	struct naos_fs *fs = fs_of(req);
	struct fuse_entry_param entry;
	entry_fill(fs, inode, status, &entry);
	if (fuse_reply_entry(req, &entry) != 0)
		inode_put(fs, inode, 1);
}

void entry_reply_name(fuse_req_t req, struct inode *parent, const char *name)
{
	struct inode *inode;
	struct stat status;
	int rc = inode_lookup(fs_of(req), parent, name, &inode, &status);
	if (rc != 0)
		(void)fuse_reply_err(req, rc);
	else
		entry_reply(req, inode, &status);
}

/* "." and ".." are asked for only where the kernel has a file handle instead of a name: "." may be a node that it forgot. */
static int lookup_dots(struct naos_fs *fs, fuse_ino_t node, const char *name, struct inode **ret, struct stat *ret_status)
{
	struct inode *inode, *above;
	int rc = inode_find(fs, node, &inode);
	if (rc != 0)
		return rc;
	if (name[1] == '.' && inode != inode_of(fs, FUSE_ROOT_ID)) {
		rc = inode_lookup(fs, inode, "..", &above, ret_status);
		inode_put(fs, inode, 1);
		inode = above;
	} else {
		rc = inode_stat(fs, inode, ret_status);
		if (rc != 0)
			inode_put(fs, inode, 1);
	}
	if (rc == 0)
		*ret = inode;
	return rc;
}

void fs_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct naos_fs *fs = fs_of(req);
	struct inode *inode;
	struct stat status;
	bool dots = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
	int rc = dots ? lookup_dots(fs, parent, name, &inode, &status) : inode_lookup(fs, inode_of(fs, parent), name, &inode, &status);
	if (rc == 0) {
		entry_reply(req, inode, &status);
	} else if (rc == ENOENT && fs->entry_timeout_s > 0) {
		/* node 0: the kernel may remember that there is no such name */
		(void)fuse_reply_entry(req, &(struct fuse_entry_param){ .entry_timeout = fs->entry_timeout_s });
	} else {
		(void)fuse_reply_err(req, rc);
	}
}

void fs_forget(fuse_req_t req, fuse_ino_t ino, uint64_t lookups)
{
	struct naos_fs *fs = fs_of(req);
	inode_put(fs, inode_of(fs, ino), lookups);
	fuse_reply_none(req);
}

void fs_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	struct naos_fs *fs = fs_of(req);
	for (size_t i = 0; i < count; i++)
		inode_put(fs, inode_of(fs, forgets[i].ino), forgets[i].nlookup);
	fuse_reply_none(req);
}

static void reply_attributes(fuse_req_t req, struct inode *inode)
{
	struct stat status;
	int rc = inode_stat(fs_of(req), inode, &status);
	if (rc != 0)
		(void)fuse_reply_err(req, rc);
	else
		(void)fuse_reply_attr(req, &status, fs_of(req)->attr_timeout_s);
}

void fs_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	reply_attributes(req, inode_of(fs_of(req), ino));
}

/* --- changes ------------------------------------------------------------------------------------------------------------ */

int attr_kill_privileges(fuse_req_t req, struct inode *inode)
{
	struct naos_fs *fs = fs_of(req);
	struct stat status;
	if (fstatat(inode->fd, "", &status, AT_EMPTY_PATH) != 0)
		return errno;
	mode_t mode = status.st_mode & 07777, drop = S_ISUID;
	if ((mode & S_ISGID) && ((mode & S_IXGRP) || (fuse_req_ctx(req)->uid != 0 && !identity_in_group(req, status.st_gid))))
		drop |= S_ISGID; /* as setattr_should_drop_sgid() of the kernel */
	struct inode_path path = inode_path(inode);
	if ((mode & drop) == 0)
		return 0;
	if (fchmodat(fs->proc_fd, path.text, mode & ~drop, 0) != 0)
		return errno;
	(void)fuse_lowlevel_notify_inval_inode(fs->session, inode->node, -1, 0); /* the kernel does not know which of them */
	return 0;
}

static int truncate_to(struct naos_fs *fs, struct inode *inode, uint64_t size, struct naos_error *err)
{
	struct content *content;
	if (inode_is_fixed(inode))
		return naos_error_set_errno(err, EPERM, "the file is immutable");
	int rc = content_open(fs, inode, true, &content, err);
	if (rc != 0)
		return rc;
	content_begin_change(content);
	rc = content_truncate(content, size, err);
	content_end_change(fs, content);
	content_close(fs, content);
	return rc;
}

static int set_mode(struct naos_fs *fs, const struct inode *inode, mode_t mode)
{
	struct inode_path path = inode_path(inode);
	if (inode->type == S_IFLNK)
		return EOPNOTSUPP;
	return fchmodat(fs->proc_fd, path.text, mode & 07777, 0) == 0 ? 0 : errno;
}

static int set_owner(struct inode *inode, const struct stat *attr, int to_set)
{
	uid_t user = to_set & FUSE_SET_ATTR_UID ? attr->st_uid : (uid_t)-1;
	gid_t group = to_set & FUSE_SET_ATTR_GID ? attr->st_gid : (gid_t)-1;
	return fchownat(inode->fd, "", user, group, AT_EMPTY_PATH) == 0 ? 0 : errno;
}

static int set_times(struct inode *inode, const struct stat *attr, int to_set)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = UTIME_OMIT } };
	if (to_set & FUSE_SET_ATTR_ATIME_NOW)
		times[0].tv_nsec = UTIME_NOW;
	else if (to_set & FUSE_SET_ATTR_ATIME)
		times[0] = attr->st_atim;
	if (to_set & FUSE_SET_ATTR_MTIME_NOW)
		times[1].tv_nsec = UTIME_NOW;
	else if (to_set & FUSE_SET_ATTR_MTIME)
		times[1] = attr->st_mtim;
	return utimensat(inode->fd, "", times, AT_EMPTY_PATH) == 0 ? 0 : errno;
}

#define TIMES (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME_NOW)

void fs_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi)
{
	struct naos_fs *fs = fs_of(req);
	struct inode *inode = inode_of(fs, ino);
	struct naos_error err = NAOS_ERROR_INIT;
	int rc = 0;
	bool size_or_times = (to_set & (FUSE_SET_ATTR_SIZE | TIMES)) != 0; /* neither these nor others: chown(-1, -1) */
	if ((to_set & (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) || !size_or_times) {
		content_begin_status(inode);
		rc = to_set & FUSE_SET_ATTR_MODE ? set_mode(fs, inode, attr->st_mode) : 0;
		if (rc == 0 && ((to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) || !(to_set & FUSE_SET_ATTR_MODE)))
			rc = set_owner(inode, attr, to_set);
		content_end_status(inode);
	}
	if (rc == 0 && (to_set & FUSE_SET_ATTR_SIZE)) {
		if (truncate_to(fs, inode, (uint64_t)attr->st_size, &err) != 0)
			return fs_reply_error(req, &err);
		if (transport_kills_privileges())
			rc = attr_kill_privileges(req, inode);
	}
	if (rc == 0 && (to_set & TIMES)) {
		content_begin_status(inode);
		/* what is gathered is older than the times that are set now */
		bool settled = content_settle(fs, inode, &err) == 0;
		if (settled)
			rc = set_times(inode, attr, to_set);
		content_end_status(inode);
		if (!settled)
			return fs_reply_error(req, &err);
	}
	if (rc != 0)
		(void)fuse_reply_err(req, rc);
	else
		reply_attributes(req, inode);
}

void fs_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char target[PATH_MAX + 1];
	ssize_t bytes = readlinkat(inode_of(fs_of(req), ino)->fd, "", target, sizeof(target) - 1);
	if (bytes < 0) {
		(void)fuse_reply_err(req, errno);
		return;
	}
	target[bytes] = 0;
	(void)fuse_reply_readlink(req, target);
}

void fs_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs status;
	if (fstatvfs(fs_of(req)->root_dir_fd, &status) != 0)
		(void)fuse_reply_err(req, errno);
	else
		(void)fuse_reply_statfs(req, &status);
}

/* Names: mkdir, mknod, symlink, link, unlink, rename.  None needs a key, but for making a regular file.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "content.h"
#include "create.h"
#include "entry.h"
#include "identity.h"

void fs_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct inode *directory = inode_of(fs_of(req), parent);
	int rc = inode_name_hidden(fs_of(req), directory, name) ? EPERM : 0;
	if (rc == 0) {
		naos_autoidentity identity = identity_enter(req, fs_of(req)->shared);
		rc = mkdirat(directory->fd, name, mode) == 0 ? 0 : errno;
	}
	if (rc != 0)
		(void)fuse_reply_err(req, rc);
	else
		entry_reply_name(req, directory, name);
}

void fs_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t device)
{
	struct naos_fs *fs = fs_of(req);
	struct inode *directory = inode_of(fs, parent);
	struct naos_error err = NAOS_ERROR_INIT;
	int rc = inode_name_hidden(fs, directory, name) ? EPERM : 0;
	if (rc == 0 && S_ISREG(mode)) {
		struct creation creation;
		if (create_file(req, directory, name, mode, O_EXCL, &creation, &err) != 0)
			return fs_reply_error(req, &err);
		content_close(fs, creation.content);
		return entry_reply(req, creation.inode, &creation.status);
	}
	if (rc == 0) {
		naos_autoidentity identity = identity_enter(req, fs->shared);
		rc = mknodat(directory->fd, name, mode, device) == 0 ? 0 : errno;
	}
	if (rc != 0)
		(void)fuse_reply_err(req, rc);
	else
		entry_reply_name(req, directory, name);
}

void fs_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct inode *directory = inode_of(fs_of(req), parent);
	int rc = inode_name_hidden(fs_of(req), directory, name) ? EPERM : 0;
	if (rc == 0) {
		naos_autoidentity identity = identity_enter(req, fs_of(req)->shared);
		rc = symlinkat(target, directory->fd, name) == 0 ? 0 : errno;
	}
	if (rc != 0)
		(void)fuse_reply_err(req, rc);
	else
		entry_reply_name(req, directory, name);
}

void fs_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	struct naos_fs *fs = fs_of(req);
	struct inode *inode = inode_of(fs, ino), *directory = inode_of(fs, parent);
	struct inode_path path = inode_path(inode);
	int rc = inode_name_hidden(fs, directory, name) ? EPERM : 0;
	if (rc == 0) {
		naos_autoidentity identity = identity_enter(req, fs->shared);
		rc = linkat(fs->proc_fd, path.text, directory->fd, name, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
	}
	if (rc != 0) {
		(void)fuse_reply_err(req, rc);
		return;
	}
	inode->unlinked = false; /* a nameless file got a name */
	entry_reply_name(req, directory, name);
}

/* What a name stood for, to be told that it may have lost its last name; NULL if it is nothing the kernel knows. */
static struct inode *victim_of(struct naos_fs *fs, struct inode *directory, const char *name)
{
	struct inode *inode;
	struct stat status;
	return inode_lookup(fs, directory, name, &inode, &status) == 0 ? inode : NULL;
}

static void bury(struct naos_fs *fs, struct inode *victim, bool removed)
{
	if (!victim)
		return;
	if (removed && victim->type == S_IFREG)
		content_drop_unlinked(fs, victim);
	inode_put(fs, victim, 1);
}

static void remove_name(fuse_req_t req, fuse_ino_t parent, const char *name, int flags)
{
	struct naos_fs *fs = fs_of(req);
	struct inode *directory = inode_of(fs, parent);
	if (inode_name_hidden(fs, directory, name)) {
		(void)fuse_reply_err(req, ENOENT);
		return;
	}
	struct inode *victim = flags ? NULL : victim_of(fs, directory, name);
	int rc;
	{
		naos_autoidentity identity = identity_enter(req, fs->shared);
		rc = unlinkat(directory->fd, name, flags) == 0 ? 0 : errno;
	}
	bury(fs, victim, rc == 0);
	(void)fuse_reply_err(req, rc);
}

void fs_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	remove_name(req, parent, name, 0);
}

void fs_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	remove_name(req, parent, name, AT_REMOVEDIR);
}

void fs_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent, const char *new_name, unsigned flags)
{
	struct naos_fs *fs = fs_of(req);
	struct inode *from = inode_of(fs, parent), *to = inode_of(fs, new_parent);
	if (inode_name_hidden(fs, from, name) || inode_name_hidden(fs, to, new_name)) {
		(void)fuse_reply_err(req, EPERM);
		return;
	}
	struct inode *victim = flags ? NULL : victim_of(fs, to, new_name);
	int rc;
	{
		naos_autoidentity identity = identity_enter(req, fs->shared);
		rc = renameat2(from->fd, name, to->fd, new_name, flags) == 0 ? 0 : errno;
	}
	bury(fs, victim, rc == 0);
	(void)fuse_reply_err(req, rc);
}

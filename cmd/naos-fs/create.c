/* SPDX-License-Identifier: Apache-2.0 */
#include "create.h"

#include <errno.h>
#include <fcntl.h>

#include "base/io.h"
#include "identity.h"

static int fail(struct naos_error *err, const char *name)
{
	return naos_error_set_errno(err, errno, "cannot make '%s'", name ? name : "a nameless file");
}

/* An empty file below.  mode = local: under its name at once, for nobody else looks there.  mode = shared: without a name, or
 * under a temporary one where the file system can't do that; *ret_temporary is set then. */
static int make_below(fuse_req_t req, struct inode *directory, const char *name, mode_t mode, int *ret_fd, char **ret_temporary,
		      struct naos_error *err)
{
	struct naos_fs *fs = fs_of(req);
	naos_autoidentity identity = identity_enter(req, fs->shared);
	int fd = -1;
	if (name && !fs->shared) {
		fd = openat(directory->fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	} else {
		fd = openat(directory->fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
		if (fd < 0 && name && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL))
			return naos_io_temporary(directory->fd, name, mode, ret_fd, ret_temporary, err);
	}
	if (fd < 0)
		return fail(err, name);
	*ret_fd = fd;
	return 0;
}

/* Writes the sealed file of size 0.  fd belongs to *ret afterwards; it is closed on failure. */
static int make_sealed(struct naos_fs *fs, int fd, struct naos_new_key *key, struct naos_sealed_file **ret, struct naos_error *err)
{
	struct naos_store *store;
	struct stat status;
	char name[48];
	(void)snprintf(name, sizeof(name), "file %llu", fstat(fd, &status) == 0 ? (unsigned long long)status.st_ino : 0ULL);
	int rc = naos_store_posix(fd, name, &store, err);
	if (rc != 0) {
		(void)close(fd);
		return rc;
	}
	const struct naos_sealed_new what = {
		.mode = fs->shared ? NAOS_SEALED_SHARED : NAOS_SEALED_LOCAL,
		.algorithm = fs->set->algorithm,
		.file_id = key->file_id,
		.fileset_id = fs->set->id,
		.fek = key->fek,
		.blob = &key->blob,
	};
	return naos_sealed_file_create(store, &what, ret, err);
}

/* Gives a finished nameless or temporary file its name. */
static int publish(fuse_req_t req, struct inode *directory, int fd, const char *temporary, const char *name, struct naos_error *err)
{
	struct naos_fs *fs = fs_of(req);
	naos_autoidentity identity = identity_enter(req, true);
	if (temporary)
		return naos_io_rename(directory->fd, temporary, name, false, err);
	char path[16];
	(void)snprintf(path, sizeof(path), "%d", fd);
	return linkat(fs->proc_fd, path, directory->fd, name, AT_SYMLINK_FOLLOW) == 0 ? 0 : fail(err, name);
}

static int adopt(struct naos_fs *fs, struct naos_sealed_file *file, int fd, struct creation *ret, struct naos_error *err)
{
	char path[16];
	(void)snprintf(path, sizeof(path), "%d", fd);
	int path_fd = openat(fs->proc_fd, path, O_PATH | O_CLOEXEC);
	int rc = path_fd >= 0 && fstat(path_fd, &ret->status) == 0 ? 0 : fail(err, NULL);
	if (rc != 0 && path_fd >= 0)
		(void)close(path_fd);
	if (rc == 0 && (rc = inode_get(fs, path_fd, &ret->status, &ret->inode)) != 0)
		rc = naos_error_set_errno(err, rc, "no memory for a file");
	if (rc != 0) {
		(void)!naos_sealed_file_close(file, false, NULL);
		return rc;
	}
	rc = content_adopt(fs, ret->inode, file, fd, &ret->content, err);
	if (rc != 0)
		inode_put(fs, ret->inode, 1);
	else
		ret->inode->no_capability = !fs->shared;
	ret->status.st_size = 0;
	return rc;
}

static int create_new(fuse_req_t req, struct inode *directory, const char *name, mode_t mode, struct creation *ret,
		      struct naos_error *err)
{
	struct naos_fs *fs = fs_of(req);
	naos_autofree char *temporary = NULL;
	naos_autosecret struct naos_secret *fek = NULL;
	struct naos_new_key key;
	struct naos_sealed_file *file;
	int fd, rc = make_below(req, directory, name, mode, &fd, &temporary, err);
	if (rc != 0)
		return rc;
	rc = naos_filesets_new_key(fs->sets, fs->set, &key, err);
	if (rc == 0) {
		fek = key.fek;
		rc = make_sealed(fs, fd, &key, &file, err);
		if (rc == 0 && name && fs->shared && (rc = publish(req, directory, fd, temporary, name, err)) != 0)
			(void)!naos_sealed_file_close(file, false, NULL);
	} else {
		(void)close(fd);
	}
	if (rc == 0)
		return adopt(fs, file, fd, ret, err);
	/* the name is that of the file made above, which nobody but this call knows as a file yet */
	if (temporary)
		(void)unlinkat(directory->fd, temporary, 0);
	else if (name && !fs->shared)
		(void)unlinkat(directory->fd, name, 0);
	return rc;
}

/* The kernel asked for a new file and has not checked the rights to this one, which somebody made in the meantime.  Its owner and
 * root are told from the mode; anybody else's open begins anew (ESTALE), with the checks of the kernel. */
static bool may_open(fuse_req_t req, const struct stat *status, int flags)
{
	uid_t user = fuse_req_ctx(req)->uid;
	mode_t needed = (flags & O_ACCMODE) == O_RDONLY ? S_IRUSR : (flags & O_ACCMODE) == O_WRONLY ? S_IWUSR : S_IRUSR | S_IWUSR;
	if (flags & O_TRUNC)
		needed |= S_IWUSR;
	return user == 0 || (user == status->st_uid && (status->st_mode & needed) == needed);
}

/* Opens what somebody made in the meantime.  The inode in *ret belongs to the caller. */
static int open_existing(fuse_req_t req, const char *name, int flags, struct creation *ret, struct naos_error *err)
{
	struct naos_fs *fs = fs_of(req);
	bool write = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC);
	if (!S_ISREG(ret->status.st_mode) || !may_open(req, &ret->status, flags))
		return naos_error_set_errno(err, ESTALE, "'%s' was made in the meantime", name);
	if (write && inode_is_fixed(ret->inode))
		return naos_error_set_errno(err, EPERM, "the file is immutable");
	int rc = content_open(fs, ret->inode, write, &ret->content, err);
	if (rc != 0 || !(flags & O_TRUNC))
		return rc;
	content_begin_change(ret->content);
	rc = content_truncate(ret->content, 0, err);
	content_end_change(fs, ret->content);
	ret->status.st_size = 0;
	if (rc != 0)
		content_close(fs, ret->content);
	return rc;
}

int create_file(fuse_req_t req, struct inode *directory, const char *name, mode_t mode, int flags, struct creation *ret,
		struct naos_error *err)
{
	struct naos_fs *fs = fs_of(req);
	mode = (mode & 07777) | S_IFREG;
	for (unsigned attempt = 0; attempt < 8; attempt++) {
		int rc = create_new(req, directory, name, mode, ret, err);
		if (rc != NAOS_E_EXISTS || (flags & O_EXCL) || !name)
			return rc;
		/* somebody else made it in the meantime */
		rc = inode_lookup(fs, directory, name, &ret->inode, &ret->status);
		if (rc == ENOENT)
			continue;
		if (rc != 0)
			return naos_error_set_errno(err, rc, "cannot open '%s'", name);
		rc = open_existing(req, name, flags, ret, err);
		if (rc == 0)
			return 0;
		inode_put(fs, ret->inode, 1);
		if (rc != NAOS_E_CHANGED)
			return rc;
	}
	return naos_error_set(err, NAOS_E_BUSY, "'%s' appears and vanishes all the time", name);
}

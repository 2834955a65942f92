/* Contents: create, open, read, write, flush, allocate, seek, copy.  SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <fcntl.h>
#include <linux/falloc.h>

#include "create.h"
#include "entry.h"
#include "identity.h"
#include "locks.h"
#include "pages.h"
#include "times.h"
#include "transport.h"

/* An open file of a user; its address is the handle that the kernel keeps. */
struct handle {
	struct content *content;
	bool append;
};

static struct handle *handle_of(const struct fuse_file_info *fi)
{
	return (struct handle *)fi->fh;
}

/* --- open and close ------------------------------------------------------------------------------------------------------ */

static void fill_open(struct naos_fs *fs, struct fuse_file_info *fi, struct handle *handle)
{
	fi->fh = (uint64_t)(uintptr_t)handle;
	fi->keep_cache = !fs->shared; /* mode = local: nobody else changes it */
	fi->direct_io = fs->shared;   /* mode = shared: a reader sees what other nodes wrote */
	fi->noflush = !fs->shared;    /* no lock of ours hangs on a close */
}

void fs_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	struct naos_fs *fs = fs_of(req);
	struct inode *directory = inode_of(fs, parent);
	struct naos_error err = NAOS_ERROR_INIT;
	struct creation creation;
	struct fuse_entry_param entry;
	bool nameless = transport_is_tmpfile();
	struct handle *handle = malloc(sizeof(*handle));
	int rc = handle ? 0 : naos_error_set(&err, NAOS_E_NOMEM, "no memory to open a file");
	if (rc == 0 && !nameless && inode_name_hidden(fs, directory, name))
		rc = naos_error_set_errno(&err, EPERM, "'%s' is a name that Naos keeps for itself", name);
	if (rc == 0)
		rc = create_file(req, directory, nameless ? NULL : name, mode, fi->flags, &creation, &err);
	if (rc != 0) {
		free(handle);
		return fs_reply_error(req, &err);
	}
	if (nameless)
		creation.inode->unlinked = true;
	*handle = (struct handle){ .content = creation.content, .append = (fi->flags & O_APPEND) != 0 };
	fill_open(fs, fi, handle);
	entry_fill(fs, creation.inode, &creation.status, &entry);
	if (fuse_reply_create(req, &entry, fi) != 0) { /* the caller was interrupted */
		content_close(fs, handle->content);
		inode_put(fs, creation.inode, 1);
		free(handle);
	}
}

void fs_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct naos_fs *fs = fs_of(req);
	struct inode *inode = inode_of(fs, ino);
	struct naos_error err = NAOS_ERROR_INIT;
	bool write = (fi->flags & O_ACCMODE) != O_RDONLY, cut = (fi->flags & O_TRUNC) != 0;
	struct handle *handle = malloc(sizeof(*handle));
	int rc = handle ? 0 : naos_error_set(&err, NAOS_E_NOMEM, "no memory to open a file");
	if (rc == 0 && (write || cut) && inode_is_fixed(inode))
		rc = naos_error_set_errno(&err, EPERM, "the file is immutable");
	if (rc == 0)
		rc = content_open(fs, inode, write || cut, &handle->content, &err);
	if (rc == 0 && cut) {
		content_begin_change(handle->content);
		rc = content_truncate(handle->content, 0, &err);
		if (rc == 0 && transport_kills_privileges() && attr_kill_privileges(req, inode) != 0)
			rc = naos_error_set_errno(&err, EPERM, "cannot take set-user-id away");
		content_end_change(fs, handle->content);
		if (rc != 0)
			content_close(fs, handle->content);
	}
	if (rc != 0) {
		free(handle);
		return fs_reply_error(req, &err);
	}
	handle->append = (fi->flags & O_APPEND) != 0;
	fill_open(fs, fi, handle);
	if (fuse_reply_open(req, fi) != 0) {
		content_close(fs, handle->content);
		free(handle);
	}
}

void fs_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct naos_fs *fs = fs_of(req);
	struct handle *handle = handle_of(fi);
	if (fs->shared)
		locks_drop_handle(fs, inode_of(fs, ino), fi->fh);
	content_close(fs, handle->content);
	free(handle);
	(void)fuse_reply_err(req, 0);
}

void fs_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct naos_fs *fs = fs_of(req);
	if (fs->shared)
		locks_drop_owner(fs, inode_of(fs, ino), fi->lock_owner);
	(void)fuse_reply_err(req, 0);
}

void fs_fsync(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
	struct naos_error err = NAOS_ERROR_INIT;
	struct content *content = handle_of(fi)->content;
	int rc = content_flush(fs_of(req), content, &err);
	if (rc != 0)
		fs_reply_error(req, &err);
	else
		(void)fuse_reply_err(req, 0);
}

/* --- read and write ------------------------------------------------------------------------------------------------------- */

void fs_read(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset, struct fuse_file_info *fi)
{
	struct naos_error err = NAOS_ERROR_INIT;
	size_t room, got;
	uint8_t *buffer = transport_buffer(&room);
	bytes = bytes < room ? bytes : room;
	struct content *content = handle_of(fi)->content;
	if (!(fi->flags & O_DIRECT) && !content->paged)
		content->paged = true;
	if (!content->writable && fs_of(req)->shared && naos_sealed_file_refresh(content->file, &err) != 0)
		return fs_reply_error(req, &err);
	if (fs_of(req)->shared && !fs_of(req)->no_access_times)
		times_note_access(content);
	if (naos_sealed_file_read(content->file, buffer, bytes, (uint64_t)offset, &got, &err) != 0)
		fs_reply_error(req, &err);
	else
		(void)fuse_reply_buf(req, (const char *)buffer, got);
}

void fs_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t bytes, off_t offset, struct fuse_file_info *fi)
{
	struct naos_fs *fs = fs_of(req);
	struct naos_error err = NAOS_ERROR_INIT;
	struct handle *handle = handle_of(fi);
	uint64_t at = (uint64_t)offset;
	int rc;
	content_begin_change(handle->content);
	if (transport_kills_privileges() && attr_kill_privileges(req, inode_of(fs, ino)) != 0)
		rc = naos_error_set_errno(&err, EPERM, "cannot take set-user-id away");
	else if (handle->append && fs->shared && !fi->writepage) /* the kernel's idea of the end may be old */
		rc = naos_sealed_file_append(handle->content->file, data, bytes, &at, &err);
	else
		rc = naos_sealed_file_write(handle->content->file, data, bytes, at, &err);
	content_end_change(fs, handle->content);
	if (rc == 0 && (fi->flags & O_DIRECT) && !fi->writepage && !fs->shared && handle->content->paged)
		pages_drop(fs, ino, at, bytes);
	if (rc != 0)
		fs_reply_error(req, &err);
	else
		(void)fuse_reply_write(req, bytes);
}

/* --- allocate, seek, copy -------------------------------------------------------------------------------------------------- */

void fs_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t bytes, struct fuse_file_info *fi)
{
	struct naos_fs *fs = fs_of(req);
	struct naos_error err = NAOS_ERROR_INIT;
	struct content *content = handle_of(fi)->content;
	bool keep_size = (mode & FALLOC_FL_KEEP_SIZE) != 0;
	int rc;
	if (inode_is_fixed(inode_of(fs, ino))) {
		(void)fuse_reply_err(req, EPERM);
		return;
	}
	content_begin_change(content);
	switch (mode & ~FALLOC_FL_KEEP_SIZE) {
	case 0:
		rc = naos_sealed_file_allocate(content->file, (uint64_t)offset, (uint64_t)bytes, keep_size, &err);
		break;
	case FALLOC_FL_PUNCH_HOLE:
		rc = naos_sealed_file_punch(content->file, (uint64_t)offset, (uint64_t)bytes, &err);
		break;
	case FALLOC_FL_ZERO_RANGE:
		rc = naos_sealed_file_zero(content->file, (uint64_t)offset, (uint64_t)bytes, keep_size, &err);
		break;
	default:
		rc = naos_error_set_errno(&err, EOPNOTSUPP, "this kind of fallocate is not supported");
	}
	int killed = rc == 0 && fuse_req_ctx(req)->uid != 0 ? attr_kill_privileges(req, inode_of(fs, ino)) : 0;
	content_end_change(fs, content);
	if (rc != 0)
		return fs_reply_error(req, &err);
	(void)fuse_reply_err(req, killed);
}

/* The first hole at or behind offset; the end of the file is one. */
static int next_hole(struct naos_sealed_file *file, uint64_t offset, uint64_t size, uint64_t *ret, struct naos_error *err)
{
	uint64_t at = offset;
	while (at < size) {
		uint64_t start, end;
		int rc = naos_sealed_file_next_data(file, at, &start, &end, err);
		if (rc != 0)
			return rc;
		if (start > at)
			break;
		at = end;
	}
	*ret = at < size ? at : size;
	return 0;
}

void fs_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence, struct fuse_file_info *fi)
{
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_sealed_file *file = handle_of(fi)->content->file;
	int rc = naos_sealed_file_refresh(file, &err);
	uint64_t size = naos_sealed_file_size(file), at = 0, end;
	if (rc != 0)
		return fs_reply_error(req, &err);
	if (offset < 0 || (uint64_t)offset >= size) {
		(void)fuse_reply_err(req, ENXIO);
		return;
	}
	if (whence == SEEK_DATA)
		rc = naos_sealed_file_next_data(file, (uint64_t)offset, &at, &end, &err);
	else
		rc = next_hole(file, (uint64_t)offset, size, &at, &err);
	if (rc != 0)
		fs_reply_error(req, &err);
	else if (whence == SEEK_DATA && at >= size)
		(void)fuse_reply_err(req, ENXIO);
	else
		(void)fuse_reply_lseek(req, (off_t)at);
}

void fs_copy_file_range(fuse_req_t req, fuse_ino_t in, off_t in_offset, struct fuse_file_info *in_fi, fuse_ino_t out, off_t out_offset,
			struct fuse_file_info *out_fi, size_t bytes, int flags)
{
	struct naos_error err = NAOS_ERROR_INIT;
	struct content *from = handle_of(in_fi)->content, *to = handle_of(out_fi)->content;
	size_t room, done = 0;
	uint8_t *buffer = transport_buffer(&room);
	int rc = 0;
	if (inode_is_fixed(inode_of(fs_of(req), out))) { /* some file systems write to what was open before */
		(void)fuse_reply_err(req, EPERM);
		return;
	}
	content_begin_change(to);
	if (fuse_req_ctx(req)->uid != 0 && attr_kill_privileges(req, inode_of(fs_of(req), out)) != 0)
		rc = naos_error_set_errno(&err, EPERM, "cannot take set-user-id away");
	content_end_change(fs_of(req), to);
	if (rc == 0)
		rc = naos_sealed_file_refresh(from->file, &err);
	while (rc == 0 && done < bytes) {
		size_t want = bytes - done < room ? bytes - done : room, got;
		rc = naos_sealed_file_read(from->file, buffer, want, (uint64_t)in_offset + done, &got, &err);
		if (rc != 0 || got == 0)
			break;
		content_begin_change(to);
		rc = naos_sealed_file_write(to->file, buffer, got, (uint64_t)out_offset + done, &err);
		content_end_change(fs_of(req), to);
		if (rc == 0)
			done += got;
	}
	if (rc != 0 && done == 0)
		fs_reply_error(req, &err);
	else
		(void)fuse_reply_write(req, done);
}

/* A sealed file as a regular file: pread, pwrite, fdatasync, OFD locks, one extended attribute.
 * SPDX-License-Identifier: Apache-2.0 */
#include "seal/store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/io.h"

#define ATTRIBUTE "user.naos.key"

struct posix_store {
	struct naos_store store;
	int fd;
	char *name;
	struct timespec changed; /* noted; tv_nsec UTIME_OMIT: unknown */
};

static int fd_of(struct naos_store *store)
{
	return ((struct posix_store *)store)->fd;
}

static int posix_read(struct naos_store *store, void *buffer, size_t bytes, uint64_t offset, size_t *ret_bytes, struct naos_error *err)
{
	return naos_io_pread(fd_of(store), buffer, bytes, offset, ret_bytes, store->name, err);
}

static int posix_write(struct naos_store *store, const void *buffer, size_t bytes, uint64_t offset, struct naos_error *err)
{
	return naos_io_pwrite(fd_of(store), buffer, bytes, offset, store->name, err);
}

static int posix_flush(struct naos_store *store, struct naos_error *err)
{
	/* fsync, not fdatasync: the attribute with the wrapped key must be durable too */
	return fsync(fd_of(store)) == 0 ? 0 : naos_error_set_errno(err, errno, "cannot make %s durable", store->name);
}

static int posix_resize(struct naos_store *store, uint64_t bytes, struct naos_error *err)
{
	int rc;
	do
		rc = ftruncate(fd_of(store), (off_t)bytes);
	while (rc != 0 && errno == EINTR);
	return rc == 0 ? 0 : naos_error_set_errno(err, errno, "cannot set the size of %s to %llu", store->name, (unsigned long long)bytes);
}

static int posix_size(struct naos_store *store, uint64_t *ret_bytes, struct naos_error *err)
{
	struct stat status;
	if (fstat(fd_of(store), &status) != 0)
		return naos_error_set_errno(err, errno, "cannot read the size of %s", store->name);
	*ret_bytes = (uint64_t)status.st_size;
	return 0;
}

static int posix_deallocate(struct naos_store *store, uint64_t offset, uint64_t bytes, struct naos_error *err)
{
	static const uint8_t zeros[4096];
	if (fallocate(fd_of(store), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes) == 0)
		return 0;
	if (errno != EOPNOTSUPP && errno != ENOSYS)
		return naos_error_set_errno(err, errno, "cannot give back blocks of %s", store->name);
	for (uint64_t done = 0; done < bytes; done += sizeof(zeros)) {
		uint64_t left = bytes - done, step = left < sizeof(zeros) ? left : sizeof(zeros);
		int rc = posix_write(store, zeros, (size_t)step, offset + done, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int posix_reserve(struct naos_store *store, uint64_t offset, uint64_t bytes, struct naos_error *err)
{
	int rc;
	do
		rc = fallocate(fd_of(store), FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes);
	while (rc != 0 && errno == EINTR);
	if (rc == 0)
		return 0;
	if (errno == EOPNOTSUPP || errno == ENOSYS)
		return naos_error_set(err, NAOS_E_UNSUPPORTED, "%s: its file system can't reserve blocks", store->name);
	return naos_error_set_errno(err, errno, "cannot reserve blocks of %s", store->name);
}

static int posix_next_data(struct naos_store *store, uint64_t offset, uint64_t *ret_offset, struct naos_error *err)
{
	off_t at = lseek(fd_of(store), (off_t)offset, SEEK_DATA);
	if (at < 0 && errno == ENXIO)
		*ret_offset = UINT64_MAX;
	else
		*ret_offset = at < 0 ? offset : (uint64_t)at; /* no SEEK_DATA here: everything may be data */
	return 0;
}

static int posix_lock(struct naos_store *store, uint64_t offset, uint64_t bytes, enum naos_lock lock, bool wait, struct naos_error *err)
{
	struct flock range = {
		.l_type = lock == NAOS_UNLOCK ? F_UNLCK : lock == NAOS_LOCK_SHARED ? F_RDLCK : F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = (off_t)offset,
		.l_len = (off_t)bytes,
	};
	int rc;
	do
		rc = fcntl(fd_of(store), wait ? F_OFD_SETLKW : F_OFD_SETLK, &range);
	while (rc != 0 && errno == EINTR);
	if (rc == 0)
		return 0;
	if (errno == EAGAIN || errno == EACCES)
		return naos_error_set(err, NAOS_E_BUSY, "%s is being written by another process", store->name);
	return naos_error_set_errno(err, errno, "cannot lock %s", store->name);
}

static int posix_get_attribute(struct naos_store *store, void *value, size_t room, size_t *ret_bytes, struct naos_error *err)
{
	ssize_t bytes = fgetxattr(fd_of(store), ATTRIBUTE, value, room);
	if (bytes < 0 && errno == ERANGE)
		return naos_error_set(err, NAOS_E_INTEGRITY, "the extended attribute " ATTRIBUTE " of %s is too long", store->name);
	if (bytes < 0 && errno != ENODATA && errno != EOPNOTSUPP && errno != EPERM && errno != EACCES)
		return naos_error_set_errno(err, errno, "cannot read the extended attribute " ATTRIBUTE " of %s", store->name);
	*ret_bytes = bytes < 0 ? 0 : (size_t)bytes;
	return 0;
}

/* Attributes need the right to write by the mode, not by the descriptor: the owner of a file that is read-only takes it for a moment. */
static int set_as_owner(int fd, const void *value, size_t bytes)
{
	struct stat status;
	if (fstat(fd, &status) != 0 || fchmod(fd, (status.st_mode & 07777) | S_IWUSR) != 0) {
		errno = EACCES;
		return -1;
	}
	int rc = fsetxattr(fd, ATTRIBUTE, value, bytes, 0), saved = errno;
	(void)fchmod(fd, status.st_mode & 07777);
	errno = saved;
	return rc;
}

static int posix_set_attribute(struct naos_store *store, const void *value, size_t bytes, struct naos_error *err)
{
	int rc = fsetxattr(fd_of(store), ATTRIBUTE, value, bytes, 0);
	if (rc != 0 && errno == EACCES)
		rc = set_as_owner(fd_of(store), value, bytes);
	if (rc == 0 || errno == EOPNOTSUPP || errno == EPERM)
		return 0; /* a copy for tools: its absence is allowed */
	if (errno == ENOSPC || errno == EDQUOT || errno == E2BIG || errno == ERANGE) {
		/* no room beside the user's own attributes: no copy, but never a stale one */
		if (fremovexattr(fd_of(store), ATTRIBUTE) == 0 || errno == ENODATA)
			return 0;
	}
	return naos_error_set_errno(err, errno, "cannot write the extended attribute " ATTRIBUTE " of %s", store->name);
}

static int posix_write_out(struct naos_store *store, struct naos_error *err)
{
	/* file systems with a journal commit the attribute, which is set next, behind a flush of their device: data that it has by then is
	 * durable first.  fsync has nothing left to write. */
	if (sync_file_range(fd_of(store), 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) == 0 ||
	    errno == ENOSYS || errno == EINVAL)
		return 0;
	return naos_error_set_errno(err, errno, "cannot write %s", store->name);
}

static void posix_note_time(struct naos_store *store)
{
	struct stat status;
	bool known = fstat(fd_of(store), &status) == 0;
	((struct posix_store *)store)->changed = known ? status.st_mtim : (struct timespec){ .tv_nsec = UTIME_OMIT };
}

static void posix_restore_time(struct naos_store *store)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, ((struct posix_store *)store)->changed };
	struct stat status;
	if (fstat(fd_of(store), &status) == 0 &&
	    (status.st_mtim.tv_sec != times[1].tv_sec || status.st_mtim.tv_nsec != times[1].tv_nsec))
		(void)futimens(fd_of(store), times); /* refused to who is not the owner */
}

static void posix_close(struct naos_store *store)
{
	struct posix_store *self = (struct posix_store *)store;
	naos_close_descriptor(&self->fd);
	free(self->name);
	free(self);
}

static const struct naos_store_ops posix_ops = {
	.read = posix_read,
	.write = posix_write,
	.flush = posix_flush,
	.resize = posix_resize,
	.size = posix_size,
	.deallocate = posix_deallocate,
	.reserve = posix_reserve,
	.next_data = posix_next_data,
	.lock = posix_lock,
	.get_attribute = posix_get_attribute,
	.set_attribute = posix_set_attribute,
	.write_out = posix_write_out,
	.note_time = posix_note_time,
	.restore_time = posix_restore_time,
	.close = posix_close,
};

int naos_store_posix(int fd, const char *name, struct naos_store **ret, struct naos_error *err)
{
	struct posix_store *self = calloc(1, sizeof(*self));
	char *copy = strdup(name);
	if (!self || !copy) {
		free(self);
		free(copy);
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to open %s", name);
	}
	*self = (struct posix_store){ .store = { .ops = &posix_ops, .name = copy }, .fd = fd, .name = copy };
	*ret = &self->store;
	return 0;
}

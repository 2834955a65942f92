/* From one FEK to another, file by file.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/rekey.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "base/cursor.h"
#include "seal/draft.h"
#include "seal/metadata.h"

#define REKEYED_ATTRIBUTE "user.naos.rekeyed"
#define TIME_BYTES 8

/* --- times in attributes ------------------------------------------------------------------------------------------------ */

uint64_t naos_rekey_now(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool read_time(int fd, const char *attribute, uint64_t *ret)
{
	uint8_t value[TIME_BYTES];
	if (fgetxattr(fd, attribute, value, sizeof(value)) != (ssize_t)sizeof(value))
		return false;
	struct naos_cursor r = naos_cursor_reader(value, sizeof(value));
	*ret = naos_cursor_get_u64(&r);
	return true;
}

static int write_time(int fd, const char *attribute, uint64_t unix_ns)
{
	uint8_t value[TIME_BYTES];
	struct naos_cursor w = naos_cursor_writer(value, sizeof(value));
	naos_cursor_put_u64(&w, unix_ns);
	return fsetxattr(fd, attribute, value, sizeof(value), 0);
}

static void note_name(unsigned shard_index, unsigned shard_count, char *name, size_t bytes)
{
	if (shard_count == 1)
		(void)snprintf(name, bytes, "user.naos.rekey");
	else
		(void)snprintf(name, bytes, "user.naos.rekey.%u-%u", shard_index, shard_count);
}

int naos_rekey_noted(const char *root, unsigned shard_index, unsigned shard_count, uint64_t *ret_unix_ns, bool *ret_known,
		     struct naos_error *err)
{
	char name[64];
	naos_autoclose int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot open the directory %s", root);
	note_name(shard_index, shard_count, name, sizeof(name));
	*ret_known = read_time(fd, name, ret_unix_ns);
	return 0;
}

int naos_rekey_note(const char *root, unsigned shard_index, unsigned shard_count, uint64_t unix_ns, bool *ret_kept, struct naos_error *err)
{
	char name[64];
	naos_autoclose int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot open the directory %s", root);
	note_name(shard_index, shard_count, name, sizeof(name));
	int rc = unix_ns ? write_time(fd, name, unix_ns) : fremovexattr(fd, name);
	if (rc != 0 && errno != EOPNOTSUPP && errno != ENODATA && errno != EPERM && errno != ENOSPC && errno != ENOSYS)
		return naos_error_set_errno(err, errno, "cannot note at %s that it is being rekeyed", root);
	*ret_kept = rc == 0;
	return 0;
}

/* --- one file ----------------------------------------------------------------------------------------------------------- */

static int lock_out(int fd, uint64_t offset, const char *whom, const char *shown, struct naos_error *err)
{
	struct flock range = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)offset, .l_len = 1 };
	if (fcntl(fd, F_OFD_SETLK, &range) == 0)
		return 0;
	return errno == EAGAIN || errno == EACCES ? naos_error_set(err, NAOS_E_BUSY, "%s is open for %s", shown, whom) :
						    naos_error_set_errno(err, errno, "cannot lock %s", shown);
}

static int lock_writers_out(int fd, const char *shown, struct naos_error *err)
{
	return lock_out(fd, NAOS_WRITER_LOCK_OFFSET, "writing", shown, err);
}

int naos_rekey_look(void *context, struct naos_replace_file *file, bool *ret_current, struct naos_error *err)
{
	const struct naos_rekey *rekey = context;
	uint64_t rekeyed;
	*ret_current = read_time(file->fd, REKEYED_ATTRIBUTE, &rekeyed) && rekeyed >= rekey->since_unix_ns;
	if (*ret_current)
		return 0;
	int rc = lock_writers_out(file->fd, file->shown, err);
	/* who reads it through a mount of mode = shared would go on reading the old file, whatever is written to the new one */
	return rc ? rc : lock_out(file->fd, NAOS_READER_LOCK_OFFSET, "reading", file->shown, err);
}

/* The old file with its key.  Its lock is this process's already: by another descriptor of the same open file. */
static int open_old(const struct naos_rekey *rekey, const struct naos_replace_file *file, struct naos_sealed_file **ret,
		    struct naos_error *err)
{
	naos_autoclose int own = fcntl(file->fd, F_DUPFD_CLOEXEC, 3);
	struct naos_sealed_info info;
	struct naos_store *store;
	if (own < 0)
		return naos_error_set_errno(err, errno, "cannot open %s twice", file->shown);
	int rc = naos_store_posix(own, file->shown, &store, err);
	if (rc != 0)
		return rc;
	(void)naos_fd_steal(&own);
	rc = naos_sealed_probe(store, &info, err);
	if (rc != 0) {
		store->ops->close(store);
		return rc;
	}
	const struct naos_fek_source source = naos_filesets_source(rekey->sets, rekey->set, &info);
	rc = naos_sealed_file_open(store, NAOS_SEALED_LOCAL, &source, ret, err);
	if (rc == 0 && naos_sealed_file_recovered(*ret)) {
		const struct timespec times[2] = { file->old.status.st_atim, file->old.status.st_mtim };
		(void)!futimens(file->fd, times);
		naos_tally_notice(rekey->tally, file->path, NAOS_NOTICE_RECOVERED);
	}
	return rc;
}

static int copy_over(const struct naos_rekey *rekey, const struct naos_replace_file *file, struct naos_copy_buffer *buffer,
		     struct naos_sealed_file *old, int draft_fd, uint64_t *ret_bytes, struct naos_error *err)
{
	struct naos_sealed_file *fresh;
	int rc = naos_sealed_draft(rekey->sets, rekey->set, draft_fd, file->shown, &fresh, err);
	if (rc != 0)
		return rc;
	/* who opens the new file waits until its name is durable */
	rc = lock_writers_out(draft_fd, file->shown, err);
	if (rc == 0)
		rc = naos_copy_sealed(buffer, old, fresh, rekey->tally, err);
	*ret_bytes = naos_sealed_file_size(fresh);
	int closed = naos_sealed_file_close(fresh, rc == 0, rc == 0 ? err : NULL);
	return rc ? rc : closed;
}

int naos_rekey_fill(void *context, struct naos_replace_file *file, struct naos_copy_buffer *buffer, int draft_fd, uint64_t *ret_bytes,
		    struct naos_error *err)
{
	const struct naos_rekey *rekey = context;
	uint64_t now = naos_rekey_now();
	struct naos_sealed_file *old;
	struct naos_metadata_loss loss;
	int rc = open_old(rekey, file, &old, err);
	if (rc != 0)
		return rc;
	rc = copy_over(rekey, file, buffer, old, draft_fd, ret_bytes, err);
	int closed = naos_sealed_file_close(old, true, rc == 0 ? err : NULL);
	rc = rc ? rc : closed;
	if (rc == 0)
		rc = naos_metadata_copy(file->fd, &file->old.status, 0, draft_fd, file->shown, &loss, err);
	if (rc != 0)
		return rc;
	/* where there are no attributes the next run rekeys it once more */
	(void)!write_time(draft_fd, REKEYED_ATTRIBUTE, now > rekey->since_unix_ns ? now : rekey->since_unix_ns);
	if (loss.attributes)
		naos_tally_notice(rekey->tally, file->path, NAOS_NOTICE_ATTRIBUTES);
	if (loss.setid)
		naos_tally_notice(rekey->tally, file->path, NAOS_NOTICE_SETID);
	return 0;
}

/* A disk that remembers every write and flush: a file system with one file, `disk`, for the loop driver.  What happens to it is done to
 * IMAGE and appended to LOG, before it is answered; so the length of LOG is a moment of the disk's life, and what was answered at that
 * moment lies before it.  The loop driver turns a flush of its queue, and the flush that follows a forced write, into an fsync.
 *
 *	disk_recorder IMAGE LOG MOUNTPOINT      (until it is unmounted)
 *
 * A record: kind u32 (1 write, 2 flush, 3 zeros), bytes u32, offset u64, then the bytes of a write.  tests/system/disk_replay.py reads it.
 * SPDX-License-Identifier: Apache-2.0 */
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define DISK_INO 2
#define DISK_NAME "disk"
#define MOST_BYTES ((size_t)1 << 20) /* of one read or write */

enum kind { RECORD_WRITE = 1, RECORD_FLUSH, RECORD_ZEROS };

struct record {
	uint32_t kind, bytes;
	uint64_t offset;
};

static int image_fd, log_fd;

/* Appends; a log with a gap would make everything after it wrong. */
static void put_record(enum kind kind, uint64_t offset, uint32_t bytes, const char *data)
{
	struct record record = { kind, bytes, offset };
	struct iovec parts[] = { { &record, sizeof(record) }, { (char *)(uintptr_t)data, data ? bytes : 0 } };
	size_t whole = parts[0].iov_len + parts[1].iov_len;
	if (writev(log_fd, parts, 2) == (ssize_t)whole)
		return;
	perror("disk_recorder: cannot write the log");
	_exit(1);
}

static void fill_status(fuse_ino_t ino, struct stat *ret)
{
	*ret = (struct stat){ .st_ino = ino, .st_mode = S_IFDIR | 0700, .st_nlink = 1 };
	if (ino == DISK_INO && fstat(image_fd, ret) == 0) {
		ret->st_ino = ino;
		ret->st_mode = S_IFREG | 0600;
	}
}

static void disk_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param entry = { .ino = DISK_INO };
	if (parent != FUSE_ROOT_ID || strcmp(name, DISK_NAME) != 0) {
		(void)fuse_reply_err(req, ENOENT);
		return;
	}
	fill_status(DISK_INO, &entry.attr);
	(void)fuse_reply_entry(req, &entry);
}

static void disk_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat status;
	(void)fi;
	fill_status(ino, &status);
	(void)fuse_reply_attr(req, &status, 0);
}

static void disk_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	fi->direct_io = 1; /* nothing is kept back in the kernel's cache */
	(void)fuse_reply_open(req, fi);
}

static void disk_read(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset, struct fuse_file_info *fi)
{
	static char buffer[MOST_BYTES];
	(void)ino;
	(void)fi;
	ssize_t got = pread(image_fd, buffer, bytes < sizeof(buffer) ? bytes : sizeof(buffer), offset);
	if (got < 0)
		(void)fuse_reply_err(req, errno);
	else
		(void)fuse_reply_buf(req, buffer, (size_t)got);
}

static void disk_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t bytes, off_t offset, struct fuse_file_info *fi)
{
	(void)ino;
	(void)fi;
	if (pwrite(image_fd, data, bytes, offset) != (ssize_t)bytes) {
		(void)fuse_reply_err(req, EIO);
		return;
	}
	put_record(RECORD_WRITE, (uint64_t)offset, (uint32_t)bytes, data);
	(void)fuse_reply_write(req, bytes);
}

static void disk_fsync(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
	(void)ino;
	(void)data_only;
	(void)fi;
	put_record(RECORD_FLUSH, 0, 0, NULL);
	(void)fuse_reply_err(req, 0);
}

/* Discarded blocks and written zeros both read as zeros. */
static void disk_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t bytes, struct fuse_file_info *fi)
{
	(void)ino;
	(void)fi;
	if (fallocate(image_fd, mode, offset, bytes) != 0) {
		(void)fuse_reply_err(req, errno);
		return;
	}
	for (off_t done = 0, step; done < bytes; done += step) {
		step = bytes - done < (off_t)UINT32_MAX / 2 ? bytes - done : (off_t)UINT32_MAX / 2;
		put_record(RECORD_ZEROS, (uint64_t)(offset + done), (uint32_t)step, NULL);
	}
	(void)fuse_reply_err(req, 0);
}

static const struct fuse_lowlevel_ops operations = {
	.lookup = disk_lookup, .getattr = disk_getattr, .open = disk_open, .read = disk_read,
	.write = disk_write, .fsync = disk_fsync, .fallocate = disk_fallocate,
};

int main(int argc, char **argv)
{
	char name[] = "disk_recorder", *words[] = { name, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(1, words);
	if (argc != 4) {
		(void)fprintf(stderr, "usage: disk_recorder IMAGE LOG MOUNTPOINT\n");
		return 2;
	}
	image_fd = open(argv[1], O_RDWR | O_CLOEXEC);
	log_fd = open(argv[2], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	struct fuse_session *session = image_fd >= 0 && log_fd >= 0 ? fuse_session_new(&args, &operations, sizeof(operations), NULL) : NULL;
	if (!session || fuse_session_mount(session, argv[3]) != 0) {
		perror("disk_recorder: cannot start");
		return 1;
	}
	int rc = fuse_session_loop(session); /* one thread: the log has the order in which things were done */
	fuse_session_unmount(session);
	fuse_session_destroy(session);
	return rc == 0 ? 0 : 1;
}

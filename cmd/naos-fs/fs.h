/* One mounted file set: what every part of naos-fs shares.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FS_FS_H
#define NAOS_FS_FS_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>
#include <stdatomic.h>

#include "seal/fileset.h"

struct inode_table;
struct lock_table;
struct content_table;
struct pages;
struct reopen;
struct transport;

enum fs_transport {
	FS_TRANSPORT_AUTO, /* io_uring if the kernel offers it and mode = local, else /dev/fuse */
	FS_TRANSPORT_DEV,
	FS_TRANSPORT_URING,
};

struct naos_fs {
	struct naos_filesets *sets;
	const char *key_uri;     /* of the key manager; its certificates are looked at once a day */
	const struct naos_fileset *set;
	bool shared;             /* mode = shared: other nodes change the files too */
	bool read_only;
	bool no_access_times;    /* noatime: what users read is not dated below either */
	enum fs_transport wanted_transport;
	bool privileged;         /* may act as any user */
	double entry_timeout_s;  /* how long the kernel may keep names and attributes */
	double attr_timeout_s;
	unsigned seal_delay_s;
	struct timespec started; /* of the clock of inodes: no file that is older is being made by this mount */
	unsigned threads;        /* readers of requests that wait at most; 0: two per CPU */
	int root_fd;             /* the directory of sealed files, O_PATH */
	int root_dir_fd;         /* the same, open: for syncfs and the lock of mode = local */
	int proc_fd;             /* /proc/self/fd */
	int ended_fd;            /* eventfd: the file system was unmounted */
	struct inode_table *inodes;
	struct reopen *reopen;
	struct content_table *contents;
	struct lock_table *locks; /* mode = shared */
	struct pages *pages;
	struct transport *transport;
	struct fuse_session *session;
};

static inline struct naos_fs *fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* Operations, by the file that has them. */
void fs_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_forget(fuse_req_t req, fuse_ino_t ino, uint64_t lookups);
void fs_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void fs_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi);
void fs_readlink(fuse_req_t req, fuse_ino_t ino);
void fs_statfs(fuse_req_t req, fuse_ino_t ino);

void fs_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t device);
void fs_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void fs_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void fs_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name);
void fs_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent, const char *new_name, unsigned flags);

void fs_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_readdir(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset, struct fuse_file_info *fi);
void fs_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset, struct fuse_file_info *fi);
void fs_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_fsyncdir(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi);

void fs_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t bytes, int flags);
void fs_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t room);
void fs_listxattr(fuse_req_t req, fuse_ino_t ino, size_t room);
void fs_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

void fs_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi);
void fs_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_read(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset, struct fuse_file_info *fi);
void fs_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t bytes, off_t offset, struct fuse_file_info *fi);
void fs_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_fsync(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi);
void fs_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t bytes, struct fuse_file_info *fi);
void fs_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence, struct fuse_file_info *fi);
void fs_copy_file_range(fuse_req_t req, fuse_ino_t in, off_t in_offset, struct fuse_file_info *in_fi, fuse_ino_t out, off_t out_offset,
			struct fuse_file_info *out_fi, size_t bytes, int flags);

/* mode = shared only; else the kernel keeps locks itself */
void fs_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock);
void fs_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock, int sleep);
void fs_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int operation);

void fs_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned command, void *argument, struct fuse_file_info *fi, unsigned flags,
	      const void *in, size_t in_bytes, size_t out_bytes);

/* Answers an error of the library: the errno that belongs to its code.  What a user can't see coming (damage, a key that is
 * not to be had) gets one line in the log. */
int fs_errno(const struct naos_error *err);
void fs_reply_error(fuse_req_t req, const struct naos_error *err);

#endif

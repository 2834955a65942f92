/* Files that the kernel knows, by node number (the inode number of the file below): each holds the file below by an O_PATH
 * descriptor, so that no operation walks a path.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FS_INODE_H
#define NAOS_FS_INODE_H

#include <pthread.h>
#include <sys/stat.h>

#include "reopen.h"

struct content;
struct lock_owner;

struct inode {
	struct inode *next; /* in its chain of the table */
	uint64_t lookups;   /* references of the kernel and of ours; guarded by the chain */
	dev_t device;
	ino_t number;
	mode_t type;        /* S_IFMT bits */
	int fd;             /* O_PATH */
	fuse_ino_t node;
	struct file_handle_kept handle;
	struct inode *_Atomic parent; /* where it was first looked up; held; NULL for the root */
	pthread_mutex_t lock;         /* guards what follows */
	struct {                      /* of a directory: keys of its files that were unwrapped ahead */
		long position;
		unsigned batch;
		atomic_uint hits;
	} ahead;
	atomic_bool no_capability; /* made here, and nobody gave it capabilities since: mode = local */
	atomic_bool unlinked;      /* its last name was removed here */
	struct {                   /* the change time that sealing left below, and what users are shown for it */
		struct timespec below, shown;
	} quiet;
	struct content *content;   /* the sealed file open for writing, NULL if there is none */
	struct content *reader;    /* the same for reading only: mode = shared, or what can't be written */
	struct lock_owner *lock_owners; /* forwarded locks of mode = shared; guarded by the table of locks */
};

int inode_table_create(struct naos_fs *fs, struct naos_error *err) naos_must_check;
void inode_table_free(struct naos_fs *fs);

/* The inode of a node that the kernel knows; it lives as long as the kernel does not forget it. */
struct inode *inode_of(struct naos_fs *fs, fuse_ino_t ino);
/* The same with one more reference, also of a node that the kernel forgot.  A positive errno on failure. */
int inode_find(struct naos_fs *fs, fuse_ino_t ino, struct inode **ret) naos_must_check;

/* Finds or makes the inode of an O_PATH descriptor, which is taken (also on failure), and adds one reference.  A positive errno
 * on failure. */
int inode_get(struct naos_fs *fs, int path_fd, const struct stat *status, struct inode **ret) naos_must_check;
void inode_hold(struct naos_fs *fs, struct inode *inode);
void inode_put(struct naos_fs *fs, struct inode *inode, uint64_t references);

/* Opens the file itself (flags as open(2)); -1 and errno on failure. */
int inode_open(struct naos_fs *fs, const struct inode *inode, int flags);
/* openat, so that reading is no access, where this user may do that. */
int inode_open_unseen(int directory, const char *name, int flags);
/* True if nothing of the file can be written, whatever its mode is (chattr +i); what may only be appended to (+a) can't be sealed, so that
 * it can't be written either.  A file that was opened before can be written still, but the size of the file below can't be set. */
bool inode_is_fixed(const struct inode *inode);
/* "N" of /proc/self/fd/N: a path relative to fs->proc_fd that leads to the file itself. */
struct inode_path {
	char text[16];
};
struct inode_path inode_path(const struct inode *inode);

/* A name in a directory: an inode with one more reference, and its attributes as users see them.  A positive errno on failure. */
int inode_lookup(struct naos_fs *fs, struct inode *parent, const char *name, struct inode **ret, struct stat *ret_status) naos_must_check;
/* Attributes as users see them: the size is that of the plaintext. */
int inode_stat(struct naos_fs *fs, struct inode *inode, struct stat *ret) naos_must_check;
/* Size of the plaintext of a file that is not open, from its physical size. */
uint64_t inode_plain_size(uint64_t physical);

/* Names that this file system keeps for itself. */
bool inode_name_hidden(struct naos_fs *fs, const struct inode *parent, const char *name);

#endif

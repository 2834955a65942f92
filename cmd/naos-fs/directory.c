/* Listing of directories: what lies below, without names that Naos keeps for itself; sizes are those of the plaintext.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

#include "content.h"
#include "entry.h"
#include "transport.h"

#define LIST_BYTES 32768

struct listing {
	int fd;
	off_t position;  /* cookie of the next entry in buffer, or where to read on */
	size_t used, at; /* bytes in buffer, and of them consumed */
	pthread_mutex_t lock;
	uint8_t buffer[LIST_BYTES];
};

/* As getdents64(2) writes it. */
struct entry {
	uint64_t number;
	int64_t next;
	uint16_t bytes;
	uint8_t type;
	char name[];
};

static struct listing *listing_of(const struct fuse_file_info *fi)
{
	return (struct listing *)fi->fh;
}

static void listing_free(struct listing *listing)
{
	(void)close(listing->fd);
	(void)pthread_mutex_destroy(&listing->lock);
	free(listing);
}

void fs_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct naos_fs *fs = fs_of(req);
	struct listing *listing = malloc(sizeof(*listing));
	struct inode_path path = inode_path(inode_of(fs, ino));
	const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
	int fd = !listing ? -1 : fs->no_access_times ? inode_open_unseen(fs->proc_fd, path.text, flags) : openat(fs->proc_fd, path.text, flags);
	if (fd < 0) {
		int saved = listing ? errno : ENOMEM;
		free(listing);
		(void)fuse_reply_err(req, saved);
		return;
	}
	listing->fd = fd;
	listing->position = 0;
	listing->used = listing->at = 0;
	(void)pthread_mutex_init(&listing->lock, NULL);
	fi->fh = (uint64_t)(uintptr_t)listing;
	fi->cache_readdir = fi->keep_cache = !fs->shared;
	if (fuse_reply_open(req, fi) != 0)
		listing_free(listing);
}

void fs_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	listing_free(listing_of(fi));
	(void)fuse_reply_err(req, 0);
}

void fs_fsyncdir(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
	struct naos_error err = NAOS_ERROR_INIT;
	int fd = listing_of(fi)->fd;
	/* of the root: what sync(2) and syncfs(2) would ask, of which the kernel tells no file system of this kind */
	if (ino == FUSE_ROOT_ID && content_sync_all(fs_of(req), &err) != 0)
		return fs_reply_error(req, &err);
	(void)fuse_reply_err(req, (data_only ? fdatasync(fd) : fsync(fd)) == 0 ? 0 : errno);
}

/* The entry at listing->position; NULL at the end (*ret_error 0) or on failure. */
static const struct entry *peek(struct listing *listing, int *ret_error)
{
	*ret_error = 0;
	if (listing->at == listing->used) {
		long got = syscall(SYS_getdents64, listing->fd, listing->buffer, sizeof(listing->buffer));
		if (got <= 0) {
			*ret_error = got < 0 ? errno : 0;
			return NULL;
		}
		listing->at = 0;
		listing->used = (size_t)got;
	}
	return (const struct entry *)(const void *)(listing->buffer + listing->at);
}

static void consume(struct listing *listing, const struct entry *entry)
{
	listing->position = entry->next;
	listing->at += entry->bytes;
}

static int move_to(struct listing *listing, off_t position)
{
	if (position == listing->position)
		return 0;
	listing->used = listing->at = 0;
	listing->position = position;
	return lseek(listing->fd, position, SEEK_SET) < 0 ? errno : 0;
}

static bool is_dot(const char *name)
{
	return name[0] == '.' && (name[1] == 0 || (name[1] == '.' && name[2] == 0));
}

/* Adds one entry to the answer; the bytes it needs, more than `room` if it does not fit (then nothing was added). */
static size_t add(fuse_req_t req, struct inode *directory, const struct entry *entry, bool plus, char *at, size_t room)
{
	struct naos_fs *fs = fs_of(req);
	struct fuse_entry_param full = { .attr = { .st_ino = entry->number, .st_mode = DTTOIF(entry->type) } };
	if (!plus)
		return fuse_add_direntry(req, at, room, entry->name, &full.attr, entry->next);
	if (fuse_add_direntry_plus(req, NULL, 0, entry->name, NULL, 0) > room)
		return room + 1;
	struct inode *inode = NULL;
	struct stat status;
	if (!is_dot(entry->name) && inode_lookup(fs, directory, entry->name, &inode, &status) == 0)
		entry_fill(fs, inode, &status, &full);
	size_t needs = fuse_add_direntry_plus(req, at, room, entry->name, &full, entry->next);
	if (needs > room && inode)
		inode_put(fs, inode, 1);
	return needs;
}

static void list(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset, struct fuse_file_info *fi, bool plus)
{
	struct naos_fs *fs = fs_of(req);
	struct inode *directory = inode_of(fs, ino);
	struct listing *listing = listing_of(fi);
	size_t room, used = 0;
	char *answer = (char *)transport_buffer(&room);
	room = bytes < room ? bytes : room;
	(void)pthread_mutex_lock(&listing->lock);
	int rc = move_to(listing, offset);
	while (rc == 0) {
		const struct entry *entry = peek(listing, &rc);
		if (!entry)
			break;
		if (!inode_name_hidden(fs, directory, entry->name)) {
			size_t needs = add(req, directory, entry, plus, answer + used, room - used);
			if (needs > room - used)
				break;
			used += needs;
		}
		consume(listing, entry);
	}
	(void)pthread_mutex_unlock(&listing->lock);
	if (rc != 0 && used == 0)
		(void)fuse_reply_err(req, rc);
	else
		(void)fuse_reply_buf(req, answer, used);
}

void fs_readdir(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset, struct fuse_file_info *fi)
{
	list(req, ino, bytes, offset, fi, false);
}

void fs_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset, struct fuse_file_info *fi)
{
	list(req, ino, bytes, offset, fi, true);
}

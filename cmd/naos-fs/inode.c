/* SPDX-License-Identifier: Apache-2.0 */
#include "inode.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/io.h"
#include "base/log.h"
#include "content.h"
#include "times.h"
#include "locks.h"

#define CHAINS 65536u /* a power of two */
#define CHAIN_LOCKS 64u
#define FOREIGN ((fuse_ino_t)1 << 63)

struct inode_table {
	pthread_mutex_t locks[CHAIN_LOCKS];
	struct inode *chains[CHAINS];
	struct inode root;
};

int inode_table_create(struct naos_fs *fs, struct naos_error *err)
{
	struct stat status;
	struct inode_table *table = calloc(1, sizeof(*table));
	if (!table)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the table of files");
	for (unsigned i = 0; i < CHAIN_LOCKS; i++)
		(void)pthread_mutex_init(&table->locks[i], NULL);
	(void)pthread_mutex_init(&table->root.lock, NULL);
	fs->inodes = table;
	if (fstat(fs->root_fd, &status) != 0)
		return naos_error_set_errno(err, errno, "cannot read the directory of file set '%s'", fs->set->name);
	table->root.fd = fs->root_fd;
	table->root.device = status.st_dev;
	table->root.number = status.st_ino;
	table->root.node = FUSE_ROOT_ID;
	table->root.type = S_IFDIR;
	table->root.lookups = 1;
	return 0;
}

static void inode_free(struct inode *inode)
{
	locks_free(inode);
	(void)close(inode->fd);
	(void)pthread_mutex_destroy(&inode->lock);
	free(inode);
}

void inode_table_free(struct naos_fs *fs)
{
	if (!fs->inodes)
		return;
	for (unsigned i = 0; i < CHAINS; i++)
		for (struct inode *inode = fs->inodes->chains[i], *next; inode; inode = next) {
			next = inode->next;
			inode_free(inode);
		}
	for (unsigned i = 0; i < CHAIN_LOCKS; i++)
		(void)pthread_mutex_destroy(&fs->inodes->locks[i]);
	(void)pthread_mutex_destroy(&fs->inodes->root.lock);
	free(fs->inodes);
	fs->inodes = NULL;
}

static unsigned chain_of(dev_t device, ino_t number)
{
	return (unsigned)(((uint64_t)number * 0x9e3779b97f4a7c15u ^ (uint64_t)device * 0xc2b2ae3d27d4eb4fu) >> 40) & (CHAINS - 1);
}

static struct inode *find_in_chain(struct inode_table *table, unsigned chain, dev_t device, ino_t number)
{
	struct inode *inode = table->chains[chain];
	while (inode && (inode->number != number || inode->device != device))
		inode = inode->next;
	return inode;
}

/* Numbers are unique on one device only: what is mounted inside the directory gets its address, marked, which no file has. */
static fuse_ino_t node_of(const struct inode_table *table, const struct inode *inode)
{
	bool plain = inode->device == table->root.device && inode->number > FUSE_ROOT_ID && inode->number < FOREIGN;
	return plain ? inode->number : FOREIGN | (fuse_ino_t)(uintptr_t)inode;
}

struct inode *inode_of(struct naos_fs *fs, fuse_ino_t ino)
{
	struct inode_table *table = fs->inodes;
	if (ino == FUSE_ROOT_ID)
		return &table->root;
	if (ino & FOREIGN)
		return (struct inode *)(uintptr_t)(ino & ~FOREIGN);
	unsigned chain = chain_of(table->root.device, ino);
	pthread_mutex_t *lock = &table->locks[chain % CHAIN_LOCKS];
	(void)pthread_mutex_lock(lock);
	struct inode *inode = find_in_chain(table, chain, table->root.device, ino);
	(void)pthread_mutex_unlock(lock);
	return inode;
}

int inode_find(struct naos_fs *fs, fuse_ino_t ino, struct inode **ret)
{
	struct inode_table *table = fs->inodes;
	struct stat status;
	if (ino == FUSE_ROOT_ID) {
		*ret = &table->root;
		return 0;
	}
	if (ino & FOREIGN)
		return ESTALE;
	unsigned chain = chain_of(table->root.device, ino);
	pthread_mutex_t *lock = &table->locks[chain % CHAIN_LOCKS];
	(void)pthread_mutex_lock(lock);
	struct inode *inode = find_in_chain(table, chain, table->root.device, ino);
	if (inode)
		inode->lookups++;
	(void)pthread_mutex_unlock(lock);
	if (inode) {
		*ret = inode;
		return 0;
	}
	int fd = reopen_node(fs, ino);
	if (fd < 0)
		return errno;
	if (fstatat(fd, "", &status, AT_EMPTY_PATH) != 0 || status.st_ino != ino || status.st_nlink == 0) {
		(void)close(fd);
		return ESTALE;
	}
	return inode_get(fs, fd, &status, ret);
}

int inode_get(struct naos_fs *fs, int path_fd, const struct stat *status, struct inode **ret)
{
	struct inode_table *table = fs->inodes;
	if (status->st_ino == table->root.number && status->st_dev == table->root.device) {
		(void)close(path_fd);
		*ret = &table->root;
		return 0;
	}
	unsigned chain = chain_of(status->st_dev, status->st_ino);
	pthread_mutex_t *lock = &table->locks[chain % CHAIN_LOCKS];
	(void)pthread_mutex_lock(lock);
	struct inode *inode = find_in_chain(table, chain, status->st_dev, status->st_ino);
	if (inode) {
		inode->lookups++;
		(void)pthread_mutex_unlock(lock);
		(void)close(path_fd);
		*ret = inode;
		return 0;
	}
	inode = calloc(1, sizeof(*inode));
	if (!inode) {
		(void)pthread_mutex_unlock(lock);
		(void)close(path_fd);
		return ENOMEM;
	}
	(void)pthread_mutex_init(&inode->lock, NULL);
	inode->fd = path_fd;
	inode->device = status->st_dev;
	inode->number = status->st_ino;
	inode->type = status->st_mode & S_IFMT;
	inode->node = node_of(table, inode);
	inode->handle = reopen_handle(path_fd);
	inode->lookups = 1;
	inode->next = table->chains[chain];
	table->chains[chain] = inode;
	(void)pthread_mutex_unlock(lock);
	*ret = inode;
	return 0;
}

void inode_hold(struct naos_fs *fs, struct inode *inode)
{
	if (inode == &fs->inodes->root)
		return;
	pthread_mutex_t *lock = &fs->inodes->locks[chain_of(inode->device, inode->number) % CHAIN_LOCKS];
	(void)pthread_mutex_lock(lock);
	inode->lookups++;
	(void)pthread_mutex_unlock(lock);
}

void inode_put(struct naos_fs *fs, struct inode *inode, uint64_t references)
{
	if (inode == &fs->inodes->root)
		return;
	unsigned chain = chain_of(inode->device, inode->number);
	pthread_mutex_t *lock = &fs->inodes->locks[chain % CHAIN_LOCKS];
	(void)pthread_mutex_lock(lock);
	inode->lookups -= references;
	if (inode->lookups > 0) {
		(void)pthread_mutex_unlock(lock);
		return;
	}
	struct inode **at = &fs->inodes->chains[chain];
	while (*at != inode)
		at = &(*at)->next;
	*at = inode->next;
	(void)pthread_mutex_unlock(lock);
	struct inode *parent = inode->parent;
	if (!inode->unlinked)
		reopen_remember(fs, inode->node, &inode->handle);
	inode_free(inode);
	if (parent)
		inode_put(fs, parent, 1);
}

struct inode_path inode_path(const struct inode *inode)
{
	struct inode_path path;
	(void)snprintf(path.text, sizeof(path.text), "%d", inode->fd);
	return path;
}

int inode_open(struct naos_fs *fs, const struct inode *inode, int flags)
{
	struct inode_path path = inode_path(inode);
	return openat(fs->proc_fd, path.text, (flags & ~(O_CREAT | O_EXCL | O_NOFOLLOW)) | O_CLOEXEC);
}

int inode_open_unseen(int directory, const char *name, int flags)
{
	int fd = openat(directory, name, flags | O_NOATIME);
	return fd < 0 && errno == EPERM ? openat(directory, name, flags) : fd;
}

bool inode_is_fixed(const struct inode *inode)
{
	struct statx status;
	return statx(inode->fd, "", AT_EMPTY_PATH, 0, &status) == 0 && (status.stx_attributes & (STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND));
}

bool inode_name_hidden(struct naos_fs *fs, const struct inode *parent, const char *name)
{
	if (name[0] != '.')
		return false;
	return naos_io_is_temporary(name) || (parent == &fs->inodes->root && strcmp(name, NAOS_LOST_DIRECTORY) == 0);
}

uint64_t inode_plain_size(uint64_t physical)
{
	uint64_t size;
	/* an unsealed file may end in a tag page or in the middle of one: what lies before it counts */
	for (unsigned i = 0; i < 4 && physical >= NAOS_CHUNK_BYTES; i++) {
		if (naos_layout_logical(physical, &size))
			return size;
		physical = (physical - 1) / NAOS_CHUNK_BYTES * NAOS_CHUNK_BYTES;
	}
	return 0;
}

/* A status that was read from below after `moment`, as users see it. */
static void show(struct naos_fs *fs, struct inode *inode, unsigned long moment, struct stat *status)
{
	if (!S_ISREG(status->st_mode))
		return;
	if (!content_show(fs, inode, moment, status))
		status->st_size = (off_t)inode_plain_size((uint64_t)status->st_size);
}

int inode_stat(struct naos_fs *fs, struct inode *inode, struct stat *ret)
{
	unsigned long moment = content_moment(fs);
	if (fstatat(inode->fd, "", ret, AT_EMPTY_PATH) != 0)
		return errno;
	show(fs, inode, moment, ret);
	return 0;
}

static void remember_parent(struct naos_fs *fs, struct inode *inode, struct inode *parent)
{
	struct inode *none = NULL;
	inode_hold(fs, parent);
	if (inode == parent || !atomic_compare_exchange_strong(&inode->parent, &none, parent))
		inode_put(fs, parent, 1);
}

/* Files get their key right after their name, and their first page then.  An empty one without a key that is older than this mount was
 * being made when an earlier mount was killed: nobody was told that it exists.  Without this it would be an error for ever, and its
 * directory could not be removed.  Whoever can empty a file below could as well remove it. */
static bool never_made(const struct naos_fs *fs, int fd, const struct stat *status)
{
	char path[64];
	if (!S_ISREG(status->st_mode) || status->st_size != 0 || status->st_nlink != 1 || fs->shared || fs->read_only ||
	    !times_earlier(&status->st_ctim, &fs->started))
		return false;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return getxattr(path, "user.naos.key", NULL, 0) <= 0; /* else it is recovered when it is opened */
}

static int remove_never_made(struct inode *parent, const char *name, const struct stat *status)
{
	if (unlinkat(parent->fd, name, 0) != 0)
		return errno;
	naos_log(NAOS_LOG_WARNING, "event=removed inode=%llu (it was being made when naos-fs was killed)", (unsigned long long)status->st_ino);
	return ENOENT;
}

int inode_lookup(struct naos_fs *fs, struct inode *parent, const char *name, struct inode **ret, struct stat *ret_status)
{
	struct stat status;
	struct inode *inode;
	if (inode_name_hidden(fs, parent, name))
		return ENOENT;
	unsigned long moment = content_moment(fs);
	int fd = openat(parent->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno;
	if (fstatat(fd, "", &status, AT_EMPTY_PATH) != 0) {
		int saved = errno;
		(void)close(fd);
		return saved;
	}
	if (never_made(fs, fd, &status)) {
		(void)close(fd);
		return remove_never_made(parent, name, &status);
	}
	int rc = inode_get(fs, fd, &status, &inode);
	if (rc != 0)
		return rc;
	if (!inode->parent && strcmp(name, "..") != 0)
		remember_parent(fs, inode, parent);
	show(fs, inode, moment, &status);
	*ret = inode;
	*ret_status = status;
	return 0;
}

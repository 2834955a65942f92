/* SPDX-License-Identifier: Apache-2.0 */
#include "locks.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

#include "seal/store.h"
#include "transport.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

#define FLOCK_BYTE ((off_t)(NAOS_WRITER_LOCK_OFFSET + 1))
#define USER_BASE ((off_t)(NAOS_WRITER_LOCK_OFFSET + (NAOS_WRITER_LOCK_OFFSET >> 1)))
#define USER_LAST (((off_t)1 << 61) - 1)
#define WAITER_STACK_BYTES ((size_t)128 << 10)
#define NUDGE_NS 10000000 /* between signals to a waiter that is to end */
#define WAKE_SIGNAL SIGUSR1 /* its handler does nothing (transport.c): a blocked call ends with EINTR */

/* Whoever the kernel says holds a lock: a process, or an open file (flock, F_OFD_SETLK).  Kept until it closes the file. */
struct lock_owner {
	struct lock_owner *next; /* of the same inode */
	uint64_t owner;
	bool flock;
	uint64_t handle;   /* open file by which it locked last */
	pid_t pid;         /* as the mount's processes know it; 0: unknown */
	int fd;            /* open below; its locks are those of this owner */
	bool writable;
	unsigned users;    /* threads that use it now */
};

struct waiter {
	struct waiter *previous, *next; /* ring of the table */
	struct naos_fs *fs;
	fuse_req_t req;
	struct inode *inode; /* held by the request's open file */
	struct lock_owner *owner;
	struct flock range;
	struct channel *channel;
	timer_t nudge;
	atomic_bool interrupted;
};

struct lock_table {
	pthread_mutex_t lock; /* guards the owners of all inodes, and what follows; nothing is locked under it */
	pthread_cond_t ended;
	struct waiter first; /* ring of waiters whose timer exists */
	unsigned waiting;
	bool stop;
};

int lock_table_create(struct naos_fs *fs, struct naos_error *err)
{
	struct lock_table *table = calloc(1, sizeof(*table));
	if (!table)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the table of locks");
	(void)pthread_mutex_init(&table->lock, NULL);
	(void)pthread_cond_init(&table->ended, NULL);
	table->first.next = table->first.previous = &table->first;
	fs->locks = table;
	return 0;
}

void lock_table_free(struct naos_fs *fs)
{
	if (!fs->locks)
		return;
	(void)pthread_cond_destroy(&fs->locks->ended);
	(void)pthread_mutex_destroy(&fs->locks->lock);
	free(fs->locks);
	fs->locks = NULL;
}

/* --- owners --------------------------------------------------------------------------------------------------------------- */

static struct lock_owner *find(struct inode *inode, uint64_t owner, bool flock)
{
	struct lock_owner *at = inode->lock_owners;
	while (at && (at->owner != owner || at->flock != flock))
		at = at->next;
	return at;
}

static struct lock_owner *add(struct naos_fs *fs, struct inode *inode, uint64_t owner, bool flock)
{
	struct lock_owner *made = calloc(1, sizeof(*made));
	if (!made)
		return NULL;
	/* what the user may do, the kernel has checked; a lock below asks for a descriptor that may write */
	made->fd = fs->read_only ? -1 : inode_open(fs, inode, O_RDWR | O_NONBLOCK);
	made->writable = made->fd >= 0;
	if (made->fd < 0)
		made->fd = inode_open(fs, inode, O_RDONLY | O_NONBLOCK);
	if (made->fd < 0) {
		free(made);
		return NULL;
	}
	made->owner = owner;
	made->flock = flock;
	made->next = inode->lock_owners;
	inode->lock_owners = made;
	return made;
}

/* Finds or makes an owner and uses it; NULL and errno on failure. */
static struct lock_owner *take(struct naos_fs *fs, struct inode *inode, const struct fuse_file_info *fi, bool flock)
{
	(void)pthread_mutex_lock(&fs->locks->lock);
	struct lock_owner *owner = find(inode, fi->lock_owner, flock);
	if (!owner)
		owner = add(fs, inode, fi->lock_owner, flock);
	if (owner) {
		owner->users++;
		owner->handle = fi->fh;
	}
	int saved = errno;
	(void)pthread_mutex_unlock(&fs->locks->lock);
	errno = saved;
	return owner;
}

static void give(struct naos_fs *fs, struct lock_owner *owner)
{
	(void)pthread_mutex_lock(&fs->locks->lock);
	owner->users--;
	(void)pthread_mutex_unlock(&fs->locks->lock);
}

static void unlock_all(int fd)
{
	struct flock all = { .l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = FLOCK_BYTE };
	(void)fcntl(fd, F_OFD_SETLK, &all);
}

/* Locks of an owner go, and the owner unless another of its threads is just about to lock: that one's lock stays. */
static void drop(struct inode *inode, bool (*matches)(const struct lock_owner *owner, uint64_t which), uint64_t which)
{
	for (struct lock_owner **at = &inode->lock_owners, *owner; (owner = *at);) {
		if (!matches(owner, which)) {
			at = &owner->next;
		} else if (owner->users) {
			unlock_all(owner->fd);
			at = &owner->next;
		} else {
			*at = owner->next;
			(void)close(owner->fd);
			free(owner);
		}
	}
}

static bool is_process(const struct lock_owner *owner, uint64_t which)
{
	return !owner->flock && owner->owner == which;
}

static bool is_handle(const struct lock_owner *owner, uint64_t which)
{
	return owner->handle == which;
}

void locks_drop_owner(struct naos_fs *fs, struct inode *inode, uint64_t owner)
{
	(void)pthread_mutex_lock(&fs->locks->lock);
	drop(inode, is_process, owner);
	(void)pthread_mutex_unlock(&fs->locks->lock);
}

void locks_drop_handle(struct naos_fs *fs, struct inode *inode, uint64_t handle)
{
	(void)pthread_mutex_lock(&fs->locks->lock);
	drop(inode, is_handle, handle);
	(void)pthread_mutex_unlock(&fs->locks->lock);
}

void locks_free(struct inode *inode)
{
	for (struct lock_owner *owner; (owner = inode->lock_owners);) {
		inode->lock_owners = owner->next;
		(void)close(owner->fd);
		free(owner);
	}
}

/* --- waiting ---------------------------------------------------------------------------------------------------------------- */

/* Signals from now on, again and again: one that comes just before the thread blocks would be lost. */
static void nudge(struct waiter *waiter)
{
	const struct itimerspec soon = { .it_value.tv_nsec = 1, .it_interval.tv_nsec = NUDGE_NS };
	waiter->interrupted = true;
	(void)timer_settime(waiter->nudge, 0, &soon, NULL);
}

static void interrupt(fuse_req_t req, void *context)
{
	nudge(context);
}

static void *wait_for_lock(void *context)
{
	struct waiter *waiter = context;
	struct lock_table *table = waiter->fs->locks;
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = WAKE_SIGNAL };
	event.sigev_notify_thread_id = gettid();
	transport_use_channel(waiter->channel);
	bool timed = timer_create(CLOCK_MONOTONIC, &event, &waiter->nudge) == 0;
	int rc = timed ? EINTR : errno;
	if (timed) {
		(void)pthread_mutex_lock(&table->lock);
		waiter->next = &table->first;
		waiter->previous = table->first.previous;
		waiter->previous->next = waiter->next->previous = waiter;
		if (table->stop)
			waiter->interrupted = true;
		(void)pthread_mutex_unlock(&table->lock);
		fuse_req_interrupt_func(waiter->req, interrupt, waiter);
		while (!waiter->interrupted && (rc = fcntl(waiter->owner->fd, F_OFD_SETLKW, &waiter->range) == 0 ? 0 : errno) == EINTR)
			;
		fuse_req_interrupt_func(waiter->req, NULL, NULL);
		(void)pthread_mutex_lock(&table->lock);
		waiter->previous->next = waiter->next;
		waiter->next->previous = waiter->previous;
		if (table->stop && rc == EINTR) /* no signal of the user's */
			rc = ENOLCK;
		(void)pthread_mutex_unlock(&table->lock);
		(void)timer_delete(waiter->nudge);
	}
	/* the user may close the file as soon as the answer is there */
	give(waiter->fs, waiter->owner);
	(void)fuse_reply_err(waiter->req, rc);
	transport_release_channel(waiter->channel);
	free(waiter);
	(void)pthread_mutex_lock(&table->lock);
	table->waiting--;
	(void)pthread_cond_broadcast(&table->ended);
	(void)pthread_mutex_unlock(&table->lock);
	return NULL;
}

static int start_waiting(struct waiter *waiter)
{
	pthread_attr_t attributes;
	pthread_t thread;
	(void)pthread_attr_init(&attributes);
	(void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	(void)pthread_attr_setstacksize(&attributes, WAITER_STACK_BYTES);
	int rc = pthread_create(&thread, &attributes, wait_for_lock, waiter);
	(void)pthread_attr_destroy(&attributes);
	return rc;
}

/* Answers later.  The owner is in use until then. */
static void wait_elsewhere(fuse_req_t req, struct inode *inode, struct lock_owner *owner, const struct flock *range)
{
	struct naos_fs *fs = fs_of(req);
	struct lock_table *table = fs->locks;
	struct waiter *waiter = calloc(1, sizeof(*waiter));
	(void)pthread_mutex_lock(&table->lock);
	bool full = !waiter || table->stop || table->waiting >= NAOS_FS_LOCK_WAITERS_MAX;
	table->waiting += !full;
	(void)pthread_mutex_unlock(&table->lock);
	int rc = full ? ENOLCK : 0;
	if (rc == 0) {
		waiter->fs = fs;
		waiter->req = req;
		waiter->inode = inode;
		waiter->owner = owner;
		waiter->range = *range;
		waiter->channel = transport_hold_channel();
		if (start_waiting(waiter) == 0)
			return;
		rc = ENOLCK;
		transport_release_channel(waiter->channel);
		(void)pthread_mutex_lock(&table->lock);
		table->waiting--;
		(void)pthread_mutex_unlock(&table->lock);
	}
	free(waiter);
	give(fs, owner);
	(void)fuse_reply_err(req, rc);
}

void lock_table_stop(struct naos_fs *fs)
{
	struct lock_table *table = fs->locks;
	if (!table)
		return;
	(void)pthread_mutex_lock(&table->lock);
	table->stop = true;
	for (struct waiter *at = table->first.next; at != &table->first; at = at->next)
		nudge(at);
	while (table->waiting > 0)
		(void)pthread_cond_wait(&table->ended, &table->lock);
	(void)pthread_mutex_unlock(&table->lock);
}

/* --- operations ------------------------------------------------------------------------------------------------------------- */

static struct flock to_below(const struct flock *wanted)
{
	bool to_end = wanted->l_len == 0 || wanted->l_start > USER_LAST || wanted->l_len > USER_LAST - wanted->l_start;
	off_t start = wanted->l_start < USER_LAST ? wanted->l_start : USER_LAST;
	off_t end = to_end ? USER_LAST : start + wanted->l_len - 1;
	return (struct flock){
		.l_type = wanted->l_type, .l_whence = SEEK_SET, .l_start = USER_BASE + start, .l_len = end - start + 1,
	};
}

static struct flock from_below(const struct flock *found)
{
	off_t start = found->l_start - USER_BASE;
	bool to_end = found->l_len == 0 || start + found->l_len - 1 >= USER_LAST;
	return (struct flock){
		.l_type = found->l_type, .l_whence = SEEK_SET, .l_start = start, .l_len = to_end ? 0 : found->l_len,
	};
}

static void set(fuse_req_t req, struct inode *inode, struct lock_owner *owner, struct flock *range, bool wait)
{
	int rc = 0;
	if (range->l_type == F_WRLCK && !owner->writable)
		rc = EBADF; /* flock of a file that can't be written below, as on other network file systems */
	else if (fcntl(owner->fd, F_OFD_SETLK, range) != 0)
		rc = errno == EACCES ? EAGAIN : errno;
	if (rc == EAGAIN && wait && range->l_type != F_UNLCK)
		return wait_elsewhere(req, inode, owner, range);
	give(fs_of(req), owner);
	(void)fuse_reply_err(req, rc);
}

void fs_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock, int sleep)
{
	struct naos_fs *fs = fs_of(req);
	struct inode *inode = inode_of(fs, ino);
	struct flock range = to_below(lock);
	struct lock_owner *owner = take(fs, inode, fi, false);
	if (!owner) {
		(void)fuse_reply_err(req, errno);
		return;
	}
	owner->pid = lock->l_pid;
	set(req, inode, owner, &range, sleep != 0);
}

void fs_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int operation)
{
	struct naos_fs *fs = fs_of(req);
	struct inode *inode = inode_of(fs, ino);
	struct flock range = { .l_whence = SEEK_SET, .l_start = FLOCK_BYTE, .l_len = 1 };
	struct lock_owner *owner = take(fs, inode, fi, true);
	if (!owner) {
		(void)fuse_reply_err(req, errno);
		return;
	}
	range.l_type = operation & LOCK_UN ? F_UNLCK : operation & LOCK_EX ? F_WRLCK : F_RDLCK;
	set(req, inode, owner, &range, !(operation & LOCK_NB));
}

/* The process of this mount that holds the lock which was found: the one for whom nothing is in the way there; 0 for another
 * node's.  The table is locked. */
static pid_t holder(const struct inode *inode, const struct lock_owner *asking, const struct flock *found)
{
	for (const struct lock_owner *at = inode->lock_owners; at; at = at->next) {
		struct flock probe = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = found->l_start, .l_len = found->l_len };
		if (at != asking && !at->flock && fcntl(at->fd, F_OFD_GETLK, &probe) == 0 && probe.l_type == F_UNLCK)
			return at->pid;
	}
	return 0;
}

void fs_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock)
{
	struct naos_fs *fs = fs_of(req);
	struct inode *inode = inode_of(fs, ino);
	struct flock range = to_below(lock), answer = { .l_type = F_UNLCK, .l_whence = SEEK_SET };
	struct lock_owner *owner = take(fs, inode, fi, false);
	int rc = owner ? 0 : errno;
	if (rc == 0 && fcntl(owner->fd, F_OFD_GETLK, &range) != 0)
		rc = errno;
	if (rc == 0 && range.l_type != F_UNLCK) {
		answer = from_below(&range);
		(void)pthread_mutex_lock(&fs->locks->lock);
		answer.l_pid = holder(inode, owner, &range);
		(void)pthread_mutex_unlock(&fs->locks->lock);
	}
	if (owner)
		give(fs, owner);
	if (rc != 0)
		(void)fuse_reply_err(req, rc);
	else
		(void)fuse_reply_lock(req, &answer);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "times.h"

#include <fcntl.h>

#include "seal/store.h"

static bool same_time(const struct timespec *left, const struct timespec *right)
{
	return left->tv_sec == right->tv_sec && left->tv_nsec == right->tv_nsec;
}

bool times_earlier(const struct timespec *left, const struct timespec *right)
{
	return left->tv_sec != right->tv_sec ? left->tv_sec < right->tv_sec : left->tv_nsec < right->tv_nsec;
}

/* guards inode->quiet and what follows; nothing is locked under it */
static pthread_mutex_t quiet_lock = PTHREAD_MUTEX_INITIALIZER;

/* The same for files that the kernel may have forgotten: programs such as git read a file again when its time of change differs.
 * What falls on the place of another drives that out; the time below must match exactly, so nothing wrong is ever found. */
#define REMEMBERED (1u << 16)
static struct remembered {
	dev_t device;
	ino_t number;
	struct timespec below, shown;
} remembered[REMEMBERED];

static struct remembered *place_of(const struct inode *inode)
{
	return &remembered[((uint64_t)inode->number * 0x9e3779b97f4a7c15u ^ (uint64_t)inode->device) >> 40 & (REMEMBERED - 1)];
}

void times_show(const struct inode *inode, struct stat *status)
{
	(void)pthread_mutex_lock(&quiet_lock);
	const struct remembered *place = place_of(inode);
	if (same_time(&inode->quiet.below, &status->st_ctim))
		status->st_ctim = inode->quiet.shown;
	else if (place->number == inode->number && place->device == inode->device && same_time(&place->below, &status->st_ctim))
		status->st_ctim = place->shown;
	(void)pthread_mutex_unlock(&quiet_lock);
}

void times_add_gathered(const struct content *content, struct stat *status)
{
	if (!content->gathered_at_ms)
		return;
	status->st_mtim = content->written;
	if (times_earlier(&status->st_ctim, &content->written))
		status->st_ctim = content->written;
}

bool times_save(const struct content *content, struct stat *ret)
{
	if (fstat(content->fd, ret) != 0)
		return false;
	times_show(content->inode, ret);
	times_add_gathered(content, ret);
	return true;
}

/* Whether another node has the file open for writing: then times are that one's. */
static bool others_write(int fd)
{
	struct flock writers = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)NAOS_WRITER_LOCK_OFFSET, .l_len = 1 };
	return fcntl(fd, F_OFD_GETLK, &writers) == 0 && writers.l_type != F_UNLCK;
}

void times_restore(const struct content *content, const struct stat *before)
{
	struct stat after;
	bool shared = content->shared;
	if ((shared && others_write(content->fd)) || fstat(content->fd, &after) != 0)
		return;
	if (shared && !same_time(&after.st_mtim, &before->st_mtim))
		return; /* lib/seal has put the time back, so somebody has written since */
	if (!same_time(&after.st_mtim, &before->st_mtim)) {
		const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, before->st_mtim };
		(void)futimens(content->fd, times);
	}
	const mode_t lost = before->st_mode & (S_ISUID | S_ISGID); /* by a write of ours; another change is another node's */
	if (after.st_mode != before->st_mode && (!shared || (after.st_mode | lost) == before->st_mode))
		(void)fchmod(content->fd, before->st_mode & 07777);
	if (fstat(content->fd, &after) != 0)
		return;
	(void)pthread_mutex_lock(&quiet_lock);
	content->inode->quiet.below = after.st_ctim;
	content->inode->quiet.shown = before->st_ctim;
	*place_of(content->inode) = (struct remembered){
		.device = content->inode->device, .number = content->inode->number, .below = after.st_ctim, .shown = before->st_ctim,
	};
	(void)pthread_mutex_unlock(&quiet_lock);
}

void times_hide_accesses(const struct content *content, bool hide)
{
	int flags = fcntl(content->fd, F_GETFL);
	if (flags >= 0) /* may be refused to who is not the owner; then there is one access more */
		(void)fcntl(content->fd, F_SETFL, hide ? flags | O_NOATIME : flags & ~O_NOATIME);
}

void times_note_access(struct content *content)
{
	uint8_t byte;
	if (atomic_exchange(&content->accessed, true))
		return;
	times_hide_accesses(content, false);
	(void)!pread(content->fd, &byte, 1, 0);
	times_hide_accesses(content, true);
}

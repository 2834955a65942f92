/* SPDX-License-Identifier: Apache-2.0 */
#include "times.h"

#include <fcntl.h>

static bool same_time(const struct timespec *left, const struct timespec *right)
{
	return left->tv_sec == right->tv_sec && left->tv_nsec == right->tv_nsec;
}

bool times_earlier(const struct timespec *left, const struct timespec *right)
{
	return left->tv_sec != right->tv_sec ? left->tv_sec < right->tv_sec : left->tv_nsec < right->tv_nsec;
}

static pthread_mutex_t quiet_lock = PTHREAD_MUTEX_INITIALIZER; /* guards inode->quiet; nothing is locked under it */

void times_show(const struct inode *inode, struct stat *status)
{
	(void)pthread_mutex_lock(&quiet_lock);
	if (same_time(&inode->quiet.below, &status->st_ctim))
		status->st_ctim = inode->quiet.shown;
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

void times_restore(const struct content *content, const struct stat *before)
{
	struct stat after;
	if (fstat(content->fd, &after) != 0)
		return;
	if (!same_time(&after.st_mtim, &before->st_mtim)) {
		const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, before->st_mtim };
		(void)futimens(content->fd, times);
	}
	if (after.st_mode != before->st_mode)
		(void)fchmod(content->fd, before->st_mode & 07777);
	if (fstat(content->fd, &after) != 0)
		return;
	(void)pthread_mutex_lock(&quiet_lock);
	content->inode->quiet.below = after.st_ctim;
	content->inode->quiet.shown = before->st_ctim;
	(void)pthread_mutex_unlock(&quiet_lock);
}

/* The thread that writes what was gathered long ago, and seals closed files together (rule 16 of the format).
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "content_inside.h"

#define BATCH 512u      /* files sealed together */
#define TICK_MS 250u
#define GATHER_MS 1000u /* bytes stay gathered at most so long */

/* Marks a content as busy, so that it stays while the thread works on it; false if there is nothing to do any more. */
static bool take(struct naos_fs *fs, struct inode *inode, const struct content *wanted, bool idle_only)
{
	(void)pthread_mutex_lock(&inode->lock);
	struct content *content = inode->content == wanted ? inode->content : inode->reader == wanted ? inode->reader : NULL;
	bool taken = content && !content->busy && !(idle_only && content->handles > 0);
	if (taken)
		content->busy = true;
	(void)pthread_mutex_unlock(&inode->lock);
	return taken;
}

/* Contents to be sealed (nobody has them open, and `delay_ms` is over), or those with bytes gathered long ago. */
static size_t collect(struct naos_fs *fs, bool idle, uint64_t delay_ms, size_t keep, struct content *batch[static BATCH])
{
	struct content_table *table = fs->contents;
	struct content *found[BATCH];
	struct inode *inodes[BATCH];
	uint64_t now = content_now_ms();
	size_t candidates = 0, count = 0, surplus = table->idle > keep ? table->idle - keep : 0;
	(void)pthread_mutex_lock(&table->lock);
	for (struct content *at = table->first.next; at != &table->first && candidates < BATCH; at = at->next) {
		bool due = idle ? at->handles == 0 && (now - at->closed_at_ms >= delay_ms || candidates < surplus) :
				  at->gathered_at_ms && now - at->gathered_at_ms >= delay_ms;
		if (!due)
			continue;
		inode_hold(fs, at->inode);
		found[candidates] = at;
		inodes[candidates++] = at->inode;
	}
	(void)pthread_mutex_unlock(&table->lock);
	for (size_t i = 0; i < candidates; i++) {
		if (take(fs, inodes[i], found[i], idle))
			batch[count++] = found[i];
		inode_put(fs, inodes[i], 1);
	}
	return count;
}

/* Ends the thread's work on a content: it is let go if it was sealed and nobody opened it in the meantime. */
static void finish(struct naos_fs *fs, struct content *content, bool sealed, int rc, const struct naos_error *err)
{
	struct inode *inode = content->inode;
	inode_hold(fs, inode);
	(void)pthread_mutex_lock(&inode->lock);
	content->busy = false;
	content->failures = rc == 0 ? 0 : content->failures + 1;
	if (rc != 0)
		naos_log(NAOS_LOG_WARNING, "event=seal-failed inode=%llu reason=\"%s\"", (unsigned long long)inode->number, err->message);
	if (content->handles == 0 && (sealed || content->failures >= NAOS_FS_SEAL_ATTEMPTS || content_is_unlinked(content))) {
		fs->contents->idle--;
		struct naos_error why = NAOS_ERROR_INIT;
		if (content_let_go(fs, content, fs->shared && content->writable && !content_is_unlinked(content), &why) != 0)
			naos_log(NAOS_LOG_WARNING, "event=seal-failed inode=%llu reason=\"%s\"", (unsigned long long)inode->number,
				 why.message);
	} else if (content->handles == 0 && rc != 0) {
		content->closed_at_ms = content_now_ms();
	}
	(void)pthread_mutex_unlock(&inode->lock);
	inode_put(fs, inode, 1);
}

static int settle_alone(struct naos_fs *fs, struct content *content, struct naos_error *err)
{
	(void)pthread_mutex_lock(&content->change);
	int rc = content_settle_held(fs, content, err);
	(void)pthread_mutex_unlock(&content->change);
	return rc;
}

struct job {
	struct content *content;
	struct naos_sealing sealing;
	bool done;
};

static void begin_job(struct naos_fs *fs, struct job *job)
{
	struct naos_error err = NAOS_ERROR_INIT;
	int rc = settle_alone(fs, job->content, &err);
	/* nothing to do for what is clean, is only read, or has no name any more */
	job->done = rc != 0 || !job->content->writable || content_is_unlinked(job->content) ||
		    naos_sealed_file_clean(job->content->file) || fs->shared; /* shared files are sealed by the last that closes them */
	if (job->done)
		finish(fs, job->content, rc == 0, rc, &err);
}

/* Seals files together: between two steps one flush of the file system stands for the flushes of all. */
static void seal_batch(struct naos_fs *fs, struct content **batch, size_t count)
{
	naos_autofree struct job *jobs = calloc(count, sizeof(*jobs));
	size_t left = 0;
	int flushed = 0;
	for (size_t i = 0; i < count; i++) {
		if (!jobs) {
			finish(fs, batch[i], false, 0, NULL);
			continue;
		}
		jobs[i].content = batch[i];
		begin_job(fs, &jobs[i]);
		left += !jobs[i].done;
	}
	while (left > 0) {
		for (size_t i = 0; i < count; i++) {
			struct naos_error err = NAOS_ERROR_INIT;
			bool sealed = false;
			int rc;
			if (jobs[i].done)
				continue;
			(void)pthread_mutex_lock(&jobs[i].content->change);
			if (flushed)
				rc = naos_error_set_errno(&err, flushed, "cannot make files durable");
			else
				rc = content_seal_step(fs, jobs[i].content, &jobs[i].sealing, &sealed, &err);
			(void)pthread_mutex_unlock(&jobs[i].content->change);
			if (rc == 0 && !sealed)
				continue;
			jobs[i].done = true;
			left--;
			finish(fs, jobs[i].content, rc == 0, rc, &err);
		}
		if (left > 0)
			flushed = syncfs(fs->root_dir_fd) == 0 ? 0 : errno;
	}
}

void content_seal_due(struct naos_fs *fs, uint64_t delay_ms, size_t keep)
{
	struct content *batch[BATCH];
	size_t count;
	do {
		count = collect(fs, true, delay_ms, keep, batch);
		if (count)
			seal_batch(fs, batch, count);
	} while (count == BATCH);
}

static void settle_due(struct naos_fs *fs)
{
	struct content *batch[BATCH];
	size_t count = collect(fs, false, GATHER_MS, 0, batch);
	for (size_t i = 0; i < count; i++) {
		struct naos_error err = NAOS_ERROR_INIT;
		int rc = settle_alone(fs, batch[i], &err); /* told to the user by the next fsync, too */
		finish(fs, batch[i], false, rc, &err);
	}
}

static size_t collect_gathering(struct naos_fs *fs, uint64_t until_ms, struct inode *inodes[static BATCH])
{
	struct content_table *table = fs->contents;
	size_t count = 0;
	(void)pthread_mutex_lock(&table->lock);
	for (struct content *at = table->first.next; at != &table->first && count < BATCH; at = at->next)
		if (at->gathered_at_ms && at->gathered_at_ms <= until_ms) {
			inode_hold(fs, at->inode);
			inodes[count++] = at->inode;
		}
	(void)pthread_mutex_unlock(&table->lock);
	return count;
}

int content_sync_all(struct naos_fs *fs, struct naos_error *err)
{
	struct inode *inodes[BATCH];
	uint64_t until_ms = content_now_ms(); /* what is written from now on is not waited for */
	size_t count;
	int rc = 0;
	do {
		count = collect_gathering(fs, until_ms, inodes);
		for (size_t i = 0; i < count; i++) {
			content_begin_status(inodes[i]); /* also waits for the thread that may be at it */
			if (rc == 0)
				rc = content_settle(fs, inodes[i], err);
			content_end_status(inodes[i]);
			inode_put(fs, inodes[i], 1);
		}
	} while (rc == 0 && count == BATCH);
	if (rc == 0 && syncfs(fs->root_dir_fd) != 0)
		rc = naos_error_set_errno(err, errno, "cannot make the file set durable");
	return rc;
}

static void *run(void *context)
{
	struct naos_fs *fs = context;
	struct content_table *table = fs->contents;
	for (unsigned tick = 0;; tick++) {
		struct timespec until;
		(void)clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += TICK_MS * 1000000L;
		until.tv_sec += until.tv_nsec / 1000000000L;
		until.tv_nsec %= 1000000000L;
		(void)pthread_mutex_lock(&table->lock);
		while (!table->stop && !table->hurry)
			if (pthread_cond_timedwait(&table->wake, &table->lock, &until) != 0)
				break;
		bool stop = table->stop;
		table->hurry = false;
		(void)pthread_mutex_unlock(&table->lock);
		if (stop)
			return NULL;
		settle_due(fs);
		content_seal_due(fs, (uint64_t)fs->seal_delay_s * 1000, NAOS_FS_IDLE_MAX / 2);
	}
}

int content_table_start(struct naos_fs *fs, struct naos_error *err)
{
	int rc = pthread_create(&fs->contents->thread, NULL, run, fs);
	if (rc != 0)
		return naos_error_set_errno(err, rc, "cannot start the thread that seals files");
	fs->contents->started = true;
	return 0;
}

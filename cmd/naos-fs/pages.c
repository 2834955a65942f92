/* A direct write (O_DIRECT) that is asynchronous: the kernel drops its pages of the range before it sends the write, and not when it is
 * done.  What somebody reads through pages in between is of before, and would be shown ever after.  Dropping pages can wait for reads
 * and writes that are under way, so a thread of its own does it: those that serve requests go on.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pages.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "transport.h"

#define WAIT_MS 2000 /* on a busy machine; more would be of use only to who waits for each other */
#define STOP_MS 1000

struct job {
	struct job *next;
	fuse_ino_t ino;
	uint64_t offset, bytes;
};

struct pages {
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t more, less;
	struct job *first, **last;
	uint64_t put, done; /* jobs */
	bool started, stop, ended;
};

static struct timespec from_now(long ms)
{
	struct timespec until;
	(void)clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += ms * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000L;
	until.tv_nsec %= 1000000000L;
	return until;
}

static void *run(void *context)
{
	struct naos_fs *fs = context;
	struct pages *pages = fs->pages;
	(void)pthread_mutex_lock(&pages->lock);
	while (!pages->stop) {
		struct job *job = pages->first;
		if (!job) {
			(void)pthread_cond_wait(&pages->more, &pages->lock);
			continue;
		}
		pages->first = job->next;
		if (!pages->first)
			pages->last = &pages->first;
		(void)pthread_mutex_unlock(&pages->lock);
		(void)fuse_lowlevel_notify_inval_inode(fs->session, job->ino, (off_t)job->offset, (off_t)job->bytes);
		free(job);
		(void)pthread_mutex_lock(&pages->lock);
		pages->done++;
		(void)pthread_cond_broadcast(&pages->less);
	}
	pages->ended = true;
	(void)pthread_cond_broadcast(&pages->less);
	(void)pthread_mutex_unlock(&pages->lock);
	return NULL;
}

/* With the lock held. */
static bool start(struct naos_fs *fs)
{
	pthread_t thread;
	struct pages *pages = fs->pages;
	if (pages->started || pthread_create(&thread, NULL, run, fs) != 0)
		return pages->started;
	(void)pthread_detach(thread); /* it may be waiting for the kernel at the end */
	return pages->started = true;
}

int pages_create(struct naos_fs *fs, struct naos_error *err)
{
	struct pages *pages = calloc(1, sizeof(*pages));
	if (!pages)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the list of pages");
	(void)pthread_mutex_init(&pages->lock, NULL);
	(void)pthread_cond_init(&pages->more, NULL);
	(void)pthread_cond_init(&pages->less, NULL);
	pages->last = &pages->first;
	fs->pages = pages;
	return 0;
}

void pages_drop(struct naos_fs *fs, fuse_ino_t ino, uint64_t offset, uint64_t bytes)
{
	struct pages *pages = fs->pages;
	struct job *job = malloc(sizeof(*job));
	const struct timespec until = from_now(WAIT_MS);
	transport_may_wait(fs); /* for reads that somebody else must answer */
	if (!job)
		return;
	*job = (struct job){ .ino = ino, .offset = offset, .bytes = bytes };
	(void)pthread_mutex_lock(&pages->lock);
	if (start(fs)) {
		uint64_t number = ++pages->put;
		*pages->last = job;
		pages->last = &job->next;
		(void)pthread_cond_signal(&pages->more);
		while (pages->done < number && pthread_cond_timedwait(&pages->less, &pages->lock, &until) == 0)
			;
	} else {
		free(job);
	}
	(void)pthread_mutex_unlock(&pages->lock);
}

void pages_free(struct naos_fs *fs)
{
	struct pages *pages = fs->pages;
	const struct timespec until = from_now(STOP_MS);
	if (!pages)
		return;
	(void)pthread_mutex_lock(&pages->lock);
	pages->stop = true;
	(void)pthread_cond_signal(&pages->more);
	while (pages->started && !pages->ended && pthread_cond_timedwait(&pages->less, &pages->lock, &until) == 0)
		;
	bool ended = pages->ended || !pages->started;
	(void)pthread_mutex_unlock(&pages->lock);
	if (!ended)
		return; /* the end of the process is the end of the thread */
	for (struct job *job = pages->first, *next; job; job = next) {
		next = job->next;
		free(job);
	}
	(void)pthread_cond_destroy(&pages->more);
	(void)pthread_cond_destroy(&pages->less);
	(void)pthread_mutex_destroy(&pages->lock);
	free(pages);
	fs->pages = NULL;
}

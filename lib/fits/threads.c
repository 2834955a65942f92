/* SPDX-License-Identifier: Apache-2.0 */
#include "fits/threads.h"

static void *run(void *context)
{
	struct frame_threads *threads = context;
	struct naos_error err = NAOS_ERROR_INIT;
	int rc = threads->work(threads->context, &err);
	if (rc == 0)
		return NULL;
	(void)pthread_mutex_lock(&threads->lock);
	if (!threads->failed) {
		threads->err = err;
		threads->failed = rc;
	}
	(void)pthread_mutex_unlock(&threads->lock);
	return NULL;
}

int frame_threads_run(struct frame_threads *threads, unsigned jobs, struct naos_error *err)
{
	pthread_t others[NAOS_FRAME_MAX_JOBS];
	unsigned started = 0;
	(void)pthread_mutex_init(&threads->lock, NULL);
	jobs = jobs < NAOS_FRAME_MAX_JOBS ? jobs : NAOS_FRAME_MAX_JOBS;
	while (started + 1 < jobs && pthread_create(&others[started], NULL, run, threads) == 0) /* those that started do all of it */
		started++;
	(void)run(threads);
	for (unsigned i = 0; i < started; i++)
		(void)pthread_join(others[i], NULL);
	(void)pthread_mutex_destroy(&threads->lock);
	if (threads->failed && err)
		*err = threads->err;
	return threads->failed;
}

/* Several threads at one piece of work, and the first failure of any.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FITS_THREADS_H
#define NAOS_FITS_THREADS_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/errors.h"

#define NAOS_FRAME_MAX_JOBS 64u /* threads that work on one frame */

struct frame_threads {
	int (*work)(void *context, struct naos_error *err); /* until nothing is left, or frame_threads_failed */
	void *context;
	pthread_mutex_t lock; /* guards err */
	atomic_int failed;
	struct naos_error err;
};

/* Runs work in `jobs` threads (at least one: the caller's) and waits for all.  The result is that of the first that failed. */
int frame_threads_run(struct frame_threads *threads, unsigned jobs, struct naos_error *err) naos_must_check;

#endif

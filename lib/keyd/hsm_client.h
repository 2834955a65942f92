/* Inside of the front's side of the HSM: how jobs reach the worker.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_HSM_CLIENT_H
#define NAOS_KEYD_HSM_CLIENT_H

#include <pthread.h>
#include <sys/types.h>

#include "keyd/hsm_token.h"

struct naos_hsm_channel {
	int fd; /* -1: lost */
	bool busy;
	struct naos_secret *request, *answer;
};

struct naos_hsm {
	struct naos_hsm_token *direct; /* NULL: there is a worker */
	char *uri, *store;
	const char *program;
	unsigned channel_count;
	bool network;

	pthread_mutex_t lock;
	struct naos_hsm_job *head, **tail; /* waiting jobs */
	struct naos_hsm_channel channels[NAOS_HSM_MAX_CHANNELS];
	unsigned busy;
	pid_t pid;
	bool down;
	int64_t retry_ns, pause_ns; /* no start of a worker before; how long after the next failure */
	uint64_t restarts;
	struct naos_error why;
};

/* Does jobs; each has its result in its item. */
void naos_hsm_submit(struct naos_hsm *hsm, struct naos_hsm_job *jobs, size_t count);
/* Starts a worker and says hello (hsm_start.c).  The lock is held, no channel is busy. */
int naos_hsm_spawn(struct naos_hsm *hsm, struct naos_error *err) naos_must_check;
/* Ends what is left of a worker. */
void naos_hsm_reap(struct naos_hsm *hsm);

#endif

/* What the transports share.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FS_TRANSPORT_INSIDE_H
#define NAOS_FS_TRANSPORT_INSIDE_H

#include <linux/fuse.h>
#include <pthread.h>
#include <sys/uio.h>

#include "transport.h"

struct ring;

struct channel {
	int fd; /* a clone of /dev/fuse */
	atomic_uint users;
};

/* A thread that takes requests and answers them. */
struct worker {
	struct naos_fs *fs;
	pthread_t thread;
	struct channel *channel;       /* NULL if it has a ring */
	struct ring *ring;             /* io_uring, or NULL */
	struct fuse_buf request;
	uint8_t *answer;               /* ANSWER_BYTES */
	const struct fuse_in_header *header; /* of the request it works on */
	uint32_t asked_by;             /* the thread that asked last */
	bool tmpfile;
	bool used;                     /* slot is taken */
};

struct transport {
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t gone;
	pthread_cond_t more;  /* to those who are aside: another reader is needed, or the end has come */
	struct worker *workers;
	unsigned slots;       /* workers at most */
	unsigned running;
	unsigned aside;       /* threads that neither read nor work */
	unsigned calls;       /* of them, those that were called back */
	pthread_t watcher;
	bool watched;
	atomic_uint idle;     /* threads that wait for a request */
	atomic_ulong answered;
	unsigned idle_max;    /* of them at most; how many should be: */
	atomic_uint wanted;
	atomic_int pressure;  /* requests of other threads that had to wait for a reader, less the others */
	struct rings *rings;  /* NULL: requests come by /dev/fuse only */
	void (*ended)(void *context);
	void *context;
};

/* Decodes the request, calls its operation. */
void transport_process(struct worker *worker);
/* A thread for a ring; false if there is no slot or no memory. */
bool transport_add_ring(struct naos_fs *fs, struct ring *ring);

/* --- transport_uring.c --------------------------------------------------------------------------------------------------- */

/* Makes the rings, one for each CPU, so that nothing can fail after the kernel was told to use them.  False if this machine lets
 * us have none. */
bool rings_create(struct naos_fs *fs);
/* Starts their threads. */
bool rings_start(struct naos_fs *fs);
void rings_free(struct naos_fs *fs);
/* Life of a thread: until the file system is unmounted. */
void ring_serve(struct worker *worker);
void ring_free(struct ring *ring);
/* Takes an answer; it goes out when the thread waits for its next request. */
ssize_t ring_answer(struct ring *ring, const struct iovec *iov, int count);
/* Memory for data of an answer to the request that the thread works on; NULL if the request itself is still there. */
uint8_t *ring_buffer(struct ring *ring);

#endif

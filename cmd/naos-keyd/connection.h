/* One connection of the front: handshake, read a message, have it handled, write the answer.
 *
 * A connection waits in one of two epolls.  In `quick` it waits for its next message; a thread takes as many connections from there
 * as are ready, reads their messages, has them done as one group (keyd.h) and answers all: no request is handed from thread to
 * thread.  In `slow` stands what would hold a group up: handshakes, and messages that are more than a few Encrypts and Decrypts.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_CONNECTION_H
#define NAOS_KEYD_CONNECTION_H

#include <pthread.h>
#include <sys/socket.h>

#include "budget.h"
#include "front.h"

struct connection;

/* What all connections of a front share. */
struct front_shared {
	int quick_fd, slow_fd;
	struct naos_keyd *keyd;
	struct front_counters *counters;
	int64_t handshake_ns, message_ns, idle_ns;
	uint64_t max_connections;
	struct budget budget;
	atomic_uint busy; /* connections that a thread works on now */
	pthread_mutex_t lock; /* tls, list */
	SSL_CTX *tls;
	atomic_uint tls_generation; /* of tls: a peer was verified with that one */
	struct connection *first;
};

void front_shared_init(struct front_shared *shared, const struct naos_config *config, SSL_CTX *tls, struct naos_keyd *keyd,
		       struct front_counters *counters);
void front_shared_set_tls(struct front_shared *shared, SSL_CTX *tls);
/* The present context; a reference. */
SSL_CTX *front_shared_tls(struct front_shared *shared);
void front_shared_clear(struct front_shared *shared);

/* Takes the socket; closes it if there are too many. */
void connection_start(struct front_shared *shared, int fd, const struct sockaddr *address, socklen_t bytes);
#define CONNECTION_GROUP 64 /* connections that are answered together */
/* Goes on with connections that `quick` reported, at most CONNECTION_GROUP; may free them. */
void connection_group(struct front_shared *shared, struct connection *const *ready, size_t count);
/* Goes on with one that `slow` reported. */
void connection_alone(struct connection *connection);
/* Ends those whose deadline has passed.  all: frees every one; only when no thread is left. */
void connection_expire_all(struct front_shared *shared, bool all);

void connection_format_address(const struct sockaddr *address, socklen_t bytes, char *ret, size_t room);

#endif

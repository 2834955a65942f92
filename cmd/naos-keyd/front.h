/* The front of the key manager: sockets, TLS, framing, deadlines.  Threads share two epolls; a connection is with one thread at
 * a time.  It holds no PIN and no key; messages lie in secret memory while they are served.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_FRONT_H
#define NAOS_KEYD_FRONT_H

#include <stdatomic.h>

#include "base/config.h"
#include "keyd/keyd.h"
#include "tls.h"

struct front;

/* What /metrics tells of the front. */
struct front_counters {
	atomic_ullong connections_open, connections_total, connections_refused, handshakes_failed, handshakes_resumed, requests,
		refused_messages, timeouts, bytes_in, bytes_out, handle_ns;
	atomic_ullong latency_bucket[12]; /* requests that took < 2^i · 64 µs; the last one: longer */
};

/* Binds the addresses of keyd.listen.  keyd is borrowed; takes ownership of the context. */
int front_open(const struct naos_config *config, SSL_CTX *tls, struct naos_keyd *keyd, struct front **ret,
		struct naos_error *err) naos_must_check;
/* Starts the threads. */
int front_start(struct front *front, struct naos_error *err) naos_must_check;
/* New certificate, CA and CRL for the connections to come; those that are open go on.  Takes ownership. */
void front_set_tls(struct front *front, SSL_CTX *tls);
struct front_counters *front_counters(struct front *front);
/* Connections that a thread works on now. */
unsigned front_busy(struct front *front);
void front_tls_ends(struct front *front, struct keyd_tls_ends *ret);
/* "127.0.0.1:5696" of the first socket: with port 0 the kernel chose one. */
const char *front_address(const struct front *front);
/* No new connections; requests under way are answered; then everything is closed.  Frees. */
struct front *front_stop(struct front *front);

#endif

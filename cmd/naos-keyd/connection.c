/* One connection of the front.  SPDX-License-Identifier: Apache-2.0 */
#include "connection.h"

#include <netdb.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <openssl/err.h>

#include "base/log.h"
#include "kmip/message.h"
#include "kmip/reason.h"
#include "kmip/ttlv.h"
#include "planted.h"

#define HEAD_BYTES 8
#define FIRST_ROOM 4096u

enum phase { HANDSHAKE, READING, WRITING };

struct connection {
	struct front_shared *shared;
	struct connection *next, *previous;
	int fd;
	SSL *ssl;
	enum phase phase;
	bool good_once; /* one request was served: larger ones are allowed */
	_Atomic int64_t deadline_ns;
	uint8_t head[HEAD_BYTES];
	struct naos_secret *message, *answer;
	size_t have, need, sent;
	struct naos_keyd_request *request; /* the message as it was understood; not answered yet */
	int64_t started_ns;
	bool in_quick, in_slow; /* which epolls know the socket */
	bool last; /* ends when its answer is written */
	struct keyd_peer_name peer;
	unsigned place; /* of its identity, in the budget */
	unsigned verified; /* tls_generation of the last look at the peer's certificate */
	char address[96];
};

static int64_t now_ns(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* --- shared ---------------------------------------------------------------------------------------------------------- */

void front_shared_init(struct front_shared *shared, const struct naos_config *config, SSL_CTX *tls, struct naos_keyd *keyd,
		       struct front_counters *counters)
{
	*shared = (struct front_shared){
		.quick_fd = epoll_create1(EPOLL_CLOEXEC),
		.slow_fd = epoll_create1(EPOLL_CLOEXEC),
		.keyd = keyd,
		.counters = counters,
		.tls = tls,
		.handshake_ns = (int64_t)naos_config_number(config, "keyd", NULL, "handshake-timeout") * 1000000000,
		.message_ns = (int64_t)naos_config_number(config, "keyd", NULL, "message-timeout") * 1000000000,
		.idle_ns = (int64_t)naos_config_number(config, "keyd", NULL, "idle-timeout") * 1000000000,
		.max_connections = naos_config_number(config, "keyd", NULL, "max-connections"),
	};
	(void)pthread_mutex_init(&shared->lock, NULL);
}

void front_shared_set_tls(struct front_shared *shared, SSL_CTX *tls)
{
	(void)pthread_mutex_lock(&shared->lock);
	SSL_CTX *old = shared->tls;
	shared->tls = tls;
	atomic_fetch_add(&shared->tls_generation, 1);
	(void)pthread_mutex_unlock(&shared->lock);
	SSL_CTX_free(old); /* connections hold references of their own */
}

void front_shared_clear(struct front_shared *shared)
{
	naos_close_descriptor(&shared->quick_fd);
	naos_close_descriptor(&shared->slow_fd);
	SSL_CTX_free(shared->tls);
	(void)pthread_mutex_destroy(&shared->lock);
}

SSL_CTX *front_shared_tls(struct front_shared *shared)
{
	(void)pthread_mutex_lock(&shared->lock);
	SSL_CTX *tls = shared->tls;
	(void)SSL_CTX_up_ref(tls);
	(void)pthread_mutex_unlock(&shared->lock);
	return tls;
}

void connection_format_address(const struct sockaddr *address, socklen_t bytes, char *ret, size_t room)
{
	char host[64], port[16];
	if (getnameinfo(address, bytes, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		(void)snprintf(ret, room, "?");
	else
		(void)snprintf(ret, room, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

/* --- life ------------------------------------------------------------------------------------------------------------ */

/* What of a message is in the budget: short ones are not. */
static size_t counted(const struct naos_secret *message)
{
	size_t bytes = message ? naos_secret_bytes(message) : 0;
	return bytes > FIRST_ROOM ? bytes : 0;
}

static struct naos_secret *let_go(struct connection *connection, struct naos_secret *message)
{
	budget_give(&connection->shared->budget, connection->place, counted(message));
	return naos_secret_free(message);
}

static void connection_free(struct connection *connection)
{
	struct front_shared *shared = connection->shared;
	(void)pthread_mutex_lock(&shared->lock);
	if (connection->previous)
		connection->previous->next = connection->next;
	else
		shared->first = connection->next;
	if (connection->next)
		connection->next->previous = connection->previous;
	(void)pthread_mutex_unlock(&shared->lock);
	if (connection->request)
		(void)naos_keyd_request_end(connection->request, NULL, NULL);
	(void)let_go(connection, connection->message);
	(void)let_go(connection, connection->answer);
	SSL_free(connection->ssl);
	naos_close_descriptor(&connection->fd);
	atomic_fetch_sub(&shared->counters->connections_open, 1);
	free(connection);
}

/* Lets it wait in one of the epolls: the last that a thread does with it, unless it fails. */
static bool wait_in(struct connection *connection, bool quick, uint32_t events)
{
	struct front_shared *shared = connection->shared;
	bool *known = quick ? &connection->in_quick : &connection->in_slow;
	int epoll_fd = quick ? shared->quick_fd : shared->slow_fd, operation = *known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
	struct epoll_event event = { .events = events | EPOLLONESHOT, .data.ptr = connection };
	*known = true;
	return epoll_ctl(epoll_fd, operation, connection->fd, &event) == 0;
}

void connection_start(struct front_shared *shared, int fd, const struct sockaddr *address, socklen_t bytes)
{
	struct connection *connection = NULL;
	atomic_fetch_add(&shared->counters->connections_total, 1);
	if (atomic_fetch_add(&shared->counters->connections_open, 1) < shared->max_connections)
		connection = calloc(1, sizeof(*connection));
	if (!connection) {
		atomic_fetch_sub(&shared->counters->connections_open, 1);
		atomic_fetch_add(&shared->counters->connections_refused, 1);
		naos_close_descriptor(&fd);
		return;
	}
	*connection = (struct connection){ .shared = shared, .fd = fd, .deadline_ns = now_ns() + shared->handshake_ns };
	connection_format_address(address, bytes, connection->address, sizeof(connection->address));
	SSL_CTX *tls = front_shared_tls(shared);
	connection->ssl = SSL_new(tls);
	SSL_CTX_free(tls);
	(void)pthread_mutex_lock(&shared->lock);
	connection->next = shared->first;
	if (shared->first)
		shared->first->previous = connection;
	shared->first = connection;
	(void)pthread_mutex_unlock(&shared->lock);
	if (!connection->ssl || SSL_set_fd(connection->ssl, fd) != 1 || !wait_in(connection, false, EPOLLIN))
		connection_free(connection);
}

void connection_expire_all(struct front_shared *shared, bool all)
{
	int64_t now = now_ns();
	while (all && shared->first)
		connection_free(shared->first);
	(void)pthread_mutex_lock(&shared->lock);
	for (struct connection *connection = shared->first; connection; connection = connection->next)
		if (atomic_load(&connection->deadline_ns) < now) {
			/* its thread, or epoll, notices and frees it */
			atomic_store(&connection->deadline_ns, INT64_MAX);
			atomic_fetch_add(&shared->counters->timeouts, 1);
			(void)shutdown(connection->fd, SHUT_RDWR);
		}
	(void)pthread_mutex_unlock(&shared->lock);
}

/* --- steps ----------------------------------------------------------------------------------------------------------- */

/* What a step wants next. */
enum outcome { GO_ON, WAIT_READ, WAIT_WRITE, END };

static void set_deadline(struct connection *connection, int64_t from_now_ns)
{
	atomic_store(&connection->deadline_ns, now_ns() + from_now_ns);
}

/* Why a call of OpenSSL did not do it all. */
static enum outcome wanted(struct connection *connection, int returned)
{
	switch (SSL_get_error(connection->ssl, returned)) {
	case SSL_ERROR_WANT_READ:
		return WAIT_READ;
	case SSL_ERROR_WANT_WRITE:
		return WAIT_WRITE;
	default:
		return END;
	}
}

static enum outcome step_handshake(struct connection *connection)
{
	struct front_shared *shared = connection->shared;
	struct naos_error err = NAOS_ERROR_INIT;
	int returned = SSL_accept(connection->ssl);
	if (returned != 1) {
		enum outcome outcome = wanted(connection, returned);
		if (outcome != END)
			return outcome;
		atomic_fetch_add(&shared->counters->handshakes_failed, 1);
		naos_log(NAOS_LOG_INFO, "event=handshake-failed address=%s reason=\"%s\"", connection->address,
				keyd_tls_reason());
		return END;
	}
	connection->verified = atomic_load(&shared->tls_generation);
	SSL_CTX *tls = front_shared_tls(shared);
	int rc = keyd_tls_peer(connection->ssl, tls, &connection->peer, &err);
	SSL_CTX_free(tls);
	if (rc != 0) {
		atomic_fetch_add(&shared->counters->handshakes_failed, 1);
		naos_log(NAOS_LOG_WARNING, "event=client-refused address=%s reason=\"%s\"", connection->address, err.message);
		return END;
	}
	atomic_fetch_add(&shared->counters->handshakes_resumed, (unsigned)SSL_session_reused(connection->ssl));
	connection->place = budget_place(connection->peer.identity);
	connection->phase = READING;
	set_deadline(connection, shared->idle_ns);
	return GO_ON;
}

/* Room for what has been announced grows with what has come, so that an announcement alone costs nothing. */
static int make_room(struct connection *connection, struct naos_error *err)
{
	size_t room = connection->message ? naos_secret_bytes(connection->message) : 0;
	if (connection->have < room)
		return 0;
	size_t grown = room ? 2 * room : FIRST_ROOM;
	grown = grown < connection->need ? grown : connection->need;
	size_t more = grown > FIRST_ROOM ? grown : 0;
	struct naos_secret *larger;
	int rc = budget_take(&connection->shared->budget, connection->place, more, err);
	if (rc != 0)
		return rc;
	rc = naos_secret_create(grown, &larger, err);
	if (rc != 0) {
		budget_give(&connection->shared->budget, connection->place, more);
		return rc;
	}
	uint8_t *into = naos_secret_data(larger);
	if (connection->message)
		memcpy(into, naos_secret_view(connection->message), connection->have); /* lint-ok: from slab to slab */
	else
		memcpy(into, connection->head, HEAD_BYTES); /* lint-ok: type and length only */
	(void)let_go(connection, connection->message);
	connection->message = larger;
	return 0;
}

static enum outcome refuse(struct connection *connection, const struct naos_error *err)
{
	atomic_fetch_add(&connection->shared->counters->refused_messages, 1);
	naos_log(NAOS_LOG_WARNING, "event=message-refused address=%s identity=\"%s\" reason=\"%s\"", connection->address,
		 connection->peer.identity, err->message);
	return END;
}

/* What it sends can't be taken now: it is told so, and the connection ends behind that. */
static enum outcome refuse_with_answer(struct connection *connection, const struct naos_error *err)
{
	const struct naos_kmip_response_item item = {
		.status = NAOS_KMIP_STATUS_OPERATION_FAILED, .message = naos_kmip_text(err->message),
		.reason = naos_kmip_reason_in_version(NAOS_KMIP_REASON_SERVER_LIMIT_EXCEEDED, NAOS_KMIP_1_4),
	};
	const struct naos_kmip_response response = { .version = NAOS_KMIP_1_4, .time_stamp = naos_kmip_date((int64_t)time(NULL)),
						     .batch = { &item, 1 } };
	connection->message = let_go(connection, connection->message);
	connection->have = connection->need = connection->sent = 0;
	if (naos_kmip_response_write(&response, 0, &connection->answer, NULL) != 0)
		return refuse(connection, err);
	connection->last = true;
	connection->phase = WRITING;
	(void)refuse(connection, err); /* counted and logged */
	return GO_ON;
}

static enum outcome step_read(struct connection *connection)
{
	struct naos_error err = NAOS_ERROR_INIT;
	bool head = connection->have < HEAD_BYTES;
	int made = head ? 0 : make_room(connection, &err);
	if (made == NAOS_E_LIMIT)
		return refuse_with_answer(connection, &err);
	if (made != 0)
		return refuse(connection, &err);
	uint8_t *into = head ? connection->head : naos_secret_data(connection->message);
	size_t room = head ? HEAD_BYTES : naos_secret_bytes(connection->message);
	int got = SSL_read(connection->ssl, into + connection->have, (int)(room - connection->have));
	if (got <= 0) {
		enum outcome outcome = wanted(connection, got);
		ERR_clear_error();
		return outcome;
	}
	if (connection->have == 0)
		set_deadline(connection, connection->shared->message_ns);
	connection->have += (size_t)got;
	atomic_fetch_add(&connection->shared->counters->bytes_in, (unsigned)got);
	if (!head)
		return GO_ON;
	size_t limit = connection->good_once ? NAOS_KMIP_MAX_MESSAGE_BYTES : NAOS_KMIP_MAX_FIRST_MESSAGE_BYTES;
	int rc = naos_kmip_frame(NAOS_KMIP_REQUESTS, connection->head, connection->have, limit, &connection->need, &err);
	if (rc == 0 && connection->have == HEAD_BYTES && connection->need <= HEAD_BYTES)
		rc = naos_error_set(&err, NAOS_E_FORMAT, "the message is empty");
	return rc == 0 ? GO_ON : refuse(connection, &err);
}

static void count_latency(struct front_counters *counters, int64_t ns)
{
	unsigned bucket = 0;
	while (bucket + 1 < NAOS_ARRAY_LENGTH(counters->latency_bucket) && ns >= (int64_t)64000 << bucket)
		bucket++;
	atomic_fetch_add(&counters->latency_bucket[bucket], 1);
	atomic_fetch_add(&counters->handle_ns, (unsigned long long)ns);
	atomic_fetch_add(&counters->requests, 1);
}

/* A connection outlives what let it in: its certificate may have expired since, or be on a CRL that came later. */
static int check_peer(struct connection *connection, struct naos_error *err)
{
	struct front_shared *shared = connection->shared;
	unsigned generation = atomic_load(&shared->tls_generation);
	if (connection->peer.expires_unix_s < (int64_t)time(NULL))
		return naos_error_set(err, NAOS_E_DENIED, "the client's certificate has expired");
	if (generation == connection->verified)
		return 0;
	SSL_CTX *tls = front_shared_tls(shared);
	int rc = keyd_tls_verify_again(connection->ssl, tls, err);
	SSL_CTX_free(tls);
	connection->verified = generation;
	return rc;
}

/* The message is there: what does it ask? */
static enum outcome begin_request(struct connection *connection)
{
	const struct naos_keyd_peer peer = {
		.identity = connection->peer.identity, .issuer = connection->peer.issuer, .serial = connection->peer.serial,
		.address = connection->address,
	};
	struct naos_error err = NAOS_ERROR_INIT;
	connection->started_ns = now_ns();
	if (check_peer(connection, &err) != 0)
		return refuse(connection, &err);
	atomic_store(&connection->deadline_ns, INT64_MAX); /* our time, not the client's */
	planted_crash(connection->peer.identity, "request");
	int rc = naos_keyd_request_begin(connection->shared->keyd, &peer, connection->message, &connection->request, &err);
	return rc == 0 ? GO_ON : refuse(connection, &err);
}

/* It was run: the answer is to be written. */
static enum outcome end_request(struct connection *connection)
{
	struct naos_error err = NAOS_ERROR_INIT;
	int rc = naos_keyd_request_end(naos_steal(connection->request), &connection->answer, &err);
	count_latency(connection->shared->counters, now_ns() - connection->started_ns);
	connection->message = let_go(connection, connection->message);
	connection->have = connection->need = connection->sent = 0;
	if (rc != 0)
		return refuse(connection, &err);
	planted_crash(connection->peer.identity, "answer");
	budget_take_anyway(&connection->shared->budget, connection->place, counted(connection->answer));
	connection->good_once = true;
	connection->phase = WRITING;
	set_deadline(connection, connection->shared->message_ns);
	return GO_ON;
}

static enum outcome step_write(struct connection *connection)
{
	size_t bytes = naos_secret_bytes(connection->answer);
	int put = SSL_write(connection->ssl, naos_secret_view(connection->answer) + connection->sent,
			(int)(bytes - connection->sent));
	if (put <= 0) {
		enum outcome outcome = wanted(connection, put);
		ERR_clear_error();
		return outcome;
	}
	connection->sent += (size_t)put;
	atomic_fetch_add(&connection->shared->counters->bytes_out, (unsigned)put);
	if (connection->sent < bytes)
		return GO_ON;
	connection->answer = let_go(connection, connection->answer);
	planted_crash(connection->peer.identity, "written");
	if (connection->last)
		return END;
	connection->phase = READING;
	set_deadline(connection, connection->shared->idle_ns);
	return GO_ON;
}

/* --- groups ---------------------------------------------------------------------------------------------------------- */

/* Lets it wait for what it wants next, or ends it. */
static void settle(struct connection *connection, enum outcome outcome)
{
	uint32_t events = outcome == WAIT_WRITE ? EPOLLOUT : EPOLLIN;
	if (outcome == GO_ON && SSL_has_pending(connection->ssl))
		events = EPOLLIN | EPOLLOUT; /* what is read already would wake nobody: go on as soon as somebody has time */
	if (outcome == END || !wait_in(connection, connection->phase != HANDSHAKE, events))
		connection_free(connection);
}

/* Writes on, and reads until there is a whole message (GO_ON). */
static enum outcome collect(struct connection *connection)
{
	enum outcome outcome = GO_ON;
	while (outcome == GO_ON && !(connection->phase == READING && connection->message && connection->have == connection->need))
		outcome = connection->phase == WRITING ? step_write(connection) : step_read(connection);
	return outcome == GO_ON ? begin_request(connection) : outcome;
}

/* Has the requests done, and answers them. */
static void answer_all(struct front_shared *shared, struct connection *const *group, size_t count)
{
	struct naos_keyd_request *requests[CONNECTION_GROUP];
	for (size_t i = 0; i < count; i++)
		requests[i] = group[i]->request;
	if (count > 0)
		naos_keyd_requests_run(shared->keyd, requests, count);
	for (size_t i = 0; i < count; i++) {
		enum outcome outcome = end_request(group[i]);
		while (outcome == GO_ON && group[i]->phase == WRITING)
			outcome = step_write(group[i]);
		settle(group[i], outcome);
	}
}

void connection_group(struct front_shared *shared, struct connection *const *ready, size_t count)
{
	struct connection *group[CONNECTION_GROUP];
	size_t used = 0, items = 0;
	atomic_fetch_add(&shared->busy, 1);
	for (size_t i = 0; i < count; i++) {
		struct connection *connection = ready[i];
		enum outcome outcome = collect(connection);
		if (outcome != GO_ON) {
			settle(connection, outcome);
			continue;
		}
		if (!naos_keyd_request_quick(connection->request)) {
			atomic_fetch_add(&shared->busy, 1); /* until it is answered: a stop waits for it */
			if (!wait_in(connection, false, EPOLLOUT)) { /* ready at once, for a thread that has time */
				connection_free(connection);
				atomic_fetch_sub(&shared->busy, 1);
			}
			continue;
		}
		items += naos_keyd_request_items(connection->request);
		group[used++] = connection;
		if (items > NAOS_KEYD_GROUP_ITEMS - NAOS_KEYD_QUICK_ITEMS) {
			answer_all(shared, group, used);
			used = items = 0;
		}
	}
	answer_all(shared, group, used);
	atomic_fetch_sub(&shared->busy, 1);
}

void connection_alone(struct connection *connection)
{
	struct front_shared *shared = connection->shared;
	atomic_fetch_add(&shared->busy, 1);
	if (connection->request) {
		answer_all(shared, &connection, 1);
		atomic_fetch_sub(&shared->busy, 1); /* that it was handed over with */
	} else {
		enum outcome outcome = GO_ON;
		while (outcome == GO_ON && connection->phase == HANDSHAKE)
			outcome = step_handshake(connection);
		settle(connection, outcome);
	}
	atomic_fetch_sub(&shared->busy, 1);
}

/* Sockets and threads of the front; what one connection does is in connection.c.  SPDX-License-Identifier: Apache-2.0 */
#include "front.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <time.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/log.h"
#include "connection.h"

#define MAX_LISTENERS 8
#define MAX_THREADS 256
#define MAX_QUICK_THREADS 16
#define RESERVES 16 /* threads that stand in for quick ones that wait for an HSM or a disk that is stuck */
#define STUCK_NS 100000000LL
#define RESERVE_WAIT_MS 100
#define ACCEPT_BATCH 64
#define TICK_MS 250
#define DRAIN_TICKS 40 /* requests under way get ten seconds */

struct quick_thread {
	struct front *front;
	pthread_t thread;
	bool reserve;
	atomic_bool serves;       /* takes groups now: always, but for a reserve */
	_Atomic int64_t since_ns; /* of the group at work; 0: none */
};

struct front {
	struct front_shared shared;
	int listeners[MAX_LISTENERS];
	size_t listener_count;
	char address[128];
	struct quick_thread quick[MAX_QUICK_THREADS + RESERVES];
	size_t quick_count, quick_started;
	sem_t stuck; /* one reserve is to serve */
	pthread_t threads[MAX_THREADS], ticker;
	size_t thread_count, started;
	bool ticking;
	int stop_fd;
	atomic_bool stopping;
	struct front_counters counters;
};

/* --- sockets ------------------------------------------------------------------------------------------------------- */

static int listen_on(struct front *front, const char *host, const char *port, struct naos_error *err)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV };
	struct addrinfo *found = NULL;
	int yes = 1, failed = getaddrinfo(host, port, &hints, &found);
	if (failed)
		return naos_error_set(err, NAOS_E_CONFIG, "keyd.listen: %s:%s: %s", host, port, gai_strerror(failed));
	naos_autoclose int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	bool ok = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
		  bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 1024) == 0;
	freeaddrinfo(found);
	if (!ok)
		return naos_error_set_errno(err, errno, "keyd.listen: cannot listen on %s port %s", host, port);
	front->listeners[front->listener_count++] = naos_fd_steal(&fd);
	return 0;
}

/* "host:port" or "[v6]:port", separated by spaces or commas. */
static int listen_all(struct front *front, const char *list, struct naos_error *err)
{
	naos_autofree char *copy = strdup(list);
	char *rest = NULL;
	if (!copy)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for addresses");
	for (char *item = strtok_r(copy, ", ", &rest); item; item = strtok_r(NULL, ", ", &rest)) {
		char *colon = strrchr(item, ':');
		if (!colon || colon == item || front->listener_count == MAX_LISTENERS)
			return naos_error_set(err, NAOS_E_CONFIG, "keyd.listen: '%s' is not HOST:PORT (at most %d of them)",
					item, MAX_LISTENERS);
		*colon = 0;
		if (item[0] == '[' && colon[-1] == ']') {
			colon[-1] = 0;
			item++;
		}
		int rc = listen_on(front, item, colon + 1, err);
		if (rc != 0)
			return rc;
	}
	return front->listener_count ? 0 : naos_error_set(err, NAOS_E_CONFIG, "keyd.listen names no address");
}

static void name_first_socket(struct front *front)
{
	struct sockaddr_storage address;
	socklen_t bytes = sizeof(address);
	if (getsockname(front->listeners[0], (struct sockaddr *)&address, &bytes) == 0)
		connection_format_address((struct sockaddr *)&address, bytes, front->address, sizeof(front->address));
}

/* One descriptor for each connection, and some. */
static void raise_descriptors(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static int watch(int epoll_fd, int fd, void *what, uint32_t events, struct naos_error *err)
{
	struct epoll_event event = { .events = events, .data.ptr = what };
	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : naos_error_set_errno(err, errno,
			"cannot watch a socket");
}

int front_open(const struct naos_config *config, SSL_CTX *tls, struct naos_keyd *keyd, struct front **ret, struct naos_error *err)
{
	struct front *front = calloc(1, sizeof(*front));
	if (!front) {
		SSL_CTX_free(tls);
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the front");
	}
	raise_descriptors();
	front_shared_init(&front->shared, config, tls, keyd, &front->counters);
	front->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	uint64_t threads = naos_config_number(config, "keyd", NULL, "threads");
	front->thread_count = threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : (size_t)threads;
	/* larger groups cost less each, and the worker needs cores too; but while one group is with the HSM another is read */
	long threads_wanted = sysconf(_SC_NPROCESSORS_ONLN) / 2 + 1;
	front->quick_count = threads_wanted < 1 ? 1 : threads_wanted > MAX_QUICK_THREADS ? MAX_QUICK_THREADS : (size_t)threads_wanted;
	(void)sem_init(&front->stuck, 0, 0);
	int rc = front->shared.quick_fd >= 0 && front->shared.slow_fd >= 0 && front->stop_fd >= 0 ? 0 : naos_error_set_errno(err, errno,
			"cannot start the event loop");
	if (rc == 0)
		rc = listen_all(front, naos_config_string(config, "keyd", NULL, "listen"), err);
	for (size_t i = 0; rc == 0 && i < front->listener_count; i++)
		rc = watch(front->shared.slow_fd, front->listeners[i], &front->listeners[i], EPOLLIN | EPOLLEXCLUSIVE, err);
	if (rc == 0)
		rc = watch(front->shared.slow_fd, front->stop_fd, &front->stop_fd, EPOLLIN, err);
	if (rc == 0)
		rc = watch(front->shared.quick_fd, front->stop_fd, &front->stop_fd, EPOLLIN, err);
	if (rc != 0) {
		(void)front_stop(front);
		return rc;
	}
	name_first_socket(front);
	*ret = front;
	return 0;
}

/* --- threads ------------------------------------------------------------------------------------------------------- */

static void accept_some(struct front *front, int listener)
{
	for (int i = 0; i < ACCEPT_BATCH && !front->stopping; i++) {
		struct sockaddr_storage address;
		socklen_t bytes = sizeof(address);
		int yes = 1, fd = accept4(listener, (struct sockaddr *)&address, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0 && (errno == EMFILE || errno == ENFILE))
			(void)usleep(10000); /* the socket stays ready: do not spin until a connection ends */
		if (fd < 0)
			return;
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
		connection_start(&front->shared, fd, (struct sockaddr *)&address, bytes);
	}
}

static int64_t now_ns(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Every thread that serves groups has been at one for long, so nobody reads what else comes. */
static bool all_stuck(struct front *front)
{
	int64_t now = now_ns();
	for (size_t i = 0; i < front->quick_started; i++) {
		const struct quick_thread *quick = &front->quick[i];
		int64_t since = atomic_load(&quick->since_ns);
		if (atomic_load(&quick->serves) && (since == 0 || now - since < STUCK_NS))
			return false;
	}
	return true;
}

/* Whether the threads that always serve are all stuck. */
static bool is_needed(struct front *front)
{
	int64_t now = now_ns();
	for (size_t i = 0; i < front->quick_count; i++) {
		int64_t since = atomic_load(&front->quick[i].since_ns);
		if (since == 0 || now - since < STUCK_NS)
			return false;
	}
	return true;
}

static void serve_group(struct quick_thread *quick)
{
	struct front *front = quick->front;
	struct epoll_event events[CONNECTION_GROUP];
	struct connection *ready[CONNECTION_GROUP];
	size_t used = 0;
	int count = epoll_wait(front->shared.quick_fd, events, CONNECTION_GROUP, quick->reserve ? RESERVE_WAIT_MS : -1);
	for (int i = 0; i < count; i++)
		if (events[i].data.ptr != &front->stop_fd)
			ready[used++] = events[i].data.ptr;
	atomic_store(&quick->since_ns, now_ns());
	connection_group(&front->shared, ready, used);
	atomic_store(&quick->since_ns, 0);
}

static void *serve_groups(void *argument)
{
	struct quick_thread *quick = argument;
	struct front *front = quick->front;
	while (!front->stopping) {
		if (quick->reserve && sem_wait(&front->stuck) != 0)
			continue;
		atomic_store(&quick->serves, true);
		do
			serve_group(quick);
		while (!front->stopping && (!quick->reserve || is_needed(front)));
		atomic_store(&quick->serves, false);
	}
	return NULL;
}

static void *serve(void *argument)
{
	struct front *front = argument;
	for (;;) { /* what was handed over before a stop is still answered */
		struct epoll_event event;
		int count = epoll_wait(front->shared.slow_fd, &event, 1, -1);
		if (count <= 0)
			continue;
		int *fd = event.data.ptr;
		if (fd == &front->stop_fd)
			break;
		if (fd >= front->listeners && fd < front->listeners + MAX_LISTENERS)
			accept_some(front, *fd);
		else
			connection_alone(event.data.ptr);
	}
	return NULL;
}

static void *tick(void *argument)
{
	struct front *front = argument;
	while (!front->stopping) {
		int called = 0;
		(void)usleep(TICK_MS * 1000);
		connection_expire_all(&front->shared, false);
		(void)sem_getvalue(&front->stuck, &called);
		if (called == 0 && all_stuck(front))
			(void)sem_post(&front->stuck);
	}
	return NULL;
}

int front_start(struct front *front, struct naos_error *err)
{
	for (; front->quick_started < front->quick_count + RESERVES; front->quick_started++) {
		struct quick_thread *quick = &front->quick[front->quick_started];
		quick->front = front;
		quick->reserve = front->quick_started >= front->quick_count;
		quick->serves = !quick->reserve;
		if (pthread_create(&quick->thread, NULL, serve_groups, quick) != 0)
			return naos_error_set(err, NAOS_E_NOMEM, "cannot start a thread");
	}
	for (; front->started < front->thread_count; front->started++)
		if (pthread_create(&front->threads[front->started], NULL, serve, front) != 0)
			return naos_error_set(err, NAOS_E_NOMEM, "cannot start thread %zu of %zu", front->started + 1,
					front->thread_count);
	front->ticking = pthread_create(&front->ticker, NULL, tick, front) == 0;
	return front->ticking ? 0 : naos_error_set(err, NAOS_E_NOMEM, "cannot start the thread that watches deadlines");
}

void front_set_tls(struct front *front, SSL_CTX *tls)
{
	front_shared_set_tls(&front->shared, tls);
}

struct front_counters *front_counters(struct front *front)
{
	return &front->counters;
}

unsigned front_busy(struct front *front)
{
	return atomic_load(&front->shared.busy);
}

void front_tls_ends(struct front *front, struct keyd_tls_ends *ret)
{
	SSL_CTX *tls = front_shared_tls(&front->shared);
	keyd_tls_find_ends(tls, ret);
	SSL_CTX_free(tls);
}

const char *front_address(const struct front *front)
{
	return front->address;
}

struct front *front_stop(struct front *front)
{
	for (size_t i = 0; i < front->listener_count; i++) {
		(void)epoll_ctl(front->shared.slow_fd, EPOLL_CTL_DEL, front->listeners[i], NULL);
		(void)shutdown(front->listeners[i], SHUT_RDWR);
	}
	front->stopping = true;
	for (int i = 0; i < DRAIN_TICKS && front->started && atomic_load(&front->shared.busy); i++)
		(void)usleep(TICK_MS * 1000);
	const uint64_t one = 1;
	(void)!write(front->stop_fd, &one, sizeof(one));
	for (size_t i = 0; i < front->quick_started; i++)
		(void)sem_post(&front->stuck);
	for (size_t i = 0; i < front->quick_started; i++)
		(void)pthread_join(front->quick[i].thread, NULL);
	for (size_t i = 0; i < front->started; i++)
		(void)pthread_join(front->threads[i], NULL);
	if (front->ticking)
		(void)pthread_join(front->ticker, NULL);
	connection_expire_all(&front->shared, true);
	for (size_t i = 0; i < front->listener_count; i++)
		naos_close_descriptor(&front->listeners[i]);
	naos_close_descriptor(&front->stop_fd);
	(void)sem_destroy(&front->stuck);
	front_shared_clear(&front->shared);
	free(front);
	return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "transport_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>

#include "identity.h"
#include "seal/walk.h"

#define THREADS_MAX 64u        /* that read /dev/fuse */
#define RING_THREADS_MAX 2048u /* that wait at a ring */
#define RING_ANSWER_BYTES ((size_t)256 << 10)
#define WAKE_SIGNAL SIGUSR1
#define LARGE_BYTES 65536u
#define WATCH_MS 100
#define SOON_NS 10000u  /* a request that comes sooner had been waiting */
#define CALL_AFTER 8    /* more such requests than others: one more reader waits from now on */
#define REST_AFTER (-64) /* more of the others: one less */

/* In later versions of <linux/fuse.h> than Debian 12 has. */
#define INIT_DIRECT_IO_ALLOW_MMAP ((uint64_t)1 << 36)
#define INIT_OVER_IO_URING ((uint64_t)1 << 41)

static __thread struct worker *self;
static __thread struct channel *borrowed; /* of a thread that is no worker */

/* --- what libfuse 3.14 lacks ---------------------------------------------------------------------------------------------- */

static const void *body(void)
{
	return self->header + 1;
}

bool transport_kills_privileges(void)
{
	switch (self->header->opcode) {
	case FUSE_WRITE:
		return (((const struct fuse_write_in *)body())->write_flags & FUSE_WRITE_KILL_SUIDGID) != 0;
	case FUSE_SETATTR:
		return (((const struct fuse_setattr_in *)body())->valid & FATTR_KILL_SUIDGID) != 0;
	case FUSE_OPEN:
		return (((const struct fuse_open_in *)body())->open_flags & FUSE_OPEN_KILL_SUIDGID) != 0;
	default:
		return false;
	}
}

bool transport_is_tmpfile(void)
{
	return self->tmpfile;
}

uint8_t *transport_buffer(size_t *ret_bytes)
{
	uint8_t *own = self->ring ? ring_buffer(self->ring) : NULL; /* saves a copy */
	*ret_bytes = own || !self->ring ? NAOS_FS_REQUEST_BYTES : RING_ANSWER_BYTES;
	return own ? own : self->answer;
}

/* Capabilities that this libfuse has no names for. */
static void complete_init(struct naos_fs *fs, struct fuse_init_out *out)
{
	const struct fuse_init_in *in = body();
	uint64_t offered = in->flags | (in->flags & FUSE_INIT_EXT ? (uint64_t)in->flags2 << 32 : 0);
	uint64_t wanted = FUSE_HANDLE_KILLPRIV_V2 | (fs->shared ? INIT_DIRECT_IO_ALLOW_MMAP : 0);
	/* mode = shared waits for locks of other nodes: too many threads of one queue would, and a lock is answered later */
	bool uring = fs->wanted_transport != FS_TRANSPORT_DEV && !fs->shared;
	if (uring && (offered & INIT_OVER_IO_URING) && rings_create(fs))
		wanted |= INIT_OVER_IO_URING;
	uint64_t added = offered & wanted;
	out->flags |= (uint32_t)added;
	if (added >> 32) {
		out->flags |= FUSE_INIT_EXT;
		out->flags2 |= (uint32_t)(added >> 32);
	}
}

static void complete_answer(struct naos_fs *fs, struct iovec *iov, int count)
{
	if (count < 2 || !self->header)
		return;
	if (self->header->opcode == FUSE_INIT && iov[1].iov_len >= sizeof(struct fuse_init_out)) {
		complete_init(fs, iov[1].iov_base);
	} else if (self->header->opcode == FUSE_OPEN && iov[1].iov_len == sizeof(struct fuse_open_out)) {
		struct fuse_open_out *out = iov[1].iov_base;
		if (out->open_flags & FOPEN_DIRECT_IO)
			out->open_flags |= FOPEN_PARALLEL_DIRECT_WRITES;
	} else if (self->header->opcode == FUSE_CREATE &&
		   iov[1].iov_len == sizeof(struct fuse_entry_out) + sizeof(struct fuse_open_out)) {
		struct fuse_open_out *out = (void *)((uint8_t *)iov[1].iov_base + sizeof(struct fuse_entry_out));
		if (out->open_flags & FOPEN_DIRECT_IO)
			out->open_flags |= FOPEN_PARALLEL_DIRECT_WRITES;
	}
}

static ssize_t answer(int fd, struct iovec *iov, int count, void *context)
{
	const struct fuse_out_header *out = iov[0].iov_base;
	if (out->unique == 0) /* no answer: something that the kernel is told */
		return writev(fd, iov, count);
	if (!self)
		return writev(borrowed ? borrowed->fd : fd, iov, count);
	if (out->error == 0)
		complete_answer(self->fs, iov, count);
	return self->ring ? ring_answer(self->ring, iov, count) : writev(self->channel->fd, iov, count);
}

static ssize_t receive(int fd, void *buffer, size_t bytes, void *context)
{
	return read(self->channel->fd, buffer, bytes);
}

struct channel *transport_hold_channel(void)
{
	self->channel->users++;
	return self->channel;
}

void transport_use_channel(struct channel *channel)
{
	borrowed = channel;
}

void transport_release_channel(struct channel *channel)
{
	if (!channel || --channel->users > 0)
		return;
	(void)close(channel->fd);
	free(channel);
}

/* --- threads ------------------------------------------------------------------------------------------------------------- */

void transport_process(struct worker *worker)
{
	struct fuse_in_header *header = worker->request.mem;
	worker->header = header;
	worker->tmpfile = header->opcode == FUSE_TMPFILE;
	if (worker->tmpfile) /* the same body: libfuse decodes it as a create */
		header->opcode = FUSE_CREATE;
	fuse_session_process_buf(worker->fs->session, &worker->request);
	worker->header = NULL;
}

/* Requests that are known to wait long: for a disk, a lock, the key manager; and those large enough that another core should
 * take the next one meanwhile. */
static bool takes_long(const struct worker *worker)
{
	const struct fuse_in_header *header = worker->request.mem;
	bool shared = worker->fs->shared; /* another node may be in the way */
	switch (header->opcode) {
	case FUSE_READ:
		return shared || ((const struct fuse_read_in *)(header + 1))->size >= LARGE_BYTES;
	case FUSE_WRITE:
		return shared || header->len >= LARGE_BYTES;
	case FUSE_OPEN:
		return shared; /* else it calls itself before it waits */
	case FUSE_FSYNC:
	case FUSE_FSYNCDIR:
	case FUSE_SETLKW:
	case FUSE_FALLOCATE:
	case FUSE_COPY_FILE_RANGE:
	case FUSE_LSEEK:
		return true;
	default:
		return false;
	}
}

static void spawn(struct naos_fs *fs);

/* One more reader: a thread that stands aside, or a new one. */
static void call_reader(struct naos_fs *fs)
{
	struct transport *transport = fs->transport;
	(void)pthread_mutex_lock(&transport->lock);
	bool called = transport->calls < transport->aside;
	if (called) {
		transport->calls++;
		(void)pthread_cond_signal(&transport->more);
	}
	(void)pthread_mutex_unlock(&transport->lock);
	if (!called)
		spawn(fs);
}

/* Until this thread is needed again.  The kernel wakes the reader that waits longest, often on a core that sleeps: each reader
 * more than needed makes requests slower. */
static void stand_aside(struct naos_fs *fs)
{
	struct transport *transport = fs->transport;
	(void)pthread_mutex_lock(&transport->lock);
	transport->aside++;
	while (transport->calls == 0 && !fuse_session_exited(fs->session))
		(void)pthread_cond_wait(&transport->more, &transport->lock);
	transport->calls -= transport->calls > 0;
	transport->aside--;
	(void)pthread_mutex_unlock(&transport->lock);
}

/* Short requests don't call for another reader, but any may hang below: so one is called when nothing was answered for a while
 * and nobody reads. */
static void *watch(void *context)
{
	struct naos_fs *fs = context;
	struct transport *transport = fs->transport;
	unsigned long before = 0;
	while (!fuse_session_exited(fs->session)) {
		(void)nanosleep(&(struct timespec){ .tv_nsec = WATCH_MS * 1000000L }, NULL);
		unsigned long answered = transport->answered;
		if (answered == before && transport->idle == 0 && !fuse_session_exited(fs->session))
			call_reader(fs);
		before = answered;
	}
	(void)pthread_mutex_lock(&transport->lock);
	(void)pthread_cond_broadcast(&transport->more);
	(void)pthread_mutex_unlock(&transport->lock);
	return NULL;
}

void transport_may_wait(struct naos_fs *fs)
{
	if (self && !self->ring && fs->transport->idle == 0) /* of threads with rings there is always one that waits for requests */
		call_reader(fs);
}

static uint64_t now_ns(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* How many readers should wait: one for a program that waits for each answer before it asks on, more for streams of large requests and
 * for several programs.  A guess: it does no harm if two threads change it at once. */
static void adapt(struct worker *worker, bool waited)
{
	struct transport *transport = worker->fs->transport;
	const struct fuse_in_header *header = worker->request.mem;
	bool large = (header->opcode == FUSE_READ || header->opcode == FUSE_WRITE) && takes_long(worker);
	/* one program alone may have run on this core between its answer and now; what nobody waits for has no number */
	bool pressed = !waited && header->pid && header->pid != worker->asked_by;
	worker->asked_by = header->pid ? header->pid : worker->asked_by;
	int pressure = pressed ? ++transport->pressure : --transport->pressure;
	if (!large && pressure < CALL_AFTER && pressure > REST_AFTER)
		return;
	transport->pressure = 0;
	if (!large && pressure <= REST_AFTER)
		transport->wanted -= transport->wanted > 1;
	else if (transport->wanted < transport->idle_max && ++transport->wanted && transport->idle == 0)
		call_reader(worker->fs);
}

static void serve(struct worker *worker)
{
	struct naos_fs *fs = worker->fs;
	struct transport *transport = fs->transport;
	for (;;) {
		transport->idle++;
		uint64_t begin = now_ns();
		int got = fuse_session_exited(fs->session) ? 0 : fuse_session_receive_buf(fs->session, &worker->request);
		unsigned idle = --transport->idle;
		if (got == -EINTR)
			continue;
		if (got <= 0) {
			fuse_session_exit(fs->session);
			return;
		}
		if (idle == 0 && takes_long(worker))
			call_reader(fs);
		adapt(worker, now_ns() - begin >= SOON_NS);
		transport_process(worker);
		transport->answered++;
		if (transport->idle >= transport->wanted && !fuse_session_exited(fs->session))
			stand_aside(fs);
	}
}

static void *run(void *context)
{
	struct worker *worker = context;
	struct transport *transport = worker->fs->transport;
	self = worker;
	identity_start_thread();
	if (worker->ring) {
		ring_serve(worker);
		ring_free(worker->ring);
	} else {
		serve(worker);
		free(worker->request.mem);
		transport_release_channel(worker->channel);
	}
	free(worker->answer);
	(void)pthread_mutex_lock(&transport->lock);
	worker->used = false;
	(void)pthread_detach(worker->thread);
	if (--transport->running == 0 && transport->ended)
		transport->ended(transport->context);
	(void)pthread_cond_broadcast(&transport->gone);
	(void)pthread_mutex_unlock(&transport->lock);
	return NULL;
}

static int clone_device(struct naos_fs *fs)
{
	uint32_t master = (uint32_t)fuse_session_fd(fs->session);
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fd >= 0 && ioctl(fd, FUSE_DEV_IOC_CLONE, &master) == 0)
		return fd;
	if (fd >= 0)
		(void)close(fd);
	return fcntl((int)master, F_DUPFD_CLOEXEC, 0); /* an older kernel: one queue for all */
}

static struct channel *make_channel(int fd)
{
	struct channel *channel = malloc(sizeof(*channel));
	if (channel) {
		channel->fd = fd;
		channel->users = 1;
	}
	return channel;
}

/* Takes fd, also on failure; the ring only on success. */
static bool add_worker(struct naos_fs *fs, int fd, struct ring *ring)
{
	struct transport *transport = fs->transport;
	bool added = false;
	(void)pthread_mutex_lock(&transport->lock);
	for (unsigned i = 0; i < transport->slots; i++) {
		struct worker *worker = &transport->workers[i];
		if (worker->used)
			continue;
		*worker = (struct worker){ .fs = fs, .used = true, .ring = ring };
		worker->channel = ring ? NULL : make_channel(fd);
		added = (ring || worker->channel) &&
			posix_memalign((void **)&worker->answer, 4096, ring ? RING_ANSWER_BYTES : NAOS_FS_REQUEST_BYTES) == 0 &&
			pthread_create(&worker->thread, NULL, run, worker) == 0;
		if (!added) {
			free(worker->answer);
			free(worker->channel);
		}
		worker->used = added;
		transport->running += added;
		break;
	}
	(void)pthread_mutex_unlock(&transport->lock);
	if (!added && fd >= 0)
		(void)close(fd);
	return added;
}

bool transport_add_ring(struct naos_fs *fs, struct ring *ring)
{
	return add_worker(fs, -1, ring);
}

/* One more thread, if there may be one.  It is no error if not: the others go on. */
static void spawn(struct naos_fs *fs)
{
	int fd = clone_device(fs);
	if (fd >= 0)
		(void)add_worker(fs, fd, NULL);
}

/* --- life ------------------------------------------------------------------------------------------------------------------ */

static void woken(int signal)
{
}

int transport_open(struct naos_fs *fs, struct naos_error *err)
{
	static const struct fuse_custom_io io = { .writev = answer, .read = receive };
	struct transport *transport = calloc(1, sizeof(*transport));
	const unsigned slots = THREADS_MAX + RING_THREADS_MAX;
	struct worker *workers = transport ? calloc(slots, sizeof(*workers)) : NULL;
	if (!workers) {
		free(transport);
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the threads of the file system");
	}
	transport->workers = workers;
	transport->slots = slots;
	(void)pthread_mutex_init(&transport->lock, NULL);
	(void)pthread_cond_init(&transport->gone, NULL);
	(void)pthread_cond_init(&transport->more, NULL);
	transport->idle_max = fs->threads ? fs->threads : 2 * naos_walk_default_jobs();
	if (transport->idle_max >= THREADS_MAX)
		transport->idle_max = THREADS_MAX - 1;
	transport->wanted = 1;
	fs->transport = transport;
	int rc = fuse_session_custom_io(fs->session, &io, fuse_session_fd(fs->session));
	if (rc != 0)
		return naos_error_set_errno(err, -rc, "cannot take over the descriptor of the mount");
	const struct sigaction action = { .sa_handler = woken }; /* a blocked read ends with EINTR */
	(void)sigaction(WAKE_SIGNAL, &action, NULL);
	struct channel master = { .fd = fuse_session_fd(fs->session), .users = 1 };
	struct worker first = { .fs = fs, .channel = &master };
	self = &first;
	int got;
	do
		got = fuse_session_receive_buf(fs->session, &first.request);
	while (got == -EINTR);
	if (got > 0)
		transport_process(&first);
	self = NULL;
	free(first.request.mem);
	if (got > 0 && fs->wanted_transport == FS_TRANSPORT_URING && !transport->rings)
		return naos_error_set(err, NAOS_E_UNSUPPORTED, "this kernel does not offer FUSE over io_uring: it needs Linux 6.14, and "
				      "'Y' in /sys/module/fuse/parameters/enable_uring; or mount with transport=auto");
	return got > 0 ? 0 : naos_error_set_errno(err, got ? -got : ENODEV, "the kernel did not begin to talk");
}

int transport_start(struct naos_fs *fs, void (*ended)(void *context), void *context, struct naos_error *err)
{
	struct transport *transport = fs->transport;
	transport->ended = ended;
	transport->context = context;
	if (transport->rings) {
		transport->idle_max = 1; /* what comes by /dev/fuse now is forgetting and interrupting */
		if (!rings_start(fs))
			return naos_error_set_errno(err, errno, "cannot start a thread of the file system");
	}
	spawn(fs);
	transport->watched = pthread_create(&transport->watcher, NULL, watch, fs) == 0;
	(void)pthread_mutex_lock(&transport->lock); /* they start others by now */
	unsigned running = transport->running;
	(void)pthread_mutex_unlock(&transport->lock);
	return running ? 0 : naos_error_set_errno(err, errno, "cannot start a thread of the file system");
}

void transport_stop(struct naos_fs *fs)
{
	struct transport *transport = fs->transport;
	fuse_session_exit(fs->session);
	if (transport->watched)
		(void)pthread_join(transport->watcher, NULL);
	transport->watched = false;
	(void)pthread_mutex_lock(&transport->lock);
	(void)pthread_cond_broadcast(&transport->more);
	while (transport->running > 0) {
		struct timespec until;
		for (unsigned i = 0; i < transport->slots; i++)
			if (transport->workers[i].used)
				(void)pthread_kill(transport->workers[i].thread, WAKE_SIGNAL);
		(void)clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += 50000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		(void)pthread_cond_timedwait(&transport->gone, &transport->lock, &until);
	}
	(void)pthread_mutex_unlock(&transport->lock);
}

void transport_free(struct naos_fs *fs)
{
	if (!fs->transport)
		return;
	(void)pthread_cond_destroy(&fs->transport->gone);
	(void)pthread_cond_destroy(&fs->transport->more);
	(void)pthread_mutex_destroy(&fs->transport->lock);
	rings_free(fs);
	free(fs->transport->workers);
	free(fs->transport);
	fs->transport = NULL;
}

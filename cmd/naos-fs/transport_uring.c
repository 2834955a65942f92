/* Requests by io_uring (Linux 6.14 and later, where the administrator has set the parameter enable_uring of the module fuse).  The
 * kernel has a queue for each CPU; a request goes to a thread that waits there, and its answer and the wait for the next request are
 * one system call.  Each thread has a ring of its own with one request in it; the kernel gives a request to the thread that came back
 * last, so further threads cost nothing while they aren't needed.  SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <liburing.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "transport_inside.h"

#define THREADS_FIRST 2u /* of a queue, at the beginning */
#define THREADS_MOST 32u
#define PAGE_BYTES 4096u

/* In later versions of <linux/fuse.h> than Debian 12 has. */
#define HEADER_ROOM 128u
#define COMMAND_REGISTER 1u
#define COMMAND_COMMIT_AND_FETCH 2u

struct ring_header {
	union {
		struct fuse_in_header in;
		struct fuse_out_header out;
		uint8_t room[HEADER_ROOM];
	};
	uint8_t arguments[HEADER_ROOM]; /* the structure that belongs to the operation, if it has one */
	uint64_t flags;
	uint64_t commit_id;
	uint32_t payload_bytes; /* what follows that structure, or the answer */
	uint32_t padding;
	uint64_t reserved;
};
_Static_assert(sizeof(struct ring_header) == 2 * HEADER_ROOM + 32, "as the kernel has it");

struct ring_command { /* in a submission entry of 128 bytes */
	uint64_t flags;
	uint64_t commit_id;
	uint16_t queue;
	uint8_t padding[6];
};

/* Of one CPU. */
struct queue {
	atomic_uint idle;    /* threads that wait for a request */
	atomic_uint threads;
};

struct rings {
	unsigned queues;
	struct ring **first; /* until they are started: THREADS_FIRST of each queue */
	struct queue queue[];
};

struct ring {
	struct io_uring uring;
	unsigned queue;
	int fd; /* /dev/fuse */
	struct ring_header *header; /* a page; the page of memory behind it and what follows belong together, too: */
	uint8_t *payload;           /* NAOS_FS_REQUEST_BYTES; the page before it is free for what libfuse wants before it */
	struct iovec parts[2];      /* header and payload, for the kernel */
	uint64_t commit_id;
	bool answered;
	bool registered;
};

#define RING_BYTES (2 * PAGE_BYTES + NAOS_FS_REQUEST_BYTES)

void ring_free(struct ring *ring)
{
	if (!ring)
		return;
	io_uring_queue_exit(&ring->uring);
	(void)munmap(ring->header, RING_BYTES);
	free(ring);
}

static struct ring *ring_create(struct naos_fs *fs, unsigned queue)
{
	struct io_uring_params params = { .flags = IORING_SETUP_SQE128 };
	struct ring *ring = calloc(1, sizeof(*ring));
	void *memory = ring ? mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
	if (memory == MAP_FAILED || madvise(memory, RING_BYTES, MADV_DONTDUMP) != 0 ||
	    io_uring_queue_init_params(4, &ring->uring, &params) != 0) {
		if (memory != MAP_FAILED)
			(void)munmap(memory, RING_BYTES);
		free(ring);
		return NULL;
	}
	ring->queue = queue;
	ring->fd = fuse_session_fd(fs->session);
	ring->header = memory;
	ring->payload = (uint8_t *)memory + 2 * PAGE_BYTES;
	ring->parts[0] = (struct iovec){ ring->header, sizeof(*ring->header) };
	ring->parts[1] = (struct iovec){ ring->payload, NAOS_FS_REQUEST_BYTES };
	return ring;
}

/* --- one request ------------------------------------------------------------------------------------------------------------ */

/* Puts the next command into the ring: it is submitted by the next wait. */
static bool command(struct ring *ring)
{
	struct io_uring_sqe *entry = io_uring_get_sqe(&ring->uring);
	if (!entry)
		return false;
	memset(entry, 0, 2 * sizeof(*entry));
	entry->opcode = IORING_OP_URING_CMD;
	entry->fd = ring->fd;
	entry->cmd_op = ring->registered ? COMMAND_COMMIT_AND_FETCH : COMMAND_REGISTER;
	if (!ring->registered) {
		entry->addr = (uint64_t)(uintptr_t)ring->parts;
		entry->len = NAOS_ARRAY_LENGTH(ring->parts);
	}
	const struct ring_command what = { .commit_id = ring->registered ? ring->commit_id : 0, .queue = (uint16_t)ring->queue };
	memcpy(entry->cmd, &what, sizeof(what));
	return true;
}

ssize_t ring_answer(struct ring *ring, const struct iovec *iov, int count)
{
	size_t used = 0;
	ring->header->out = *(const struct fuse_out_header *)iov[0].iov_base;
	for (int i = 1; i < count; i++) {
		if (iov[i].iov_len > NAOS_FS_REQUEST_BYTES - used) {
			used = 0;
			ring->header->out.error = -EIO;
			break;
		}
		if (iov[i].iov_base != ring->payload + used)
			memcpy(ring->payload + used, iov[i].iov_base, iov[i].iov_len);
		used += iov[i].iov_len;
	}
	ring->header->payload_bytes = (uint32_t)used;
	ring->header->out.len = (uint32_t)(sizeof(ring->header->out) + used);
	ring->answered = true;
	return (ssize_t)ring->header->out.len;
}

uint8_t *ring_buffer(struct ring *ring)
{
	return ring->header->payload_bytes ? NULL : ring->payload;
}

/* Header, arguments and payload lie apart; libfuse wants them as /dev/fuse delivers them, one behind the other. */
static bool put_together(struct worker *worker)
{
	struct ring *ring = worker->ring;
	const struct ring_header *header = ring->header;
	size_t all = header->in.len, before = all - header->payload_bytes;
	if (header->payload_bytes > NAOS_FS_REQUEST_BYTES || before < sizeof(header->in) || before > sizeof(header->in) + HEADER_ROOM)
		return false;
	uint8_t *begin = ring->payload - before;
	memcpy(begin, &header->in, sizeof(header->in));
	memcpy(begin + sizeof(header->in), header->arguments, before - sizeof(header->in));
	worker->request.mem = begin;
	worker->request.size = all;
	return true;
}

static void handle(struct worker *worker)
{
	struct ring *ring = worker->ring;
	struct fuse_out_header refused = { .len = sizeof(refused), .error = -EIO, .unique = ring->header->in.unique };
	ring->commit_id = ring->header->commit_id;
	ring->answered = false;
	if (put_together(worker))
		transport_process(worker);
	if (!ring->answered) /* whatever happened, somebody waits */
		(void)ring_answer(ring, &(struct iovec){ &refused, sizeof(refused) }, 1);
}

/* --- threads ---------------------------------------------------------------------------------------------------------------- */

static void add_thread(struct naos_fs *fs, unsigned number)
{
	struct queue *queue = &fs->transport->rings->queue[number];
	if (++queue->threads > THREADS_MOST) {
		queue->threads--;
		return;
	}
	struct ring *ring = ring_create(fs, number);
	if (!ring || !transport_add_ring(fs, ring)) {
		ring_free(ring);
		queue->threads--;
	}
}

/* The next completion: 0 if there is a request, or a negative errno. */
static int wait_for_request(struct worker *worker)
{
	struct ring *ring = worker->ring;
	struct io_uring_cqe *done;
	while (!fuse_session_exited(worker->fs->session)) {
		int rc = io_uring_submit_and_wait(&ring->uring, 1);
		if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY)
			return rc;
		if (io_uring_peek_cqe(&ring->uring, &done) != 0)
			continue;
		rc = done->res;
		io_uring_cqe_seen(&ring->uring, done);
		if (rc == 0 || (rc != -EINTR && rc != -EAGAIN))
			return rc;
		if (!command(ring)) /* again */
			return -EBUSY;
	}
	return -ENOTCONN;
}

void ring_serve(struct worker *worker)
{
	struct naos_fs *fs = worker->fs;
	struct ring *ring = worker->ring;
	struct queue *queue = &fs->transport->rings->queue[ring->queue];
	cpu_set_t cpus;
	CPU_ZERO(&cpus);
	CPU_SET(ring->queue, &cpus);
	(void)sched_setaffinity(0, sizeof(cpus), &cpus); /* a CPU that is not there yet: anywhere */
	while (command(ring)) {
		queue->idle++;
		int rc = wait_for_request(worker);
		unsigned idle = --queue->idle;
		if (rc != 0) {
			if (rc != -ENOTCONN && rc != -ECANCELED && !fuse_session_exited(fs->session))
				naos_log(NAOS_LOG_ERROR, "event=ring-failed queue=%u errno=%s", ring->queue, strerrorname_np(-rc));
			break;
		}
		ring->registered = true;
		if (idle == 0) /* this request may wait for a disk, a lock or the key manager: others must not wait for it */
			add_thread(fs, ring->queue);
		handle(worker);
		fs->transport->answered++;
	}
	fuse_session_exit(fs->session);
}

/* --- life ------------------------------------------------------------------------------------------------------------------- */

bool rings_create(struct naos_fs *fs)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	unsigned queues = cpus > 0 ? (unsigned)cpus : 1;
	struct rings *rings = calloc(1, sizeof(*rings) + queues * sizeof(rings->queue[0]));
	if (!rings)
		return false;
	rings->queues = queues;
	rings->first = calloc((size_t)queues * THREADS_FIRST, sizeof(*rings->first));
	fs->transport->rings = rings;
	for (unsigned i = 0; rings->first && i < queues * THREADS_FIRST; i++) {
		rings->first[i] = ring_create(fs, i / THREADS_FIRST);
		if (!rings->first[i])
			break;
	}
	if (rings->first && rings->first[queues * THREADS_FIRST - 1])
		return true;
	rings_free(fs);
	return false;
}

bool rings_start(struct naos_fs *fs)
{
	struct rings *rings = fs->transport->rings;
	for (unsigned i = 0; i < rings->queues * THREADS_FIRST; i++) {
		rings->queue[i / THREADS_FIRST].threads++;
		if (!transport_add_ring(fs, rings->first[i]))
			return false;
		rings->first[i] = NULL;
	}
	return true;
}

void rings_free(struct naos_fs *fs)
{
	struct rings *rings = fs->transport->rings;
	if (!rings)
		return;
	for (unsigned i = 0; rings->first && i < rings->queues * THREADS_FIRST; i++)
		ring_free(rings->first[i]);
	free(rings->first);
	free(rings);
	fs->transport->rings = NULL;
}

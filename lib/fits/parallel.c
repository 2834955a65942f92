/* A large part of the result into memory, by several threads.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/mman.h>

#include "fits/frame_inside.h"
#include "fits/threads.h"

#define STEP_BYTES ((uint64_t)1 << 20) /* taken by a thread at once: fits its cache, and costs a lock each */

struct reading {
	struct naos_frame *frame;
	uint8_t *out;
	uint64_t offset, end; /* in the result; offset: of out */
	struct frame_threads threads;
	pthread_mutex_t lock; /* guards what follows */
	uint64_t at;
	size_t piece;
};

/* Up to the end of a piece, or to a place in it where a segment ends, so that no segment is decrypted twice. */
static bool next_step(struct reading *reading, uint64_t *ret_offset, size_t *ret_bytes)
{
	const struct naos_frame *frame = reading->frame;
	(void)pthread_mutex_lock(&reading->lock);
	bool more = !reading->threads.failed && reading->at < reading->end;
	if (more) {
		while (frame->pieces[reading->piece].offset + frame->pieces[reading->piece].bytes <= reading->at)
			reading->piece++;
		const struct frame_piece *piece = &frame->pieces[reading->piece];
		uint64_t segment = frame->manifest.segment_bytes, step = segment < STEP_BYTES ? STEP_BYTES / segment * segment : segment;
		uint64_t inside = reading->at - piece->offset, stop = piece->offset + (inside / step + 1) * step;
		if (stop > piece->offset + piece->bytes)
			stop = piece->offset + piece->bytes;
		if (stop > reading->end)
			stop = reading->end;
		*ret_offset = reading->at;
		*ret_bytes = (size_t)(stop - reading->at);
		reading->at = stop;
	}
	(void)pthread_mutex_unlock(&reading->lock);
	return more;
}

/* Pages that nobody touched yet are made at once here, which takes half the time of as many page faults; where they are there, or the
 * kernel can't, nothing is lost. */
static void make_pages(uint8_t *out, size_t bytes)
{
	const uintptr_t page = 4095, from = ((uintptr_t)out + page) & ~page, to = ((uintptr_t)out + bytes) & ~page;
	if (to > from)
		(void)madvise(out + (from - (uintptr_t)out), to - from, MADV_POPULATE_WRITE);
}

static int read_some(void *context, struct naos_error *err)
{
	struct reading *reading = context;
	uint64_t offset;
	size_t bytes, got;
	int rc = 0;
	while (rc == 0 && next_step(reading, &offset, &bytes)) {
		make_pages(reading->out + (offset - reading->offset), bytes);
		rc = naos_frame_read_at(reading->frame, reading->out + (offset - reading->offset), bytes, offset, &got, err);
	}
	return rc;
}

int frame_read_parallel(struct naos_frame *frame, void *buffer, size_t bytes, uint64_t offset, unsigned jobs, size_t *ret_bytes,
			struct naos_error *err)
{
	struct reading reading = { .frame = frame, .out = buffer, .offset = offset, .at = offset };
	if (offset >= frame->result_bytes)
		bytes = 0;
	else if (bytes > frame->result_bytes - offset)
		bytes = (size_t)(frame->result_bytes - offset);
	uint64_t steps = bytes / STEP_BYTES + 1;
	reading.end = offset + bytes;
	reading.threads = (struct frame_threads){ .work = read_some, .context = &reading };
	(void)pthread_mutex_init(&reading.lock, NULL);
	int rc = frame_threads_run(&reading.threads, steps < jobs ? (unsigned)steps : jobs, err);
	(void)pthread_mutex_destroy(&reading.lock);
	if (rc != 0)
		memset(buffer, 0, bytes);
	else
		*ret_bytes = bytes;
	return rc;
}

/* Segments from the host into the memory of the device: several threads read while the device uploads and opens.
 * SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "engine/backend.h"
#include "engine/gpu_inside.h"

#define MOST_SEGMENTS 64u /* of one upload */
#define MOST_JOBS 8u      /* what feeds PCI Express, at about 7 GB/s a reader */

/* Work that threads share. */
struct opening {
	struct naos_gpu *gpu;
	const struct naos_gcm_key *key;
	const struct naos_gpu_source *source;
	struct naos_gpu_memory *memory;
	atomic_uint_fast64_t next; /* segment that nobody has taken */
	uint64_t at_once;          /* segments of one upload */
	atomic_int failed;
	pthread_mutex_t lock; /* guards what follows */
	struct naos_error err;
	uint64_t failed_index;
};

/* One upload: what a buffer holds. */
struct upload {
	uint64_t first;
	uint32_t count;
	struct naos_gpu_segment described[MOST_SEGMENTS];
	struct naos_cuda_segment segments[MOST_SEGMENTS];
};

static void fail(struct opening *opening, int rc, uint64_t index, const struct naos_error *err)
{
	(void)pthread_mutex_lock(&opening->lock);
	if (!opening->failed || (rc == NAOS_E_INTEGRITY && opening->failed == rc && index < opening->failed_index)) {
		opening->err = *err;
		opening->failed_index = index;
		atomic_store(&opening->failed, rc);
	}
	(void)pthread_mutex_unlock(&opening->lock);
}

/* Reads the segments of an upload into a buffer.  0 segments: nothing is left. */
static int fill(struct opening *opening, struct upload *upload, uint8_t *buffer, struct naos_error *err)
{
	const struct naos_gpu_source *source = opening->source;
	upload->first = atomic_fetch_add(&opening->next, opening->at_once);
	upload->count = 0;
	size_t bytes = 0;
	for (uint64_t i = upload->first; i < source->count && upload->count < opening->at_once; i++, upload->count++) {
		struct naos_gpu_segment *segment = &upload->described[upload->count];
		int rc = source->describe(source->context, i, segment, err);
		if (rc != 0)
			return rc;
		if (segment->bytes > source->longest || segment->associated_bytes > sizeof(segment->associated) ||
		    segment->offset > opening->memory->bytes || segment->bytes > opening->memory->bytes - segment->offset)
			return naos_error_set(err, NAOS_E_USAGE, "a segment does not fit the memory that it is opened to");
		bytes += segment->bytes;
	}
	return upload->count ? source->read(source->context, upload->first, upload->count, buffer, bytes, err) : 0;
}

/* Uploads to where the segments belong, and opens them there in place. */
static int send(struct opening *opening, struct gpu_lane *lane, struct upload *upload, const uint8_t *buffer, struct naos_error *err)
{
	const struct naos_cuda_table *table = opening->gpu->table;
	struct naos_cuda_reason reason = { "" };
	uint8_t *memory = opening->memory->data;
	int rc = 0;
	for (uint32_t i = 0, together; rc == 0 && i < upload->count; i += together) {
		uint64_t bytes = upload->described[i].bytes;
		for (together = 1; i + together < upload->count; together++) { /* successive ones by one copy */
			if (upload->described[i + together].offset != upload->described[i].offset + bytes)
				break;
			bytes += upload->described[i + together].bytes;
		}
		rc = table->copy(lane->cuda, memory + upload->described[i].offset, buffer, bytes, &reason);
		buffer += bytes;
	}
	for (uint32_t i = 0; i < upload->count; i++) {
		const struct naos_gpu_segment *from = &upload->described[i];
		struct naos_cuda_segment *to = &upload->segments[i];
		*to = (struct naos_cuda_segment){ .in = memory + from->offset, .out = memory + from->offset, .bytes = from->bytes,
						  .associated = from->associated, .associated_bytes = from->associated_bytes };
		gpu_j0(from->nonce, to->j0);
		memcpy(to->tag, from->tag, sizeof(to->tag));
	}
	if (rc == 0)
		rc = table->run(lane->cuda, 0, upload->segments, upload->count, &reason);
	return rc == 0 ? 0 : gpu_failed(opening->gpu, rc, &reason, err);
}

/* Until the lane's upload is done and its tags are known. */
static int settle(struct opening *opening, struct gpu_lane *lane, const struct upload *upload, uint64_t *ret_index, struct naos_error *err)
{
	struct naos_cuda_reason reason = { "" };
	int rc = opening->gpu->table->wait(lane->cuda, &reason);
	if (rc != 0)
		return gpu_failed(opening->gpu, rc, &reason, err);
	for (uint32_t i = 0; i < upload->count; i++) {
		if (upload->segments[i].result == 0)
			continue;
		*ret_index = upload->first + i;
		return naos_error_set(err, NAOS_E_INTEGRITY, "the tag of segment %llu does not match", (unsigned long long)*ret_index);
	}
	return 0;
}

/* One thread: reads an upload into one buffer while the device works from the other. */
static int feed(struct opening *opening, struct gpu_lane *lane, struct upload uploads[2], uint64_t *ret_index, struct naos_error *err)
{
	int rc = gpu_lane_key(opening->gpu, lane, opening->key, err);
	uploads[1].count = 0;
	for (unsigned turn = 0; rc == 0 && !atomic_load(&opening->failed); turn ^= 1) {
		rc = fill(opening, &uploads[turn], lane->buffers[turn], err);
		if (rc == 0)
			rc = settle(opening, lane, &uploads[turn ^ 1], ret_index, err);
		if (rc != 0 || uploads[turn].count == 0)
			break;
		rc = send(opening, lane, &uploads[turn], lane->buffers[turn], err);
	}
	/* another thread may have failed: nothing of this lane may be under way when the memory is wiped and the lane is used again */
	struct naos_cuda_reason ignored;
	(void)opening->gpu->table->wait(lane->cuda, &ignored);
	return rc;
}

static void *worker(void *context)
{
	struct opening *opening = context;
	struct naos_error err = NAOS_ERROR_INIT;
	struct gpu_lane *lane = NULL;
	uint64_t index = 0;
	naos_autofree struct upload *uploads = calloc(2, sizeof(*uploads));
	size_t bytes = (size_t)opening->at_once * opening->source->longest;
	int rc = uploads ? gpu_lane_take(opening->gpu, bytes, &lane, &err) : naos_error_set(&err, NAOS_E_NOMEM, "no memory for the GPU");
	if (rc == 0)
		rc = feed(opening, lane, uploads, &index, &err);
	if (rc != 0)
		fail(opening, rc, index, &err);
	gpu_lane_put(opening->gpu, lane);
	return NULL;
}

static unsigned processors(void)
{
	cpu_set_t set;
	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

int naos_gpu_open(struct naos_gpu *gpu, const struct naos_gcm_key *key, const struct naos_gpu_source *source,
		  struct naos_gpu_memory *memory, uint64_t *ret_failed, struct naos_error *err)
{
	struct opening opening = { .gpu = gpu, .key = key, .source = source, .memory = memory };
	pthread_t threads[MOST_JOBS];
	unsigned jobs = source->jobs ? source->jobs : processors(), started = 0;
	if (source->count == 0)
		return 0;
	opening.at_once = source->longest ? NAOS_GPU_BUFFER_BYTES / source->longest : MOST_SEGMENTS;
	opening.at_once = opening.at_once < 1 ? 1 : opening.at_once > MOST_SEGMENTS ? MOST_SEGMENTS : opening.at_once;
	const uint64_t uploads = (source->count + opening.at_once - 1) / opening.at_once;
	jobs = jobs > MOST_JOBS ? MOST_JOBS : jobs;
	jobs = uploads < jobs ? (unsigned)uploads : jobs;
	(void)pthread_mutex_init(&opening.lock, NULL);
	while (started + 1 < jobs && pthread_create(&threads[started], NULL, worker, &opening) == 0)
		started++;
	(void)worker(&opening);
	for (unsigned i = 0; i < started; i++)
		(void)pthread_join(threads[i], NULL);
	(void)pthread_mutex_destroy(&opening.lock);
	if (!opening.failed)
		return 0;
	/* some segments may be open already: nothing of a whole that is not right is handed out */
	struct naos_cuda_reason reason;
	struct gpu_lane *lane = NULL;
	if (gpu_lane_take(gpu, NAOS_GPU_BUFFER_BYTES, &lane, NULL) == 0) {
		if (gpu->table->zero(lane->cuda, memory->data, memory->bytes, &reason) == 0)
			(void)gpu->table->wait(lane->cuda, &reason);
		gpu_lane_put(gpu, lane);
	}
	if (ret_failed)
		*ret_failed = opening.failed_index;
	if (err)
		*err = opening.err;
	return opening.failed;
}

/* The table of plugin.h: lanes, keys and segments, over what driver.h says of the device.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plugin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "layout.h"

#define MAX_LANES 64 /* no more than there are rows of keys in constant memory */

struct naos_cuda {
	int device;
	struct naos_cuda_info info;
	struct driver_sizes sizes;
	pthread_mutex_t lock; /* guards what follows */
	bool slots[MAX_LANES];
};

/* A block of memory that grows. */
struct area {
	void *data;
	uint64_t bytes;
};

struct naos_cuda_lane {
	struct naos_cuda *cuda;
	void *stream;
	void *events[4]; /* before and after the preparation, the main kernel, settling */
	uint32_t slot;
	struct area keys, raw;             /* on the device */
	struct area raw_pinned;            /* wiped as soon as it was copied */
	struct area segments, associated;  /* on the device */
	struct area segments_pinned, associated_pinned;
	struct area failures;
	uint32_t key_bytes, key_count;
	struct naos_cuda_segment *running; /* of the run that was not waited for; else NULL */
	uint32_t running_count;
	bool running_seals, raw_in_use;
	struct naos_cuda_times times;
};

static int usage(struct naos_cuda_reason *reason, const char *text)
{
	(void)snprintf(reason->text, sizeof(reason->text), "%s", text);
	return NAOS_CUDA_USAGE;
}

static void wipe(void *data, uint64_t bytes)
{
	memset(data, 0, bytes);
	__asm__ volatile("" : : "r"(data) : "memory");
}

/* --- memory ---------------------------------------------------------------------------------------------------------------- */

static int plugin_memory(struct naos_cuda *cuda, uint64_t bytes, void **ret, struct naos_cuda_reason *reason)
{
	int rc = driver_use(cuda->device, reason);
	return rc ? rc : driver_memory(bytes ? bytes : 16, ret, reason);
}

static void plugin_memory_free(struct naos_cuda *cuda, void *memory, uint64_t bytes)
{
	struct naos_cuda_reason reason;
	if (!memory)
		return;
	if (driver_use(cuda->device, &reason) == 0)
		(void)driver_zero_now(memory, bytes); /* a lost device keeps nothing that could be read through it */
	driver_memory_free(memory);
}

static int plugin_pinned(struct naos_cuda *cuda, uint64_t bytes, void **ret, struct naos_cuda_reason *reason)
{
	int rc = driver_use(cuda->device, reason);
	return rc ? rc : driver_pinned(bytes ? bytes : 16, ret, reason);
}

static void plugin_pinned_free(struct naos_cuda *cuda, void *memory, uint64_t bytes)
{
	struct naos_cuda_reason reason;
	if (!memory)
		return;
	wipe(memory, bytes);
	if (driver_use(cuda->device, &reason) == 0)
		driver_pinned_free(memory);
}

static void area_free(struct naos_cuda *cuda, struct area *area, bool pinned)
{
	(pinned ? plugin_pinned_free : plugin_memory_free)(cuda, area->data, area->bytes);
	*area = (struct area){ 0 };
}

/* At least that large; the former content is gone.  Nothing of the lane may be under way. */
static int area_reserve(struct naos_cuda *cuda, struct area *area, bool pinned, uint64_t bytes, struct naos_cuda_reason *reason)
{
	void *data;
	if (area->bytes >= bytes)
		return 0;
	bytes += bytes / 2;
	area_free(cuda, area, pinned);
	int rc = (pinned ? plugin_pinned : plugin_memory)(cuda, bytes, &data, reason);
	if (rc == 0)
		*area = (struct area){ data, bytes };
	return rc;
}

/* --- the device and its lanes -------------------------------------------------------------------------------------------------- */

static int plugin_open(int device, struct naos_cuda **ret, struct naos_cuda_reason *reason)
{
	struct naos_cuda *cuda = calloc(1, sizeof(*cuda));
	if (!cuda) {
		(void)usage(reason, "no memory");
		return NAOS_CUDA_NOMEM;
	}
	cuda->device = device;
	(void)pthread_mutex_init(&cuda->lock, NULL);
	int rc = driver_open(device, &cuda->info, &cuda->sizes, reason);
	if (rc == 0 && (cuda->sizes.segment_bytes != sizeof(struct gpu_segment) || cuda->sizes.key_slots < MAX_LANES)) {
		(void)usage(reason, "the kernels were built from other sources");
		rc = NAOS_CUDA_UNSUPPORTED;
	}
	if (rc != 0) {
		(void)pthread_mutex_destroy(&cuda->lock);
		free(cuda);
		return rc;
	}
	*ret = cuda;
	return 0;
}

static void plugin_close(struct naos_cuda *cuda)
{
	if (!cuda)
		return;
	(void)pthread_mutex_destroy(&cuda->lock);
	free(cuda);
}

static void plugin_info(const struct naos_cuda *cuda, struct naos_cuda_info *ret)
{
	*ret = cuda->info;
}

static void lane_free(struct naos_cuda_lane *lane)
{
	struct naos_cuda_reason reason;
	struct naos_cuda *cuda;
	if (!lane)
		return;
	cuda = lane->cuda;
	if (driver_use(cuda->device, &reason) == 0 && lane->stream) {
		(void)driver_wipe_slot(lane->slot, lane->stream, &reason);
		(void)driver_wait(lane->stream, &reason);
	}
	area_free(cuda, &lane->keys, false);
	area_free(cuda, &lane->raw, false);
	area_free(cuda, &lane->segments, false);
	area_free(cuda, &lane->associated, false);
	area_free(cuda, &lane->failures, false);
	area_free(cuda, &lane->raw_pinned, true);
	area_free(cuda, &lane->segments_pinned, true);
	area_free(cuda, &lane->associated_pinned, true);
	for (unsigned i = 0; i < 4; i++)
		if (lane->events[i])
			driver_event_free(lane->events[i]);
	if (lane->stream)
		driver_stream_free(lane->stream);
	(void)pthread_mutex_lock(&cuda->lock);
	cuda->slots[lane->slot] = false;
	(void)pthread_mutex_unlock(&cuda->lock);
	free(lane);
}

static int lane_create(struct naos_cuda *cuda, struct naos_cuda_lane **ret, struct naos_cuda_reason *reason)
{
	uint32_t slot = 0;
	struct naos_cuda_lane *lane = calloc(1, sizeof(*lane));
	if (!lane) {
		(void)usage(reason, "no memory");
		return NAOS_CUDA_NOMEM;
	}
	(void)pthread_mutex_lock(&cuda->lock);
	while (slot < MAX_LANES && cuda->slots[slot])
		slot++;
	if (slot < MAX_LANES)
		cuda->slots[slot] = true;
	(void)pthread_mutex_unlock(&cuda->lock);
	if (slot == MAX_LANES) {
		free(lane);
		(void)usage(reason, "too many lanes");
		return NAOS_CUDA_NOMEM;
	}
	lane->cuda = cuda;
	lane->slot = slot;
	int rc = driver_use(cuda->device, reason);
	if (rc == 0)
		rc = driver_stream(&lane->stream, reason);
	for (unsigned i = 0; rc == 0 && i < 4; i++)
		rc = driver_event(&lane->events[i], reason);
	if (rc != 0)
		lane_free(lane);
	else
		*ret = lane;
	return rc;
}

/* --- work -------------------------------------------------------------------------------------------------------------------- */

static int lane_copy(struct naos_cuda_lane *lane, void *to, const void *from, uint64_t bytes, struct naos_cuda_reason *reason)
{
	int rc = driver_use(lane->cuda->device, reason);
	return rc || !bytes ? rc : driver_copy(to, from, bytes, lane->stream, reason);
}

static int lane_zero(struct naos_cuda_lane *lane, void *memory, uint64_t bytes, struct naos_cuda_reason *reason)
{
	int rc = driver_use(lane->cuda->device, reason);
	return rc || !bytes ? rc : driver_zero(memory, bytes, lane->stream, reason);
}

/* What a run left: tags, results. */
static void lane_settle(struct naos_cuda_lane *lane, int rc)
{
	const struct gpu_segment *from = lane->segments_pinned.data;
	for (uint32_t i = 0; i < lane->running_count; i++) {
		struct naos_cuda_segment *segment = &lane->running[i];
		segment->result = rc != 0 || from[i].failed ? 1 : 0;
		if (lane->running_seals && rc == 0)
			memcpy(segment->tag, from[i].tag, sizeof(segment->tag));
	}
	lane->running = NULL;
	lane->running_count = 0;
	if (rc == 0) {
		lane->times.main_ms = driver_elapsed_ms(lane->events[1], lane->events[2]);
		lane->times.all_ms = driver_elapsed_ms(lane->events[0], lane->events[3]);
	}
}

static int lane_wait(struct naos_cuda_lane *lane, struct naos_cuda_reason *reason)
{
	int rc = driver_use(lane->cuda->device, reason);
	if (rc == 0)
		rc = driver_wait(lane->stream, reason);
	if (lane->raw_in_use)
		wipe(lane->raw_pinned.data, lane->raw_pinned.bytes);
	lane->raw_in_use = false;
	if (lane->running)
		lane_settle(lane, rc);
	return rc;
}

static void lane_times(const struct naos_cuda_lane *lane, struct naos_cuda_times *ret)
{
	*ret = lane->times;
}

static int lane_keys(struct naos_cuda_lane *lane, uint32_t key_bytes, const uint8_t *raw, uint32_t count, struct naos_cuda_reason *reason)
{
	struct naos_cuda *cuda = lane->cuda;
	if ((key_bytes != 16 && key_bytes != 32) || count == 0 || count > NAOS_CUDA_MAX_KEYS)
		return usage(reason, "the number of keys, or their size");
	int rc = lane_wait(lane, reason); /* memory may have to grow */
	if (rc == 0)
		rc = area_reserve(cuda, &lane->keys, false, count * cuda->sizes.key_bytes, reason);
	if (rc == 0)
		rc = area_reserve(cuda, &lane->raw, false, 32 * (uint64_t)count, reason);
	if (rc == 0)
		rc = area_reserve(cuda, &lane->raw_pinned, true, 32 * (uint64_t)count, reason);
	if (rc != 0)
		return rc;
	lane->raw_in_use = true;
	for (uint32_t i = 0; i < count; i++)
		memcpy((uint8_t *)lane->raw_pinned.data + 32 * i, raw + (uint64_t)key_bytes * i, key_bytes);
	lane->key_bytes = key_bytes;
	lane->key_count = count;
	const struct driver_work work = { .raw = lane->raw.data, .keys = lane->keys.data, .key_bytes = key_bytes, .key_count = count,
					  .slot = lane->slot };
	rc = driver_copy(lane->raw.data, lane->raw_pinned.data, 32 * (uint64_t)count, lane->stream, reason);
	if (rc == 0)
		rc = driver_run_keys(&work, lane->stream, reason);
	if (rc == 0)
		rc = driver_zero(lane->raw.data, lane->raw.bytes, lane->stream, reason);
	return rc;
}

/* The rounds of all segments, and bytes of associated data (each from a multiple of 16 on). */
static int measure(const struct naos_cuda_lane *lane, const struct naos_cuda_segment *segments, uint32_t count, uint64_t *ret_rounds,
		   uint64_t *ret_associated, struct naos_cuda_reason *reason)
{
	uint64_t rounds = 0, associated = 0;
	for (uint32_t i = 0; i < count; i++) {
		const struct naos_cuda_segment *s = &segments[i];
		if (s->key >= lane->key_count || s->bytes > ((uint64_t)1 << 36) - 32 || s->associated_bytes > UINT32_MAX)
			return usage(reason, "a segment's key, its size, or that of its associated data");
		rounds += (s->bytes + lane->cuda->sizes.round_bytes - 1) / lane->cuda->sizes.round_bytes;
		associated += (s->associated_bytes + 15) & ~(uint64_t)15;
	}
	if (rounds > UINT32_MAX)
		return usage(reason, "too much data for one run");
	*ret_rounds = rounds;
	*ret_associated = associated;
	return 0;
}

static void describe(struct naos_cuda_lane *lane, const struct naos_cuda_segment *segments, uint32_t count)
{
	struct gpu_segment *to = lane->segments_pinned.data;
	uint8_t *text = lane->associated_pinned.data;
	const uint8_t *device_text = lane->associated.data;
	uint32_t round = 0;
	for (uint32_t i = 0; i < count; i++, to++) {
		const struct naos_cuda_segment *s = &segments[i];
		memset(to, 0, sizeof(*to));
		to->in = s->in;
		to->out = s->out;
		to->bytes = s->bytes;
		to->associated = device_text;
		to->associated_bytes = s->associated_bytes;
		memcpy(to->j0, s->j0, sizeof(to->j0));
		if (!lane->running_seals)
			memcpy(to->tag, s->tag, sizeof(to->tag));
		to->key = s->key;
		to->first_round = round;
		to->rounds = (uint32_t)((s->bytes + lane->cuda->sizes.round_bytes - 1) / lane->cuda->sizes.round_bytes);
		round += to->rounds;
		if (s->associated_bytes)
			memcpy(text, s->associated, s->associated_bytes);
		text += (s->associated_bytes + 15) & ~(uint64_t)15;
		device_text += (s->associated_bytes + 15) & ~(uint64_t)15;
	}
}

static int launch(struct naos_cuda_lane *lane, const struct driver_work *work, uint64_t associated, struct naos_cuda_reason *reason)
{
	const uint64_t bytes = work->count * sizeof(struct gpu_segment);
	int rc = driver_copy(lane->segments.data, lane->segments_pinned.data, bytes, lane->stream, reason);
	if (rc == 0 && associated)
		rc = driver_copy(lane->associated.data, lane->associated_pinned.data, associated, lane->stream, reason);
	if (rc == 0)
		rc = driver_zero(lane->failures.data, 4, lane->stream, reason);
	if (rc == 0)
		rc = driver_record(lane->events[0], lane->stream, reason);
	if (rc == 0)
		rc = driver_run_segments(work, lane->stream, reason);
	if (rc == 0)
		rc = driver_record(lane->events[1], lane->stream, reason);
	if (rc == 0)
		rc = driver_run_main(work, lane->stream, reason);
	if (rc == 0)
		rc = driver_record(lane->events[2], lane->stream, reason);
	if (rc == 0 && !work->sealing)
		rc = driver_run_settle(work, lane->stream, reason);
	if (rc == 0)
		rc = driver_record(lane->events[3], lane->stream, reason);
	if (rc == 0)
		rc = driver_copy(lane->segments_pinned.data, lane->segments.data, bytes, lane->stream, reason);
	return rc;
}

static int lane_run(struct naos_cuda_lane *lane, int sealing, struct naos_cuda_segment *segments, uint32_t count,
		    struct naos_cuda_reason *reason)
{
	struct naos_cuda *cuda = lane->cuda;
	uint64_t rounds, associated;
	if (lane->running || count > NAOS_CUDA_MAX_SEGMENTS || lane->key_count == 0)
		return usage(reason, "a run is under way, too many segments, or no key");
	int rc = measure(lane, segments, count, &rounds, &associated, reason);
	if (rc != 0 || count == 0)
		return rc;
	/* what is under way in the lane may use these areas only while a run is, so they may grow now */
	rc = driver_use(cuda->device, reason);
	if (rc == 0)
		rc = area_reserve(cuda, &lane->segments, false, count * sizeof(struct gpu_segment), reason);
	if (rc == 0)
		rc = area_reserve(cuda, &lane->segments_pinned, true, count * sizeof(struct gpu_segment), reason);
	if (rc == 0)
		rc = area_reserve(cuda, &lane->failures, false, 4 + 4 * (uint64_t)count, reason);
	if (rc == 0)
		rc = area_reserve(cuda, &lane->associated, false, associated, reason);
	if (rc == 0)
		rc = area_reserve(cuda, &lane->associated_pinned, true, associated, reason);
	if (rc != 0)
		return rc;
	lane->running_seals = sealing != 0;
	describe(lane, segments, count);
	const struct driver_work work = {
		.keys = lane->keys.data, .key_bytes = lane->key_bytes, .key_count = lane->key_count, .slot = lane->slot,
		.segments = lane->segments.data, .failures = lane->failures.data, .count = count, .rounds = (uint32_t)rounds,
		.sealing = sealing != 0,
	};
	lane->running = segments;
	lane->running_count = count;
	rc = launch(lane, &work, associated, reason);
	if (rc != 0) {
		struct naos_cuda_reason ignored;
		(void)driver_wait(lane->stream, &ignored);
		lane_settle(lane, rc);
	}
	return rc;
}

static int lane_convert(struct naos_cuda_lane *lane, const struct naos_cuda_conversion *c, struct naos_cuda_reason *reason)
{
	const uint32_t size = (uint32_t)(c->bitpix < 0 ? -c->bitpix : c->bitpix) / 8;
	const uint32_t out = c->to == NAOS_CUDA_FLOAT32 ? 4 : c->to == NAOS_CUDA_FLOAT64 ? 8 : size;
	const bool known = c->bitpix == 8 || c->bitpix == 16 || c->bitpix == 32 || c->bitpix == 64 || c->bitpix == -32 || c->bitpix == -64;
	if (!known || c->to > NAOS_CUDA_FLOAT64 || ((uintptr_t)c->in & (size - 1)) || ((uintptr_t)c->out & (out - 1)))
		return usage(reason, "a kind of number, or a place that it may not be at");
	const uint64_t from = (uintptr_t)c->in, to = (uintptr_t)c->out;
	if (from < to + c->count * out && to < from + c->count * size && !(from == to && size == out))
		return usage(reason, "numbers that change their size need another place");
	int rc = driver_use(lane->cuda->device, reason);
	return rc || !c->count ? rc : driver_run_convert(c, lane->stream, reason);
}

static const struct naos_cuda_table table = {
	.abi = NAOS_CUDA_ABI, .table_bytes = sizeof(struct naos_cuda_table),
	.open = plugin_open, .close = plugin_close, .info = plugin_info,
	.memory = plugin_memory, .memory_free = plugin_memory_free, .pinned = plugin_pinned, .pinned_free = plugin_pinned_free,
	.lane = lane_create, .lane_free = lane_free, .copy = lane_copy, .zero = lane_zero,
	.keys = lane_keys, .run = lane_run, .convert = lane_convert, .wait = lane_wait, .times = lane_times,
};

__attribute__((visibility("default"))) const struct naos_cuda_table *naos_cuda_table(uint32_t abi);
const struct naos_cuda_table *naos_cuda_table(uint32_t abi)
{
	return abi == NAOS_CUDA_ABI ? &table : NULL;
}

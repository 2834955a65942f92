/* The GPU of this process: finding the plug-in, lanes, memory.  SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "engine/backend.h"
#include "engine/gpu_inside.h"

static struct {
	pthread_mutex_t lock;
	struct naos_gpu_settings settings;
	struct naos_gpu_policy policy;
	bool policy_forced;
	bool tried;
	double start_s; /* how long the first use took */
	struct naos_gpu *gpu; /* lives as long as the process: others hold memory of it */
	struct naos_gpu *candidate; /* what was tried */
	struct naos_error reason;
} process = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct {
	pthread_mutex_t lock; /* one of its own: the process's is held while a device is tried */
	char text[NAOS_ERROR_MESSAGE_BYTES + 64];
	atomic_bool ready, said;
} warning = { .lock = PTHREAD_MUTEX_INITIALIZER };

void naos_gpu_configure(const struct naos_gpu_settings *settings)
{
	(void)pthread_mutex_lock(&process.lock);
	process.settings = *settings;
	(void)pthread_mutex_unlock(&process.lock);
}

void naos_gpu_policy_set(const struct naos_gpu_policy *policy, bool forced)
{
	(void)pthread_mutex_lock(&process.lock);
	if (forced || !process.policy_forced)
		process.policy = *policy;
	process.policy_forced = process.policy_forced || forced;
	(void)pthread_mutex_unlock(&process.lock);
}

void naos_gpu_policy_get(struct naos_gpu_policy *ret)
{
	(void)pthread_mutex_lock(&process.lock);
	*ret = process.policy;
	(void)pthread_mutex_unlock(&process.lock);
}

bool naos_gpu_started(void)
{
	(void)pthread_mutex_lock(&process.lock);
	bool started = process.gpu != NULL;
	(void)pthread_mutex_unlock(&process.lock);
	return started;
}

double naos_gpu_start_seconds(void)
{
	return process.start_s;
}

const char *naos_gpu_warning(void)
{
	if (!atomic_load(&warning.ready) || atomic_exchange(&warning.said, true))
		return NULL;
	return warning.text;
}

static void warn(const char *text)
{
	(void)pthread_mutex_lock(&warning.lock);
	if (!atomic_load(&warning.ready)) {
		(void)snprintf(warning.text, sizeof(warning.text), "%s; the CPU does its work from here on", text);
		atomic_store(&warning.ready, true);
	}
	(void)pthread_mutex_unlock(&warning.lock);
}

int gpu_failed(struct naos_gpu *gpu, int rc, const struct naos_cuda_reason *reason, struct naos_error *err)
{
	char text[320];
	int code = rc == NAOS_CUDA_NOMEM ? NAOS_E_NOMEM : rc == NAOS_CUDA_USAGE ? NAOS_E_USAGE : NAOS_E_UNSUPPORTED;
	(void)snprintf(text, sizeof(text), "the GPU %s: %s", rc == NAOS_CUDA_NOMEM ? "has not enough memory" : "failed", reason->text);
	if (rc == NAOS_CUDA_LOST) {
		(void)pthread_mutex_lock(&gpu->lock);
		gpu->lost = true;
		(void)pthread_mutex_unlock(&gpu->lock);
	}
	if (rc != NAOS_CUDA_USAGE)
		warn(text);
	return naos_error_set(err, code, "%s", text);
}

/* --- the plug-in ------------------------------------------------------------------------------------------------------------ */

static int load(struct naos_gpu *gpu, struct naos_error *err)
{
	const char *path = process.settings.plugin ? process.settings.plugin : secure_getenv("NAOS_CUDA_PLUGIN");
	struct naos_cuda_reason reason = { "" };
	const struct naos_cuda_table *(*get)(uint32_t);
	path = path ? path : NAOS_CUDA_PLUGIN_PATH;
	void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never closed: a driver's threads live in it */
	if (!plugin)
		return naos_error_set(err, NAOS_E_UNSUPPORTED, "no CUDA device: the plug-in for GPUs is not there (%s)", dlerror());
	*(void **)&get = dlsym(plugin, NAOS_CUDA_TABLE);
	gpu->table = get ? get(NAOS_CUDA_ABI) : NULL;
	if (!gpu->table || gpu->table->table_bytes != sizeof(*gpu->table))
		return naos_error_set(err, NAOS_E_UNSUPPORTED, "%s is the plug-in of another version of Naos: install that of this one", path);
	if (gpu->table->open(process.settings.device, &gpu->cuda, &reason) != 0)
		return naos_error_set(err, NAOS_E_UNSUPPORTED, "no CUDA device: %s", reason.text);
	gpu->table->info(gpu->cuda, &gpu->info);
	return gpu_selftest(gpu, err);
}

/* Under the lock. */
static void try_once(void)
{
	struct timespec from, to;
	struct naos_gpu *gpu = process.candidate = calloc(1, sizeof(*gpu));
	process.tried = true;
	if (!gpu) {
		(void)naos_error_set(&process.reason, NAOS_E_NOMEM, "no memory for the GPU");
		return;
	}
	(void)pthread_mutex_init(&gpu->lock, NULL);
	(void)pthread_cond_init(&gpu->idle_lane, NULL);
	(void)clock_gettime(CLOCK_MONOTONIC, &from);
	if (load(gpu, &process.reason) != 0)
		return; /* the driver may still run: the candidate stays */
	(void)clock_gettime(CLOCK_MONOTONIC, &to);
	process.start_s = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
	process.gpu = gpu;
}

static int check_policy(const struct naos_cuda_info *info, struct naos_error *err)
{
	if (!process.policy.demand_confidential || info->confidential == 1)
		return 0;
	return naos_error_set(err, NAOS_E_DENIED,
			      "%s is %s, which the configuration demands ([gpu] confidential): set up the GPU for confidential computing, or "
			      "change the line",
			      info->name,
			      info->confidential == 0 ? "not in confidential-computing mode" :
							"not known to be in confidential-computing mode");
}

int naos_gpu_get(struct naos_gpu **ret, struct naos_error *err)
{
	int rc = 0;
	(void)pthread_mutex_lock(&process.lock);
	if (process.policy.use == NAOS_GPU_NEVER) {
		rc = naos_error_set(err, NAOS_E_UNSUPPORTED, "the GPU must not be used ([gpu] use = never)");
	} else {
		if (!process.tried)
			try_once();
		if (!process.gpu) {
			rc = process.reason.code;
			if (err)
				*err = process.reason;
		} else {
			rc = check_policy(&process.gpu->info, err);
		}
	}
	(void)pthread_mutex_unlock(&process.lock);
	if (rc != 0)
		return rc;
	(void)pthread_mutex_lock(&process.gpu->lock);
	bool lost = process.gpu->lost;
	(void)pthread_mutex_unlock(&process.gpu->lock);
	if (lost)
		return naos_error_set(err, NAOS_E_UNSUPPORTED, "the GPU failed earlier in this process");
	*ret = process.gpu;
	return 0;
}

const struct naos_cuda_info *naos_gpu_info(const struct naos_gpu *gpu)
{
	return &gpu->info;
}

/* --- lanes -------------------------------------------------------------------------------------------------------------------- */

static void lane_buffers_free(struct naos_gpu *gpu, struct gpu_lane *lane)
{
	for (unsigned i = 0; i < 2; i++) {
		gpu->table->pinned_free(gpu->cuda, lane->buffers[i], lane->buffer_bytes);
		lane->buffers[i] = NULL;
	}
	lane->buffer_bytes = 0;
}

static void lane_free(struct naos_gpu *gpu, struct gpu_lane *lane)
{
	if (!lane)
		return;
	lane_buffers_free(gpu, lane);
	gpu->table->memory_free(gpu->cuda, lane->room, lane->room_bytes);
	if (lane->cuda)
		gpu->table->lane_free(lane->cuda);
	free(lane);
	(void)pthread_mutex_lock(&gpu->lock);
	gpu->lanes--;
	(void)pthread_cond_signal(&gpu->idle_lane);
	(void)pthread_mutex_unlock(&gpu->lock);
}

static int lane_reserve(struct naos_gpu *gpu, struct gpu_lane *lane, size_t bytes, struct naos_error *err)
{
	struct naos_cuda_reason reason = { "" };
	int rc = 0;
	if (!lane->cuda)
		rc = gpu->table->lane(gpu->cuda, &lane->cuda, &reason);
	if (rc == 0 && lane->buffer_bytes < bytes) {
		lane_buffers_free(gpu, lane);
		lane->buffer_bytes = bytes;
		for (unsigned i = 0; rc == 0 && i < 2; i++) {
			void *buffer = NULL;
			rc = gpu->table->pinned(gpu->cuda, bytes, &buffer, &reason);
			lane->buffers[i] = buffer;
		}
	}
	return rc == 0 ? 0 : gpu_failed(gpu, rc, &reason, err);
}

int gpu_lane_take(struct naos_gpu *gpu, size_t buffer_bytes, struct gpu_lane **ret, struct naos_error *err)
{
	struct gpu_lane *lane = NULL;
	(void)pthread_mutex_lock(&gpu->lock);
	while (!gpu->idle && gpu->lanes == NAOS_GPU_MAX_LANES)
		(void)pthread_cond_wait(&gpu->idle_lane, &gpu->lock);
	if (gpu->idle) {
		lane = gpu->idle;
		gpu->idle = lane->next;
	} else {
		gpu->lanes++;
	}
	(void)pthread_mutex_unlock(&gpu->lock);
	if (!lane)
		lane = calloc(1, sizeof(*lane));
	if (!lane) {
		(void)pthread_mutex_lock(&gpu->lock);
		gpu->lanes--;
		(void)pthread_mutex_unlock(&gpu->lock);
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a lane of the GPU");
	}
	int rc = lane_reserve(gpu, lane, buffer_bytes, err);
	if (rc != 0)
		lane_free(gpu, lane);
	else
		*ret = lane;
	return rc;
}

void gpu_lane_put(struct naos_gpu *gpu, struct gpu_lane *lane)
{
	if (!lane)
		return;
	(void)pthread_mutex_lock(&gpu->lock);
	bool keep = !gpu->lost;
	if (keep) {
		lane->next = gpu->idle;
		gpu->idle = lane;
		(void)pthread_cond_signal(&gpu->idle_lane);
	}
	(void)pthread_mutex_unlock(&gpu->lock);
	if (!keep)
		lane_free(gpu, lane);
}

int gpu_lane_key(struct naos_gpu *gpu, struct gpu_lane *lane, const struct naos_gcm_key *key, struct naos_error *err)
{
	struct naos_cuda_reason reason = { "" };
	const uint8_t *raw = NULL;
	int rc = naos_gcm_key_raw(key, &raw, err);
	if (rc != 0)
		return rc;
	rc = gpu->table->keys(lane->cuda, (uint32_t)naos_algorithm_key_bytes(key->algorithm), raw, 1, &reason);
	return rc == 0 ? 0 : gpu_failed(gpu, rc, &reason, err);
}

void gpu_j0(const uint8_t nonce[static NAOS_GCM_NONCE_BYTES], uint8_t ret[static 16])
{
	memcpy(ret, nonce, NAOS_GCM_NONCE_BYTES);
	ret[12] = ret[13] = ret[14] = 0;
	ret[15] = 1;
}

/* --- memory ------------------------------------------------------------------------------------------------------------------ */

int naos_gpu_memory_create(struct naos_gpu *gpu, uint64_t bytes, struct naos_gpu_memory **ret, struct naos_error *err)
{
	struct naos_cuda_reason reason = { "" };
	struct naos_gpu_memory *memory = calloc(1, sizeof(*memory));
	if (!memory)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory");
	memory->gpu = gpu;
	memory->bytes = bytes;
	int rc = gpu->table->memory(gpu->cuda, bytes, &memory->data, &reason);
	if (rc != 0) {
		free(memory);
		return gpu_failed(gpu, rc, &reason, err);
	}
	*ret = memory;
	return 0;
}

struct naos_gpu_memory *naos_gpu_memory_free(struct naos_gpu_memory *memory)
{
	if (!memory)
		return NULL;
	int saved = errno;
	memory->gpu->table->memory_free(memory->gpu->cuda, memory->data, memory->bytes);
	free(memory);
	errno = saved;
	return NULL;
}

/* Through a lane's pinned buffers, which take turns. */
static int copy(struct naos_gpu *gpu, uint8_t *device, uint8_t *to, const uint8_t *from, uint64_t bytes, struct naos_error *err)
{
	struct naos_cuda_reason reason = { "" };
	struct gpu_lane *lane = NULL;
	int rc = gpu_lane_take(gpu, NAOS_GPU_BUFFER_BYTES, &lane, err);
	if (rc != 0)
		return rc;
	for (uint64_t done = 0; rc == 0 && done < bytes;) {
		size_t piece = bytes - done < lane->buffer_bytes ? (size_t)(bytes - done) : lane->buffer_bytes;
		if (from)
			memcpy(lane->buffers[0], from + done, piece);
		rc = from ? gpu->table->copy(lane->cuda, device + done, lane->buffers[0], piece, &reason)
			  : gpu->table->copy(lane->cuda, lane->buffers[0], device + done, piece, &reason);
		if (rc == 0)
			rc = gpu->table->wait(lane->cuda, &reason);
		if (rc == 0 && to)
			memcpy(to + done, lane->buffers[0], piece);
		done += piece;
	}
	naos_wipe(lane->buffers[0], bytes < lane->buffer_bytes ? (size_t)bytes : lane->buffer_bytes);
	if (rc != 0)
		rc = gpu_failed(gpu, rc, &reason, err);
	gpu_lane_put(gpu, lane);
	return rc;
}

static int check_range(const struct naos_gpu_memory *memory, uint64_t offset, uint64_t bytes, struct naos_error *err)
{
	if (offset > memory->bytes || bytes > memory->bytes - offset)
		return naos_error_set(err, NAOS_E_USAGE, "a range beyond the memory of the device");
	return 0;
}

int naos_gpu_memory_read(const struct naos_gpu_memory *memory, uint64_t offset, void *to, uint64_t bytes, struct naos_error *err)
{
	int rc = check_range(memory, offset, bytes, err);
	return rc ? rc : copy(memory->gpu, (uint8_t *)memory->data + offset, to, NULL, bytes, err);
}

int naos_gpu_memory_write(struct naos_gpu_memory *memory, uint64_t offset, const void *from, uint64_t bytes, struct naos_error *err)
{
	int rc = check_range(memory, offset, bytes, err);
	return rc ? rc : copy(memory->gpu, (uint8_t *)memory->data + offset, NULL, from, bytes, err);
}

int naos_gpu_memory_convert(const struct naos_gpu_memory *memory, struct naos_gpu_memory *to_memory, uint64_t count, int bitpix,
			    enum naos_cuda_number to, double scale, double zero, const int64_t *blank, struct naos_error *err)
{
	struct naos_gpu *gpu = memory->gpu;
	struct naos_cuda_reason reason = { "" };
	struct gpu_lane *lane = NULL;
	const uint64_t size = (uint64_t)abs(bitpix) / 8, out = to == NAOS_CUDA_FLOAT32 ? 4 : to == NAOS_CUDA_FLOAT64 ? 8 : size;
	if (size == 0 || count > memory->bytes / size || count > to_memory->bytes / out)
		return naos_error_set(err, NAOS_E_USAGE, "more numbers than the memory of the device holds");
	const struct naos_cuda_conversion conversion = { .in = memory->data, .out = to_memory->data, .count = count, .bitpix = bitpix,
							 .to = to, .scale = scale, .zero = zero, .blank = blank ? *blank : 0,
							 .has_blank = blank != NULL };
	int rc = gpu_lane_take(gpu, NAOS_GPU_BUFFER_BYTES, &lane, err);
	if (rc != 0)
		return rc;
	rc = gpu->table->convert(lane->cuda, &conversion, &reason);
	if (rc == 0)
		rc = gpu->table->wait(lane->cuda, &reason);
	if (rc != 0)
		rc = gpu_failed(gpu, rc, &reason, err);
	gpu_lane_put(gpu, lane);
	return rc;
}

/* Inside of the GPU: its lanes.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_ENGINE_GPU_INSIDE_H
#define NAOS_ENGINE_GPU_INSIDE_H

#include <pthread.h>

#include "engine/gpu.h"

/* A stream of the device with two pinned buffers; kept from one use to the next. */
struct gpu_lane {
	struct naos_cuda_lane *cuda;
	uint8_t *buffers[2];
	size_t buffer_bytes;
	void *room; /* device memory of gpu_messages.c; zeroed after use */
	uint64_t room_bytes;
	struct gpu_lane *next;
};

struct naos_gpu {
	const struct naos_cuda_table *table;
	struct naos_cuda *cuda;
	struct naos_cuda_info info;
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t idle_lane;
	struct gpu_lane *idle;
	unsigned lanes;
	bool lost;
};

/* A lane whose buffers have at least so many bytes each; waits while NAOS_GPU_MAX_LANES are in use. */
int gpu_lane_take(struct naos_gpu *gpu, size_t buffer_bytes, struct gpu_lane **ret, struct naos_error *err) naos_must_check;
void gpu_lane_put(struct naos_gpu *gpu, struct gpu_lane *lane);

/* What the plug-in said, as an error of ours.  A lost device is remembered. */
int gpu_failed(struct naos_gpu *gpu, int rc, const struct naos_cuda_reason *reason, struct naos_error *err);

/* Gives the lane one key. */
int gpu_lane_key(struct naos_gpu *gpu, struct gpu_lane *lane, const struct naos_gcm_key *key, struct naos_error *err) naos_must_check;

void gpu_j0(const uint8_t nonce[static NAOS_GCM_NONCE_BYTES], uint8_t ret[static 16]);
int gpu_selftest(struct naos_gpu *gpu, struct naos_error *err) naos_must_check;

#endif

/* What the plug-in needs of a device: CUDA (driver.cu), or in tests the emulation (tests/gpu/emulated.c).
 * Functions return 0 or a code of enum naos_cuda_code with the reason.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_ENGINE_CUDA_DRIVER_H
#define NAOS_ENGINE_CUDA_DRIVER_H

#include <stdbool.h>

#include "plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gpu_segment; /* setup.h */
struct driver_sizes { /* of what only the kernels know */
	uint64_t key_bytes, segment_bytes;
	uint32_t round_bytes; /* of data that a block of threads takes at a time */
	uint32_t key_slots;
};

int driver_open(int device, struct naos_cuda_info *ret_info, struct driver_sizes *ret_sizes, struct naos_cuda_reason *reason);
int driver_use(int device, struct naos_cuda_reason *reason); /* by the calling thread */

int driver_memory(uint64_t bytes, void **ret, struct naos_cuda_reason *reason);
void driver_memory_free(void *memory);
int driver_pinned(uint64_t bytes, void **ret, struct naos_cuda_reason *reason);
void driver_pinned_free(void *memory);
int driver_zero_now(void *memory, uint64_t bytes);

int driver_stream(void **ret, struct naos_cuda_reason *reason);
void driver_stream_free(void *stream);
int driver_event(void **ret, struct naos_cuda_reason *reason);
void driver_event_free(void *event);
int driver_record(void *event, void *stream, struct naos_cuda_reason *reason);
double driver_elapsed_ms(void *from, void *to);
int driver_copy(void *to, const void *from, uint64_t bytes, void *stream, struct naos_cuda_reason *reason);
int driver_zero(void *memory, uint64_t bytes, void *stream, struct naos_cuda_reason *reason);
int driver_wait(void *stream, struct naos_cuda_reason *reason);

/* All that the kernels are given; addresses of device memory. */
struct driver_work {
	const void *raw; /* 32 bytes a key */
	void *keys;      /* struct gpu_key */
	uint32_t key_bytes, key_count;
	uint32_t slot; /* the lane's row of round keys in constant memory */
	void *segments;  /* struct gpu_segment */
	uint32_t *failures;
	uint32_t count, rounds;
	bool sealing;
};
int driver_run_keys(const struct driver_work *work, void *stream, struct naos_cuda_reason *reason);
int driver_run_segments(const struct driver_work *work, void *stream, struct naos_cuda_reason *reason);
int driver_run_main(const struct driver_work *work, void *stream, struct naos_cuda_reason *reason);
int driver_run_settle(const struct driver_work *work, void *stream, struct naos_cuda_reason *reason);
int driver_run_convert(const struct naos_cuda_conversion *conversion, void *stream, struct naos_cuda_reason *reason);
int driver_wipe_slot(uint32_t slot, void *stream, struct naos_cuda_reason *reason);

/* The S-box table that all implementations have in common. */
void driver_fill_t0(uint32_t t0[256]);

#ifdef __cplusplus
}
#endif
#endif

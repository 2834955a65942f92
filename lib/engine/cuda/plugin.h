/* Between libnaos and its plug-in for GPUs: one table of functions.  The plug-in knows nothing of Naos, and nothing else of Naos
 * knows CUDA; it is found by dlopen, so that Naos runs on machines without either.
 *
 * Functions return 0 or a negative code of enum naos_cuda_code and then fill the reason.  One thread at a time per lane; the rest by any.
 * Addresses of device memory are void pointers that the CPU must not follow.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_ENGINE_CUDA_PLUGIN_H
#define NAOS_ENGINE_CUDA_PLUGIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NAOS_CUDA_ABI 1u
#define NAOS_CUDA_TABLE "naos_cuda_table" /* the symbol: const struct naos_cuda_table *(uint32_t abi), NULL if it does not have that one */

enum naos_cuda_code {
	NAOS_CUDA_UNSUPPORTED = -1, /* no device, no driver, or a chip without kernels */
	NAOS_CUDA_NOMEM = -2,       /* of the device, or pinned */
	NAOS_CUDA_LOST = -3,        /* the device failed: nothing can be done with it any more in this process */
	NAOS_CUDA_USAGE = -4,
};

struct naos_cuda_reason {
	char text[256];
};

struct naos_cuda_info {
	char name[96];    /* "NVIDIA H200" */
	char kernels[64]; /* which were taken: "sm_90, wgmma" */
	char bus[32];     /* PCI address */
	uint32_t major, minor, multiprocessors, driver_version;
	uint64_t memory_bytes;
	int32_t confidential; /* 1: confidential computing is on; 0: off; -1: the driver does not tell */
	uint32_t reserved;
};

/* One message.  in and out: device memory, the same or apart. */
struct naos_cuda_segment {
	const void *in;
	void *out;
	uint64_t bytes;
	const uint8_t *associated; /* in the host's memory; read during the call of run */
	uint64_t associated_bytes;
	uint8_t j0[16];   /* the block before the first counter: nonce of 12 bytes and 1, big-endian */
	uint8_t tag[16];  /* opening: compared; sealing: written by wait */
	uint32_t key;     /* index in the keys of the lane */
	int32_t result;   /* written by wait: 0, or 1 if the tag does not match; the output is zeros then */
};

/* A range of numbers as FITS has them (big-endian) to native ones: value = zero + scale * stored. */
enum naos_cuda_number {
	NAOS_CUDA_SAME = 0, /* of the same kind, bytes exchanged, not scaled */
	NAOS_CUDA_FLOAT32 = 1,
	NAOS_CUDA_FLOAT64 = 2,
};
struct naos_cuda_conversion {
	const void *in;
	void *out; /* may be in, if the numbers keep their size; else apart */
	uint64_t count;
	int32_t bitpix;    /* 8, 16, 32, 64, -32, -64 */
	uint32_t to;       /* enum naos_cuda_number */
	double scale, zero;
	int64_t blank;     /* integers that become NaN */
	uint32_t has_blank;
	uint32_t reserved;
};

struct naos_cuda_times {
	double main_ms, all_ms; /* of the last run: the main kernel; all kernels */
};

struct naos_cuda;
struct naos_cuda_lane; /* a stream of work, its keys and its tables of segments */

struct naos_cuda_table {
	uint32_t abi, table_bytes;

	int (*open)(int device, struct naos_cuda **ret, struct naos_cuda_reason *reason);
	void (*close)(struct naos_cuda *cuda); /* after all that was made with it */
	void (*info)(const struct naos_cuda *cuda, struct naos_cuda_info *ret);

	/* Device memory; pinned memory of the host.  Both are zeroed before they are freed. */
	int (*memory)(struct naos_cuda *cuda, uint64_t bytes, void **ret, struct naos_cuda_reason *reason);
	void (*memory_free)(struct naos_cuda *cuda, void *memory, uint64_t bytes);
	int (*pinned)(struct naos_cuda *cuda, uint64_t bytes, void **ret, struct naos_cuda_reason *reason);
	void (*pinned_free)(struct naos_cuda *cuda, void *memory, uint64_t bytes);

	int (*lane)(struct naos_cuda *cuda, struct naos_cuda_lane **ret, struct naos_cuda_reason *reason);
	void (*lane_free)(struct naos_cuda_lane *lane);

	/* In the order of the calls of a lane, without waiting.  copy: from and to either memory; pageable memory makes it wait. */
	int (*copy)(struct naos_cuda_lane *lane, void *to, const void *from, uint64_t bytes, struct naos_cuda_reason *reason);
	int (*zero)(struct naos_cuda_lane *lane, void *memory, uint64_t bytes, struct naos_cuda_reason *reason);
	/* Makes `count` keys of key_bytes (16 or 32) each ready, one behind the other in raw; the lane's former keys are gone. */
	int (*keys)(struct naos_cuda_lane *lane, uint32_t key_bytes, const uint8_t *raw, uint32_t count, struct naos_cuda_reason *reason);
	/* Seals or opens segments under those keys.  They must stay in place until wait; one run at a time. */
	int (*run)(struct naos_cuda_lane *lane, int sealing, struct naos_cuda_segment *segments, uint32_t count,
		   struct naos_cuda_reason *reason);
	int (*convert)(struct naos_cuda_lane *lane, const struct naos_cuda_conversion *conversion, struct naos_cuda_reason *reason);
	/* Until all of it is done; then results and tags are in the segments. */
	int (*wait)(struct naos_cuda_lane *lane, struct naos_cuda_reason *reason);
	void (*times)(const struct naos_cuda_lane *lane, struct naos_cuda_times *ret);
};

#define NAOS_CUDA_MAX_SEGMENTS 65536u /* of one run */
#define NAOS_CUDA_MAX_KEYS 4096u      /* of one lane; each takes 47 KiB of device memory */

#ifdef __cplusplus
}
#endif
#endif

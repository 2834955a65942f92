/* What host and device both write and read.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_ENGINE_CUDA_LAYOUT_H
#define NAOS_ENGINE_CUDA_LAYOUT_H

#include <stdint.h>

/* One message, in device memory. */
struct gpu_segment {
	const uint8_t *in, *associated;
	uint8_t *out;
	uint64_t bytes, associated_bytes;
	uint32_t j0[4];  /* the block before the first counter, as little-endian words; its last word counts big-endian */
	uint32_t tag[4]; /* as little-endian words: written by sealing, compared by opening */
	uint32_t sum[4]; /* of the tag so far, as an element of the field; zero when it is done */
	uint32_t key;    /* index */
	uint32_t first_round, rounds; /* first_round: rounds of all segments before it */
	uint32_t done;   /* rounds */
	uint32_t failed; /* the tag did not match */
	uint32_t reserved;
};

/* What a kernel says of itself. */
struct gpu_probe {
	uint32_t architecture, hash, tables, shared_bytes, round_bytes, key_bytes, warps, reserved;
};

#endif

/* The main kernel: AES-CTR and GHASH of many segments in one pass over their data.
 *
 * The data of a segment is a row of rounds of ROUND_BLOCKS blocks, which end where the data ends: in front of the first
 * round lie blocks that don't exist, which leaves the hash as it is.  The rounds of all segments follow each other, and each block of
 * threads takes an equal share of them.  What it hashed of a segment goes, times the power of H that is due, into the segment's sum; the
 * block that brings the last share compares or writes the tag.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_ENGINE_CUDA_GCM_H
#define NAOS_ENGINE_CUDA_GCM_H

#include "setup.h"

struct gpu_launch {
	const uint32_t *t0; /* 256 words */
	const struct gpu_key *keys;
	struct gpu_segment *segments;
	uint32_t *failures; /* how many tags did not match, then which */
	uint32_t count;     /* of segments */
	uint32_t rounds;    /* of all segments */
	uint32_t slot;      /* of the key in constant memory, where there is one key */
};

DEVICE struct aes_cached cached_of(const struct aes_cached *kept, uint32_t lane)
{
	struct aes_cached c = { shuffle(kept->c0, lane), shuffle(kept->k0, lane), shuffle(kept->k1, lane), shuffle(kept->k2, lane),
				shuffle(kept->k3, lane) };
	return c;
}

/* Bytes of a segment at a position, at most 16; none in front of it or behind it. */
DEVICE uint32_t bytes_at(int64_t position, uint64_t bytes)
{
	if (position < 0 || (uint64_t)position >= bytes)
		return 0;
	return bytes - (uint64_t)position < 16 ? (uint32_t)(bytes - (uint64_t)position) : 16;
}

DEVICE uint32_t mask_of(uint32_t bytes, uint32_t word)
{
	return bytes >= 4 * word + 4 ? 0xffffffffu : bytes <= 4 * word ? 0 : (1u << 8 * (bytes - 4 * word)) - 1;
}

DEVICE uint4 gcm_load(const struct gpu_segment *segment, const uint8_t *in, int64_t position, uint64_t whole)
{
	if ((uint64_t)position < whole)
		return load_block(in + position);
	return load_bytes(in + position, bytes_at(position, segment->bytes));
}

/* The sum of rounds [first, last) of a segment, of this warp. */
DEVICE void gcm_rounds(struct hash *h, const struct gpu_segment *segment, const struct aes_keys *keys, uint32_t first, uint32_t last,
		       const int rounds, const int sealing, const int many_keys)
{
	const uint32_t warp = THREAD / 32, lane = THREAD % 32, lane4 = aes_lane(lane);
	const uint64_t bytes = segment->bytes;
	const uint8_t *in = segment->in;
	uint8_t *out = segment->out;
	const uint32_t blocks = (uint32_t)((bytes + 15) / 16); /* below 2^32 */
	const uint32_t missing = (uint32_t)((uint64_t)segment->rounds * ROUND_BLOCKS - blocks);
	/* bytes that vectors of 16 may reach */
	const uint64_t whole = (((uintptr_t)in | (uintptr_t)out) & 15) == 0 ? bytes & ~(uint64_t)15 : 0;
	const uint32_t nonce[3] = { segment->j0[0], segment->j0[1], segment->j0[2] };
	const uint32_t start = swap_bytes(segment->j0[3]) + 1 - missing + first * ROUND_BLOCKS + hash_place(0, warp, 0);
	const uint32_t steps = (last - first) * STEPS;
	int64_t position = ((int64_t)first * ROUND_BLOCKS - missing + hash_place(0, warp, lane)) * 16;
	struct aes_cached kept = { 0, 0, 0, 0, 0 }, cached = { 0, 0, 0, 0, 0 };
	/* Opening loads a step ahead; sealing hashes a step behind: so either has the tensor cores work beside AES. */
	uint4 next = { 0, 0, 0, 0 };
	if (!sealing)
		next = gcm_load(segment, in, position, whole);
#ifdef __CUDACC__
#pragma unroll 1
#endif
	for (uint32_t n = 0; n < steps; n++) {
		const uint32_t step = n % STEPS;
		const uint32_t ahead = 16 * (step == STEPS - 1 ? ROUND_BLOCKS - hash_place(STEPS - 1, 0, 0) : hash_place(1, 0, 0));
		const uint4 x = sealing ? gcm_load(segment, in, position, whole) : next;
		if (!sealing && n + 1 < steps)
			next = gcm_load(segment, in, position + ahead, whole);
#if HASH == HASH_WGMMA || HASH == HASH_MMA
		const uint32_t low = (start & 255) + 32 * step, round = n / STEPS;
		if (step == 0) {
			if (round % 16 == 0) /* lanes keep the next 16 rounds' groups of counters, and the groups behind those */
				kept = aes_cache(keys, many_keys, nonce, ((start + (round + lane % 16) * ROUND_BLOCKS) >> 8) + lane / 16, lane4);
			cached = cached_of(&kept, round % 16);
		}
		if (low - 225 <= 62) /* some lanes, or all from here on, are in the group behind */
			cached = cached_of(&kept, round % 16 + 16 * ((low + lane) >> 8));
#else
		const uint32_t low = (start + n * hash_place(1, 0, 0)) & 255;
		if (n % 16 == 0)
			kept = aes_cache(keys, many_keys, nonce, ((start + (n + lane % 16) * hash_place(1, 0, 0)) >> 8) + lane / 16, lane4);
		cached = cached_of(&kept, n % 16 + 16 * ((low + lane) >> 8));
#endif
		if (!sealing)
			hash_step(h, step, x);
		else if (n > 0)
			hash_step(h, (n - 1) % STEPS, next);
		const uint4 k = aes_stream(keys, many_keys, rounds, &cached, low + lane, lane4);
		if (sealing)
			hash_wait();
		uint4 c = { x.x ^ k.x, x.y ^ k.y, x.z ^ k.z, x.w ^ k.w };
		if ((uint64_t)position < whole) {
			store_block(out + position, c);
		} else {
			const uint32_t here = bytes_at(position, segment->bytes);
			c.x &= mask_of(here, 0);
			c.y &= mask_of(here, 1);
			c.z &= mask_of(here, 2);
			c.w &= mask_of(here, 3);
			store_bytes(out + position, here, c);
		}
		position += ahead;
		if (sealing)
			next = c;
		else
			hash_wait();
	}
	if (sealing)
		hash_step(h, STEPS - 1, next);
	hash_wait();
}

DEVICE uint32_t first_segment(const struct gpu_launch *launch, uint32_t round)
{
	uint32_t low = 0, high = launch->count; /* the last one that begins at or before the round, and has any */
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (launch->segments[middle].first_round <= round)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* rounds: of AES, 10 or 14.  many_keys: segments name their key; else all have key 0, in constant memory too. */
DEVICE void gcm_run(const struct gpu_launch *launch, const int rounds, const int sealing, const int many_keys)
{
	const uint32_t warp = THREAD / 32, lane = THREAD % 32;
	const struct aes_keys keys = { launch->slot, KEYS_OFFSET };
	uint32_t at = (uint32_t)((uint64_t)launch->rounds * BLOCK / BLOCKS), loaded = UINT32_MAX;
	const uint32_t end = (uint32_t)((uint64_t)launch->rounds * (BLOCK + 1) / BLOCKS);
	if (at == end)
		return;
	aes_fill_tables(launch->t0);
	for (uint32_t index = first_segment(launch, at); at < end; index++) {
		struct gpu_segment *segment = launch->segments + index;
		const uint32_t first = at - segment->first_round, left = end - at;
		const uint32_t last = segment->rounds - first < left ? segment->rounds : first + left;
		const struct gpu_key *key = launch->keys + segment->key;
		if (first == last)
			continue; /* without data */
		if (segment->key != loaded) {
			hash_load_key(key);
			if (many_keys && THREAD < 60)
				shared_store(KEYS_OFFSET + 4 * THREAD, key->round_keys[THREAD]);
			loaded = segment->key;
		}
		block_barrier();
		struct hash h;
		uint32_t end_index;
		hash_start(&h, key);
		gcm_rounds(&h, segment, &keys, first, last, rounds, sealing, many_keys);
		struct element sum = hash_end(&h, warp, lane, &end_index);
		sum = field_sum_of_warp(field_multiply(sum, key->ends[end_index]));
		if (lane == 0)
			*(struct element *)(shared_memory + SUMS_OFFSET + 16 * warp) = sum;
		block_barrier();
		if (warp == 0) {
			struct element zero = { { 0, 0, 0, 0 } };
			sum = lane < WARPS ? *(const struct element *)(shared_memory + SUMS_OFFSET + 16 * lane) : zero;
			sum = field_sum_of_warp(sum);
			sum = field_multiply(sum, field_power_by_warp(key->squares, (uint64_t)(segment->rounds - last) * ROUND_BLOCKS + 2, lane));
			if (lane < 4)
				atomic_xor(&segment->sum[lane], lane < 2 ? (lane == 0 ? sum.w[0] : sum.w[1]) : (lane == 2 ? sum.w[2] : sum.w[3]));
			memory_fence();
			warp_barrier();
			if (lane == 0 && atomic_add(&segment->done, last - first) + last - first == segment->rounds) {
				memory_fence();
				segment_finish(segment, index, launch->failures, sealing);
			}
		}
		at += last - first;
	}
	block_barrier();
	hash_wipe_key();
}

/* Nothing unverified stays: the output of segments whose tag did not match becomes zeros. */
DEVICE void gcm_settle(struct gpu_segment *segments, const uint32_t *failures)
{
	const uint32_t threads = THREADS * BLOCKS, thread = BLOCK * THREADS + THREAD;
	for (uint32_t i = 0; i < failures[0]; i++) {
		const struct gpu_segment *segment = segments + failures[1 + i];
		uint8_t *out = segment->out;
		const uint4 zero = { 0, 0, 0, 0 };
		for (uint64_t block = thread; block < (segment->bytes + 15) / 16; block += threads) {
			uint32_t here = bytes_at((int64_t)(block * 16), segment->bytes);
			if (here == 16 && ((uintptr_t)out & 15) == 0)
				store_block(out + block * 16, zero);
			else
				store_bytes(out + block * 16, here, zero);
		}
	}
}

#endif

/* What comes before the main kernel: a key made ready on the device, and what a segment's tag has in it besides its data.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_ENGINE_CUDA_SETUP_H
#define NAOS_ENGINE_CUDA_SETUP_H

#include "hash.h"
#include "layout.h"

#define SETUP_THREADS 256
/* shared memory of setup_key */
#define SETUP_T0 0u
#define SETUP_KEYS 1024u    /* round keys */
#define SETUP_SQUARES 1280u /* H^(2^i), i below 16 */
#define SETUP_COARSE 1536u  /* H^(32 i), i below 16 */
#define SETUP_SMALL 1792u   /* H^i, i below 32 */
#define SETUP_WARPS 2304u   /* H^(256 i), i below 16 */
#define SETUP_SCRATCH 2560u /* 32 elements a warp */
#define SETUP_SHARED_BYTES (SETUP_SCRATCH + SETUP_THREADS * 16)

DEVICE struct element shared_element(uint32_t offset)
{
	return *(const struct element *)(shared_memory + offset);
}
DEVICE void shared_element_store(uint32_t offset, struct element e)
{
	*(struct element *)(shared_memory + offset) = e;
}
DEVICE struct element element_of_block(uint4 x)
{
	struct element e = { { swap_bytes(x.x), swap_bytes(x.y), swap_bytes(x.z), swap_bytes(x.w) } };
	return e;
}

/* H^(e 2^first) from the squares in shared memory, e below 2^bits; each lane its own e */
DEVICE struct element setup_power(uint32_t e, uint32_t first, uint32_t bits)
{
	struct element r = field_or_one(shared_element(SETUP_SQUARES + 16 * first), e & 1);
	for (uint32_t i = 1; i < bits; i++)
		r = field_multiply(r, field_or_one(shared_element(SETUP_SQUARES + 16 * (first + i)), e >> i & 1));
	return r;
}

#if HASH == HASH_WGMMA || HASH == HASH_MMA
/* Where the word with the data bits of slice q (words x, y: half 0; z, w: half 1) of column n lies in matrix `number`. */
DEVICE uint32_t setup_matrix_word(uint32_t number, uint32_t half, uint32_t q, uint32_t n)
{
#if HASH == HASH_WGMMA
	return (number * MATRIX_BYTES + half * 2048 + n * 16 + q * 4) / 4;
#else
	if (number == STEPS)
		return (number * MATRIX_BYTES + n / 8 * 128 + (n % 8 * 4 + q) * 4) / 4;
	return (number * MATRIX_BYTES + n / 8 * 256 + (n % 8 * 4 + q) * 8 + 4 * half) / 4;
#endif
}

/* One slice of one matrix, by a warp: row b is the power times what bit b stands for; then rows and columns are exchanged. */
DEVICE void setup_slice(struct gpu_key *key, uint32_t number, uint32_t half, uint32_t q, struct element power, uint32_t warp,
			uint32_t lane)
{
	uint32_t scratch = SETUP_SCRATCH + warp * 512, words = number == STEPS ? q : 2 * half;
	for (uint32_t i = 0; i < words; i++)
		power = field_shift(power, 32);
	warp_barrier();
	shared_element_store(scratch + 16 * lane, field_shift(power, hash_coefficient(0, lane)));
	warp_barrier();
	for (uint32_t m = 0; m < 4; m++) {
		/* column n holds the coefficient of bit n / 8 + 16 (n % 2) of word n % 8 / 2: see hash_pack */
		uint32_t n = lane + 32 * m, at = hash_coefficient(n % 8 / 2, n / 8 + 16 * (n & 1)), bits = 0;
		for (uint32_t b = 0; b < 32; b++)
			bits |= (shared_load(scratch + 16 * b + at / 32 * 4) >> (31 - at % 32) & 1) << b;
		key->hash[setup_matrix_word(number, half, q, n)] = bits;
	}
}

DEVICE void setup_hash(struct gpu_key *key, uint32_t warp, uint32_t lane)
{
	for (uint32_t i = warp; i < STEPS * 8 + 4; i += SETUP_THREADS / 32) {
		uint32_t number = i / 8, half = i / 4 % 2, q = i % 4;
		struct element power;
		if (number == STEPS) /* a round is what lies between two blocks of a warp */
			power = WARPS == 16 ? field_square(shared_element(SETUP_WARPS + 16 * 8)) : shared_element(SETUP_WARPS + 16 * WARPS);
		else
			power = field_multiply(shared_element(SETUP_COARSE + 16 * (7 - number)), shared_element(SETUP_SMALL + 16 * (3 - q)));
		setup_slice(key, number, half, q, power, warp, lane);
	}
	for (uint32_t i = THREAD; i < WARPS * ENDS_OF_WARP; i += THREADS) {
		uint32_t of_warp = i / ENDS_OF_WARP, row = i % ENDS_OF_WARP / 2;
		struct element e = field_multiply(shared_element(SETUP_WARPS + 16 * (WARPS - 1 - of_warp)),
						  shared_element(SETUP_SMALL + 16 * 4 * (7 - row)));
		key->ends[i] = field_shift(e, i & 1 ? 32 : 0);
	}
}
#else
DEVICE void setup_hash(struct gpu_key *key, uint32_t warp, uint32_t lane)
{
	/* WARPS * 32 blocks lie between two of a lane */
	struct element power = shared_element(SETUP_SQUARES + 16 * (WARPS == 16 ? 9 : WARPS == 8 ? 8 : 7));
#if HASH == HASH_TABLE
	struct element entry = { { 0, 0, 0, 0 } };
	for (uint32_t b = 0; b < 8; b++) {
		struct element shifted = field_shift(power, b);
		for (int i = 0; i < 4; i++)
			entry.w[i] ^= shifted.w[i] & (0u - (THREAD >> (7 - b) & 1));
	}
	for (int i = 0; i < 4; i++)
		key->hash[4 * THREAD + i] = entry.w[i];
#else
	if (THREAD < 4)
		key->hash[THREAD] = power.w[THREAD];
#endif
	for (uint32_t i = THREAD; i < WARPS * ENDS_OF_WARP; i += THREADS) {
		uint32_t e = WARPS * ENDS_OF_WARP - 1 - i;
		key->ends[i] = field_multiply(shared_element(SETUP_COARSE + 16 * (e / 32)), shared_element(SETUP_SMALL + 16 * (e % 32)));
	}
}
#endif

/* One block of SETUP_THREADS threads a key.  raw: 8 words a key.  constants: a row of aes_constant_keys, for the first key; or NULL. */
DEVICE void setup_key(const uint32_t *t0, const uint32_t *raw, uint32_t key_words, struct gpu_key *keys, uint32_t *constants)
{
	struct gpu_key *key = keys + BLOCK;
	uint32_t *round_keys = (uint32_t *)(shared_memory + SETUP_KEYS);
	const uint32_t warp = THREAD / 32, lane = THREAD % 32;
	shared_store(SETUP_T0 + 4 * THREAD, t0[THREAD]);
	block_barrier();
	if (THREAD == 0) {
		const uint32_t zero[4] = { 0, 0, 0, 0 };
		uint32_t h[4];
		aes_expand(SETUP_T0, raw + 8 * BLOCK, (int)key_words, round_keys);
		aes_small_encrypt(SETUP_T0, round_keys, key_words + 6, zero, h);
		struct element e = { { swap_bytes(h[0]), swap_bytes(h[1]), swap_bytes(h[2]), swap_bytes(h[3]) } };
		for (int i = 0; i < FIELD_SQUARES; i++) {
			key->squares[i] = e;
			if (i < 16)
				shared_element_store(SETUP_SQUARES + 16 * i, e);
			e = field_square(e);
		}
		key->rounds = key_words + 6;
	}
	block_barrier();
	if (THREAD < 60) {
		uint32_t word = THREAD < 4 * (key_words + 7) ? round_keys[THREAD] : 0;
		key->round_keys[THREAD] = word;
		if (constants && BLOCK == 0)
			constants[THREAD] = word;
	}
	if (warp == 0) {
		struct element e = setup_power(lane, 0, 5);
		shared_element_store(SETUP_SMALL + 16 * lane, e);
		key->small[lane] = e;
	} else if (warp == 1) {
		if (lane < 16)
			shared_element_store(SETUP_COARSE + 16 * lane, setup_power(lane, 5, 4));
		else
			shared_element_store(SETUP_WARPS + 16 * (lane - 16), setup_power(lane - 16, 8, 4));
	}
	block_barrier();
	setup_hash(key, warp, lane);
	block_barrier();
	for (uint32_t i = THREAD; i < SETUP_SHARED_BYTES / 4; i += THREADS)
		shared_store(4 * i, 0);
}

/* --- segments -------------------------------------------------------------------------------------------------------------- */

/* Up to 16 bytes, zeros behind them. */
DEVICE uint4 load_bytes(const uint8_t *at, uint32_t count)
{
	uint32_t w[4] = { 0, 0, 0, 0 };
#ifdef __CUDACC__
#pragma unroll 1
#endif
	for (uint32_t i = 0; i < count; i++) {
		uint32_t byte = (uint32_t)at[i] << 8 * (i & 3), word = i / 4;
		w[0] |= word == 0 ? byte : 0;
		w[1] |= word == 1 ? byte : 0;
		w[2] |= word == 2 ? byte : 0;
		w[3] |= word == 3 ? byte : 0;
	}
	uint4 x = { w[0], w[1], w[2], w[3] };
	return x;
}
DEVICE void store_bytes(uint8_t *at, uint32_t count, uint4 x)
{
#ifdef __CUDACC__
#pragma unroll 1
#endif
	for (uint32_t i = 0; i < count; i++) {
		uint32_t word = i < 8 ? (i < 4 ? x.x : x.y) : (i < 12 ? x.z : x.w);
		at[i] = (uint8_t)(word >> 8 * (i & 3));
	}
}

/* The tag is complete: by one thread. */
DEVICE void segment_finish(struct gpu_segment *segment, uint32_t index, uint32_t *failures, const int sealing)
{
	uint32_t difference = 0;
	for (int i = 0; i < 4; i++) {
		uint32_t word = swap_bytes(load_shared_by_all(&segment->sum[i]));
		if (sealing)
			segment->tag[i] = word;
		else
			difference |= word ^ segment->tag[i];
		segment->sum[i] = 0; /* of a message that did not match it would be the forger's answer */
	}
	segment->failed = difference != 0;
	if (difference)
		failures[1 + atomic_add(&failures[0], 1)] = index;
}

/* One warp a segment: the tag's mask, the lengths and the associated data.  Ends segments without data. */
DEVICE void setup_segment(const uint32_t *t0, const struct gpu_key *keys, struct gpu_segment *segments, uint32_t count,
			  uint32_t *failures, const int sealing)
{
	const uint32_t lane = THREAD % 32, index = BLOCK * (THREADS / 32) + THREAD / 32;
	for (uint32_t i = THREAD; i < 256; i += THREADS)
		shared_store(4 * i, t0[i]);
	block_barrier();
	if (index >= count)
		return;
	struct gpu_segment *segment = segments + index;
	const struct gpu_key *key = keys + segment->key;
	const uint64_t bytes = segment->bytes, associated_bytes = segment->associated_bytes;
	struct element sum = { { 0, 0, 0, 0 } };
	if (associated_bytes) {
		uint64_t blocks = (associated_bytes + 15) / 16, steps = (blocks + 31) / 32;
		int64_t at = (int64_t)lane - (int64_t)(steps * 32 - blocks);
		const struct element stride = key->squares[5];
		for (uint64_t i = 0; i < steps; i++, at += 32) {
			uint64_t left = at < 0 ? 0 : associated_bytes - 16 * (uint64_t)at;
			uint4 x = load_bytes(segment->associated + 16 * at, left < 16 ? (uint32_t)left : 16);
			sum = field_add(field_multiply(sum, stride), element_of_block(x));
		}
		sum = field_sum_of_warp(field_multiply(sum, key->small[31 - lane]));
		sum = field_multiply(sum, field_power_by_warp(key->squares, (bytes + 15) / 16 + 2, lane));
	}
	if (lane == 0) {
		struct element lengths = { { (uint32_t)(associated_bytes >> 29), (uint32_t)(associated_bytes << 3),
					     (uint32_t)(bytes >> 29), (uint32_t)(bytes << 3) } };
		uint32_t mask[4];
		aes_small_encrypt(0, key->round_keys, key->rounds, segment->j0, mask);
		sum = field_add(sum, field_multiply(lengths, key->small[1]));
		for (int i = 0; i < 4; i++)
			segment->sum[i] = sum.w[i] ^ swap_bytes(mask[i]);
		segment->done = 0;
		segment->failed = 0;
		if (bytes == 0)
			segment_finish(segment, index, failures, sealing);
	}
}

#endif

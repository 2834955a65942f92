/* GHASH of 512-byte steps of a warp, beside AES.
 *
 * With binary tensor cores (README.md, "GHASH as a matrix product"): multiplying by a constant of GF(2^128) is linear, so the bits of
 * the blocks, exactly as they lie in the lanes' registers, times a matrix made of the powers of H, give the hash.  A warp takes 256
 * successive blocks in 8 steps; the sums stay in registers as counts of bits whose lowest bit is the sum in GF(2).
 * A lane's word x is in row lane / 4, y in row lane / 4 + 8, z and w the same again; rows 8 and up count as times x^32.
 *
 * Without them every lane multiplies its own sum by a constant power of H at each step, by a table of 256 entries or by
 * integer multiplications.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_ENGINE_CUDA_HASH_H
#define NAOS_ENGINE_CUDA_HASH_H

#include "aes.h"
#include "field.h"

#define STEPS 8 /* of a round */
#define ROUND_BLOCKS (WARPS * 32u * STEPS) /* what a block of threads takes at a time: 65,536 bytes */
#define MATRIX_BYTES 4096u /* 256 rows of data bits by 128 columns of sums */

#ifdef AES_TABLES_ADDRESS
#define HASH_OFFSET 0u /* the tables come last */
#else
#define HASH_OFFSET AES_TABLES_BYTES
#endif
#if HASH == HASH_WGMMA
#define HASH_BYTES (9 * MATRIX_BYTES)
#elif HASH == HASH_MMA
#define HASH_BYTES (8 * MATRIX_BYTES + MATRIX_BYTES / 2) /* the last one has data in its upper half only */
#elif HASH == HASH_TABLE
#define HASH_STRIDE (TABLES == 4 ? 256u : 128u)
#define HASH_BYTES (256 * HASH_STRIDE)
#else
#define HASH_BYTES 0u
#endif
#define KEYS_OFFSET (HASH_OFFSET + HASH_BYTES) /* round keys of launches with many keys */
#define SUMS_OFFSET (KEYS_OFFSET + 256)        /* one element a warp */
#define SUMS_END (SUMS_OFFSET + 16 * WARPS)
#ifdef AES_TABLES_ADDRESS
#define SHARED_BYTES (AES_TABLES_ADDRESS + AES_TABLES_BYTES) /* less the address where shared memory begins, if that is not 0 */
#else
#define SHARED_BYTES SUMS_END
#endif

#if HASH == HASH_WGMMA || HASH == HASH_MMA
#define ENDS_OF_WARP 16u /* sums that a warp ends with */
#else
#define ENDS_OF_WARP 32u
#endif

/* A prepared key, in device memory.  Written by setup.h, wiped by the plug-in. */
struct gpu_key {
	uint32_t round_keys[60];
	uint32_t rounds;
	uint32_t reserved[3];
	struct element squares[FIELD_SQUARES]; /* H^(2^i) */
	struct element small[32];              /* H^i */
	struct element ends[512];              /* what each sum of a warp is multiplied by, for its place in the round */
	uint32_t hash[9 * MATRIX_BYTES / 4];   /* the matrices; or the table's 256 elements; or the constant power */
};

struct hash {
#if HASH == HASH_WGMMA || HASH == HASH_MMA
	int count[64];
	uint32_t y0, y1; /* word lane % 4 of rows lane / 4 and lane / 4 + 8 */
#else
	struct element y;
#if HASH == HASH_MULTIPLY
	struct element power;
#endif
#endif
};

/* The place of a step's block in its round. */
DEVICE uint32_t hash_place(uint32_t step, uint32_t warp, uint32_t lane)
{
#if HASH == HASH_WGMMA || HASH == HASH_MMA
	return warp * 256 + step * 32 + lane;
#else
	return step * (WARPS * 32) + warp * 32 + lane;
#endif
}

/* The coefficient that bit `bit` of little-endian word `word` of a block stands for. */
DEVICE uint32_t hash_coefficient(uint32_t word, uint32_t bit)
{
	return 32 * word + 8 * (bit / 8) + 7 - bit % 8;
}

/* Puts what the key brings into shared memory; barriers around it are the caller's. */
DEVICE void hash_load_key(const struct gpu_key *key)
{
#if HASH == HASH_WGMMA || HASH == HASH_MMA
	for (uint32_t i = THREAD; i < HASH_BYTES / 4; i += THREADS)
		shared_store(HASH_OFFSET + 4 * i, key->hash[i]);
	tensor_fence();
#elif HASH == HASH_TABLE
	for (uint32_t i = THREAD; i < 256 * 8 * 4; i += THREADS)
		shared_store(HASH_OFFSET + i / 32 * HASH_STRIDE + i % 32 * 4, key->hash[i / 32 * 4 + i % 4]);
#endif
}
DEVICE void hash_wipe_key(void)
{
	for (uint32_t i = THREAD; i < (SUMS_END - HASH_OFFSET) / 4; i += THREADS)
		shared_store(HASH_OFFSET + 4 * i, 0);
}

DEVICE void hash_start(struct hash *h, const struct gpu_key *key)
{
#if HASH == HASH_WGMMA || HASH == HASH_MMA
	for (int i = 0; i < 64; i++)
		h->count[i] = 0;
	h->y0 = h->y1 = 0;
#else
	for (int i = 0; i < 4; i++)
		h->y.w[i] = 0;
#if HASH == HASH_MULTIPLY
	for (int i = 0; i < 4; i++)
		h->power.w[i] = key->hash[i];
#endif
#endif
}

#if HASH == HASH_WGMMA || HASH == HASH_MMA

/* Parities of 32 counts: the columns are in such an order that a lane is left with a natural word. */
DEVICE uint32_t hash_pack(const int *count, int first)
{
	uint32_t word = 0;
#ifdef __CUDACC__
#pragma unroll
#endif
	for (int i = 0; i < 16; i++) {
		uint32_t pair = (uint32_t)count[4 * i + first + 1] * 65536u + (uint32_t)count[4 * i + first];
		word += (pair & 0x00010001u) * (1u << i);
	}
	return word;
}

/* number: 0 to 7 the steps, 8 the sums of the round before */
DEVICE void hash_multiply(struct hash *h, uint32_t number, uint4 a, int add)
{
#if HASH == HASH_WGMMA
	/* shared memory matrix: 8 columns of 16 bytes every 128 bytes, the second 128 bits of all columns 2048 bytes on */
	uint64_t at = (shared_address(HASH_OFFSET + number * MATRIX_BYTES) >> 4 & 0x3fff) | (uint64_t)(2048 >> 4) << 16 |
		      (uint64_t)(128 >> 4) << 32;
	multiply_group_fence();
	multiply_group(h->count, a.x, a.y, a.z, a.w, at, add);
	multiply_group_commit();
#else
	uint32_t lane = THREAD % 32;
	if (!add)
		for (int i = 0; i < 64; i++)
			h->count[i] = 0;
#ifdef __CUDACC__
#pragma unroll
#endif
	for (int t = 0; t < 16; t++) {
		if (number < STEPS) {
			const uint2 b = *(const uint2 *)(shared_memory + HASH_OFFSET + number * MATRIX_BYTES + t * 256 + lane * 8);
			multiply_warp(h->count + 4 * t, a.x, a.y, a.z, a.w, b.x, b.y);
		} else {
			multiply_warp(h->count + 4 * t, a.x, a.y, 0, 0,
				      shared_load(HASH_OFFSET + STEPS * MATRIX_BYTES + t * 128 + lane * 4), 0);
		}
	}
#endif
}

DEVICE void hash_wait(void)
{
#if HASH == HASH_WGMMA
	multiply_group_wait();
#endif
}

/* Takes one block a lane.  What was given before must have been waited for; x must not change before hash_wait. */
DEVICE void hash_step(struct hash *h, uint32_t step, uint4 x)
{
	if (step == 0) {
		uint4 y = { hash_pack(h->count, 0), hash_pack(h->count, 2), 0, 0 };
		hash_multiply(h, STEPS, y, 0);
	}
	hash_multiply(h, step, x, 1);
}

/* The lane's sum and the index of its power in key->ends. */
DEVICE struct element hash_end(struct hash *h, uint32_t warp, uint32_t lane, uint32_t *ret_index)
{
	struct element v;
	uint32_t row = lane >> 1 & 7, y0 = hash_pack(h->count, 0), y1 = hash_pack(h->count, 2);
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t a = shuffle(y0, 4 * row + i), b = shuffle(y1, 4 * row + i);
		v.w[i] = lane >= 16 ? 0 : swap_bytes(lane & 1 ? b : a);
	}
	*ret_index = warp * ENDS_OF_WARP + (lane & 15);
	return v;
}

#else

DEVICE void hash_wait(void)
{
}

#if HASH == HASH_TABLE
/* y times the constant, byte by byte from the last one */
DEVICE struct element hash_by_table(struct element y, uint32_t lane)
{
	uint32_t v[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
#ifdef __CUDACC__
#pragma unroll
#endif
	for (int byte = 3; byte >= 0; byte--) { /* of each word, from the highest */
#ifdef __CUDACC__
#pragma unroll
#endif
		for (int word = 0; word < 4; word++) {
			uint32_t at = HASH_STRIDE == 256 ? permute(y.w[word], lane % 8 * 16, 0x5504u | (3 - byte) << 4)
							 : permute(y.w[word], lane % 8 * 32, 0x5504u | (3 - byte) << 4) >> 1;
			const uint4 e = *(const uint4 *)(shared_memory + HASH_OFFSET + at); /* 16 bytes of the lane's own: lane % 8 */
			v[word] ^= e.x, v[word + 1] ^= e.y, v[word + 2] ^= e.z, v[word + 3] ^= e.w;
		}
		if (byte == 0)
			break;
		for (int i = 7; i > 0; i--)
			v[i] = funnel_right(v[i - 1], v[i], 8);
		v[0] >>= 8;
	}
	return field_reduce(v);
}
#endif

DEVICE void hash_step(struct hash *h, uint32_t step, uint4 x)
{
	struct element block = { { swap_bytes(x.x), swap_bytes(x.y), swap_bytes(x.z), swap_bytes(x.w) } };
#if HASH == HASH_TABLE
	h->y = field_add(hash_by_table(h->y, THREAD % 32), block);
#else
	h->y = field_add(field_multiply(h->y, h->power), block);
#endif
}

DEVICE struct element hash_end(struct hash *h, uint32_t warp, uint32_t lane, uint32_t *ret_index)
{
	*ret_index = warp * ENDS_OF_WARP + lane;
	return h->y;
}

#endif
#endif

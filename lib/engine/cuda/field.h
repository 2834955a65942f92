/* GF(2^128) of GCM (SP 800-38D, 6.3) in words of 32 bits: the first word holds x^0 in its highest bit.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_ENGINE_CUDA_FIELD_H
#define NAOS_ENGINE_CUDA_FIELD_H

#include "device.h"

struct element {
	uint32_t w[4];
};

DEVICE struct element field_add(struct element a, struct element b)
{
	for (int i = 0; i < 4; i++)
		a.w[i] ^= b.w[i];
	return a;
}

/* a if take is 1, else 1 (as an element); without a branch */
DEVICE struct element field_or_one(struct element a, uint32_t take)
{
	for (int i = 0; i < 4; i++)
		a.w[i] &= 0u - take;
	a.w[0] |= (1u - take) << 31;
	return a;
}

/* Of 256 coefficients the upper 128 come back as x^128 = x^7 + x^2 + x + 1. */
DEVICE struct element field_reduce(const uint32_t *v)
{
	struct element r;
	uint32_t overflow = (v[7] << 31) ^ (v[7] << 30) ^ (v[7] << 25), before = 0;
	for (int i = 0; i < 4; i++) {
		uint32_t high = i == 0 ? v[4] ^ overflow : v[4 + i];
		r.w[i] = v[i] ^ high ^ funnel_right(before, high, 1) ^ funnel_right(before, high, 2) ^ funnel_right(before, high, 7);
		before = high;
	}
	return r;
}

/* a x^n, n from 0 to 32 */
DEVICE struct element field_shift(struct element a, uint32_t n)
{
	uint32_t v[8];
	uint64_t high = 0;
	for (int i = 0; i < 5; i++) {
		uint64_t pair = high << 32 | (i < 4 ? a.w[i] : 0);
		v[i] = (uint32_t)(pair >> n);
		high = i < 4 ? a.w[i] : 0;
	}
	v[5] = v[6] = v[7] = 0;
	return field_reduce(v);
}

/* Product without carries of 32 bits by integer multiplications: every fourth bit at a time leaves room for the carries. */
DEVICE uint64_t clmul32(uint32_t a, uint32_t b)
{
	const uint32_t m = 0x11111111u;
	const uint64_t wide = 0x1111111111111111u;
	uint32_t a0 = a & m, a1 = a & m << 1, a2 = a & m << 2, a3 = a & m << 3;
	uint32_t b0 = b & m, b1 = b & m << 1, b2 = b & m << 2, b3 = b & m << 3;
	uint64_t z0 = (uint64_t)a0 * b0 ^ (uint64_t)a1 * b3 ^ (uint64_t)a2 * b2 ^ (uint64_t)a3 * b1;
	uint64_t z1 = (uint64_t)a0 * b1 ^ (uint64_t)a1 * b0 ^ (uint64_t)a2 * b3 ^ (uint64_t)a3 * b2;
	uint64_t z2 = (uint64_t)a0 * b2 ^ (uint64_t)a1 * b1 ^ (uint64_t)a2 * b0 ^ (uint64_t)a3 * b3;
	uint64_t z3 = (uint64_t)a0 * b3 ^ (uint64_t)a1 * b2 ^ (uint64_t)a2 * b1 ^ (uint64_t)a3 * b0;
	return (z0 & wide) | (z1 & wide << 1) | (z2 & wide << 2) | (z3 & wide << 3);
}

/* 64 bits by 64 (Karatsuba), lowest word first */
DEVICE void clmul64(uint32_t a0, uint32_t a1, uint32_t b0, uint32_t b1, uint32_t *r)
{
	uint64_t low = clmul32(a0, b0), high = clmul32(a1, b1), middle = clmul32(a0 ^ a1, b0 ^ b1) ^ low ^ high;
	r[0] = (uint32_t)low;
	r[1] = (uint32_t)(low >> 32) ^ (uint32_t)middle;
	r[2] = (uint32_t)high ^ (uint32_t)(middle >> 32);
	r[3] = (uint32_t)(high >> 32);
}

DEVICE struct element field_multiply(struct element a, struct element b)
{
	uint32_t low[4], high[4], middle[4], p[8], v[8];
	clmul64(a.w[3], a.w[2], b.w[3], b.w[2], low);
	clmul64(a.w[1], a.w[0], b.w[1], b.w[0], high);
	clmul64(a.w[3] ^ a.w[1], a.w[2] ^ a.w[0], b.w[3] ^ b.w[1], b.w[2] ^ b.w[0], middle);
	for (int i = 0; i < 4; i++) {
		middle[i] ^= low[i] ^ high[i];
		p[i] = low[i];
		p[i + 4] = high[i];
	}
	for (int i = 0; i < 4; i++)
		p[i + 2] ^= middle[i];
	/* p has x^254 in bit 0: one bit up gives 256 coefficients, x^0 in the highest bit */
	for (int i = 0; i < 8; i++)
		v[7 - i] = i == 0 ? p[0] << 1 : funnel_right(p[i], p[i - 1], 31);
	return field_reduce(v);
}

/* 16 coefficients with a zero behind each */
DEVICE uint32_t field_spread(uint32_t x)
{
	x = (x | x << 8) & 0x00ff00ffu;
	x = (x | x << 4) & 0x0f0f0f0fu;
	x = (x | x << 2) & 0x33333333u;
	x = (x | x << 1) & 0x55555555u;
	return x << 1;
}
DEVICE struct element field_square(struct element a)
{
	uint32_t v[8];
	for (int i = 0; i < 4; i++) {
		v[2 * i] = field_spread(a.w[i] >> 16);
		v[2 * i + 1] = field_spread(a.w[i] & 0xffffu);
	}
	return field_reduce(v);
}

/* The sum of all lanes, in all lanes. */
DEVICE struct element field_sum_of_warp(struct element a)
{
	for (uint32_t mask = 16; mask; mask >>= 1)
		for (int i = 0; i < 4; i++)
			a.w[i] ^= shuffle_xor(a.w[i], mask);
	return a;
}

/* The product of all lanes, in all lanes. */
DEVICE struct element field_product_of_warp(struct element a)
{
	for (uint32_t mask = 16; mask; mask >>= 1) {
		struct element other;
		for (int i = 0; i < 4; i++)
			other.w[i] = shuffle_xor(a.w[i], mask);
		a = field_multiply(a, other);
	}
	return a;
}

/* H^e from squares[i] = H^(2^i), by a whole warp; e below 2^64, in all lanes the same. */
#define FIELD_SQUARES 40
DEVICE struct element field_power_by_warp(const struct element *squares, uint64_t e, uint32_t lane)
{
	struct element a = field_or_one(squares[lane], (uint32_t)(e >> lane) & 1);
	if (e >> 32) {
		uint32_t upper = lane + 32 < FIELD_SQUARES ? lane + 32 : FIELD_SQUARES - 1;
		uint32_t take = lane + 32 < FIELD_SQUARES ? (uint32_t)(e >> upper) & 1 : 0;
		a = field_multiply(a, field_or_one(squares[upper], take));
	}
	return field_product_of_warp(a);
}

#endif

/* Numbers as FITS has them (big-endian, scaled: FITS 4.0, 4.4.2.5) to native ones.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_ENGINE_CUDA_CONVERT_H
#define NAOS_ENGINE_CUDA_CONVERT_H

#include "device.h"
#include "plugin.h"

union convert_bits {
	uint32_t u32;
	uint64_t u64;
	float f32;
	double f64;
};

DEVICE uint64_t convert_load(const uint8_t *in, uint64_t index, uint32_t size)
{
	if (size == 1)
		return in[index];
	if (size == 2) {
		uint32_t x = ((const uint16_t *)in)[index];
		return permute(x, 0, 0x4401);
	}
	if (size == 4)
		return swap_bytes(((const uint32_t *)in)[index]);
	uint64_t x = ((const uint64_t *)in)[index];
	return (uint64_t)swap_bytes((uint32_t)x) << 32 | swap_bytes((uint32_t)(x >> 32));
}

DEVICE double convert_value(uint64_t bits, int32_t bitpix)
{
	union convert_bits b;
	switch (bitpix) {
	case 8:
		return (double)bits;
	case 16:
		return (double)(int16_t)bits;
	case 32:
		return (double)(int32_t)bits;
	case 64:
		return (double)(int64_t)bits;
	case -32:
		b.u32 = (uint32_t)bits;
		return (double)b.f32;
	default:
		b.u64 = bits;
		return b.f64;
	}
}

DEVICE int64_t convert_integer(uint64_t bits, int32_t bitpix)
{
	return bitpix == 8 ? (int64_t)bits : bitpix == 16 ? (int16_t)bits : bitpix == 32 ? (int32_t)bits : (int64_t)bits;
}

/* One number a thread and turn; in may be out where the size stays. */
DEVICE void convert_numbers(const struct naos_cuda_conversion *c)
{
	const uint32_t size = (uint32_t)(c->bitpix < 0 ? -c->bitpix : c->bitpix) / 8;
	const uint8_t *in = (const uint8_t *)c->in;
	for (uint64_t i = (uint64_t)BLOCK * THREADS + THREAD; i < c->count; i += (uint64_t)BLOCKS * THREADS) {
		uint64_t bits = convert_load(in, i, size);
		if (c->to == NAOS_CUDA_SAME) {
			if (size == 1)
				((uint8_t *)c->out)[i] = (uint8_t)bits;
			else if (size == 2)
				((uint16_t *)c->out)[i] = (uint16_t)bits;
			else if (size == 4)
				((uint32_t *)c->out)[i] = (uint32_t)bits;
			else
				((uint64_t *)c->out)[i] = bits;
			continue;
		}
		union convert_bits value;
		value.f64 = c->zero + c->scale * convert_value(bits, c->bitpix);
		if (c->has_blank && c->bitpix > 0 && convert_integer(bits, c->bitpix) == c->blank)
			value.u64 = 0x7ff8000000000000u;
		if (c->to == NAOS_CUDA_FLOAT32)
			((float *)c->out)[i] = (float)value.f64;
		else
			((double *)c->out)[i] = value.f64;
	}
}

#endif

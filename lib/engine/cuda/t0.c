/* The table that AES by tables starts from (FIPS 197, 5.1.1 and 5.1.3).  SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"

static uint8_t doubled(uint8_t x)
{
	return (uint8_t)(x << 1 ^ (x >> 7) * 0x1b);
}

static uint8_t rotated(uint8_t x, int bits)
{
	return (uint8_t)(x << bits | x >> (8 - bits));
}

void driver_fill_t0(uint32_t t0[256])
{
	uint8_t p = 1, q = 1; /* p runs through all elements by 3, q through their inverses by 1/3 */
	do {
		p = (uint8_t)(p ^ doubled(p));
		q = (uint8_t)(q ^ q << 1);
		q = (uint8_t)(q ^ q << 2);
		q = (uint8_t)(q ^ q << 4);
		if (q & 0x80)
			q ^= 0x09;
		uint8_t s = (uint8_t)(q ^ rotated(q, 1) ^ rotated(q, 2) ^ rotated(q, 3) ^ rotated(q, 4) ^ 0x63);
		t0[p] = (uint32_t)doubled(s) | (uint32_t)s << 8 | (uint32_t)s << 16 | (uint32_t)(doubled(s) ^ s) << 24;
	} while (p != 1);
	t0[0] = 0x63u << 8 | 0x63u << 16 | 0xc6u | 0xa5u << 24;
}

/* AES in counter mode by tables in shared memory.
 *
 * One table entry of 256 bytes holds T0 for each of the 32 lanes, then T1 (T2 and T3 in a second such table): one byte permutation
 * makes the address (byte << 8 | lane * 4), and every lane reads only its own bank.  So no two lanes ever conflict, and the time of
 * a lookup tells nothing of the byte.  Where shared memory is smaller T2 and T3 (or all but T0) are rotated.
 * The S-box of the last round comes out of the same tables.
 * With AES_TABLES_ADDRESS they begin at a shared address that is a multiple of 65,536, and the permutation makes all of the address:
 * elsewhere each lookup costs an addition, too.
 *
 * Within 256 counters that differ in their last byte only, one column of round 1 and one byte of each column of round 2 vary:
 * the rest is kept, and the two rounds cost 5 lookups instead of 32 (known as FACE).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_ENGINE_CUDA_AES_H
#define NAOS_ENGINE_CUDA_AES_H

#include "device.h"

#define AES_TABLES_BYTES (TABLES * 32768u)
#if HASH == HASH_WGMMA
#define AES_TABLES_ADDRESS 65536u
#endif

/* Where they begin in shared memory. */
DEVICE uint32_t aes_tables(void)
{
#ifdef AES_TABLES_ADDRESS
	return AES_TABLES_ADDRESS - shared_address(0);
#else
	return 0;
#endif
}

/* What lookups of a lane take: the low bytes of its addresses. */
DEVICE uint32_t aes_lane(uint32_t lane)
{
#ifdef AES_TABLES_ADDRESS
	return lane * 4 | AES_TABLES_ADDRESS >> 8;
#else
	return lane * 4;
#endif
}

/* T0, as FIPS 197 and every table implementation has it: 2 S, S, S, 3 S in the bytes from the lowest. */
DEVICE void aes_fill_tables(const uint32_t *t0)
{
	const uint32_t at = aes_tables();
	for (uint32_t i = THREAD; i < 256 * 32; i += THREADS) {
		uint32_t entry = i / 32, lane = i % 32, t = t0[entry];
#if TABLES == 1
		shared_store(at + entry * 128 + lane * 4, t);
#else
		shared_store(at + entry * 256 + lane * 4, t);
		shared_store(at + entry * 256 + 128 + lane * 4, permute(t, t, 0x2103));
#if TABLES == 4
		shared_store(at + 65536 + entry * 256 + lane * 4, permute(t, t, 0x1032));
		shared_store(at + 65536 + entry * 256 + 128 + lane * 4, permute(t, t, 0x0321));
#endif
#endif
	}
}

/* T_table of byte number `byte` of x; lane4 is aes_lane.  Both numbers are constants. */
DEVICE uint32_t aes_lookup(const int table, const int byte, uint32_t x, uint32_t lane4)
{
#if defined(AES_TABLES_ADDRESS)
	return shared_load_at(permute(x, lane4, 0x6504u | byte << 4), table);
#elif TABLES == 4
	return shared_load((table & 1) * 128u + (table >> 1) * 65536u + permute(x, lane4, 0x5504u | byte << 4));
#elif TABLES == 2
	uint32_t t = shared_load((table & 1) * 128u + permute(x, lane4, 0x5504u | byte << 4));
	return table & 2 ? permute(t, t, 0x1032) : t;
#else
	uint32_t t = shared_load((permute(x, lane4 * 2, 0x5504u | byte << 4)) >> 1);
	return table == 0 ? t : permute(t, t, table == 1 ? 0x2103 : table == 2 ? 0x1032 : 0x0321);
#endif
}

DEVICE uint32_t aes_column(uint32_t s0, uint32_t s1, uint32_t s2, uint32_t s3, uint32_t key, uint32_t lane4)
{
	return xor3(xor3(aes_lookup(0, 0, s0, lane4), aes_lookup(1, 1, s1, lane4), aes_lookup(2, 2, s2, lane4)),
		    aes_lookup(3, 3, s3, lane4), key);
}

/* SubBytes and ShiftRows of one column: S stands in the tables beside its multiples. */
DEVICE uint32_t aes_last_column(uint32_t s0, uint32_t s1, uint32_t s2, uint32_t s3, uint32_t lane4)
{
	uint32_t a = aes_lookup(2, 0, s0, lane4), b = aes_lookup(3, 1, s1, lane4);
	uint32_t c = aes_lookup(0, 2, s2, lane4), d = aes_lookup(1, 3, s3, lane4);
	return permute(permute(a, b, 0x0050), permute(c, d, 0x7200), 0x7610);
}

/* Round keys as little-endian words of columns.  One key: in constant memory, where an instruction takes an operand from at no
 * cost.  Many keys: in shared memory, where all lanes read one word. */
#define AES_KEY_SLOTS 64
CONSTANT uint32_t aes_constant_keys[AES_KEY_SLOTS][64];

struct aes_keys {
	uint32_t slot;   /* in constant memory */
	uint32_t offset; /* in shared memory */
};
DEVICE uint32_t aes_key(const struct aes_keys *keys, const int many_keys, const int index)
{
	return many_keys ? shared_load(keys->offset + 4u * index) : aes_constant_keys[keys->slot][index];
}

/* What does not vary within 256 counters: column 0 after round 1 without its varying byte, and so the columns after round 2. */
struct aes_cached {
	uint32_t c0, k0, k1, k2, k3;
};
DEVICE struct aes_cached aes_cache(const struct aes_keys *keys, const int many_keys, const uint32_t *nonce, uint32_t counter_upper,
				   uint32_t lane4)
{
#define K(i) aes_key(keys, many_keys, i)
	struct aes_cached c;
	uint32_t s0 = nonce[0] ^ K(0), s1 = nonce[1] ^ K(1), s2 = nonce[2] ^ K(2), s3 = swap_bytes(counter_upper << 8) ^ K(3);
	c.c0 = xor3(aes_lookup(0, 0, s0, lane4), aes_lookup(1, 1, s1, lane4), aes_lookup(2, 2, s2, lane4)) ^ K(4);
	uint32_t t1 = aes_column(s1, s2, s3, s0, K(5), lane4), t2 = aes_column(s2, s3, s0, s1, K(6), lane4);
	uint32_t t3 = aes_column(s3, s0, s1, s2, K(7), lane4);
	c.k0 = xor3(aes_lookup(1, 1, t1, lane4), aes_lookup(2, 2, t2, lane4), aes_lookup(3, 3, t3, lane4)) ^ K(8);
	c.k1 = xor3(aes_lookup(0, 0, t1, lane4), aes_lookup(1, 1, t2, lane4), aes_lookup(2, 2, t3, lane4)) ^ K(9);
	c.k2 = xor3(aes_lookup(0, 0, t2, lane4), aes_lookup(1, 1, t3, lane4), aes_lookup(3, 3, t1, lane4)) ^ K(10);
	c.k3 = xor3(aes_lookup(0, 0, t3, lane4), aes_lookup(2, 2, t1, lane4), aes_lookup(3, 3, t2, lane4)) ^ K(11);
	return c;
}

/* The key stream block of the counter whose last byte is given (the rest of it is in `c`).  rounds: 10 or 14, a constant. */
DEVICE uint4 aes_stream(const struct aes_keys *keys, const int many_keys, const int rounds, const struct aes_cached *c,
			uint32_t counter_byte, uint32_t lane4)
{
	uint32_t t = c->c0 ^ aes_lookup(3, 3, counter_byte << 24 ^ K(3), lane4);
	uint32_t s0 = c->k0 ^ aes_lookup(0, 0, t, lane4), s1 = c->k1 ^ aes_lookup(3, 3, t, lane4);
	uint32_t s2 = c->k2 ^ aes_lookup(2, 2, t, lane4), s3 = c->k3 ^ aes_lookup(1, 1, t, lane4);
#ifdef __CUDACC__
#pragma unroll
#endif
	for (int r = 3; r < 14; r++) {
		if (r >= rounds)
			break;
		uint32_t t0 = aes_column(s0, s1, s2, s3, K(4 * r), lane4), t1 = aes_column(s1, s2, s3, s0, K(4 * r + 1), lane4);
		uint32_t t2 = aes_column(s2, s3, s0, s1, K(4 * r + 2), lane4), t3 = aes_column(s3, s0, s1, s2, K(4 * r + 3), lane4);
		s0 = t0, s1 = t1, s2 = t2, s3 = t3;
	}
	uint4 out;
	out.x = aes_last_column(s0, s1, s2, s3, lane4) ^ K(4 * rounds);
	out.y = aes_last_column(s1, s2, s3, s0, lane4) ^ K(4 * rounds + 1);
	out.z = aes_last_column(s2, s3, s0, s1, lane4) ^ K(4 * rounds + 2);
	out.w = aes_last_column(s3, s0, s1, s2, lane4) ^ K(4 * rounds + 3);
	return out;
#undef K
}

/* --- one block and the key schedule by one lane, with T0 alone (setup.h) ------------------------------------------------------- */

/* t0: 256 words at an offset of shared memory */
DEVICE uint32_t aes_small_lookup(uint32_t t0, uint32_t byte)
{
	return shared_load(t0 + 4 * (byte & 255));
}
DEVICE uint32_t aes_small_sbox(uint32_t t0, uint32_t word)
{
	uint32_t r = 0;
	for (int i = 0; i < 4; i++)
		r |= (aes_small_lookup(t0, word >> 8 * i) >> 8 & 255) << 8 * i;
	return r;
}
DEVICE uint32_t aes_rotate(uint32_t x, uint32_t bits)
{
	return funnel_right(x, x, (32 - bits) & 31); /* to the left */
}

/* FIPS 197, 5.2: raw has key_words (4 or 8) words; keys gets 4 * (key_words + 7) */
DEVICE void aes_expand(uint32_t t0, const uint32_t *raw, int key_words, uint32_t *keys)
{
	uint32_t round_constant = 1;
	for (int i = 0; i < key_words; i++)
		keys[i] = raw[i];
	for (int i = key_words; i < 4 * (key_words + 7); i++) {
		uint32_t t = keys[i - 1];
		if (i % key_words == 0) {
			t = aes_small_sbox(t0, aes_rotate(t, 24)) ^ round_constant;
			round_constant = (round_constant << 1 ^ (round_constant >> 7) * 0x1b) & 255;
		} else if (key_words > 6 && i % key_words == 4) {
			t = aes_small_sbox(t0, t);
		}
		keys[i] = keys[i - key_words] ^ t;
	}
}

DEVICE void aes_small_encrypt(uint32_t t0, const uint32_t *keys, uint32_t rounds, const uint32_t *in, uint32_t *out)
{
	uint32_t s[4], t[4];
	for (int i = 0; i < 4; i++)
		s[i] = in[i] ^ keys[i];
	for (uint32_t r = 1; r < rounds; r++) {
		for (int i = 0; i < 4; i++)
			t[i] = aes_small_lookup(t0, s[i]) ^ aes_rotate(aes_small_lookup(t0, s[(i + 1) & 3] >> 8), 8) ^
			       aes_rotate(aes_small_lookup(t0, s[(i + 2) & 3] >> 16), 16) ^
			       aes_rotate(aes_small_lookup(t0, s[(i + 3) & 3] >> 24), 24) ^ keys[4 * r + i];
		for (int i = 0; i < 4; i++)
			s[i] = t[i];
	}
	for (int i = 0; i < 4; i++)
		out[i] = keys[4 * rounds + i] ^ aes_small_sbox(t0, (s[i] & 0xffu) | (s[(i + 1) & 3] & 0xff00u) |
							       (s[(i + 2) & 3] & 0xff0000u) | (s[(i + 3) & 3] & 0xff000000u));
}

#endif

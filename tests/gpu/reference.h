/* What the tests of the GPU compare with: OpenSSL's AES-GCM; for a first counter block of any value its AES and GHASH bit by bit.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_TESTS_GPU_REFERENCE_H
#define NAOS_TESTS_GPU_REFERENCE_H

#include <openssl/evp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define check(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
			exit(1); \
		} \
	} while (0)

/* Not random: a failure must come again. */
static inline uint64_t next_random(uint64_t *seed)
{
	uint64_t x = (*seed += 0x9e3779b97f4a7c15u);
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}
static inline void fill_random(uint64_t *seed, uint8_t *to, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t x = next_random(seed);
		memcpy(to + i, &x, bytes - i < 8 ? bytes - i : 8);
	}
}

static inline void reference_seal(const uint8_t *key, uint32_t key_bytes, const uint8_t *nonce, const uint8_t *associated,
				  size_t associated_bytes, const uint8_t *in, uint8_t *out, size_t bytes, uint8_t *tag)
{
	static EVP_CIPHER_CTX *context;
	int n;
	if (!context)
		context = EVP_CIPHER_CTX_new();
	check(EVP_EncryptInit_ex(context, key_bytes == 16 ? EVP_aes_128_gcm() : EVP_aes_256_gcm(), NULL, key, nonce) == 1);
	if (associated_bytes)
		check(EVP_EncryptUpdate(context, NULL, &n, associated, (int)associated_bytes) == 1);
	for (size_t done = 0; done < bytes; done += (size_t)1 << 30)
		check(EVP_EncryptUpdate(context, out + done, &n, in + done,
					(int)(bytes - done < (size_t)1 << 30 ? bytes - done : (size_t)1 << 30)) == 1);
	check(EVP_EncryptFinal_ex(context, out + bytes, &n) == 1);
	check(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, 16, tag) == 1);
}

static inline void reference_block(const uint8_t *key, uint32_t key_bytes, const uint8_t *in, uint8_t *out)
{
	static EVP_CIPHER_CTX *context;
	int n;
	if (!context)
		context = EVP_CIPHER_CTX_new();
	check(EVP_EncryptInit_ex(context, key_bytes == 16 ? EVP_aes_128_ecb() : EVP_aes_256_ecb(), NULL, key, NULL) == 1);
	check(EVP_EncryptUpdate(context, out, &n, in, 16) == 1);
}

/* y = (y + block) h, as SP 800-38D, 6.3 and 6.4 have it */
static inline void reference_hash_block(uint8_t *y, const uint8_t *h, const uint8_t *block)
{
	uint8_t z[16] = { 0 }, v[16];
	memcpy(v, h, 16);
	for (int i = 0; i < 16; i++)
		y[i] ^= block[i];
	for (int i = 0; i < 128; i++) {
		if (y[i / 8] >> (7 - i % 8) & 1)
			for (int j = 0; j < 16; j++)
				z[j] ^= v[j];
		bool carry = v[15] & 1;
		for (int j = 15; j > 0; j--)
			v[j] = (uint8_t)(v[j] >> 1 | v[j - 1] << 7);
		v[0] = (uint8_t)(v[0] >> 1 ^ (carry ? 0xe1 : 0));
	}
	memcpy(y, z, 16);
}
static inline void reference_hash(uint8_t *y, const uint8_t *h, const uint8_t *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += 16) {
		uint8_t block[16] = { 0 };
		memcpy(block, data + i, bytes - i < 16 ? bytes - i : 16);
		reference_hash_block(y, h, block);
	}
}
static inline void reference_lengths(uint8_t *y, const uint8_t *h, uint64_t a, uint64_t b)
{
	uint8_t block[16];
	for (int i = 0; i < 8; i++) {
		block[7 - i] = (uint8_t)(a * 8 >> 8 * i);
		block[15 - i] = (uint8_t)(b * 8 >> 8 * i);
	}
	reference_hash_block(y, h, block);
}

/* The first counter block of a nonce of any length (7.1, step 2). */
static inline void reference_j0(const uint8_t *key, uint32_t key_bytes, const uint8_t *nonce, size_t nonce_bytes, uint8_t *j0)
{
	uint8_t h[16] = { 0 };
	memset(j0, 0, 16);
	if (nonce_bytes == 12) {
		memcpy(j0, nonce, 12);
		j0[15] = 1;
		return;
	}
	reference_block(key, key_bytes, h, h);
	reference_hash(j0, h, nonce, nonce_bytes);
	reference_lengths(j0, h, 0, nonce_bytes);
}

/* From a first counter block that need not come from a nonce; slow. */
static inline void reference_seal_j0(const uint8_t *key, uint32_t key_bytes, const uint8_t *j0, const uint8_t *associated,
				     size_t associated_bytes, const uint8_t *in, uint8_t *out, size_t bytes, uint8_t *tag)
{
	uint8_t h[16] = { 0 }, counter[16], pad[16], y[16] = { 0 };
	uint32_t count = (uint32_t)j0[12] << 24 | (uint32_t)j0[13] << 16 | (uint32_t)j0[14] << 8 | j0[15];
	memcpy(counter, j0, 16);
	reference_block(key, key_bytes, h, h);
	for (size_t i = 0; i < bytes; i++) {
		if (i % 16 == 0) {
			count++;
			for (int j = 0; j < 4; j++)
				counter[12 + j] = (uint8_t)(count >> 8 * (3 - j));
			reference_block(key, key_bytes, counter, pad);
		}
		out[i] = in[i] ^ pad[i % 16];
	}
	reference_hash(y, h, associated, associated_bytes);
	reference_hash(y, h, out, bytes);
	reference_lengths(y, h, associated_bytes, bytes);
	reference_block(key, key_bytes, j0, pad);
	for (int i = 0; i < 16; i++)
		tag[i] = y[i] ^ pad[i];
}

#endif

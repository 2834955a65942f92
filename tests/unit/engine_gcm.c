/* The calls of the engine on every back end that runs here: any alignment, any length, in place, damage, misuse.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine_helper.h"

#include <sys/mman.h>
#include <sys/wait.h>

static const uint8_t raw[32] = { 1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97 };
static const uint8_t nonce[NAOS_GCM_NONCE_BYTES] = "twelve bytes";

#define EACH_ROW(row_, algorithm_) \
	for (size_t row_ = 0; row_ < row_count; row_++) \
		for (enum naos_algorithm algorithm_ = NAOS_AES_128_GCM; algorithm_ <= NAOS_AES_256_GCM; algorithm_++)

/* OpenSSL is the peer of the others: it must be there, and last but for FIPS. */
static const struct naos_engine_backend *peer(void)
{
	for (size_t i = 0; i < row_count; i++)
		if (strcmp(rows[i]->name, "openssl") == 0)
			return rows[i];
	fail_msg("OpenSSL's back end does not run");
	return NULL;
}

static void all_lengths_of_associated_data_agree(void **state)
{
	uint8_t associated[300], plain[100], sealed[100], tag[16], expected[16];
	uint64_t seed = 1;
	fill_random(&seed, associated, sizeof(associated));
	fill_random(&seed, plain, sizeof(plain));
	EACH_ROW(r, algorithm) {
		struct naos_gcm_key *key = make_key(rows[r], algorithm, raw), *other = make_key(peer(), algorithm, raw);
		for (size_t bytes = 0; bytes <= sizeof(associated); bytes++) {
			struct naos_gcm_message m = { nonce, associated, bytes, plain, sealed, sizeof(plain), expected, 0 };
			assert_ok(naos_gcm_seal(other, &m, &err), &err);
			m.tag = tag;
			assert_ok(naos_gcm_seal(key, &m, &err), &err);
			assert_memory_equal(tag, expected, 16);
			m.in = m.out = sealed;
			assert_ok(naos_gcm_open(key, &m, &err), &err);
			assert_memory_equal(sealed, plain, sizeof(plain));
		}
		naos_gcm_key_free(key);
		naos_gcm_key_free(other);
	}
}

/* Input at every offset of a cache line and output at every other; what lies around the output stays. */
static void every_alignment_gives_the_same(void **state)
{
	static const size_t lengths[] = { 1, 16, 61, 257, 1100 };
	static uint8_t in[2048] __attribute__((aligned(64))), out[2048] __attribute__((aligned(64))), back[2048] __attribute__((aligned(64)));
	uint8_t expected[1100], tag[16], expected_tag[16];
	uint64_t seed = 2;
	EACH_ROW(r, algorithm) {
		struct naos_gcm_key *key = make_key(rows[r], algorithm, raw);
		for (size_t l = 0; l < NAOS_ARRAY_LENGTH(lengths); l++) {
			uint8_t plain[1100];
			size_t bytes = lengths[l];
			fill_random(&seed, plain, bytes);
			struct naos_gcm_message m = { nonce, raw, 13, plain, expected, bytes, expected_tag, 0 };
			assert_ok(naos_gcm_seal(key, &m, &err), &err);
			for (size_t offsets = 0; offsets < 64 * 64; offsets++) {
				uint8_t *from = in + 64 + offsets % 64, *to = out + 64 + offsets / 64;
				memcpy(from, plain, bytes);
				memset(to - 64, 0xa5, 64 + bytes + 64);
				m = (struct naos_gcm_message){ nonce, raw, 13, from, to, bytes, tag, 0 };
				assert_ok(naos_gcm_seal(key, &m, &err), &err);
				assert_memory_equal(to, expected, bytes);
				assert_memory_equal(tag, expected_tag, 16);
				for (size_t i = 1; i <= 64; i++)
					assert_true(to[-(ptrdiff_t)i] == 0xa5 && to[bytes + i - 1] == 0xa5);
				m.in = to;
				m.out = back + 64 + offsets % 64;
				assert_ok(naos_gcm_open(key, &m, &err), &err);
				assert_memory_equal(m.out, plain, bytes);
				if (offsets >= 64)
					continue;
				m = (struct naos_gcm_message){ nonce, raw, 13, from, from, bytes, tag, 0 };
				assert_ok(naos_gcm_seal(key, &m, &err), &err);
				assert_memory_equal(from, expected, bytes);
				assert_memory_equal(tag, expected_tag, 16);
				assert_ok(naos_gcm_open(key, &m, &err), &err);
				assert_memory_equal(from, plain, bytes);
			}
		}
		naos_gcm_key_free(key);
	}
}

/* Two pages between guard pages: data at either end of them. */
static uint8_t *guarded_pages(void)
{
	uint8_t *area = mmap(NULL, 4 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(area, MAP_FAILED);
	assert_int_equal(mprotect(area + 4096, 2 * 4096, PROT_READ | PROT_WRITE), 0);
	return area + 4096;
}

static void nothing_is_touched_outside_the_buffers(void **state)
{
	uint8_t *in = guarded_pages(), *out = guarded_pages(), *associated = guarded_pages(), *tags = guarded_pages();
	EACH_ROW(r, algorithm) {
		struct naos_gcm_key *key = make_key(rows[r], algorithm, raw);
		for (size_t bytes = 0; bytes <= 1100; bytes += bytes < 300 ? 1 : 7) {
			for (int at_end = 0; at_end < 2; at_end++) {
				size_t shift = at_end ? 2 * 4096 - bytes : 0, associated_bytes = bytes % 301;
				struct naos_gcm_message m = { at_end ? tags + 2 * 4096 - 12 : tags,
							      associated + (at_end ? 2 * 4096 - associated_bytes : 0), associated_bytes,
							      in + shift, out + shift, bytes, at_end ? tags + 2 * 4096 - 32 : tags + 16, 0 };
				assert_ok(naos_gcm_seal(key, &m, &err), &err);
				m.in = m.out;
				assert_ok(naos_gcm_open(key, &m, &err), &err);
			}
		}
		naos_gcm_key_free(key);
	}
	uint8_t *all[] = { in, out, associated, tags };
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(munmap(all[i] - 4096, 4 * 4096), 0);
}

/* Flips one bit of `what`, expects refusal and zeroed output, out of place and in place, and flips it back. */
static void expect_refusal(const struct naos_gcm_key *key, const struct naos_gcm_message *sealed, uint8_t *what, size_t bit)
{
	uint8_t out[128];
	struct naos_gcm_message m = *sealed;
	what[bit / 8] ^= (uint8_t)(1 << bit % 8);
	memset(out, 0xa5, sizeof(out));
	m.out = out;
	assert_code(naos_gcm_open(key, &m, &err), NAOS_E_INTEGRITY);
	assert_true(all_zero(out, m.bytes));
	memcpy(out, sealed->in, m.bytes);
	m.in = out;
	assert_code(naos_gcm_open(key, &m, &err), NAOS_E_INTEGRITY);
	assert_true(all_zero(out, m.bytes));
	assert_true(m.bytes == sizeof(out) || out[m.bytes] == 0xa5);
	what[bit / 8] ^= (uint8_t)(1 << bit % 8);
}

static void every_flipped_bit_is_refused_and_the_output_zeroed(void **state)
{
	uint8_t plain[100], sealed[100], associated[20] = "associated", tag[16], own_nonce[12];
	memset(plain, 0x77, sizeof(plain));
	memcpy(own_nonce, nonce, 12);
	EACH_ROW(r, algorithm) {
		struct naos_gcm_key *key = make_key(rows[r], algorithm, raw);
		for (size_t bytes = 0; bytes <= 100; bytes += 25) {
			struct naos_gcm_message m = { own_nonce, associated, 20, plain, sealed, bytes, tag, 0 };
			assert_ok(naos_gcm_seal(key, &m, &err), &err);
			m.in = sealed;
			for (size_t bit = 0; bit < 128; bit++)
				expect_refusal(key, &m, tag, bit);
			for (size_t bit = 0; bit < 96; bit++)
				expect_refusal(key, &m, own_nonce, bit);
			for (size_t bit = 0; bit < 160; bit++)
				expect_refusal(key, &m, associated, bit);
			for (size_t bit = 0; bit < 8 * bytes; bit++)
				expect_refusal(key, &m, sealed, bit);
			m.out = plain;
			assert_ok(naos_gcm_open(key, &m, &err), &err);
			memset(plain, 0x77, sizeof(plain));
		}
		naos_gcm_key_free(key);
	}
}

static void many_messages_fail_one_by_one(void **state)
{
	enum { COUNT = 9, BYTES = 333 };
	static uint8_t plain[COUNT][BYTES], data[COUNT][BYTES], tags[COUNT][16], nonces[COUNT][12];
	uint64_t seed = 3;
	EACH_ROW(r, algorithm) {
		struct naos_gcm_key *key = make_key(rows[r], algorithm, raw);
		struct naos_gcm_message m[COUNT];
		for (size_t i = 0; i < COUNT; i++) {
			fill_random(&seed, plain[i], BYTES);
			fill_random(&seed, nonces[i], 12);
			m[i] = (struct naos_gcm_message){ nonces[i], nonces[0], i, plain[i], data[i], BYTES - i, tags[i], 99 };
		}
		assert_ok(naos_gcm_seal_many(key, m, COUNT, &err), &err);
		for (size_t i = 0; i < COUNT; i++) {
			assert_int_equal(m[i].result, 0);
			m[i].in = data[i];
		}
		tags[2][15] ^= 0x80;
		data[7][BYTES - 8] ^= 1; /* its last byte */
		assert_code(naos_gcm_open_many(key, m, COUNT, &err), NAOS_E_INTEGRITY);
		assert_non_null(strstr(err.message, "2 of 9"));
		for (size_t i = 0; i < COUNT; i++) {
			bool bad = i == 2 || i == 7;
			assert_int_equal(m[i].result, bad ? NAOS_E_INTEGRITY : 0);
			if (bad)
				assert_true(all_zero(data[i], BYTES - i));
			else
				assert_memory_equal(data[i], plain[i], BYTES - i);
		}
		assert_ok(naos_gcm_seal_many(key, NULL, 0, &err), &err);
		assert_ok(naos_gcm_open_many(key, NULL, 0, &err), &err);
		naos_gcm_key_free(key);
	}
}

static void misuse_is_refused(void **state)
{
	static uint8_t buffer[256];
	uint8_t tag[16], other[16];
	uint64_t too_long = NAOS_GCM_MAX_MESSAGE_BYTES + 1;
	const struct naos_gcm_message good = { nonce, raw, 10, buffer, buffer, 100, tag, 0 };
	EACH_ROW(r, algorithm) {
		struct naos_gcm_key *key = make_key(rows[r], algorithm, raw);
		struct naos_gcm_message bad[] = { good, good, good, good, good, good, good, good, good, good, good };
		int expected[] = { 0, NAOS_E_USAGE, NAOS_E_USAGE, NAOS_E_USAGE, NAOS_E_USAGE, NAOS_E_USAGE, NAOS_E_USAGE, NAOS_E_USAGE,
				   NAOS_E_LIMIT, NAOS_E_LIMIT, NAOS_E_USAGE };
		bad[1].nonce = NULL;
		bad[2].associated = NULL;
		bad[3].in = NULL;
		bad[4].out = NULL;
		bad[5].tag = NULL;
		bad[6].out = buffer + 1;
		bad[7].in = buffer + 99;
		bad[8].bytes = too_long;
		bad[9].associated_bytes = (size_t)1 << 32;
		bad[10].tag = buffer + 90;
		for (size_t i = 0; i < NAOS_ARRAY_LENGTH(bad); i++) {
			struct naos_gcm_message pair[2] = { good, bad[i] };
			uint8_t before[sizeof(buffer)];
			pair[0].tag = other;
			memcpy(before, buffer, sizeof(before));
			assert_code(naos_gcm_seal(key, &bad[i], &err), expected[i]);
			if (expected[i])
				assert_memory_equal(buffer, before, sizeof(before));
			assert_code(naos_gcm_open(key, &bad[i], &err), expected[i]);
			assert_code(naos_gcm_seal_many(key, pair, 2, &err), expected[i]);
			assert_int_equal(pair[1].result, expected[i]);
			memcpy(buffer, before, sizeof(before));
		}
		/* neighbours that only touch are no overlap */
		struct naos_gcm_message m = { nonce, raw, 10, buffer, buffer + 100, 100, buffer + 200, 0 };
		assert_ok(naos_gcm_seal(key, &m, &err), &err);
		/* nothing at all is a message too */
		m = (struct naos_gcm_message){ nonce, NULL, 0, NULL, NULL, 0, tag, 0 };
		assert_ok(naos_gcm_seal(key, &m, &err), &err);
		assert_ok(naos_gcm_open(key, &m, &err), &err);
		tag[0] ^= 1;
		assert_code(naos_gcm_open(key, &m, &err), NAOS_E_INTEGRITY);
		naos_gcm_key_free(key);
	}
}

static void streams_keep_their_rules(void **state)
{
	uint8_t buffer[64] = { 0 }, tag[16];
	struct naos_gcm_stream *stream;
	EACH_ROW(r, algorithm) {
		struct naos_gcm_key *key = make_key(rows[r], algorithm, raw);
		assert_code(naos_gcm_stream_create(key, true, NULL, NULL, 0, &stream, &err), NAOS_E_USAGE);
		assert_code(naos_gcm_stream_create(key, true, nonce, NULL, 1, &stream, &err), NAOS_E_USAGE);
		assert_code(naos_gcm_stream_create(key, true, nonce, raw, (size_t)1 << 32, &stream, &err), NAOS_E_LIMIT);
		assert_ok(naos_gcm_stream_create(key, true, nonce, raw, 5, &stream, &err), &err);
		assert_code(naos_gcm_stream_update(stream, buffer, NULL, 1, &err), NAOS_E_USAGE);
		assert_code(naos_gcm_stream_update(stream, buffer, buffer + 1, 2, &err), NAOS_E_USAGE);
		assert_ok(naos_gcm_stream_update(stream, NULL, NULL, 0, &err), &err);
		assert_ok(naos_gcm_stream_update(stream, buffer, buffer, 64, &err), &err);
		assert_code(naos_gcm_stream_finish(stream, NULL, &err), NAOS_E_USAGE);
		assert_ok(naos_gcm_stream_finish(stream, tag, &err), &err);
		assert_code(naos_gcm_stream_finish(stream, tag, &err), NAOS_E_USAGE);
		assert_code(naos_gcm_stream_update(stream, buffer, buffer, 1, &err), NAOS_E_USAGE);
		naos_gcm_stream_free(stream);
		for (size_t bit = 0; bit <= 128; bit++) { /* the last time the tag is right */
			uint8_t copy[64], flip = (uint8_t)(bit < 128 ? 1 << bit % 8 : 0);
			assert_ok(naos_gcm_stream_create(key, false, nonce, raw, 5, &stream, &err), &err);
			assert_ok(naos_gcm_stream_update(stream, buffer, copy, 64, &err), &err);
			tag[bit % 128 / 8] ^= flip;
			assert_code(naos_gcm_stream_finish(stream, tag, &err), flip ? NAOS_E_INTEGRITY : 0);
			tag[bit % 128 / 8] ^= flip;
			naos_gcm_stream_free(stream);
			assert_true(all_zero(copy, 64));
		}
		/* as if it had 64 GiB but for a few bytes already */
		assert_ok(naos_gcm_stream_create(key, true, nonce, NULL, 0, &stream, &err), &err);
		stream->bytes = NAOS_GCM_MAX_MESSAGE_BYTES - 10;
		assert_code(naos_gcm_stream_update(stream, buffer, buffer, 11, &err), NAOS_E_LIMIT);
		assert_ok(naos_gcm_stream_update(stream, buffer, buffer, 10, &err), &err);
		assert_code(naos_gcm_stream_update(stream, buffer, buffer, 1, &err), NAOS_E_LIMIT);
		naos_gcm_stream_free(stream);
		memset(buffer, 0, sizeof(buffer));
		naos_gcm_key_free(key);
	}
	assert_null(naos_gcm_stream_free(NULL));
}

/* A stream in random pieces, some empty, in place. */
static void stream_in_pieces(const struct naos_gcm_key *key, bool sealing, const struct naos_gcm_message *m, uint8_t *data,
			     uint8_t *tag, uint64_t *seed)
{
	struct naos_gcm_stream *stream;
	size_t most = (size_t)1 << next_random(seed) % 13;
	assert_ok(naos_gcm_stream_create(key, sealing, m->nonce, m->associated, m->associated_bytes, &stream, &err), &err);
	for (size_t done = 0, piece; done < m->bytes; done += piece) {
		piece = next_random(seed) % (most + 1);
		piece = piece < m->bytes - done ? piece : m->bytes - done;
		assert_ok(naos_gcm_stream_update(stream, data + done, data + done, piece, &err), &err);
	}
	assert_ok(naos_gcm_stream_finish(stream, tag, &err), &err);
	naos_gcm_stream_free(stream);
}

static void back_ends_agree_on_random_cases(void **state)
{
	enum { MOST = 20000, CASES = 3000 };
	static uint8_t plain[MOST], expected[MOST], data[MOST], associated[1000];
	uint64_t seed = 4;
	for (unsigned i = 0; i < CASES; i++) {
		uint8_t own_raw[32], own_nonce[12], tag[16], expected_tag[16];
		enum naos_algorithm algorithm = i & 1 ? NAOS_AES_128_GCM : NAOS_AES_256_GCM;
		size_t bytes = next_random(&seed) % ((size_t)1 << (1 + next_random(&seed) % 14)), associated_bytes = next_random(&seed) % 1001;
		fill_random(&seed, own_raw, 32);
		fill_random(&seed, own_nonce, 12);
		fill_random(&seed, plain, bytes);
		fill_random(&seed, associated, associated_bytes);
		struct naos_gcm_message m = { own_nonce, associated, associated_bytes, plain, expected, bytes, expected_tag, 0 };
		struct naos_gcm_key *key = make_key(peer(), algorithm, own_raw);
		assert_ok(naos_gcm_seal(key, &m, &err), &err);
		naos_gcm_key_free(key);
		for (size_t r = 0; r < row_count; r++) {
			key = make_key(rows[r], algorithm, own_raw);
			m.out = data;
			m.tag = tag;
			assert_ok(naos_gcm_seal(key, &m, &err), &err);
			assert_memory_equal(data, expected, bytes);
			assert_memory_equal(tag, expected_tag, 16);
			stream_in_pieces(key, false, &m, data, tag, &seed);
			assert_memory_equal(data, plain, bytes);
			memset(tag, 0, 16);
			stream_in_pieces(key, true, &m, data, tag, &seed);
			assert_memory_equal(data, expected, bytes);
			assert_memory_equal(tag, expected_tag, 16);
			m.in = expected;
			assert_ok(naos_gcm_open(key, &m, &err), &err);
			assert_memory_equal(data, plain, bytes);
			m.in = plain;
			naos_gcm_key_free(key);
		}
	}
	printf("%u random cases, each on %zu back ends\n", CASES, row_count);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_lengths_of_associated_data_agree), cmocka_unit_test(every_alignment_gives_the_same),
		cmocka_unit_test(nothing_is_touched_outside_the_buffers), cmocka_unit_test(every_flipped_bit_is_refused_and_the_output_zeroed),
		cmocka_unit_test(many_messages_fail_one_by_one), cmocka_unit_test(misuse_is_refused),
		cmocka_unit_test(streams_keep_their_rules), cmocka_unit_test(back_ends_agree_on_random_cases),
	};
	return cmocka_run_group_tests_name("engine gcm", tests, start_rows, NULL);
}

/* Tags of long messages (tests/data/engine/pattern_kats.txt) on every back end, as one message and as a stream.  With
 * --slow: the vectors above 16 MiB, and single messages beyond 4 GiB and up to the longest that GCM allows.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine_helper.h"

#include <sys/mman.h>

#define SHORT_BYTES ((uint64_t)17000000)
#define PIECE ((size_t)1 << 20)
#define WINDOW ((size_t)4 << 20)

static const uint8_t raw[32] = {
	0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff,
	0x0f, 0x1e, 0x2d, 0x3c, 0x4b, 0x5a, 0x69, 0x78, 0x87, 0x96, 0xa5, 0xb4, 0xc3, 0xd2, 0xe1, 0xf0,
};
static const uint8_t nonce[NAOS_GCM_NONCE_BYTES] = { 0xca, 0xfe, 0xba, 0xbe, 0xfa, 0xce, 0xdb, 0xad, 0xde, 0xca, 0xf8, 0x88 };
static uint8_t associated[4096];
static struct naos_gcm_key *keys[MAX_ROWS][NAOS_AES_256_GCM + 1];

struct answer {
	enum naos_algorithm algorithm;
	size_t associated_bytes;
	uint64_t bytes;
	uint8_t tag[16], last[16];
};

static int start(void **state)
{
	if (start_rows(state) != 0)
		return -1;
	for (size_t i = 0; i < sizeof(associated); i++)
		associated[i] = (uint8_t)(i * 7 + 3);
	for (size_t r = 0; r < row_count; r++)
		for (enum naos_algorithm a = NAOS_AES_128_GCM; a <= NAOS_AES_256_GCM; a++)
			keys[r][a] = make_key(rows[r], a, raw);
	return 0;
}

static int stop(void **state)
{
	for (size_t r = 0; r < row_count; r++)
		for (enum naos_algorithm a = NAOS_AES_128_GCM; a <= NAOS_AES_256_GCM; a++)
			naos_gcm_key_free(keys[r][a]);
	return 0;
}

/* Plaintext from byte `offset` on, a multiple of 4. */
static void pattern(uint8_t *buffer, uint64_t offset, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += 4) {
		uint64_t index = (offset + i) / 4;
		uint32_t x = (uint32_t)index * 2654435761u ^ (uint32_t)(index >> 32) * 0x9e3779b9u;
		x = (x ^ x >> 15) * 0x2c1b3c6du;
		x = (x ^ x >> 12) * 0x297a2d39u;
		x ^= x >> 15;
		memcpy(buffer + i, &x, bytes - i < 4 ? bytes - i : 4);
	}
}

static uint8_t *memory(size_t bytes)
{
	uint8_t *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(area, MAP_FAILED);
	return area;
}

static void check_last(const struct answer *answer, const uint8_t *out, size_t bytes)
{
	size_t last = bytes < 16 ? bytes : 16;
	assert_memory_equal(out + bytes - last, answer->last, last);
}

static void as_one_message(const struct answer *answer, const uint8_t *plain, uint8_t *out)
{
	size_t bytes = (size_t)answer->bytes;
	for (size_t r = 0; r < row_count; r++) {
		uint8_t tag[16];
		struct naos_gcm_message m = { nonce, associated, answer->associated_bytes, plain, out, bytes, tag, 0 };
		assert_ok(naos_gcm_seal(keys[r][answer->algorithm], &m, &err), &err);
		assert_memory_equal(tag, answer->tag, 16);
		check_last(answer, out, bytes);
		m.in = out;
		assert_ok(naos_gcm_open(keys[r][answer->algorithm], &m, &err), &err);
		assert_memory_equal(out, plain, bytes);
	}
}

/* A sealing and an opening stream on every back end side by side: memory stays bounded, the pattern is made once. */
static void as_streams(const struct answer *answer, uint8_t *plain, uint8_t *out)
{
	struct naos_gcm_stream *sealing[MAX_ROWS], *opening[MAX_ROWS];
	for (size_t r = 0; r < row_count; r++) {
		const struct naos_gcm_key *key = keys[r][answer->algorithm];
		assert_ok(naos_gcm_stream_create(key, true, nonce, associated, answer->associated_bytes, &sealing[r], &err), &err);
		assert_ok(naos_gcm_stream_create(key, false, nonce, associated, answer->associated_bytes, &opening[r], &err), &err);
	}
	for (uint64_t done = 0, piece; done < answer->bytes; done += piece) {
		piece = answer->bytes - done < PIECE ? answer->bytes - done : PIECE;
		pattern(plain, done, (size_t)piece);
		for (size_t r = 0; r < row_count; r++) {
			assert_ok(naos_gcm_stream_update(sealing[r], plain, out, (size_t)piece, &err), &err);
			if (done + piece == answer->bytes && piece >= 16)
				check_last(answer, out, (size_t)piece);
			assert_ok(naos_gcm_stream_update(opening[r], out, out, (size_t)piece, &err), &err);
			assert_int_equal(memcmp(out, plain, (size_t)piece), 0);
		}
	}
	for (size_t r = 0; r < row_count; r++) {
		uint8_t tag[16];
		assert_ok(naos_gcm_stream_finish(sealing[r], tag, &err), &err);
		assert_memory_equal(tag, answer->tag, 16);
		assert_ok(naos_gcm_stream_finish(opening[r], tag, &err), &err);
		naos_gcm_stream_free(sealing[r]);
		naos_gcm_stream_free(opening[r]);
	}
}

static void run_answers(bool long_ones)
{
	char path[4096], line[256], tag[64], last[64];
	const char *source = getenv("NAOS_SOURCE");
	unsigned count = 0, bits;
	uint8_t *plain = memory(SHORT_BYTES), *out = memory(SHORT_BYTES);
	(void)snprintf(path, sizeof(path), "%s/tests/data/engine/pattern_kats.txt", source ? source : ".");
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		struct answer answer;
		unsigned long long bytes;
		if (line[0] == '#')
			continue;
		assert_int_equal(sscanf(line, "%u %zu %llu %63s %63s", &bits, &answer.associated_bytes, &bytes, tag, last), 5);
		answer.algorithm = bits == 128 ? NAOS_AES_128_GCM : NAOS_AES_256_GCM;
		answer.bytes = bytes;
		assert_int_equal(from_hex(tag, answer.tag, 16), 16);
		assert_int_equal(from_hex(last, answer.last, 16), 16);
		if ((answer.bytes > SHORT_BYTES) != long_ones)
			continue;
		if (!long_ones) {
			pattern(plain, 0, (size_t)answer.bytes);
			as_one_message(&answer, plain, out);
		}
		as_streams(&answer, plain, out);
		count++;
	}
	assert_int_equal(fclose(file), 0);
	assert_int_equal(munmap(plain, SHORT_BYTES) | munmap(out, SHORT_BYTES), 0);
	printf("%u known answers, each on %zu back ends\n", count, row_count);
	assert_int_equal(count, long_ones ? 13 : 238);
}

static void known_answers_to_16_mib(void **state)
{
	run_answers(false);
}

static void known_answers_to_4_gib(void **state)
{
	run_answers(true);
}

/* The tag of `bytes` bytes that repeat one window, sealed in place again and again, as a stream. */
static void stream_tag(const struct naos_gcm_key *key, uint8_t *window, uint64_t bytes, uint8_t *tag)
{
	struct naos_gcm_stream *stream;
	assert_ok(naos_gcm_stream_create(key, true, nonce, NULL, 0, &stream, &err), &err);
	for (uint64_t done = 0, piece; done < bytes; done += piece) {
		piece = bytes - done < WINDOW ? bytes - done : WINDOW;
		assert_ok(naos_gcm_stream_update(stream, window, window, (size_t)piece, &err), &err);
	}
	assert_ok(naos_gcm_stream_finish(stream, tag, &err), &err);
	naos_gcm_stream_free(stream);
}

/* One call for more than 2^32 bytes, sealed and opened, against streams. */
static void one_message_beyond_4_gib(void **state)
{
	size_t bytes = ((size_t)1 << 32) + 4097;
	if (sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE) < (long)6 << 30) {
		printf("less than 6 GiB of free memory\n");
		skip();
	}
	uint8_t *data = memory(bytes), *window = memory(WINDOW), tag[16], expected[16];
	struct naos_gcm_stream *stream;
	for (size_t r = 0; r < row_count; r++) {
		const struct naos_gcm_key *key = keys[r][NAOS_AES_256_GCM];
		struct naos_gcm_message m = { nonce, NULL, 0, data, data, bytes, tag, 0 };
		assert_ok(naos_gcm_seal(key, &m, &err), &err);
		assert_ok(naos_gcm_stream_create(key, true, nonce, NULL, 0, &stream, &err), &err);
		for (size_t done = 0, piece; done < bytes; done += piece) {
			piece = bytes - done < WINDOW ? bytes - done : WINDOW;
			memset(window, 0, piece);
			assert_ok(naos_gcm_stream_update(stream, window, window, piece, &err), &err);
			assert_int_equal(memcmp(window, data + done, piece), 0);
		}
		assert_ok(naos_gcm_stream_finish(stream, expected, &err), &err);
		naos_gcm_stream_free(stream);
		assert_memory_equal(tag, expected, 16);
		assert_ok(naos_gcm_open(key, &m, &err), &err);
		assert_true(all_zero(data, bytes));
	}
	assert_int_equal(munmap(data, bytes) | munmap(window, WINDOW), 0);
}

/* 2^36 - 32 bytes in one call: one window of memory, mapped 16,384 times in a row, sealed in place. */
static void the_longest_message(void **state)
{
	uint64_t bytes = NAOS_GCM_MAX_MESSAGE_BYTES;
	int fd = memfd_create("window", MFD_CLOEXEC);
	assert_true(fd >= 0 && ftruncate(fd, WINDOW) == 0);
	uint8_t *area = mmap(NULL, (size_t)1 << 36, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(area, MAP_FAILED);
	for (uint64_t at = 0; at < (uint64_t)1 << 36; at += WINDOW)
		assert_ptr_equal(mmap(area + at, WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0), area + at);
	uint8_t *window = memory(WINDOW), tags[3][16];
	size_t used[] = { 0, row_count - 1 }; /* the fastest and OpenSSL: half a minute each */
	struct naos_gcm_message m = { nonce, NULL, 0, area, area, bytes, tags[0], 0 };
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(used); i++) {
		memset(area, 0, WINDOW);
		m.tag = tags[i];
		assert_ok(naos_gcm_seal(keys[used[i]][NAOS_AES_128_GCM], &m, &err), &err);
	}
	assert_memory_equal(tags[0], tags[1], 16);
	memset(window, 0, WINDOW);
	stream_tag(keys[0][NAOS_AES_128_GCM], window, bytes, tags[2]);
	assert_memory_equal(tags[0], tags[2], 16);
	assert_int_equal(munmap(area, (size_t)1 << 36) | munmap(window, WINDOW) | close(fd), 0);
}

/* 2^32 - 1 bytes of zeros, which take no memory. */
static void the_longest_associated_data(void **state)
{
	uint8_t *zeros = memory(NAOS_GCM_MAX_ASSOCIATED_BYTES), tags[MAX_ROWS][16];
	for (size_t r = 0; r < row_count; r++) {
		struct naos_gcm_message m = { nonce, zeros, NAOS_GCM_MAX_ASSOCIATED_BYTES, NULL, NULL, 0, tags[r], 0 };
		assert_ok(naos_gcm_seal(keys[r][NAOS_AES_256_GCM], &m, &err), &err);
		assert_memory_equal(tags[r], tags[0], 16);
	}
	assert_int_equal(munmap(zeros, NAOS_GCM_MAX_ASSOCIATED_BYTES), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(known_answers_to_16_mib) };
	const struct CMUnitTest slow[] = { cmocka_unit_test(known_answers_to_4_gib), cmocka_unit_test(one_message_beyond_4_gib),
					   cmocka_unit_test(the_longest_message), cmocka_unit_test(the_longest_associated_data) };
	return argc > 1 && strcmp(argv[1], "--slow") == 0 ? cmocka_run_group_tests_name("engine pattern slow", slow, start, stop) :
							    cmocka_run_group_tests_name("engine pattern", tests, start, stop);
}

/* The wrapped-key blob: the layout of docs/formats/wrapped-key.md, and everything else refused. SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "keys/blob.h"

static struct naos_error err;

static const struct naos_uuid mek_id = { { 0x9f, 0x1c, 0x2a, 0x3b, 0x4c, 0x5d, 0x4e, 0x6f,
					   0x8a, 0x90, 0xa1, 0xb2, 0xc3, 0xd4, 0xe5, 0xf6 } };

/* The golden vector of docs/formats/wrapped-key.md. */
static const char golden[] =
	"01010c0040000000"
	"9f1c2a3b4c5d4e6f8a90a1b2c3d4e5f6"
	"07000000"
	"000102030405060708090a0b00000000"
	"f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"
	"404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f"
	"606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f";

static struct naos_blob example(void)
{
	struct naos_blob blob = { .mek_id = mek_id, .mek_version = 7, .algorithm = NAOS_WRAP_AES_256_GCM };
	blob.iv_bytes = 12;
	blob.ciphertext_bytes = 64;
	for (uint8_t i = 0; i < 12; i++)
		blob.iv[i] = i;
	for (uint8_t i = 0; i < 64; i++)
		blob.ciphertext[i] = (uint8_t)(0x40 + i);
	for (uint8_t i = 0; i < 16; i++)
		blob.tag[i] = (uint8_t)(0xf0 + i);
	return blob;
}

static size_t encode(const struct naos_blob *blob, uint8_t ret[static NAOS_BLOB_MAX_BYTES])
{
	struct naos_cursor out = naos_cursor_writer(ret, NAOS_BLOB_MAX_BYTES);
	naos_blob_encode(blob, &out);
	assert_true(naos_cursor_ok(&out));
	return out.position;
}

static void the_golden_vector_is_written_and_read(void **state)
{
	struct naos_blob blob = example(), back;
	uint8_t bytes[NAOS_BLOB_MAX_BYTES];
	char text[2 * NAOS_BLOB_MAX_BYTES + 1];
	size_t length = encode(&blob, bytes);
	assert_string_equal(naos_hex_format(bytes, length, text), golden);
	struct naos_cursor in = naos_cursor_reader(bytes, length);
	assert_ok(naos_blob_decode(&in, &back, &err), &err);
	assert_true(naos_cursor_at_end(&in));
	assert_memory_equal(&blob, &back, sizeof(blob));
}

static void every_size_of_key_and_iv_makes_the_round_trip(void **state)
{
	static const uint8_t ivs[] = { 12, 16 };
	static const uint16_t lengths[] = { 48, 64 };
	for (size_t i = 0; i < 4; i++) {
		struct naos_blob blob = example(), back;
		uint8_t bytes[NAOS_BLOB_MAX_BYTES];
		blob.iv_bytes = ivs[i & 1];
		blob.ciphertext_bytes = lengths[i >> 1];
		memset(blob.iv, 0, sizeof(blob.iv));
		memset(blob.iv, 0xaa, blob.iv_bytes);
		memset(blob.ciphertext + blob.ciphertext_bytes, 0, sizeof(blob.ciphertext) - blob.ciphertext_bytes);
		struct naos_cursor in = naos_cursor_reader(bytes, encode(&blob, bytes));
		assert_ok(naos_blob_decode(&in, &back, &err), &err);
		assert_memory_equal(&blob, &back, sizeof(blob));
	}
}

static void nothing_unsound_is_encoded(void **state)
{
	uint8_t bytes[NAOS_BLOB_MAX_BYTES];
	for (int fault = 0; fault < 6; fault++) {
		struct naos_blob blob = example();
		struct naos_cursor out = naos_cursor_writer(bytes, sizeof(bytes));
		switch (fault) {
		case 0: blob.iv_bytes = 0; break; /* SoftHSM takes an IV of no bytes: never write one */
		case 1: blob.iv_bytes = 13; break;
		case 2: blob.ciphertext_bytes = 63; break;
		case 3: blob.mek_version = 0; break;
		case 4: blob.algorithm = 2; break;
		case 5: memset(&blob.mek_id, 0, sizeof(blob.mek_id)); break;
		}
		naos_blob_encode(&blob, &out);
		assert_false(naos_cursor_ok(&out));
	}
}

static void every_cut_is_refused(void **state)
{
	struct {
		struct naos_blob blob;
		uint8_t guard[256]; /* lengths of a cut blob were once used unchecked */
	} back;
	struct naos_blob blob = example();
	uint8_t bytes[NAOS_BLOB_MAX_BYTES], guard[256];
	size_t length = encode(&blob, bytes);
	memset(guard, 0x5a, sizeof(guard));
	memcpy(back.guard, guard, sizeof(guard));
	for (size_t cut = 0; cut < length; cut++)
		for (unsigned lengths = 0; lengths < 2; lengths++) {
			struct naos_cursor in = naos_cursor_reader(bytes, cut);
			bytes[2] = lengths ? 255 : 12;
			bytes[4] = lengths ? 255 : 64;
			assert_code(naos_blob_decode(&in, &back.blob, &err), NAOS_E_FORMAT);
			assert_memory_equal(back.guard, guard, sizeof(guard));
		}
}

/* A changed byte is refused, or shows up in the decoded blob (where the tag finds it): none is without effect. */
static void every_byte_means_something(void **state)
{
	struct naos_blob blob = example(), back;
	uint8_t bytes[NAOS_BLOB_MAX_BYTES];
	size_t length = encode(&blob, bytes), refused = 0;
	for (size_t i = 0; i < length; i++)
		for (unsigned bit = 0; bit < 8; bit++) {
			bytes[i] ^= (uint8_t)(1u << bit);
			struct naos_cursor in = naos_cursor_reader(bytes, length);
			int rc = naos_blob_decode(&in, &back, &err);
			assert_true(rc == 0 || rc == NAOS_E_FORMAT);
			if (rc == 0)
				assert_memory_not_equal(&blob, &back, sizeof(blob));
			else
				refused++;
			bytes[i] ^= (uint8_t)(1u << bit);
		}
	/* version, algorithm, reserved bytes and the zeros behind a short IV: each of their bits; most of the lengths' */
	assert_true(refused >= 8 * (1 + 1 + 1 + 2 + 4));
}

static void associated_data_is_as_documented(void **state)
{
	struct naos_blob blob = example();
	struct naos_wrap_context context = { .kind = NAOS_WRAP_FRAME_DATA, .group_id = { { 1 } }, .object_id = { { 2 } } };
	uint8_t associated[NAOS_BLOB_ASSOCIATED_BYTES];
	char text[2 * NAOS_BLOB_ASSOCIATED_BYTES + 1];
	naos_blob_associated(&context, &blob, associated);
	assert_string_equal(naos_hex_format(associated, sizeof(associated), text),
			    "4e414f5357525031" "0300000000000000" "01000000000000000000000000000000" "02000000000000000000000000000000"
			    "9f1c2a3b4c5d4e6f8a90a1b2c3d4e5f6" "07000000" "01000000");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_golden_vector_is_written_and_read),
		cmocka_unit_test(every_size_of_key_and_iv_makes_the_round_trip),
		cmocka_unit_test(nothing_unsound_is_encoded),
		cmocka_unit_test(every_cut_is_refused),
		cmocka_unit_test(every_byte_means_something),
		cmocka_unit_test(associated_data_is_as_documented),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Frames of version 1: every kind of image comes back; what they can't hold is refused; the cryptography against OpenSSL's.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fits_helper.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>

#include "fits/container1.h"

#define FULL_RING ((struct keyring){ { right[0], right[1] } })

/* An image of any type and shape, with extra cards, of random pixels. */
static struct bytes make_any(int bitpix, unsigned axes, const unsigned *size, unsigned extra_cards)
{
	struct bytes file = { .count = 0 };
	char text[96];
	size_t bytes = axes ? (size_t)abs(bitpix) / 8 : 0;
	card(&file, "SIMPLE  =                    T");
	(void)snprintf(text, sizeof(text), "BITPIX  = %20d", bitpix);
	card(&file, text);
	(void)snprintf(text, sizeof(text), "NAXIS   = %20u", axes);
	card(&file, text);
	for (unsigned i = 0; i < axes; i++) {
		(void)snprintf(text, sizeof(text), "NAXIS%u  = %20u", i + 1, size[i]);
		card(&file, text);
		bytes *= size[i];
	}
	char *cards = malloc((size_t)extra_cards * 80 + 1);
	assert_non_null(cards);
	for (unsigned i = 0; i < extra_cards; i++)
		(void)snprintf(cards + (size_t)i * 80, 81, "COMMENT secret %-65u", i);
	append(&file, cards, (size_t)extra_cards * 80);
	free(cards);
	card(&file, "END");
	fill(&file, ' ');
	for (uint8_t run[4096]; bytes > 0;) {
		size_t take = bytes < sizeof(run) ? bytes : sizeof(run);
		for (size_t i = 0; i < take; i++)
			run[i] = (uint8_t)next_random();
		append(&file, run, take);
		bytes -= take;
	}
	fill(&file, 0);
	return file;
}

static void round_trip(struct bytes plain)
{
	struct bytes sealed = seal_as(1, plain);
	struct naos_frame *frame;
	assert_ok(open_frame(sealed, &FULL_RING, &frame), &err);
	assert_int_equal(naos_frame_level(frame), NAOS_FRAME_FULL);
	assert_int_equal(naos_frame_manifest(frame)->version, 1);
	struct bytes result = result_of(frame);
	assert_int_equal(result.count, plain.count);
	assert_memory_equal(result.data, plain.data, plain.count);
	assert_ok(naos_frame_verify(frame, &err), &err);
	for (unsigned i = 0; i < 50; i++) {
		uint8_t piece[10000];
		size_t at = next_random() % plain.count, bytes = next_random() % sizeof(piece), got;
		assert_ok(naos_frame_read_at(frame, piece, bytes, at, &got, &err), &err);
		assert_int_equal(got, bytes < plain.count - at ? bytes : plain.count - at);
		assert_memory_equal(piece, plain.data + at, got);
	}
	(void)naos_frame_close(frame);
	free(result.data);
	free(sealed.data);
}

static void test_every_kind_of_image_comes_back(void **state)
{
	static const int types[] = { 8, 16, 32, 64, -32, -64 };
	static const unsigned sizes[][9] = { { 7 }, { 33, 5 }, { 3, 1, 11 }, { 2, 2, 2, 2, 2, 2, 2, 2, 3 } }, axes[] = { 1, 2, 3, 9 };
	for (unsigned t = 0; t < 6; t++)
		for (unsigned s = 0; s < 4; s++) {
			struct bytes plain = make_any(types[t], axes[s], sizes[s], s * 40);
			round_trip(plain);
			free(plain.data);
		}
	struct bytes plain = make_any(8, 0, NULL, 3);
	round_trip(plain);
	free(plain.data);
	plain = make_any(16, 2, (const unsigned[]){ 200, 100 }, 0);
	plain.count -= 500; /* data that was cut off stays so */
	round_trip(plain);
	free(plain.data);
}

/* Steps are of 1 MiB: less than one, one, more by a byte, several. */
static void test_sizes_around_a_step_come_back(void **state)
{
	const unsigned step = NAOS_FRAME1_STEP_BYTES;
	const unsigned counts[] = { step - 2880, step - step % 2880, step, step + 1, 3 * step + 17 };
	for (unsigned i = 0; i < 5; i++) {
		struct bytes plain = make_any(8, 1, &counts[i], 0);
		round_trip(plain);
		free(plain.data);
	}
}

/* Data was verified when the frame was opened; who changes it later is found out, at the step that he changed. */
static void test_data_that_changes_while_the_frame_is_open_is_found(void **state)
{
	const unsigned count = 3 * NAOS_FRAME1_STEP_BYTES;
	struct bytes plain = make_any(8, 1, &count, 0), sealed = seal_as(1, plain);
	const struct keyring ring = FULL_RING;
	const struct naos_frame_source source = { .key = give, .context = (void *)(uintptr_t)&ring };
	int fd = file_of(sealed), other = dup(fd);
	struct naos_frame *frame;
	uint8_t piece[100];
	size_t got, at = sealed.count - NAOS_FRAME1_STEP_BYTES - 50000;
	assert_ok(naos_frame_open_fd(fd, "sealed.fits", &source, &frame, &err), &err);
	assert_int_equal(pwrite(other, "changed", 7, (off_t)at), 7);
	assert_ok(naos_frame_read_at(frame, piece, sizeof(piece), 2880 + 5, &got, &err), &err);
	assert_memory_equal(piece, plain.data + 2880 + 5, sizeof(piece));
	memset(piece, 1, sizeof(piece));
	assert_code(naos_frame_read_at(frame, piece, sizeof(piece), plain.count - (sealed.count - at), &got, &err), NAOS_E_INTEGRITY);
	for (size_t i = 0; i < sizeof(piece); i++)
		assert_int_equal(piece[i], 0);
	assert_code(naos_frame_verify(frame, &err), NAOS_E_INTEGRITY);
	(void)naos_frame_close(frame);
	(void)close(other);
	free(plain.data);
	free(sealed.data);
}

static void refuse(int source, int code, const char *because)
{
	struct naos_frame_new what = { .version = 1, .algorithm = NAOS_AES_256_GCM, .keys = { right[0], right[1] } };
	int target = memfd_create("sealed", MFD_CLOEXEC);
	assert_ok(naos_uuid_random(&what.frame_id, &err), &err);
	assert_code(naos_frame_seal_fd(source, "odd.fits", target, "sealed.fits", &what, &err), code);
	if (!strstr(err.message, because) || !strstr(err.message, "odd.fits"))
		fail_msg("%s", err.message);
	(void)close(source);
	(void)close(target);
}

static void test_what_one_image_is_not_is_refused(void **state)
{
	struct bytes plain = make_fits(10, 10);
	refuse(file_of(plain), NAOS_E_UNSUPPORTED, "2 units more");
	plain.count = 2880 * 2;
	append(&plain, "tail", 4);
	refuse(file_of(plain), NAOS_E_UNSUPPORTED, "use version 2");
	free(plain.data);
	plain = make_any(8, 3, (const unsigned[]){ 0, 2, 2 }, 4);
	memcpy(plain.data + 6 * 80, "GROUPS  =                    T", 30);
	memcpy(plain.data + 7 * 80, "PCOUNT  =                    1", 30);
	memcpy(plain.data + 8 * 80, "GCOUNT  =                    1", 30);
	memset(plain.data + 8 * 80 + 30, ' ', 50);
	refuse(file_of(plain), NAOS_E_UNSUPPORTED, "random groups");
	free(plain.data);
	plain = make_any(8, 1, (const unsigned[]){ 3 }, 2);
	memcpy(plain.data + 4 * 80, "BZERO   =  'text'  ", 19);
	refuse(file_of(plain), NAOS_E_UNSUPPORTED, "BZERO");
	free(plain.data);
}

static void test_more_axes_than_nine_are_refused(void **state)
{
	struct bytes plain = make_any(8, 9, (const unsigned[]){ 1, 1, 1, 1, 1, 1, 1, 1, 1 }, 2);
	memcpy(plain.data + 2 * 80 + 28, "10", 2);
	memcpy(plain.data + 12 * 80, "NAXIS10 =                    1", 30);
	memset(plain.data + 12 * 80 + 30, ' ', 50);
	refuse(file_of(plain), NAOS_E_UNSUPPORTED, "at most 9 axes");
	free(plain.data);
}

static void test_limits_of_size_are_refused(void **state)
{
	struct bytes plain = make_any(8, 1, (const unsigned[]){ 1 }, 0);
	memcpy(plain.data + 3 * 80 + 10, "         68719476705", 20); /* 2^36 - 31: with its padding, too many */
	plain.count = 2880;
	int fd = file_of(plain);
	assert_int_equal(ftruncate(fd, 2880 + (off_t)23860930 * 2880), 0); /* sparse */
	refuse(fd, NAOS_E_LIMIT, "64 GiB");
	free(plain.data);
	plain = make_any(8, 1, (const unsigned[]){ 1 }, (16u << 20) / 80);
	refuse(file_of(plain), NAOS_E_LIMIT, "16 MiB");
	free(plain.data);
	plain = make_any(8, 1, (const unsigned[]){ 1 }, (16u << 20) / 80 - 100); /* just below: it works */
	round_trip(plain);
	free(plain.data);
}

/* --- against OpenSSL --------------------------------------------------------------------------------------------------------------- */

static void digits_of(struct bytes sealed, const char *start, uint8_t *ret, size_t bytes)
{
	const char *at = memmem(sealed.data, sealed.count, start, strlen(start));
	char digits[129] = "";
	assert_non_null(at);
	memcpy(digits, at + strlen(start), 2 * bytes);
	assert_true(naos_hex_parse(digits, ret, bytes));
}

static void hkdf(const struct naos_secret *key, const uint8_t *salt, const char *purpose, uint8_t part, uint8_t *ret)
{
	uint8_t info[10 + 8 + 2 + 16] = "naos/fr/1/";
	size_t bytes = 10;
	memcpy(info + bytes, purpose, strlen(purpose) + 1);
	bytes += strlen(purpose) + 1;
	info[bytes++] = part;
	info[bytes++] = 2;
	bytes += 16; /* no collection */
	EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
	EVP_KDF_CTX *context = EVP_KDF_CTX_new(kdf);
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)(uintptr_t)"SHA256", 0),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)(uintptr_t)naos_secret_view(key), naos_secret_bytes(key)),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)(uintptr_t)salt, 16),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info, bytes),
		OSSL_PARAM_construct_end(),
	};
	assert_int_equal(EVP_KDF_derive(context, ret, 32, params), 1);
	EVP_KDF_CTX_free(context);
	EVP_KDF_free(kdf);
}

/* The commitment, the keystream (AES-256 in counter mode from nonce || 2 on) and the header's tag (J0 = nonce || 1). */
static void test_keys_and_keystream_are_those_of_openssl(void **state)
{
	const unsigned size = 2500000;
	struct bytes plain = make_any(8, 1, &size, 0), sealed = seal_as(1, plain);
	uint8_t id[16], key[32], commit[32], found[32], counter[16] = { 0 };
	struct naos_uuid frame_id;
	const char *text = memmem(sealed.data, sealed.count, "FRAMEID = '", 11);
	char uuid[37] = "";
	assert_non_null(text);
	memcpy(uuid, text + 11, 36);
	assert_true(naos_uuid_parse(uuid, &frame_id));
	memcpy(id, frame_id.bytes, 16);
	hkdf(right[1], id, "commit", 2, commit);
	digits_of(sealed, "KEYCHK_D= '", found, 32);
	assert_memory_equal(found, commit, 32);
	hkdf(right[1], id, "message", 2, key);
	digits_of(sealed, "NONCE_D = '", counter, 12);
	counter[15] = 2;
	size_t bytes = plain.count - 2880, from = sealed.count - bytes;
	uint8_t *zeros = calloc(1, bytes), *stream = malloc(bytes);
	int written;
	EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
	assert_non_null(zeros);
	assert_non_null(stream);
	assert_int_equal(EVP_EncryptInit_ex(context, EVP_aes_256_ctr(), NULL, key, counter), 1);
	assert_int_equal(EVP_EncryptUpdate(context, stream, &written, zeros, (int)bytes), 1);
	for (size_t i = 0; i < bytes; i++)
		if ((sealed.data[from + i] ^ stream[i]) != plain.data[2880 + i])
			fail_msg("byte %zu of the keystream is another", i);
	EVP_CIPHER_CTX_free(context);
	free(stream);
	free(zeros);
	free(plain.data);
	free(sealed.data);
}

/* No two shapes have the same associated data: an image of 1 x 11 is none of 11 x 1, and a header is no data. */
static void test_associated_data_is_unambiguous(void **state)
{
	static const struct naos_container1 shapes[] = {
		{ .bitpix = 8, .axes = 2, .size = { 1, 11 }, .header_bytes = 2880, .data_bytes = 2880 },
		{ .bitpix = 8, .axes = 2, .size = { 11, 1 }, .header_bytes = 2880, .data_bytes = 2880 },
		{ .bitpix = 8, .axes = 2, .size = { 1, 1 }, .header_bytes = 2880, .data_bytes = 2880 },
		{ .bitpix = 8, .axes = 3, .size = { 1, 1, 1 }, .header_bytes = 2880, .data_bytes = 2880 },
		{ .bitpix = 8, .axes = 1, .size = { 21 }, .header_bytes = 2880, .data_bytes = 2880 },
		{ .bitpix = 8, .axes = 1, .size = { 21 }, .scaling = { "1", "" }, .header_bytes = 2880, .data_bytes = 2880 },
		{ .bitpix = 8, .axes = 1, .size = { 21 }, .scaling = { "", "1" }, .header_bytes = 2880, .data_bytes = 2880 },
		{ .bitpix = 8, .axes = 1, .size = { 21 }, .header_bytes = 28802, .data_bytes = 880 },
	};
	const struct naos_frame_manifest manifest = { .version = 1, .algorithm = NAOS_AES_256_GCM };
	static uint8_t texts[16][NAOS_FRAME1_ASSOCIATED_BYTES];
	size_t bytes[16];
	for (unsigned i = 0; i < 16; i++)
		bytes[i] = naos_container1_associated(&manifest, &shapes[i / 2], i % 2 ? NAOS_FRAME_DATA : NAOS_FRAME_HEADER, texts[i]);
	for (unsigned i = 0; i < 16; i++) {
		assert_memory_equal(texts[i], "\20\0\0\0", 4); /* the frame id comes first, with its length */
		for (unsigned k = 0; k < i; k++)
			assert_true(bytes[i] != bytes[k] || memcmp(texts[i], texts[k], bytes[i]) != 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_kind_of_image_comes_back),
		cmocka_unit_test(test_sizes_around_a_step_come_back),
		cmocka_unit_test(test_data_that_changes_while_the_frame_is_open_is_found),
		cmocka_unit_test(test_what_one_image_is_not_is_refused),
		cmocka_unit_test(test_more_axes_than_nine_are_refused),
		cmocka_unit_test(test_limits_of_size_are_refused),
		cmocka_unit_test(test_keys_and_keystream_are_those_of_openssl),
		cmocka_unit_test(test_associated_data_is_unambiguous),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}

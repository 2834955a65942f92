/* Frames: every combination of keys, every bit, cut-outs against the original; all kinds of units.  SPDX-License-Identifier: Apache-2.0 */
#include "fits_helper.h"

static struct bytes seal(struct bytes plain)
{
	return seal_as(2, plain);
}

/* --- tests ---------------------------------------------------------------------------------------------------------------------- */

static void test_both_keys_give_the_file_byte_for_byte(void **state)
{
	for (unsigned height = 1; height < 2000; height = height * 5 + 1) {
		struct bytes plain = make_fits(123, height), sealed = seal(plain);
		struct naos_frame *frame;
		assert_ok(open_frame(sealed, &(struct keyring){ { right[0], right[1] } }, &frame), &err);
		assert_int_equal(naos_frame_level(frame), NAOS_FRAME_FULL);
		struct bytes result = result_of(frame);
		assert_int_equal(result.count, plain.count);
		assert_memory_equal(result.data, plain.data, plain.count);
		assert_ok(naos_frame_verify(frame, &err), &err);
		for (unsigned i = 0; i < 200; i++) { /* any stretch of it */
			uint8_t piece[10000];
			size_t at = next_random() % plain.count, bytes = next_random() % sizeof(piece), got;
			assert_ok(naos_frame_read_at(frame, piece, bytes, at, &got, &err), &err);
			assert_int_equal(got, bytes < plain.count - at ? bytes : plain.count - at);
			assert_memory_equal(piece, plain.data + at, got);
		}
		frame = naos_frame_close(frame);
		free(plain.data);
		free(sealed.data);
		free(result.data);
	}
}

static void test_each_key_by_itself_gives_its_part(void **state)
{
	struct bytes plain = make_fits(100, 700), sealed = seal(plain);
	const struct naos_secret *choices[] = { right[0], wrong, NULL };
	for (unsigned h = 0; h < 3; h++)
		for (unsigned d = 0; d < 3; d++) {
			struct naos_frame *frame;
			const struct keyring ring = { { choices[h], d == 0 ? right[1] : choices[d] } };
			static const enum naos_frame_key_state states[] = { NAOS_FRAME_KEY_RIGHT, NAOS_FRAME_KEY_WRONG, NAOS_FRAME_KEY_MISSING };
			assert_ok(open_frame(sealed, &ring, &frame), &err);
			assert_int_equal(naos_frame_key_state(frame, NAOS_FRAME_HEADER), states[h]);
			assert_int_equal(naos_frame_key_state(frame, NAOS_FRAME_DATA), states[d]);
			enum naos_frame_level expected = h == 0 && d == 0 ? NAOS_FRAME_FULL :
							 h == 0		  ? NAOS_FRAME_METADATA_ONLY :
							 d == 0		  ? NAOS_FRAME_PIXELS_ONLY :
									    NAOS_FRAME_DENIED;
			assert_int_equal(naos_frame_level(frame), expected);
			if (expected == NAOS_FRAME_DENIED) {
				assert_int_equal(naos_frame_result_bytes(frame), 0);
				frame = naos_frame_close(frame);
				continue;
			}
			struct bytes result = result_of(frame);
			assert_int_equal(result.count % 2880, 0);
			if (!result.data)
				abort();
			const char *target = memmem(result.data, result.count, "secret target", 13);
			assert_int_equal(target != NULL, h == 0);
			struct naos_frame_place place;
			naos_frame_unit(frame, 0, &place);
			assert_int_equal(place.data_bytes, 50 * 2880 > 140000 ? (140000 + 2879) / 2880 * 2880 : 0);
			if (d == 0)
				assert_memory_equal(result.data + place.data_offset, plain.data + 2880, place.data_bytes);
			else
				for (size_t i = 0; i < place.data_bytes; i++)
					assert_int_equal(result.data[place.data_offset + i], 0);
			if (h != 0) { /* the structure is there without the header key */
				assert_non_null(memmem(result.data, 2880, "BZERO   =              32768.0", 30));
				assert_null(memmem(result.data, result.count, "FLUX", 4));
			}
			if (h == 0 && d != 0)
				assert_null(memmem(result.data, result.count, "CHECKSUM=", 9));
			frame = naos_frame_close(frame);
			free(result.data);
		}
	free(plain.data);
	free(sealed.data);
}

static void test_what_is_no_fits_is_refused_with_a_reason(void **state)
{
	const struct naos_frame_new what = { .algorithm = NAOS_AES_128_GCM, .keys = { right[0], right[1] } };
	static const char *const texts[] = { "", "SIMPLE", "hello, world", "\x1f\x8b\x08", "SIMPLE  =                    T" };
	for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		int source = file_of((struct bytes){ .data = (uint8_t *)(uintptr_t)texts[i], .count = strlen(texts[i]) });
		int target = memfd_create("sealed", MFD_CLOEXEC);
		int rc = naos_frame_seal_fd(source, "odd.fits", target, "sealed.fits", &what, &err);
		assert_true(rc == NAOS_E_FORMAT || rc == NAOS_E_UNSUPPORTED);
		assert_non_null(strstr(err.message, "odd.fits"));
		(void)close(source);
		(void)close(target);
	}
}

static void test_the_same_key_for_both_parts_is_refused(void **state)
{
	const struct naos_frame_new what = { .algorithm = NAOS_AES_256_GCM, .keys = { right[0], right[0] } };
	struct bytes plain = make_fits(2, 2);
	int source = file_of(plain), target = memfd_create("sealed", MFD_CLOEXEC);
	assert_code(naos_frame_seal_fd(source, "a.fits", target, "b.fits", &what, &err), NAOS_E_USAGE);
	(void)close(source);
	(void)close(target);
	free(plain.data);
}

/* 2^14 units of 2^50 bytes: their sum is 0 again. */
static void test_units_whose_sum_wraps_around_are_refused(void **state)
{
	struct naos_frame_manifest made = {
		.algorithm = NAOS_AES_256_GCM, .segment_bytes = SEGMENT, .hdu_count = (1u << 14) + 1,
		.hdus = calloc((1u << 14) + 1, sizeof(*made.hdus)),
	}, read;
	assert_non_null(made.hdus);
	for (uint32_t i = 0; i < made.hdu_count; i++)
		made.hdus[i] = (struct naos_frame_hdu){
			.header_bytes = 2880, .data_bytes = i ? NAOS_FRAME_MAX_BYTES : 0, .text = (const uint8_t *)"",
		};
	made.file_bytes = (uint64_t)made.hdu_count * 2880;
	assert_ok(naos_frame_manifest_encode(&made, &err), &err);
	uint8_t *raw = malloc(made.raw_bytes);
	assert_non_null(raw);
	memcpy(raw, made.raw, made.raw_bytes);
	assert_code(naos_frame_manifest_decode(raw, made.raw_bytes, &read, &err), NAOS_E_FORMAT);
	naos_frame_manifest_free(&made);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_both_keys_give_the_file_byte_for_byte),
		cmocka_unit_test(test_each_key_by_itself_gives_its_part),
		cmocka_unit_test(test_what_is_no_fits_is_refused_with_a_reason),
		cmocka_unit_test(test_the_same_key_for_both_parts_is_refused),
		cmocka_unit_test(test_units_whose_sum_wraps_around_are_refused),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* Frames: every combination of keys, every bit, cut-outs against the original; all kinds of units.  SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

#include "fits/frame.h"

#define SEGMENT NAOS_FRAME_MIN_SEGMENT_BYTES

static struct naos_error err;
static bool every_bit; /* --slow */

static size_t next_random(void)
{
	static uint64_t state = 88172645463325252u;
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (size_t)(state >> 16);
}

/* --- a FITS file --------------------------------------------------------------------------------------------------------- */

struct bytes {
	uint8_t *data;
	size_t count;
};

static void append(struct bytes *to, const void *data, size_t count)
{
	to->data = realloc(to->data, to->count + count);
	assert_non_null(to->data);
	memcpy(to->data + to->count, data, count);
	to->count += count;
}

static void card(struct bytes *to, const char *text)
{
	char line[81];
	(void)snprintf(line, sizeof(line), "%-80s", text);
	append(to, line, 80);
}

static void fill(struct bytes *to, char with)
{
	while (to->count % 2880 != 0)
		append(to, &with, 1);
}

/* A primary image of 16-bit numbers with BZERO, an empty unit, a table. */
static struct bytes make_fits(unsigned width, unsigned height)
{
	struct bytes file = { .count = 0 };
	char text[81];
	card(&file, "SIMPLE  =                    T");
	card(&file, "BITPIX  =                   16");
	card(&file, "NAXIS   =                    2");
	(void)snprintf(text, sizeof(text), "NAXIS1  = %20u", width);
	card(&file, text);
	(void)snprintf(text, sizeof(text), "NAXIS2  = %20u", height);
	card(&file, text);
	card(&file, "BZERO   =              32768.0");
	card(&file, "OBJECT  = 'secret target'");
	card(&file, "CHECKSUM= 'aaaaaaaaaaaaaaaa'");
	card(&file, "DATASUM = '12345   '");
	card(&file, "END");
	fill(&file, ' ');
	for (unsigned i = 0; i < width * height; i++) {
		const uint8_t pixel[2] = { (uint8_t)(i * 7 >> 8), (uint8_t)(i * 7) };
		append(&file, pixel, 2);
	}
	fill(&file, 0);
	card(&file, "XTENSION= 'IMAGE   '");
	card(&file, "BITPIX  =                    8");
	card(&file, "NAXIS   =                    0");
	card(&file, "PCOUNT  =                    0");
	card(&file, "GCOUNT  =                    1");
	card(&file, "END");
	fill(&file, ' ');
	card(&file, "XTENSION= 'BINTABLE'");
	card(&file, "BITPIX  =                    8");
	card(&file, "NAXIS   =                    2");
	card(&file, "NAXIS1  =                    4");
	card(&file, "NAXIS2  =                    3");
	card(&file, "PCOUNT  =                    0");
	card(&file, "GCOUNT  =                    1");
	card(&file, "TFIELDS =                    1");
	card(&file, "TTYPE1  = 'FLUX    '");
	card(&file, "TFORM1  = '1J      '");
	card(&file, "END");
	fill(&file, ' ');
	append(&file, "\0\0\0\1\0\0\0\2\0\0\0\3", 12);
	fill(&file, 0);
	return file;
}

static int file_of(struct bytes content)
{
	int fd = memfd_create("frame", MFD_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, content.data, content.count, 0), content.count);
	return fd;
}

static struct bytes content_of(int fd)
{
	struct stat status;
	assert_int_equal(fstat(fd, &status), 0);
	struct bytes content = { .data = malloc((size_t)status.st_size + 1), .count = (size_t)status.st_size };
	if (!content.data)
		abort();
	assert_int_equal(pread(fd, content.data, content.count, 0), content.count);
	return content;
}

/* --- keys -------------------------------------------------------------------------------------------------------------------- */

struct keyring {
	const struct naos_secret *keys[2]; /* NULL: missing */
};

static int give(void *context, const struct naos_frame_manifest *manifest, enum naos_frame_part part, const struct naos_blob *blob,
		struct naos_secret **ret, struct naos_error *ret_why)
{
	const struct keyring *ring = context;
	*ret = NULL;
	return ring->keys[part - 1] ? naos_secret_clone(ring->keys[part - 1], ret, ret_why) : 0;
}

static struct naos_secret *right[2], *wrong;

static int set_up(void **state)
{
	for (unsigned i = 0; i < 2; i++)
		assert_ok(naos_secret_random(i ? 16 : 32, &right[i], &err), &err);
	assert_ok(naos_secret_random(32, &wrong, &err), &err);
	return 0;
}

static int tear_down(void **state)
{
	for (unsigned i = 0; i < 2; i++)
		right[i] = naos_secret_free(right[i]);
	wrong = naos_secret_free(wrong);
	return 0;
}

static struct bytes seal(struct bytes plain)
{
	struct naos_frame_new what = {
		.algorithm = NAOS_AES_256_GCM, .keys = { right[0], right[1] }, .segment_bytes = SEGMENT, .jobs = 3,
	};
	assert_ok(naos_uuid_random(&what.frame_id, &err), &err);
	int source = file_of(plain), target = memfd_create("sealed", MFD_CLOEXEC);
	assert_ok(naos_frame_seal_fd(source, "plain.fits", target, "sealed.fits", &what, &err), &err);
	struct bytes sealed = content_of(target);
	(void)close(source);
	(void)close(target);
	return sealed;
}

static int open_frame(struct bytes sealed, const struct keyring *ring, struct naos_frame **ret)
{
	const struct naos_frame_source source = { .key = give, .context = (void *)(uintptr_t)ring };
	return naos_frame_open_fd(file_of(sealed), "sealed.fits", &source, ret, &err);
}

static struct bytes result_of(struct naos_frame *frame)
{
	int fd = memfd_create("result", MFD_CLOEXEC);
	assert_ok(naos_frame_copy(frame, fd, "result.fits", 2, NULL, NULL, &err), &err);
	struct bytes result = content_of(fd);
	(void)close(fd);
	return result;
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

static void test_every_bit_counts(void **state)
{
	struct bytes plain = make_fits(3, 5), sealed = seal(plain);
	const struct keyring ring = { { right[0], right[1] } };
	unsigned lowered = 0, refused = 0;
	for (size_t bit = 0; bit < sealed.count * 8; bit += every_bit ? 1 : 11) {
		struct naos_frame *frame;
		sealed.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		int rc = open_frame(sealed, &ring, &frame);
		if (rc != 0) {
			assert_true(rc == NAOS_E_FORMAT || rc == NAOS_E_INTEGRITY);
			refused++;
		} else {
			uint8_t *buffer = malloc(plain.count);
			size_t got = 0;
			if (naos_frame_level(frame) == NAOS_FRAME_FULL)
				assert_code(naos_frame_read_at(frame, buffer, plain.count, 0, &got, &err), NAOS_E_INTEGRITY);
			assert_int_equal(got, 0);
			assert_int_not_equal(naos_frame_verify(frame, &err), 0);
			free(buffer);
			frame = naos_frame_close(frame);
			lowered++;
		}
		sealed.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	assert_true(lowered > 0 && refused > 0);
	free(plain.data);
	free(sealed.data);
}

static void test_segments_of_another_place_or_frame_are_refused(void **state)
{
	struct bytes plain = make_fits(400, 400), one = seal(plain), two = seal(plain);
	const struct keyring ring = { { right[0], right[1] } };
	assert_int_equal(one.count, two.count);
	/* from the third block on: everything but the manifest and its keys */
	for (size_t at = 4 * 2880; at + 2880 <= one.count; at += 2880 * 7) {
		struct bytes mixed = { .data = malloc(one.count), .count = one.count };
		struct naos_frame *frame;
		memcpy(mixed.data, one.data, one.count);
		memcpy(mixed.data + at, two.data + at, 2880);
		if (memcmp(mixed.data, one.data, one.count) != 0 && open_frame(mixed, &ring, &frame) == 0) {
			assert_int_not_equal(naos_frame_verify(frame, &err), 0);
			frame = naos_frame_close(frame);
		}
		free(mixed.data);
	}
	free(plain.data);
	free(one.data);
	free(two.data);
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

int main(int argc, char **argv)
{
	every_bit = argc > 1 && strcmp(argv[1], "--slow") == 0;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_both_keys_give_the_file_byte_for_byte),
		cmocka_unit_test(test_each_key_by_itself_gives_its_part),
		cmocka_unit_test(test_every_bit_counts),
		cmocka_unit_test(test_segments_of_another_place_or_frame_are_refused),
		cmocka_unit_test(test_what_is_no_fits_is_refused_with_a_reason),
		cmocka_unit_test(test_the_same_key_for_both_parts_is_refused),
		cmocka_unit_test(test_units_whose_sum_wraps_around_are_refused),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}

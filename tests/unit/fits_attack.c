/* Frames of both versions against someone who changes them: every bit; segments and headers of another place or frame; a version that is
 * told wrongly; keystreams and nonces.
 * With --slow every bit and 10^6 seals, else every 11th and 10^5 (a tenth of the seals under AddressSanitizer).
 * SPDX-License-Identifier: Apache-2.0 */
#include "fits_helper.h"

static bool slow;

#define FULL_RING ((struct keyring){ { right[0], right[1] } })

/* --- what may be given out ------------------------------------------------------------------------------------------------ */

/* The places of an untouched frame, and what each level may give. */
struct truth {
	struct bytes plain;
	size_t units;
	struct naos_frame_place places[8];
};

static struct truth truth_of(struct bytes plain, struct bytes sealed)
{
	struct truth truth = { .plain = plain };
	struct naos_frame *frame;
	assert_ok(open_frame(sealed, &FULL_RING, &frame), &err);
	truth.units = naos_frame_units(frame);
	assert_true(truth.units <= 8);
	for (size_t i = 0; i < truth.units; i++)
		naos_frame_unit(frame, i, &truth.places[i]);
	(void)naos_frame_close(frame);
	return truth;
}

/* Whether a header is the original, but for sums that were blanked. */
static bool same_header(const uint8_t *got, const uint8_t *original, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += 80) {
		bool sum = memcmp(original + at, "CHECKSUM", 8) == 0 || memcmp(original + at, "DATASUM ", 8) == 0;
		if (memcmp(got + at, original + at, 80) != 0 && !(sum && strspn((const char *)got + at, " ") >= 80))
			return false;
	}
	return true;
}

/* Everything that a frame gives at its level, against the original; data that turns out to be changed is suppressed as whole files do. */
static void check_given(struct naos_frame *frame, const struct truth *truth)
{
	size_t got, bytes = (size_t)naos_frame_result_bytes(frame);
	uint8_t *buffer = malloc(bytes + 1);
	int rc = naos_frame_read_at(frame, buffer, bytes, 0, &got, &err);
	if (rc == NAOS_E_INTEGRITY) {
		assert_ok(naos_frame_suppress_data(frame, &err), &err);
		bytes = (size_t)naos_frame_result_bytes(frame);
		rc = naos_frame_read_at(frame, buffer, bytes, 0, &got, &err);
	}
	assert_int_equal(rc, 0);
	assert_int_equal(got, bytes);
	enum naos_frame_level level = naos_frame_level(frame);
	if (level == NAOS_FRAME_DENIED)
		assert_int_equal(bytes, 0);
	for (size_t i = 0; level != NAOS_FRAME_DENIED && i < truth->units; i++) {
		struct naos_frame_place place;
		const struct naos_frame_place *original = &truth->places[i];
		naos_frame_unit(frame, i, &place);
		assert_int_equal(place.data_bytes, original->data_bytes);
		const uint8_t *data = buffer + place.data_offset, *header = buffer + place.header_offset;
		if (level != NAOS_FRAME_PIXELS_ONLY) {
			assert_int_equal(place.header_bytes, original->header_bytes);
			assert_true(same_header(header, truth->plain.data + original->header_offset, place.header_bytes));
		} else {
			assert_null(memmem(header, place.header_bytes, "secret", 6));
		}
		if (level != NAOS_FRAME_METADATA_ONLY)
			assert_memory_equal(data, truth->plain.data + original->data_offset, place.data_bytes);
		for (size_t k = 0; level == NAOS_FRAME_METADATA_ONLY && k < place.data_bytes; k++)
			assert_int_equal(data[k], 0);
	}
	free(buffer);
}

enum outcome { REFUSED, NOTHING, DATA_ONLY, HEADERS_ONLY, ALL };

/* What both keys, and each alone, make of a frame that was changed: never a wrong byte. */
static enum outcome look(struct bytes sealed, const struct truth *truth)
{
	const struct keyring rings[] = { FULL_RING, { { right[0], NULL } }, { { NULL, right[1] } } };
	enum outcome outcome = REFUSED;
	for (unsigned i = 0; i < 3; i++) {
		struct naos_frame *frame;
		int rc = open_frame(sealed, &rings[i], &frame);
		if (rc != 0) {
			assert_true(rc == NAOS_E_FORMAT || rc == NAOS_E_INTEGRITY || rc == NAOS_E_LIMIT);
			continue;
		}
		int verified = i == 0 ? naos_frame_verify(frame, &err) : 0;
		check_given(frame, truth);
		enum naos_frame_level level = naos_frame_level(frame);
		if (i == 0)
			outcome = level == NAOS_FRAME_FULL	    ? ALL :
				  level == NAOS_FRAME_METADATA_ONLY ? HEADERS_ONLY :
				  level == NAOS_FRAME_PIXELS_ONLY   ? DATA_ONLY :
								      NOTHING;
		if (i == 0)
			assert_int_equal(verified != 0, outcome != ALL);
		(void)naos_frame_close(frame);
	}
	return outcome;
}

static struct bytes copy_of(struct bytes from)
{
	struct bytes copy = { .count = 0 };
	append(&copy, from.data, from.count);
	return copy;
}

/* --- every bit ---------------------------------------------------------------------------------------------------------------- */

static void flip_bits(unsigned version)
{
	struct bytes plain = version == 1 ? make_image(3, 5) : make_fits(3, 5), sealed = seal_as(version, plain);
	const struct truth truth = truth_of(plain, sealed);
	unsigned count[ALL + 1] = { 0 };
	for (size_t bit = 0; bit < sealed.count * 8; bit += slow ? 1 : 11) {
		sealed.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		enum outcome outcome = look(sealed, &truth);
		if (outcome == ALL)
			fail_msg("version %u: bit %zu was changed and nobody noticed", version, bit);
		count[outcome]++;
		sealed.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	print_message("version %u: %zu bits in the file; refused %u, denied %u, header suppressed %u, data suppressed %u\n", version,
		      sealed.count * 8, count[REFUSED], count[NOTHING], count[DATA_ONLY], count[HEADERS_ONLY]);
	assert_true(count[REFUSED] && count[NOTHING] && count[DATA_ONLY] && count[HEADERS_ONLY]);
	assert_int_equal(look(sealed, &truth), ALL);
	free(plain.data);
	free(sealed.data);
}

static void test_every_bit_of_version_1_counts(void **state)
{
	flip_bits(1);
}

static void test_every_bit_of_version_2_counts(void **state)
{
	flip_bits(2);
}

/* --- pieces of another place or frame --------------------------------------------------------------------------------------------- */

struct layout2 {
	uint64_t rows, heap;
};

static struct layout2 layout2_of(struct bytes sealed)
{
	const uint8_t *name = memmem(sealed.data, sealed.count, "'NAOS-SEGMENTS'", 15);
	assert_non_null(name);
	struct layout2 at = { .rows = (uint64_t)(name - sealed.data) / 2880 * 2880 };
	char digits[21] = "";
	memcpy(digits, sealed.data + at.rows + 4 * 80 + 10, 20);
	at.rows += 2880;
	at.heap = at.rows + strtoull(digits, NULL, 10) * NAOS_FRAME_ROW_BYTES;
	return at;
}

/* Nonce, tag and ciphertext of a row of `from` go to a row of `to`; both rows must have the same number of bytes. */
static void move_segment(struct bytes to, uint64_t to_row, struct bytes from, uint64_t from_row)
{
	struct layout2 layout = layout2_of(to);
	const uint8_t *source = from.data + layout.rows + from_row * NAOS_FRAME_ROW_BYTES;
	uint8_t *target = to.data + layout.rows + to_row * NAOS_FRAME_ROW_BYTES;
	uint64_t bytes = 0, source_at = 0, target_at = 0;
	assert_memory_equal(source + 41, target + 41, 8);
	for (unsigned i = 0; i < 8; i++) {
		bytes = bytes << 8 | source[41 + i];
		source_at = source_at << 8 | source[49 + i];
		target_at = target_at << 8 | target[49 + i];
	}
	memcpy(target + 13, source + 13, 28);
	memcpy(to.data + layout.heap + target_at, from.data + layout.heap + source_at, bytes);
}

/* Rows of the frame of make_fits(300, 700): proofs 0 and 1; headers 2, 3, 4; data of unit 0: 5 to 11, of unit 2: 12. */
static void test_segments_of_another_place_or_frame_are_refused(void **state)
{
	struct bytes plain = make_fits(300, 700), one = seal_as(2, plain), two = seal_as(2, plain);
	const struct truth truth = truth_of(plain, one);
	static const struct {
		uint64_t to, from;
		bool foreign, back; /* from the other frame; the other way too: an exchange */
		enum outcome outcome;
	} cases[] = {
		{ 5, 6, false, true, HEADERS_ONLY },  { 7, 6, false, false, HEADERS_ONLY }, { 3, 4, false, true, DATA_ONLY },
		{ 4, 2, false, false, DATA_ONLY },    { 5, 5, true, false, HEADERS_ONLY },  { 12, 12, true, false, HEADERS_ONLY },
		{ 2, 2, true, false, DATA_ONLY },     { 0, 0, true, false, DATA_ONLY },	    { 1, 1, true, false, HEADERS_ONLY },
		{ 0, 1, false, true, NOTHING },	      { 12, 3, false, false, HEADERS_ONLY },
	};
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct bytes mixed = copy_of(one);
		move_segment(mixed, cases[i].to, cases[i].foreign ? two : one, cases[i].from);
		if (cases[i].back)
			move_segment(mixed, cases[i].from, one, cases[i].to);
		assert_int_equal(look(mixed, &truth), cases[i].outcome);
		free(mixed.data);
	}
	/* all headers, or all data, of the other frame; its manifest around this heap; whole rows exchanged; the last segment dropped */
	struct layout2 layout = layout2_of(one);
	struct bytes mixed = copy_of(one);
	for (uint64_t row = 2; row < 5; row++)
		move_segment(mixed, row, two, row);
	assert_int_equal(look(mixed, &truth), DATA_ONLY);
	memcpy(mixed.data, two.data, layout.rows);
	assert_int_equal(look(mixed, &truth), NOTHING);
	memcpy(mixed.data, one.data, one.count);
	memcpy(mixed.data + layout.rows + 5 * NAOS_FRAME_ROW_BYTES, one.data + layout.rows + 6 * NAOS_FRAME_ROW_BYTES, NAOS_FRAME_ROW_BYTES);
	assert_int_equal(look(mixed, &truth), HEADERS_ONLY);
	memcpy(mixed.data, one.data, one.count);
	mixed.count -= 2880;
	assert_int_equal(look(mixed, &truth), REFUSED);
	free(mixed.data);
	free(plain.data);
	free(one.data);
	free(two.data);
}

/* The value of a keyword of a version-1 frame, in its columns: digits of `to` become those of `from`. */
static void move_digits(struct bytes to, struct bytes from, const char *start, size_t cards)
{
	uint8_t *target = memmem(to.data, to.count, start, strlen(start));
	const uint8_t *source = memmem(from.data, from.count, start, strlen(start));
	assert_non_null(target);
	assert_non_null(source);
	memcpy(target, source, cards * 80);
}

static void test_parts_of_another_version_1_frame_are_refused(void **state)
{
	struct bytes plain = make_image(30, 70), one = seal_as(1, plain), two = seal_as(1, plain), mixed = copy_of(one);
	const struct truth truth = truth_of(plain, one);
	size_t data = one.count - 5760; /* 4200 bytes of pixels */
	static const struct {
		const char *starts[4];
		bool data;
		enum outcome outcome;
	} cases[] = {
		{ { "NONCE_H = ", "HIERARCH AUTHTAG_H", "ENCHDR  = " }, false, DATA_ONLY },
		{ { "NONCE_D = ", "HIERARCH AUTHTAG_D" }, true, HEADERS_ONLY },
		{ { "NONCE_H = " }, false, DATA_ONLY },
		{ { "ENCHDR  = " }, false, DATA_ONLY },
		{ { NULL }, true, HEADERS_ONLY },
		{ { "KEYCHK_H= ", "NONCE_H = ", "HIERARCH AUTHTAG_H", "ENCHDR  = " }, false, NOTHING },
		{ { "KEYCHK_D= ", "NONCE_D = ", "HIERARCH AUTHTAG_D" }, true, NOTHING },
		{ { "FRAMEID = " }, false, NOTHING },
		{ { "FRAMEID = ", "KEYCHK_H= ", "KEYCHK_D= " }, false, NOTHING },
	};
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		memcpy(mixed.data, one.data, one.count);
		for (unsigned k = 0; k < 4 && cases[i].starts[k]; k++)
			move_digits(mixed, two, cases[i].starts[k], strcmp(cases[i].starts[k], "ENCHDR  = ") == 0 ? 86 : 1);
		if (cases[i].data)
			memcpy(mixed.data + data, two.data + data, 5760);
		assert_int_equal(look(mixed, &truth), cases[i].outcome);
	}
	memcpy(mixed.data, one.data, one.count);
	mixed.count -= 2880;
	assert_int_equal(look(mixed, &truth), REFUSED);
	free(mixed.data);
	free(plain.data);
	free(one.data);
	free(two.data);
}

/* NAOSFRM is the fifth card of both. */
static void test_a_version_that_is_told_wrongly_is_refused(void **state)
{
	struct bytes plain = make_image(30, 70);
	for (unsigned version = 1; version <= 2; version++) {
		struct bytes sealed = seal_as(version, plain);
		const struct truth truth = truth_of(plain, sealed);
		uint8_t *told = sealed.data + 4 * 80;
		told[29] = version == 1 ? '2' : '1';
		assert_int_equal(look(sealed, &truth), REFUSED);
		told[29] = '3';
		assert_int_equal(look(sealed, &truth), REFUSED);
		memcpy(told, "COMMENT ", 8); /* as a file of GpuFitsCrypt */
		assert_int_equal(look(sealed, &truth), REFUSED);
		free(sealed.data);
	}
	free(plain.data);
}

/* The public functions take no error object too. */
static void test_changes_are_found_without_an_error_object(void **state)
{
	for (unsigned version = 1; version <= 2; version++) {
		struct bytes plain = make_image(30, 70), sealed = seal_as(version, plain);
		const struct keyring ring = FULL_RING;
		const struct naos_frame_source source = { .key = give, .context = (void *)(uintptr_t)&ring };
		struct naos_frame *frame;
		uint8_t *digit = version == 1 ? memmem(sealed.data, sealed.count, "ENCHDR  = '", 11) : sealed.data + layout2_of(sealed).heap;
		assert_non_null(digit);
		digit[20] = digit[20] == '1' ? '2' : '1';
		assert_int_equal(naos_frame_open_fd(file_of(sealed), "sealed.fits", &source, &frame, NULL), 0);
		assert_int_equal(naos_frame_level(frame), NAOS_FRAME_PIXELS_ONLY);
		assert_non_null(strstr(naos_frame_key_reason(frame, NAOS_FRAME_HEADER), "changed"));
		assert_code(naos_frame_verify(frame, NULL), NAOS_E_INTEGRITY);
		(void)naos_frame_close(frame);
		sealed.count -= 2880;
		assert_code(naos_frame_open_fd(file_of(sealed), "sealed.fits", &source, &frame, NULL), NAOS_E_INTEGRITY);
		free(plain.data);
		free(sealed.data);
	}
}

/* --- keystreams, nonces ----------------------------------------------------------------------------------------------------------- */

static int by_block(const void *left, const void *right_one)
{
	return memcmp(left, right_one, 16);
}

/* The encrypted bytes of a part, with the plaintext taken off: whole blocks only. */
static struct bytes keystream_of(unsigned version, struct bytes sealed, struct bytes plain)
{
	struct bytes stream = { .count = 0 };
	size_t from = version == 1 ? sealed.count - (plain.count - 2880) : (size_t)layout2_of(sealed).heap + 2880;
	append(&stream, sealed.data + from, (plain.count - 2880) / 16 * 16);
	for (size_t i = 0; i < stream.count; i++)
		stream.data[i] ^= plain.data[2880 + i];
	return stream;
}

/* Under the same two keys, in the same collection: no block of one keystream is one of the other's (nor of its own), and half of their
 * bits differ. */
static void test_two_frames_never_share_a_keystream(void **state)
{
	for (unsigned version = 1; version <= 2; version++) {
		struct bytes plain = make_image(300, 90), all = { .count = 0 }, streams[2];
		uint64_t same = 0;
		for (unsigned i = 0; i < 2; i++) {
			struct bytes sealed = seal_as(version, plain);
			streams[i] = keystream_of(version, sealed, plain);
			append(&all, streams[i].data, streams[i].count);
			free(sealed.data);
		}
		for (size_t i = 0; i < streams[0].count; i++)
			same += 8u - (unsigned)__builtin_popcount(streams[0].data[i] ^ streams[1].data[i]);
		double share = (double)same / (8.0 * (double)streams[0].count);
		assert_true(share > 0.49 && share < 0.51); /* of GpuFitsCrypt: 0.94 */
		qsort(all.data, all.count / 16, 16, by_block);
		for (size_t i = 16; i < all.count; i += 16)
			assert_memory_not_equal(all.data + i - 16, all.data + i, 16);
		for (unsigned i = 0; i < 2; i++)
			free(streams[i].data);
		free(all.data);
		free(plain.data);
	}
}

static int by_nonce(const void *left, const void *right_one)
{
	return memcmp(left, right_one, 12);
}

static void take_nonce(struct bytes sealed, const char *start, uint8_t *ret)
{
	const char *at = memmem(sealed.data, sealed.count, start, strlen(start));
	char digits[25] = "";
	assert_non_null(at);
	memcpy(digits, at + 11, 24);
	assert_true(naos_hex_parse(digits, ret, 12));
}

/* Every nonce and every frame id of many seals of one file under the same keys. */
static void test_nonces_and_frame_ids_never_repeat(void **state)
{
	size_t seals = (slow ? 1000000 : 100000) / (UNDER_ADDRESS_SANITIZER ? 10 : 1);
	struct bytes plain = make_image(1, 1), nonces = { .data = malloc(seals * 24), .count = seals * 24 };
	struct bytes ids = { .data = malloc(seals * 12), .count = seals * 12 };
	int source = file_of(plain), target = memfd_create("sealed", MFD_CLOEXEC);
	assert_non_null(nonces.data);
	assert_non_null(ids.data);
	struct bytes head = { .data = malloc(5760), .count = 5760 };
	assert_non_null(head.data);
	for (size_t i = 0; i < seals; i++) {
		struct naos_frame_new what = { .version = 1, .algorithm = NAOS_AES_256_GCM, .keys = { right[0], right[1] } };
		assert_ok(naos_uuid_random(&what.frame_id, &err), &err);
		assert_ok(naos_frame_seal_fd(source, "plain.fits", target, "sealed.fits", &what, &err), &err);
		assert_int_equal(pread(target, head.data, head.count, 0), head.count);
		take_nonce(head, "NONCE_H = '", nonces.data + i * 24);
		take_nonce(head, "NONCE_D = '", nonces.data + i * 24 + 12);
		memcpy(ids.data + i * 12, what.frame_id.bytes, 12); /* most of it */
	}
	qsort(nonces.data, nonces.count / 12, 12, by_nonce);
	qsort(ids.data, ids.count / 12, 12, by_nonce);
	for (size_t i = 12; i < nonces.count; i += 12)
		assert_memory_not_equal(nonces.data + i - 12, nonces.data + i, 12);
	for (size_t i = 12; i < ids.count; i += 12)
		assert_memory_not_equal(ids.data + i - 12, ids.data + i, 12);
	(void)close(source);
	(void)close(target);
	free(head.data);
	free(ids.data);
	free(nonces.data);
	free(plain.data);
}

int main(int argc, char **argv)
{
	slow = argc > 1 && strcmp(argv[1], "--slow") == 0;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_bit_of_version_1_counts),
		cmocka_unit_test(test_every_bit_of_version_2_counts),
		cmocka_unit_test(test_segments_of_another_place_or_frame_are_refused),
		cmocka_unit_test(test_parts_of_another_version_1_frame_are_refused),
		cmocka_unit_test(test_a_version_that_is_told_wrongly_is_refused),
		cmocka_unit_test(test_changes_are_found_without_an_error_object),
		cmocka_unit_test(test_two_frames_never_share_a_keystream),
		cmocka_unit_test(test_nonces_and_frame_ids_never_repeat),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}

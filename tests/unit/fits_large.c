/* Files beyond 4 GiB and 64 GiB, without room for them: a sparse FITS file whose structure is read, and a frame of 70 GiB made by hand, in
 * which only the segments that are read were ever written.  SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unit.h"

#include "fits/frame.h"
#include "fits/framekeys.h"
#include "fits/structure.h"

#define GIB ((uint64_t)1 << 30)
#define BLOCK ((uint64_t)NAOS_FITS_BLOCK_BYTES)

static struct naos_error err;

static uint64_t blocks(uint64_t bytes)
{
	return (bytes + BLOCK - 1) / BLOCK * BLOCK;
}

static void put_cards(uint8_t *to, const char *const *cards)
{
	memset(to, ' ', BLOCK);
	for (size_t i = 0; cards[i]; i++)
		memcpy(to + i * NAOS_FITS_CARD_BYTES, cards[i], strlen(cards[i]));
}

/* --- structure ------------------------------------------------------------------------------------------------------------- */

static void test_the_structure_of_a_file_of_70_gib_is_read(void **state)
{
	uint8_t block[BLOCK];
	struct naos_fits_structure structure;
	const uint64_t data = 70 * GIB;
	int fd = memfd_create("large", MFD_CLOEXEC);
	put_cards(block, (const char *const[]){
		"SIMPLE  =                    T", "BITPIX  =                  -64", "NAXIS   =                    2",
		"NAXIS1  =                65536", "NAXIS2  =               143360", "END", NULL });
	assert_int_equal(pwrite(fd, block, BLOCK, 0), BLOCK);
	put_cards(block, (const char *const[]){
		"XTENSION= 'IMAGE   '", "BITPIX  =                    8", "NAXIS   =                    1",
		"NAXIS1  =                    3", "PCOUNT  =                    0", "GCOUNT  =                    1", "END", NULL });
	assert_int_equal(pwrite(fd, block, BLOCK, (off_t)(BLOCK + blocks(data))), BLOCK);
	assert_int_equal(ftruncate(fd, (off_t)(3 * BLOCK + blocks(data))), 0);
	assert_ok(naos_fits_structure_read(fd, "large.fits", &structure, &err), &err);
	assert_int_equal(structure.count, 2);
	assert_int_equal(structure.units[0].data_bytes, blocks(data));
	assert_int_equal(structure.units[1].header_offset, BLOCK + blocks(data));
	assert_int_equal(structure.units[1].data_bytes, BLOCK);
	naos_fits_structure_free(&structure);
	(void)close(fd);
}

/* --- a frame by hand ---------------------------------------------------------------------------------------------------------- */

struct hand {
	struct naos_frame_manifest manifest;
	struct naos_container container;
	struct naos_secret *keys[2];
	struct naos_gcm_key *gcm[2];
	int fd;
};

static void put(const struct hand *hand, const void *data, size_t bytes, uint64_t offset)
{
	assert_int_equal(pwrite(hand->fd, data, bytes, (off_t)offset), bytes);
}

/* Writes the row and the segment of that place. */
static void put_segment(const struct hand *hand, enum naos_frame_part part, uint32_t hdu, uint64_t index, uint8_t *text)
{
	uint8_t associated[NAOS_FRAME_ASSOCIATED_BYTES], raw[NAOS_FRAME_ROW_BYTES];
	struct naos_frame_row row;
	uint64_t number, total = hdu == NAOS_FRAME_PROOF_HDU ? 1 : naos_frame_segments(&hand->manifest, part, hdu);
	naos_container_row(&hand->manifest, &hand->container, part, hdu, index, &row, &number);
	assert_ok(naos_nonce_next(row.nonce, &err), &err);
	naos_frame_associated(&hand->manifest, &row, total, associated);
	const struct naos_gcm_message message = {
		.nonce = row.nonce, .associated = associated, .associated_bytes = sizeof(associated), .in = text, .out = text,
		.bytes = (size_t)row.bytes, .tag = row.tag,
	};
	assert_ok(naos_gcm_seal(hand->gcm[part - 1], &message, &err), &err);
	naos_frame_row_encode(&row, raw);
	put(hand, raw, sizeof(raw), hand->container.rows_offset + number * NAOS_FRAME_ROW_BYTES);
	put(hand, text, (size_t)row.bytes, hand->container.heap_offset + row.offset);
}

static int give(void *context, const struct naos_frame_manifest *manifest, enum naos_frame_part part, const struct naos_blob *blob,
		struct naos_secret **ret, struct naos_error *ret_why)
{
	return naos_secret_clone(((const struct hand *)context)->keys[part - 1], ret, ret_why);
}

/* Two units: 70 GiB of data, and a block of it. */
static void make(struct hand *hand)
{
	static const uint8_t no_keys[NAOS_FRAME_KEYS_BYTES];
	static struct naos_frame_hdu units[2];
	units[0] = (struct naos_frame_hdu){ .header_bytes = BLOCK, .data_bytes = blocks(70 * GIB) };
	units[1] = (struct naos_frame_hdu){ .header_bytes = BLOCK, .data_bytes = BLOCK };
	hand->manifest = (struct naos_frame_manifest){
		.version = 2, .algorithm = NAOS_AES_256_GCM, .file_bytes = 3 * BLOCK + blocks(70 * GIB),
		.segment_bytes = NAOS_FRAME_MIN_SEGMENT_BYTES, .hdu_count = 2, .hdus = calloc(2, sizeof(*units)),
	};
	assert_non_null(hand->manifest.hdus);
	memcpy(hand->manifest.hdus, units, sizeof(units));
	assert_ok(naos_uuid_random(&hand->manifest.frame_id, &err), &err);
	for (unsigned i = 0; i < 2; i++) {
		assert_ok(naos_secret_random(32, &hand->keys[i], &err), &err);
		naos_autosecret struct naos_secret *derived = NULL;
		assert_ok(naos_frame_key_derive(&hand->manifest, (enum naos_frame_part)(i + 1), hand->keys[i], hand->manifest.commit[i],
						&derived, &err), &err);
		assert_ok(naos_gcm_key_create(NAOS_AES_256_GCM, derived, &hand->gcm[i], &err), &err);
	}
	assert_ok(naos_frame_manifest_encode(&hand->manifest, &err), &err);
	assert_ok(naos_container_lay_out(&hand->manifest, &hand->container, &err), &err);
	const struct naos_container *container = &hand->container;
	hand->fd = memfd_create("frame", MFD_CLOEXEC);
	put(hand, container->head, container->head_bytes, 0);
	put(hand, hand->manifest.raw, hand->manifest.raw_bytes, container->manifest_offset);
	put(hand, no_keys, sizeof(no_keys), container->keys_offset);
	put(hand, container->middle, container->middle_bytes, container->rows_offset - container->middle_bytes);
	assert_int_equal(ftruncate(hand->fd, (off_t)container->file_bytes), 0);
}

static void end(struct hand *hand)
{
	for (unsigned i = 0; i < 2; i++) {
		(void)naos_secret_free(hand->keys[i]);
		(void)naos_gcm_key_free(hand->gcm[i]);
	}
	naos_container_free(&hand->container);
	naos_frame_manifest_free(&hand->manifest);
	(void)close(hand->fd);
}

static void test_a_frame_of_70_gib_is_read_at_any_place(void **state)
{
	struct hand hand = { .fd = -1 };
	struct naos_frame *frame;
	struct naos_frame_place place;
	uint8_t text[NAOS_FRAME_MIN_SEGMENT_BYTES], wanted[NAOS_FRAME_MIN_SEGMENT_BYTES];
	size_t got;
	make(&hand);
	uint64_t last = naos_frame_segments(&hand.manifest, NAOS_FRAME_DATA, 0) - 1, middle = (5 * GIB) / sizeof(text);
	assert_int_equal(hand.container.rows, 2 + 2 + last + 1 + 1);
	assert_true(hand.container.file_bytes > 70 * GIB && hand.container.rows * NAOS_FRAME_ROW_BYTES > 60u << 20);
	for (unsigned part = 1; part <= 2; part++)
		put_segment(&hand, (enum naos_frame_part)part, NAOS_FRAME_PROOF_HDU, 0, text);
	for (uint32_t hdu = 0; hdu < 2; hdu++) {
		memset(text, 'a' + (int)hdu, BLOCK);
		put_segment(&hand, NAOS_FRAME_HEADER, hdu, 0, text);
	}
	memset(text, 5, sizeof(text));
	put_segment(&hand, NAOS_FRAME_DATA, 0, middle, text);
	memset(text, 7, sizeof(text));
	put_segment(&hand, NAOS_FRAME_DATA, 0, last, text);
	memset(text, 9, BLOCK);
	put_segment(&hand, NAOS_FRAME_DATA, 1, 0, text);

	const struct naos_frame_source source = { .key = give, .context = &hand };
	assert_ok(naos_frame_open_fd(dup(hand.fd), "large", &source, &frame, &err), &err);
	assert_int_equal(naos_frame_level(frame), NAOS_FRAME_FULL);
	assert_int_equal(naos_frame_result_bytes(frame), hand.manifest.file_bytes);
	naos_frame_unit(frame, 1, &place);
	assert_int_equal(place.header_offset, BLOCK + blocks(70 * GIB));
	assert_ok(naos_frame_read_at(frame, text, 2 * BLOCK, place.header_offset, &got, &err), &err);
	memset(wanted, 'b', BLOCK);
	memset(wanted + BLOCK, 9, BLOCK);
	assert_memory_equal(text, wanted, 2 * BLOCK);
	assert_ok(naos_frame_read_at(frame, text, 100, place.header_offset - 100, &got, &err), &err); /* a part of the last segment */
	memset(wanted, 7, 100);
	assert_memory_equal(text, wanted, 100);
	assert_ok(naos_frame_read_at(frame, text, sizeof(text), BLOCK + middle * sizeof(text), &got, &err), &err);
	memset(wanted, 5, sizeof(text));
	assert_memory_equal(text, wanted, sizeof(text));
	/* what was never written does not match its tag */
	assert_code(naos_frame_read_at(frame, text, sizeof(text), BLOCK + (middle + 1) * sizeof(text), &got, &err), NAOS_E_INTEGRITY);
	memset(wanted, 0, sizeof(text));
	assert_memory_equal(text, wanted, sizeof(text));
	(void)naos_frame_close(frame);
	end(&hand);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_structure_of_a_file_of_70_gib_is_read),
		cmocka_unit_test(test_a_frame_of_70_gib_is_read_at_any_place),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

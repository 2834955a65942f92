/* FITS files, keys and frames of both versions in memory, for the tests of lib/fits.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_TESTS_FITS_HELPER_H
#define NAOS_TESTS_FITS_HELPER_H

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

#include "fits/frame.h"

#define SEGMENT NAOS_FRAME_MIN_SEGMENT_BYTES

static struct naos_error err;

static inline size_t next_random(void)
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

static inline void append(struct bytes *to, const void *data, size_t count)
{
	to->data = realloc(to->data, to->count + count);
	assert_non_null(to->data);
	memcpy(to->data + to->count, data, count);
	to->count += count;
}

static inline void card(struct bytes *to, const char *text)
{
	char line[80];
	size_t bytes = strnlen(text, sizeof(line));
	memset(line, ' ', sizeof(line));
	memcpy(line, text, bytes);
	append(to, line, sizeof(line));
}

static inline void fill(struct bytes *to, char with)
{
	char block[2880];
	memset(block, with, sizeof(block));
	append(to, block, (2880 - to->count % 2880) % 2880);
}

/* A primary image of 16-bit numbers with BZERO. */
static inline struct bytes make_image(unsigned width, unsigned height)
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
	for (unsigned row = 0; row < height; row++) {
		uint8_t line[2 * 400];
		assert_true(width <= 400);
		for (unsigned i = 0; i < width; i++) {
			unsigned value = (row * width + i) * 7;
			line[2 * i] = (uint8_t)(value >> 8);
			line[2 * i + 1] = (uint8_t)value;
		}
		append(&file, line, 2 * (size_t)width);
	}
	fill(&file, 0);
	return file;
}

/* That, an empty unit, a table. */
static inline struct bytes make_fits(unsigned width, unsigned height)
{
	struct bytes file = make_image(width, height);
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

static inline int file_of(struct bytes content)
{
	int fd = memfd_create("frame", MFD_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, content.data, content.count, 0), content.count);
	return fd;
}

static inline struct bytes content_of(int fd)
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

static inline int give(void *context, const struct naos_frame_manifest *manifest, enum naos_frame_part part, const struct naos_blob *blob,
		struct naos_secret **ret, struct naos_error *ret_why)
{
	const struct keyring *ring = context;
	*ret = NULL;
	return ring->keys[part - 1] ? naos_secret_clone(ring->keys[part - 1], ret, ret_why) : 0;
}

static struct naos_secret *right[2], *wrong;

static inline int set_up(void **state)
{
	for (unsigned i = 0; i < 2; i++)
		assert_ok(naos_secret_random(i ? 16 : 32, &right[i], &err), &err);
	assert_ok(naos_secret_random(32, &wrong, &err), &err);
	return 0;
}

static inline int tear_down(void **state)
{
	for (unsigned i = 0; i < 2; i++)
		right[i] = naos_secret_free(right[i]);
	wrong = naos_secret_free(wrong);
	return 0;
}

static inline struct bytes seal_as(unsigned version, struct bytes plain)
{
	struct naos_frame_new what = {
		.version = version, .algorithm = NAOS_AES_256_GCM, .keys = { right[0], right[1] }, .segment_bytes = SEGMENT, .jobs = 3,
	};
	assert_ok(naos_uuid_random(&what.frame_id, &err), &err);
	int source = file_of(plain), target = memfd_create("sealed", MFD_CLOEXEC);
	assert_ok(naos_frame_seal_fd(source, "plain.fits", target, "sealed.fits", &what, &err), &err);
	struct bytes sealed = content_of(target);
	(void)close(source);
	(void)close(target);
	return sealed;
}

static inline int open_frame(struct bytes sealed, const struct keyring *ring, struct naos_frame **ret)
{
	const struct naos_frame_source source = { .key = give, .context = (void *)(uintptr_t)ring };
	return naos_frame_open_fd(file_of(sealed), "sealed.fits", &source, ret, &err);
}

static inline struct bytes result_of(struct naos_frame *frame)
{
	int fd = memfd_create("result", MFD_CLOEXEC);
	assert_ok(naos_frame_copy(frame, fd, "result.fits", 2, NULL, NULL, &err), &err);
	struct bytes result = content_of(fd);
	(void)close(fd);
	return result;
}

#endif

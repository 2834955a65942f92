/* Sections of images: up to the first newline the text of a section, then cards that join the header of an image of 16-bit numbers,
 * 12 x 7 x 3.
 * The image is sealed, and the section cut out of the frame: what comes out has as many pixels as the section says.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fits/cutout.h"
#include "fuzz.h"

#define MAX_CARDS 30u
#define PIXELS (12u * 7u * 3u)

static struct naos_secret *keys[2];

static int give(void *context, const struct naos_frame_manifest *manifest, enum naos_frame_part part, const struct naos_blob *blob,
		struct naos_secret **ret, struct naos_error *ret_why)
{
	return naos_secret_clone(keys[part - 1], ret, ret_why);
}

static void expect_reason(int rc, const struct naos_error *err)
{
	if (rc != 0 && (err->code != rc || err->message[0] == 0))
		abort(); /* a refusal always says why */
}

/* A FITS file, whatever its further cards say. */
static int make_image(const uint8_t *cards, size_t bytes)
{
	static const char *const first[] = {
		"SIMPLE  =                    T", "BITPIX  =                   16", "NAXIS   =                    3",
		"NAXIS1  =                   12", "NAXIS2  =                    7", "NAXIS3  =                    3",
	};
	uint8_t file[2 * 2880] = { 0 };
	size_t used = 0;
	memset(file, ' ', 2880);
	for (unsigned i = 0; i < 6; i++, used += 80)
		memcpy(file + used, first[i], strlen(first[i]));
	bytes = bytes > (size_t)MAX_CARDS * 80 ? (size_t)MAX_CARDS * 80 : bytes;
	for (size_t i = 0; i < bytes; i++)
		file[used + i] = cards[i] >= 32 && cards[i] < 127 ? cards[i] : ' ';
	used += (bytes + 79) / 80 * 80;
	if (used + 80 <= 2880)
		memcpy(file + used, "END", 3);
	for (unsigned i = 0; i < PIXELS * 2; i++)
		file[2880 + i] = (uint8_t)i;
	int fd = memfd_create("image", MFD_CLOEXEC);
	if (fd < 0 || pwrite(fd, file, sizeof(file), 0) != (ssize_t)sizeof(file))
		abort();
	return fd;
}

static int seal(int source)
{
	struct naos_frame_new what = {
		.algorithm = NAOS_AES_256_GCM, .keys = { keys[0], keys[1] }, .segment_bytes = NAOS_FRAME_MIN_SEGMENT_BYTES,
	};
	struct naos_error err = NAOS_ERROR_INIT;
	int target = memfd_create("sealed", MFD_CLOEXEC);
	if (target < 0)
		abort();
	int rc = naos_frame_seal_fd(source, "image", target, "sealed", &what, &err);
	expect_reason(rc, &err);
	(void)close(source);
	if (rc == 0)
		return target;
	(void)close(target);
	return -1;
}

static void cut(struct naos_frame *frame, const struct naos_section *section)
{
	const struct naos_cut_request request = { .unit = "0", .kind = NAOS_CUT_SECTION, .section = *section };
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_cut written;
	struct stat status;
	int fd = memfd_create("part", MFD_CLOEXEC);
	if (fd < 0)
		abort();
	int rc = naos_frame_cut(frame, &request, fd, "part", &written, &err);
	expect_reason(rc, &err);
	if (rc == 0 && (fstat(fd, &status) != 0 || status.st_size % 2880 != 0 || status.st_size < 2 * 2880))
		abort();
	(void)close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	const struct naos_frame_source source = { .key = give };
	const uint8_t *end = bytes ? memchr(data, '\n', bytes) : NULL;
	size_t length = end ? (size_t)(end - data) : bytes;
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_section section;
	char text[256];
	naos_autoframe struct naos_frame *frame = NULL;
	for (unsigned i = 0; i < 2; i++)
		if (!keys[i] && naos_secret_random(32, &keys[i], &err) != 0)
			abort();
	length = length < sizeof(text) - 1 ? length : sizeof(text) - 1;
	if (length)
		memcpy(text, data, length);
	text[length] = 0;
	int rc = naos_section_parse(text, &section, &err);
	expect_reason(rc, &err);
	for (unsigned i = 0; rc == 0 && i < section.axes; i++)
		if (!section.whole[i] && (section.from[i] < 1 || section.to[i] < 1 || section.step[i] < 1))
			abort();
	if (rc != 0)
		return 0;
	int fd = seal(make_image(end ? end + 1 : data, end ? bytes - length - 1 : 0));
	if (fd < 0)
		return 0;
	rc = naos_frame_open_fd(fd, "frame", &source, &frame, &err);
	if (rc != 0)
		abort();
	cut(frame, &section);
	return 0;
}

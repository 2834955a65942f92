/* Places in the sky, and headers of cut-outs.  The first byte says what the rest is: 0 the text of a place and a size, a line each; 1 the
 * header of an image of 400 by 300 pixels, from which a box in the sky and a section with steps are cut.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "fits/cutout_inside.h"
#include "fits/structure.h"
#include "fuzz.h"

#define MAX_BYTES ((size_t)1 << 17)

static void expect_reason(int rc, const struct naos_error *err)
{
	if (rc != 0 && (err->code != rc || err->message[0] == 0))
		abort(); /* a refusal always says why */
}

static void parse_text(const uint8_t *data, size_t bytes)
{
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_sky sky;
	naos_autofree char *text = strndup((const char *)data, bytes);
	char *line = text ? strchr(text, '\n') : NULL;
	if (!line)
		return;
	*line = 0;
	int rc = naos_sky_parse(text, line + 1, &sky, &err);
	expect_reason(rc, &err);
	if (rc == 0 && !(sky.dec_deg >= -90 && sky.dec_deg <= 90 && sky.width_deg > 0 && sky.height_deg > 0))
		abort();
}

static void check_inside(const struct frame_image *image, const struct naos_cut *cut)
{
	for (unsigned i = 0; i < image->axes; i++) {
		long long last = cut->first[i] + (long long)(cut->count[i] - 1) * cut->step[i];
		if (cut->count[i] < 1 || cut->first[i] < 1 || last < 1 || cut->first[i] > (long long)image->size[i] ||
		    last > (long long)image->size[i])
			abort();
	}
}

static void cut_header(const struct frame_image *image, struct naos_cut *cut)
{
	struct naos_error err = NAOS_ERROR_INIT;
	naos_autofree char *header = NULL;
	size_t bytes = 0;
	int rc = frame_cut_header(image, cut, &header, &bytes, &err);
	expect_reason(rc, &err);
	if (rc == 0 && (bytes % NAOS_FITS_BLOCK_BYTES != 0 || memcmp(header, "SIMPLE  =", 9) != 0 ||
			!naos_fits_card_find((const uint8_t *)header, bytes, "NAXIS2")))
		abort();
}

static void use_header(const uint8_t *data, size_t bytes)
{
	const struct naos_sky sky = { .ra_deg = 83.6, .dec_deg = -5.4, .width_deg = 0.05, .height_deg = 0.02 };
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_cut cut = { .axes = 2, .first = { 300, 11 }, .step = { -3, 2 }, .count = { 100, 50 } }, box = { .axes = 2 };
	naos_autofree uint8_t *header = malloc(bytes + 1);
	if (!header)
		return;
	memcpy(header, data, bytes);
	const struct frame_image image = {
		.header = header, .header_bytes = bytes, .bitpix = 16, .axes = 2, .size = { 400, 300 },
	};
	cut_header(&image, &cut);
	int rc = frame_sky_section(&image, &sky, &box, &err);
	expect_reason(rc, &err);
	if (rc == 0) {
		check_inside(&image, &box);
		cut_header(&image, &box);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	if (bytes < 1 || bytes > MAX_BYTES)
		return 0;
	(data[0] == 0 ? parse_text : use_header)(data + 1, bytes - 1);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "fits/cutout.h"

#include <string.h>

#include "base/io.h"
#include "fits/cutout_inside.h"
#include "fits/structure.h"

#define RUN_BYTES ((size_t)1 << 20)

/* --- the image --------------------------------------------------------------------------------------------------------------- */

static void free_image(struct frame_image *image)
{
	if (image->header)
		naos_wipe(image->header, image->header_bytes);
	free(image->header);
	image->tiles = frame_tiles_close(image->tiles);
}

static bool is_compressed(const uint8_t *header, size_t bytes)
{
	const uint8_t *card = naos_fits_card_find(header, bytes, "ZIMAGE");
	return card && card[29] == 'T';
}

static bool is_image(const uint8_t *header, size_t bytes)
{
	const uint8_t *extension = naos_fits_card_find(header, bytes, "XTENSION");
	return !extension || memcmp(extension + 10, "'IMAGE   '", 10) == 0;
}

/* Axes of an image that is not compressed, and whether its pixels are all there. */
static int read_axes(struct frame_image *image, uint64_t data_bytes, struct naos_error *err)
{
	long long value;
	if (!naos_fits_card_number(image->header, image->header_bytes, "BITPIX", &value) ||
	    (value != 8 && value != 16 && value != 32 && value != 64 && value != -32 && value != -64))
		return naos_error_set(err, NAOS_E_FORMAT, "the header has no BITPIX");
	image->bitpix = (int)value;
	if (!naos_fits_card_number(image->header, image->header_bytes, "NAXIS", &value) || value < 1 || value > NAOS_CUTOUT_MAX_AXES)
		return naos_error_set(err, NAOS_E_USAGE, "this unit is no image of 1 to %d axes; the whole unit is had without a section",
				      NAOS_CUTOUT_MAX_AXES);
	image->axes = (unsigned)value;
	uint64_t bytes = (uint64_t)abs(image->bitpix) / 8;
	for (unsigned i = 0; i < image->axes; i++) {
		char keyword[24];
		(void)snprintf(keyword, sizeof(keyword), "NAXIS%u", i + 1);
		if (!naos_fits_card_number(image->header, image->header_bytes, keyword, &value) || value < 1)
			return naos_error_set(err, NAOS_E_USAGE, "the image has no pixels (%s is not 1 or more)", keyword);
		image->size[i] = (uint64_t)value;
		if (__builtin_mul_overflow(bytes, image->size[i], &bytes))
			return naos_error_set(err, NAOS_E_FORMAT, "the axes of the image are larger than any file");
	}
	return bytes <= data_bytes ? 0 : naos_error_set(err, NAOS_E_FORMAT, "the image is cut off");
}

/* The first unit with pixels. */
static int first_image(struct naos_frame *frame, size_t *ret, struct naos_error *err)
{
	for (size_t unit = 0; unit < naos_frame_units(frame); unit++) {
		naos_autofree uint8_t *header = NULL;
		size_t bytes;
		long long axes;
		int rc = naos_frame_unit_header(frame, unit, &header, &bytes, err);
		if (rc != 0)
			return rc;
		bool pixels = is_image(header, bytes) && naos_fits_card_number(header, bytes, "NAXIS", &axes) && axes > 0;
		if (pixels || is_compressed(header, bytes)) {
			*ret = unit;
			return 0;
		}
	}
	return naos_error_set(err, NAOS_E_USAGE, "there is no image in it; whole units are had by --hdu without a section");
}

static int open_image(struct frame_image *image, size_t unit, struct naos_error *err)
{
	struct naos_frame_place place;
	naos_frame_unit(image->frame, unit, &place);
	image->data_offset = place.data_offset;
	int rc = naos_frame_unit_header(image->frame, unit, &image->header, &image->header_bytes, err);
	if (rc != 0)
		return rc;
	if (is_compressed(image->header, image->header_bytes))
		return frame_tiles_open(image, unit, err);
	if (!is_image(image->header, image->header_bytes))
		return naos_error_set(err, NAOS_E_USAGE, "unit %zu is a table, no image; it is had as a whole without a section", unit);
	return read_axes(image, place.data_bytes, err);
}

/* --- which pixels ------------------------------------------------------------------------------------------------------------- */

static int take_axis(const struct frame_image *image, const struct naos_section *section, unsigned i, struct naos_cut *cut,
		     struct naos_error *err)
{
	uint64_t from = section->from[i], to = section->to[i], step = section->step[i];
	if (section->whole[i]) {
		from = section->backwards[i] ? image->size[i] : 1;
		to = section->backwards[i] ? 1 : image->size[i];
	}
	uint64_t high = from > to ? from : to, low = from > to ? to : from;
	if (high > image->size[i])
		return naos_error_set(err, NAOS_E_USAGE, "axis %u has %llu pixels; the section goes to %llu", i + 1,
				      (unsigned long long)image->size[i], (unsigned long long)high);
	cut->first[i] = (long long)from;
	cut->step[i] = from > to ? -(long long)step : (long long)step;
	cut->count[i] = (high - low) / step + 1;
	return 0;
}

static int choose(const struct frame_image *image, const struct naos_cut_request *request, struct naos_cut *cut, struct naos_error *err)
{
	int rc = 0;
	cut->axes = image->axes;
	if (request->kind == NAOS_CUT_SKY)
		return frame_sky_section(image, &request->sky, cut, err);
	if (request->section.axes != image->axes)
		return naos_error_set(err, NAOS_E_USAGE, "the image has %u axes, the section %u", image->axes, request->section.axes);
	for (unsigned i = 0; rc == 0 && i < image->axes; i++)
		rc = take_axis(image, &request->section, i, cut, err);
	return rc;
}

/* --- pixels ------------------------------------------------------------------------------------------------------------------- */

/* One run along the first axis, from pixel `low` (from 0) of the row that begins at `row` (pixels from the first one). */
static int read_run(const struct frame_image *image, const long long *at, uint64_t row, uint64_t low, size_t count, uint8_t *out,
		    struct naos_error *err)
{
	size_t pixel = (size_t)abs(image->bitpix) / 8, got;
	long long place[NAOS_CUTOUT_MAX_AXES];
	if (!image->tiles)
		return naos_frame_read_at(image->frame, out, count * pixel, image->data_offset + (row + low) * pixel, &got, err);
	memcpy(place, at, sizeof(place));
	place[0] = (long long)low + 1;
	return frame_tiles_read(image->tiles, place, count, out, err);
}

/* Pixels of a run that belong to the cut-out, in its order. */
static size_t pick(const uint8_t *in, size_t count, size_t pixel, const struct naos_cut *cut, uint8_t *out)
{
	size_t stride = (size_t)llabs(cut->step[0]), used = 0;
	for (size_t i = 0; i < count; i += stride, used++)
		memcpy(out + used * pixel, in + (cut->step[0] < 0 ? count - 1 - i : i) * pixel, pixel);
	return used;
}

struct writing {
	const struct frame_image *image;
	const struct naos_cut *cut;
	uint8_t *in, *out;
	int fd;
	const char *name;
	uint64_t offset;
};

static int write_row(struct writing *writing, const long long *at, uint64_t row, struct naos_error *err)
{
	const struct naos_cut *cut = writing->cut;
	size_t pixel = (size_t)abs(writing->image->bitpix) / 8;
	uint64_t stride = (uint64_t)llabs(cut->step[0]), room = RUN_BYTES / pixel, done = 0;
	while (done < cut->count[0]) {
		/* as many as fit, with those between them; a step beyond the buffer takes them one by one */
		uint64_t many = stride >= room ? 1 : (room - 1) / stride + 1;
		many = many < cut->count[0] - done ? many : cut->count[0] - done;
		size_t span = (size_t)((many - 1) * stride + 1);
		long long first = cut->first[0] - 1 + (long long)done * cut->step[0];
		uint64_t low = (uint64_t)(cut->step[0] < 0 ? first - (long long)(span - 1) : first);
		int rc = read_run(writing->image, at, row, low, span, writing->in, err);
		if (rc != 0)
			return rc;
		size_t used = pick(writing->in, span, pixel, cut, writing->out);
		rc = naos_io_pwrite(writing->fd, writing->out, used * pixel, writing->offset, writing->name, err);
		if (rc != 0)
			return rc;
		writing->offset += used * pixel;
		done += many;
	}
	return 0;
}

static int write_rows(struct writing *writing, struct naos_error *err)
{
	const struct naos_cut *cut = writing->cut;
	uint64_t index[NAOS_CUTOUT_MAX_AXES] = { 0 };
	for (;;) {
		long long at[NAOS_CUTOUT_MAX_AXES] = { 1 };
		uint64_t row = 0, stride = writing->image->size[0];
		for (unsigned i = 1; i < cut->axes; i++) {
			at[i] = cut->first[i] + (long long)index[i] * cut->step[i];
			row += (uint64_t)(at[i] - 1) * stride;
			stride *= writing->image->size[i];
		}
		int rc = write_row(writing, at, row, err);
		if (rc != 0)
			return rc;
		unsigned axis = 1;
		while (axis < cut->axes && ++index[axis] == cut->count[axis])
			index[axis++] = 0;
		if (axis >= cut->axes)
			return 0;
	}
}

static int write_pixels(const struct frame_image *image, const struct naos_cut *cut, int fd, const char *name, uint64_t offset,
			struct naos_error *err)
{
	struct writing writing = {
		.image = image, .cut = cut, .in = malloc(RUN_BYTES), .out = malloc(RUN_BYTES), .fd = fd, .name = name, .offset = offset,
	};
	int rc = writing.in && writing.out ? write_rows(&writing, err) : naos_error_set(err, NAOS_E_NOMEM, "no memory for a cut-out");
	uint64_t end = (writing.offset + NAOS_FITS_BLOCK_BYTES - 1) / NAOS_FITS_BLOCK_BYTES * NAOS_FITS_BLOCK_BYTES;
	if (rc == 0 && ftruncate(fd, (off_t)end) != 0)
		rc = naos_error_set_errno(err, errno, "cannot set the size of %s", name);
	if (writing.in)
		naos_wipe(writing.in, RUN_BYTES);
	if (writing.out)
		naos_wipe(writing.out, RUN_BYTES);
	free(writing.in);
	free(writing.out);
	return rc;
}

/* --- the whole ---------------------------------------------------------------------------------------------------------------- */

static int cut_image(struct naos_frame *frame, const struct naos_cut_request *request, int fd, const char *name, struct naos_cut *cut,
		     struct naos_error *err)
{
	naos_cleanup(free_image) struct frame_image image = { .frame = frame };
	naos_autofree char *header = NULL;
	size_t header_bytes = 0;
	int rc = open_image(&image, cut->unit, err);
	if (rc == 0)
		rc = choose(&image, request, cut, err);
	if (rc == 0)
		rc = frame_cut_header(&image, cut, &header, &header_bytes, err);
	if (rc == 0)
		rc = naos_io_pwrite(fd, header, header_bytes, 0, name, err);
	if (header)
		naos_wipe(header, header_bytes);
	return rc ? rc : write_pixels(&image, cut, fd, name, header_bytes, err);
}

int naos_frame_cut(struct naos_frame *frame, const struct naos_cut_request *request, int fd, const char *name, struct naos_cut *ret,
		   struct naos_error *err)
{
	struct naos_cut cut = { .unit = 0 };
	enum naos_frame_level level = naos_frame_level(frame);
	if (level == NAOS_FRAME_DENIED)
		return naos_frame_refuse(frame, err);
	if (level == NAOS_FRAME_METADATA_ONLY)
		return naos_error_set(err, naos_frame_worst(frame), "%s", naos_frame_key_reason(frame, NAOS_FRAME_DATA));
	int rc = request->unit ? naos_frame_unit_find(frame, request->unit, &cut.unit, err) : first_image(frame, &cut.unit, err);
	if (rc == 0 && request->kind == NAOS_CUT_UNIT)
		rc = frame_copy_unit(frame, cut.unit, fd, name, err);
	else if (rc == 0)
		rc = cut_image(frame, request, fd, name, &cut, err);
	if (rc == 0)
		*ret = cut;
	return rc;
}

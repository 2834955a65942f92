/* SPDX-License-Identifier: Apache-2.0 */
#include "fits/cutout.h"

#include <ctype.h>
#include <fcntl.h>
#include <string.h>
#include <fitsio.h>

#include "base/io.h"
#include "fits/structure.h"

#define RUN_BYTES ((size_t)1 << 20)

static bool number(const char **at, uint64_t *ret)
{
	char *end;
	if (!isdigit((unsigned char)**at))
		return false;
	errno = 0;
	*ret = strtoull(*at, &end, 10);
	*at = end;
	return errno == 0;
}

int naos_section_parse(const char *text, struct naos_section *ret, struct naos_error *err)
{
	struct naos_section section = { .axes = 0 };
	const char *at = text;
	bool bracket = *at == '[';
	at += bracket;
	for (;;) {
		unsigned i = section.axes;
		if (i == NAOS_CUTOUT_MAX_AXES)
			return naos_error_set(err, NAOS_E_LIMIT, "a section has at most %d axes", NAOS_CUTOUT_MAX_AXES);
		section.whole[i] = *at == '*';
		if (section.whole[i])
			at++;
		else if (!number(&at, &section.from[i]) || *at++ != ':' || !number(&at, &section.to[i]) || section.from[i] < 1 ||
			 section.to[i] < section.from[i])
			return naos_error_set(err, NAOS_E_USAGE,
				"a section looks like [101:356,1:256] or [*,1:256], not '%s'", text);
		section.axes++;
		if (*at != ',')
			break;
		at++;
	}
	if (bracket ? strcmp(at, "]") != 0 : *at != 0)
		return naos_error_set(err, NAOS_E_USAGE, "a section looks like [101:356,1:256] or [*,1:256], not '%s'", text);
	*ret = section;
	return 0;
}

/* What is known of the image, and which part of it is wanted. */
struct image {
	const uint8_t *header;
	uint64_t header_bytes, data_offset;
	int bitpix, axes;
	LONGLONG size[NAOS_CUTOUT_MAX_AXES], from[NAOS_CUTOUT_MAX_AXES], length[NAOS_CUTOUT_MAX_AXES]; /* from 0 */
};

static int read_axes(struct image *image, const struct naos_section *section, uint64_t data_bytes, struct naos_error *err)
{
	long long value;
	uint64_t bytes;
	if (!naos_fits_card_number(image->header, image->header_bytes, "BITPIX", &value))
		return naos_error_set(err, NAOS_E_FORMAT, "the header has no BITPIX");
	image->bitpix = (int)value;
	bool known = value == 8 || value == 16 || value == 32 || value == 64 || value == -32 || value == -64;
	const uint8_t *extension = naos_fits_card_find(image->header, image->header_bytes, "XTENSION");
	if (!known || (extension && memcmp(extension + 10, "'IMAGE   '", 10) != 0))
		return naos_error_set(err, NAOS_E_USAGE, "this unit is no image (a tile-compressed one is opened as a whole)");
	if (!naos_fits_card_number(image->header, image->header_bytes, "NAXIS", &value) || value != (long long)section->axes)
		return naos_error_set(err, NAOS_E_USAGE, "the image has %lld axes, the section %u", value, section->axes);
	image->axes = (int)value;
	bytes = (uint64_t)(value ? abs(image->bitpix) / 8 : 0);
	for (int i = 0; i < image->axes; i++) {
		char keyword[24];
		(void)snprintf(keyword, sizeof(keyword), "NAXIS%d", i + 1);
		if (!naos_fits_card_number(image->header, image->header_bytes, keyword, &value) || value < 1)
			return naos_error_set(err, NAOS_E_FORMAT, "the header has no %s", keyword);
		image->size[i] = value;
		image->from[i] = section->whole[i] ? 0 : (LONGLONG)section->from[i] - 1;
		image->length[i] = section->whole[i] ? value : (LONGLONG)(section->to[i] - section->from[i]) + 1;
		if (!section->whole[i] && section->to[i] > (uint64_t)value)
			return naos_error_set(err, NAOS_E_USAGE, "axis %d has %lld pixels; the section goes to %llu", i + 1,
				value,
					      (unsigned long long)section->to[i]);
		if (__builtin_mul_overflow(bytes, (uint64_t)value, &bytes))
			return naos_error_set(err, NAOS_E_FORMAT, "the axes of the image are larger than any file");
	}
	return bytes <= data_bytes ? 0 : naos_error_set(err, NAOS_E_FORMAT, "the image is cut off");
}

static int fits_failed(const char *path, int status, struct naos_error *err)
{
	char text[FLEN_STATUS];
	fits_get_errstatus(status, text);
	fits_clear_errmsg();
	return naos_error_set(err, status == FILE_NOT_CREATED ? NAOS_E_EXISTS : NAOS_E_SYSTEM,
		"cannot write %s (CFITSIO: %s)", path, text);
}

/* The header of the cut-out; *ret_offset is where its pixels go. */
static int write_header(const struct image *image, const char *path, uint64_t *ret_offset, struct naos_error *err)
{
	fitsfile *fits;
	LONGLONG size[NAOS_CUTOUT_MAX_AXES], header, data, end;
	int status = 0, ignored = 0;
	for (int i = 0; i < image->axes; i++)
		size[i] = image->length[i];
	if (fits_create_diskfile(&fits, path, &status) != 0)
		return fits_failed(path, status, err);
	fits_create_imgll(fits, image->bitpix, image->axes, size, &status);
	for (uint64_t at = 0; at + NAOS_FITS_CARD_BYTES <= image->header_bytes && status == 0; at += NAOS_FITS_CARD_BYTES) {
		char card[FLEN_CARD];
		memcpy(card, image->header + at, NAOS_FITS_CARD_BYTES);
		card[NAOS_FITS_CARD_BYTES] = 0;
		if (strncmp(card, "END     ", 8) == 0)
			break;
		int class = fits_get_keyclass(card);
		if (class == TYP_STRUC_KEY || class == TYP_CKSUM_KEY || class == TYP_CMPRS_KEY || strncmp(card, "XTENSION",
			8) == 0 ||
		    strncmp(card, "EXTEND  ", 8) == 0 || strspn(card, " ") == NAOS_FITS_CARD_BYTES)
			continue;
		fits_write_record(fits, card, &status);
	}
	for (int i = 0; i < image->axes && status == 0; i++) {
		char keyword[24], comment[FLEN_COMMENT];
		double pixel;
		int none = 0;
		(void)snprintf(keyword, sizeof(keyword), "CRPIX%d", i + 1);
		if (image->from[i] && fits_read_key(fits, TDOUBLE, keyword, &pixel, comment, &none) == 0) {
			pixel -= (double)image->from[i];
			fits_update_key(fits, TDOUBLE, keyword, &pixel, comment, &status);
		}
	}
	fits_clear_errmsg();
	fits_flush_file(fits, &status);
	fits_get_hduaddrll(fits, &header, &data, &end, &status);
	fits_close_file(fits, status ? &ignored : &status);
	if (status != 0)
		return fits_failed(path, status, err);
	*ret_offset = (uint64_t)data;
	return 0;
}

/* Pixels: runs along the first axis, one after the other. */
static int write_pixels(struct naos_frame *frame, const struct image *image, int fd, const char *path, uint64_t offset,
			struct naos_error *err)
{
	LONGLONG at[NAOS_CUTOUT_MAX_AXES] = { 0 };
	uint64_t pixel = (uint64_t)abs(image->bitpix) / 8;
	naos_autofree uint8_t *buffer = malloc(RUN_BYTES);
	if (!buffer)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a cut-out");
	for (;;) {
		uint64_t start = 0, stride = 1, left = (uint64_t)image->length[0] * pixel;
		for (int i = 0; i < image->axes; i++) {
			start += (uint64_t)(image->from[i] + (i ? at[i] : 0)) * stride;
			stride *= (uint64_t)image->size[i];
		}
		for (uint64_t from = image->data_offset + start * pixel; left > 0;) {
			size_t want = left < RUN_BYTES ? (size_t)left : RUN_BYTES, got;
			int rc = naos_frame_read_at(frame, buffer, want, from, &got, err);
			if (rc == 0)
				rc = naos_io_pwrite(fd, buffer, got, offset, path, err);
			if (rc != 0)
				return rc;
			offset += got;
			from += got;
			left -= got;
		}
		int axis = 1;
		while (axis < image->axes && ++at[axis] == image->length[axis])
			at[axis++] = 0;
		if (axis >= image->axes)
			return 0;
	}
}

int naos_frame_cut(struct naos_frame *frame, size_t unit, const struct naos_section *section, const char *path,
		      struct naos_error *err)
{
	struct naos_frame_place place;
	size_t got;
	uint64_t offset = 0;
	if (naos_frame_level(frame) == NAOS_FRAME_METADATA_ONLY || naos_frame_level(frame) == NAOS_FRAME_DENIED)
		return naos_error_set(err, NAOS_E_DENIED, "%s", naos_frame_key_reason(frame, NAOS_FRAME_DATA));
	if (unit >= naos_frame_units(frame))
		return naos_error_set(err, NAOS_E_USAGE, "there is no unit %zu: the frame has %zu", unit,
			naos_frame_units(frame));
	naos_frame_unit(frame, unit, &place);
	naos_autofree uint8_t *header = malloc(place.header_bytes);
	if (!header)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a header");
	struct image image = { .header = header, .header_bytes = place.header_bytes, .data_offset = place.data_offset };
	int rc = naos_frame_read_at(frame, header, place.header_bytes, place.header_offset, &got, err);
	if (rc == 0)
		rc = read_axes(&image, section, place.data_bytes, err);
	if (rc == 0)
		rc = write_header(&image, path, &offset, err);
	if (rc != 0)
		return rc;
	naos_autoclose int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot write %s", path);
	return write_pixels(frame, &image, fd, path, offset, err);
}

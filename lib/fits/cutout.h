/* Cut-outs: a part of a frame as a FITS file of its own, at the price of the segments that it touches.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FITS_CUTOUT_H
#define NAOS_FITS_CUTOUT_H

#include "fits/frame.h"

#define NAOS_CUTOUT_MAX_AXES 16 /* images of more axes are opened as a whole */

/* "[x1:x2,y1:y2:step,…]" as CFITSIO has it: from 1, both ends belong to it; x1 > x2 is backwards; * is a whole axis, -* the same
 * backwards. */
struct naos_section {
	unsigned axes;
	bool whole[NAOS_CUTOUT_MAX_AXES], backwards[NAOS_CUTOUT_MAX_AXES]; /* backwards: of a whole axis */
	uint64_t from[NAOS_CUTOUT_MAX_AXES], to[NAOS_CUTOUT_MAX_AXES], step[NAOS_CUTOUT_MAX_AXES];
};
int naos_section_parse(const char *text, struct naos_section *ret, struct naos_error *err) naos_must_check;

/* A place in the sky and the size of a box around it, in degrees: width along the axis of right ascension, height along the other, where
 * the image stands; the box has the image's rotation. */
struct naos_sky {
	double ra_deg, dec_deg, width_deg, height_deg;
};
/* "161.265,-59.684" or "10:45:03.6,-59:41:04" (hours first); "0.1", "0.1,0.05", "6'", "30\"". */
int naos_sky_parse(const char *center, const char *size, struct naos_sky *ret, struct naos_error *err) naos_must_check;

/* What is wanted of a frame. */
struct naos_cut_request {
	const char *unit; /* "1", "SCI" or "SCI,2"; NULL: the first unit that holds an image */
	enum { NAOS_CUT_UNIT, NAOS_CUT_SECTION, NAOS_CUT_SKY } kind; /* a whole unit as it is, or a part of its image */
	struct naos_section section;
	struct naos_sky sky;
};
/* The same as text; no two requests have the same. */
void naos_cut_request_text(const struct naos_cut_request *request, char *text, size_t bytes);

/* What was written. */
struct naos_cut {
	size_t unit;
	unsigned axes; /* 0: a whole unit */
	long long first[NAOS_CUTOUT_MAX_AXES]; /* pixel of the image that became pixel 1 of the cut-out, from 1 */
	long long step[NAOS_CUTOUT_MAX_AXES];  /* negative: backwards */
	uint64_t count[NAOS_CUTOUT_MAX_AXES];
	bool clipped;            /* part of what was asked for lies outside the image */
	bool without_distortion; /* distortions by table of the original don't fit the cut-out: their keywords were left out */
};
/* "[101:356,1:256]" */
const char *naos_cut_text(const struct naos_cut *cut, char *text, size_t bytes);

/* Writes what is wanted to an empty file: a header whose axes and coordinates fit, and the pixels.  Values of a tile-compressed image are
 * written uncompressed.  NAOS_E_USAGE: no such unit, no image, or a section that is not inside; NAOS_E_NOTFOUND: the place in the sky is
 * outside the image; NAOS_E_UNSUPPORTED; NAOS_E_INTEGRITY. */
int naos_frame_cut(struct naos_frame *frame, const struct naos_cut_request *request, int fd, const char *name, struct naos_cut *ret,
		   struct naos_error *err) naos_must_check;

/* --- units ------------------------------------------------------------------------------------------------------------------- */

/* The header of a unit; the caller frees *ret. */
int naos_frame_unit_header(struct naos_frame *frame, size_t unit, uint8_t **ret, size_t *ret_bytes, struct naos_error *err) naos_must_check;

#endif

/* Cut-outs: a part of an image as a FITS file of its own, at the price of the segments that it touches.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FITS_CUTOUT_H
#define NAOS_FITS_CUTOUT_H

#include "fits/frame.h"

#define NAOS_CUTOUT_MAX_AXES 16 /* images of more axes are opened as a whole */

/* "[x1:x2,y1:y2,…]" as CFITSIO has it: from 1, both ends belong to it; * is a whole axis. */
struct naos_section {
	unsigned axes;
	bool whole[NAOS_CUTOUT_MAX_AXES];
	uint64_t from[NAOS_CUTOUT_MAX_AXES], to[NAOS_CUTOUT_MAX_AXES];
};
int naos_section_parse(const char *text, struct naos_section *ret, struct naos_error *err) naos_must_check;

/* Writes the section of the image in a unit (from 0) to a new file at `path`, which must not exist: its header with axes and reference
 * pixels
 * moved, and the pixels byte for byte.  NAOS_E_USAGE: no image, or a section that is not inside; NAOS_E_INTEGRITY. */
int naos_frame_cut(struct naos_frame *frame, size_t unit, const struct naos_section *section, const char *path,
		      struct naos_error *err) naos_must_check;

#endif

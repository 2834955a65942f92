/* What the files of a cut-out share.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FITS_CUTOUT_INSIDE_H
#define NAOS_FITS_CUTOUT_INSIDE_H

#include "fits/cutout.h"

struct frame_tiles;

/* An image and where its pixels come from. */
struct frame_image {
	struct naos_frame *frame;
	uint8_t *header; /* as it stands in the file; owned */
	size_t header_bytes;
	int bitpix;
	unsigned axes;
	uint64_t size[NAOS_CUTOUT_MAX_AXES];
	uint64_t data_offset;      /* in the result of the frame */
	struct frame_tiles *tiles; /* NULL: the pixels stand there as they are */
};

/* sky.c: the pixels of a box in the sky. */
int frame_sky_section(const struct frame_image *image, const struct naos_sky *sky, struct naos_cut *cut,
		      struct naos_error *err) naos_must_check;

/* cutheader.c: the header of the cut-out, whole blocks; the caller frees it. */
int frame_cut_header(const struct frame_image *image, struct naos_cut *cut, char **ret, size_t *ret_bytes,
		     struct naos_error *err) naos_must_check;
/* Keywords of distortions by table: they need tables that lie in other units. */
bool frame_is_distortion(const char *card);

/* tiles.c: a tile-compressed image, by CFITSIO over the frame; fills bitpix, axes and size of the image. */
int frame_tiles_open(struct frame_image *image, size_t unit, struct naos_error *err) naos_must_check;
/* `count` pixels along the first axis, as they would stand in a file; `at` from 1. */
int frame_tiles_read(struct frame_tiles *tiles, const long long *at, size_t count, uint8_t *out, struct naos_error *err) naos_must_check;
struct frame_tiles *frame_tiles_close(struct frame_tiles *tiles);

/* unit.c: a unit as a file of its own. */
int frame_copy_unit(struct naos_frame *frame, size_t unit, int fd, const char *name, struct naos_error *err) naos_must_check;

#endif

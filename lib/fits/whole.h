/* Whole files: a target has its name when it is complete, verified and durable.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FITS_WHOLE_H
#define NAOS_FITS_WHOLE_H

#include "fits/cutout.h"

/* Seals an open FITS file to the file `target`, which gets its mode. */
int naos_frame_seal_file(int source_fd, const char *source_name, const char *target, bool replace, const struct naos_frame_new *what,
			 struct naos_error *err) naos_must_check;

struct naos_frame_writing {
	bool replace;
	bool full_only; /* a file that lacks header or data is not written: the error is that of naos_frame_worst */
	unsigned jobs;
	void (*progress)(void *context, uint64_t bytes); /* may be NULL; by any thread */
	void *context;
};
/* Writes what the keys open.  If data turns out to be changed the headers are worth having: they are written with zeros for data, the
 * frame is metadata-only from then on, and the result is NAOS_E_INTEGRITY with *ret_written true. */
int naos_frame_write_file(struct naos_frame *frame, const char *target, const struct naos_frame_writing *how, bool *ret_written,
			  struct naos_error *err) naos_must_check;

/* The section of the image in a unit, as a new file. */
int naos_frame_cut_file(struct naos_frame *frame, size_t unit, const struct naos_section *section, const char *target,
			struct naos_error *err) naos_must_check;

#endif

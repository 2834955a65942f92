/* Whole files: a target has its name when it is complete, verified and durable.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FITS_WHOLE_H
#define NAOS_FITS_WHOLE_H

#include "fits/cutout.h"
#include "seal/publish.h"

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

/* The same in steps, for a caller that publishes the draft: whether it may be written at all; its content.  *ret_suppressed: data was
 * changed and left out, and err says so although the result is 0. */
int naos_frame_may_write(const struct naos_frame *frame, const char *target, const struct naos_frame_writing *how,
			 struct naos_error *err) naos_must_check;
int naos_frame_write_draft(struct naos_frame *frame, struct naos_draft *draft, const char *target, const struct naos_frame_writing *how,
			   bool *ret_suppressed, struct naos_error *err) naos_must_check;

/* A part of it, as a new file. */
int naos_frame_cut_file(struct naos_frame *frame, const struct naos_cut_request *request, const char *target, struct naos_cut *ret,
			struct naos_error *err) naos_must_check;

#endif

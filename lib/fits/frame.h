/* Frames: sealed FITS files of version 2 (docs/formats/frame.md) and of version 1 (docs/formats/frame-1.md).  Header and data have keys
 * of their own; whoever has one of the two gets a valid FITS file with that part; nothing unverified is released.
 *
 * Every message names the frame.  An open frame may be used by any number of threads.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FITS_FRAME_H
#define NAOS_FITS_FRAME_H

#include <naos/frame.h>

#include "fits/container.h"

/* --- sealing ------------------------------------------------------------------------------------------------------------ */

struct naos_frame_new {
	unsigned version; /* of the format: 0 or 2; 1 holds one image, in one thread, and segment_bytes does not matter */
	enum naos_algorithm algorithm;
	struct naos_uuid frame_id, collection_id;
	const struct naos_secret *keys[2]; /* header key, data key: 16 or 32 bytes each, not the same; borrowed */
	const struct naos_blob *blobs[2];  /* the same wrapped, or NULL */
	uint32_t segment_bytes;            /* 0: naos_frame_segment_bytes */
	unsigned jobs;                     /* threads; 0: one */
	void (*progress)(void *context, uint64_t bytes); /* may be NULL; by any thread */
	void *context;
};
/* Writes the frame of an open FITS file to an empty file.  Not flushed; on failure the target is of no value.
 * NAOS_E_FORMAT: no FITS file, with the reason; NAOS_E_CHANGED: it changed meanwhile; NAOS_E_UNSUPPORTED: version 1 can't hold it. */
int naos_frame_seal_fd(int source_fd, const char *source_name, int target_fd, const char *target_name,
		    const struct naos_frame_new *what, struct naos_error *err) naos_must_check;

/* --- opening -------------------------------------------------------------------------------------------------------------- */

/* How a frame gets its keys: called once for each part; *ret NULL: there is none to be had (then *ret_why, if it is filled, says why). */
struct naos_frame_source {
	int (*key)(void *context, const struct naos_frame_manifest *manifest, enum naos_frame_part part,
		const struct naos_blob *blob,
		   struct naos_secret **ret, struct naos_error *ret_why);
	void *context;
};

/* Takes fd, also on failure.  Succeeds with whatever keys there are, also without any (naos_frame_level says what came of it).
 * NAOS_E_FORMAT: it is no frame; NAOS_E_INTEGRITY: its structure was changed. */
int naos_frame_open_fd(int fd, const char *name, const struct naos_frame_source *source, struct naos_frame **ret,
		    struct naos_error *err) naos_must_check;
const struct naos_frame_manifest *naos_frame_manifest(const struct naos_frame *frame);
/* The wrapped key as it stands in the frame; false if there is none. */
bool naos_frame_blob(const struct naos_frame *frame, enum naos_frame_part part, struct naos_blob *ret);

/* --- the FITS file that a level gives ---------------------------------------------------------------------------------- */

/* Writes all of it to a file, by `jobs` threads.  NAOS_E_INTEGRITY: the data was changed; the caller may lower the level to
 * METADATA_ONLY (naos_frame_suppress_data) and write again. */
int naos_frame_copy(struct naos_frame *frame, int target_fd, const char *target_name, unsigned jobs,
		    void (*progress)(void *context, uint64_t bytes), void *context, struct naos_error *err) naos_must_check;
/* Checks every segment that the keys at hand open, and the zeros of the container. */
int naos_frame_verify(struct naos_frame *frame, struct naos_error *err) naos_must_check;
/* The error of a frame that neither key opens: the most serious of what the two keys met (changed, wrong, missing). */
int naos_frame_refuse(const struct naos_frame *frame, struct naos_error *err);
/* The code of the same, for a frame of any level; 0 if both keys are right. */
int naos_frame_worst(const struct naos_frame *frame);
/* The data was found to be changed: from now on the frame is as if its key were tampered with. */
int naos_frame_suppress_data(struct naos_frame *frame, struct naos_error *err) naos_must_check;

static inline void naos_frame_close_pointer(struct naos_frame **frame)
{
	*frame = naos_frame_close(*frame);
}
#define naos_autoframe naos_cleanup(naos_frame_close_pointer)

#endif

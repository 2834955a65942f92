/* Wrapping the two keys of frames anew: under the active version of their collection's MEKs, or under other MEKs that the collection was
 * given.  No data is touched, and a frame has at least one good copy of each key at any moment (docs/formats/frame.md, section 7).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FITS_REWRAP_H
#define NAOS_FITS_REWRAP_H

#include "fits/collection.h"
#include "fits/tree.h"

#define NAOS_REWRAP_MAX_COLLECTIONS 256 /* of one configuration */

/* A collection and what its keys shall be wrapped by. */
struct naos_rewrap_target {
	struct naos_collection collection;
	struct naos_mek active[2];
};

struct naos_frame_rewrap {
	struct naos_provider *provider;
	struct naos_rewrap_target *targets;
	size_t target_count;
	struct naos_tally *tally;
	void (*done)(void *context, const char *path, const char *left_out); /* by any thread; left_out as in naos_frame_done */
	void *context;
};

/* The collection `name`, or (NULL) all of the configuration that the key manager has MEKs for.  The caller frees targets. */
int naos_frame_rewrap_targets(const struct naos_config *config, const char *name, struct naos_frame_rewrap *rewrap,
			      struct naos_error *err) naos_must_check;
/* The files visitor of a naos_frame_tree without a target, whose context is a struct naos_frame_rewrap. */
void naos_frame_rewrap_files(void *context, struct naos_frame_walk *walk, unsigned worker, struct naos_frame_file *files, size_t count);

#endif

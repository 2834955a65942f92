/* A second tree in the shape of a walked one: its directories, the places of its files, links between them, durable names.  What a
 * file of it holds is the business of whoever walks.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_MIRROR_H
#define NAOS_SEAL_MIRROR_H

#include "seal/hardlink.h"
#include "seal/walk.h"

struct naos_manifest_writer;

/* Where an item goes. */
struct naos_place {
	int dir_fd;       /* with base */
	const char *base; /* last component, or a path with AT_FDCWD */
	char shown[1024]; /* printable, for messages */
	bool exists;
	struct stat status; /* if it exists */
};

struct naos_mirror {
	const char *target;
	bool replace;    /* existing files that are not current are replaced */
	bool leaves_out; /* not every file gets a place */
	unsigned shard_index, shard_count; /* 1 of 1: all */
	struct naos_tally *tally;
	int (*linked)(void *context, const struct naos_hardlink *link, struct naos_error *err); /* after each link; may be NULL */
	void *context;
	int root_fd; /* of the target tree; -1 (set by the caller at first) for a single file */
	struct naos_hardlinks links;
};

/* For the visitor of the same names: a directory is made or opened (target_fd), and gets its metadata when all in it is done.  Failures
 * are reported to the tally. */
int naos_mirror_enter(struct naos_mirror *mirror, struct naos_walk_dir *dir);
void naos_mirror_leave(struct naos_mirror *mirror, struct naos_walk_dir *dir);
/* Whether the item is of this shard; a file with several names goes where its first name goes, and the others are put off. */
bool naos_mirror_list(struct naos_mirror *mirror, const struct naos_walk_item *item);
/* item may be NULL for a single file. */
void naos_mirror_place(const struct naos_mirror *mirror, const struct naos_walk_item *item, struct naos_place *ret);
/* mirror_special.c: symbolic links, pipes, devices.  manifest may be NULL. */
int naos_mirror_special(struct naos_mirror *mirror, const struct naos_walk_item *item, const struct naos_place *place,
			struct naos_manifest_writer *manifest, struct naos_error *err) naos_must_check;

/* Makes the links that were put off. */
void naos_mirror_links(struct naos_mirror *mirror);
/* Makes all names durable: once, at the end. */
int naos_mirror_sync(const struct naos_mirror *mirror, struct naos_error *err) naos_must_check;
/* Removes what an interrupted run left beside a single target. */
int naos_mirror_sweep(struct naos_mirror *mirror, struct naos_error *err) naos_must_check;
void naos_mirror_free(struct naos_mirror *mirror);

#endif

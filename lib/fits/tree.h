/* FITS files and frames of a tree, in batches by several threads: for all that `naos fits` does with more than one file.  With a target,
 * what is made gets the same names in a second tree (seal/mirror.h), and many small files share one flush (seal/publish.h).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FITS_TREE_H
#define NAOS_FITS_TREE_H

#include "seal/mirror.h"
#include "seal/publish.h"

/* What a file is, by its first bytes. */
enum naos_fits_kind {
	NAOS_FITS_OTHER = 0,  /* nothing of FITS */
	NAOS_FITS_PLAIN = 1,  /* begins as a FITS file does */
	NAOS_FITS_FRAME = 2,  /* a frame, of either version */
	NAOS_FITS_LEGACY = 3, /* the container of GpuFitsCrypt */
};
enum naos_fits_kind naos_fits_kind(int fd);
/* Whether a name ends as those of FITS files do (.fits, .fit, .fts, .fits.fz, .fits.gz, …, in any case). */
bool naos_fits_named(const char *name);

struct naos_frame_walk;

/* One file of a batch. */
struct naos_frame_file {
	const struct naos_walk_item *item;
	char shown[1024]; /* item->path, printable */
	int fd;           /* open for reading; closed after the batch unless it was taken (-1) */
	struct stat status;
	enum naos_fits_kind kind;
	struct naos_place place; /* with a target */
};

struct naos_frame_tree {
	void *context;
	unsigned jobs, shard_index, shard_count;
	const char *target; /* NULL: files are visited as they are, those with several names once */
	bool replace;       /* targets that exist and are not current */
	/* Regular files, at most NAOS_WALK_BATCH.  Reports to the tally, failures too. */
	void (*files)(void *context, struct naos_frame_walk *walk, unsigned worker, struct naos_frame_file *files, size_t count);
	/* What was handed to naos_frame_tree_publish has its name, or (failure) has not. */
	void (*published)(void *context, void *owner, const struct naos_error *failure);
};

/* operand: a file or a directory, which becomes the target.  Failures of single files are reported to the tally; an error is what made
 * the whole impossible. */
int naos_frame_tree_visit(const struct naos_frame_tree *tree, const char *operand, struct naos_tally *tally,
			  struct naos_error *err) naos_must_check;

/* Whether the operand itself is the file. */
bool naos_frame_tree_single(const struct naos_frame_walk *walk);
/* Threads for the file that is worked on just now: a fair share of the jobs while few files are left. */
unsigned naos_frame_tree_begin(struct naos_frame_walk *walk);
void naos_frame_tree_end(struct naos_frame_walk *walk);
/* Takes the draft of a finished file and the owner. */
void naos_frame_tree_publish(struct naos_frame_walk *walk, unsigned worker, struct naos_frame_file *file, struct naos_draft *draft,
			     void *owner, uint64_t bytes);

#endif

/* Every sealed file of a tree, for what works on files as they are: verify, rewrap, info.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_SEALED_TREE_H
#define NAOS_SEAL_SEALED_TREE_H

#include "seal/fileset.h"
#include "seal/walk.h"

/* One file of a batch. */
struct naos_tree_file {
	const struct naos_walk_item *item;
	char shown[1024];              /* item->path, printable */
	int fd;                        /* open for reading; closed after the visit unless it was taken (-1) */
	struct naos_sealed_info info;  /* what the file tells without a key */
	struct naos_error err;         /* why it is no sealed file, if code is not 0 */
};

struct naos_sealed_tree {
	void *context;
	unsigned jobs, shard_index, shard_count;
	struct naos_filesets *sets; /* keys of a batch are unwrapped ahead; NULL: no keys are needed */
	bool once;                  /* a file with several names is visited by its first only */
	bool clean;                 /* remove what interrupted runs left; else it is noticed */
	bool in_use;                /* a file set that may be mounted: files may vanish meanwhile */
	const char *skip;           /* a directory below the root that is left out; may be NULL */
	/* Regular files in batches.  The visitor reports to the tally, failures too. */
	void (*files)(void *context, struct naos_tree_file *files, size_t count);
	/* A symbolic link; may be NULL. */
	void (*link)(void *context, const struct naos_walk_item *item, const char *shown);
};

void naos_sealed_tree_visit(const struct naos_sealed_tree *tree, const char *operand, struct naos_tally *tally);

/* Opens a file of a batch with its key.  Takes file->fd. */
int naos_tree_file_open(struct naos_tree_file *file, enum naos_sealed_mode mode, const struct naos_fek_source *source,
			struct naos_sealed_file **ret, struct naos_error *err) naos_must_check;

#endif

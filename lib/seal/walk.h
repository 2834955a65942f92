/* Walking a tree by directory descriptors: one thread lists, several work.  Symbolic links are never followed, so that loops are
 * impossible; names are listed in byte order, so that runs are alike.  Memory and descriptors are bounded by the depth of
 * the tree and the largest directory.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_WALK_H
#define NAOS_SEAL_WALK_H

#include <stdatomic.h>
#include <stddef.h>
#include <sys/stat.h>

#include "base/errors.h"
#include "seal/tally.h"

#define NAOS_WALK_MAX_DEPTH 2000
#define NAOS_WALK_BATCH 64 /* items handed to a worker at once, at most */
#define NAOS_MAX_JOBS 256

/* A directory while anything in it is worked on. */
struct naos_walk_dir {
	atomic_uint holders;
	struct naos_walk_dir *parent;
	char *path; /* as shown: the operand and the names below it */
	size_t root_bytes; /* of path: the operand; what lies below the root follows it */
	int fd;
	int target_fd; /* for visitors that make a second tree; -1 at first, closed with the directory */
	atomic_bool touched; /* for the visitor: something in it was replaced */
	bool entered;  /* it was listed; false for the nameless directory of a single operand */
	struct stat status;
	atomic_uint *live; /* directories held in this walk */
};

/* Anything but a directory. */
struct naos_walk_item {
	struct naos_walk_dir *dir; /* held as long as the item */
	char *path;                /* as dir->path */
	const char *name;          /* its last component; for a single operand the whole of it */
	const char *below_root;    /* path without the operand; for a single operand its last component */
	struct stat status;
};

struct naos_walk_visitor {
	void *context;
	unsigned jobs; /* worker threads */
	bool in_use;   /* others change the tree meanwhile: a name that vanishes between listing and looking is no failure */
	/* A directory, before what it holds; by the listing thread.  A failure (reported by the visitor) leaves it out. */
	int (*enter)(void *context, struct naos_walk_dir *dir);
	/* The same directory when everything in it is done; by any thread. */
	void (*leave)(void *context, struct naos_walk_dir *dir);
	/* An item by the listing thread, in order; false: it is not handed to a worker.  May be NULL. */
	bool (*list)(void *context, struct naos_walk_item *item);
	/* Items by worker number `worker`. */
	void (*work)(void *context, unsigned worker, struct naos_walk_item *items, size_t count);
	/* Nothing is waiting just now, or ever again: a worker ends what it put off. */
	void (*settle)(void *context, unsigned worker);
};

/* `operand` may be a symbolic link itself.  What can't be listed is reported to the tally and left out. */
void naos_walk(const char *operand, const struct naos_walk_visitor *visitor, struct naos_tally *tally);

/* Keeps a directory beyond the life of an item. */
struct naos_walk_dir *naos_walk_hold(struct naos_walk_dir *dir);
void naos_walk_release(const struct naos_walk_visitor *visitor, struct naos_walk_dir *dir);

/* Shard `index` (from 1) of `count` that a path below the root belongs to: a stable hash, the same on every machine. */
bool naos_walk_in_shard(const char *below_root, unsigned index, unsigned count);
/* CPUs that this process may use, at most NAOS_MAX_JOBS. */
unsigned naos_walk_default_jobs(void);

#endif

/* Giving finished files their names: temporaries are collected, made durable together and then renamed, so that many small
 * files cost one flush.  Nothing has its final name before it is durable.  One batch belongs to one thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_PUBLISH_H
#define NAOS_SEAL_PUBLISH_H

#include <sys/stat.h>

#include "base/errors.h"

#define NAOS_PUBLISH_FILES 128
#define NAOS_PUBLISH_BYTES ((uint64_t)256 << 20)

/* The file that a draft takes the place of, where it must be this very one: others may rename, replace or write meanwhile. */
struct naos_replaced {
	struct stat status;
	bool same_content; /* size and time of change must be those of status */
	int lease_fd;      /* holds a read lease on it, which a writer's open breaks; -1: none */
};

/* A file under its temporary name.  Whoever writes it holds a lock (flock) on it, so that others can tell it from a leftover. */
struct naos_draft {
	int dir_fd;          /* borrowed; AT_FDCWD with a path */
	const char *name;    /* final name, borrowed until the draft is published or dropped */
	char *temporary;     /* beside it */
	int fd;              /* open for writing; holds the lock */
	bool replace;        /* an existing file is replaced; else it is NAOS_E_EXISTS */
	const struct naos_replaced *replaced; /* the file that must be replaced, or NULL; borrowed as name */
};

/* Creates the temporary, mode 0600, and removes what an earlier run left for the same name. */
int naos_draft_create(int dir_fd, const char *name, bool replace, struct naos_draft *ret, struct naos_error *err) naos_must_check;
/* Removes the temporary.  Does nothing to a draft that was published or dropped. */
void naos_draft_drop(struct naos_draft *draft);
/* One file: makes it durable, renames it, makes the name durable. */
int naos_draft_publish(struct naos_draft *draft, struct naos_error *err) naos_must_check;

struct naos_publish_batch {
	struct naos_draft drafts[NAOS_PUBLISH_FILES];
	void *owners[NAOS_PUBLISH_FILES]; /* handed to done() */
	size_t count;
	uint64_t bytes;
	/* Called for each draft in the end; err NULL: it has its name. */
	void (*done)(void *context, void *owner, const struct naos_error *err);
	void *context;
};
/* Takes the draft over.  Publishes all when the batch is full. */
void naos_publish_add(struct naos_publish_batch *batch, struct naos_draft *draft, void *owner, uint64_t bytes);
void naos_publish_all(struct naos_publish_batch *batch);
/* Puts `temporary` in the place of `name` if that is the file `replaced`, and removes this.  The two are exchanged and then
 * looked at, so that another file that got the name meanwhile is put back and not lost (NAOS_E_CHANGED); where a file system can't
 * exchange, it is looked at before the rename. */
int naos_replace_name(int dir_fd, const char *temporary, const char *name, const struct naos_replaced *replaced,
		      struct naos_error *err) naos_must_check;
/* Makes the names of published files durable: once, at the end of an operation. */
int naos_publish_sync(int target_fd, const char *name, struct naos_error *err) naos_must_check;

/* Removes temporaries in a directory that nobody writes any more; for_name: only those of this final name, NULL: all.
 * found is called for each (may be NULL). */
int naos_leftovers_remove(int dir_fd, const char *for_name, void (*found)(void *context, const char *base), void *context,
			  struct naos_error *err) naos_must_check;

static inline void naos_draft_drop_pointer(struct naos_draft *draft)
{
	naos_draft_drop(draft);
}
#define naos_autodraft naos_cleanup(naos_draft_drop_pointer)

#endif

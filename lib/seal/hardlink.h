/* Files that have several names in one tree: the first name in the order of listing is copied, the others become links to it
 * in the end.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_HARDLINK_H
#define NAOS_SEAL_HARDLINK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "base/errors.h"

struct naos_hardlink {
	const char *first; /* below the root */
	char *below_root;
	char *path; /* as shown */
};

struct naos_hardlinks {
	void *seen; /* by device and inode */
	struct naos_hardlink *list;
	size_t count, room;
};

/* For a file with several names: *ret_first is the first one met in this walk (below_root itself if it is the first), valid as
 * long as links. */
int naos_hardlinks_meet(struct naos_hardlinks *links, const struct stat *status, const char *below_root, const char **ret_first,
			struct naos_error *err) naos_must_check;
/* Notes that below_root becomes a link to first. */
int naos_hardlinks_add(struct naos_hardlinks *links, const char *first, const char *below_root, const char *path,
		       struct naos_error *err) naos_must_check;
/* Makes one link in the tree at root_fd.  *ret_current: it is there already.  Times and modes of its directory stay. */
int naos_hardlink_make(int root_fd, const struct naos_hardlink *link, bool replace, bool *ret_current,
		       struct naos_error *err) naos_must_check;
/* The directory of a path below root, without following links; *ret_base (in below_root) is the last component.  -1 with errno. */
int naos_hardlink_dir(int root_fd, const char *below_root, const char **ret_base) naos_must_check;
/* Another name for from, a temporary one beside `to`; the caller frees it.  0 or -1 with errno. */
int naos_hardlink_beside(int from_dir, const char *from, int to_dir, const char *to, char **ret_temporary) naos_must_check;
void naos_hardlinks_free(struct naos_hardlinks *links);

#endif

/* What is mounted, from the kernel's list.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_BASE_MOUNTS_H
#define NAOS_BASE_MOUNTS_H

#include <stddef.h>

#include "base/errors.h"

#define NAOS_MOUNT_TYPE "fuse.naos" /* of a mounted file set, whose name is the source */

/* Strings live as long as the list. */
struct naos_mount {
	const char *source, *point, *type, *options;
	unsigned major, minor; /* of the file system's device; minor is the number of a FUSE connection */
};

struct naos_mounts {
	struct naos_mount *items; /* in the order of mounting; of two at one point the later one is seen */
	size_t count;
	char *text;
};

int naos_mounts_read(struct naos_mounts *ret, struct naos_error *err) naos_must_check;
/* The same from a text in the form of /proc/self/mountinfo; takes `text`. */
int naos_mounts_parse(char *text, struct naos_mounts *ret, struct naos_error *err) naos_must_check;
void naos_mounts_free(struct naos_mounts *mounts);
#define naos_automounts naos_cleanup(naos_mounts_free)

bool naos_mount_is_fileset(const struct naos_mount *mount);

#endif

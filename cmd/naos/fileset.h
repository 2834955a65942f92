/* What the commands on file sets share: a file set as the configuration has it, and where it is mounted.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_CMD_FILESET_H
#define NAOS_CMD_FILESET_H

#include "base/mounts.h"
#include "command.h"

/* The values of [fileset NAME], with their defaults; strings live as long as the configuration. */
struct naos_fileset_section {
	const char *name, *mek, *algorithm, *id, *path, *mountpoint, *mode, *options;
	uint64_t seal_delay_s;
	const char *origin; /* "file:line" of its first value */
};

/* NAOS_E_NOTFOUND, with the names there are. */
int naos_fileset_section_find(const struct naos_config *config, const char *name, struct naos_fileset_section *ret,
			      struct naos_error *err) naos_must_check;
/* The index-th; false behind the last one. */
bool naos_fileset_section_at(const struct naos_config *config, unsigned index, struct naos_fileset_section *ret);

/* The next mount of this file set after `after` (NULL: the first), or NULL. */
const struct naos_mount *naos_fileset_mount_next(const struct naos_mounts *mounts, const char *name, const struct naos_mount *after);
/* Whether the naos-fs behind a mount is gone ("Transport endpoint is not connected"). */
bool naos_fileset_mount_is_dead(const struct naos_mount *mount);

#endif

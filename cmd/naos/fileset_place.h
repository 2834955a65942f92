/* Where a file set may lie: not in another one, not in itself, not among files that are not sealed.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_CMD_FILESET_PLACE_H
#define NAOS_CMD_FILESET_PLACE_H

#include <limits.h>
#include <sys/types.h>

#include "base/config.h"
#include "base/errors.h"

/* The path without links, dots and double slashes; its last component need not exist.  `option` is for messages. */
int naos_place_canonical(const char *option, const char *path, char ret[static PATH_MAX], struct naos_error *err) naos_must_check;
/* `path` is `folder` or lies in it; both are canonical. */
bool naos_place_is_inside(const char *path, const char *folder);
/* Neither lies in a directory or mount of another file set, nor the other way round, nor one in the other.  mountpoint may be "". */
int naos_place_check_apart(const struct naos_config *config, const char *path, const char *mountpoint,
			   struct naos_error *err) naos_must_check;
/* Makes the directory, durable, if it is not there. */
int naos_place_make(const char *option, const char *path, mode_t permissions, struct naos_error *err) naos_must_check;
/* NAOS_E_EXISTS says what to do with what is in it. */
int naos_place_check_empty(const char *path, struct naos_error *err) naos_must_check;
/* Logs a warning if the file system keeps no user attributes. */
void naos_place_warn(const char *path);

#endif

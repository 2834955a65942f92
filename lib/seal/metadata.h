/* What a file is besides its content: owner, mode, times, extended attributes (and access lists, which are such).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_METADATA_H
#define NAOS_SEAL_METADATA_H

#include <stdbool.h>
#include <sys/stat.h>

#include "base/errors.h"

/* What could not be kept without that being a failure. */
struct naos_metadata_loss {
	bool attributes; /* the file system takes no extended attributes, or not these */
	bool setid;      /* a set-id bit was dropped with its owner or group */
};

/* Gives the open file or directory `to` the metadata of `from`, whose status is `status`.  The wrapped key in user.naos.key is
 * never copied.  mode_or is added to the mode (directories that are still being filled).  from -1: none to copy attributes
 * from.  Times come last.  `name` is for messages. */
int naos_metadata_copy(int from, const struct stat *status, mode_t mode_or, int to, const char *name,
		       struct naos_metadata_loss *ret_loss, struct naos_error *err) naos_must_check;
/* The same for what can't be opened (symbolic links, special files): owner, mode where it has one, times. */
int naos_metadata_copy_at(const struct stat *status, int dir_fd, const char *base, const char *name,
			  struct naos_error *err) naos_must_check;

/* Whether `copy` has the time of change of `original`, as far as its file system keeps it. */
bool naos_metadata_same_time(const struct stat *original, const struct stat *copy);

/* Work in place (rewrapping) changes a file's times although its content stays.  They are noted in the attribute user.naos.times
 * first, so that a run that was killed can't lose them, and put back by the run or the next one. */
void naos_metadata_note_times(int fd, const struct stat *status);
void naos_metadata_put_times_back(int fd); /* does nothing if none are noted */

#endif

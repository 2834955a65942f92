/* Unmounting for who is not root: only a program with more rights may, fusermount3, which this process can't start any more once it is
 * confined.  So a process that knows nothing waits from the beginning to start it.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FS_UNMOUNT_H
#define NAOS_FS_UNMOUNT_H

#include <sys/types.h>

#include "base/errors.h"

struct unmounter {
	pid_t pid; /* 0: none is needed */
	int fd;
	const char *mountpoint;
};

/* Before there are threads, keys or a mount.  The mountpoint is borrowed. */
int unmounter_start(struct unmounter *ret, const char *mountpoint, struct naos_error *err) naos_must_check;
/* Unmounts, if this process can't itself. */
void unmounter_use(struct unmounter *unmounter);
/* Lets it end, unused. */
void unmounter_end(struct unmounter *unmounter);

#endif

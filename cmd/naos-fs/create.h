/* Making a regular file: a sealed file with a key of its own, before its name is to be seen.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FS_CREATE_H
#define NAOS_FS_CREATE_H

#include "content.h"

struct creation {
	struct inode *inode;     /* one reference, for the kernel */
	struct content *content; /* one handle */
	struct stat status;
};

/* Makes directory/name for the user of the request and opens it.  NAOS_E_EXISTS with O_EXCL; without, an existing file is opened.
 * name NULL: a nameless file (O_TMPFILE). */
int create_file(fuse_req_t req, struct inode *directory, const char *name, mode_t mode, int flags, struct creation *ret,
		struct naos_error *err) naos_must_check;

#endif

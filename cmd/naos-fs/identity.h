/* Acting on the file system below as the user who asks: what is made belongs to them and counts against their quota.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FS_IDENTITY_H
#define NAOS_FS_IDENTITY_H

#include "fs.h"

/* Once per process: keeps the capabilities of a thread whatever user it acts as (the kernel has checked the user's rights
 * against the mount), and gives up the one that would lift quotas.  *ret_privileged: it may act as other users. */
void identity_prepare(bool *ret_privileged);
/* Once per thread: a umask of its own. */
void identity_start_thread(void);

struct identity {
	bool entered, groups;
	mode_t umask; /* 0: none was set */
};
/* From now on this thread acts as the user of the request, with their umask.  `groups`: with their supplementary groups too (a
 * file server below checks them). */
struct identity identity_enter(fuse_req_t req, bool groups);
void identity_leave(struct identity *identity);
/* Whether the user of the request is in a group. */
bool identity_in_group(fuse_req_t req, gid_t group);
#define naos_autoidentity naos_cleanup(identity_leave) struct identity

#endif

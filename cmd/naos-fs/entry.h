/* Answers that hand a file to the kernel, and what changes of data do to attributes.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FS_ENTRY_H
#define NAOS_FS_ENTRY_H

#include "inode.h"

/* The reference that inode_lookup or inode_get added becomes the kernel's. */
void entry_fill(struct naos_fs *fs, struct inode *inode, const struct stat *status, struct fuse_entry_param *ret);
void entry_reply(fuse_req_t req, struct inode *inode, const struct stat *status);
/* Looks the name up and answers with it. */
void entry_reply_name(fuse_req_t req, struct inode *parent, const char *name);

/* Takes set-user-id and set-group-id away, as a write by an ordinary user does.  0 or errno. */
int attr_kill_privileges(fuse_req_t req, struct inode *inode);

#endif

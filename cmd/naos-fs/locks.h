/* Locks of users in mode = shared: fcntl and flock locks go to the file below, so that they exclude between nodes.
 *
 * An owner's locks are open-file-description locks on a descriptor of its own, in a range that neither data nor the locks of the
 * format reach: byte n of a user is byte 2^62 + 2^61 + n below, all from 2^61 on share the last one, and flock is byte 2^62 + 1.
 * A lock that has to wait does so in a thread of its own, which a signal to the user's process ends.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FS_LOCKS_H
#define NAOS_FS_LOCKS_H

#include "inode.h"

#define NAOS_FS_LOCK_WAITERS_MAX 1024u /* locks that wait at once; more get ENOLCK */

int lock_table_create(struct naos_fs *fs, struct naos_error *err) naos_must_check;
/* Ends all waiting, now and from now on; their users get ENOLCK. */
void lock_table_stop(struct naos_fs *fs);
void lock_table_free(struct naos_fs *fs);

/* A process closes a file: its fcntl locks of it go, whichever descriptor they were set by. */
void locks_drop_owner(struct naos_fs *fs, struct inode *inode, uint64_t owner);
/* The last descriptor of an open file is closed: locks that belong to it (flock, F_OFD_SETLK) go. */
void locks_drop_handle(struct naos_fs *fs, struct inode *inode, uint64_t handle);

/* The inode goes; nobody uses its locks any more. */
void locks_free(struct inode *inode);

#endif

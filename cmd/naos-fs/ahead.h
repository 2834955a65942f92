/* Unwrapping keys ahead: whoever opens one file of a directory after the other pays one question to the key manager for many.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FS_AHEAD_H
#define NAOS_FS_AHEAD_H

#include "inode.h"

/* The key of a file that is being opened is not at hand: asks for it together with those of the next files of its directory.
 * How many depends on how useful it was the last time. */
void ahead_unwrap(struct naos_fs *fs, struct inode *inode, const struct naos_sealed_info *info);
/* The key was at hand. */
void ahead_count_hit(struct inode *inode);

#endif

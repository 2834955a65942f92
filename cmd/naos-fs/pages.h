/* Pages of files that the kernel keeps.  mode = local only: there it keeps them as long as it likes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FS_PAGES_H
#define NAOS_FS_PAGES_H

#include "fs.h"

int pages_create(struct naos_fs *fs, struct naos_error *err) naos_must_check;
/* The kernel drops what it keeps of these bytes.  Returns when it has done so, or after two seconds: all
 * threads that could answer the reads it waits for may be waiting here. */
void pages_drop(struct naos_fs *fs, fuse_ino_t ino, uint64_t offset, uint64_t bytes);
/* When nobody calls pages_drop any more. */
void pages_free(struct naos_fs *fs);

#endif

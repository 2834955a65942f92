/* File handles: a file that the kernel forgot is found again by its node number, so that open_by_handle_at(2) and an NFS export
 * work.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FS_REOPEN_H
#define NAOS_FS_REOPEN_H

#include "fs.h"

#define NAOS_FS_HANDLE_BYTES 24u /* a longer handle is not kept */

/* As name_to_handle_at(2) gives it; bytes 0: there is none. */
struct file_handle_kept {
	int type;
	unsigned bytes;
	uint8_t data[NAOS_FS_HANDLE_BYTES];
};

struct file_handle_kept reopen_handle(int path_fd);
/* The same file gives the same value on every mount, another file in its place another: what the kernel calls its generation. */
uint64_t reopen_generation(const struct file_handle_kept *handle);

int reopen_create(struct naos_fs *fs, struct naos_error *err) naos_must_check;
void reopen_free(struct naos_fs *fs);
/* The kernel forgot this node; the last 16,384 or so are remembered. */
void reopen_remember(struct naos_fs *fs, fuse_ino_t node, const struct file_handle_kept *handle);
/* An O_PATH descriptor of a node that the kernel forgot; -1 and errno (ESTALE) if it can't be found. */
int reopen_node(struct naos_fs *fs, fuse_ino_t node);

#endif

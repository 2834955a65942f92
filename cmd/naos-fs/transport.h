/* How requests of the kernel reach the operations: threads that read /dev/fuse, each by a clone of the descriptor, so that an answer
 * goes back the way its request came.  libfuse decodes and encodes; what its version lacks is added on the way (transport.c).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FS_TRANSPORT_H
#define NAOS_FS_TRANSPORT_H

#include "fs.h"

#define NAOS_FS_REQUEST_BYTES ((size_t)1 << 20) /* data of one read or write at most */

/* Session and mount of fs->session; the first request (INIT) is answered before it returns. */
int transport_open(struct naos_fs *fs, struct naos_error *err) naos_must_check;
/* Starts the threads.  `ended` is called by the last of them, after the file system was unmounted. */
int transport_start(struct naos_fs *fs, void (*ended)(void *context), void *context, struct naos_error *err) naos_must_check;
/* Makes the threads end although the file system is in use, and waits for them. */
void transport_stop(struct naos_fs *fs);
void transport_free(struct naos_fs *fs);

/* --- answers of other threads ------------------------------------------------------------------------------------------- */

/* An answer goes back through the descriptor by which its request came, else the kernel does not know it. */
struct channel;
/* That of the request this thread works on; it stays until it is released, also when the thread ends. */
struct channel *transport_hold_channel(void);
/* This thread, which reads no requests, answers through it from now on. */
void transport_use_channel(struct channel *channel);
void transport_release_channel(struct channel *channel);

/* --- the request that this thread works on ------------------------------------------------------------------------------ */

/* The kernel asks that set-user-id and set-group-id are taken away with this write, truncation or opening. */
bool transport_kills_privileges(void);
/* It is an open with O_TMPFILE, which libfuse knows as create. */
bool transport_is_tmpfile(void);
/* This request may wait long from now on, for the key manager, another program or the answer to another request: somebody else takes
 * the next one. */
void transport_may_wait(struct naos_fs *fs);
/* Memory of this thread for an answer of up to *ret_bytes. */
uint8_t *transport_buffer(size_t *ret_bytes);

#endif

/* Files: full reads and writes, names relative to a directory descriptor, replacement that survives a power cut.
 * Every descriptor made here is O_CLOEXEC.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_BASE_IO_H
#define NAOS_BASE_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/errors.h"

/* Until `bytes` are read or the file ends; the count is in *ret_bytes.  EINTR is retried. `name` is for messages. */
int naos_io_read(int fd, void *buffer, size_t bytes, size_t *ret_bytes, const char *name, struct naos_error *err) naos_must_check;
int naos_io_pread(int fd, void *buffer, size_t bytes, uint64_t offset, size_t *ret_bytes, const char *name,
		  struct naos_error *err) naos_must_check;
/* All of it or an error. */
int naos_io_write(int fd, const void *buffer, size_t bytes, const char *name, struct naos_error *err) naos_must_check;
int naos_io_pwrite(int fd, const void *buffer, size_t bytes, uint64_t offset, const char *name, struct naos_error *err) naos_must_check;

/* The whole of a small file (at most max_bytes) as a NUL-terminated buffer; the caller frees it. */
int naos_io_read_file(int dir_fd, const char *path, size_t max_bytes, uint8_t **ret_data, size_t *ret_bytes,
		      struct naos_error *err) naos_must_check;

/* Replaces path by data atomically: temporary in the same directory, fsync, rename, fsync of the directory.
 * After success the new content survives a power cut; after failure or a crash the old file is whole and the temporary
 * (".NAME.naos-XXXXXXXX", see naos_io_is_temporary) is gone or harmless. */
int naos_io_replace_file(int dir_fd, const char *path, const void *data, size_t bytes, mode_t mode,
			 struct naos_error *err) naos_must_check;

/* A new file for writing beside the final `path`, to be published or dropped: the one temporary-file scheme.
 * *ret_name (for the same directory as path; the caller frees it) matches naos_io_is_temporary. */
int naos_io_temporary(int dir_fd, const char *path, mode_t mode, int *ret_fd, char **ret_name, struct naos_error *err) naos_must_check;
bool naos_io_is_temporary(const char *base_name);
/* Renames the temporary to path.  With replace false an existing path is NAOS_E_EXISTS. */
int naos_io_rename(int dir_fd, const char *temporary, const char *path, bool replace, struct naos_error *err) naos_must_check;
/* The same, and makes it durable. */
int naos_io_publish(int dir_fd, const char *temporary, const char *path, bool replace, struct naos_error *err) naos_must_check;

/* fsync of the directory that holds path. */
int naos_io_sync_parent(int dir_fd, const char *path, struct naos_error *err) naos_must_check;
/* Makes an empty file of this mode, durable, unless there is one; a symbolic link is refused.  It never opens one that is there: locks of
 * fcntl() belong to the process, so closing a second descriptor of a database would take SQLite's locks away. */
int naos_io_make_absent(const char *path, mode_t mode, struct naos_error *err) naos_must_check;

/* The same for a whole sentence: a backslash stays. */
const char *naos_io_printable_text(const char *text, char *buffer, size_t bytes);
/* Writes a name for a person: control bytes, backslash and invalid UTF-8 as \xHH.  Always NUL-terminated; returns buffer. */
const char *naos_io_printable(const char *name, char *buffer, size_t bytes);

#endif

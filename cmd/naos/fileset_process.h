/* Processes around a mounted file set: its naos-fs, and who uses it.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_CMD_FILESET_PROCESS_H
#define NAOS_CMD_FILESET_PROCESS_H

#include <stddef.h>
#include <sys/types.h>

#include "base/errors.h"

/* A descriptor of the naos-fs that shows this file set there (pidfd: readable when the process is gone), or -1 if none is seen.
 * configured: the mountpoint of its section, which it takes where it was given none. */
int naos_process_find_daemon(const char *fileset, const char *point, const char *configured);

/* "bash (1234), vim (1240), …": processes that have a file or directory below `point` open or as their working directory, as far as this
 * user may see them; "" if none is seen. */
void naos_process_users(const char *point, char *ret, size_t bytes);

/* Runs a program with the standard streams of this one, found beside this program or in PATH, and waits for it.  arguments[0] is its name.
 * *ret_status is its exit status, 128 + signal if it was killed. */
int naos_process_run(char *const arguments[], int *ret_status, struct naos_error *err) naos_must_check;

#endif

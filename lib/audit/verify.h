/* What the readers of a log share.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_AUDIT_VERIFY_H
#define NAOS_AUDIT_VERIFY_H

#include "audit/checkpoint.h"
#include "audit/tile.h"

/* NAOS_E_NOTFOUND if the directory holds no log, NAOS_E_INTEGRITY if it lost its checkpoint. */
int naos_audit_directory_open(const char *dir, int *ret_fd, struct naos_error *err) naos_must_check;
/* key_path NULL: the log's own `key.pub`. */
int naos_audit_key_read(int dir_fd, const char *key_path, struct naos_verifier *ret, struct naos_error *err) naos_must_check;

#endif

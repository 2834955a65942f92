/* How the parts fill the error object (the public half is naos/error.h).  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_BASE_ERRORS_H
#define NAOS_BASE_ERRORS_H

#include <naos/error.h>
#include "base/compiler.h"

/* Sets code and message (if err is not NULL) and returns code, so that a caller writes
 * `return naos_error_set(err, NAOS_E_..., "...")`.  Never pass a secret.  What a terminal would obey or can't show (control
 * bytes, invalid UTF-8 in a file's name) is written as \xHH. */
int naos_error_set(struct naos_error *err, int code, const char *format, ...) naos_printf(3, 4);

/* The same for a failed system call: the code follows from errno_value (ENOSPC and EDQUOT give NAOS_E_NOSPACE,
 * ENOENT NAOS_E_NOTFOUND, …), and ": strerror" is appended. */
int naos_error_set_errno(struct naos_error *err, int errno_value, const char *format, ...) naos_printf(3, 4);

/* Puts "prefix: " before the message of an error already set; keeps the code and returns it. */
int naos_error_prefix(struct naos_error *err, int code, const char *format, ...) naos_printf(3, 4);

/* The errno that a file system answers for a code (EIO for integrity, ENOKEY, EKEYREVOKED, ENOSPC, …); positive. */
int naos_error_to_errno(int code);

/* Rows of the table, in order; returns NULL behind the last one. */
const struct naos_error_info *naos_error_row(unsigned index);

#endif

/* Log of programs: one line a message to standard error, or to the journal's prefix form when run by systemd.
 * Libraries never log.  Never pass a secret.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_BASE_LOG_H
#define NAOS_BASE_LOG_H

#include <stdbool.h>

#include "base/errors.h"

enum naos_log_level { NAOS_LOG_ERROR = 3, NAOS_LOG_WARNING = 4, NAOS_LOG_INFO = 6, NAOS_LOG_DEBUG = 7 }; /* as syslog(3) */

/* Program name for the lines and the least important level that is written (default: warning). */
void naos_log_start(const char *program, enum naos_log_level level);
enum naos_log_level naos_log_level(void);

/* From now on each line is a JSON object {"level", "message"} instead (not in the journal's form): what --json asks for. */
void naos_log_json(bool json);

/* From now on lines go to syslog(3) instead: a daemon that has left its terminal. */
void naos_log_syslog(void);

/* One line; a newline in the text becomes a space, another control byte a question mark. */
void naos_log(enum naos_log_level level, const char *format, ...) naos_printf(2, 3);

/* "program: message" and, on a line of its own, the remedy of the code's table row.  As JSON one object, which has the
 * member "error" too: {"name", "code", "category", "exit_status", "retryable", "remedy"}. */
void naos_log_error(const struct naos_error *err);

#endif

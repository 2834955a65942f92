/* One record of the log: a JSON object on one line, docs/formats/audit-log.md.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_AUDIT_RECORD_H
#define NAOS_AUDIT_RECORD_H

#include <jansson.h>

#include "audit/audit.h"

#define NAOS_RECORD_FORMAT 1
#define NAOS_RECORD_TIME_BYTES 28 /* 2026-11-30T17:38:39.123456Z and NUL */
#define NAOS_RECORD_HEAD_BYTES 96 /* format, time and sequence, at their longest */

/* The fields of an event as JSON members without the braces: what is known before the record has its place.
 * NAOS_E_USAGE without an action, NAOS_E_LIMIT if the record would be too long.  The caller frees it. */
int naos_record_body(const struct naos_audit_event *event, char **ret, size_t *ret_bytes, struct naos_error *err) naos_must_check;

const char *naos_record_time(int64_t unix_us, char buffer[static NAOS_RECORD_TIME_BYTES]);
/* The whole line without a newline into `line`, which has room for NAOS_AUDIT_MAX_RECORD_BYTES; returns its length. */
size_t naos_record_format(uint64_t sequence, const char *time, const char *body, size_t body_bytes, char *line);

/* The sequence that stands at the head of a line; false if the head is not as naos_record_format writes it. */
bool naos_record_sequence(const char *line, size_t bytes, uint64_t *ret);
/* The line as a JSON object, checked: all members known and of their type.  `what` names it.  NAOS_E_FORMAT. */
int naos_record_parse(const char *line, size_t bytes, const char *what, json_t **ret, struct naos_error *err) naos_must_check;

#endif

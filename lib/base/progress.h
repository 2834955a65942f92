/* Progress bar on a terminal for anything that takes over a second; silent when piped or with NO progress wanted.
 * Thread-safe: workers add, one of them draws at most ten times a second.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_BASE_PROGRESS_H
#define NAOS_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/errors.h"

struct naos_progress;

/* total_bytes 0 means unknown.  `label` is borrowed for the life of the bar.  enabled false gives a bar that never draws. */
int naos_progress_create(const char *label, uint64_t total_bytes, bool enabled, struct naos_progress **ret,
			 struct naos_error *err) naos_must_check;
void naos_progress_add(struct naos_progress *progress, uint64_t bytes, uint64_t files);
/* Clears the line and frees; takes NULL. */
struct naos_progress *naos_progress_free(struct naos_progress *progress);

/* "1.3 GiB" into buffer, which is returned. */
const char *naos_format_bytes(uint64_t bytes, char buffer[static 16]);

#endif

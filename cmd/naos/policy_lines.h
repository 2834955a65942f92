/* Files of JSON lines beside a policy: cases, subjects, objects; and what the commands of a policy share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_CMD_POLICY_LINES_H
#define NAOS_CMD_POLICY_LINES_H

#include "command.h"
#include "policy/policy.h"

/* Calls `each` for every line that is neither empty nor a comment (#), until it returns a code.  `where` is "FILE:LINE".  "-" is standard
 * input.  NAOS_E_FORMAT for what is no JSON object. */
int policy_lines_read(const char *path, int (*each)(void *context, json_t *object, const char *where, struct naos_error *err),
		      void *context,
		      struct naos_error *err) naos_must_check;

/* --now, or the clock. */
int policy_option_now(const struct naos_invocation *invocation, int64_t *ret_us, struct naos_error *err) naos_must_check;

#endif

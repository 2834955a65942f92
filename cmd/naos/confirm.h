/* Asking before what can't be undone.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_CMD_CONFIRM_H
#define NAOS_CMD_CONFIRM_H

#include "base/errors.h"

/* Writes the question to the terminal and reads a line; 0 only if it is `answer`.  NAOS_E_USAGE where nobody can be asked
 * (use --yes), NAOS_E_INTERRUPTED for any other answer. */
int naos_confirm(const char *question, const char *answer, struct naos_error *err) naos_must_check;

#endif

/* What must be right before the key manager serves anyone.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_CHECK_H
#define NAOS_KEYD_CHECK_H

#include "base/config.h"

/* Looks at the configuration and the machine; prints a line for each finding: "problem" (with keyd.production = yes the
 * key manager refuses to start) or "warning".  *ret_problems counts the former. */
void keyd_check(const struct naos_config *config, unsigned *ret_problems);

#endif

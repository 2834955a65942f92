/* The engine as the configuration wants it: [engine] and [gpu].  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_ENGINE_CONFIGURE_H
#define NAOS_ENGINE_CONFIGURE_H

#include "base/config.h"
#include "engine/engine.h"

/* naos_engine_select and the policy of the GPU, as they are configured. */
int naos_engine_configure(const struct naos_config *config, struct naos_error *err) naos_must_check;
/* The policy only (naos_gpu_policy_set). */
void naos_gpu_policy_read(const struct naos_config *config);

#endif

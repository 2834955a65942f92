/* The engine as the configuration wants it.  SPDX-License-Identifier: Apache-2.0 */
#include "engine/configure.h"

#include <string.h>

#include "engine/gpu.h"

void naos_gpu_policy_read(const struct naos_config *config)
{
	const char *use = naos_config_string(config, "gpu", NULL, "use");
	const struct naos_gpu_policy policy = {
		.use = strcmp(use, "never") == 0 ? NAOS_GPU_NEVER : strcmp(use, "always") == 0 ? NAOS_GPU_ALWAYS : NAOS_GPU_AUTO,
		.demand_confidential = strcmp(naos_config_string(config, "gpu", NULL, "confidential"), "require") == 0,
	};
	naos_gpu_policy_set(&policy, false);
}

int naos_engine_configure(const struct naos_config *config, struct naos_error *err)
{
	struct naos_gpu_policy policy;
	const char *backend = naos_config_string(config, "engine", NULL, "backend");
	const bool fips = naos_config_bool(config, "engine", NULL, "fips");
	naos_gpu_policy_read(config);
	naos_gpu_policy_get(&policy);
	if (policy.use == NAOS_GPU_ALWAYS && !fips && strcmp(backend, "auto") == 0)
		backend = "cuda";
	return naos_engine_select(backend, fips, err);
}

/* Keys for large work: of the GPU where the cost model says so.  SPDX-License-Identifier: Apache-2.0 */
#include "engine/backend.h"
#include "engine/cost.h"

/* Below this the GPU never wins from host to host: its start alone takes longer. */
#define LEAST_FOR_GPU ((uint64_t)64 << 20)

/* The GPU is not started to find out: its rates are known when it runs already, or a former process left them. */
static bool gpu_is_faster(enum naos_algorithm algorithm, uint64_t bytes, bool sealing)
{
	struct naos_cost_rates rates;
	struct naos_cost cost;
	struct naos_gpu_policy policy;
	if (bytes < LEAST_FOR_GPU || !naos_engine_automatic())
		return false;
	naos_gpu_policy_get(&policy);
	const struct naos_cost_work work = { .algorithm = algorithm, .sealing = sealing, .bytes = bytes, .from = NAOS_COST_HOST,
					     .to = NAOS_COST_HOST, .gpu_started = naos_gpu_started() };
	if (!naos_cost_gpu_known() || naos_cost_rates(false, &rates, NULL) != 0)
		return false;
	naos_cost_predict(&rates, &work, policy.use, &cost);
	return cost.gpu;
}

int naos_gcm_key_create_for(enum naos_algorithm algorithm, const struct naos_secret *key, uint64_t bytes, bool sealing,
			    struct naos_gcm_key **ret, struct naos_error *err)
{
	const struct naos_engine_backend *backend;
	int rc = naos_engine_current(&backend, err);
	if (rc != 0)
		return rc;
	if (gpu_is_faster(algorithm, bytes, sealing) && naos_engine_cuda.start(&naos_engine_cuda, NULL) == 0)
		backend = &naos_engine_cuda;
	return naos_gcm_key_create_on(backend, algorithm, key, ret, err);
}

/* The cost model: from rates and a piece of work to a choice.  Nothing is measured here.  SPDX-License-Identifier: Apache-2.0 */
#include "engine/cost.h"

#include <math.h>

#define CACHED_BYTES ((uint64_t)32 << 20) /* work up to here stays in the caches */
#define READERS 8.0 /* threads that fill pinned memory, as gpu_open.c has at most */

static double least(double a, double b)
{
	return a < b ? a : b;
}

/* Cores add up until memory is what limits them. */
static double cpu_rate(const struct naos_cost_rates *rates, const struct naos_cost_work *work, double cores)
{
	const unsigned a = work->algorithm == NAOS_AES_256_GCM;
	const double rate = least(cores * rates->cpu_bytes_s[a], rates->cpu_all_bytes_s[a]);
	return work->bytes > CACHED_BYTES ? least(rate, rates->memory_bytes_s) : rate;
}

static double by_cpu(const struct naos_cost_rates *rates, const struct naos_cost_work *work, double cores)
{
	const double bytes = (double)work->bytes, compute = bytes / cpu_rate(rates, work, cores);
	const double piece = least(bytes, (double)NAOS_GPU_BUFFER_BYTES);
	double seconds = compute;
	if (work->from == NAOS_COST_HOST && work->to == NAOS_COST_HOST)
		return seconds;
	if (!rates->gpu)
		return INFINITY;
	if (work->from == NAOS_COST_DEVICE) /* copies and work overlap; the first piece must come before anything is done */
		seconds = fmax(seconds, bytes / rates->down_bytes_s) + piece / rates->down_bytes_s;
	if (work->to == NAOS_COST_DEVICE)
		seconds = fmax(seconds, bytes / rates->up_bytes_s) + piece / rates->up_bytes_s;
	return seconds;
}

static double by_gpu(const struct naos_cost_rates *rates, const struct naos_cost_work *work, double cores)
{
	if (!rates->gpu)
		return INFINITY;
	const double bytes = (double)work->bytes, piece = least(bytes, (double)NAOS_GPU_BUFFER_BYTES);
	const double kernel = rates->kernel_bytes_s[work->sealing][work->algorithm == NAOS_AES_256_GCM];
	const bool up = work->from == NAOS_COST_HOST, down = work->to == NAOS_COST_HOST;
	double rate = kernel, seconds = rates->fixed_s + (work->gpu_started ? 0 : rates->start_s);
	if (up || down)
		rate = least(rate, up && down ? rates->both_bytes_s : up ? rates->up_bytes_s : rates->down_bytes_s);
	/* each byte passes a processor on its way to pinned memory, and on its way from it */
	if (up || down)
		rate = least(rate, least(cores, READERS) * rates->stage_bytes_s / (up && down ? 2 : 1));
	if (up)
		seconds += piece / rates->up_bytes_s;
	if (down)
		seconds += piece / rates->down_bytes_s;
	if (up && down)
		seconds += piece / kernel;
	return seconds + bytes / rate;
}

void naos_cost_predict(const struct naos_cost_rates *rates, const struct naos_cost_work *work, enum naos_gpu_use use,
		       struct naos_cost *ret)
{
	/* what is sealed together is one core's: a small piece of work does not profit from many */
	const double parts = fmax(1, ceil((double)work->bytes / (double)NAOS_GPU_BUFFER_BYTES));
	const double cores = least(parts, work->cores && work->cores < rates->cores ? work->cores : rates->cores);
	const bool on_device = work->from == NAOS_COST_DEVICE || work->to == NAOS_COST_DEVICE;
	struct naos_cost cost = { .cpu_s = by_cpu(rates, work, cores), .gpu_s = by_gpu(rates, work, cores) };
	if (use == NAOS_GPU_NEVER)
		cost.why = "the GPU is forbidden";
	else if (!rates->gpu)
		cost.why = "no GPU is known";
	else if (use == NAOS_GPU_ALWAYS)
		cost.gpu = true, cost.why = "the GPU is demanded";
	else if (on_device)
		cost.gpu = true, cost.why = "the plaintext stays out of the host";
	else if (cost.gpu_s < cost.cpu_s)
		cost.gpu = true, cost.why = "faster";
	else
		cost.why = "faster";
	*ret = cost;
}

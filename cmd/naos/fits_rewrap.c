/* naos fits rewrap.  SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "fits.h"
#include "fits/rewrap.h"

static const struct naos_option options[] = {
	{ "collection", 'c', "NAME", "refuse frames of another collection than this one" },
	NAOS_OPTION_KEYS,
	NAOS_OPTION_JOBS,
	NAOS_OPTION_SHARD,
	{ .name = NULL },
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one line at a time */

static void done(void *context, const char *path, const char *left_out)
{
	struct naos_fits *fits = context;
	(void)pthread_mutex_lock(&lock);
	if (fits->work.invocation->json)
		naos_fits_print(fits, json_pack("{s:s, s:o, s:s*}", "action", "frame.rewrap", "path", naos_json_text(path), "left_out",
						left_out));
	else if (fits->work.single)
		printf(left_out ? "%s was %s\n" : "rewrapped the keys of %s%s\n", path, left_out ? left_out : "");
	(void)pthread_mutex_unlock(&lock);
}

static int run(struct naos_invocation *invocation, struct naos_error *err)
{
	const struct naos_work_plan plan = {
		.action = "frame.rewrap", .label = "rewrapping", .operands = invocation->operands, .operand_count = invocation->operand_count,
	};
	struct naos_fits fits;
	int rc = naos_fits_start(&fits, invocation, &plan, true, err);
	if (rc != 0)
		return rc;
	struct naos_frame_rewrap rewrap = { .provider = fits.provider, .tally = &fits.work.tally, .done = done, .context = &fits };
	const struct naos_frame_tree tree = {
		.context = &rewrap, .jobs = fits.work.jobs, .shard_index = fits.work.shard_index, .shard_count = fits.work.shard_count,
		.files = naos_frame_rewrap_files,
	};
	rc = naos_frame_rewrap_targets(invocation->config, naos_option_value(invocation, "collection"), &rewrap, err);
	for (size_t i = 0; rc == 0 && i < invocation->operand_count && !naos_tally_stopped(&fits.work.tally); i++)
		rc = naos_frame_tree_visit(&tree, invocation->operands[i], &fits.work.tally, err);
	free(rewrap.targets);
	if (rc == 0)
		rc = naos_fits_summary(&fits, "rewrapped the keys of", err);
	return naos_fits_end(&fits, rc, err);
}

const struct naos_command naos_command_fits_rewrap = {
	.path = "fits rewrap",
	.operands = "PATH...",
	.summary = "Wrap the keys of frames by the newest MEKs of their collection; no data is touched",
	.example = "naos fits rewrap --collection survey sealed/images",
	.min_operands = 1,
	.max_operands = 1000,
	.options = options,
	.run = run,
};

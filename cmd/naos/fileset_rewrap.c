/* naos fileset rewrap.  SPDX-License-Identifier: Apache-2.0 */
#include "fileset_tree.h"
#include "seal/check_tree.h"
#include "seal/rewrap_tree.h"

static const struct naos_option options[] = {
	NAOS_OPTION_KEYS,
	NAOS_OPTION_JOBS,
	NAOS_OPTION_SHARD,
	{ .name = NULL },
};

static int run_rewrap(struct naos_invocation *invocation, struct naos_error *err)
{
	const char *path;
	struct naos_work work;
	int rc = naos_fileset_tree(invocation, NULL, &path, err);
	if (rc != 0)
		return rc;
	char *const paths[] = { (char *)path };
	const struct naos_work_plan plan = {
		.action = "fileset.rewrap", .label = "rewrapping", .keys = true, .one_set = true, .operands = paths, .operand_count = 1,
		.set = invocation->operands[0],
	};
	rc = naos_work_start(&work, invocation, &plan, err);
	if (rc != 0)
		return rc;
	struct naos_rewrap rewrap = {
		.sets = work.sets, .set = work.set, .tally = &work.tally,
	};
	const struct naos_sealed_tree tree = {
		.context = &rewrap,
		.jobs = work.jobs,
		.shard_index = work.shard_index,
		.shard_count = work.shard_count,
		.sets = work.sets,
		.once = true,
		.in_use = true,
		.skip = NAOS_LOST_DIRECTORY,
		.files = naos_rewrap_files,
	};
	naos_sealed_tree_visit(&tree, path, &work.tally);
	rc = naos_fileset_summary(&work, "rewrapped the keys of", "were current", "fileset-rewrap", NULL, err);
	return naos_work_end(&work, rc, err);
}

const struct naos_command naos_command_fileset_rewrap = {
	.path = "fileset rewrap",
	.operands = "NAME",
	.summary = "Wrap the keys of a file set's files under the newest version of its MEK; no data is touched",
	.example = "naos fileset rewrap genomes",
	.min_operands = 1,
	.max_operands = 1,
	.options = options,
	.run = run_rewrap,
};

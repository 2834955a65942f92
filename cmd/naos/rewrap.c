/* naos rewrap.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/rewrap_tree.h"
#include "work.h"

static int print_summary(struct naos_work *work, struct naos_error *err)
{
	char text[256];
	if (!work->invocation->json) {
		printf("rewrapped the keys of %s\n", naos_work_text(work, "were current", text, sizeof(text)));
		return 0;
	}
	json_t *summary = naos_work_summary(work);
	if (summary)
		(void)json_object_set_new(summary, "action", json_string("rewrap"));
	return naos_print_json(summary, err);
}

static const struct naos_option options[] = {
	{ "fileset", 'f', "NAME", "refuse files of another file set than this one" },
	NAOS_OPTION_KEYS,
	{ "repair", 0, NULL, "also rebuild damaged or missing copies of the wrapped key from a good one" },
	NAOS_OPTION_JOBS,
	NAOS_OPTION_SHARD,
	{ .name = NULL },
};

static int run_rewrap(struct naos_invocation *invocation, struct naos_error *err)
{
	const struct naos_work_plan plan = {
		.action = "file.rewrap", .label = "rewrapping", .keys = true, .operands = invocation->operands,
		.operand_count = invocation->operand_count,
	};
	struct naos_work work;
	int rc = naos_work_start(&work, invocation, &plan, err);
	if (rc != 0)
		return rc;
	struct naos_rewrap rewrap = {
		.sets = work.sets, .set = work.set, .tally = &work.tally, .repair = naos_option_given(invocation, "repair")
	};
	const struct naos_sealed_tree tree = {
		.context = &rewrap,
		.jobs = work.jobs,
		.shard_index = work.shard_index,
		.shard_count = work.shard_count,
		.sets = work.sets,
		.once = true,
		.files = naos_rewrap_files,
	};
	for (size_t i = 0; i < invocation->operand_count && !naos_tally_stopped(&work.tally); i++)
		naos_sealed_tree_visit(&tree, invocation->operands[i], &work.tally);
	rc = print_summary(&work, err);
	return naos_work_end(&work, rc, err);
}

const struct naos_command naos_command_rewrap = {
	.path = "rewrap",
	.operands = "PATH...",
	.summary = "Wrap the keys of sealed files under the newest version of their MEK; no data is touched",
	.example = "naos rewrap sealed/reads",
	.min_operands = 1,
	.max_operands = 1000,
	.options = options,
	.run = run_rewrap,
};

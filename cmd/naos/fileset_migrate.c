/* naos fileset migrate.  SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "fileset_tree.h"
#include "seal/check_tree.h"
#include "seal/migrate.h"

#define PASSES 2 /* a file that changes while it is read is tried once more */

static const struct naos_option options[] = {
	{ "from", 0, "DIR", "seal the files of this directory in place (default: that of the file set)" },
	NAOS_OPTION_KEYS,
	{ "verify", 0, NULL, "read each sealed file back and compare it before the plain one goes" },
	NAOS_OPTION_JOBS,
	NAOS_OPTION_SHARD,
	{ .name = NULL },
};

static int migrate(struct naos_work *work, const char *path, struct naos_error *err)
{
	struct naos_migration migration = {
		.sets = work->sets, .set = work->set, .tally = &work->tally, .compare = naos_option_given(work->invocation, "verify"),
	};
	const struct naos_replace replace = {
		.context = &migration,
		.root = path,
		.jobs = work->jobs,
		.shard_index = work->shard_index,
		.shard_count = work->shard_count,
		.passes = PASSES,
		.plain = true,
		.skip = NAOS_LOST_DIRECTORY,
		.tally = &work->tally,
		.look = naos_migrate_look,
		.fill = naos_migrate_fill,
	};
	int rc = naos_replace_tree(&replace, err);
	return rc ? rc : naos_fileset_summary(work, "sealed in place for", "were sealed before", "fileset-migrate", NULL, err);
}

static int run_migrate(struct naos_invocation *invocation, struct naos_error *err)
{
	const char *path;
	struct naos_work work;
	int rc = naos_fileset_tree(invocation, naos_option_value(invocation, "from"), &path, err);
	if (rc != 0)
		return rc;
	char *const paths[] = { (char *)path };
	const struct naos_work_plan plan = {
		.action = "fileset.migrate", .label = "sealing", .keys = true, .one_set = true, .operands = paths, .operand_count = 1,
		.set = invocation->operands[0],
	};
	/* the kernel's note that someone waits for a file: it is asked for when it matters */
	(void)signal(SIGIO, SIG_IGN);
	rc = naos_work_start(&work, invocation, &plan, err);
	if (rc != 0)
		return rc;
	rc = migrate(&work, path, err);
	return naos_work_end(&work, rc, err);
}

const struct naos_command naos_command_fileset_migrate = {
	.path = "fileset migrate",
	.operands = "NAME",
	.summary = "Seal a tree of plain files in place",
	.example = "naos fileset migrate --verify genomes",
	.min_operands = 1,
	.max_operands = 1,
	.options = options,
	.run = run_migrate,
};

/* naos fileset check.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "fileset.h"
#include "fileset_tree.h"
#include "seal/check_tree.h"

#define SETTLE_S 60 /* in a mounted file set a file without a first page may be in the making */

static const struct naos_option options[] = {
	NAOS_OPTION_KEYS,
	{ "keyless", 0, NULL, "need no key: check structure, sizes and checksums only" },
	{ "repair", 0, NULL, "mend what can be mended, name what can't" },
	NAOS_OPTION_JOBS,
	NAOS_OPTION_SHARD,
	{ .name = NULL },
};

static int repairing(void *context, const char *path, const char *what, struct naos_error *err)
{
	return naos_work_record(context, path, what, err);
}

/* Without keys the configuration alone says what the files must be; without an id in it they are not compared. */
static int read_demand(const struct naos_invocation *invocation, struct naos_uuid *id, struct naos_inspect_demand *ret,
		       struct naos_error *err)
{
	const char *name = invocation->operands[0], *text = naos_config_string(invocation->config, "fileset", name, "id");
	struct naos_inspect_demand demand = { .fileset_id = text[0] ? id : NULL };
	if (!naos_algorithm_parse(naos_config_string(invocation->config, "fileset", name, "algorithm"), &demand.algorithm))
		return naos_error_set(err, NAOS_E_CONFIG, "file set '%s': unknown algorithm", name);
	if (text[0] && !naos_uuid_parse(text, id))
		return naos_error_set(err, NAOS_E_CONFIG, "%s: the id of file set '%s' is not a UUID",
				      naos_config_origin(invocation->config, "fileset", name, "id"), name);
	*ret = demand;
	return 0;
}

/* naos-fs in mode local makes a file under its name before it has a first page. */
static int read_settle(const struct naos_invocation *invocation, int64_t *ret, struct naos_error *err)
{
	naos_automounts struct naos_mounts mounts = { .count = 0 };
	const char *name = invocation->operands[0], *point = naos_config_string(invocation->config, "fileset", name, "mountpoint");
	const struct naos_mount *mount = NULL;
	int rc = naos_mounts_read(&mounts, err);
	*ret = 0;
	while (rc == 0 && *ret == 0 && (mount = naos_fileset_mount_next(&mounts, name, mount)))
		*ret = !point[0] || strcmp(mount->point, point) == 0 ? SETTLE_S : 0;
	return rc;
}

static int check_tree(struct naos_work *work, struct naos_check *check, struct naos_error *err)
{
	const struct naos_sealed_tree tree = {
		.context = check,
		.jobs = work->jobs,
		.shard_index = work->shard_index,
		.shard_count = work->shard_count,
		.sets = work->sets,
		.once = true,
		.clean = check->repair,
		.in_use = true,
		.skip = NAOS_LOST_DIRECTORY,
		.files = naos_check_files,
	};
	naos_sealed_tree_visit(&tree, check->root, &work->tally);
	return naos_fileset_summary(work, check->repair ? "checked and repaired" : check->sets ? "checked" : "checked without keys",
				    "were current", "fileset-check", json_pack("{s:b, s:b}", "keyless", !check->sets, "repair", check->repair),
				    err);
}

static int run_check(struct naos_invocation *invocation, struct naos_error *err)
{
	bool keyless = naos_option_given(invocation, "keyless"), repair = naos_option_given(invocation, "repair");
	struct naos_work work;
	struct naos_uuid id;
	struct naos_check check = { .tally = &work.tally, .repair = repair, .repairing = repairing, .context = &work };
	if (keyless && repair)
		return naos_error_set(err, NAOS_E_USAGE, "repair needs the keys: give --keyless or --repair, not both");
	int rc = naos_fileset_tree(invocation, NULL, &check.root, err);
	if (rc == 0)
		rc = read_settle(invocation, &check.settle_s, err);
	if (rc == 0 && keyless)
		rc = read_demand(invocation, &id, &check.demand, err);
	if (rc != 0)
		return rc;
	char *const paths[] = { (char *)check.root };
	const struct naos_work_plan plan = {
		.action = repair ? "fileset.repair" : keyless ? NULL : "fileset.check", .label = "checking", .keys = !keyless,
		.one_set = true, .operands = paths, .operand_count = 1, .set = invocation->operands[0],
	};
	rc = naos_work_start(&work, invocation, &plan, err);
	if (rc != 0)
		return rc;
	check.sets = work.sets;
	check.set = work.set;
	rc = check_tree(&work, &check, err);
	return naos_work_end(&work, rc, err);
}

const struct naos_command naos_command_fileset_check = {
	.path = "fileset check",
	.operands = "NAME",
	.summary = "Check the sealed files of a file set, also without any key, and mend what can be mended",
	.example = "naos fileset check --keyless genomes",
	.min_operands = 1,
	.max_operands = 1,
	.options = options,
	.run = run_check,
};

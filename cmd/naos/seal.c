/* naos seal and naos open.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "seal/manifest.h"
#include "seal/transfer.h"
#include "work.h"

static void free_writer(struct naos_manifest_writer **writer)
{
	*writer = naos_manifest_writer_free(*writer);
}

static int print_summary(const struct naos_work *work, const struct naos_transfer *transfer, struct naos_error *err)
{
	char text[256], id[NAOS_UUID_TEXT_BYTES];
	if (strcmp(transfer->target, "-") == 0)
		return 0; /* standard output is the plaintext */
	if (!work->invocation->json) {
		printf("%s %s\n", transfer->sealing ? "sealed" : "opened", naos_work_text(work, "were current", text, sizeof(text)));
		return 0;
	}
	json_t *summary = naos_work_summary(work);
	if (summary && transfer->set)
		(void)json_object_update_new(summary, json_pack("{s:o, s:s}", "fileset", naos_json_text(transfer->set->name),
								"fileset_id", naos_uuid_format(&transfer->set->id, id)));
	if (summary)
		(void)json_object_update_new(
		    summary, json_pack("{s:s, s:o, s:o}", "action", transfer->sealing ? "seal" : "open", "source",
				       naos_json_text(transfer->source), "target", naos_json_text(transfer->target)));
	return naos_print_json(summary, err);
}

static int run(struct naos_work *work, struct naos_transfer *transfer, struct naos_error *err)
{
	struct naos_error ignored;
	transfer->jobs = work->jobs;
	transfer->shard_index = work->shard_index;
	transfer->shard_count = work->shard_count;
	transfer->sets = work->sets;
	transfer->set = work->set;
	int rc = naos_transfer_run(transfer, &work->tally, err);
	bool complete = rc == 0 && naos_tally_result(&work->tally, &ignored) == 0;
	int printed = rc == 0 ? print_summary(work, transfer, &ignored) : 0;
	return rc ? rc : printed != 0 && complete ? naos_error_set(err, printed, "%s", ignored.message) : 0;
}

static const struct naos_option seal_options[] = {
	NAOS_OPTION_FILESET,
	NAOS_OPTION_KEYS,
	{ "force", 0, NULL, "replace targets that exist and are not current" },
	{ "manifest", 'm', "FILE", "write a manifest of the sealed tree" },
	NAOS_OPTION_JOBS,
	NAOS_OPTION_SHARD,
	{ .name = NULL },
};

static int run_seal(struct naos_invocation *invocation, struct naos_error *err)
{
	const struct naos_work_plan plan = {
		.action = "file.seal", .label = "sealing", .keys = true, .one_set = true, .operands = invocation->operands,
		.operand_count = invocation->operand_count, .pair = true,
	};
	const char *manifest = naos_option_value(invocation, "manifest");
	naos_cleanup(free_writer) struct naos_manifest_writer *writer = NULL;
	struct naos_transfer transfer = {
		.sealing = true,
		.force = naos_option_given(invocation, "force"),
		.source = invocation->operands[0],
		.target = invocation->operands[1],
	};
	struct naos_error ignored;
	struct naos_work work;
	if (manifest && naos_option_given(invocation, "shard"))
		return naos_error_set(
		    err, NAOS_E_USAGE,
		    "one share can't write the manifest of the whole: when all are done, run it without --shard");
	if (manifest && strcmp(invocation->operands[0], "-") == 0)
		return naos_error_set(err, NAOS_E_USAGE, "a manifest is that of a tree or a file, not of standard input");
	int rc = manifest ? naos_manifest_writer_create(&writer, err) : 0;
	if (rc == 0)
		rc = naos_work_start(&work, invocation, &plan, err);
	if (rc != 0)
		return rc;
	transfer.manifest = writer;
	rc = run(&work, &transfer, err);
	/* not of a tree that is not complete */
	if (rc == 0 && manifest && naos_tally_result(&work.tally, &ignored) == 0)
		rc = naos_manifest_write(writer, work.sets, work.set, manifest, err);
	return naos_work_end(&work, rc, err);
}

const struct naos_command naos_command_seal = {
	.path = "seal",
	.operands = "SOURCE TARGET",
	.summary = "Seal a file, a tree or standard input ('-')",
	.example = "naos seal --fileset genomes reads/ sealed/reads",
	.min_operands = 2,
	.max_operands = 2,
	.options = seal_options,
	.run = run_seal,
};

static const struct naos_option open_options[] = {
	{ "fileset", 'f', "NAME", "refuse files of another file set than this one" },
	NAOS_OPTION_KEYS,
	{ "force", 0, NULL, "replace targets that exist and are not current" },
	NAOS_OPTION_JOBS,
	NAOS_OPTION_SHARD,
	{ .name = NULL },
};

static int run_open(struct naos_invocation *invocation, struct naos_error *err)
{
	const struct naos_work_plan plan = {
		.action = "file.open", .label = "opening", .keys = true, .operands = invocation->operands,
		.operand_count = invocation->operand_count, .pair = true,
	};
	struct naos_transfer transfer = {
		.force = naos_option_given(invocation, "force"), .source = invocation->operands[0], .target = invocation->operands[1],
	};
	struct naos_work work;
	int rc = naos_work_start(&work, invocation, &plan, err);
	if (rc != 0)
		return rc;
	rc = run(&work, &transfer, err);
	return naos_work_end(&work, rc, err);
}

const struct naos_command naos_command_open = {
	.path = "open",
	.operands = "SOURCE TARGET",
	.summary = "Open a sealed file or tree; TARGET '-' is standard output",
	.example = "naos open sealed/reads /scratch/reads",
	.min_operands = 2,
	.max_operands = 2,
	.options = open_options,
	.run = run_open,
};

/* naos fits seal.  SPDX-License-Identifier: Apache-2.0 */
#include "fits.h"

static const struct naos_option options[] = {
	NAOS_OPTION_COLLECTION,
	NAOS_OPTION_HEADER_KEY,
	NAOS_OPTION_DATA_KEY,
	NAOS_OPTION_KEYS,
	NAOS_OPTION_SEGMENT,
	NAOS_OPTION_FORMAT,
	NAOS_OPTION_FORCE,
	NAOS_OPTION_JOBS,
	NAOS_OPTION_SHARD,
	{ .name = NULL },
};

static void done(void *context, const struct naos_frame_done *done)
{
	struct naos_fits *fits = context;
	char id[NAOS_UUID_TEXT_BYTES];
	(void)naos_uuid_format(&done->frame_id, id);
	if (fits->work.invocation->json)
		naos_fits_print(fits, json_pack("{s:s, s:o, s:o, s:s*, s:s*}", "action", "frame.seal", "source", naos_json_text(done->source),
						"target", naos_json_text(done->target), "frame_id", done->left_out ? NULL : id, "left_out",
						done->left_out));
	else if (fits->work.single && done->left_out)
		printf("%s was %s\n", done->target, done->left_out);
	else if (fits->work.single)
		printf("sealed %s as frame %s\n", done->target, id);
}

static int run(struct naos_invocation *invocation, struct naos_error *err)
{
	const struct naos_work_plan plan = {
		.action = "frame.seal", .label = "sealing", .operands = invocation->operands, .operand_count = invocation->operand_count,
		.pair = true,
	};
	bool named = naos_option_given(invocation, "collection");
	unsigned given = naos_option_given(invocation, "header-key") + (unsigned)naos_option_given(invocation, "data-key");
	struct naos_frame_transfer transfer = { .verb = NAOS_FRAME_VERB_SEAL, .done = done };
	struct naos_collection collection;
	struct naos_fits fits;
	if (given != (named ? 0 : 2))
		return naos_error_set(err, NAOS_E_USAGE, "give either --collection, or both --header-key and --data-key");
	int rc = naos_fits_start(&fits, invocation, &plan, named, err);
	if (rc != 0)
		return rc;
	rc = naos_fits_describe_new(&fits, &collection, &transfer, err);
	if (rc == 0)
		rc = naos_fits_transfer(&fits, &transfer, "sealed", err);
	return naos_fits_end(&fits, rc, err);
}

const struct naos_command naos_command_fits_seal = {
	.path = "fits seal",
	.operands = "SOURCE TARGET",
	.summary = "Seal FITS files: header and data get keys of their own",
	.example = "naos fits seal --collection survey images/ sealed/images",
	.min_operands = 2,
	.max_operands = 2,
	.options = options,
	.run = run,
};

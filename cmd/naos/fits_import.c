/* naos fits import-legacy.  SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "fits.h"
#include "fits/legacy.h"

static const struct naos_option options[] = {
	NAOS_OPTION_COLLECTION,
	{ "header-key", 0, "SOURCE", "header key of the old files: 32 hexadecimal digits from file:PATH, fd:NUMBER or systemd:NAME" },
	{ "data-key", 0, "SOURCE", "data key of the old files in the same way" },
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
	if (!done->left_out)
		naos_log(NAOS_LOG_WARNING, "%s: " NAOS_LEGACY_WARNING, done->source);
	if (done->scaled)
		naos_log(NAOS_LOG_WARNING, "%s: " NAOS_LEGACY_SCALED, done->source);
	if (fits->work.invocation->json) {
		json_t *value = json_pack("{s:s, s:o, s:o, s:s*}", "action", "frame.import", "source", naos_json_text(done->source), "target",
					  naos_json_text(done->target), "left_out", done->left_out);
		if (value && !done->left_out)
			(void)json_object_update_new(value, json_pack("{s:b, s:b}", "authenticated", 0, "scaled", (int)done->scaled));
		naos_fits_print(fits, value);
	} else if (fits->work.single && done->left_out) {
		printf("%s was %s\n", done->target, done->left_out);
	} else if (fits->work.single) {
		printf("sealed %s\n", done->target);
	}
}

static int run(struct naos_invocation *invocation, struct naos_error *err)
{
	const struct naos_work_plan plan = {
		.action = "frame.import", .label = "importing", .operands = invocation->operands, .operand_count = invocation->operand_count,
		.pair = true,
	};
	struct naos_frame_transfer transfer = { .verb = NAOS_FRAME_VERB_IMPORT, .done = done };
	struct naos_collection collection;
	struct naos_fits fits;
	if (!naos_option_given(invocation, "header-key") || !naos_option_given(invocation, "data-key"))
		return naos_error_set(err, NAOS_E_USAGE, "give the two keys of the old files: --header-key and --data-key");
	int rc = naos_fits_start(&fits, invocation, &plan, naos_option_given(invocation, "collection"), err);
	if (rc != 0)
		return rc;
	rc = naos_fits_describe_new(&fits, &collection, &transfer, err);
	if (rc == 0)
		rc = naos_fits_transfer(&fits, &transfer, "sealed", err);
	return naos_fits_end(&fits, rc, err);
}

const struct naos_command naos_command_fits_import_legacy = {
	.path = "fits import-legacy",
	.operands = "SOURCE TARGET",
	.summary = "Seal files of GpuFitsCrypt anew as frames, under a collection's or the same keys",
	.example = "naos fits import-legacy --header-key file:h --data-key file:d --collection survey old.fits new.fits",
	.min_operands = 2,
	.max_operands = 2,
	.options = options,
	.run = run,
};

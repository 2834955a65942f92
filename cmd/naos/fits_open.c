/* naos fits open.  SPDX-License-Identifier: Apache-2.0 */
#include "fits.h"

static const struct naos_option options[] = {
	NAOS_OPTION_HEADER_KEY,
	NAOS_OPTION_DATA_KEY,
	NAOS_OPTION_KEYS,
	{ "require-full", 0, NULL, "refuse to write a file that lacks header or data" },
	NAOS_OPTION_FORCE,
	NAOS_OPTION_JOBS,
	NAOS_OPTION_SHARD,
	{ .name = NULL },
};

static void done(void *context, const struct naos_frame_done *done)
{
	struct naos_fits *fits = context;
	if (fits->work.invocation->json) {
		json_t *value = json_pack("{s:s, s:o, s:o, s:s*}", "action", "frame.open", "source", naos_json_text(done->source), "target",
					  naos_json_text(done->target), "left_out", done->left_out);
		if (value && !done->left_out) {
			naos_fits_add_level(value, &done->opened);
			(void)json_object_set_new(value, "bytes", json_integer((json_int_t)done->bytes));
		}
		naos_fits_print(fits, value);
		return;
	}
	if (!done->left_out)
		naos_fits_tell_level(done->source, &done->opened);
	if (fits->work.single && done->left_out)
		printf("%s was %s\n", done->target, done->left_out);
	else if (fits->work.single)
		printf("opened %s, %s\n", done->target, naos_frame_level_name(done->opened.level));
}

static int run(struct naos_invocation *invocation, struct naos_error *err)
{
	const struct naos_work_plan plan = {
		.action = "frame.open", .label = "opening", .operands = invocation->operands, .operand_count = invocation->operand_count,
		.pair = true,
	};
	struct naos_frame_transfer transfer = {
		.verb = NAOS_FRAME_VERB_OPEN, .done = done, .full_only = naos_option_given(invocation, "require-full"),
	};
	struct naos_fits fits;
	int rc = naos_fits_start(&fits, invocation, &plan, naos_fits_has_manager(invocation), err);
	if (rc != 0)
		return rc;
	rc = naos_fits_transfer(&fits, &transfer, "opened", err);
	return naos_fits_end(&fits, rc, err);
}

const struct naos_command naos_command_fits_open = {
	.path = "fits open",
	.operands = "SOURCE TARGET",
	.summary = "Open frames: in full, or the part that there is a key for",
	.example = "naos fits open image.sealed.fits image.fits",
	.min_operands = 2,
	.max_operands = 2,
	.options = options,
	.run = run,
};

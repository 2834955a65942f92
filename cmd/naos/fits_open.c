/* naos fits open.  SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "fits.h"

static const struct naos_option open_options[] = {
	NAOS_OPTION_HEADER_KEY,
	NAOS_OPTION_DATA_KEY,
	NAOS_OPTION_KEYS,
	{ "require-full", 0, NULL, "refuse to write a file that lacks header or data" },
	NAOS_OPTION_FORCE,
	NAOS_OPTION_FITS_JOBS,
	{ .name = NULL },
};

static int print_opened(const struct naos_frame *frame, const struct naos_invocation *invocation, struct naos_error *err)
{
	const char *source = invocation->operands[0], *target = invocation->operands[1];
	if (!invocation->json) {
		naos_fits_tell_level(frame);
		printf("opened %s, %s\n", target, naos_frame_level_name(naos_frame_level(frame)));
		return 0;
	}
	json_t *value = naos_fits_level_json(frame);
	if (value)
		(void)json_object_update_new(value, json_pack("{s:s, s:o, s:o, s:I}", "action", "frame.open", "source", naos_json_text(source),
							      "target", naos_json_text(target), "bytes",
							      (json_int_t)naos_frame_result_bytes(frame)));
	return naos_print_json(value, err);
}

static int open_to_target(struct naos_fits_session *session, const struct naos_invocation *invocation, struct naos_error *err)
{
	naos_cleanup(naos_fits_progress_end) struct naos_progress *progress = NULL;
	const char *source = invocation->operands[0], *target = invocation->operands[1];
	naos_autoframe struct naos_frame *frame = NULL;
	bool written;
	int rc = naos_fits_open_frame(session, source, &frame, err);
	if (rc == 0)
		rc = naos_progress_create("opening", naos_frame_result_bytes(frame), !invocation->json, &progress, err);
	if (rc != 0)
		return rc;
	const struct naos_frame_writing how = {
		.replace = naos_option_given(invocation, "force"), .full_only = naos_option_given(invocation, "require-full"),
		.jobs = session->jobs, .progress = naos_fits_count, .context = progress,
	};
	rc = naos_frame_write_file(frame, target, &how, &written, err);
	if (!written)
		return rc;
	progress = naos_progress_free(progress);
	if (rc != 0)
		naos_log(NAOS_LOG_WARNING, "%s", err->message);
	rc = print_opened(frame, invocation, err);
	if (rc != 0 || naos_frame_worst(frame) != NAOS_E_INTEGRITY)
		return rc;
	return naos_error_set(err, NAOS_E_INTEGRITY, "%s was changed: %s holds only what was not", source, target);
}

static int run_open(struct naos_invocation *invocation, struct naos_error *err)
{
	naos_cleanup(naos_fits_end) struct naos_fits_session session = { .jobs = 1 };
	int rc = naos_fits_begin(&session, invocation, "frame.open", naos_fits_has_manager(invocation), err);
	if (rc != 0)
		return rc;
	rc = open_to_target(&session, invocation, err);
	naos_admin_end(invocation, "frame.open", invocation->operands[0], rc, err);
	return rc;
}

const struct naos_command naos_command_fits_open = {
	.path = "fits open", .operands = "FRAME TARGET", .summary = "Open a frame: in full, or the part that there is a key for",
	.example = "naos fits open image.sealed.fits image.fits", .min_operands = 2, .max_operands = 2,
	.options = open_options, .run = run_open,
};

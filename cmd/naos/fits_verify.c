/* naos fits verify.  SPDX-License-Identifier: Apache-2.0 */
#include "fits.h"

static const struct naos_option verify_options[] = { NAOS_OPTION_HEADER_KEY, NAOS_OPTION_DATA_KEY, NAOS_OPTION_KEYS, { .name = NULL } };

static int verify_one(struct naos_fits_session *session, const struct naos_invocation *invocation, const char *path, struct naos_error *err)
{
	naos_autoframe struct naos_frame *frame = NULL;
	int rc = naos_fits_open_frame(session, path, &frame, err);
	if (rc == 0)
		rc = naos_frame_verify(frame, err);
	if (rc == 0 && naos_frame_level(frame) != NAOS_FRAME_FULL)
		rc = naos_error_set(err, naos_frame_worst(frame), "%s: not all of it could be checked: it is open %s", path,
				    naos_frame_level_name(naos_frame_level(frame)));
	if (rc != 0)
		return rc;
	if (invocation->json)
		return naos_print_json(json_pack("{s:s, s:o}", "action", "frame.verify", "path", naos_json_text(path)), err);
	printf("%s: every segment is as it was sealed\n", path);
	return 0;
}

static int run_verify(struct naos_invocation *invocation, struct naos_error *err)
{
	naos_cleanup(naos_fits_end) struct naos_fits_session session = { .jobs = 1 };
	int rc = naos_admin_begin(invocation, "frame.verify", invocation->operands[0], err);
	if (rc == 0)
		rc = naos_fits_start(&session, invocation, naos_fits_has_manager(invocation), err);
	for (size_t i = 0; rc == 0 && i < invocation->operand_count; i++)
		rc = verify_one(&session, invocation, invocation->operands[i], err);
	naos_admin_end(invocation, "frame.verify", invocation->operands[0], rc, err);
	return rc;
}

const struct naos_command naos_command_fits_verify = {
	.path = "fits verify", .operands = "FRAME...", .summary = "Check every bit of frames",
	.example = "naos fits verify image.sealed.fits", .min_operands = 1, .max_operands = 1000, .options = verify_options,
	.run = run_verify,
};

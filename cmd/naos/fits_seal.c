/* naos fits seal.  SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>

#include "fits.h"

static const struct naos_option seal_options[] = {
	NAOS_OPTION_COLLECTION,
	NAOS_OPTION_HEADER_KEY,
	NAOS_OPTION_DATA_KEY,
	NAOS_OPTION_KEYS,
	NAOS_OPTION_SEGMENT,
	NAOS_OPTION_FORMAT,
	NAOS_OPTION_FORCE,
	NAOS_OPTION_FITS_JOBS,
	{ .name = NULL },
};

static int seal(struct naos_fits_session *session, const struct naos_invocation *invocation, struct naos_uuid *ret_id,
		struct naos_error *err)
{
	naos_autoclose int fd = open(invocation->operands[0], O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot open %s", invocation->operands[0]);
	return naos_fits_seal_to_target(session, invocation, fd, ret_id, err);
}

static int run_seal(struct naos_invocation *invocation, struct naos_error *err)
{
	const char *source = invocation->operands[0], *target = invocation->operands[1];
	bool collection = naos_option_given(invocation, "collection");
	unsigned given = naos_option_given(invocation, "header-key") + (unsigned)naos_option_given(invocation, "data-key");
	naos_cleanup(naos_fits_end) struct naos_fits_session session = { .jobs = 1 };
	struct naos_uuid frame_id;
	char id[NAOS_UUID_TEXT_BYTES];
	if (given != (collection ? 0 : 2))
		return naos_error_set(err, NAOS_E_USAGE, "give either --collection, or both --header-key and --data-key");
	int rc = naos_fits_begin(&session, invocation, "frame.seal", collection, err);
	if (rc != 0)
		return rc;
	rc = seal(&session, invocation, &frame_id, err);
	naos_admin_end(invocation, "frame.seal", source, rc, err);
	if (rc != 0)
		return rc;
	(void)naos_uuid_format(&frame_id, id);
	if (invocation->json)
		return naos_print_json(json_pack("{s:s, s:o, s:o, s:s}", "action", "frame.seal", "source", naos_json_text(source), "target",
						 naos_json_text(target), "frame_id", id), err);
	printf("sealed %s as frame %s\n", target, id);
	return 0;
}

const struct naos_command naos_command_fits_seal = {
	.path = "fits seal", .operands = "SOURCE TARGET", .summary = "Seal a FITS file: header and data get keys of their own",
	.example = "naos fits seal --collection survey image.fits image.sealed.fits", .min_operands = 2, .max_operands = 2,
	.options = seal_options,
	.run = run_seal,
};

/* naos fits cutout.  SPDX-License-Identifier: Apache-2.0 */
#include "fits.h"

static const struct naos_option cutout_options[] = {
	{ "section", 's', "SECTION", "pixels, from 1, as [101:356,1:256]; * is a whole axis" },
	{ "unit", 'u', "NUMBER", "the unit (HDU) that holds the image, from 0 (default: 0)" },
	NAOS_OPTION_HEADER_KEY,
	NAOS_OPTION_DATA_KEY,
	NAOS_OPTION_KEYS,
	{ .name = NULL },
};

static int cut(struct naos_fits_session *session, const struct naos_invocation *invocation, const struct naos_section *section, size_t unit,
	       struct naos_frame **ret, struct naos_error *err)
{
	int rc = naos_fits_start(session, invocation, naos_fits_has_manager(invocation), err);
	if (rc == 0)
		rc = naos_fits_open_frame(session, invocation->operands[0], ret, err);
	return rc ? rc : naos_frame_cut_file(*ret, unit, section, invocation->operands[1], err);
}

static int run_cutout(struct naos_invocation *invocation, struct naos_error *err)
{
	const char *source = invocation->operands[0], *target = invocation->operands[1];
	const char *text = naos_option_value(invocation, "section"), *number = naos_option_value(invocation, "unit");
	naos_cleanup(naos_fits_end) struct naos_fits_session session = { .jobs = 1 };
	naos_autoframe struct naos_frame *frame = NULL;
	struct naos_section section;
	char *end = NULL;
	unsigned long unit = number ? strtoul(number, &end, 10) : 0;
	if (!text)
		return naos_error_set(err, NAOS_E_USAGE, "give the part that is wanted: --section '[101:356,1:256]'");
	if (number && (*end || !*number))
		return naos_error_set(err, NAOS_E_USAGE, "--unit is a number");
	int rc = naos_section_parse(text, &section, err);
	if (rc == 0)
		rc = naos_admin_begin(invocation, "frame.cutout", source, err);
	if (rc != 0)
		return rc;
	rc = cut(&session, invocation, &section, unit, &frame, err);
	naos_admin_end(invocation, "frame.cutout", source, rc, err);
	if (rc != 0)
		return rc;
	if (!invocation->json) {
		naos_fits_tell_level(frame);
		printf("wrote %s\n", target);
		return 0;
	}
	json_t *value = naos_fits_level_json(frame);
	if (value)
		(void)json_object_update_new(value, json_pack("{s:s, s:o}", "action", "frame.cutout", "target", naos_json_text(target)));
	return naos_print_json(value, err);
}

const struct naos_command naos_command_fits_cutout = {
	.path = "fits cutout", .operands = "FRAME TARGET", .summary =
		"Write a part of an image, reading only the segments that hold it",
	.example = "naos fits cutout --section '[101:356,1:256]' image.sealed.fits part.fits", .min_operands = 2,
	.max_operands = 2,
	.options = cutout_options, .run = run_cutout,
};

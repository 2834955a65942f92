/* include/naos/frame.h: parts of frames.  SPDX-License-Identifier: Apache-2.0 */
#include "fits/whole.h"

static int cut(struct naos_frame *frame, size_t unit, struct naos_cut_request *request, const char *target, struct naos_cut *ret,
	       struct naos_error *err)
{
	char number[24];
	(void)snprintf(number, sizeof(number), "%zu", unit);
	request->unit = number;
	return naos_frame_cut_file(frame, request, target, ret, err);
}

int naos_frame_cutout(struct naos_frame *frame, size_t unit, const char *section, const char *target, struct naos_error *err)
{
	struct naos_cut_request request = { .kind = NAOS_CUT_SECTION };
	struct naos_cut written;
	int rc = naos_section_parse(section, &request.section, err);
	return rc ? rc : cut(frame, unit, &request, target, &written, err);
}

int naos_frame_cutout_sky(struct naos_frame *frame, size_t unit, double ra_deg, double dec_deg, double width_deg, double height_deg,
			  const char *target, bool *ret_clipped, struct naos_error *err)
{
	struct naos_cut_request request = {
		.kind = NAOS_CUT_SKY, .sky = { .ra_deg = ra_deg, .dec_deg = dec_deg, .width_deg = width_deg, .height_deg = height_deg },
	};
	struct naos_cut written;
	if (!(dec_deg >= -90 && dec_deg <= 90 && ra_deg >= -360 && ra_deg <= 360 && width_deg > 0 && width_deg <= 360 && height_deg > 0 &&
	      height_deg <= 360))
		return naos_error_set(err, NAOS_E_USAGE, "the place or the size is not in degrees of the sky");
	int rc = cut(frame, unit, &request, target, &written, err);
	if (rc == 0 && ret_clipped)
		*ret_clipped = written.clipped;
	return rc;
}

int naos_frame_write_unit(struct naos_frame *frame, size_t unit, const char *target, struct naos_error *err)
{
	struct naos_cut_request request = { .kind = NAOS_CUT_UNIT };
	struct naos_cut written;
	return cut(frame, unit, &request, target, &written, err);
}

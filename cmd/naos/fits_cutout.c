/* naos fits cutout.  SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/log.h"
#include "fits.h"
#include "fits/whole.h"

static const struct naos_option options[] = {
	{ "section", 's', "SECTION", "pixels, from 1, as [101:356,1:256]; * is a whole axis, -* backwards, :2 behind takes every second" },
	{ "center", 0, "RA,DEC", "the middle of the part in the sky: degrees, or hours:minutes:seconds,degrees:minutes:seconds" },
	{ "size", 0, "WIDTH[,HEIGHT]", "with --center: its size in degrees, or with ' or \" behind" },
	{ "hdu", 'u', "UNIT", "the unit (HDU): its number from 0, NAME, or NAME,VERSION (default: the first image)" },
	{ "header", 0, NULL, "the header only: printed, or written as it stands to TARGET" },
	NAOS_OPTION_HEADER_KEY,
	NAOS_OPTION_DATA_KEY,
	NAOS_OPTION_KEYS,
	NAOS_OPTION_FORCE,
	NAOS_OPTION_JOBS,
	NAOS_OPTION_SHARD,
	{ .name = NULL },
};

/* --- a part as a file ------------------------------------------------------------------------------------------------------ */

static void done(void *context, const struct naos_frame_done *done)
{
	struct naos_fits *fits = context;
	char section[512];
	(void)naos_cut_text(&done->cut, section, sizeof(section));
	if (!done->left_out) {
		naos_fits_tell_level(done->source, &done->opened);
		if (done->cut.clipped)
			naos_log(NAOS_LOG_WARNING, "%s: only %s of what was asked for lies in the image", done->source, section);
		if (done->cut.without_distortion)
			naos_log(NAOS_LOG_WARNING, "%s: its distortion tables don't fit a part; their keywords are left out", done->source);
	}
	if (fits->work.invocation->json) {
		json_t *value = json_pack("{s:s, s:o, s:o, s:s*}", "action", "frame.cutout", "source", naos_json_text(done->source), "target",
					  naos_json_text(done->target), "left_out", done->left_out);
		if (value && !done->left_out) {
			naos_fits_add_level(value, &done->opened);
			(void)json_object_update_new(value, json_pack("{s:I, s:s*, s:b, s:b, s:I, s:I}", "hdu", (json_int_t)done->cut.unit,
								      "section", section[0] ? section : NULL, "clipped",
								      (int)done->cut.clipped, "without_distortion",
								      (int)done->cut.without_distortion, "data_segments",
								      (json_int_t)done->statistics.data_segments, "bytes_read",
								      (json_int_t)done->statistics.bytes_read));
		}
		naos_fits_print(fits, value);
	} else if (fits->work.single && done->left_out) {
		printf("%s was %s\n", done->target, done->left_out);
	} else if (fits->work.single) {
		printf("wrote %s %s\n", done->target, section);
	}
}

static int read_request(const struct naos_invocation *invocation, struct naos_cut_request *ret, struct naos_error *err)
{
	const char *section = naos_option_value(invocation, "section"), *center = naos_option_value(invocation, "center"),
		   *size = naos_option_value(invocation, "size");
	ret->unit = naos_option_value(invocation, "hdu");
	if ((section && center) || (!center) != (!size))
		return naos_error_set(err, NAOS_E_USAGE, "give either --section, or both --center and --size");
	if (!section && !center && !ret->unit)
		return naos_error_set(err, NAOS_E_USAGE,
				      "give the part that is wanted: --section '[101:356,1:256]', --center and --size, or --hdu");
	ret->kind = section ? NAOS_CUT_SECTION : center ? NAOS_CUT_SKY : NAOS_CUT_UNIT;
	if (section)
		return naos_section_parse(section, &ret->section, err);
	return center ? naos_sky_parse(center, size, &ret->sky, err) : 0;
}

static int cut(struct naos_invocation *invocation, const struct naos_work_plan *plan, struct naos_error *err)
{
	struct naos_cut_request request = { .unit = NULL };
	struct naos_frame_transfer transfer = { .verb = NAOS_FRAME_VERB_CUT, .done = done, .request = &request };
	struct naos_fits fits;
	if (invocation->operand_count < 2)
		return naos_error_set(err, NAOS_E_USAGE, "name the file to be made, or give --header");
	int rc = read_request(invocation, &request, err);
	if (rc == 0)
		rc = naos_fits_start(&fits, invocation, plan, naos_fits_has_manager(invocation), err);
	if (rc != 0)
		return rc;
	rc = naos_fits_transfer(&fits, &transfer, "cut out of", err);
	return naos_fits_end(&fits, rc, err);
}

/* --- the header ------------------------------------------------------------------------------------------------------------- */

/* Cards as lines, without the blanks behind them. */
static void print_cards(const uint8_t *header, size_t bytes)
{
	for (size_t at = 0; at + NAOS_FITS_CARD_BYTES <= bytes; at += NAOS_FITS_CARD_BYTES) {
		char card[NAOS_FITS_CARD_BYTES + 1], printable[4 * NAOS_FITS_CARD_BYTES + 1];
		memcpy(card, header + at, NAOS_FITS_CARD_BYTES);
		size_t length = NAOS_FITS_CARD_BYTES;
		while (length && card[length - 1] == ' ')
			length--;
		card[length] = 0;
		printf("%s\n", naos_io_printable_text(card, printable, sizeof(printable)));
		if (strcmp(card, "END") == 0)
			break;
	}
}

static json_t *cards_json(const uint8_t *header, size_t bytes)
{
	json_t *cards = json_array();
	for (size_t at = 0; cards && at + NAOS_FITS_CARD_BYTES <= bytes; at += NAOS_FITS_CARD_BYTES) {
		char card[NAOS_FITS_CARD_BYTES + 1];
		memcpy(card, header + at, NAOS_FITS_CARD_BYTES);
		card[NAOS_FITS_CARD_BYTES] = 0;
		(void)json_array_append_new(cards, naos_json_text(card));
		if (strncmp(card, "END     ", 8) == 0)
			break;
	}
	return cards;
}

static int write_header(const char *target, bool replace, const uint8_t *header, size_t bytes, struct naos_error *err)
{
	naos_autodraft struct naos_draft draft = { .fd = -1 };
	int rc = naos_draft_create(AT_FDCWD, target, replace, &draft, err);
	if (rc == 0)
		rc = naos_io_write(draft.fd, header, bytes, target, err);
	return rc ? rc : naos_draft_publish(&draft, err);
}

static int give_header(struct naos_fits *fits, struct naos_frame *frame, size_t unit, struct naos_error *err)
{
	const struct naos_invocation *invocation = fits->work.invocation;
	const char *source = invocation->operands[0], *target = invocation->operand_count > 1 ? invocation->operands[1] : NULL;
	naos_autofree uint8_t *header = NULL;
	size_t bytes;
	int rc = naos_frame_unit_header(frame, unit, &header, &bytes, err);
	if (rc == 0 && target)
		rc = write_header(target, naos_option_given(invocation, "force"), header, bytes, err);
	if (rc != 0)
		return rc;
	if (invocation->json)
		naos_fits_print(fits, json_pack("{s:s, s:o, s:o*, s:I, s:o*}", "action", "frame.header", "source", naos_json_text(source),
						"target", target ? naos_json_text(target) : NULL, "hdu", (json_int_t)unit, "cards",
						target ? NULL : cards_json(header, bytes)));
	else if (target)
		printf("wrote %s\n", target);
	else
		print_cards(header, bytes);
	return 0;
}

/* Of one unit, or printed of all. */
static int give_headers(struct naos_fits *fits, struct naos_error *err)
{
	const struct naos_invocation *invocation = fits->work.invocation;
	const char *source = invocation->operands[0], *name = naos_option_value(invocation, "hdu");
	struct naos_frame_opener opener = { .provider = fits->provider, .given = { fits->given[0], fits->given[1] } };
	const struct naos_frame_source keys = naos_frame_opener_source(&opener);
	naos_autoframe struct naos_frame *frame = NULL;
	struct naos_frame_opened opened;
	size_t unit = 0;
	struct stat status;
	if (stat(source, &status) == 0 && S_ISDIR(status.st_mode))
		return naos_error_set(err, NAOS_E_USAGE, "%s is a directory: a header is that of one frame", source);
	int fd = open(source, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot open %s", source);
	int rc = naos_frame_open_fd(fd, source, &keys, &frame, err);
	if (rc == 0 && naos_frame_level(frame) == NAOS_FRAME_DENIED)
		rc = naos_frame_refuse(frame, err);
	if (rc == 0 && name)
		rc = naos_frame_unit_find(frame, name, &unit, err);
	if (rc != 0)
		return rc;
	naos_frame_opened_take(frame, &opened);
	if (opened.reasons[0].message[0])
		naos_log(NAOS_LOG_WARNING, "%s", opened.reasons[0].message);
	bool one = name || invocation->operand_count > 1;
	for (size_t i = unit; rc == 0 && i < (one ? unit + 1 : naos_frame_units(frame)); i++)
		rc = give_header(fits, frame, i, err);
	naos_tally_file(&fits->work.tally, 0);
	return rc;
}

static int headers(struct naos_invocation *invocation, const struct naos_work_plan *plan, struct naos_error *err)
{
	struct naos_fits fits;
	if (naos_option_given(invocation, "section") || naos_option_given(invocation, "center") || naos_option_given(invocation, "size"))
		return naos_error_set(err, NAOS_E_USAGE, "--header is that of a unit, not of a part of its image");
	int rc = naos_fits_start(&fits, invocation, plan, naos_fits_has_manager(invocation), err);
	if (rc != 0)
		return rc;
	rc = give_headers(&fits, err);
	return naos_fits_end(&fits, rc, err);
}

static int run(struct naos_invocation *invocation, struct naos_error *err)
{
	const struct naos_work_plan plan = {
		.action = "frame.cutout", .label = "cutting out", .operands = invocation->operands, .operand_count = invocation->operand_count,
		.pair = true,
	};
	return naos_option_given(invocation, "header") ? headers(invocation, &plan, err) : cut(invocation, &plan, err);
}

const struct naos_command naos_command_fits_cutout = {
	.path = "fits cutout",
	.operands = "SOURCE [TARGET]",
	.summary = "Write a part of frames, reading only the segments that hold it",
	.example = "naos fits cutout --section '[101:356,1:256]' image.sealed.fits part.fits",
	.min_operands = 1,
	.max_operands = 2,
	.options = options,
	.run = run,
};

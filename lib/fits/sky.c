/* Boxes in the sky, by wcslib.  SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wcslib/wcs.h>
#include <wcslib/wcsfix.h>
#include <wcslib/wcshdr.h>

#include "base/io.h"
#include "fits/cutout_inside.h"
#include "fits/structure.h"

#define EXAMPLES "a place is given in degrees as 161.265,-59.684 or as 10:45:03.6,-59:41:04 (right ascension in hours)"

/* --- text ------------------------------------------------------------------------------------------------------------------------ */

/* "-59.684" or "-59:41:04.5"; *ret_parts is 1 to 3. */
static bool parse_angle(const char **at, double *ret, int *ret_parts)
{
	double value = 0, unit = 1;
	bool negative = **at == '-';
	int parts = 0;
	*at += **at == '-' || **at == '+';
	for (;;) {
		char *end;
		if (**at < '0' || **at > '9')
			return false;
		double part = strtod(*at, &end);
		if (!isfinite(part) || (parts > 0 && part >= 60) || (parts == 2 && *end == ':'))
			return false;
		value += part / unit;
		unit *= 60;
		parts++;
		*at = end;
		if (*end != ':')
			break;
		(*at)++;
	}
	*ret = negative ? -value : value;
	*ret_parts = parts;
	return true;
}

static bool parse_center(const char *text, struct naos_sky *sky)
{
	int parts;
	if (!parse_angle(&text, &sky->ra_deg, &parts))
		return false;
	if (parts > 1)
		sky->ra_deg *= 15;
	text += strspn(text, ", ");
	return parse_angle(&text, &sky->dec_deg, &parts) && *text == 0 && sky->ra_deg >= -360 && sky->ra_deg <= 360 &&
	       fabs(sky->dec_deg) <= 90;
}

static bool parse_length(const char **at, double *ret)
{
	int parts;
	if (!parse_angle(at, ret, &parts))
		return false;
	if (**at == '\'')
		*ret /= 60;
	else if (**at == '"')
		*ret /= 3600;
	*at += **at == '\'' || **at == '"' || **at == 'd';
	return *ret > 0 && *ret <= 360;
}

int naos_sky_parse(const char *center, const char *size, struct naos_sky *ret, struct naos_error *err)
{
	struct naos_sky sky;
	const char *at = size;
	if (!parse_center(center, &sky))
		return naos_error_set(err, NAOS_E_USAGE, EXAMPLES ", not '%s'", center);
	bool good = parse_length(&at, &sky.width_deg);
	sky.height_deg = sky.width_deg;
	if (good && *at == ',') {
		at++;
		good = parse_length(&at, &sky.height_deg);
	}
	if (!good || *at)
		return naos_error_set(err, NAOS_E_USAGE, "a size is given in degrees as 0.1 or 0.1,0.05, or as 6' or 30\", not '%s'", size);
	*ret = sky;
	return 0;
}

/* --- coordinates of the image ----------------------------------------------------------------------------------------------------- */

struct coordinates {
	int count;
	struct wcsprm *all;
	struct wcsprm sky;   /* the two celestial axes */
	int pixel_axes[2];   /* of the image, from 1 */
	bool sub;
};

static void coordinates_end(struct coordinates *coordinates)
{
	if (coordinates->sub)
		(void)wcsfree(&coordinates->sky);
	if (coordinates->all)
		(void)wcsvfree(&coordinates->count, &coordinates->all);
}

/* A value as the standard has it. */
static bool is_well_formed(const char *card)
{
	for (unsigned i = 0; i < NAOS_FITS_CARD_BYTES; i++)
		if (card[i] < 0x20 || card[i] > 0x7e)
			return false;
	if (card[8] != '=' || card[9] != ' ')
		return false;
	const char *end = card + NAOS_FITS_CARD_BYTES, *at = card + 10;
	while (at < end && *at == ' ')
		at++;
	return at == end || *at != '\'' || memchr(at + 1, '\'', (size_t)(end - at - 1));
}

static int parse_header(const struct frame_image *image, struct coordinates *coordinates)
{
	naos_autofree char *text = malloc(image->header_bytes + 1);
	int used = 0, rejected;
	if (!text)
		return 1;
	for (size_t at = 0; at + NAOS_FITS_CARD_BYTES <= image->header_bytes; at += NAOS_FITS_CARD_BYTES) {
		const char *card = (const char *)image->header + at;
		if (memcmp(card, "END     ", 8) == 0)
			break;
		if (frame_is_distortion(card) || !is_well_formed(card))
			continue; /* the first need tables in other units */
		memcpy(text + (size_t)used++ * NAOS_FITS_CARD_BYTES, card, NAOS_FITS_CARD_BYTES);
	}
	text[(size_t)used * NAOS_FITS_CARD_BYTES] = 0;
	int status = wcspih(text, used, WCSHDR_all, 0, &rejected, &coordinates->count, &coordinates->all);
	naos_wipe(text, image->header_bytes);
	return status;
}

static int no_coordinates(const char *why, struct naos_error *err)
{
	return naos_error_set(err, NAOS_E_USAGE, "the image has no coordinates in the sky that could be used (%s); give --section", why);
}

/* Its primary description, cut down to the two axes of the sky. */
static int read_coordinates(const struct frame_image *image, struct coordinates *ret, struct naos_error *err)
{
	int fixed[NWCSFIX], wanted = 1, axes[NAOS_CUTOUT_MAX_AXES * 2] = { WCSSUB_CELESTIAL };
	if (parse_header(image, ret) != 0 || ret->count == 0)
		return no_coordinates("its header has none", err);
	struct wcsprm *all = &ret->all[0];
	(void)wcsfix(7, NULL, all, fixed);
	int status = wcsset(all);
	if (status != 0)
		return no_coordinates(wcs_errmsg[status], err);
	if (all->lng < 0 || all->lat < 0)
		return no_coordinates("no pair of celestial axes", err);
	if (strcmp(all->lngtyp, "RA") != 0 || strcmp(all->lattyp, "DEC") != 0)
		return no_coordinates("they are not right ascension and declination", err);
	ret->sky.flag = -1;
	status = wcssub(1, all, &wanted, axes, &ret->sky);
	ret->sub = true;
	if (status != 0 || wanted != 2)
		return no_coordinates("its celestial axes can't be told from the others", err);
	status = wcsset(&ret->sky);
	if (status != 0)
		return no_coordinates(wcs_errmsg[status], err);
	for (int i = 0; i < 2; i++) {
		ret->pixel_axes[i] = axes[i];
		if (axes[i] < 1 || (unsigned)axes[i] > image->axes)
			return no_coordinates("its celestial axes are none of its pixels", err);
	}
	return 0;
}

/* Degrees of a pixel along a pixel axis, at the reference point. */
static double pixel_degrees(const struct wcsprm *sky, int axis)
{
	double first = sky->lin.cdelt[0] * sky->lin.pc[axis], second = sky->lin.cdelt[1] * sky->lin.pc[2 + axis];
	return sqrt(first * first + second * second);
}

/* --- the section -------------------------------------------------------------------------------------------------------------------- */

/* `count` pixels around `center` (from 1), of which those inside are taken. */
static bool take_axis(const struct frame_image *image, unsigned axis, double center, double count, struct naos_cut *cut)
{
	if (!isfinite(center) || fabs(center) > 1e15 || count > 1e15)
		return false;
	double low = ceil(center - 1 - count / 2), high = low + count - 1, last = (double)image->size[axis] - 1; /* from 0 */
	if (high < 0 || low > last)
		return false;
	cut->clipped |= low < 0 || high > last;
	low = low < 0 ? 0 : low;
	high = high > last ? last : high;
	cut->first[axis] = (long long)low + 1;
	cut->count[axis] = (uint64_t)(high - low) + 1;
	return true;
}

static int find_section(const struct frame_image *image, const struct naos_sky *sky, struct naos_cut *cut, struct naos_error *err)
{
	naos_cleanup(coordinates_end) struct coordinates coordinates = { .count = 0 };
	double world[2], phi, theta, plane[2], pixel[2], sizes[2];
	int bad;
	int rc = read_coordinates(image, &coordinates, err);
	if (rc != 0)
		return rc;
	struct wcsprm *to = &coordinates.sky;
	world[to->lng] = sky->ra_deg;
	world[to->lat] = sky->dec_deg;
	sizes[to->lng] = sky->width_deg;
	sizes[to->lat] = sky->height_deg;
	if (wcss2p(to, 1, 2, world, &phi, &theta, plane, pixel, &bad) != 0)
		return naos_error_set(err, NAOS_E_NOTFOUND, "the place %.6f,%.6f is not on the image's part of the sky", sky->ra_deg,
				      sky->dec_deg);
	for (unsigned i = 0; i < image->axes; i++) {
		cut->first[i] = cut->step[i] = 1;
		cut->count[i] = image->size[i];
	}
	for (int i = 0; i < 2; i++) {
		double degrees = pixel_degrees(to, i), count = degrees > 0 ? rint(sizes[i] / degrees) : 0;
		if (!take_axis(image, (unsigned)coordinates.pixel_axes[i] - 1, pixel[i], count < 1 ? 1 : count, cut))
			return naos_error_set(err, NAOS_E_NOTFOUND,
					      "the box around %.6f,%.6f lies outside the image (its middle would be pixel %.1f,%.1f)",
					      sky->ra_deg, sky->dec_deg, pixel[0], pixel[1]);
	}
	return 0;
}

/* --- apart ---------------------------------------------------------------------------------------------------------------------- */

/* What comes back. */
struct answer {
	int rc;
	struct naos_cut cut;
	struct naos_error err;
};

static void answer_in_child(int fd, const struct frame_image *image, const struct naos_sky *sky, const struct naos_cut *cut)
{
	struct answer answer = { .cut = *cut, .err = NAOS_ERROR_INIT };
	(void)prctl(PR_SET_DUMPABLE, 0); /* no core: the header is in memory */
	for (int number = 1; number < NSIG; number++)
		(void)signal(number, SIG_DFL);
	answer.rc = find_section(image, sky, &answer.cut, &answer.err);
	_exit(naos_io_write(fd, &answer, sizeof(answer), "a pipe", NULL) == 0 ? 0 : 1);
}

/* In a process of its own: wcslib (7.12) does not survive every header, and a header is what somebody else wrote.  The child takes no
 * lock but those of malloc, which fork() takes care of. */
int frame_sky_section(const struct frame_image *image, const struct naos_sky *sky, struct naos_cut *cut, struct naos_error *err)
{
	struct answer answer;
	int ends[2];
	size_t got = 0;
	if (pipe2(ends, O_CLOEXEC) != 0)
		return naos_error_set_errno(err, errno, "no pipe for the coordinates of an image");
	pid_t child = fork();
	if (child == 0)
		answer_in_child(ends[1], image, sky, cut);
	int failed = errno;
	(void)close(ends[1]);
	int rc = child < 0 ? naos_error_set_errno(err, failed, "no process for the coordinates of an image") :
			     naos_io_read(ends[0], &answer, sizeof(answer), &got, "a pipe", err);
	(void)close(ends[0]);
	while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	if (rc == 0 && got < sizeof(answer))
		rc = no_coordinates("wcslib can't read them", err);
	if (rc != 0)
		return rc;
	if (answer.rc != 0)
		return naos_error_set(err, answer.rc, "%s", answer.err.message);
	*cut = answer.cut;
	return 0;
}

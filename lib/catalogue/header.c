/* SPDX-License-Identifier: Apache-2.0 */
#include "catalogue/header.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "fits/structure.h"
#include "policy/policy.h"

/* The text of a quoted value without blanks behind it; false if it is not closed or holds what no text may. */
static bool take_text(const char *card, char ret[static NAOS_FITS_CARD_BYTES])
{
	const char *from = memchr(card + 10, '\'', 70), *end = card + NAOS_FITS_CARD_BYTES;
	size_t used = 0;
	for (const char *p = from + 1; p < end; p++) {
		if (*p == '\'' && (p + 1 == end || p[1] != '\'')) {
			while (used > 0 && ret[used - 1] == ' ')
				used--;
			ret[used] = '\0';
			return true;
		}
		p += *p == '\'';
		if (*p < ' ' || *p > '~')
			return false;
		ret[used++] = *p;
	}
	return false;
}

/* NULL: a value that is none of the three kinds (complex, undefined, malformed). */
static json_t *take_value(const char *card)
{
	char text[NAOS_FITS_CARD_BYTES], *end;
	size_t at = 10, used = 0;
	while (at < NAOS_FITS_CARD_BYTES && card[at] == ' ')
		at++;
	if (at == NAOS_FITS_CARD_BYTES)
		return NULL;
	if (card[at] == '\'')
		return take_text(card, text) ? json_string(text) : NULL;
	for (; at < NAOS_FITS_CARD_BYTES && card[at] != ' ' && card[at] != '/'; at++)
		text[used++] = card[at] == 'D' || card[at] == 'd' ? 'E' : card[at];
	text[used] = '\0';
	if (strcmp(text, "T") == 0 || strcmp(text, "F") == 0)
		return json_boolean(text[0] == 'T');
	if (used == 0 || strspn(text, "+-.0123456789Ee") != used) /* neither hexadecimal nor infinity */
		return NULL;
	errno = 0;
	long long whole = strtoll(text, &end, 10);
	if (!*end && errno == 0)
		return json_integer(whole);
	double value = strtod(text, &end);
	return *end || !isfinite(value) ? NULL : json_real(value);
}

static bool take_name(const char *card, char ret[static 9])
{
	size_t length = 0;
	while (length < 8 && card[length] != ' ')
		length++;
	memcpy(ret, card, length);
	ret[length] = '\0';
	return length > 0 && strspn(ret, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == length && memcmp(card + 8, "= ", 2) == 0;
}

int naos_catalogue_header_add(json_t *attributes, const uint8_t *header, uint64_t bytes, struct naos_error *err)
{
	json_t *own = json_object();
	for (uint64_t at = 0; own && at + NAOS_FITS_CARD_BYTES <= bytes; at += NAOS_FITS_CARD_BYTES) {
		const char *card = (const char *)header + at;
		char name[9];
		if (memcmp(card, "END     ", 8) == 0)
			break;
		if (!take_name(card, name))
			continue;
		json_t *value = take_value(card), *before = json_object_get(own, name);
		if (!value || (before && !json_equal(before, value))) {
			json_decref(value);
			value = json_null();
		}
		(void)json_object_set_new(own, name, value);
	}
	int rc = own && json_object_update(attributes, own) == 0 ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory for attributes");
	json_decref(own);
	if (rc == 0 && json_object_size(attributes) > NAOS_CATALOGUE_MAX_KEYWORDS)
		rc = naos_error_set(err, NAOS_E_LIMIT, "the headers have more than %u keywords", NAOS_CATALOGUE_MAX_KEYWORDS);
	return rc;
}

/* --- times ----------------------------------------------------------------------------------------------------------------- */

/* FITS (section 9.1.1): a date, or a date and time; no zone is UTC.  What is none stays as it is. */
static json_t *with_zone(const char *text)
{
	char time[NAOS_FITS_CARD_BYTES + 16];
	int64_t us;
	size_t length = strlen(text);
	if (length == 10)
		(void)snprintf(time, sizeof(time), "%sT00:00:00Z", text);
	else if (length >= 19 && length < NAOS_FITS_CARD_BYTES && strspn(text + 19, ".0123456789") == length - 19)
		(void)snprintf(time, sizeof(time), "%.26sZ", text); /* a policy knows 6 digits of the second */
	else
		return NULL;
	return naos_policy_time_parse(time, strlen(time), &us) ? NULL : json_string(time);
}

static bool is_utc(const json_t *attributes)
{
	const json_t *system = json_object_get(attributes, "TIMESYS");
	const char *name = json_string_value(system);
	return !system || (name && (strncmp(name, "UTC", 3) == 0 || strcmp(name, "GMT") == 0));
}

int naos_catalogue_header_finish(json_t *attributes, const struct naos_catalogue_keywords *keywords, struct naos_error *err)
{
	bool utc = is_utc(attributes);
	const char *name;
	json_t *value;
	void *next;
	json_object_foreach_safe(attributes, next, name, value)
	{
		bool always = strcmp(name, "DATE") == 0 || strcmp(name, keywords->release) == 0;
		json_t *time = json_is_string(value) && (always || (utc && strncmp(name, "DATE", 4) == 0)) ? with_zone(json_string_value(value))
													 : NULL;
		if (time)
			(void)json_object_set_new(attributes, name, time);
	}
	json_t *release = json_object_get(attributes, keywords->release), *proposal = json_object_get(attributes, keywords->proposal);
	char number[32];
	int rc = 0;
	if (json_is_string(release))
		rc |= json_object_set(attributes, "release_date", release);
	if (json_is_integer(proposal)) {
		(void)snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(proposal));
		rc |= json_object_set_new(attributes, "proposal_id", json_string(number));
	} else if (json_is_string(proposal)) {
		rc |= json_object_set(attributes, "proposal_id", proposal);
	}
	return rc ? naos_error_set(err, NAOS_E_NOMEM, "no memory for attributes") : 0;
}

/* --- units ----------------------------------------------------------------------------------------------------------------- */

static int read_header(struct naos_frame *frame, size_t unit, uint8_t **ret, uint64_t *ret_bytes, struct naos_error *err)
{
	struct naos_frame_place place;
	size_t got = 0;
	naos_frame_unit(frame, unit, &place);
	naos_autofree uint8_t *header = malloc(place.header_bytes + 1);
	if (!header)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a header");
	int rc = naos_frame_read_at(frame, header, place.header_bytes, place.header_offset, &got, err);
	if (rc == 0) {
		*ret = naos_steal(header);
		*ret_bytes = got;
	}
	return rc;
}

static bool is_image(const uint8_t *header, uint64_t bytes)
{
	const uint8_t *kind = naos_fits_card_find(header, bytes, "XTENSION"), *packed = naos_fits_card_find(header, bytes, "ZIMAGE");
	long long axes = 0;
	if (packed && packed[29] == 'T')
		return true;
	if (kind && memcmp(kind + 10, "'IMAGE   '", 10) != 0)
		return false;
	return naos_fits_card_number(header, bytes, "NAXIS", &axes) && axes > 0;
}

int naos_catalogue_header_read(struct naos_frame *frame, const struct naos_catalogue_keywords *keywords, json_t **ret,
			       struct naos_error *err)
{
	json_t *attributes = json_object();
	size_t units = naos_frame_units(frame);
	bool found = false;
	int rc = attributes ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory for attributes");
	for (size_t i = 0; rc == 0 && !found && i < units && i < NAOS_CATALOGUE_MAX_UNITS; i++) {
		naos_autofree uint8_t *header = NULL;
		uint64_t bytes = 0;
		rc = read_header(frame, i, &header, &bytes, err);
		found = rc == 0 && is_image(header, bytes);
		if (rc == 0 && (i == 0 || found))
			rc = naos_catalogue_header_add(attributes, header, bytes, err);
	}
	if (rc == 0)
		rc = naos_catalogue_header_finish(attributes, keywords, err);
	if (rc == 0)
		*ret = attributes;
	else
		json_decref(attributes);
	return rc;
}

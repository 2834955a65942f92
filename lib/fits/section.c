/* Sections and requests as text.  SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdarg.h>
#include <string.h>

#include "fits/cutout.h"

#define EXAMPLES "a section looks like [101:356,1:256], [*,1:256], [-*,1:256:2] or [356:101,1:256]"

static bool number(const char **at, uint64_t *ret)
{
	char *end;
	if (!isdigit((unsigned char)**at))
		return false;
	errno = 0;
	*ret = strtoull(*at, &end, 10);
	*at = end;
	return errno == 0 && *ret >= 1 && *ret <= INT64_MAX;
}

static bool axis(const char **at, struct naos_section *section, unsigned i)
{
	section->backwards[i] = **at == '-';
	*at += section->backwards[i];
	section->whole[i] = **at == '*';
	section->step[i] = 1;
	if (section->whole[i])
		(*at)++;
	else if (section->backwards[i] || !number(at, &section->from[i]) || *(*at)++ != ':' || !number(at, &section->to[i]))
		return false;
	if (**at != ':')
		return true;
	(*at)++;
	return number(at, &section->step[i]);
}

int naos_section_parse(const char *text, struct naos_section *ret, struct naos_error *err)
{
	struct naos_section section = { .axes = 0 };
	const char *at = text;
	bool bracket = *at == '[';
	at += bracket;
	for (;;) {
		if (section.axes == NAOS_CUTOUT_MAX_AXES)
			return naos_error_set(err, NAOS_E_LIMIT, "a section has at most %d axes", NAOS_CUTOUT_MAX_AXES);
		if (!axis(&at, &section, section.axes))
			return naos_error_set(err, NAOS_E_USAGE, EXAMPLES ", not '%s'", text);
		section.axes++;
		if (*at != ',')
			break;
		at++;
	}
	if (bracket ? strcmp(at, "]") != 0 : *at != 0)
		return naos_error_set(err, NAOS_E_USAGE, EXAMPLES ", not '%s'", text);
	*ret = section;
	return 0;
}

static void append(char *text, size_t room, size_t *used, const char *format, ...) __attribute__((format(printf, 4, 5)));
static void append(char *text, size_t room, size_t *used, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	int length = *used < room ? vsnprintf(text + *used, room - *used, format, list) : 0;
	va_end(list);
	*used += length > 0 ? (size_t)length : 0;
}

void naos_cut_request_text(const struct naos_cut_request *request, char *text, size_t bytes)
{
	size_t used = 0;
	text[0] = 0;
	append(text, bytes, &used, "%s", request->unit ? request->unit : "image");
	if (request->kind == NAOS_CUT_SKY)
		append(text, bytes, &used, " %.17g,%.17g %.17g,%.17g", request->sky.ra_deg, request->sky.dec_deg, request->sky.width_deg,
		       request->sky.height_deg);
	for (unsigned i = 0; request->kind == NAOS_CUT_SECTION && i < request->section.axes; i++) {
		const struct naos_section *section = &request->section;
		const char *comma = i ? "," : " ";
		if (section->whole[i])
			append(text, bytes, &used, "%s%s*", comma, section->backwards[i] ? "-" : "");
		else
			append(text, bytes, &used, "%s%llu:%llu", comma, (unsigned long long)section->from[i],
			       (unsigned long long)section->to[i]);
		append(text, bytes, &used, ":%llu", (unsigned long long)section->step[i]);
	}
}

const char *naos_cut_text(const struct naos_cut *cut, char *text, size_t bytes)
{
	size_t used = 0;
	text[0] = 0;
	for (unsigned i = 0; i < cut->axes; i++) {
		long long last = cut->first[i] + (long long)(cut->count[i] - 1) * cut->step[i];
		append(text, bytes, &used, "%s%lld:%lld", i ? "," : "[", cut->first[i], last);
		if (cut->step[i] != 1 && cut->step[i] != -1)
			append(text, bytes, &used, ":%lld", cut->step[i] < 0 ? -cut->step[i] : cut->step[i]);
	}
	append(text, bytes, &used, cut->axes ? "]" : "");
	return text;
}

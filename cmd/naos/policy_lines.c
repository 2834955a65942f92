/* SPDX-License-Identifier: Apache-2.0 */
#include "policy_lines.h"

#include <string.h>
#include <time.h>

static int read_line(const char *line, size_t bytes, const char *where,
		     int (*each)(void *context, json_t *object, const char *where, struct naos_error *err), void *context, struct naos_error *err)
{
	json_error_t reason;
	size_t blanks = strspn(line, " \t\r\n");
	if (blanks == bytes || line[blanks] == '#')
		return 0;
	if (bytes > NAOS_POLICY_MAX_LINE_BYTES)
		return naos_error_set(err, NAOS_E_LIMIT, "%s: a line of more than %zu bytes", where, NAOS_POLICY_MAX_LINE_BYTES);
	json_t *object = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &reason);
	if (!json_is_object(object)) {
		json_decref(object);
		return naos_error_set(err, NAOS_E_FORMAT, "%s: no JSON object on one line: %s", where, object ? "another value" : reason.text);
	}
	int rc = each(context, object, where, err);
	json_decref(object);
	return rc;
}

int policy_lines_read(const char *path, int (*each)(void *context, json_t *object, const char *where, struct naos_error *err),
		      void *context,
		      struct naos_error *err)
{
	bool standard = strcmp(path, "-") == 0;
	naos_autofclose FILE *opened = standard ? NULL : fopen(path, "re");
	FILE *file = standard ? stdin : opened;
	naos_autofree char *line = NULL;
	size_t room = 0, number = 0;
	int rc = 0;
	if (!file)
		return naos_error_set_errno(err, errno, "cannot open %s", path);
	for (ssize_t bytes; rc == 0 && (bytes = getline(&line, &room, file)) >= 0;) {
		char where[4200];
		(void)snprintf(where, sizeof(where), "%.4096s:%zu", standard ? "standard input" : path, ++number);
		rc = read_line(line, (size_t)bytes, where, each, context, err);
	}
	if (rc == 0 && ferror(file))
		rc = naos_error_set_errno(err, errno ? errno : EIO, "cannot read %s", path);
	return rc;
}

int policy_option_now(const struct naos_invocation *invocation, int64_t *ret_us, struct naos_error *err)
{
	const char *text = naos_option_value(invocation, "now");
	struct timespec clock;
	if (!text) {
		(void)clock_gettime(CLOCK_REALTIME, &clock);
		*ret_us = (int64_t)clock.tv_sec * 1000000 + clock.tv_nsec / 1000;
		return 0;
	}
	const char *wrong = naos_policy_time_parse(text, strlen(text), ret_us);
	return wrong ? naos_error_set(err, NAOS_E_USAGE, "--now: the time '%.40s' %s", text, wrong) : 0;
}

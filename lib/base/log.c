/* Log lines of programs.  SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <string.h>
#include <syslog.h>
#include <jansson.h>

#include "base/io.h"

#define TEXT_BYTES (NAOS_ERROR_MESSAGE_BYTES + 256)

static const char *program_name = "naos";
static enum naos_log_level threshold = NAOS_LOG_WARNING;
static bool as_json, to_syslog;

void naos_log_start(const char *program, enum naos_log_level level)
{
	program_name = program;
	threshold = level;
}

enum naos_log_level naos_log_level(void)
{
	return threshold;
}

void naos_log_json(bool json)
{
	as_json = json;
}

void naos_log_syslog(void)
{
	openlog(program_name, LOG_PID | LOG_NDELAY, LOG_DAEMON);
	to_syslog = true;
}

static void write_line(const char *line)
{
	if (write(STDERR_FILENO, line, strlen(line)) < 0)
		return; /* nothing sensible is left to do */
}

/* `members` are added to the object and released; NULL for none. */
static void write_json(enum naos_log_level level, const char *text, json_t *members)
{
	char printable[4 * TEXT_BYTES];
	const char *name = level == NAOS_LOG_ERROR ? "error" : level == NAOS_LOG_WARNING ? "warning" :
			   level == NAOS_LOG_INFO ? "info" : "debug";
	json_t *message = json_string(text);
	if (!message) /* not UTF-8: a name in the text that nobody made printable */
		message = json_string(naos_io_printable(text, printable, sizeof(printable)));
	json_t *object = json_pack("{s:s, s:o*}", "level", name, "message", message);
	if (object && members)
		(void)json_object_update(object, members);
	json_decref(members);
	naos_autofree char *dump = object ? json_dumps(object, JSON_COMPACT) : NULL, *line = NULL;
	json_decref(object);
	if (dump && asprintf(&line, "%s\n", dump) > 0)
		write_line(line);
}

void naos_log(enum naos_log_level level, const char *format, ...)
{
	if (level > threshold)
		return;
	char text[TEXT_BYTES], line[TEXT_BYTES + 64];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	for (char *at = text; *at; at++)
		if ((unsigned char)*at < 0x20 || *at == 0x7f) /* a name in the text must not drive a terminal */
			*at = *at == '\n' ? ' ' : '?';
	if (to_syslog) {
		syslog((int)level, "%s", text);
		return;
	}
	if (as_json) {
		write_json(level, text, NULL);
		return;
	}
	if (getenv("JOURNAL_STREAM")) /* the journal reads <level> at the start of a line */
		(void)snprintf(line, sizeof(line), "<%d>%s\n", (int)level, text);
	else
		(void)snprintf(line, sizeof(line), "%s: %s%s\n", program_name, level == NAOS_LOG_WARNING ? "warning: " : "", text);
	write_line(line);
}

void naos_log_error(const struct naos_error *err)
{
	const struct naos_error_info *info = naos_error_info(err->code);
	const char *sentence = err->message[0] ? err->message : info->sentence;
	if (as_json && !to_syslog) {
		write_json(NAOS_LOG_ERROR, sentence,
			   json_pack("{s:{s:s, s:i, s:s, s:i, s:b, s:s}}", "error", "name", info->name, "code", err->code, "category",
				     info->category, "exit_status", info->exit_status, "retryable", (int)info->retryable, "remedy",
				     info->remedy));
		return;
	}
	naos_log(NAOS_LOG_ERROR, "%s", sentence);
	naos_log(NAOS_LOG_ERROR, "  %s (%s)", info->remedy, info->name);
}

/* Log lines of programs.  SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <string.h>

static const char *program_name = "naos";
static enum naos_log_level threshold = NAOS_LOG_WARNING;

void naos_log_start(const char *program, enum naos_log_level level)
{
	program_name = program;
	threshold = level;
}

enum naos_log_level naos_log_level(void)
{
	return threshold;
}

void naos_log(enum naos_log_level level, const char *format, ...)
{
	if (level > threshold)
		return;
	char text[NAOS_ERROR_MESSAGE_BYTES + 256], line[sizeof(text) + 64];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	for (char *at = text; *at; at++)
		if (*at == '\n' || *at == '\r')
			*at = ' ';
	int bytes;
	if (getenv("JOURNAL_STREAM")) /* the journal reads <level> at the start of a line */
		bytes = snprintf(line, sizeof(line), "<%d>%s\n", (int)level, text);
	else
		bytes = snprintf(line, sizeof(line), "%s: %s%s\n", program_name, level == NAOS_LOG_WARNING ? "warning: " : "", text);
	if (bytes > 0 && write(STDERR_FILENO, line, (size_t)bytes) < 0)
		return; /* nothing sensible is left to do */
}

void naos_log_error(const struct naos_error *err)
{
	const struct naos_error_info *info = naos_error_info(err->code);
	naos_log(NAOS_LOG_ERROR, "%s", err->message[0] ? err->message : info->sentence);
	naos_log(NAOS_LOG_ERROR, "  %s (%s)", info->remedy, info->name);
}

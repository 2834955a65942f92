/* naos doctor: what is missing or unsafe on this machine.  SPDX-License-Identifier: Apache-2.0 */
#include "doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "command.h"

static const char *const status_names[] = { "ok", "warning", "problem" };

void naos_finding_add(struct naos_examination *examination, enum naos_finding_status status, const char *check, const char *why,
		      const char *remedy, const char *format, ...)
{
	char text[sizeof(examination->findings[0].what)];
	if (examination->count == NAOS_MAX_FINDINGS)
		abort(); /* more checks than the limit in doctor.h */
	struct naos_finding *finding = &examination->findings[examination->count++];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	(void)naos_io_printable(text, finding->what, sizeof(finding->what));
	finding->status = status;
	finding->check = check;
	finding->why = why;
	finding->remedy = remedy;
}

static void print_text(const struct naos_examination *examination, const unsigned counts[3])
{
	static const char *const colours[] = { "\033[32m", "\033[33m", "\033[31m" };
	bool coloured = isatty(STDOUT_FILENO) && !getenv("NO_COLOR") && !(getenv("TERM") && strcmp(getenv("TERM"), "dumb") == 0);
	for (size_t i = 0; i < examination->count; i++) {
		const struct naos_finding *finding = &examination->findings[i];
		printf("%s%-8s%s %-12s %s\n", coloured ? colours[finding->status] : "", status_names[finding->status],
		       coloured ? "\033[0m" : "", finding->check, finding->what);
		if (finding->status != NAOS_FINDING_OK)
			printf("%22swhy: %s\n%22sremedy: %s\n", "", finding->why, "", finding->remedy);
	}
	printf("%u ok, %u warning%s, %u problem%s\n", counts[0], counts[1], counts[1] == 1 ? "" : "s", counts[2],
	       counts[2] == 1 ? "" : "s");
}

static int print_json(const struct naos_examination *examination, const unsigned counts[3], struct naos_error *err)
{
	json_t *findings = json_array();
	for (size_t i = 0; i < examination->count; i++) {
		const struct naos_finding *finding = &examination->findings[i];
		(void)json_array_append_new(findings, json_pack("{s:s, s:s, s:o, s:s, s:s*}", "status", status_names[finding->status],
							       "check", finding->check, "what", naos_json_text(finding->what), "why",
							       finding->why, "remedy", finding->remedy));
	}
	return naos_print_json(json_pack("{s:o, s:i, s:i, s:i}", "findings", findings, "ok", counts[0], "warnings", counts[1],
					 "problems", counts[2]), err);
}

static int run_doctor(struct naos_invocation *invocation, struct naos_error *err)
{
	naos_autofree struct naos_examination *examination = calloc(1, sizeof(*examination));
	unsigned counts[3] = { 0 };
	int rc = 0;
	if (!examination)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the findings");
	examination->root = "";
	examination->config_path = invocation->config_path;
	examination->core_limit = invocation->core_limit;
	examination->directory = invocation->operand_count ? invocation->operands[0] : NULL;
	naos_examine_machine(examination);
	naos_examine_config(examination);
	naos_examine_gpu(examination);
	if (examination->directory)
		naos_examine_directory(examination);
	examination->config = naos_config_free(examination->config);
	for (size_t i = 0; i < examination->count; i++)
		counts[examination->findings[i].status]++;
	if (invocation->json)
		rc = print_json(examination, counts, err);
	else
		print_text(examination, counts);
	if (rc == 0 && counts[NAOS_FINDING_PROBLEM] > 0)
		rc = naos_error_set(err, NAOS_E_CHECK, "%u %s found on this machine", counts[NAOS_FINDING_PROBLEM],
				    counts[NAOS_FINDING_PROBLEM] == 1 ? "problem was" : "problems were");
	return rc;
}

const struct naos_command naos_command_doctor = {
	.path = "doctor", .operands = "[DIRECTORY]",
	.summary = "Say what is missing or unsafe on this machine, and in the file system of DIRECTORY",
	.example = "naos doctor /scratch/genomes", .max_operands = 1, .run = run_doctor, .without_config = true,
};

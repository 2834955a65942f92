/* Asking before what can't be undone.  SPDX-License-Identifier: Apache-2.0 */
#include "confirm.h"

#include <string.h>

int naos_confirm(const char *question, const char *answer, struct naos_error *err)
{
	char line[256];
	if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
		return naos_error_set(err, NAOS_E_USAGE, "this can't be undone, and nobody can be asked here: run it on a terminal or give --yes");
	(void)fputs(question, stderr);
	(void)fflush(stderr);
	if (!fgets(line, sizeof(line), stdin))
		line[0] = 0;
	line[strcspn(line, "\r\n")] = 0;
	if (strcmp(line, answer) != 0)
		return naos_error_set(err, NAOS_E_INTERRUPTED, "not confirmed, so nothing was done");
	return 0;
}

/* JSON results of commands.  SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "command.h"

int naos_print_json(json_t *value, struct naos_error *err)
{
	if (!value)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the JSON output");
	naos_autofree char *text = json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(17));
	json_decref(value);
	if (!text)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the JSON output");
	(void)puts(text);
	return 0;
}

json_t *naos_json_text(const char *text)
{
	json_t *value = json_string(text);
	if (value)
		return value;
	size_t bytes = 4 * strlen(text) + 1;
	naos_autofree char *printable = malloc(bytes + 8);
	return printable ? json_string(naos_io_printable(text, printable, bytes + 8)) : NULL;
}

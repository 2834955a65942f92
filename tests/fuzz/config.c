/* Any text as configuration file.  What parses must answer every question about itself.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/config.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	naos_autoconfig struct naos_config *config = NULL;
	const struct naos_config_key *row;
	const char *name;
	struct naos_error err = NAOS_ERROR_INIT;
	if (naos_config_parse((const char *)data, bytes, "fuzz", &config, &err) != 0) {
		if (err.code == 0 || err.message[0] == 0)
			abort(); /* a refusal always says why */
		return 0;
	}
	for (unsigned i = 0; (row = naos_config_key_row(i)); i++)
		for (unsigned j = 0; (name = row->named ? naos_config_section_name(config, row->section, j) : j ? NULL : ""); j++) {
			if (strlen(naos_config_string(config, row->section, row->named ? name : NULL, row->key)) > bytes + 4096)
				abort();
			if (strcmp(row->type, "size") == 0 || strcmp(row->type, "duration") == 0 || strcmp(row->type, "count") == 0)
				(void)naos_config_number(config, row->section, row->named ? name : NULL, row->key);
		}
	return 0;
}

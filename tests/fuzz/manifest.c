/* Any text as manifest of a tree.  What parses answers for each of its paths.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "fuzz.h"
#include "seal/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	const struct naos_manifest_entry found = { .kind = NAOS_MANIFEST_FILE };
	struct naos_manifest *manifest;
	struct naos_error err = NAOS_ERROR_INIT;
	const char *path, *before = NULL;
	if (naos_manifest_parse((const char *)data, bytes, &manifest, &err) != 0) {
		if (err.code == 0 || err.message[0] == 0)
			abort(); /* a refusal always says why */
		return 0;
	}
	for (size_t index = 0; (path = naos_manifest_unseen(manifest, &index)); before = path)
		if (path[0] == 0 || strlen(path) > bytes || (before && strcmp(before, path) >= 0))
			abort();
	for (size_t index = 0; (path = naos_manifest_unseen(manifest, &index));)
		if (naos_manifest_check(manifest, path, &found, "name", &err) == 0 && found.bytes != 0)
			abort();
	size_t index = 0;
	if (naos_manifest_unseen(manifest, &index))
		abort(); /* each was seen now */
	naos_manifest_free(manifest);
	return 0;
}

/* Any text as the kernel's list of mounts: users choose the names in it.  SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mounts.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	naos_automounts struct naos_mounts mounts = { .items = NULL };
	struct naos_error err = NAOS_ERROR_INIT;
	char *text = strndup((const char *)data, bytes);
	size_t length = text ? strlen(text) : 0, used = 0;
	if (!text || naos_mounts_parse(text, &mounts, &err) != 0)
		return 0;
	for (size_t i = 0; i < mounts.count; i++) {
		const struct naos_mount *mount = &mounts.items[i];
		/* unescaping only makes shorter, and nothing is used twice */
		used += strlen(mount->point) + strlen(mount->type) + strlen(mount->source) + strlen(mount->options);
		(void)naos_mount_is_fileset(mount);
	}
	if (used > length)
		abort();
	return 0;
}

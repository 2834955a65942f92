/* Any text as the address of a token.  A refusal never repeats what could be a PIN.  SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "keys/uri.h"

static void need_absolute(const char *path)
{
	if (path && path[0] != '/')
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct naos_token_uri uri = { 0 };
	struct naos_error err = NAOS_ERROR_INIT;
	naos_autofree char *text = strndup((const char *)data, bytes);
	if (!text)
		return 0;
	if (naos_token_uri_parse(text, &uri, &err) != 0) {
		const char *pin = strstr(text, "pin-value=");
		if (err.code == 0 || err.message[0] == 0 || uri.token || uri.pin_source)
			abort();
		if (pin && strlen(pin) > 40 && strstr(err.message, pin + strlen("pin-value=")))
			abort();
		return 0;
	}
	need_absolute(uri.module_path);
	naos_token_uri_clear(&uri);
	return 0;
}

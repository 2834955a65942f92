/* Any bytes as a wrapped key.  What decodes must encode to the very bytes that were read.  SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "keys/blob.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct naos_cursor in = naos_cursor_reader(data, bytes);
	struct naos_blob blob;
	struct naos_error err = NAOS_ERROR_INIT;
	uint8_t again[NAOS_BLOB_MAX_BYTES], associated[NAOS_BLOB_ASSOCIATED_BYTES];
	if (naos_blob_decode(&in, &blob, &err) != 0) {
		if (err.code != NAOS_E_FORMAT || err.message[0] == 0)
			abort(); /* a refusal always says why */
		return 0;
	}
	struct naos_cursor out = naos_cursor_writer(again, sizeof(again));
	naos_blob_encode(&blob, &out);
	if (!naos_cursor_ok(&out) || out.position != in.position || memcmp(again, data, out.position) != 0)
		abort();
	naos_blob_associated(&(struct naos_wrap_context){ .kind = NAOS_WRAP_FILE }, &blob, associated);
	return 0;
}

/* Any bytes as KMIP message, request or response by its third byte.  What is read and can be written again is written to
 * the same bytes a second time.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "fuzz.h"
#include "kmip/message.h"

#define MAX_BYTES ((size_t)64 << 10)

struct either {
	bool is_request;
	struct naos_kmip_request request;
	struct naos_kmip_response response;
};

static int decode(const uint8_t *data, size_t bytes, struct naos_kmip_arena *arena, struct either *ret, struct naos_error *err)
{
	return ret->is_request ? naos_kmip_request_decode(data, bytes, arena, &ret->request, err) :
				 naos_kmip_response_decode(data, bytes, arena, &ret->response, err);
}

static int encode(const struct either *message, struct naos_cursor *out, struct naos_error *err)
{
	return message->is_request ? naos_kmip_request_encode(&message->request, out, err) :
				     naos_kmip_response_encode(&message->response, out, err);
}

static void frame(bool is_request, const uint8_t *data, size_t bytes)
{
	struct naos_error err = NAOS_ERROR_INIT;
	size_t need = 0, seen = 0;
	int rc;
	do {
		seen = need;
		rc = naos_kmip_frame(is_request ? NAOS_KMIP_REQUESTS : NAOS_KMIP_RESPONSES, data, seen, MAX_BYTES, &need, &err);
		if (rc == 0 && (need < seen || need > MAX_BYTES))
			abort();
	} while (rc == 0 && need > seen && need <= bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static uint8_t once[MAX_BYTES], twice[MAX_BYTES];
	struct either message = { .is_request = bytes > 2 && data[2] == 0x78 }, again = message;
	struct naos_cursor first = naos_cursor_writer(once, sizeof(once)), second = naos_cursor_writer(twice, sizeof(twice));
	struct naos_error err = NAOS_ERROR_INIT;
	naos_autoarena struct naos_kmip_arena *arena = NULL;
	if (naos_kmip_arena_create(NAOS_KMIP_ARENA_BYTES, &arena, &err) != 0)
		return 0;
	frame(message.is_request, data, bytes);
	if (decode(data, bytes, arena, &message, &err) != 0) {
		if (err.code == 0 || err.message[0] == 0)
			abort(); /* a refusal always says why */
		return 0;
	}
	if (encode(&message, &first, &err) != 0)
		return 0;
	if (decode(once, first.position, arena, &again, &err) != 0 || encode(&again, &second, &err) != 0 ||
	    first.position != second.position || memcmp(once, twice, first.position) != 0)
		abort();
	return 0;
}

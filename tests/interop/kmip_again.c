/* For tests/interop: reads KMIP messages from standard input, one a line in hexadecimal, and answers each with one line:
 * "same" (decoded to structs and written again to the same bytes), "raw SENTENCE" (the same, but a payload was kept as
 * it stood, because of …), "differs …" or "refused SENTENCE".  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/uuid.h"
#include "kmip/message.h"

static const char *raw_request(const struct naos_kmip_request *request)
{
	for (size_t i = 0; i < request->batch.count; i++)
		if (request->batch.items[i].reason)
			return request->batch.items[i].problem;
	return NULL;
}

static const char *raw_response(const struct naos_kmip_response *response)
{
	for (size_t i = 0; i < response->batch.count; i++)
		if (response->batch.items[i].problem)
			return response->batch.items[i].problem;
	return NULL;
}

static void answer(const uint8_t *message, size_t bytes, struct naos_kmip_arena *arena)
{
	struct naos_kmip_request request = { .version = 0 };
	struct naos_kmip_response response = { .version = 0 };
	struct naos_error err = NAOS_ERROR_INIT;
	naos_autosecret struct naos_secret *again = NULL;
	bool is_request = bytes > 2 && message[2] == 0x78;
	int rc = is_request ? naos_kmip_request_decode(message, bytes, arena, &request, &err) :
			      naos_kmip_response_decode(message, bytes, arena, &response, &err);
	if (rc == 0)
		rc = is_request ? naos_kmip_request_write(&request, 0, &again, &err) :
				  naos_kmip_response_write(&response, 0, &again, &err);
	const char *raw = rc != 0 ? NULL : is_request ? raw_request(&request) : raw_response(&response);
	if (rc != 0) {
		printf("refused %s\n", err.message);
	} else if (!naos_secret_equal(again, message, bytes)) {
		printf("differs: %zu bytes instead of %zu\n", naos_secret_bytes(again), bytes);
	} else {
		printf("%s%s\n", raw ? "raw " : "same", raw ? raw : "");
	}
	naos_kmip_arena_reset(arena);
}

int main(void)
{
	naos_autoarena struct naos_kmip_arena *arena = NULL;
	naos_autofree char *line = NULL;
	struct naos_error err = NAOS_ERROR_INIT;
	size_t room = 0;
	ssize_t length;
	if (naos_kmip_arena_create(NAOS_KMIP_ARENA_BYTES, &arena, &err) != 0)
		return 1;
	while ((length = getline(&line, &room, stdin)) > 0) {
		line[strcspn(line, "\n")] = 0;
		size_t bytes = strlen(line) / 2;
		naos_autofree uint8_t *message = malloc(bytes + 1);
		if (!message || !naos_hex_parse(line, message, bytes))
			return 1;
		answer(message, bytes, arena);
	}
	return 0;
}

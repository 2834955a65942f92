/* The captured messages of tests/data/kmip, and both directions of the codec for either role.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_TESTS_KMIP_HELPER_H
#define NAOS_TESTS_KMIP_HELPER_H

#include <fcntl.h>

#include "unit.h"

#include "base/io.h"
#include "base/uuid.h"
#include "kmip/message.h"

#define MAX_CAPTURES 400

struct capture {
	char name[64]; /* "v14-03-Create-AES256.req" */
	uint8_t *data;
	size_t bytes;
	enum naos_kmip_role role;
};

struct captures {
	struct capture items[MAX_CAPTURES];
	size_t count;
};

static inline void captures_read(struct captures *ret)
{
	const char *source = getenv("NAOS_SOURCE");
	char path[4096];
	size_t bytes;
	naos_autofree uint8_t *text = NULL;
	struct naos_error err = NAOS_ERROR_INIT;
	snprintf(path, sizeof(path), "%s/tests/data/kmip/messages.txt", source ? source : ".");
	assert_ok(naos_io_read_file(AT_FDCWD, path, (size_t)1 << 20, &text, &bytes, &err), &err);
	naos_autofree char *lines = strndup((const char *)text, bytes);
	assert_non_null(lines);
	memset(ret, 0, sizeof(*ret));
	char *rest = lines, *line;
	while ((line = strsep(&rest, "\n"))) {
		char *space = strchr(line, ' ');
		if (line[0] == '#' || !space)
			continue;
		assert_true(ret->count < MAX_CAPTURES);
		struct capture *capture = &ret->items[ret->count++];
		snprintf(capture->name, sizeof(capture->name), "%.*s", (int)(space - line), line);
		capture->bytes = strlen(space + 1) / 2;
		capture->data = malloc(capture->bytes); /* of exactly its size, so that any read behind it is seen */
		assert_true(capture->data && naos_hex_parse(space + 1, capture->data, capture->bytes));
		capture->role = strstr(capture->name, ".req") ? NAOS_KMIP_REQUESTS : NAOS_KMIP_RESPONSES;
	}
}

static inline void captures_free(struct captures *captures)
{
	for (size_t i = 0; i < captures->count; i++)
		free(captures->items[i].data);
}

static inline const struct capture *captures_find(const struct captures *captures, const char *name)
{
	for (size_t i = 0; i < captures->count; i++)
		if (strcmp(captures->items[i].name, name) == 0)
			return &captures->items[i];
	fail_msg("no message %s", name);
	return NULL;
}

/* Either kind of message, decoded. */
struct either {
	enum naos_kmip_role role;
	struct naos_kmip_request request;
	struct naos_kmip_response response;
};

static inline int either_decode(enum naos_kmip_role role, const void *data, size_t bytes, struct naos_kmip_arena *arena,
				struct either *ret, struct naos_error *err)
{
	ret->role = role;
	return role == NAOS_KMIP_REQUESTS ? naos_kmip_request_decode(data, bytes, arena, &ret->request, err) :
					    naos_kmip_response_decode(data, bytes, arena, &ret->response, err);
}

static inline int either_encode(const struct either *message, struct naos_cursor *out, struct naos_error *err)
{
	return message->role == NAOS_KMIP_REQUESTS ? naos_kmip_request_encode(&message->request, out, err) :
						     naos_kmip_response_encode(&message->response, out, err);
}

#endif

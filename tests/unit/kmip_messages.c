/* All captured messages, both ways through the typed layer; damaged ones.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kmip_helper.h"

static struct captures captures;

static int read_captures(void **state)
{
	captures_read(&captures);
	return 0;
}

static int free_captures(void **state)
{
	captures_free(&captures);
	return 0;
}

/* Why a payload was left as it stood, NULL if all of them are typed. */
static const char *left_raw(const struct either *message)
{
	size_t count = message->role == NAOS_KMIP_REQUESTS ? message->request.batch.count : message->response.batch.count;
	for (size_t i = 0; i < count; i++) {
		const struct naos_kmip_request_item *request = &message->request.batch.items[i];
		const struct naos_kmip_response_item *response = &message->response.batch.items[i];
		if (message->role == NAOS_KMIP_REQUESTS ? request->raw_payload.type != 0 : response->raw_payload.type != 0)
			return message->role == NAOS_KMIP_REQUESTS ? request->problem : response->problem;
	}
	return NULL;
}

/* The one message whose payload is not what its version of KMIP says: a TemplateAttribute in 2.0. */
static bool known_wrong(const char *name)
{
	return strcmp(name, "v20-24-Rekey.req") == 0;
}

static void all_are_written_again_byte_for_byte(void **state)
{
	naos_autoarena struct naos_kmip_arena *arena = NULL;
	struct naos_error err = NAOS_ERROR_INIT;
	size_t typed = 0;
	assert_ok(naos_kmip_arena_create(NAOS_KMIP_ARENA_BYTES, &arena, &err), &err);
	assert_int_equal(captures.count, 352);
	for (size_t i = 0; i < captures.count; i++) {
		const struct capture *capture = &captures.items[i];
		naos_autofree uint8_t *again = calloc(1, capture->bytes);
		struct naos_cursor out = naos_cursor_writer(again, capture->bytes);
		struct either message = { .role = 0 };
		assert_ok(either_decode(capture->role, capture->data, capture->bytes, arena, &message, &err), &err);
		assert_ok(either_encode(&message, &out, &err), &err);
		assert_true(naos_cursor_at_end(&out));
		assert_memory_equal(again, capture->data, capture->bytes);
		if (!known_wrong(capture->name))
			assert_null(left_raw(&message));
		typed += !left_raw(&message);
		naos_kmip_arena_reset(arena);
	}
	assert_int_equal(typed, 351);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_are_written_again_byte_for_byte),
	};
	return cmocka_run_group_tests(tests, read_captures, free_captures);
}

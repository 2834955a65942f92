/* Messages made by hand, and what decoding tells of them: versions, missing and unknown fields, batches, limits, secrets.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kmip_helper.h"

#include "kmip/reason.h"

static struct captures captures;
static uint8_t buffer[1 << 16];
static struct naos_kmip_arena *arena;

static int begin(void **state)
{
	struct naos_error err = NAOS_ERROR_INIT;
	captures_read(&captures);
	return naos_kmip_arena_create(NAOS_KMIP_ARENA_BYTES, &arena, &err);
}

static int end(void **state)
{
	captures_free(&captures);
	arena = naos_kmip_arena_free(arena);
	return 0;
}

static struct naos_kmip_request decoded_request(const void *data, size_t bytes)
{
	struct naos_kmip_request request = { .version = 0 };
	struct naos_error err = NAOS_ERROR_INIT;
	naos_kmip_arena_reset(arena);
	assert_ok(naos_kmip_request_decode(data, bytes, arena, &request, &err), &err);
	return request;
}

static struct naos_kmip_request captured_request(const char *name)
{
	const struct capture *capture = captures_find(&captures, name);
	return decoded_request(capture->data, capture->bytes);
}

static struct naos_kmip_response captured_response(const char *name)
{
	const struct capture *capture = captures_find(&captures, name);
	struct naos_kmip_response response = { .version = 0 };
	struct naos_error err = NAOS_ERROR_INIT;
	naos_kmip_arena_reset(arena);
	assert_ok(naos_kmip_response_decode(capture->data, capture->bytes, arena, &response, &err), &err);
	return response;
}

static size_t encoded_request(const struct naos_kmip_request *request)
{
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_cursor out = naos_cursor_writer(buffer, sizeof(buffer));
	assert_ok(naos_kmip_request_encode(request, &out, &err), &err);
	return out.position;
}

static int request_code(const struct naos_kmip_request *request, struct naos_error *err)
{
	struct naos_cursor out = naos_cursor_writer(buffer, sizeof(buffer));
	int rc = naos_kmip_request_encode(request, &out, err);
	assert_int_equal(naos_cursor_ok(&out), rc == 0);
	return rc;
}

static struct naos_kmip_request_item encrypt_item(const uint8_t *data, size_t bytes)
{
	static const struct naos_kmip_cryptographic_parameters gcm = {
		.block_cipher_mode = NAOS_KMIP_MODE_GCM,
		.cryptographic_algorithm = NAOS_KMIP_ALGORITHM_AES,
		.tag_length = { true, 16 },
	};
	static const uint8_t nonce[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 };
	return (struct naos_kmip_request_item){
		.operation = NAOS_KMIP_OPERATION_ENCRYPT,
		.payload.encrypt = { .unique_identifier = naos_kmip_text("19"),
				     .cryptographic_parameters = &gcm,
				     .data = naos_kmip_bytes(data, bytes),
				     .iv_counter_nonce = naos_kmip_bytes(nonce, sizeof(nonce)),
				     .additional_data = naos_kmip_bytes("example-aad", 11) },
	};
}

static void messages_made_by_hand_are_those_of_another_client(void **state)
{
	uint8_t data[32];
	for (uint8_t i = 0; i < sizeof(data); i++)
		data[i] = i;
	struct naos_kmip_request_item encrypt = encrypt_item(data, sizeof(data));
	struct naos_kmip_request request = { .version = NAOS_KMIP_1_4, .batch = { &encrypt, 1 } };
	const struct capture *capture = captures_find(&captures, "v14-07-Encrypt-GCM-32.req");
	assert_int_equal(encoded_request(&request), capture->bytes);
	assert_memory_equal(buffer, capture->data, capture->bytes);

	const struct naos_kmip_name name = { naos_kmip_text("mek-v14-17319"), NAOS_KMIP_NAME_TYPE_UNINTERPRETED_TEXT_STRING };
	const struct naos_kmip_attribute attributes[] = {
		naos_kmip_attribute_enum(NAOS_KMIP_TAG_CRYPTOGRAPHIC_ALGORITHM, NAOS_KMIP_ALGORITHM_AES),
		naos_kmip_attribute_integer(NAOS_KMIP_TAG_CRYPTOGRAPHIC_LENGTH, 256),
		naos_kmip_attribute_integer(NAOS_KMIP_TAG_CRYPTOGRAPHIC_USAGE_MASK, NAOS_KMIP_USAGE_ENCRYPT | NAOS_KMIP_USAGE_DECRYPT),
		naos_kmip_attribute_structure(NAOS_KMIP_TAG_NAME, &name),
	};
	struct naos_kmip_request_item create = {
		.operation = NAOS_KMIP_OPERATION_CREATE,
		.payload.create = { .object_type = NAOS_KMIP_OBJECT_TYPE_SYMMETRIC_KEY,
				    .attributes = { .items = attributes, .count = 4 } },
	};
	request.batch.items = &create;
	capture = captures_find(&captures, "v14-03-Create-AES256.req");
	assert_int_equal(encoded_request(&request), capture->bytes);
	assert_memory_equal(buffer, capture->data, capture->bytes);

	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_cursor out = naos_cursor_writer(buffer, sizeof(buffer));
	struct naos_kmip_response_item failed = {
		.operation = NAOS_KMIP_OPERATION_GET,
		.status = NAOS_KMIP_STATUS_OPERATION_FAILED,
		.reason = NAOS_KMIP_REASON_ITEM_NOT_FOUND,
		.message = naos_kmip_text("Could not locate object: 999999"),
	};
	struct naos_kmip_response response = { .version = NAOS_KMIP_1_4,
					       .time_stamp = naos_kmip_date(1796049508),
					       .batch = { &failed, 1 } };
	capture = captures_find(&captures, "v14-22-Get-not-found-error.rsp");
	assert_ok(naos_kmip_response_encode(&response, &out, &err), &err);
	assert_int_equal(out.position, capture->bytes);
	assert_memory_equal(buffer, capture->data, capture->bytes);
}

static void decoding_tells_what_is_there(void **state)
{
	struct naos_kmip_request request = captured_request("v14-03-Create-AES256.req");
	assert_int_equal(request.version, NAOS_KMIP_1_4);
	assert_int_equal(request.batch.count, 1);
	assert_false(request.any_version);
	assert_false(request.time_stamp.present);
	const struct naos_kmip_create_request *create = &request.batch.items[0].payload.create;
	assert_int_equal(create->object_type, NAOS_KMIP_OBJECT_TYPE_SYMMETRIC_KEY);
	assert_int_equal(create->attributes.count, 4);
	const struct naos_kmip_attribute *length = naos_kmip_attributes_find(&create->attributes,
									     NAOS_KMIP_TAG_CRYPTOGRAPHIC_LENGTH, 0);
	assert_non_null(length);
	assert_int_equal(length->value.integer, 256);
	assert_true(naos_kmip_text_equal(length->name, "Cryptographic Length"));
	assert_null(naos_kmip_attributes_find(&create->attributes, NAOS_KMIP_TAG_CRYPTOGRAPHIC_LENGTH, 1));
	const struct naos_kmip_attribute *name = naos_kmip_attributes_find(&create->attributes, NAOS_KMIP_TAG_NAME, 0);
	assert_non_null(name);
	assert_true(naos_kmip_text_equal(name->value.name->value, "mek-v14-17319"));

	/* 2.0 says the same with tags. */
	request = captured_request("v20-03-Create-AES256.req");
	create = &request.batch.items[0].payload.create;
	assert_int_equal(request.version, NAOS_KMIP_2_0);
	assert_int_equal(naos_kmip_attributes_find(&create->attributes, NAOS_KMIP_TAG_CRYPTOGRAPHIC_LENGTH, 0)->value.integer, 256);

	request = captured_request("v14-25-Revoke-Unspecified.req");
	assert_int_equal(request.batch.items[0].payload.revoke.reason->code, NAOS_KMIP_REVOCATION_CESSATION_OF_OPERATION);
	struct naos_kmip_response response = captured_response("v14-01-DiscoverVersions.rsp");
	assert_true(response.batch.items[0].has_payload && response.time_stamp.present);
	assert_int_equal(response.batch.items[0].payload.discover_versions.versions.count, 6);
	assert_int_equal(response.batch.items[0].payload.discover_versions.versions.items[1], NAOS_KMIP_1_4);
	response = captured_response("v14-23-Destroy-Active-error.rsp");
	assert_int_equal(response.batch.items[0].status, NAOS_KMIP_STATUS_OPERATION_FAILED);
	assert_int_equal(response.batch.items[0].reason, NAOS_KMIP_REASON_PERMISSION_DENIED);
	assert_false(response.batch.items[0].has_payload);
	request = captured_request("v14-10-Encrypt-GCM-32-batch3.req");
	assert_int_equal(request.batch.count, 3);
	assert_int_equal(request.batch.items[2].unique_batch_item_id.data[0], 0x32);
}

static bool inside(struct naos_kmip_bytes bytes, const struct naos_secret *message)
{
	const uint8_t *first = naos_secret_view(message);
	return bytes.data >= first && bytes.data + bytes.bytes <= first + naos_secret_bytes(message);
}

/* A message in secret memory is decoded without a copy of a key, and one with keys is made in secret memory. */
static void key_bytes_stay_in_secret_memory(void **state)
{
	const struct capture *capture = captures_find(&captures, "v14-20-Register-AES256.req");
	struct naos_error err = NAOS_ERROR_INIT;
	naos_autosecret struct naos_secret *message = NULL, *again = NULL, *kept = NULL;
	assert_ok(naos_kmip_bytes_keep(naos_kmip_bytes(capture->data, capture->bytes), &message, &err), &err);
	struct naos_kmip_request request = decoded_request(naos_secret_view(message), naos_secret_bytes(message));
	const struct naos_kmip_object *object = &request.batch.items[0].payload.register_object.object;
	assert_int_equal(naos_kmip_object_type(object), NAOS_KMIP_OBJECT_TYPE_SYMMETRIC_KEY);
	struct naos_kmip_bytes key = naos_kmip_block_material(naos_kmip_object_block(object));
	assert_int_equal(key.bytes, 32);
	assert_true(inside(key, message));
	assert_ok(naos_kmip_bytes_keep(key, &kept, &err), &err);
	assert_true(naos_secret_equal(kept, capture->data + (key.data - naos_secret_view(message)), 32));
	assert_ok(naos_kmip_request_write(&request, 0, &again, &err), &err);
	assert_true(naos_secret_equal(again, capture->data, capture->bytes));
	assert_code(naos_kmip_bytes_keep(naos_kmip_bytes(NULL, 0), &kept, &err), NAOS_E_LIMIT);

	capture = captures_find(&captures, "v14-08-Decrypt-GCM-32.rsp");
	message = naos_secret_free(message);
	assert_ok(naos_kmip_bytes_keep(naos_kmip_bytes(capture->data, capture->bytes), &message, &err), &err);
	struct naos_kmip_response response = { .version = 0 };
	naos_kmip_arena_reset(arena);
	assert_ok(naos_kmip_response_decode(naos_secret_view(message), capture->bytes, arena, &response, &err), &err);
	assert_true(inside(response.batch.items[0].payload.decrypt.data, message));
}

static void nothing_is_sent_that_the_version_does_not_have(void **state)
{
	struct naos_error err = NAOS_ERROR_INIT;
	const uint8_t data[32] = { 0 };
	struct naos_kmip_request_item item = encrypt_item(data, sizeof(data));
	struct naos_kmip_request request = { .version = NAOS_KMIP_1_3, .batch = { &item, 1 } };
	assert_code(request_code(&request, &err), NAOS_E_UNSUPPORTED); /* associated data */
	assert_non_null(strstr(err.message, "AuthenticatedEncryptionAdditionalData"));
	item.payload.encrypt.additional_data.data = NULL;
	assert_code(request_code(&request, &err), 0);
	request.version = NAOS_KMIP_1_1;
	assert_code(request_code(&request, &err), NAOS_E_UNSUPPORTED); /* the operation */
	request.any_version = true;
	assert_code(request_code(&request, &err), 0);

	struct naos_kmip_attribute fresh = naos_kmip_attribute_boolean(NAOS_KMIP_TAG_FRESH, true);
	struct naos_kmip_response_item answer = {
		.operation = NAOS_KMIP_OPERATION_GET_ATTRIBUTES,
		.payload.get_attributes = { .unique_identifier = naos_kmip_text("1"), .attributes = { .items = &fresh, .count = 1 } },
		.has_payload = true,
	};
	struct naos_kmip_response response = { .version = NAOS_KMIP_1_0, .time_stamp = naos_kmip_date(1), .batch = { &answer, 1 } };
	struct naos_cursor out = naos_cursor_writer(buffer, sizeof(buffer));
	assert_code(naos_kmip_response_encode(&response, &out, &err), NAOS_E_UNSUPPORTED);
	assert_false(naos_kmip_attribute_in_version(naos_kmip_attribute_info(NAOS_KMIP_TAG_FRESH), NAOS_KMIP_1_0));
	response.version = NAOS_KMIP_1_2;
	out = naos_cursor_writer(buffer, sizeof(buffer));
	assert_ok(naos_kmip_response_encode(&response, &out, &err), &err);

	/* What a peer sends too early is understood and marked; an operation is refused. */
	request = captured_request("v10-07-Encrypt-GCM-32.req");
	assert_true(request.any_version);
	assert_int_equal(request.batch.items[0].reason, NAOS_KMIP_REASON_OPERATION_NOT_SUPPORTED);
	assert_int_equal(request.batch.items[0].payload.encrypt.data.bytes, 32);
}

static void a_faulty_call_is_refused_with_the_name_of_the_field(void **state)
{
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_kmip_request_item item = { .operation = NAOS_KMIP_OPERATION_CREATE };
	struct naos_kmip_request request = { .version = NAOS_KMIP_1_4, .batch = { &item, 1 } };
	assert_code(request_code(&request, &err), NAOS_E_USAGE);
	assert_non_null(strstr(err.message, "ObjectType is missing in RequestPayload"));
	item = (struct naos_kmip_request_item){ .operation = NAOS_KMIP_OPERATION_GET,
						.payload.get.unique_identifier = naos_kmip_text("\xff") };
	assert_code(request_code(&request, &err), NAOS_E_USAGE);
	assert_non_null(strstr(err.message, "UniqueIdentifier is not UTF-8"));
	struct naos_kmip_attribute wrong = naos_kmip_attribute_integer(NAOS_KMIP_TAG_STATE, 1);
	item = (struct naos_kmip_request_item){ .operation = NAOS_KMIP_OPERATION_ADD_ATTRIBUTE,
						.payload.add_attribute.attribute = &wrong };
	assert_code(request_code(&request, &err), NAOS_E_USAGE);
	item = (struct naos_kmip_request_item){ .operation = NAOS_KMIP_OPERATION_ARCHIVE };
	assert_code(request_code(&request, &err), NAOS_E_USAGE);
	request.version = 0;
	assert_code(request_code(&request, &err), NAOS_E_USAGE);
}

static void a_message_that_does_not_fit_is_an_error(void **state)
{
	struct naos_error err = NAOS_ERROR_INIT;
	naos_autosecret struct naos_secret *message = NULL;
	naos_autofree uint8_t *data = calloc(1, NAOS_KMIP_MAX_MESSAGE_BYTES);
	assert_non_null(data);
	struct naos_kmip_request_item item = encrypt_item(data, 1);
	struct naos_kmip_request request = { .version = NAOS_KMIP_1_4, .batch = { &item, 1 } };
	size_t exact = encoded_request(&request);
	for (size_t room = 0; room <= exact; room++) {
		struct naos_cursor out = naos_cursor_writer(buffer, room);
		assert_int_equal(naos_kmip_request_encode(&request, &out, &err), room == exact ? 0 : NAOS_E_LIMIT);
	}
	assert_code(naos_kmip_request_write(&request, exact - 1, &message, &err), NAOS_E_LIMIT);
	assert_null(message);
	assert_ok(naos_kmip_request_write(&request, exact, &message, &err), &err);
	assert_int_equal(naos_secret_bytes(message), exact);
	/* The longest of all, which takes several attempts, and one item more. */
	size_t longest = NAOS_KMIP_MAX_MESSAGE_BYTES - exact + 8;
	message = naos_secret_free(message);
	item.payload.encrypt.data.bytes = longest;
	assert_ok(naos_kmip_request_write(&request, 0, &message, &err), &err);
	assert_int_equal(naos_secret_bytes(message), NAOS_KMIP_MAX_MESSAGE_BYTES);
	request = decoded_request(naos_secret_view(message), naos_secret_bytes(message));
	assert_int_equal(request.batch.items[0].payload.encrypt.data.bytes, longest);
	message = naos_secret_free(message);
	item.payload.encrypt.data.bytes = longest + 1;
	request = (struct naos_kmip_request){ .version = NAOS_KMIP_1_4, .batch = { &item, 1 } };
	assert_code(naos_kmip_request_write(&request, 0, &message, &err), NAOS_E_LIMIT);
}

/* A Get request around a payload that the caller fills. */
static size_t open_get(struct naos_cursor *out, uint32_t version, int32_t batch_count, size_t marks[3])
{
	*out = naos_cursor_writer(buffer, sizeof(buffer));
	marks[0] = naos_kmip_open(out, NAOS_KMIP_TAG_REQUEST_MESSAGE);
	size_t header = naos_kmip_open(out, NAOS_KMIP_TAG_REQUEST_HEADER);
	size_t number = naos_kmip_open(out, NAOS_KMIP_TAG_PROTOCOL_VERSION);
	naos_kmip_put_integer(out, NAOS_KMIP_TAG_PROTOCOL_VERSION_MAJOR, (int32_t)(version >> 8));
	naos_kmip_put_integer(out, NAOS_KMIP_TAG_PROTOCOL_VERSION_MINOR, (int32_t)(version & 0xff));
	naos_kmip_close(out, number);
	naos_kmip_put_integer(out, NAOS_KMIP_TAG_BATCH_COUNT, batch_count);
	naos_kmip_close(out, header);
	marks[1] = naos_kmip_open(out, NAOS_KMIP_TAG_BATCH_ITEM);
	naos_kmip_put_enum(out, NAOS_KMIP_TAG_OPERATION, NAOS_KMIP_OPERATION_GET);
	marks[2] = naos_kmip_open(out, NAOS_KMIP_TAG_REQUEST_PAYLOAD);
	return marks[2];
}

static size_t close_get(struct naos_cursor *out, const size_t marks[3])
{
	for (size_t i = 3; i > 0; i--)
		naos_kmip_close(out, marks[i - 1]);
	assert_true(naos_cursor_ok(out));
	return out->position;
}

static void a_payload_that_cannot_be_read_fails_its_item_only(void **state)
{
	struct naos_cursor out;
	size_t marks[3];
	open_get(&out, NAOS_KMIP_1_4, 1, marks);
	naos_kmip_put_text(&out, NAOS_KMIP_TAG_UNIQUE_IDENTIFIER, naos_kmip_text("7"));
	naos_kmip_put_text(&out, NAOS_KMIP_TAG_UNIQUE_IDENTIFIER, naos_kmip_text("8"));
	struct naos_kmip_request request = decoded_request(buffer, close_get(&out, marks));
	assert_int_equal(request.batch.items[0].reason, NAOS_KMIP_REASON_INVALID_FIELD);
	assert_string_equal(request.batch.items[0].problem, "UniqueIdentifier: there more than once");
	assert_int_equal(request.batch.items[0].operation, NAOS_KMIP_OPERATION_GET);

	open_get(&out, NAOS_KMIP_1_4, 1, marks);
	naos_kmip_put_integer(&out, NAOS_KMIP_TAG_UNIQUE_IDENTIFIER, 7);
	request = decoded_request(buffer, close_get(&out, marks));
	assert_string_equal(request.batch.items[0].problem, "UniqueIdentifier can't have the type Integer");

	open_get(&out, NAOS_KMIP_1_4, 1, marks);
	naos_kmip_put_integer(&out, 0x540001, 7);
	request = decoded_request(buffer, close_get(&out, marks));
	assert_string_equal(request.batch.items[0].problem, "tag 540001 does not belong into RequestPayload");

	open_get(&out, NAOS_KMIP_1_4, 1, marks);
	naos_kmip_put_enum(&out, NAOS_KMIP_TAG_KEY_FORMAT_TYPE, 0);
	request = decoded_request(buffer, close_get(&out, marks));
	assert_int_equal(request.batch.items[0].reason, NAOS_KMIP_REASON_INVALID_FIELD);

	/* Fields in another order are fine. */
	open_get(&out, NAOS_KMIP_1_4, 1, marks);
	naos_kmip_put_enum(&out, NAOS_KMIP_TAG_KEY_FORMAT_TYPE, NAOS_KMIP_KEY_FORMAT_RAW);
	naos_kmip_put_text(&out, NAOS_KMIP_TAG_UNIQUE_IDENTIFIER, naos_kmip_text("7"));
	request = decoded_request(buffer, close_get(&out, marks));
	assert_int_equal(request.batch.items[0].reason, 0);
	assert_true(naos_kmip_text_equal(request.batch.items[0].payload.get.unique_identifier, "7"));

	/* A TemplateAttribute in 2.0: kept as it stands. */
	request = captured_request("v20-24-Rekey.req");
	assert_int_equal(request.batch.items[0].reason, NAOS_KMIP_REASON_INVALID_FIELD);
	assert_int_equal(request.batch.items[0].raw_payload.type, NAOS_KMIP_TYPE_STRUCTURE);
}

static void a_required_field_is_missed(void **state)
{
	struct naos_cursor out = naos_cursor_writer(buffer, sizeof(buffer));
	struct naos_error err = NAOS_ERROR_INIT;
	size_t bytes;
	struct naos_kmip_request_item item = { .operation = NAOS_KMIP_OPERATION_RNG_RETRIEVE,
					       .payload.rng_retrieve.bytes = naos_kmip_integer(8) };
	struct naos_kmip_request request = { .version = NAOS_KMIP_1_4, .batch = { &item, 1 } };
	assert_ok(naos_kmip_request_encode(&request, &out, &err), &err);
	/* The data length is last: cut it off, and shorten message, item and payload. */
	bytes = out.position - 16;
	size_t lengths[] = { 4, bytes - 8 - 16 - 8 + 4, bytes - 8 + 4 };
	for (size_t i = 0; i < 3; i++) {
		struct naos_cursor at = naos_cursor_reader(buffer + lengths[i], 4);
		uint32_t old = naos_cursor_get_u32be(&at);
		struct naos_cursor put = naos_cursor_writer(buffer + lengths[i], 4);
		naos_cursor_put_u32be(&put, old - 16);
	}
	request = decoded_request(buffer, bytes);
	assert_int_equal(request.batch.items[0].reason, NAOS_KMIP_REASON_MISSING_DATA);
	assert_string_equal(request.batch.items[0].problem, "DataLength is missing in RequestPayload");
}

/* Absent is not success. */
static void an_answer_without_a_result_status_is_refused(void **state)
{
	const struct capture *capture = captures_find(&captures, "v14-29-Destroy.rsp");
	struct naos_kmip_response response = { .version = 0 };
	struct naos_error err = NAOS_ERROR_INIT;
	memcpy(buffer, capture->data, capture->bytes);
	for (size_t at = 0; at + 4 <= capture->bytes; at += 8)
		if (memcmp(buffer + at, "\x42\x00\x7f\x05", 4) == 0)
			buffer[at + 2] = NAOS_KMIP_TAG_QUERY_FUNCTION & 0xff; /* something that a client does not know there */
	assert_memory_not_equal(buffer, capture->data, capture->bytes);
	assert_code(naos_kmip_response_decode(buffer, capture->bytes, arena, &response, &err), NAOS_E_FORMAT);
	assert_non_null(strstr(err.message, "ResultStatus is missing"));
}

static void unknown_versions_and_operations_can_be_answered(void **state)
{
	struct naos_cursor out;
	size_t marks[3];
	struct naos_error err = NAOS_ERROR_INIT;
	open_get(&out, NAOS_KMIP_VERSION(9, 4), 1, marks);
	struct naos_kmip_request request = decoded_request(buffer, close_get(&out, marks));
	assert_int_equal(request.version, NAOS_KMIP_VERSION(9, 4));
	assert_int_equal(request.batch.items[0].reason, NAOS_KMIP_REASON_INVALID_MESSAGE);
	assert_non_null(strstr(request.batch.items[0].problem, "KMIP 9.4 is not supported"));
	for (int32_t wrong = -1; wrong <= 3; wrong++) {
		open_get(&out, NAOS_KMIP_1_4, wrong, marks);
		size_t bytes = close_get(&out, marks);
		assert_code(naos_kmip_request_decode(buffer, bytes, arena, &request, &err), wrong == 1 ? 0 : NAOS_E_FORMAT);
	}
	open_get(&out, NAOS_KMIP_1_4, 1, marks);
	size_t bytes = close_get(&out, marks);
	buffer[bytes - 8 - 16 + 8 + 3] = NAOS_KMIP_OPERATION_ARCHIVE;
	request = decoded_request(buffer, bytes);
	assert_int_equal(request.batch.items[0].operation, NAOS_KMIP_OPERATION_ARCHIVE);
	assert_int_equal(request.batch.items[0].reason, NAOS_KMIP_REASON_OPERATION_NOT_SUPPORTED);
	assert_int_equal(naos_kmip_operation_since(NAOS_KMIP_OPERATION_ARCHIVE), 0);
	assert_int_equal(naos_kmip_operation_since(NAOS_KMIP_OPERATION_ENCRYPT), NAOS_KMIP_1_2);
}

static void custom_attributes_are_kept_with_any_value(void **state)
{
	struct naos_kmip_attribute attributes[] = {
		{ .name = naos_kmip_text("x-Product"), .index = naos_kmip_integer(1),
		  .value = { .type = NAOS_KMIP_TYPE_TEXT, .text = naos_kmip_text("vSphere") } },
		{ .name = naos_kmip_text("y-Number"), .value = { .type = NAOS_KMIP_TYPE_LONG_INTEGER, .long_integer = -5 } },
		{ .name = naos_kmip_text("x-Wait"), .value = { .type = NAOS_KMIP_TYPE_INTERVAL, .seconds = 7 } },
		{ .name = naos_kmip_text("x-Big"),
		  .value = { .type = NAOS_KMIP_TYPE_BIG_INTEGER, .bytes = naos_kmip_bytes("\1\2\3\4\5\6\7\10", 8) } },
		{ .name = naos_kmip_text("Unheard Of"), .value = { .type = NAOS_KMIP_TYPE_BYTES, .bytes = naos_kmip_bytes("abc", 3) } },
		{ .name = naos_kmip_text("Key Format Type"), .value = { .type = NAOS_KMIP_TYPE_ENUMERATION, .enumeration = 1 } },
	};
	struct naos_kmip_request_item item = { .operation = NAOS_KMIP_OPERATION_LOCATE };
	struct naos_kmip_request request = { .version = NAOS_KMIP_1_1, .batch = { &item, 1 } };
	/* Filters in both places: FortiGate sends a TemplateAttribute. */
	item.payload.locate = (struct naos_kmip_locate_request){ .maximum_items = naos_kmip_integer(1),
								 .attributes = { .items = attributes, .count = 6 },
								 .template_attributes = { .items = attributes, .count = 1 } };
	request = decoded_request(buffer, encoded_request(&request));
	const struct naos_kmip_locate_request *locate = &request.batch.items[0].payload.locate;
	assert_int_equal(request.batch.items[0].reason, 0);
	assert_int_equal(locate->attributes.count, 6);
	assert_int_equal(locate->template_attributes.count, 1);
	for (size_t i = 0; i < 6; i++) {
		assert_int_equal(locate->attributes.items[i].tag, 0);
		assert_int_equal(locate->attributes.items[i].value.type, attributes[i].value.type);
		assert_int_equal(naos_kmip_attribute_is_custom(locate->attributes.items[i].name), i < 4);
	}
	assert_int_equal(locate->attributes.items[0].index.value, 1);
	assert_true(naos_kmip_text_equal(locate->attributes.items[0].value.text, "vSphere"));
	assert_true(locate->attributes.items[1].value.long_integer == -5);
	assert_memory_equal(locate->attributes.items[4].value.bytes.data, "abc", 3);
}

static void a_decoded_message_has_limited_memory(void **state)
{
	struct naos_error err = NAOS_ERROR_INIT;
	naos_autoarena struct naos_kmip_arena *small = NULL;
	struct naos_kmip_request_item items[NAOS_KMIP_MAX_BATCH + 1];
	struct naos_kmip_request request = { .version = NAOS_KMIP_1_4, .batch = { items, NAOS_KMIP_MAX_BATCH } }, decoded;
	for (size_t i = 0; i <= NAOS_KMIP_MAX_BATCH; i++)
		items[i] = (struct naos_kmip_request_item){ .operation = NAOS_KMIP_OPERATION_DESTROY };
	size_t bytes = encoded_request(&request);
	decoded = decoded_request(buffer, bytes);
	assert_int_equal(decoded.batch.count, NAOS_KMIP_MAX_BATCH);
	assert_ok(naos_kmip_arena_create(NAOS_KMIP_MAX_BATCH * sizeof(items[0]) - 1, &small, &err), &err);
	assert_code(naos_kmip_request_decode(buffer, bytes, small, &decoded, &err), NAOS_E_LIMIT);
	naos_kmip_arena_reset(small);
	const struct capture *capture = captures_find(&captures, "v14-09-Decrypt-GCM-badtag-error.req");
	assert_ok(naos_kmip_request_decode(capture->data, capture->bytes, small, &decoded, &err), &err);
	request.batch.count++;
	assert_code(request_code(&request, &err), NAOS_E_LIMIT);
}

static void arenas_give_aligned_zeroed_memory_up_to_their_limit(void **state)
{
	struct naos_error err = NAOS_ERROR_INIT;
	naos_autoarena struct naos_kmip_arena *own = NULL;
	assert_ok(naos_kmip_arena_create(100000, &own, &err), &err);
	assert_null(naos_kmip_arena_take(own, SIZE_MAX, 2));
	assert_null(naos_kmip_arena_take(own, 1, 100001));
	for (unsigned round = 0; round < 3; round++) {
		size_t taken = 0;
		for (size_t bytes = 1;; bytes += 37) {
			uint8_t *at = naos_kmip_arena_take(own, 1, bytes);
			if (!at)
				break;
			taken += bytes;
			assert_int_equal((uintptr_t)at % _Alignof(max_align_t), 0);
			for (size_t i = 0; i < bytes; i++)
				assert_int_equal(at[i], 0);
			memset(at, 0xa5, bytes);
		}
		assert_true(taken > 90000 && taken <= 100000);
		naos_kmip_arena_reset(own);
	}
	assert_non_null(naos_kmip_arena_take(own, 1, 100000));
}

static void reasons_and_codes_fit(void **state)
{
	assert_int_equal(naos_kmip_reason_to_code(NAOS_KMIP_REASON_ITEM_NOT_FOUND), NAOS_E_NOKEY);
	assert_int_equal(naos_kmip_reason_to_code(NAOS_KMIP_REASON_CRYPTOGRAPHIC_FAILURE), NAOS_E_INTEGRITY);
	assert_int_equal(naos_kmip_reason_to_code(NAOS_KMIP_REASON_GENERAL_FAILURE), NAOS_E_KEYMANAGER);
	assert_int_equal(naos_kmip_reason_to_code((enum naos_kmip_result_reason)0x7777), NAOS_E_KEYMANAGER);
	assert_int_equal(naos_kmip_reason_from_code(NAOS_E_KEY_STATE, NAOS_KMIP_2_0), NAOS_KMIP_REASON_WRONG_KEY_LIFECYCLE_STATE);
	assert_int_equal(naos_kmip_reason_from_code(NAOS_E_KEY_STATE, NAOS_KMIP_1_4), NAOS_KMIP_REASON_PERMISSION_DENIED);
	assert_int_equal(naos_kmip_reason_in_version(NAOS_KMIP_REASON_NOT_EXTRACTABLE, NAOS_KMIP_1_4),
			 NAOS_KMIP_REASON_NOT_EXTRACTABLE);
	assert_int_equal(naos_kmip_reason_in_version(NAOS_KMIP_REASON_NOT_EXTRACTABLE, NAOS_KMIP_1_3),
			 NAOS_KMIP_REASON_PERMISSION_DENIED);
	assert_int_equal(naos_kmip_reason_in_version(NAOS_KMIP_REASON_GENERAL_FAILURE, NAOS_KMIP_1_0),
			 NAOS_KMIP_REASON_GENERAL_FAILURE);
	/* No reason of 1.x is ever given to a version that lacks it. */
	for (int code = -100; code < 0; code++)
		for (uint32_t version = NAOS_KMIP_1_0; version <= NAOS_KMIP_1_4; version++) {
			uint32_t reason = naos_kmip_reason_from_code(code, version);
			uint32_t newest = version == NAOS_KMIP_1_4 ? 0x18 : 0x11;
			assert_true(reason == NAOS_KMIP_REASON_GENERAL_FAILURE || (reason >= 1 && reason <= newest));
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_made_by_hand_are_those_of_another_client),
		cmocka_unit_test(decoding_tells_what_is_there),
		cmocka_unit_test(key_bytes_stay_in_secret_memory),
		cmocka_unit_test(nothing_is_sent_that_the_version_does_not_have),
		cmocka_unit_test(a_faulty_call_is_refused_with_the_name_of_the_field),
		cmocka_unit_test(a_message_that_does_not_fit_is_an_error),
		cmocka_unit_test(a_payload_that_cannot_be_read_fails_its_item_only),
		cmocka_unit_test(a_required_field_is_missed),
		cmocka_unit_test(an_answer_without_a_result_status_is_refused),
		cmocka_unit_test(unknown_versions_and_operations_can_be_answered),
		cmocka_unit_test(custom_attributes_are_kept_with_any_value),
		cmocka_unit_test(a_decoded_message_has_limited_memory),
		cmocka_unit_test(arenas_give_aligned_zeroed_memory_up_to_their_limit),
		cmocka_unit_test(reasons_and_codes_fit),
	};
	return cmocka_run_group_tests(tests, begin, end);
}

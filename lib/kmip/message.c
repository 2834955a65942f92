/* Requests and responses.  SPDX-License-Identifier: Apache-2.0 */
#include "kmip/message.h"

#include "kmip/schema.h"

#define S struct naos_kmip_credential_value
static const struct naos_kmip_row credential_value_rows[] = {
	NAOS_KMIP_FIELD(S, username, USERNAME, TEXT),
	NAOS_KMIP_FIELD(S, device_serial_number, DEVICE_SERIAL_NUMBER, TEXT, .since = NAOS_KMIP_1_1),
	NAOS_KMIP_FIELD(S, password, PASSWORD, TEXT),
	NAOS_KMIP_FIELD(S, device_identifier, DEVICE_IDENTIFIER, TEXT, .since = NAOS_KMIP_1_1),
	NAOS_KMIP_FIELD(S, network_identifier, NETWORK_IDENTIFIER, TEXT, .since = NAOS_KMIP_1_1),
	NAOS_KMIP_FIELD(S, machine_identifier, MACHINE_IDENTIFIER, TEXT, .since = NAOS_KMIP_1_1),
	NAOS_KMIP_FIELD(S, media_identifier, MEDIA_IDENTIFIER, TEXT, .since = NAOS_KMIP_1_1),
};
static NAOS_KMIP_SCHEMA(credential_value);
#undef S

#define S struct naos_kmip_credential
static const struct naos_kmip_row credential_rows[] = {
	NAOS_KMIP_FIELD(S, type, CREDENTIAL_TYPE, ENUM, .required = true),
	NAOS_KMIP_INNER(S, value, CREDENTIAL_VALUE, credential_value, .required = true),
};
static NAOS_KMIP_SCHEMA(credential);
#undef S

#define S struct naos_kmip_authentication
static const struct naos_kmip_row authentication_rows[] = {
	NAOS_KMIP_INNER_LIST(S, credentials, CREDENTIAL, credential, .required = true),
};
static NAOS_KMIP_SCHEMA(authentication);
#undef S

#define S struct naos_kmip_message_extension
static const struct naos_kmip_row message_extension_rows[] = {
	NAOS_KMIP_FIELD(S, vendor_identification, VENDOR_IDENTIFICATION, TEXT, .required = true),
	NAOS_KMIP_FIELD(S, criticality, CRITICALITY_INDICATOR, BOOLEAN, .required = true),
	NAOS_KMIP_FIELD(S, vendor_extension, VENDOR_EXTENSION, RAW, .required = true),
};
static NAOS_KMIP_SCHEMA(message_extension);
#undef S

#define S struct naos_kmip_nonce
static const struct naos_kmip_row nonce_rows[] = {
	NAOS_KMIP_FIELD(S, id, NONCE_ID, BYTES, .required = true),
	NAOS_KMIP_FIELD(S, value, NONCE_VALUE, BYTES, .required = true),
};
static NAOS_KMIP_SCHEMA(nonce);
#undef S

/* The batch count stands in the header, but follows from the batch. */
struct request_header {
	struct naos_kmip_request request;
	struct naos_kmip_integer batch_count;
};

struct response_header {
	struct naos_kmip_response response;
	struct naos_kmip_integer batch_count;
};

#define S struct request_header
static const struct naos_kmip_row request_header_rows[] = {
	NAOS_KMIP_FIELD(S, request.version, PROTOCOL_VERSION, VERSION, .required = true),
	NAOS_KMIP_FIELD(S, request.maximum_response_size, MAXIMUM_RESPONSE_SIZE, INTEGER),
	NAOS_KMIP_FIELD(S, request.client_correlation, CLIENT_CORRELATION_VALUE, TEXT, .since = NAOS_KMIP_1_4),
	NAOS_KMIP_FIELD(S, request.server_correlation, SERVER_CORRELATION_VALUE, TEXT, .since = NAOS_KMIP_1_4),
	NAOS_KMIP_FIELD(S, request.asynchronous, ASYNCHRONOUS_INDICATOR, BOOLEAN, .until = NAOS_KMIP_1_4),
	NAOS_KMIP_FIELD(S, request.attestation_capable, ATTESTATION_CAPABLE_INDICATOR, BOOLEAN, .since = NAOS_KMIP_1_2),
	NAOS_KMIP_LIST(S, request.attestation_types, ATTESTATION_TYPE, ENUM, uint32_t, .since = NAOS_KMIP_1_2),
	NAOS_KMIP_INNER(S, request.authentication, AUTHENTICATION, authentication),
	NAOS_KMIP_FIELD(S, request.batch_error_continuation, BATCH_ERROR_CONTINUATION_OPTION, ENUM),
	NAOS_KMIP_FIELD(S, request.batch_order, BATCH_ORDER_OPTION, BOOLEAN),
	NAOS_KMIP_FIELD(S, request.time_stamp, TIME_STAMP, DATE),
	NAOS_KMIP_FIELD(S, batch_count, BATCH_COUNT, INTEGER, .required = true),
};
static NAOS_KMIP_SCHEMA_AS(request_header, struct request_header);
#undef S

#define S struct response_header
static const struct naos_kmip_row response_header_rows[] = {
	NAOS_KMIP_FIELD(S, response.version, PROTOCOL_VERSION, VERSION, .required = true),
	NAOS_KMIP_FIELD(S, response.time_stamp, TIME_STAMP, DATE, .required = true),
	NAOS_KMIP_INNER(S, response.nonce, NONCE, nonce, .since = NAOS_KMIP_1_2),
	NAOS_KMIP_LIST(S, response.attestation_types, ATTESTATION_TYPE, ENUM, uint32_t, .since = NAOS_KMIP_1_2),
	NAOS_KMIP_FIELD(S, response.client_correlation, CLIENT_CORRELATION_VALUE, TEXT, .since = NAOS_KMIP_1_4),
	NAOS_KMIP_FIELD(S, response.server_correlation, SERVER_CORRELATION_VALUE, TEXT, .since = NAOS_KMIP_1_4),
	NAOS_KMIP_FIELD(S, batch_count, BATCH_COUNT, INTEGER, .required = true),
};
static NAOS_KMIP_SCHEMA_AS(response_header, struct response_header);
#undef S

#define S struct naos_kmip_request_item
static const struct naos_kmip_row request_item_rows[] = {
	NAOS_KMIP_FIELD(S, operation, OPERATION, ENUM, .required = true),
	NAOS_KMIP_FIELD(S, ephemeral, EPHEMERAL, BOOLEAN, .since = NAOS_KMIP_2_0),
	NAOS_KMIP_FIELD(S, unique_batch_item_id, UNIQUE_BATCH_ITEM_ID, BYTES),
	NAOS_KMIP_FIELD(S, raw_payload, REQUEST_PAYLOAD, RAW),
	NAOS_KMIP_INNER(S, message_extension, MESSAGE_EXTENSION, message_extension),
};
static NAOS_KMIP_SCHEMA(request_item);
#undef S

#define S struct naos_kmip_response_item
static const struct naos_kmip_row response_item_rows[] = {
	NAOS_KMIP_FIELD(S, operation, OPERATION, ENUM),
	NAOS_KMIP_FIELD(S, unique_batch_item_id, UNIQUE_BATCH_ITEM_ID, BYTES),
	NAOS_KMIP_FIELD(S, status, RESULT_STATUS, STATUS, .required = true),
	NAOS_KMIP_FIELD(S, reason, RESULT_REASON, ENUM),
	NAOS_KMIP_FIELD(S, message, RESULT_MESSAGE, TEXT),
	NAOS_KMIP_FIELD(S, asynchronous_correlation, ASYNCHRONOUS_CORRELATION_VALUE, BYTES),
	NAOS_KMIP_FIELD(S, raw_payload, RESPONSE_PAYLOAD, RAW),
	NAOS_KMIP_INNER(S, message_extension, MESSAGE_EXTENSION, message_extension),
};
static NAOS_KMIP_SCHEMA(response_item);
#undef S

/* What differs between the two kinds of message. */
static const struct role {
	const char *name;
	uint32_t message, header, payload;
	const struct naos_kmip_schema *header_schema, *item_schema;
	size_t batch_count_offset, version_offset, item_bytes;
	size_t head_rows; /* of an item, before its payload */
} roles[] = {
	[NAOS_KMIP_REQUESTS] = { "request", NAOS_KMIP_TAG_REQUEST_MESSAGE, NAOS_KMIP_TAG_REQUEST_HEADER,
				 NAOS_KMIP_TAG_REQUEST_PAYLOAD,
				 &naos_kmip_request_header_schema, &naos_kmip_request_item_schema,
				 offsetof(struct request_header, batch_count), offsetof(struct request_header, request.version),
				 sizeof(struct naos_kmip_request_item), 3 },
	[NAOS_KMIP_RESPONSES] = { "response", NAOS_KMIP_TAG_RESPONSE_MESSAGE, NAOS_KMIP_TAG_RESPONSE_HEADER,
				  NAOS_KMIP_TAG_RESPONSE_PAYLOAD,
				  &naos_kmip_response_header_schema, &naos_kmip_response_item_schema,
				  offsetof(struct response_header, batch_count), offsetof(struct response_header, response.version),
				  sizeof(struct naos_kmip_response_item), 6 },
};

/* Decoding ------------------------------------------------------------------------------------------------------ */

/* The version rules how the rest of the header is read, so it is looked for first. */
static uint32_t peek_version(const struct naos_kmip_item *header)
{
	struct naos_cursor in = naos_cursor_reader(header->value, header->bytes);
	struct naos_kmip_item item, major, minor;
	while (naos_cursor_left(&in) > 0 && naos_kmip_get(&in, &item)) {
		struct naos_cursor inside = naos_cursor_reader(item.value, item.bytes);
		if (item.tag == NAOS_KMIP_TAG_PROTOCOL_VERSION && item.type == NAOS_KMIP_TYPE_STRUCTURE &&
		    naos_kmip_get(&inside, &major) && naos_kmip_get(&inside, &minor))
			return NAOS_KMIP_VERSION(naos_kmip_item_number(&major) & 0xff, naos_kmip_item_number(&minor) & 0xff);
	}
	return 0;
}

static int report(const struct naos_kmip_codec *codec, struct naos_error *err)
{
	return naos_error_set(err, codec->code, "KMIP %s: %s", roles[codec->role].name, codec->problem);
}

/* A problem of one item only, kept beyond the codec. */
static const char *keep_problem(struct naos_kmip_codec *codec)
{
	size_t bytes = strlen(codec->problem) + 1;
	char *text = naos_kmip_codec_take(codec, 1, bytes);
	return text ? memcpy(text, codec->problem, bytes) : "no memory";
}

/* Reads the payload of an item into its union; false with the reason in the codec. */
static bool decode_payload(struct naos_kmip_codec *codec, uint32_t operation, const struct naos_kmip_raw *raw, void *ret)
{
	const struct naos_kmip_schema *schema = naos_kmip_payload_schema(codec->role, operation);
	if (!naos_kmip_version_known(codec->version))
		return naos_kmip_codec_fail(codec, NAOS_E_UNSUPPORTED, NAOS_KMIP_REASON_INVALID_MESSAGE,
					    "KMIP %u.%u is not supported; 1.0 to 1.4 and 2.0 are", codec->version >> 8, codec->version & 0xff);
	if (!schema || !naos_kmip_codec_has(codec, naos_kmip_operation_since(operation), 0))
		return naos_kmip_codec_fail(codec, NAOS_E_UNSUPPORTED, NAOS_KMIP_REASON_OPERATION_NOT_SUPPORTED,
					    "the operation is not supported in KMIP %u.%u", codec->version >> 8, codec->version & 0xff);
	struct naos_kmip_item item = { .tag = roles[codec->role].payload, .type = raw->type,
				       .bytes = raw->value.bytes, .value = raw->value.data };
	return naos_kmip_structure_decode(codec, schema, &item, ret);
}

static bool decode_request_item(struct naos_kmip_codec *codec, const struct naos_kmip_item *item, void *ret)
{
	struct naos_kmip_request_item *request = ret;
	bool done = naos_kmip_structure_decode(codec, &naos_kmip_request_item_schema, item, request);
	if (done && !request->raw_payload.type)
		done = naos_kmip_codec_fail(codec, NAOS_E_FORMAT, NAOS_KMIP_REASON_MISSING_DATA, "the payload is missing");
	done = done && decode_payload(codec, request->operation, &request->raw_payload, &request->payload);
	if (!done) {
		request->reason = codec->reason;
		request->problem = keep_problem(codec);
		return codec->code != NAOS_E_LIMIT;
	}
	request->raw_payload = (struct naos_kmip_raw){ .type = 0 };
	if (naos_kmip_operation_since(request->operation) > codec->version) {
		request->reason = NAOS_KMIP_REASON_OPERATION_NOT_SUPPORTED;
		request->problem = "this version of KMIP does not have the operation";
	}
	return true;
}

static bool decode_response_item(struct naos_kmip_codec *codec, const struct naos_kmip_item *item, void *ret)
{
	struct naos_kmip_response_item *response = ret;
	if (!naos_kmip_structure_decode(codec, &naos_kmip_response_item_schema, item, response))
		return false;
	if (!response->raw_payload.type)
		return true;
	if (!decode_payload(codec, response->operation, &response->raw_payload, &response->payload)) {
		response->problem = keep_problem(codec);
		return codec->code != NAOS_E_LIMIT;
	}
	response->raw_payload = (struct naos_kmip_raw){ .type = 0 };
	response->has_payload = true;
	return true;
}

static bool decode_header(struct naos_kmip_codec *codec, const struct naos_kmip_item *header, void *ret_header)
{
	if (header->tag != roles[codec->role].header || header->type != NAOS_KMIP_TYPE_STRUCTURE)
		return naos_kmip_codec_fail(codec, NAOS_E_FORMAT, NAOS_KMIP_REASON_INVALID_MESSAGE, "it does not begin with a header");
	codec->version = peek_version(header);
	if (codec->version == 0)
		return naos_kmip_codec_fail(codec, NAOS_E_FORMAT, NAOS_KMIP_REASON_INVALID_MESSAGE, "its header has no version");
	return naos_kmip_structure_decode(codec, roles[codec->role].header_schema, header, ret_header);
}

static bool decode_batch(struct naos_kmip_codec *codec, struct naos_cursor in, const struct naos_kmip_integer *batch_count,
			 const void **ret_items, size_t *ret_count)
{
	struct naos_cursor counter = in;
	struct naos_kmip_item item;
	size_t count = 0;
	while (naos_cursor_left(&counter) > 0) {
		if (!naos_kmip_get(&counter, &item) || item.tag != NAOS_KMIP_TAG_BATCH_ITEM || item.type != NAOS_KMIP_TYPE_STRUCTURE)
			return naos_kmip_codec_fail(codec, NAOS_E_FORMAT, NAOS_KMIP_REASON_INVALID_MESSAGE,
						    "there is something else than batch items behind the header");
		count++;
	}
	if (!batch_count->present || batch_count->value < 0 || (size_t)batch_count->value != count)
		return naos_kmip_codec_fail(codec, NAOS_E_FORMAT, NAOS_KMIP_REASON_INVALID_MESSAGE,
					    "its batch count is not the number of its batch items, %zu", count);
	size_t item_bytes = roles[codec->role].item_bytes;
	uint8_t *items = count ? naos_kmip_codec_take(codec, count, item_bytes) : NULL;
	if (count && !items)
		return false;
	for (size_t i = 0; i < count; i++) {
		uint8_t *place = items + i * item_bytes;
		if (!naos_kmip_get(&in, &item) || !(codec->role == NAOS_KMIP_REQUESTS ? decode_request_item(codec, &item, place) :
											 decode_response_item(codec, &item, place)))
			return false;
	}
	*ret_items = items;
	*ret_count = count;
	return true;
}

/* header: a zeroed struct request_header or response_header. */
static int decode(struct naos_kmip_codec *codec, const void *message, size_t bytes, void *header, const void **ret_items,
		  size_t *ret_count, struct naos_error *err)
{
	const struct role *role = &roles[codec->role];
	struct naos_cursor in = naos_cursor_reader(message, bytes);
	struct naos_kmip_item whole, first;
	size_t framed;
	int rc = naos_kmip_frame(codec->role, message, bytes, NAOS_KMIP_MAX_MESSAGE_BYTES, &framed, err);
	if (rc == 0)
		rc = naos_kmip_check(message, bytes, err);
	if (rc != 0)
		return rc;
	if (!naos_kmip_get(&in, &whole))
		return naos_error_set(err, NAOS_E_FORMAT, "not a KMIP %s", role->name);
	in = naos_cursor_reader(whole.value, whole.bytes);
	if (!naos_kmip_get(&in, &first))
		return naos_error_set(err, NAOS_E_FORMAT, "the KMIP %s is empty", role->name);
	if (!decode_header(codec, &first, header))
		return report(codec, err);
	const struct naos_kmip_integer *batch_count = (const void *)((uint8_t *)header + role->batch_count_offset);
	return decode_batch(codec, in, batch_count, ret_items, ret_count) ? 0 : report(codec, err);
}

int naos_kmip_request_decode(const void *message, size_t bytes, struct naos_kmip_arena *arena, struct naos_kmip_request *ret,
			     struct naos_error *err)
{
	struct naos_kmip_codec codec = { .role = NAOS_KMIP_REQUESTS, .arena = arena };
	struct request_header header = { .batch_count = { .present = false } };
	const void *items = NULL;
	size_t count = 0;
	int rc = decode(&codec, message, bytes, &header, &items, &count, err);
	if (rc != 0)
		return rc;
	header.request.batch.items = items;
	header.request.batch.count = count;
	header.request.any_version = codec.any_version;
	*ret = header.request;
	return 0;
}

int naos_kmip_response_decode(const void *message, size_t bytes, struct naos_kmip_arena *arena, struct naos_kmip_response *ret,
			      struct naos_error *err)
{
	struct naos_kmip_codec codec = { .role = NAOS_KMIP_RESPONSES, .arena = arena };
	struct response_header header = { .batch_count = { .present = false } };
	const void *items = NULL;
	size_t count = 0;
	int rc = decode(&codec, message, bytes, &header, &items, &count, err);
	if (rc != 0)
		return rc;
	header.response.batch.items = items;
	header.response.batch.count = count;
	header.response.any_version = codec.any_version;
	*ret = header.response;
	return 0;
}

/* Encoding ------------------------------------------------------------------------------------------------------ */

static bool encode_payload(struct naos_kmip_codec *codec, uint32_t operation, const void *payload, struct naos_cursor *out)
{
	const struct naos_kmip_schema *schema = naos_kmip_payload_schema(codec->role, operation);
	char buffer[16];
	if (!schema)
		return naos_kmip_codec_fail(codec, NAOS_E_USAGE, NAOS_KMIP_REASON_GENERAL_FAILURE, "operation %u can't be written",
					    operation);
	if (naos_kmip_operation_since(operation) > codec->version && !codec->any_version)
		return naos_kmip_codec_fail(codec, NAOS_E_UNSUPPORTED, NAOS_KMIP_REASON_GENERAL_FAILURE, "KMIP %u.%u does not have %s",
					    codec->version >> 8, codec->version & 0xff,
					    naos_kmip_enum_name(NAOS_KMIP_TAG_OPERATION, operation) ?: naos_kmip_tag_text(operation, buffer));
	return naos_kmip_structure_encode(codec, schema, roles[codec->role].payload, payload, out);
}

/* payload NULL: none, or the raw one. */
static bool encode_item(struct naos_kmip_codec *codec, const void *item, uint32_t operation, const void *payload,
			struct naos_cursor *out)
{
	const struct role *role = &roles[codec->role];
	const struct naos_kmip_schema head = { .bytes = role->item_bytes, .count = role->head_rows, .rows = role->item_schema->rows };
	const struct naos_kmip_schema tail = { .bytes = role->item_bytes,
					       .count = role->item_schema->count - role->head_rows,
					       .rows = role->item_schema->rows + role->head_rows };
	size_t mark = naos_kmip_open(out, NAOS_KMIP_TAG_BATCH_ITEM);
	if (!naos_kmip_fields_encode(codec, &head, NAOS_KMIP_TAG_BATCH_ITEM, item, out) ||
	    (payload && !encode_payload(codec, operation, payload, out)) ||
	    !naos_kmip_fields_encode(codec, &tail, NAOS_KMIP_TAG_BATCH_ITEM, item, out))
		return false;
	naos_kmip_close(out, mark);
	return true;
}

static bool encode_batch(struct naos_kmip_codec *codec, const void *items, size_t count, struct naos_cursor *out)
{
	if (count > NAOS_KMIP_MAX_BATCH)
		return naos_kmip_codec_fail(codec, NAOS_E_LIMIT, NAOS_KMIP_REASON_GENERAL_FAILURE, "more than %d batch items",
					    NAOS_KMIP_MAX_BATCH);
	for (size_t i = 0; i < count; i++) {
		const struct naos_kmip_request_item *request = (const struct naos_kmip_request_item *)items + i;
		const struct naos_kmip_response_item *response = (const struct naos_kmip_response_item *)items + i;
		bool done = codec->role == NAOS_KMIP_REQUESTS ?
				    encode_item(codec, request, request->operation, request->raw_payload.type ? NULL : &request->payload, out) :
				    encode_item(codec, response, response->operation, response->has_payload ? &response->payload : NULL, out);
		if (!done)
			return false;
	}
	return true;
}

static int encode(struct naos_kmip_codec *codec, const void *header, const void *items, size_t count, struct naos_cursor *out,
		  struct naos_error *err)
{
	const struct role *role = &roles[codec->role];
	size_t mark = naos_kmip_open(out, role->message);
	bool done = naos_kmip_structure_encode(codec, role->header_schema, role->header, header, out) &&
		    encode_batch(codec, items, count, out);
	naos_kmip_close(out, mark);
	if (done && naos_cursor_ok(out))
		return 0;
	naos_cursor_fail(out);
	if (!done)
		return report(codec, err);
	return naos_error_set(err, NAOS_E_LIMIT, "the KMIP %s does not fit %zu bytes", role->name, out->bytes);
}

int naos_kmip_request_encode(const struct naos_kmip_request *request, struct naos_cursor *out, struct naos_error *err)
{
	struct naos_kmip_codec codec = { .role = NAOS_KMIP_REQUESTS, .version = request->version,
					 .any_version = request->any_version };
	struct request_header header = { .request = *request, .batch_count = naos_kmip_integer((int32_t)request->batch.count) };
	return encode(&codec, &header, request->batch.items, request->batch.count, out, err);
}

int naos_kmip_response_encode(const struct naos_kmip_response *response, struct naos_cursor *out, struct naos_error *err)
{
	struct naos_kmip_codec codec = { .role = NAOS_KMIP_RESPONSES, .version = response->version,
					 .any_version = response->any_version };
	struct response_header header = { .response = *response, .batch_count = naos_kmip_integer((int32_t)response->batch.count) };
	return encode(&codec, &header, response->batch.items, response->batch.count, out, err);
}

/* Tries ever larger secrets up to the limit; exactly one of request and response is given. */
static int write_secret(const struct naos_kmip_request *request, const struct naos_kmip_response *response, size_t max_bytes,
			struct naos_secret **ret, struct naos_error *err)
{
	size_t limit = max_bytes && max_bytes < NAOS_KMIP_MAX_MESSAGE_BYTES ? max_bytes : NAOS_KMIP_MAX_MESSAGE_BYTES;
	for (size_t bytes = 4096;; bytes *= 8) {
		naos_autosecret struct naos_secret *secret = NULL;
		size_t capacity = bytes < limit ? bytes : limit;
		int rc = naos_secret_create(capacity, &secret, err);
		if (rc != 0)
			return rc;
		struct naos_cursor out = naos_cursor_writer(naos_secret_data(secret), capacity);
		rc = request ? naos_kmip_request_encode(request, &out, err) : naos_kmip_response_encode(response, &out, err);
		if (rc == NAOS_E_LIMIT && capacity < limit)
			continue;
		if (rc != 0)
			return rc;
		naos_secret_shrink(secret, out.position);
		*ret = naos_steal(secret);
		return 0;
	}
}

int naos_kmip_request_write(const struct naos_kmip_request *request, size_t max_bytes, struct naos_secret **ret,
			    struct naos_error *err)
{
	return write_secret(request, NULL, max_bytes, ret, err);
}

int naos_kmip_response_write(const struct naos_kmip_response *response, size_t max_bytes, struct naos_secret **ret,
			     struct naos_error *err)
{
	return write_secret(NULL, response, max_bytes, ret, err);
}

int naos_kmip_bytes_keep(struct naos_kmip_bytes bytes, struct naos_secret **ret, struct naos_error *err)
{
	naos_autosecret struct naos_secret *secret = NULL;
	int rc = naos_secret_create(bytes.bytes, &secret, err);
	if (rc != 0)
		return rc;
	struct naos_cursor out = naos_cursor_writer(naos_secret_data(secret), bytes.bytes);
	naos_cursor_put(&out, bytes.data, bytes.bytes);
	*ret = naos_steal(secret);
	return 0;
}

/* Payloads of the operations.  SPDX-License-Identifier: Apache-2.0 */
#include "kmip/operation.h"

#include "kmip/schema.h"

/* The attributes of a new object: a TemplateAttribute in 1.x, Attributes in 2.x. */
#define NEW_OBJECT_ATTRIBUTES(type) \
	NAOS_KMIP_FIELD(type, attributes, TEMPLATE_ATTRIBUTE, TEMPLATE, .until = NAOS_KMIP_1_4), \
	NAOS_KMIP_FIELD(type, attributes, ATTRIBUTES, ATTRIBUTE_SET, .since = NAOS_KMIP_2_0)
/* Attributes of one object: each by itself in 1.x. */
#define OBJECT_ATTRIBUTES(type) \
	NAOS_KMIP_LIST(type, attributes, ATTRIBUTE, ATTRIBUTE, struct naos_kmip_attribute, .until = NAOS_KMIP_1_4), \
	NAOS_KMIP_FIELD(type, attributes, ATTRIBUTES, ATTRIBUTE_SET, .since = NAOS_KMIP_2_0)
#define ATTRIBUTE_NAMES(type) \
	NAOS_KMIP_LIST(type, names, ATTRIBUTE_NAME, ATTRIBUTE_NAME, struct naos_kmip_attribute_name, .until = NAOS_KMIP_1_4), \
	NAOS_KMIP_LIST(type, names, ATTRIBUTE_REFERENCE, REFERENCE, struct naos_kmip_attribute_name, .since = NAOS_KMIP_2_0)
#define MANAGED_OBJECT(type) \
	NAOS_KMIP_INNER(type, object.certificate, CERTIFICATE, certificate), \
	NAOS_KMIP_INNER(type, object.symmetric_key, SYMMETRIC_KEY, key), \
	NAOS_KMIP_INNER(type, object.private_key, PRIVATE_KEY, key), \
	NAOS_KMIP_INNER(type, object.public_key, PUBLIC_KEY, key), \
	NAOS_KMIP_INNER(type, object.template_object, TEMPLATE, template, .until = NAOS_KMIP_1_4), \
	NAOS_KMIP_INNER(type, object.secret_data, SECRET_DATA, secret_data), \
	NAOS_KMIP_INNER(type, object.opaque_object, OPAQUE_OBJECT, opaque_object)

#define S struct naos_kmip_identifier
static const struct naos_kmip_row identifier_rows[] = {
	NAOS_KMIP_FIELD(S, unique_identifier, UNIQUE_IDENTIFIER, TEXT),
};
static NAOS_KMIP_SCHEMA(identifier);
#undef S

#define S struct naos_kmip_create_request
static const struct naos_kmip_row create_request_rows[] = {
	NAOS_KMIP_FIELD(S, object_type, OBJECT_TYPE, ENUM, .required = true),
	NEW_OBJECT_ATTRIBUTES(S),
};
static NAOS_KMIP_SCHEMA(create_request);
#undef S

#define S struct naos_kmip_create_response
static const struct naos_kmip_row create_response_rows[] = {
	NAOS_KMIP_FIELD(S, object_type, OBJECT_TYPE, ENUM, .required = true),
	NAOS_KMIP_FIELD(S, unique_identifier, UNIQUE_IDENTIFIER, TEXT, .required = true),
	NAOS_KMIP_FIELD(S, attributes, TEMPLATE_ATTRIBUTE, TEMPLATE, .until = NAOS_KMIP_1_4),
};
static NAOS_KMIP_SCHEMA(create_response);
#undef S

#define S struct naos_kmip_register_request
static const struct naos_kmip_row register_request_rows[] = {
	NAOS_KMIP_FIELD(S, object_type, OBJECT_TYPE, ENUM, .required = true),
	NEW_OBJECT_ATTRIBUTES(S),
	MANAGED_OBJECT(S),
};
static NAOS_KMIP_SCHEMA(register_request);
#undef S

#define S struct naos_kmip_register_response
static const struct naos_kmip_row register_response_rows[] = {
	NAOS_KMIP_FIELD(S, unique_identifier, UNIQUE_IDENTIFIER, TEXT, .required = true),
	NAOS_KMIP_FIELD(S, attributes, TEMPLATE_ATTRIBUTE, TEMPLATE, .until = NAOS_KMIP_1_4),
};
static NAOS_KMIP_SCHEMA(register_response);
#undef S

#define S struct naos_kmip_rekey_request
static const struct naos_kmip_row rekey_request_rows[] = {
	NAOS_KMIP_FIELD(S, unique_identifier, UNIQUE_IDENTIFIER, TEXT),
	NAOS_KMIP_FIELD(S, offset, OFFSET, INTERVAL),
	NEW_OBJECT_ATTRIBUTES(S),
};
static NAOS_KMIP_SCHEMA(rekey_request);
#undef S

#define S struct naos_kmip_locate_request
static const struct naos_kmip_row locate_request_rows[] = {
	NAOS_KMIP_FIELD(S, maximum_items, MAXIMUM_ITEMS, INTEGER),
	NAOS_KMIP_FIELD(S, offset_items, OFFSET_ITEMS, INTEGER, .since = NAOS_KMIP_1_3),
	NAOS_KMIP_FIELD(S, storage_status_mask, STORAGE_STATUS_MASK, INTEGER),
	NAOS_KMIP_FIELD(S, object_group_member, OBJECT_GROUP_MEMBER, ENUM, .since = NAOS_KMIP_1_1),
	OBJECT_ATTRIBUTES(S),
	NAOS_KMIP_FIELD(S, template_attributes, TEMPLATE_ATTRIBUTE, TEMPLATE, .until = NAOS_KMIP_1_4),
};
static NAOS_KMIP_SCHEMA(locate_request);
#undef S

#define S struct naos_kmip_locate_response
static const struct naos_kmip_row locate_response_rows[] = {
	NAOS_KMIP_FIELD(S, located_items, LOCATED_ITEMS, INTEGER, .since = NAOS_KMIP_1_3),
	NAOS_KMIP_LIST(S, unique_identifiers, UNIQUE_IDENTIFIER, TEXT, struct naos_kmip_text),
};
static NAOS_KMIP_SCHEMA(locate_response);
#undef S

#define S struct naos_kmip_check
static const struct naos_kmip_row check_rows[] = {
	NAOS_KMIP_FIELD(S, unique_identifier, UNIQUE_IDENTIFIER, TEXT),
	NAOS_KMIP_FIELD(S, usage_limits_count, USAGE_LIMITS_COUNT, LONG),
	NAOS_KMIP_FIELD(S, cryptographic_usage_mask, CRYPTOGRAPHIC_USAGE_MASK, INTEGER),
	NAOS_KMIP_FIELD(S, lease_time, LEASE_TIME, INTERVAL),
};
static NAOS_KMIP_SCHEMA(check);
#undef S

#define S struct naos_kmip_get_request
static const struct naos_kmip_row get_request_rows[] = {
	NAOS_KMIP_FIELD(S, unique_identifier, UNIQUE_IDENTIFIER, TEXT),
	NAOS_KMIP_FIELD(S, key_format_type, KEY_FORMAT_TYPE, ENUM),
	NAOS_KMIP_FIELD(S, key_wrap_type, KEY_WRAP_TYPE, ENUM, .since = NAOS_KMIP_1_4),
	NAOS_KMIP_FIELD(S, key_compression_type, KEY_COMPRESSION_TYPE, ENUM),
	NAOS_KMIP_INNER(S, wrapping, KEY_WRAPPING_SPECIFICATION, key_wrapping_specification),
};
static NAOS_KMIP_SCHEMA(get_request);
#undef S

#define S struct naos_kmip_get_response
static const struct naos_kmip_row get_response_rows[] = {
	NAOS_KMIP_FIELD(S, object_type, OBJECT_TYPE, ENUM, .required = true),
	NAOS_KMIP_FIELD(S, unique_identifier, UNIQUE_IDENTIFIER, TEXT, .required = true),
	MANAGED_OBJECT(S),
};
static NAOS_KMIP_SCHEMA(get_response);
#undef S

#define S struct naos_kmip_get_attributes_request
static const struct naos_kmip_row get_attributes_request_rows[] = {
	NAOS_KMIP_FIELD(S, unique_identifier, UNIQUE_IDENTIFIER, TEXT),
	ATTRIBUTE_NAMES(S),
};
static NAOS_KMIP_SCHEMA(get_attributes_request);
#undef S

#define S struct naos_kmip_get_attributes_response
static const struct naos_kmip_row get_attributes_response_rows[] = {
	NAOS_KMIP_FIELD(S, unique_identifier, UNIQUE_IDENTIFIER, TEXT, .required = true),
	OBJECT_ATTRIBUTES(S),
};
static NAOS_KMIP_SCHEMA(get_attributes_response);
#undef S

#define S struct naos_kmip_get_attribute_list_response
static const struct naos_kmip_row get_attribute_list_response_rows[] = {
	NAOS_KMIP_FIELD(S, unique_identifier, UNIQUE_IDENTIFIER, TEXT, .required = true),
	ATTRIBUTE_NAMES(S),
};
static NAOS_KMIP_SCHEMA(get_attribute_list_response);
#undef S

#define S struct naos_kmip_attribute_request
static const struct naos_kmip_row attribute_request_rows[] = {
	NAOS_KMIP_FIELD(S, unique_identifier, UNIQUE_IDENTIFIER, TEXT),
	NAOS_KMIP_FIELD(S, attribute, ATTRIBUTE, ATTRIBUTE, .required = true, .until = NAOS_KMIP_1_4),
	NAOS_KMIP_FIELD(S, current, CURRENT_ATTRIBUTE, ATTRIBUTE_ONE, .since = NAOS_KMIP_2_0),
	NAOS_KMIP_FIELD(S, attribute, NEW_ATTRIBUTE, ATTRIBUTE_ONE, .required = true, .since = NAOS_KMIP_2_0),
};
static NAOS_KMIP_SCHEMA(attribute_request);
#undef S

#define S struct naos_kmip_attribute_response
static const struct naos_kmip_row attribute_response_rows[] = {
	NAOS_KMIP_FIELD(S, unique_identifier, UNIQUE_IDENTIFIER, TEXT, .required = true),
	NAOS_KMIP_FIELD(S, attribute, ATTRIBUTE, ATTRIBUTE, .required = true, .until = NAOS_KMIP_1_4),
};
static NAOS_KMIP_SCHEMA(attribute_response);
#undef S

#define S struct naos_kmip_delete_attribute_request
static const struct naos_kmip_row delete_attribute_request_rows[] = {
	NAOS_KMIP_FIELD(S, unique_identifier, UNIQUE_IDENTIFIER, TEXT),
	NAOS_KMIP_FIELD(S, current, CURRENT_ATTRIBUTE, ATTRIBUTE_ONE, .since = NAOS_KMIP_2_0),
	ATTRIBUTE_NAMES(S),
	NAOS_KMIP_FIELD(S, index, ATTRIBUTE_INDEX, INTEGER, .until = NAOS_KMIP_1_4),
};
static NAOS_KMIP_SCHEMA(delete_attribute_request);
#undef S

#define S struct naos_kmip_revoke_request
static const struct naos_kmip_row revoke_request_rows[] = {
	NAOS_KMIP_FIELD(S, unique_identifier, UNIQUE_IDENTIFIER, TEXT),
	NAOS_KMIP_INNER(S, reason, REVOCATION_REASON, revocation_reason, .required = true),
	NAOS_KMIP_FIELD(S, compromise_occurrence, COMPROMISE_OCCURRENCE_DATE, DATE),
};
static NAOS_KMIP_SCHEMA(revoke_request);
#undef S

#define S struct naos_kmip_discover_versions
static const struct naos_kmip_row discover_versions_rows[] = {
	NAOS_KMIP_LIST(S, versions, PROTOCOL_VERSION, VERSION, uint32_t),
};
static NAOS_KMIP_SCHEMA(discover_versions);
#undef S

#define S struct naos_kmip_query_request
static const struct naos_kmip_row query_request_rows[] = {
	NAOS_KMIP_LIST(S, functions, QUERY_FUNCTION, ENUM, uint32_t, .required = true),
};
static NAOS_KMIP_SCHEMA(query_request);
#undef S

#define S struct naos_kmip_extension_information
static const struct naos_kmip_row extension_information_rows[] = {
	NAOS_KMIP_FIELD(S, name, EXTENSION_NAME, TEXT, .required = true),
	NAOS_KMIP_FIELD(S, tag, EXTENSION_TAG, INTEGER),
	NAOS_KMIP_FIELD(S, type, EXTENSION_TYPE, INTEGER),
};
static NAOS_KMIP_SCHEMA(extension_information);
#undef S

#define S struct naos_kmip_profile_information
static const struct naos_kmip_row profile_information_rows[] = {
	NAOS_KMIP_FIELD(S, name, PROFILE_NAME, ENUM, .required = true),
	NAOS_KMIP_FIELD(S, server_uri, SERVER_URI, TEXT),
	NAOS_KMIP_FIELD(S, server_port, SERVER_PORT, INTEGER),
};
static NAOS_KMIP_SCHEMA(profile_information);
#undef S

#define S struct naos_kmip_validation_information
static const struct naos_kmip_row validation_information_rows[] = {
	NAOS_KMIP_FIELD(S, authority_type, VALIDATION_AUTHORITY_TYPE, ENUM, .required = true),
	NAOS_KMIP_FIELD(S, authority_country, VALIDATION_AUTHORITY_COUNTRY, TEXT),
	NAOS_KMIP_FIELD(S, authority_uri, VALIDATION_AUTHORITY_URI, TEXT),
	NAOS_KMIP_FIELD(S, version_major, VALIDATION_VERSION_MAJOR, INTEGER, .required = true),
	NAOS_KMIP_FIELD(S, version_minor, VALIDATION_VERSION_MINOR, INTEGER),
	NAOS_KMIP_FIELD(S, type, VALIDATION_TYPE, ENUM, .required = true),
	NAOS_KMIP_FIELD(S, level, VALIDATION_LEVEL, INTEGER, .required = true),
	NAOS_KMIP_FIELD(S, certificate_identifier, VALIDATION_CERTIFICATE_IDENTIFIER, TEXT),
	NAOS_KMIP_FIELD(S, certificate_uri, VALIDATION_CERTIFICATE_URI, TEXT),
	NAOS_KMIP_FIELD(S, vendor_uri, VALIDATION_VENDOR_URI, TEXT),
	NAOS_KMIP_LIST(S, profiles, VALIDATION_PROFILE, TEXT, struct naos_kmip_text),
};
static NAOS_KMIP_SCHEMA(validation_information);
#undef S

#define S struct naos_kmip_capability_information
static const struct naos_kmip_row capability_information_rows[] = {
	NAOS_KMIP_FIELD(S, streaming, STREAMING_CAPABILITY, BOOLEAN),
	NAOS_KMIP_FIELD(S, asynchronous, ASYNCHRONOUS_CAPABILITY, BOOLEAN),
	NAOS_KMIP_FIELD(S, attestation, ATTESTATION_CAPABILITY, BOOLEAN),
	NAOS_KMIP_FIELD(S, batch_undo, BATCH_UNDO_CAPABILITY, BOOLEAN, .since = NAOS_KMIP_1_4),
	NAOS_KMIP_FIELD(S, batch_continue, BATCH_CONTINUE_CAPABILITY, BOOLEAN, .since = NAOS_KMIP_1_4),
	NAOS_KMIP_FIELD(S, unwrap_mode, UNWRAP_MODE, ENUM),
	NAOS_KMIP_FIELD(S, destroy_action, DESTROY_ACTION, ENUM),
	NAOS_KMIP_FIELD(S, shredding_algorithm, SHREDDING_ALGORITHM, ENUM),
	NAOS_KMIP_FIELD(S, rng_mode, RNG_MODE, ENUM),
};
static NAOS_KMIP_SCHEMA(capability_information);
#undef S

#define S struct naos_kmip_query_response
static const struct naos_kmip_row query_response_rows[] = {
	NAOS_KMIP_LIST(S, operations, OPERATION, ENUM, uint32_t),
	NAOS_KMIP_LIST(S, object_types, OBJECT_TYPE, ENUM, uint32_t),
	NAOS_KMIP_FIELD(S, vendor_identification, VENDOR_IDENTIFICATION, TEXT),
	NAOS_KMIP_FIELD(S, server_information, SERVER_INFORMATION, RAW),
	NAOS_KMIP_LIST(S, application_namespaces, APPLICATION_NAMESPACE, TEXT, struct naos_kmip_text),
	NAOS_KMIP_INNER_LIST(S, extensions, EXTENSION_INFORMATION, extension_information, .since = NAOS_KMIP_1_1),
	NAOS_KMIP_LIST(S, attestation_types, ATTESTATION_TYPE, ENUM, uint32_t, .since = NAOS_KMIP_1_2),
	NAOS_KMIP_INNER_LIST(S, rngs, RNG_PARAMETERS, rng_parameters, .since = NAOS_KMIP_1_3),
	NAOS_KMIP_INNER_LIST(S, profiles, PROFILE_INFORMATION, profile_information, .since = NAOS_KMIP_1_3),
	NAOS_KMIP_INNER_LIST(S, validations, VALIDATION_INFORMATION, validation_information, .since = NAOS_KMIP_1_3),
	NAOS_KMIP_INNER_LIST(S, capabilities, CAPABILITY_INFORMATION, capability_information, .since = NAOS_KMIP_1_3),
	NAOS_KMIP_LIST(S, client_registration_methods, CLIENT_REGISTRATION_METHOD, ENUM, uint32_t, .since = NAOS_KMIP_1_3),
};
static NAOS_KMIP_SCHEMA(query_response);
#undef S

#define S struct naos_kmip_crypt_request
static const struct naos_kmip_row crypt_request_rows[] = {
	NAOS_KMIP_FIELD(S, unique_identifier, UNIQUE_IDENTIFIER, TEXT),
	NAOS_KMIP_INNER(S, cryptographic_parameters, CRYPTOGRAPHIC_PARAMETERS, cryptographic_parameters),
	NAOS_KMIP_FIELD(S, data, DATA, BYTES),
	NAOS_KMIP_FIELD(S, iv_counter_nonce, IV_COUNTER_NONCE, BYTES),
	NAOS_KMIP_FIELD(S, correlation_value, CORRELATION_VALUE, BYTES, .since = NAOS_KMIP_1_3),
	NAOS_KMIP_FIELD(S, init_indicator, INIT_INDICATOR, BOOLEAN, .since = NAOS_KMIP_1_3),
	NAOS_KMIP_FIELD(S, final_indicator, FINAL_INDICATOR, BOOLEAN, .since = NAOS_KMIP_1_3),
	NAOS_KMIP_FIELD(S, additional_data, AUTHENTICATED_ENCRYPTION_ADDITIONAL_DATA, BYTES, .since = NAOS_KMIP_1_4),
	NAOS_KMIP_FIELD(S, tag, AUTHENTICATED_ENCRYPTION_TAG, BYTES, .since = NAOS_KMIP_1_4),
};
static NAOS_KMIP_SCHEMA(crypt_request);
#undef S

#define S struct naos_kmip_crypt_response
static const struct naos_kmip_row crypt_response_rows[] = {
	NAOS_KMIP_FIELD(S, unique_identifier, UNIQUE_IDENTIFIER, TEXT, .required = true),
	NAOS_KMIP_FIELD(S, data, DATA, BYTES),
	NAOS_KMIP_FIELD(S, iv_counter_nonce, IV_COUNTER_NONCE, BYTES),
	NAOS_KMIP_FIELD(S, correlation_value, CORRELATION_VALUE, BYTES, .since = NAOS_KMIP_1_3),
	NAOS_KMIP_FIELD(S, tag, AUTHENTICATED_ENCRYPTION_TAG, BYTES, .since = NAOS_KMIP_1_4),
};
static NAOS_KMIP_SCHEMA(crypt_response);
#undef S

#define S struct naos_kmip_rng_retrieve_request
static const struct naos_kmip_row rng_retrieve_request_rows[] = {
	NAOS_KMIP_FIELD(S, bytes, DATA_LENGTH, INTEGER, .required = true),
};
static NAOS_KMIP_SCHEMA(rng_retrieve_request);
#undef S

#define S struct naos_kmip_rng_retrieve_response
static const struct naos_kmip_row rng_retrieve_response_rows[] = {
	NAOS_KMIP_FIELD(S, data, DATA, BYTES, .required = true),
};
static NAOS_KMIP_SCHEMA(rng_retrieve_response);
#undef S

static const struct operation {
	uint32_t number, since;
	const struct naos_kmip_schema *schemas[2]; /* by role */
} operations[] = {
#define X(number_, member, request, response, since_) \
	{ .number = NAOS_KMIP_OPERATION_##number_, .since = (since_), \
	  .schemas = { &naos_kmip_##request##_schema, &naos_kmip_##response##_schema } },
#include "kmip/operations.def"
#undef X
};

/* A member of a payload union has the type that its schema describes. */
#define X(number, member, request, response, since) \
	_Static_assert(__builtin_types_compatible_p(__typeof__(((union naos_kmip_request_payload *)0)->member), struct naos_kmip_##request) && \
		       __builtin_types_compatible_p(__typeof__(((union naos_kmip_response_payload *)0)->member), struct naos_kmip_##response), \
		       #member " does not fit operations.def");
#include "kmip/operations.def"
#undef X

static const struct operation *find(uint32_t number)
{
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(operations); i++)
		if (operations[i].number == number)
			return &operations[i];
	return NULL;
}

uint32_t naos_kmip_operation_since(uint32_t operation)
{
	const struct operation *row = find(operation);
	return row ? row->since : 0;
}

const struct naos_kmip_schema *naos_kmip_payload_schema(enum naos_kmip_role role, uint32_t operation)
{
	const struct operation *row = find(operation);
	return row ? row->schemas[role] : NULL;
}

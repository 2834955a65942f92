/* Query, DiscoverVersions, RNGRetrieve; the table of operations.  SPDX-License-Identifier: Apache-2.0 */
#include "keyd/call.h"

static const struct naos_operation operations[] = {
	{ NAOS_KMIP_OPERATION_CREATE, "key.create", naos_operation_create, false },
	{ NAOS_KMIP_OPERATION_REGISTER, "key.register", naos_operation_register, false },
	{ NAOS_KMIP_OPERATION_REKEY, "key.rotate", naos_operation_rekey, false },
	{ NAOS_KMIP_OPERATION_LOCATE, "key.locate", naos_operation_locate, true },
	{ NAOS_KMIP_OPERATION_CHECK, "key.check", naos_operation_check, true },
	{ NAOS_KMIP_OPERATION_GET, "key.get", naos_operation_get, false },
	{ NAOS_KMIP_OPERATION_GET_ATTRIBUTES, "key.read", naos_operation_get_attributes, true },
	{ NAOS_KMIP_OPERATION_GET_ATTRIBUTE_LIST, "key.read", naos_operation_get_attribute_list, true },
	{ NAOS_KMIP_OPERATION_ADD_ATTRIBUTE, "key.modify", naos_operation_add_attribute, false },
	{ NAOS_KMIP_OPERATION_MODIFY_ATTRIBUTE, "key.modify", naos_operation_modify_attribute, false },
	{ NAOS_KMIP_OPERATION_DELETE_ATTRIBUTE, "key.modify", naos_operation_delete_attribute, false },
	{ NAOS_KMIP_OPERATION_ACTIVATE, "key.activate", naos_operation_activate, false },
	{ NAOS_KMIP_OPERATION_REVOKE, "key.revoke", naos_operation_revoke, false },
	{ NAOS_KMIP_OPERATION_DESTROY, "key.destroy", naos_operation_destroy, false },
	{ NAOS_KMIP_OPERATION_QUERY, "server.query", naos_operation_query, true },
	{ NAOS_KMIP_OPERATION_DISCOVER_VERSIONS, "server.query", naos_operation_discover_versions, true },
	{ NAOS_KMIP_OPERATION_RNG_RETRIEVE, "random.get", naos_operation_rng_retrieve, false },
	/* runs of these are done by handle.c; the rows are for the log and for Query */
	{ NAOS_KMIP_OPERATION_ENCRYPT, "key.encrypt", NULL, false },
	{ NAOS_KMIP_OPERATION_DECRYPT, "key.decrypt", NULL, false },
};

const struct naos_operation *naos_operation_find(uint32_t operation)
{
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(operations); i++)
		if (operations[i].operation == operation)
			return &operations[i];
	return NULL;
}

static int list_operations(struct naos_call *call, struct naos_kmip_numbers *ret)
{
	size_t count = 0;
	uint32_t *items = naos_call_take(call, NAOS_ARRAY_LENGTH(operations), sizeof(*items));
	if (!items)
		return -1;
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(operations); i++)
		if (naos_kmip_operation_since(operations[i].operation) <= call->version)
			items[count++] = operations[i].operation;
	*ret = (struct naos_kmip_numbers){ items, count };
	return 0;
}

static int answer_function(struct naos_call *call, uint32_t function, struct naos_kmip_query_response *out)
{
	static const uint32_t types[] = { NAOS_KMIP_OBJECT_TYPE_SYMMETRIC_KEY, NAOS_KMIP_OBJECT_TYPE_SECRET_DATA,
					  NAOS_KMIP_OBJECT_TYPE_OPAQUE_DATA };
	static const struct naos_kmip_rng_parameters rng = { .rng_algorithm = NAOS_KMIP_RNG_ALGORITHM_UNSPECIFIED };
	static const struct naos_kmip_profile_information profiles[] = {
		{ .name = NAOS_KMIP_PROFILE_BASELINE_SERVER_BASIC_KMIP_V14 },
		{ .name = NAOS_KMIP_PROFILE_SYMMETRIC_KEY_LIFECYCLE_SERVER_KMIP_V14 },
		{ .name = NAOS_KMIP_PROFILE_BASIC_CRYPTOGRAPHIC_SERVER_KMIP_V14 },
		{ .name = NAOS_KMIP_PROFILE_RNG_CRYPTOGRAPHIC_SERVER_KMIP_V14 },
		{ .name = NAOS_KMIP_PROFILE_SYMMETRIC_KEY_FOUNDRY_SERVER_KMIP_V14 },
		{ .name = NAOS_KMIP_PROFILE_OPAQUE_MANAGED_OBJECT_STORE_SERVER_KMIP_V14 },
	};
	static const struct naos_kmip_capability_information capability = { .streaming = { true, false },
									    .asynchronous = { true, false },
									    .attestation = { true, false },
									    .batch_undo = { true, false },
									    .batch_continue = { true, true },
									    .unwrap_mode = NAOS_KMIP_UNWRAP_MODE_NOT_PROCESSED,
									    .destroy_action =
										NAOS_KMIP_DESTROY_ACTION_KEY_MATERIAL_DELETED,
									    .shredding_algorithm =
										NAOS_KMIP_SHREDDING_ALGORITHM_CRYPTOGRAPHIC,
									    .rng_mode = NAOS_KMIP_RNG_MODE_SHARED_INSTANTIATION };
	static const struct naos_kmip_capability_information capability_of_1_3 = {
		.streaming = { true, false }, .asynchronous = { true, false }, .attestation = { true, false },
		.unwrap_mode = NAOS_KMIP_UNWRAP_MODE_NOT_PROCESSED, .destroy_action = NAOS_KMIP_DESTROY_ACTION_KEY_MATERIAL_DELETED,
		.shredding_algorithm = NAOS_KMIP_SHREDDING_ALGORITHM_CRYPTOGRAPHIC, .rng_mode = NAOS_KMIP_RNG_MODE_SHARED_INSTANTIATION };
	switch (function) {
	case NAOS_KMIP_QUERY_OPERATIONS: return list_operations(call, &out->operations);
	case NAOS_KMIP_QUERY_OBJECTS: out->object_types = (struct naos_kmip_numbers){ types, NAOS_ARRAY_LENGTH(types) }; break;
	case NAOS_KMIP_QUERY_SERVER_INFORMATION:
		out->vendor_identification = naos_kmip_text("Naos " NAOS_VERSION);
		out->server_information = (struct naos_kmip_raw){ NAOS_KMIP_TYPE_STRUCTURE, naos_kmip_bytes("", 0) };
		break;
	case NAOS_KMIP_QUERY_RNGS:
		if (call->version >= NAOS_KMIP_1_3) {
			out->rngs.items = &rng;
			out->rngs.count = 1;
		}
		break;
	case NAOS_KMIP_QUERY_PROFILES:
		if (call->version >= NAOS_KMIP_1_4) {
			out->profiles.items = profiles;
			out->profiles.count = NAOS_ARRAY_LENGTH(profiles);
		}
		break;
	case NAOS_KMIP_QUERY_CAPABILITIES:
		if (call->version >= NAOS_KMIP_1_3) {
			out->capabilities.items = call->version >= NAOS_KMIP_1_4 ? &capability : &capability_of_1_3;
			out->capabilities.count = 1;
		}
		break;
	default: break; /* nothing to tell */
	}
	return 0;
}

NAOS_OPERATION(query)
{
	if (in->query.functions.count > NAOS_KEYD_MAX_QUERY_FUNCTIONS)
		return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "a Query asks for at most %d functions",
					NAOS_KEYD_MAX_QUERY_FUNCTIONS);
	for (size_t i = 0; i < in->query.functions.count; i++)
		if (answer_function(call, in->query.functions.items[i], &out->query) != 0)
			return -1;
	return 0;
}

NAOS_OPERATION(discover_versions)
{
	static const uint32_t own[] = { NAOS_KMIP_1_4, NAOS_KMIP_1_3, NAOS_KMIP_1_2, NAOS_KMIP_1_1, NAOS_KMIP_1_0 };
	const struct naos_kmip_numbers *wanted = &in->discover_versions.versions;
	uint32_t *items = naos_call_take(call, NAOS_ARRAY_LENGTH(own), sizeof(*items));
	size_t count = 0;
	if (!items)
		return -1;
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(own); i++) {
		bool listed = wanted->count == 0;
		for (size_t w = 0; w < wanted->count; w++)
			listed |= wanted->items[w] == own[i];
		if (listed)
			items[count++] = own[i];
	}
	out->discover_versions.versions = (struct naos_kmip_numbers){ items, count };
	return 0;
}

NAOS_OPERATION(rng_retrieve)
{
	int32_t wanted = in->rng_retrieve.bytes.value;
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_secret *secret = NULL;
	if (naos_call_allowed(call, NAOS_RIGHT_RANDOM) != 0)
		return -1;
	if (wanted < 1)
		return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "at least one byte must be asked for");
	if (wanted > NAOS_HSM_MAX_RANDOM_BYTES)
		wanted = NAOS_HSM_MAX_RANDOM_BYTES; /* the specification lets a server give fewer */
	int rc = naos_secret_create((size_t)wanted, &secret, &err);
	if (rc != 0)
		return naos_call_fail(call, rc, &err);
	if (naos_call_own_secret(call, secret) != 0)
		return -1;
	rc = naos_hsm_random(call->keyd->hsm, naos_secret_data(secret), (size_t)wanted, &err);
	if (rc != 0)
		return naos_call_fail(call, rc, &err);
	out->rng_retrieve.data = naos_kmip_bytes(naos_secret_view(secret), (size_t)wanted);
	return 0;
}

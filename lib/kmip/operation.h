/* Payloads of the operations (KMIP specification, chapter "Client-to-Server Operations").  Everything is borrowed
 * (types.h).  A unique identifier that is absent in a request means the ID placeholder: the object of the item before.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KMIP_OPERATION_H
#define NAOS_KMIP_OPERATION_H

#include "kmip/object.h"

/* Requests and responses that hold nothing else: Activate, Destroy, GetAttributeList; responses of Revoke, SetAttribute. */
struct naos_kmip_identifier {
	struct naos_kmip_text unique_identifier;
};

struct naos_kmip_create_request {
	enum naos_kmip_object_type object_type;
	struct naos_kmip_attributes attributes;
};

struct naos_kmip_create_response {
	enum naos_kmip_object_type object_type;
	struct naos_kmip_text unique_identifier;
	struct naos_kmip_attributes attributes; /* 1.x: what the server added */
};

struct naos_kmip_register_request {
	enum naos_kmip_object_type object_type;
	struct naos_kmip_attributes attributes;
	struct naos_kmip_object object;
};

/* Of Register and ReKey. */
struct naos_kmip_register_response {
	struct naos_kmip_text unique_identifier;
	struct naos_kmip_attributes attributes; /* 1.x: what the server added */
};

struct naos_kmip_rekey_request {
	struct naos_kmip_text unique_identifier;
	struct naos_kmip_interval offset;
	struct naos_kmip_attributes attributes;
};

/* Filters are in attributes; some clients wrap them into a TemplateAttribute, which is kept apart: honour both. */
struct naos_kmip_locate_request {
	struct naos_kmip_integer maximum_items;
	struct naos_kmip_integer offset_items; /* from 1.3 on */
	struct naos_kmip_integer storage_status_mask;
	enum naos_kmip_object_group_member object_group_member; /* from 1.1 on */
	struct naos_kmip_attributes attributes, template_attributes;
};

struct naos_kmip_locate_response {
	struct naos_kmip_integer located_items; /* from 1.3 on */
	struct naos_kmip_texts unique_identifiers;
};

/* A request asks whether a use is allowed; its response names those of the limits that the server refuses. */
struct naos_kmip_check {
	struct naos_kmip_text unique_identifier;
	struct naos_kmip_long usage_limits_count;
	struct naos_kmip_integer cryptographic_usage_mask;
	struct naos_kmip_interval lease_time;
};

struct naos_kmip_get_request {
	struct naos_kmip_text unique_identifier;
	enum naos_kmip_key_format_type key_format_type;
	enum naos_kmip_key_wrap_type key_wrap_type; /* from 1.4 on */
	enum naos_kmip_key_compression_type key_compression_type;
	const struct naos_kmip_key_wrapping_specification *wrapping;
};

struct naos_kmip_get_response {
	enum naos_kmip_object_type object_type;
	struct naos_kmip_text unique_identifier;
	struct naos_kmip_object object;
};

struct naos_kmip_get_attributes_request {
	struct naos_kmip_text unique_identifier;
	struct naos_kmip_attribute_names names; /* none: all */
};

struct naos_kmip_get_attributes_response {
	struct naos_kmip_text unique_identifier;
	struct naos_kmip_attributes attributes;
};

struct naos_kmip_get_attribute_list_response {
	struct naos_kmip_text unique_identifier;
	struct naos_kmip_attribute_names names;
};

/* AddAttribute, SetAttribute (2.x), and ModifyAttribute (1.x says which instance by its index, 2.x by `current`). */
struct naos_kmip_attribute_request {
	struct naos_kmip_text unique_identifier;
	const struct naos_kmip_attribute *attribute;
	const struct naos_kmip_attribute *current; /* ModifyAttribute in 2.x */
};

/* Of AddAttribute, ModifyAttribute, DeleteAttribute. */
struct naos_kmip_attribute_response {
	struct naos_kmip_text unique_identifier;
	const struct naos_kmip_attribute *attribute; /* 1.x */
};

/* 1.x: one name and maybe an index; 2.x: `current`, or names. */
struct naos_kmip_delete_attribute_request {
	struct naos_kmip_text unique_identifier;
	struct naos_kmip_attribute_names names;
	struct naos_kmip_integer index;
	const struct naos_kmip_attribute *current;
};

struct naos_kmip_revoke_request {
	struct naos_kmip_text unique_identifier;
	const struct naos_kmip_revocation_reason *reason;
	struct naos_kmip_date compromise_occurrence;
};

struct naos_kmip_discover_versions {
	struct naos_kmip_numbers versions; /* NAOS_KMIP_1_4, …, the preferred one first */
};

struct naos_kmip_query_request {
	struct naos_kmip_numbers functions; /* enum naos_kmip_query_function */
};

struct naos_kmip_extension_information {
	struct naos_kmip_text name;
	struct naos_kmip_integer tag, type;
};

struct naos_kmip_profile_information {
	uint32_t name;
	struct naos_kmip_text server_uri;
	struct naos_kmip_integer server_port;
};

struct naos_kmip_validation_information {
	enum naos_kmip_validation_authority_type authority_type;
	struct naos_kmip_text authority_country, authority_uri;
	struct naos_kmip_integer version_major, version_minor;
	enum naos_kmip_validation_type type;
	struct naos_kmip_integer level;
	struct naos_kmip_text certificate_identifier, certificate_uri, vendor_uri;
	struct naos_kmip_texts profiles;
};

struct naos_kmip_capability_information {
	struct naos_kmip_boolean streaming, asynchronous, attestation, batch_undo, batch_continue;
	enum naos_kmip_unwrap_mode unwrap_mode;
	enum naos_kmip_destroy_action destroy_action;
	enum naos_kmip_shredding_algorithm shredding_algorithm;
	enum naos_kmip_rng_mode rng_mode;
};

struct naos_kmip_query_response {
	struct naos_kmip_numbers operations, object_types;
	struct naos_kmip_text vendor_identification;
	struct naos_kmip_raw server_information; /* a structure that the vendor defines */
	struct naos_kmip_texts application_namespaces;
	struct { const struct naos_kmip_extension_information *items; size_t count; } extensions; /* from 1.1 on */
	struct naos_kmip_numbers attestation_types;                                               /* from 1.2 on */
	/* From 1.3 on */
	struct { const struct naos_kmip_rng_parameters *items; size_t count; } rngs;
	struct { const struct naos_kmip_profile_information *items; size_t count; } profiles;
	struct { const struct naos_kmip_validation_information *items; size_t count; } validations;
	struct { const struct naos_kmip_capability_information *items; size_t count; } capabilities;
	struct naos_kmip_numbers client_registration_methods;
};

/* Encrypt and Decrypt.  `data` is the plaintext or ciphertext where it stands in the message.  GCM: from 1.4 on the tag has
 * its field; before, it is the end of data (kmip.md). */
struct naos_kmip_crypt_request {
	struct naos_kmip_text unique_identifier;
	const struct naos_kmip_cryptographic_parameters *cryptographic_parameters;
	struct naos_kmip_bytes data, iv_counter_nonce;
	struct naos_kmip_bytes correlation_value;                      /* from 1.3 on */
	struct naos_kmip_boolean init_indicator, final_indicator;      /* from 1.3 on */
	struct naos_kmip_bytes additional_data, tag;                   /* from 1.4 on; the tag only in Decrypt */
};

struct naos_kmip_crypt_response {
	struct naos_kmip_text unique_identifier;
	struct naos_kmip_bytes data, iv_counter_nonce; /* the latter only of Encrypt, where the server made it */
	struct naos_kmip_bytes correlation_value;      /* from 1.3 on */
	struct naos_kmip_bytes tag;                    /* from 1.4 on; only of Encrypt */
};

struct naos_kmip_rng_retrieve_request {
	struct naos_kmip_integer bytes;
};

struct naos_kmip_rng_retrieve_response {
	struct naos_kmip_bytes data;
};

union naos_kmip_request_payload {
	struct naos_kmip_create_request create;
	struct naos_kmip_register_request register_object;
	struct naos_kmip_rekey_request rekey;
	struct naos_kmip_locate_request locate;
	struct naos_kmip_check check;
	struct naos_kmip_get_request get;
	struct naos_kmip_get_attributes_request get_attributes;
	struct naos_kmip_identifier get_attribute_list;
	struct naos_kmip_attribute_request add_attribute, modify_attribute, set_attribute;
	struct naos_kmip_delete_attribute_request delete_attribute;
	struct naos_kmip_identifier activate;
	struct naos_kmip_revoke_request revoke;
	struct naos_kmip_identifier destroy;
	struct naos_kmip_query_request query;
	struct naos_kmip_discover_versions discover_versions;
	struct naos_kmip_crypt_request encrypt, decrypt;
	struct naos_kmip_rng_retrieve_request rng_retrieve;
};

union naos_kmip_response_payload {
	struct naos_kmip_create_response create;
	struct naos_kmip_register_response register_object, rekey;
	struct naos_kmip_locate_response locate;
	struct naos_kmip_check check;
	struct naos_kmip_get_response get;
	struct naos_kmip_get_attributes_response get_attributes;
	struct naos_kmip_get_attribute_list_response get_attribute_list;
	struct naos_kmip_attribute_response add_attribute, modify_attribute, delete_attribute;
	struct naos_kmip_identifier set_attribute, activate, revoke, destroy;
	struct naos_kmip_query_response query;
	struct naos_kmip_discover_versions discover_versions;
	struct naos_kmip_crypt_response encrypt, decrypt;
	struct naos_kmip_rng_retrieve_response rng_retrieve;
};

/* The version that brought an operation Naos can read; 0 for the others. */
uint32_t naos_kmip_operation_since(uint32_t operation);

#endif

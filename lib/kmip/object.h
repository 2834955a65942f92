/* Managed objects and key blocks (KMIP specification, chapter "Objects").  Everything is borrowed (types.h): `material`,
 * `wrapped` and `key` are the bytes of a key where they stand in the message.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KMIP_OBJECT_H
#define NAOS_KMIP_OBJECT_H

#include "kmip/attribute.h"

struct naos_kmip_transparent_key {
	struct naos_kmip_bytes key;
};

/* Exactly one of material and transparent (for Transparent Symmetric Key). */
struct naos_kmip_key_value {
	struct naos_kmip_bytes material;
	const struct naos_kmip_transparent_key *transparent;
	struct naos_kmip_attributes attributes;
};

struct naos_kmip_key_information {
	struct naos_kmip_text unique_identifier; /* of the wrapping key */
	const struct naos_kmip_cryptographic_parameters *cryptographic_parameters;
};

/* How a key is wrapped (in a key block) … */
struct naos_kmip_key_wrapping_data {
	enum naos_kmip_wrapping_method wrapping_method;
	const struct naos_kmip_key_information *encryption_key, *mac_signature_key;
	struct naos_kmip_bytes mac_signature, iv_counter_nonce;
	enum naos_kmip_encoding_option encoding_option; /* from 1.1 on */
};

/* … and how a client wants it wrapped (in Get). */
struct naos_kmip_key_wrapping_specification {
	enum naos_kmip_wrapping_method wrapping_method;
	const struct naos_kmip_key_information *encryption_key, *mac_signature_key;
	struct naos_kmip_attribute_names attributes;
	enum naos_kmip_encoding_option encoding_option; /* from 1.1 on */
};

/* `value` in clear or `wrapped`, or neither: a key value that is elsewhere. */
struct naos_kmip_key_block {
	enum naos_kmip_key_format_type format;
	enum naos_kmip_key_compression_type compression;
	const struct naos_kmip_key_value *value;
	struct naos_kmip_bytes wrapped;
	enum naos_kmip_cryptographic_algorithm cryptographic_algorithm;
	struct naos_kmip_integer cryptographic_length; /* bits */
	const struct naos_kmip_key_wrapping_data *wrapping;
};

struct naos_kmip_key {
	const struct naos_kmip_key_block *block;
};

struct naos_kmip_secret_data {
	enum naos_kmip_secret_data_type type;
	const struct naos_kmip_key_block *block;
};

struct naos_kmip_opaque_object {
	uint32_t type;
	struct naos_kmip_bytes value;
};

struct naos_kmip_certificate {
	enum naos_kmip_certificate_type type;
	struct naos_kmip_bytes value;
};

struct naos_kmip_template {
	struct naos_kmip_attributes attributes;
};

/* The one that is there. */
struct naos_kmip_object {
	const struct naos_kmip_key *symmetric_key, *private_key, *public_key;
	const struct naos_kmip_secret_data *secret_data;
	const struct naos_kmip_opaque_object *opaque_object;
	const struct naos_kmip_certificate *certificate;
	const struct naos_kmip_template *template_object; /* until 1.4 */
};

/* The type of the object that is there; 0 for none or more than one. */
enum naos_kmip_object_type naos_kmip_object_type(const struct naos_kmip_object *object);
/* Its key block; NULL for objects without one. */
const struct naos_kmip_key_block *naos_kmip_object_block(const struct naos_kmip_object *object);
/* The key bytes in clear of a key block (raw, opaque or transparent); data NULL if there are none. */
struct naos_kmip_bytes naos_kmip_block_material(const struct naos_kmip_key_block *block);

#endif

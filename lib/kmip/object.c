/* Managed objects and key blocks.  SPDX-License-Identifier: Apache-2.0 */
#include "kmip/object.h"

#include "kmip/schema.h"

#define S struct naos_kmip_transparent_key
static const struct naos_kmip_row transparent_key_rows[] = {
	NAOS_KMIP_FIELD(S, key, KEY, BYTES, .required = true),
};
static NAOS_KMIP_SCHEMA(transparent_key);
#undef S

#define S struct naos_kmip_key_value
static const struct naos_kmip_row key_value_rows[] = {
	NAOS_KMIP_FIELD(S, material, KEY_MATERIAL, BYTES),
	NAOS_KMIP_INNER(S, transparent, KEY_MATERIAL, transparent_key),
	NAOS_KMIP_LIST(S, attributes, ATTRIBUTE, ATTRIBUTE, struct naos_kmip_attribute, .until = NAOS_KMIP_1_4),
	NAOS_KMIP_FIELD(S, attributes, ATTRIBUTES, ATTRIBUTE_SET, .since = NAOS_KMIP_2_0),
};
static NAOS_KMIP_SCHEMA(key_value);
#undef S

#define S struct naos_kmip_key_information
static const struct naos_kmip_row key_information_rows[] = {
	NAOS_KMIP_FIELD(S, unique_identifier, UNIQUE_IDENTIFIER, TEXT, .required = true),
	NAOS_KMIP_INNER(S, cryptographic_parameters, CRYPTOGRAPHIC_PARAMETERS, cryptographic_parameters),
};
static NAOS_KMIP_SCHEMA(key_information);
#undef S

#define S struct naos_kmip_key_wrapping_data
static const struct naos_kmip_row key_wrapping_data_rows[] = {
	NAOS_KMIP_FIELD(S, wrapping_method, WRAPPING_METHOD, ENUM, .required = true),
	NAOS_KMIP_INNER(S, encryption_key, ENCRYPTION_KEY_INFORMATION, key_information),
	NAOS_KMIP_INNER(S, mac_signature_key, MAC_SIGNATURE_KEY_INFORMATION, key_information),
	NAOS_KMIP_FIELD(S, mac_signature, MAC_SIGNATURE, BYTES),
	NAOS_KMIP_FIELD(S, iv_counter_nonce, IV_COUNTER_NONCE, BYTES),
	NAOS_KMIP_FIELD(S, encoding_option, ENCODING_OPTION, ENUM, .since = NAOS_KMIP_1_1),
};
static NAOS_KMIP_SCHEMA(key_wrapping_data);
#undef S

#define S struct naos_kmip_key_wrapping_specification
static const struct naos_kmip_row key_wrapping_specification_rows[] = {
	NAOS_KMIP_FIELD(S, wrapping_method, WRAPPING_METHOD, ENUM, .required = true),
	NAOS_KMIP_INNER(S, encryption_key, ENCRYPTION_KEY_INFORMATION, key_information),
	NAOS_KMIP_INNER(S, mac_signature_key, MAC_SIGNATURE_KEY_INFORMATION, key_information),
	NAOS_KMIP_LIST(S, attributes, ATTRIBUTE_NAME, ATTRIBUTE_NAME, struct naos_kmip_attribute_name),
	NAOS_KMIP_FIELD(S, encoding_option, ENCODING_OPTION, ENUM, .since = NAOS_KMIP_1_1),
};
NAOS_KMIP_SCHEMA(key_wrapping_specification);
#undef S

#define S struct naos_kmip_key_block
static const struct naos_kmip_row key_block_rows[] = {
	NAOS_KMIP_FIELD(S, format, KEY_FORMAT_TYPE, ENUM, .required = true),
	NAOS_KMIP_FIELD(S, compression, KEY_COMPRESSION_TYPE, ENUM),
	NAOS_KMIP_INNER(S, value, KEY_VALUE, key_value),
	NAOS_KMIP_FIELD(S, wrapped, KEY_VALUE, BYTES),
	NAOS_KMIP_FIELD(S, cryptographic_algorithm, CRYPTOGRAPHIC_ALGORITHM, ENUM),
	NAOS_KMIP_FIELD(S, cryptographic_length, CRYPTOGRAPHIC_LENGTH, INTEGER),
	NAOS_KMIP_INNER(S, wrapping, KEY_WRAPPING_DATA, key_wrapping_data),
};
static NAOS_KMIP_SCHEMA(key_block);
#undef S

#define S struct naos_kmip_key
static const struct naos_kmip_row key_rows[] = {
	NAOS_KMIP_INNER(S, block, KEY_BLOCK, key_block, .required = true),
};
NAOS_KMIP_SCHEMA(key);
#undef S

#define S struct naos_kmip_secret_data
static const struct naos_kmip_row secret_data_rows[] = {
	NAOS_KMIP_FIELD(S, type, SECRET_DATA_TYPE, ENUM, .required = true),
	NAOS_KMIP_INNER(S, block, KEY_BLOCK, key_block, .required = true),
};
NAOS_KMIP_SCHEMA(secret_data);
#undef S

#define S struct naos_kmip_opaque_object
static const struct naos_kmip_row opaque_object_rows[] = {
	NAOS_KMIP_FIELD(S, type, OPAQUE_DATA_TYPE, ENUM, .required = true),
	NAOS_KMIP_FIELD(S, value, OPAQUE_DATA_VALUE, BYTES, .required = true),
};
NAOS_KMIP_SCHEMA(opaque_object);
#undef S

#define S struct naos_kmip_certificate
static const struct naos_kmip_row certificate_rows[] = {
	NAOS_KMIP_FIELD(S, type, CERTIFICATE_TYPE, ENUM, .required = true),
	NAOS_KMIP_FIELD(S, value, CERTIFICATE_VALUE, BYTES, .required = true),
};
NAOS_KMIP_SCHEMA(certificate);
#undef S

#define S struct naos_kmip_template
static const struct naos_kmip_row template_rows[] = {
	NAOS_KMIP_LIST(S, attributes, ATTRIBUTE, ATTRIBUTE, struct naos_kmip_attribute),
};
NAOS_KMIP_SCHEMA(template);
#undef S

enum naos_kmip_object_type naos_kmip_object_type(const struct naos_kmip_object *object)
{
	const struct {
		const void *there;
		enum naos_kmip_object_type type;
	} kinds[] = {
		{ object->symmetric_key, NAOS_KMIP_OBJECT_TYPE_SYMMETRIC_KEY },
		{ object->private_key, NAOS_KMIP_OBJECT_TYPE_PRIVATE_KEY },
		{ object->public_key, NAOS_KMIP_OBJECT_TYPE_PUBLIC_KEY },
		{ object->secret_data, NAOS_KMIP_OBJECT_TYPE_SECRET_DATA },
		{ object->opaque_object, NAOS_KMIP_OBJECT_TYPE_OPAQUE_DATA },
		{ object->certificate, NAOS_KMIP_OBJECT_TYPE_CERTIFICATE },
		{ object->template_object, NAOS_KMIP_OBJECT_TYPE_TEMPLATE },
	};
	enum naos_kmip_object_type type = 0;
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(kinds); i++) {
		if (kinds[i].there && type)
			return 0;
		if (kinds[i].there)
			type = kinds[i].type;
	}
	return type;
}

const struct naos_kmip_key_block *naos_kmip_object_block(const struct naos_kmip_object *object)
{
	const struct naos_kmip_key *key = object->symmetric_key ? object->symmetric_key :
					  object->private_key   ? object->private_key :
								  object->public_key;
	return key ? key->block : object->secret_data ? object->secret_data->block : NULL;
}

struct naos_kmip_bytes naos_kmip_block_material(const struct naos_kmip_key_block *block)
{
	if (!block || !block->value)
		return naos_kmip_bytes(NULL, 0);
	return block->value->transparent ? block->value->transparent->key : block->value->material;
}

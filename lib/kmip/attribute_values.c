/* The structures that are values of attributes.  SPDX-License-Identifier: Apache-2.0 */
#include "kmip/schema.h"

#define S struct naos_kmip_name
static const struct naos_kmip_row name_rows[] = {
	NAOS_KMIP_FIELD(S, value, NAME_VALUE, TEXT, .required = true),
	NAOS_KMIP_FIELD(S, type, NAME_TYPE, ENUM, .required = true),
};
NAOS_KMIP_SCHEMA(name);
#undef S

#define S struct naos_kmip_cryptographic_parameters
static const struct naos_kmip_row cryptographic_parameters_rows[] = {
	NAOS_KMIP_FIELD(S, block_cipher_mode, BLOCK_CIPHER_MODE, ENUM),
	NAOS_KMIP_FIELD(S, padding_method, PADDING_METHOD, ENUM),
	NAOS_KMIP_FIELD(S, hashing_algorithm, HASHING_ALGORITHM, ENUM),
	NAOS_KMIP_FIELD(S, key_role_type, KEY_ROLE_TYPE, ENUM),
	NAOS_KMIP_FIELD(S, digital_signature_algorithm, DIGITAL_SIGNATURE_ALGORITHM, ENUM, .since = NAOS_KMIP_1_2),
	NAOS_KMIP_FIELD(S, cryptographic_algorithm, CRYPTOGRAPHIC_ALGORITHM, ENUM, .since = NAOS_KMIP_1_2),
	NAOS_KMIP_FIELD(S, random_iv, RANDOM_IV, BOOLEAN, .since = NAOS_KMIP_1_2),
	NAOS_KMIP_FIELD(S, iv_length, IV_LENGTH, INTEGER, .since = NAOS_KMIP_1_2),
	NAOS_KMIP_FIELD(S, tag_length, TAG_LENGTH, INTEGER, .since = NAOS_KMIP_1_2),
	NAOS_KMIP_FIELD(S, fixed_field_length, FIXED_FIELD_LENGTH, INTEGER, .since = NAOS_KMIP_1_2),
	NAOS_KMIP_FIELD(S, invocation_field_length, INVOCATION_FIELD_LENGTH, INTEGER, .since = NAOS_KMIP_1_2),
	NAOS_KMIP_FIELD(S, counter_length, COUNTER_LENGTH, INTEGER, .since = NAOS_KMIP_1_2),
	NAOS_KMIP_FIELD(S, initial_counter_value, INITIAL_COUNTER_VALUE, INTEGER, .since = NAOS_KMIP_1_2),
	NAOS_KMIP_FIELD(S, salt_length, SALT_LENGTH, INTEGER, .since = NAOS_KMIP_1_4),
	NAOS_KMIP_FIELD(S, mask_generator, MASK_GENERATOR, ENUM, .since = NAOS_KMIP_1_4),
	NAOS_KMIP_FIELD(S, mask_generator_hashing_algorithm, MASK_GENERATOR_HASHING_ALGORITHM, ENUM, .since = NAOS_KMIP_1_4),
	NAOS_KMIP_FIELD(S, p_source, P_SOURCE, BYTES, .since = NAOS_KMIP_1_4),
	NAOS_KMIP_FIELD(S, trailer_field, TRAILER_FIELD, INTEGER, .since = NAOS_KMIP_1_4),
};
NAOS_KMIP_SCHEMA(cryptographic_parameters);
#undef S

#define S struct naos_kmip_domain_parameters
static const struct naos_kmip_row domain_parameters_rows[] = {
	NAOS_KMIP_FIELD(S, q_length, QLENGTH, INTEGER),
	NAOS_KMIP_FIELD(S, recommended_curve, RECOMMENDED_CURVE, ENUM),
};
NAOS_KMIP_SCHEMA(domain_parameters);
#undef S

#define S struct naos_kmip_digest
static const struct naos_kmip_row digest_rows[] = {
	NAOS_KMIP_FIELD(S, hashing_algorithm, HASHING_ALGORITHM, ENUM, .required = true),
	NAOS_KMIP_FIELD(S, value, DIGEST_VALUE, BYTES),
	NAOS_KMIP_FIELD(S, key_format_type, KEY_FORMAT_TYPE, ENUM, .since = NAOS_KMIP_1_1),
};
NAOS_KMIP_SCHEMA(digest);
#undef S

#define S struct naos_kmip_usage_limits
static const struct naos_kmip_row usage_limits_rows[] = {
	NAOS_KMIP_FIELD(S, total, USAGE_LIMITS_TOTAL, LONG, .required = true),
	NAOS_KMIP_FIELD(S, count, USAGE_LIMITS_COUNT, LONG),
	NAOS_KMIP_FIELD(S, unit, USAGE_LIMITS_UNIT, ENUM, .required = true),
};
NAOS_KMIP_SCHEMA(usage_limits);
#undef S

#define S struct naos_kmip_revocation_reason
static const struct naos_kmip_row revocation_reason_rows[] = {
	NAOS_KMIP_FIELD(S, code, REVOCATION_REASON_CODE, ENUM, .required = true),
	NAOS_KMIP_FIELD(S, message, REVOCATION_MESSAGE, TEXT),
};
NAOS_KMIP_SCHEMA(revocation_reason);
#undef S

#define S struct naos_kmip_link
static const struct naos_kmip_row link_rows[] = {
	NAOS_KMIP_FIELD(S, type, LINK_TYPE, ENUM, .required = true),
	NAOS_KMIP_FIELD(S, object, LINKED_OBJECT_IDENTIFIER, TEXT, .required = true),
};
NAOS_KMIP_SCHEMA(link);
#undef S

#define S struct naos_kmip_application_information
static const struct naos_kmip_row application_information_rows[] = {
	NAOS_KMIP_FIELD(S, name_space, APPLICATION_NAMESPACE, TEXT, .required = true),
	NAOS_KMIP_FIELD(S, data, APPLICATION_DATA, TEXT),
};
NAOS_KMIP_SCHEMA(application_information);
#undef S

#define S struct naos_kmip_alternative_name
static const struct naos_kmip_row alternative_name_rows[] = {
	NAOS_KMIP_FIELD(S, value, ALTERNATIVE_NAME_VALUE, TEXT, .required = true),
	NAOS_KMIP_FIELD(S, type, ALTERNATIVE_NAME_TYPE, ENUM, .required = true),
};
NAOS_KMIP_SCHEMA(alternative_name);
#undef S

#define S struct naos_kmip_key_value_location
static const struct naos_kmip_row key_value_location_rows[] = {
	NAOS_KMIP_FIELD(S, value, KEY_VALUE_LOCATION_VALUE, TEXT, .required = true),
	NAOS_KMIP_FIELD(S, type, KEY_VALUE_LOCATION_TYPE, ENUM, .required = true),
};
NAOS_KMIP_SCHEMA(key_value_location);
#undef S

#define S struct naos_kmip_rng_parameters
static const struct naos_kmip_row rng_parameters_rows[] = {
	NAOS_KMIP_FIELD(S, rng_algorithm, RNG_ALGORITHM, ENUM, .required = true),
	NAOS_KMIP_FIELD(S, cryptographic_algorithm, CRYPTOGRAPHIC_ALGORITHM, ENUM),
	NAOS_KMIP_FIELD(S, cryptographic_length, CRYPTOGRAPHIC_LENGTH, INTEGER),
	NAOS_KMIP_FIELD(S, hashing_algorithm, HASHING_ALGORITHM, ENUM),
	NAOS_KMIP_FIELD(S, drbg_algorithm, DRBG_ALGORITHM, ENUM),
	NAOS_KMIP_FIELD(S, recommended_curve, RECOMMENDED_CURVE, ENUM),
	NAOS_KMIP_FIELD(S, fips186_variation, FIPS186_VARIATION, ENUM),
	NAOS_KMIP_FIELD(S, prediction_resistance, PREDICTION_RESISTANCE, BOOLEAN),
};
NAOS_KMIP_SCHEMA(rng_parameters);
#undef S

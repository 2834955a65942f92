/* Attributes of managed objects (attributes.def), and the structures that are their values.
 *
 * In 1.x an attribute is named by its text, in 2.x by its tag; here always by its tag, with the text kept beside it.
 * Custom attributes (x-…, y-…) and names that Naos does not know have tag 0: they are kept, so that a server can store
 * and return them or refuse them itself.  Everything is borrowed (types.h).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KMIP_ATTRIBUTE_H
#define NAOS_KMIP_ATTRIBUTE_H

#include "kmip/types.h"

struct naos_kmip_name {
	struct naos_kmip_text value;
	enum naos_kmip_name_type type;
};

struct naos_kmip_cryptographic_parameters {
	enum naos_kmip_block_cipher_mode block_cipher_mode;
	enum naos_kmip_padding_method padding_method;
	enum naos_kmip_hashing_algorithm hashing_algorithm;
	enum naos_kmip_key_role_type key_role_type;
	/* From 1.2 on */
	enum naos_kmip_digital_signature_algorithm digital_signature_algorithm;
	enum naos_kmip_cryptographic_algorithm cryptographic_algorithm;
	struct naos_kmip_boolean random_iv;
	struct naos_kmip_integer iv_length;  /* bits */
	struct naos_kmip_integer tag_length; /* bytes */
	struct naos_kmip_integer fixed_field_length, invocation_field_length, counter_length, initial_counter_value;
	/* From 1.4 on */
	struct naos_kmip_integer salt_length;
	enum naos_kmip_mask_generator mask_generator;
	enum naos_kmip_hashing_algorithm mask_generator_hashing_algorithm;
	struct naos_kmip_bytes p_source;
	struct naos_kmip_integer trailer_field;
};

struct naos_kmip_domain_parameters {
	struct naos_kmip_integer q_length;
	uint32_t recommended_curve;
};

struct naos_kmip_digest {
	enum naos_kmip_hashing_algorithm hashing_algorithm;
	struct naos_kmip_bytes value;
	enum naos_kmip_key_format_type key_format_type; /* from 1.1 on */
};

struct naos_kmip_usage_limits {
	struct naos_kmip_long total, count;
	enum naos_kmip_usage_limits_unit unit;
};

struct naos_kmip_revocation_reason {
	enum naos_kmip_revocation_reason_code code;
	struct naos_kmip_text message;
};

struct naos_kmip_link {
	enum naos_kmip_link_type type;
	struct naos_kmip_text object; /* unique identifier */
};

/* data is required before 1.3; from then on the server may make it. */
struct naos_kmip_application_information {
	struct naos_kmip_text name_space, data;
};

struct naos_kmip_alternative_name {
	struct naos_kmip_text value;
	enum naos_kmip_alternative_name_type type;
};

struct naos_kmip_key_value_location {
	struct naos_kmip_text value;
	enum naos_kmip_key_value_location_type type;
};

struct naos_kmip_rng_parameters {
	enum naos_kmip_rng_algorithm rng_algorithm;
	enum naos_kmip_cryptographic_algorithm cryptographic_algorithm;
	struct naos_kmip_integer cryptographic_length;
	enum naos_kmip_hashing_algorithm hashing_algorithm;
	enum naos_kmip_drbg_algorithm drbg_algorithm;
	uint32_t recommended_curve, fips186_variation;
	struct naos_kmip_boolean prediction_resistance;
};

/* A value: `type` says which member holds it. */
struct naos_kmip_value {
	uint8_t type; /* enum naos_kmip_type; 0: absent */
	union {
		int32_t integer;
		int64_t long_integer;
		uint32_t enumeration;
		bool boolean;
		struct naos_kmip_text text;
		struct naos_kmip_bytes bytes; /* also what has no member: as on the wire */
		int64_t unix_s;
		uint32_t seconds;
		const void *structure; /* any of those below, by the attribute's tag */
		const struct naos_kmip_name *name;
		const struct naos_kmip_cryptographic_parameters *cryptographic_parameters;
		const struct naos_kmip_domain_parameters *domain_parameters;
		const struct naos_kmip_digest *digest;
		const struct naos_kmip_usage_limits *usage_limits;
		const struct naos_kmip_revocation_reason *revocation_reason;
		const struct naos_kmip_link *link;
		const struct naos_kmip_application_information *application_information;
		const struct naos_kmip_alternative_name *alternative_name;
		const struct naos_kmip_key_value_location *key_value_location;
		const struct naos_kmip_rng_parameters *rng_parameters;
	};
};

struct naos_kmip_attribute {
	enum naos_kmip_tag tag;         /* 0: custom or unknown */
	struct naos_kmip_text name;     /* decoding 1.x sets it; encoding needs it only where tag is 0 */
	struct naos_kmip_text vendor;   /* 2.x, where tag is 0 */
	struct naos_kmip_integer index; /* 1.x */
	struct naos_kmip_value value;
};

struct naos_kmip_names {
	const struct naos_kmip_name *items;
	size_t count;
};

struct naos_kmip_attributes {
	const struct naos_kmip_attribute *items;
	size_t count;
	/* Only where KMIP puts a structure around them (TemplateAttribute in 1.x, Attributes in 2.x): it is there although
	 * it is empty.  Decoding sets it; encoding writes the structure if this is set or there is something to put in. */
	bool enclosed;
	struct naos_kmip_names templates; /* names of templates, in a TemplateAttribute */
};

struct naos_kmip_attribute_name {
	enum naos_kmip_tag tag; /* 0: custom or unknown */
	struct naos_kmip_text name, vendor;
};

struct naos_kmip_attribute_names {
	const struct naos_kmip_attribute_name *items;
	size_t count;
};

/* What KMIP says of an attribute.  Strings are static. */
struct naos_kmip_attribute_info {
	enum naos_kmip_tag tag;
	const char *name;       /* "Cryptographic Algorithm" */
	uint8_t type;           /* enum naos_kmip_type */
	bool multiple;          /* several instances */
	uint32_t since, until;  /* versions; until 0: still there */
};

/* By tag or by name (exactly as KMIP writes it); NULL for others. */
const struct naos_kmip_attribute_info *naos_kmip_attribute_info(uint32_t tag);
const struct naos_kmip_attribute_info *naos_kmip_attribute_info_named(struct naos_kmip_text name);
/* All of them, in order; NULL behind the last. */
const struct naos_kmip_attribute_info *naos_kmip_attribute_row(unsigned index);
/* True if this version of KMIP has the attribute: others must not be sent to such a peer (encoding refuses). */
bool naos_kmip_attribute_in_version(const struct naos_kmip_attribute_info *info, uint32_t version);
/* x-… or y-…: an attribute of a client's or a server's own. */
bool naos_kmip_attribute_is_custom(struct naos_kmip_text name);

/* The nth (from 0) with this tag, NULL if there is none. */
const struct naos_kmip_attribute *naos_kmip_attributes_find(const struct naos_kmip_attributes *attributes, uint32_t tag,
							    size_t nth);

/* An attribute to send; text is borrowed. */
static inline struct naos_kmip_attribute naos_kmip_attribute_enum(enum naos_kmip_tag tag, uint32_t value)
{
	return (struct naos_kmip_attribute){ .tag = tag, .value = { .type = NAOS_KMIP_TYPE_ENUMERATION, .enumeration = value } };
}

static inline struct naos_kmip_attribute naos_kmip_attribute_integer(enum naos_kmip_tag tag, int32_t value)
{
	return (struct naos_kmip_attribute){ .tag = tag, .value = { .type = NAOS_KMIP_TYPE_INTEGER, .integer = value } };
}

static inline struct naos_kmip_attribute naos_kmip_attribute_text(enum naos_kmip_tag tag, struct naos_kmip_text value)
{
	return (struct naos_kmip_attribute){ .tag = tag, .value = { .type = NAOS_KMIP_TYPE_TEXT, .text = value } };
}

static inline struct naos_kmip_attribute naos_kmip_attribute_date(enum naos_kmip_tag tag, int64_t unix_s)
{
	return (struct naos_kmip_attribute){ .tag = tag, .value = { .type = NAOS_KMIP_TYPE_DATE_TIME, .unix_s = unix_s } };
}

static inline struct naos_kmip_attribute naos_kmip_attribute_boolean(enum naos_kmip_tag tag, bool value)
{
	return (struct naos_kmip_attribute){ .tag = tag, .value = { .type = NAOS_KMIP_TYPE_BOOLEAN, .boolean = value } };
}

/* `structure` is the struct that belongs to the tag; it is borrowed. */
static inline struct naos_kmip_attribute naos_kmip_attribute_structure(enum naos_kmip_tag tag, const void *structure)
{
	return (struct naos_kmip_attribute){ .tag = tag, .value = { .type = NAOS_KMIP_TYPE_STRUCTURE, .structure = structure } };
}

#endif

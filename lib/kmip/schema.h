/* Inside of lib/kmip: one table per KMIP structure, which both decodes and encodes it.
 *
 * A structure of the protocol is a C struct and a schema: one row per field, in the order of the specification, that says
 * tag, kind, place in the struct, whether it must be there, and from which to which version of KMIP it exists.  Because
 * one table is read in both directions, what is decoded is encoded again to the same bytes.  Schemas nest but never
 * contain themselves, so the depth of calls is that of the tables, whatever a message says.
 *
 * Order: fields are written in order and accepted in any.  Versions: a field of another major version is unknown; one of
 * a later minor version is taken and the message marked (any_version), and written only to messages so marked.
 * Requests must have what is required and nothing unknown; in responses of other servers both are forgiven, except a
 * missing result status.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KMIP_SCHEMA_H
#define NAOS_KMIP_SCHEMA_H

#include "base/cursor.h"
#include "kmip/arena.h"
#include "kmip/attribute.h"
#include "kmip/ttlv.h"

/* How a field is kept: type in the struct; as a list (many) of these: struct { const TYPE *items; size_t count; }. */
enum naos_kmip_kind {
	NAOS_KMIP_KIND_INTEGER,         /* struct naos_kmip_integer */
	NAOS_KMIP_KIND_LONG,            /* struct naos_kmip_long */
	NAOS_KMIP_KIND_BOOLEAN,         /* struct naos_kmip_boolean */
	NAOS_KMIP_KIND_DATE,            /* struct naos_kmip_date */
	NAOS_KMIP_KIND_INTERVAL,        /* struct naos_kmip_interval */
	NAOS_KMIP_KIND_ENUM,            /* uint32_t or an enum */
	NAOS_KMIP_KIND_STATUS,          /* enum naos_kmip_result_status: 0 is a value, so it is always there */
	NAOS_KMIP_KIND_TEXT,            /* struct naos_kmip_text */
	NAOS_KMIP_KIND_BYTES,           /* struct naos_kmip_bytes */
	NAOS_KMIP_KIND_VERSION,         /* uint32_t: the structure Protocol Version */
	NAOS_KMIP_KIND_RAW,             /* struct naos_kmip_raw: a structure that stays as it is */
	NAOS_KMIP_KIND_STRUCT,          /* pointer to the inner schema's struct; in lists the structs themselves */
	NAOS_KMIP_KIND_ATTRIBUTE,       /* 1.x: struct naos_kmip_attribute; pointer to it where there is one */
	NAOS_KMIP_KIND_TEMPLATE,        /* 1.x TemplateAttribute: struct naos_kmip_attributes */
	NAOS_KMIP_KIND_ATTRIBUTE_SET,   /* 2.x Attributes: struct naos_kmip_attributes */
	NAOS_KMIP_KIND_ATTRIBUTE_ONE,   /* 2.x NewAttribute: pointer to struct naos_kmip_attribute */
	NAOS_KMIP_KIND_ATTRIBUTE_NAME,  /* 1.x: struct naos_kmip_attribute_name */
	NAOS_KMIP_KIND_REFERENCE,       /* 2.x AttributeReference: struct naos_kmip_attribute_name */
};

struct naos_kmip_schema;

struct naos_kmip_row {
	uint32_t tag;
	uint8_t kind;
	bool many, required;
	uint16_t since, until; /* versions; 0: always */
	uint16_t offset;
	const struct naos_kmip_schema *inner; /* of KIND_STRUCT */
};

#define NAOS_KMIP_SCHEMA_ROWS 24

struct naos_kmip_schema {
	size_t bytes; /* of the struct */
	size_t count;
	const struct naos_kmip_row *rows;
};

/* The C type of each kind, so that a row whose member has another one does not compile.  Any enum is an unsigned int. */
#define NAOS_KMIP_C_INTEGER struct naos_kmip_integer
#define NAOS_KMIP_C_LONG struct naos_kmip_long
#define NAOS_KMIP_C_BOOLEAN struct naos_kmip_boolean
#define NAOS_KMIP_C_DATE struct naos_kmip_date
#define NAOS_KMIP_C_INTERVAL struct naos_kmip_interval
#define NAOS_KMIP_C_ENUM unsigned int
#define NAOS_KMIP_C_STATUS unsigned int
#define NAOS_KMIP_C_TEXT struct naos_kmip_text
#define NAOS_KMIP_C_BYTES struct naos_kmip_bytes
#define NAOS_KMIP_C_VERSION unsigned int
#define NAOS_KMIP_C_RAW struct naos_kmip_raw
#define NAOS_KMIP_C_ATTRIBUTE const struct naos_kmip_attribute *
#define NAOS_KMIP_C_ATTRIBUTE_ONE const struct naos_kmip_attribute *
#define NAOS_KMIP_C_TEMPLATE struct naos_kmip_attributes
#define NAOS_KMIP_C_ATTRIBUTE_SET struct naos_kmip_attributes

#define NAOS_KMIP_PLACE(type, member, expression, wanted) \
	(uint16_t)(offsetof(type, member) + 0 * sizeof(struct { \
		_Static_assert(__builtin_types_compatible_p(__typeof__(((type *)0)->expression), wanted), #member " has another type"); \
		int unused; \
	}))

/* One row: a member of the struct `type`, its tag and kind, and then maybe .required = true, .since = …, .until = …. */
#define NAOS_KMIP_FIELD(type, member, tag_, kind_, ...) \
	{ .tag = NAOS_KMIP_TAG_##tag_, .kind = NAOS_KMIP_KIND_##kind_, \
	  .offset = NAOS_KMIP_PLACE(type, member, member, NAOS_KMIP_C_##kind_), __VA_ARGS__ }
/* A list whose items have the type `item`. */
#define NAOS_KMIP_LIST(type, member, tag_, kind_, item, ...) \
	{ .tag = NAOS_KMIP_TAG_##tag_, .kind = NAOS_KMIP_KIND_##kind_, .many = true, \
	  .offset = NAOS_KMIP_PLACE(type, member, member.items, const item *), __VA_ARGS__ }
/* A structure: a pointer to struct naos_kmip_<name>, described by naos_kmip_<name>_schema. */
#define NAOS_KMIP_INNER(type, member, tag_, name, ...) \
	{ .tag = NAOS_KMIP_TAG_##tag_, .kind = NAOS_KMIP_KIND_STRUCT, .inner = &naos_kmip_##name##_schema, \
	  .offset = NAOS_KMIP_PLACE(type, member, member, const struct naos_kmip_##name *), __VA_ARGS__ }
#define NAOS_KMIP_INNER_LIST(type, member, tag_, name, ...) \
	NAOS_KMIP_LIST(type, member, tag_, STRUCT, struct naos_kmip_##name, .inner = &naos_kmip_##name##_schema, __VA_ARGS__)

/* The schema of struct naos_kmip_<name>, whose rows are in the array name##_rows. */
#define NAOS_KMIP_SCHEMA(name) NAOS_KMIP_SCHEMA_AS(name, struct naos_kmip_##name)
#define NAOS_KMIP_SCHEMA_AS(name, type) \
	const struct naos_kmip_schema naos_kmip_##name##_schema = { .bytes = sizeof(type), .count = NAOS_ARRAY_LENGTH(name##_rows), \
								    .rows = name##_rows }; \
	_Static_assert(NAOS_ARRAY_LENGTH(name##_rows) <= NAOS_KMIP_SCHEMA_ROWS, #name " has too many rows")

extern const struct naos_kmip_schema naos_kmip_name_schema, naos_kmip_cryptographic_parameters_schema,
	naos_kmip_domain_parameters_schema, naos_kmip_digest_schema, naos_kmip_usage_limits_schema,
	naos_kmip_revocation_reason_schema, naos_kmip_link_schema, naos_kmip_application_information_schema,
	naos_kmip_alternative_name_schema, naos_kmip_key_value_location_schema, naos_kmip_rng_parameters_schema;
extern const struct naos_kmip_schema naos_kmip_key_wrapping_specification_schema, naos_kmip_key_schema,
	naos_kmip_secret_data_schema, naos_kmip_opaque_object_schema, naos_kmip_certificate_schema, naos_kmip_template_schema;

/* Where a decoding or encoding stands. */
struct naos_kmip_codec {
	enum naos_kmip_role role;
	uint32_t version;
	bool any_version; /* decoding sets it, encoding obeys it */
	struct naos_kmip_arena *arena;
	/* Why it failed: a reason for the peer and a sentence without any value of the message. */
	uint32_t reason;
	int code; /* enum naos_error_code */
	char problem[120];
};

/* Records why and returns false. */
bool naos_kmip_codec_fail(struct naos_kmip_codec *codec, int code, uint32_t reason, const char *format, ...) naos_printf(4, 5);
/* "UniqueIdentifier", or "tag 54xxxx" in buffer. */
const char *naos_kmip_tag_text(uint32_t tag, char buffer[static 16]);

/* The content of a structure into a zeroed struct. */
bool naos_kmip_structure_decode(struct naos_kmip_codec *codec, const struct naos_kmip_schema *schema,
				const struct naos_kmip_item *item, void *ret) naos_must_check;
/* A structure with its content. */
bool naos_kmip_structure_encode(struct naos_kmip_codec *codec, const struct naos_kmip_schema *schema, uint32_t tag,
				const void *source, struct naos_cursor *out) naos_must_check;
/* The same without opening and closing: the fields only. */
bool naos_kmip_fields_encode(struct naos_kmip_codec *codec, const struct naos_kmip_schema *schema, uint32_t parent,
			     const void *source, struct naos_cursor *out) naos_must_check;
/* A structure, or memory for one, from the arena; NULL (and the codec says so) if it is exhausted. */
void *naos_kmip_codec_take(struct naos_kmip_codec *codec, size_t count, size_t bytes) naos_must_check;
/* Whether a thing that exists from `since` to `until` belongs to this major version; a later minor version is noted. */
bool naos_kmip_codec_has(struct naos_kmip_codec *codec, uint32_t since, uint32_t until) naos_must_check;
/* Encoding: fails if `since` is later than the version and the message is not marked. */
bool naos_kmip_codec_may_send(struct naos_kmip_codec *codec, uint32_t tag, uint32_t since) naos_must_check;

/* Attributes (attribute.c): an Attribute or TemplateAttribute of 1.x, an item inside Attributes of 2.x. */
bool naos_kmip_attribute_decode(struct naos_kmip_codec *codec, const struct naos_kmip_item *item,
				struct naos_kmip_attribute *ret) naos_must_check;
bool naos_kmip_attribute_encode(struct naos_kmip_codec *codec, uint32_t tag, const struct naos_kmip_attribute *attribute,
				struct naos_cursor *out) naos_must_check;
bool naos_kmip_template_decode(struct naos_kmip_codec *codec, const struct naos_kmip_item *item,
			       struct naos_kmip_attributes *ret) naos_must_check;
bool naos_kmip_template_encode(struct naos_kmip_codec *codec, uint32_t tag, const struct naos_kmip_attributes *attributes,
			       struct naos_cursor *out) naos_must_check;
bool naos_kmip_attribute_set_decode(struct naos_kmip_codec *codec, const struct naos_kmip_item *item,
				    struct naos_kmip_attributes *ret) naos_must_check;
bool naos_kmip_attribute_set_encode(struct naos_kmip_codec *codec, uint32_t tag, const struct naos_kmip_attribute *attributes,
				    size_t count, struct naos_cursor *out) naos_must_check;
bool naos_kmip_attribute_name_decode(struct naos_kmip_codec *codec, const struct naos_kmip_item *item,
				     struct naos_kmip_attribute_name *ret) naos_must_check;
bool naos_kmip_attribute_name_encode(struct naos_kmip_codec *codec, const struct naos_kmip_row *row,
				     const struct naos_kmip_attribute_name *name, struct naos_cursor *out) naos_must_check;

/* Payloads (operation.c). */
const struct naos_kmip_schema *naos_kmip_payload_schema(enum naos_kmip_role role, uint32_t operation);

#endif

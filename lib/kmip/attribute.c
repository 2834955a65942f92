/* Attributes, as 1.x and as 2.x write them.  SPDX-License-Identifier: Apache-2.0 */
#include "kmip/attribute.h"

#include "kmip/schema.h"

/* attribute.def's column of schemas: "none", or a structure of attribute_values.c */
#define none_schema_address NULL
#define name_schema_address &naos_kmip_name_schema
#define cryptographic_parameters_schema_address &naos_kmip_cryptographic_parameters_schema
#define domain_parameters_schema_address &naos_kmip_domain_parameters_schema
#define digest_schema_address &naos_kmip_digest_schema
#define usage_limits_schema_address &naos_kmip_usage_limits_schema
#define revocation_reason_schema_address &naos_kmip_revocation_reason_schema
#define link_schema_address &naos_kmip_link_schema
#define application_information_schema_address &naos_kmip_application_information_schema
#define alternative_name_schema_address &naos_kmip_alternative_name_schema
#define key_value_location_schema_address &naos_kmip_key_value_location_schema
#define rng_parameters_schema_address &naos_kmip_rng_parameters_schema

static const struct row {
	struct naos_kmip_attribute_info info;
	const struct naos_kmip_schema *schema;
	size_t name_bytes;
} rows[] = {
#define X(tag_, name_, type_, schema_, multiple_, since_, until_) \
	{ { .tag = NAOS_KMIP_TAG_##tag_, .name = (name_), .type = NAOS_KMIP_TYPE_##type_, .multiple = (multiple_), .since = (since_), \
	    .until = (until_) }, schema_##_schema_address, sizeof(name_) - 1 },
#include "kmip/attributes.def"
#undef X
};

static const struct row *find_tag(uint32_t tag)
{
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(rows); i++)
		if (rows[i].info.tag == tag)
			return &rows[i];
	return NULL;
}

static const struct row *find_name(struct naos_kmip_text name)
{
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(rows); i++)
		if (name.bytes == rows[i].name_bytes && memcmp(name.data, rows[i].info.name, name.bytes) == 0)
			return &rows[i];
	return NULL;
}

const struct naos_kmip_attribute_info *naos_kmip_attribute_info(uint32_t tag)
{
	const struct row *row = find_tag(tag);
	return row ? &row->info : NULL;
}

const struct naos_kmip_attribute_info *naos_kmip_attribute_info_named(struct naos_kmip_text name)
{
	const struct row *row = find_name(name);
	return row ? &row->info : NULL;
}

const struct naos_kmip_attribute_info *naos_kmip_attribute_row(unsigned index)
{
	return index < NAOS_ARRAY_LENGTH(rows) ? &rows[index].info : NULL;
}

bool naos_kmip_attribute_in_version(const struct naos_kmip_attribute_info *info, uint32_t version)
{
	return version >= info->since && (info->until == 0 || version <= info->until);
}

bool naos_kmip_attribute_is_custom(struct naos_kmip_text name)
{
	return name.bytes > 2 && (name.data[0] == 'x' || name.data[0] == 'y') && name.data[1] == '-';
}

const struct naos_kmip_attribute *naos_kmip_attributes_find(const struct naos_kmip_attributes *attributes, uint32_t tag,
							    size_t nth)
{
	for (size_t i = 0; i < attributes->count; i++)
		if (attributes->items[i].tag == tag && nth-- == 0)
			return &attributes->items[i];
	return NULL;
}

static bool fail(struct naos_kmip_codec *codec, const char *what, uint32_t tag)
{
	char buffer[16];
	return naos_kmip_codec_fail(codec, NAOS_E_FORMAT, NAOS_KMIP_REASON_INVALID_FIELD, "%s: %s",
				    naos_kmip_tag_text(tag, buffer), what);
}

/* row NULL: a custom attribute, of any type; its structure stays as it is. */
static bool decode_value(struct naos_kmip_codec *codec, const struct row *row, const struct naos_kmip_item *item,
			 struct naos_kmip_value *ret)
{
	if (row && row->info.type != item->type)
		return fail(codec, "wrong type of value", row->info.tag);
	ret->type = item->type;
	switch ((enum naos_kmip_type)item->type) {
	case NAOS_KMIP_TYPE_INTEGER:
		ret->integer = naos_kmip_item_integer(item);
		return true;
	case NAOS_KMIP_TYPE_ENUMERATION:
	case NAOS_KMIP_TYPE_INTERVAL:
		ret->enumeration = naos_kmip_item_number(item);
		return true;
	case NAOS_KMIP_TYPE_LONG_INTEGER:
	case NAOS_KMIP_TYPE_DATE_TIME:
		ret->long_integer = naos_kmip_item_long(item);
		return true;
	case NAOS_KMIP_TYPE_BOOLEAN:
		ret->boolean = naos_kmip_item_boolean(item);
		return true;
	case NAOS_KMIP_TYPE_TEXT:
		ret->text = (struct naos_kmip_text){ (const char *)item->value, item->bytes };
		return true;
	case NAOS_KMIP_TYPE_BYTES:
	case NAOS_KMIP_TYPE_BIG_INTEGER:
	case NAOS_KMIP_TYPE_DATE_TIME_EXTENDED:
		ret->bytes = naos_kmip_bytes(item->value, item->bytes);
		return true;
	case NAOS_KMIP_TYPE_STRUCTURE:
		break;
	}
	if (!row) {
		ret->bytes = naos_kmip_bytes(item->value, item->bytes);
		return true;
	}
	void *structure = naos_kmip_codec_take(codec, 1, row->schema->bytes);
	ret->structure = structure;
	return structure && naos_kmip_structure_decode(codec, row->schema, item, structure);
}

static bool encode_value(struct naos_kmip_codec *codec, const struct row *row, uint32_t tag, const struct naos_kmip_value *value,
			 struct naos_cursor *out)
{
	if (row && row->info.type != value->type)
		return naos_kmip_codec_fail(codec, NAOS_E_USAGE, NAOS_KMIP_REASON_GENERAL_FAILURE, "%s: wrong type of value",
					    row->info.name);
	switch ((enum naos_kmip_type)value->type) {
	case NAOS_KMIP_TYPE_INTEGER:
		naos_kmip_put_integer(out, tag, value->integer);
		return true;
	case NAOS_KMIP_TYPE_ENUMERATION:
		naos_kmip_put_enum(out, tag, value->enumeration);
		return true;
	case NAOS_KMIP_TYPE_INTERVAL:
		naos_kmip_put_interval(out, tag, value->seconds);
		return true;
	case NAOS_KMIP_TYPE_LONG_INTEGER:
		naos_kmip_put_long(out, tag, value->long_integer);
		return true;
	case NAOS_KMIP_TYPE_DATE_TIME:
		naos_kmip_put_date(out, tag, value->unix_s);
		return true;
	case NAOS_KMIP_TYPE_BOOLEAN:
		naos_kmip_put_boolean(out, tag, value->boolean);
		return true;
	case NAOS_KMIP_TYPE_TEXT:
		naos_kmip_put_text(out, tag, value->text);
		return true;
	case NAOS_KMIP_TYPE_BYTES:
	case NAOS_KMIP_TYPE_BIG_INTEGER:
	case NAOS_KMIP_TYPE_DATE_TIME_EXTENDED:
		naos_kmip_put_raw(out, tag, (struct naos_kmip_raw){ .type = value->type, .value = value->bytes });
		return true;
	case NAOS_KMIP_TYPE_STRUCTURE:
		if (row)
			return naos_kmip_structure_encode(codec, row->schema, tag, value->structure, out);
		naos_kmip_put_raw(out, tag, (struct naos_kmip_raw){ .type = value->type, .value = value->bytes });
		return true;
	}
	return naos_kmip_codec_fail(codec, NAOS_E_USAGE, NAOS_KMIP_REASON_GENERAL_FAILURE,
				    "an attribute has a value of an unknown type");
}

/* The parts of an Attribute: 1.x name, index, value; in 2.x the same structure with a vendor is a custom attribute. */
static bool decode_parts(struct naos_kmip_codec *codec, const struct naos_kmip_item *item, struct naos_kmip_attribute *ret,
			 struct naos_kmip_item *ret_value)
{
	struct naos_cursor in = naos_cursor_reader(item->value, item->bytes);
	bool vendor_allowed = codec->version >= NAOS_KMIP_2_0;
	while (naos_cursor_left(&in) > 0) {
		struct naos_kmip_item part;
		bool again = true;
		if (!naos_kmip_get(&in, &part))
			return fail(codec, "malformed", item->tag);
		if (part.tag == NAOS_KMIP_TAG_ATTRIBUTE_NAME && part.type == NAOS_KMIP_TYPE_TEXT) {
			again = ret->name.data != NULL;
			ret->name = (struct naos_kmip_text){ (const char *)part.value, part.bytes };
		} else if (part.tag == NAOS_KMIP_TAG_ATTRIBUTE_INDEX && part.type == NAOS_KMIP_TYPE_INTEGER && !vendor_allowed) {
			again = ret->index.present;
			ret->index = naos_kmip_integer(naos_kmip_item_integer(&part));
		} else if (part.tag == NAOS_KMIP_TAG_VENDOR_IDENTIFICATION && part.type == NAOS_KMIP_TYPE_TEXT && vendor_allowed) {
			again = ret->vendor.data != NULL;
			ret->vendor = (struct naos_kmip_text){ (const char *)part.value, part.bytes };
		} else if (part.tag == NAOS_KMIP_TAG_ATTRIBUTE_VALUE) {
			again = ret_value->type != 0;
			*ret_value = part;
		}
		if (again)
			return fail(codec, "does not belong here, or has a wrong type, or is there twice", part.tag);
	}
	return ret->name.data != NULL || fail(codec, "has no name", item->tag);
}

bool naos_kmip_attribute_decode(struct naos_kmip_codec *codec, const struct naos_kmip_item *item, struct naos_kmip_attribute *ret)
{
	struct naos_kmip_item value = { .type = 0 };
	struct naos_kmip_attribute attribute = { .tag = 0 };
	if (!decode_parts(codec, item, &attribute, &value))
		return false;
	const struct row *row = codec->version < NAOS_KMIP_2_0 ? find_name(attribute.name) : NULL;
	if (row && naos_kmip_codec_has(codec, row->info.since, row->info.until))
		attribute.tag = row->info.tag;
	else
		row = NULL;
	if (value.type != 0 && !decode_value(codec, row, &value, &attribute.value))
		return false;
	*ret = attribute;
	return true;
}

bool naos_kmip_attribute_encode(struct naos_kmip_codec *codec, uint32_t tag, const struct naos_kmip_attribute *attribute,
				struct naos_cursor *out)
{
	const struct row *row = attribute->tag ? find_tag(attribute->tag) : NULL;
	struct naos_kmip_text name = row ? naos_kmip_text(row->info.name) : attribute->name;
	if ((attribute->tag && !row) || !name.data)
		return naos_kmip_codec_fail(codec, NAOS_E_USAGE, NAOS_KMIP_REASON_GENERAL_FAILURE, "an attribute has no name");
	if (row && !naos_kmip_codec_may_send(codec, attribute->tag, row->info.since))
		return false;
	size_t mark = naos_kmip_open(out, tag);
	if (attribute->vendor.data)
		naos_kmip_put_text(out, NAOS_KMIP_TAG_VENDOR_IDENTIFICATION, attribute->vendor);
	naos_kmip_put_text(out, NAOS_KMIP_TAG_ATTRIBUTE_NAME, name);
	if (attribute->index.present)
		naos_kmip_put_integer(out, NAOS_KMIP_TAG_ATTRIBUTE_INDEX, attribute->index.value);
	if (attribute->value.type && !encode_value(codec, row, NAOS_KMIP_TAG_ATTRIBUTE_VALUE, &attribute->value, out))
		return false;
	naos_kmip_close(out, mark);
	return true;
}

static const struct naos_kmip_row template_attribute_rows[] = {
	NAOS_KMIP_INNER_LIST(struct naos_kmip_attributes, templates, NAME, name),
	{ .tag = NAOS_KMIP_TAG_ATTRIBUTE, .kind = NAOS_KMIP_KIND_ATTRIBUTE, .many = true,
	  .offset = offsetof(struct naos_kmip_attributes, items) },
};
static NAOS_KMIP_SCHEMA_AS(template_attribute, struct naos_kmip_attributes);

bool naos_kmip_template_decode(struct naos_kmip_codec *codec, const struct naos_kmip_item *item,
			       struct naos_kmip_attributes *ret)
{
	ret->enclosed = true;
	return naos_kmip_structure_decode(codec, &naos_kmip_template_attribute_schema, item, ret);
}

bool naos_kmip_template_encode(struct naos_kmip_codec *codec, uint32_t tag, const struct naos_kmip_attributes *attributes,
			       struct naos_cursor *out)
{
	return naos_kmip_structure_encode(codec, &naos_kmip_template_attribute_schema, tag, attributes, out);
}

/* One item in Attributes of 2.x: the attribute's own tag, or Attribute for a custom one. */
static bool decode_member(struct naos_kmip_codec *codec, const struct naos_kmip_item *item, struct naos_kmip_attribute *ret)
{
	if (item->tag == NAOS_KMIP_TAG_ATTRIBUTE && item->type == NAOS_KMIP_TYPE_STRUCTURE)
		return naos_kmip_attribute_decode(codec, item, ret);
	const struct row *row = find_tag(item->tag);
	if (!row || !naos_kmip_codec_has(codec, row->info.since, row->info.until))
		return fail(codec, "is not an attribute", item->tag);
	ret->tag = row->info.tag;
	return decode_value(codec, row, item, &ret->value);
}

bool naos_kmip_attribute_set_decode(struct naos_kmip_codec *codec, const struct naos_kmip_item *item,
				    struct naos_kmip_attributes *ret)
{
	struct naos_cursor in = naos_cursor_reader(item->value, item->bytes);
	struct naos_kmip_item member;
	size_t count = 0;
	while (naos_cursor_left(&in) > 0) {
		if (!naos_kmip_get(&in, &member))
			return fail(codec, "malformed", item->tag);
		count++;
	}
	struct naos_kmip_attribute *items = count ? naos_kmip_codec_take(codec, count, sizeof(*items)) : NULL;
	if (count && !items)
		return false;
	in.position = 0;
	for (size_t i = 0; i < count; i++)
		if (!naos_kmip_get(&in, &member) || !decode_member(codec, &member, &items[i]))
			return false;
	*ret = (struct naos_kmip_attributes){ .items = items, .count = count, .enclosed = true };
	return true;
}

bool naos_kmip_attribute_set_encode(struct naos_kmip_codec *codec, uint32_t tag, const struct naos_kmip_attribute *attributes,
				    size_t count, struct naos_cursor *out)
{
	size_t mark = naos_kmip_open(out, tag);
	for (size_t i = 0; i < count; i++) {
		const struct row *row = attributes[i].tag ? find_tag(attributes[i].tag) : NULL;
		bool done = row ? naos_kmip_codec_may_send(codec, attributes[i].tag, row->info.since) &&
					  encode_value(codec, row, attributes[i].tag, &attributes[i].value, out) :
				  naos_kmip_attribute_encode(codec, NAOS_KMIP_TAG_ATTRIBUTE, &attributes[i], out);
		if (!done)
			return false;
	}
	naos_kmip_close(out, mark);
	return true;
}

bool naos_kmip_attribute_name_decode(struct naos_kmip_codec *codec, const struct naos_kmip_item *item,
				     struct naos_kmip_attribute_name *ret)
{
	if (item->type == NAOS_KMIP_TYPE_ENUMERATION) {
		ret->tag = naos_kmip_item_number(item);
		return find_tag(ret->tag) || fail(codec, "is not an attribute", ret->tag);
	}
	if (item->type == NAOS_KMIP_TYPE_STRUCTURE) {
		struct naos_kmip_item value = { .type = 0 };
		struct naos_kmip_attribute attribute = { .tag = 0 };
		if (!decode_parts(codec, item, &attribute, &value) || value.type != 0)
			return fail(codec, "malformed", item->tag);
		*ret = (struct naos_kmip_attribute_name){ .name = attribute.name, .vendor = attribute.vendor };
		return true;
	}
	if (item->type != NAOS_KMIP_TYPE_TEXT)
		return fail(codec, "wrong type", item->tag);
	ret->name = (struct naos_kmip_text){ (const char *)item->value, item->bytes };
	const struct row *row = find_name(ret->name);
	ret->tag = row && naos_kmip_codec_has(codec, row->info.since, row->info.until) ? row->info.tag : 0;
	return true;
}

bool naos_kmip_attribute_name_encode(struct naos_kmip_codec *codec, const struct naos_kmip_row *row,
				     const struct naos_kmip_attribute_name *name, struct naos_cursor *out)
{
	const struct row *known = name->tag ? find_tag(name->tag) : NULL;
	struct naos_kmip_text text = known ? naos_kmip_text(known->info.name) : name->name;
	if ((name->tag && !known) || !text.data)
		return naos_kmip_codec_fail(codec, NAOS_E_USAGE, NAOS_KMIP_REASON_GENERAL_FAILURE, "an attribute has no name");
	if (known && !naos_kmip_codec_may_send(codec, name->tag, known->info.since))
		return false;
	if (row->kind == NAOS_KMIP_KIND_ATTRIBUTE_NAME) {
		naos_kmip_put_text(out, row->tag, text);
	} else if (known) {
		naos_kmip_put_enum(out, row->tag, name->tag);
	} else {
		size_t mark = naos_kmip_open(out, row->tag);
		if (name->vendor.data)
			naos_kmip_put_text(out, NAOS_KMIP_TAG_VENDOR_IDENTIFICATION, name->vendor);
		naos_kmip_put_text(out, NAOS_KMIP_TAG_ATTRIBUTE_NAME, text);
		naos_kmip_close(out, mark);
	}
	return true;
}

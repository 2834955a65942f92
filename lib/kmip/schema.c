/* Decoding and encoding by tables.  SPDX-License-Identifier: Apache-2.0 */
#include "kmip/schema.h"

#include <stdarg.h>
#include <string.h>

/* Any list of the message structs: the kinds say what it holds. */
struct list {
	const void *items;
	size_t count;
};

static const struct kind {
	uint8_t type; /* on the wire; 0: any */
	size_t bytes; /* in a struct or list */
} kinds[] = {
	[NAOS_KMIP_KIND_INTEGER] = { NAOS_KMIP_TYPE_INTEGER, sizeof(struct naos_kmip_integer) },
	[NAOS_KMIP_KIND_LONG] = { NAOS_KMIP_TYPE_LONG_INTEGER, sizeof(struct naos_kmip_long) },
	[NAOS_KMIP_KIND_BOOLEAN] = { NAOS_KMIP_TYPE_BOOLEAN, sizeof(struct naos_kmip_boolean) },
	[NAOS_KMIP_KIND_DATE] = { NAOS_KMIP_TYPE_DATE_TIME, sizeof(struct naos_kmip_date) },
	[NAOS_KMIP_KIND_INTERVAL] = { NAOS_KMIP_TYPE_INTERVAL, sizeof(struct naos_kmip_interval) },
	[NAOS_KMIP_KIND_ENUM] = { NAOS_KMIP_TYPE_ENUMERATION, sizeof(uint32_t) },
	[NAOS_KMIP_KIND_STATUS] = { NAOS_KMIP_TYPE_ENUMERATION, sizeof(uint32_t) },
	[NAOS_KMIP_KIND_TEXT] = { NAOS_KMIP_TYPE_TEXT, sizeof(struct naos_kmip_text) },
	[NAOS_KMIP_KIND_BYTES] = { NAOS_KMIP_TYPE_BYTES, sizeof(struct naos_kmip_bytes) },
	[NAOS_KMIP_KIND_VERSION] = { NAOS_KMIP_TYPE_STRUCTURE, sizeof(uint32_t) },
	[NAOS_KMIP_KIND_RAW] = { NAOS_KMIP_TYPE_STRUCTURE, sizeof(struct naos_kmip_raw) },
	[NAOS_KMIP_KIND_STRUCT] = { NAOS_KMIP_TYPE_STRUCTURE, 0 },
	[NAOS_KMIP_KIND_ATTRIBUTE] = { NAOS_KMIP_TYPE_STRUCTURE, sizeof(struct naos_kmip_attribute) },
	[NAOS_KMIP_KIND_TEMPLATE] = { NAOS_KMIP_TYPE_STRUCTURE, sizeof(struct naos_kmip_attributes) },
	[NAOS_KMIP_KIND_ATTRIBUTE_SET] = { NAOS_KMIP_TYPE_STRUCTURE, sizeof(struct naos_kmip_attributes) },
	[NAOS_KMIP_KIND_ATTRIBUTE_ONE] = { NAOS_KMIP_TYPE_STRUCTURE, sizeof(struct naos_kmip_attribute) },
	[NAOS_KMIP_KIND_ATTRIBUTE_NAME] = { NAOS_KMIP_TYPE_TEXT, sizeof(struct naos_kmip_attribute_name) },
	[NAOS_KMIP_KIND_REFERENCE] = { 0, sizeof(struct naos_kmip_attribute_name) },
};

static uint32_t major(uint32_t version)
{
	return version >> 8;
}

bool naos_kmip_codec_fail(struct naos_kmip_codec *codec, int code, uint32_t reason, const char *format, ...)
{
	va_list arguments;
	codec->code = code;
	codec->reason = reason;
	va_start(arguments, format);
	(void)vsnprintf(codec->problem, sizeof(codec->problem), format, arguments);
	va_end(arguments);
	return false;
}

const char *naos_kmip_tag_text(uint32_t tag, char buffer[static 16])
{
	const char *name = naos_kmip_tag_name(tag);
	if (name)
		return name;
	(void)snprintf(buffer, 16, "tag %06x", tag);
	return buffer;
}

void *naos_kmip_codec_take(struct naos_kmip_codec *codec, size_t count, size_t bytes)
{
	void *taken = naos_kmip_arena_take(codec->arena, count, bytes);
	if (!taken)
		(void)naos_kmip_codec_fail(codec, NAOS_E_LIMIT, NAOS_KMIP_REASON_GENERAL_FAILURE,
					   "the message needs more memory than one message may have");
	return taken;
}

bool naos_kmip_codec_has(struct naos_kmip_codec *codec, uint32_t since, uint32_t until)
{
	if (since && since > codec->version) {
		if (major(since) > major(codec->version))
			return false;
		codec->any_version = true;
	}
	return !until || major(until) >= major(codec->version);
}

bool naos_kmip_codec_may_send(struct naos_kmip_codec *codec, uint32_t tag, uint32_t since)
{
	char buffer[16];
	if (since <= codec->version || codec->any_version)
		return true;
	return naos_kmip_codec_fail(codec, NAOS_E_UNSUPPORTED, NAOS_KMIP_REASON_GENERAL_FAILURE,
				    "%s exists from KMIP %u.%u on, the message is %u.%u", naos_kmip_tag_text(tag, buffer), since >> 8,
				    since & 0xff, codec->version >> 8, codec->version & 0xff);
}

static bool invalid_field(struct naos_kmip_codec *codec, const char *what, uint32_t tag)
{
	char buffer[16];
	return naos_kmip_codec_fail(codec, NAOS_E_FORMAT, NAOS_KMIP_REASON_INVALID_FIELD, "%s: %s",
				    naos_kmip_tag_text(tag, buffer), what);
}

/* Decoding ------------------------------------------------------------------------------------------------------ */

/* The row of an item, or schema->count.  Two rows may share a tag where its type differs (wrapped and plain key value). */
static size_t find_row(struct naos_kmip_codec *codec, const struct naos_kmip_schema *schema, const struct naos_kmip_item *item,
		       bool *ret_wrong_type)
{
	*ret_wrong_type = false;
	for (size_t i = 0; i < schema->count; i++) {
		const struct naos_kmip_row *row = &schema->rows[i];
		if (row->tag != item->tag)
			continue;
		uint8_t type = kinds[row->kind].type;
		if (type && type != item->type)
			*ret_wrong_type = true;
		else if (naos_kmip_codec_has(codec, row->since, row->until)) {
			*ret_wrong_type = false;
			return i;
		}
	}
	return schema->count;
}

static bool decode_version(struct naos_kmip_codec *codec, const struct naos_kmip_item *item, uint32_t *ret)
{
	struct naos_cursor in = naos_cursor_reader(item->value, item->bytes);
	struct naos_kmip_item first, second;
	if (!naos_kmip_get(&in, &first) || !naos_kmip_get(&in, &second) || !naos_cursor_at_end(&in) ||
	    first.tag != NAOS_KMIP_TAG_PROTOCOL_VERSION_MAJOR || second.tag != NAOS_KMIP_TAG_PROTOCOL_VERSION_MINOR ||
	    first.type != NAOS_KMIP_TYPE_INTEGER || second.type != NAOS_KMIP_TYPE_INTEGER ||
	    naos_kmip_item_number(&first) > 255 || naos_kmip_item_number(&second) > 255 || naos_kmip_item_number(&first) == 0)
		return invalid_field(codec, "not a version", item->tag);
	*ret = NAOS_KMIP_VERSION(naos_kmip_item_number(&first), naos_kmip_item_number(&second));
	return true;
}

/* One item into the place of one field: in a struct, or in a list (then structures stand there themselves). */
static bool decode_field(struct naos_kmip_codec *codec, const struct naos_kmip_row *row, const struct naos_kmip_item *item,
			 void *place)
{
	void *inner;
	switch ((enum naos_kmip_kind)row->kind) {
	case NAOS_KMIP_KIND_INTEGER:
		*(struct naos_kmip_integer *)place = naos_kmip_integer(naos_kmip_item_integer(item));
		return true;
	case NAOS_KMIP_KIND_LONG:
		*(struct naos_kmip_long *)place = naos_kmip_long(naos_kmip_item_long(item));
		return true;
	case NAOS_KMIP_KIND_BOOLEAN:
		*(struct naos_kmip_boolean *)place = naos_kmip_boolean(naos_kmip_item_boolean(item));
		return true;
	case NAOS_KMIP_KIND_DATE:
		*(struct naos_kmip_date *)place = naos_kmip_date(naos_kmip_item_long(item));
		return true;
	case NAOS_KMIP_KIND_INTERVAL:
		*(struct naos_kmip_interval *)place = naos_kmip_interval(naos_kmip_item_number(item));
		return true;
	case NAOS_KMIP_KIND_ENUM:
		*(uint32_t *)place = naos_kmip_item_number(item);
		return *(uint32_t *)place != 0 || invalid_field(codec, "0 is no value of this enumeration", item->tag);
	case NAOS_KMIP_KIND_STATUS:
		*(uint32_t *)place = naos_kmip_item_number(item);
		return true;
	case NAOS_KMIP_KIND_TEXT:
		*(struct naos_kmip_text *)place = (struct naos_kmip_text){ (const char *)item->value, item->bytes };
		return true;
	case NAOS_KMIP_KIND_BYTES:
		*(struct naos_kmip_bytes *)place = (struct naos_kmip_bytes){ item->value, item->bytes };
		return true;
	case NAOS_KMIP_KIND_VERSION:
		return decode_version(codec, item, place);
	case NAOS_KMIP_KIND_RAW:
		*(struct naos_kmip_raw *)place = (struct naos_kmip_raw){ item->type, { item->value, item->bytes } };
		return true;
	case NAOS_KMIP_KIND_STRUCT:
		if (row->many)
			return naos_kmip_structure_decode(codec, row->inner, item, place);
		inner = naos_kmip_codec_take(codec, 1, row->inner->bytes);
		*(void **)place = inner;
		return inner && naos_kmip_structure_decode(codec, row->inner, item, inner);
	case NAOS_KMIP_KIND_ATTRIBUTE:
		if (row->many)
			return naos_kmip_attribute_decode(codec, item, place);
		inner = naos_kmip_codec_take(codec, 1, sizeof(struct naos_kmip_attribute));
		*(void **)place = inner;
		return inner && naos_kmip_attribute_decode(codec, item, inner);
	case NAOS_KMIP_KIND_TEMPLATE:
		return naos_kmip_template_decode(codec, item, place);
	case NAOS_KMIP_KIND_ATTRIBUTE_SET:
		return naos_kmip_attribute_set_decode(codec, item, place);
	case NAOS_KMIP_KIND_ATTRIBUTE_ONE: {
		struct naos_kmip_attributes set = { .count = 0 };
		if (!naos_kmip_attribute_set_decode(codec, item, &set))
			return false;
		*(const struct naos_kmip_attribute **)place = set.items;
		return set.count == 1 || invalid_field(codec, "must hold one attribute", item->tag);
	}
	case NAOS_KMIP_KIND_ATTRIBUTE_NAME:
	case NAOS_KMIP_KIND_REFERENCE:
		return naos_kmip_attribute_name_decode(codec, item, place);
	}
	return false;
}

static size_t list_item_bytes(const struct naos_kmip_row *row)
{
	return row->inner ? row->inner->bytes : kinds[row->kind].bytes;
}

static bool is_required(const struct naos_kmip_codec *codec, const struct naos_kmip_row *row)
{
	return row->required && row->since <= codec->version && (!row->until || major(row->until) >= major(codec->version));
}

/* Other servers are forgiven what they leave out, except whether the operation succeeded. */
static bool is_missed(const struct naos_kmip_codec *codec, const struct naos_kmip_row *row)
{
	return is_required(codec, row) && (codec->role == NAOS_KMIP_REQUESTS || row->kind == NAOS_KMIP_KIND_STATUS);
}

/* First look: how often is each field there, and is there nothing that does not belong? */
static bool count_fields(struct naos_kmip_codec *codec, const struct naos_kmip_schema *schema, const struct naos_kmip_item *item,
			 uint32_t counts[static NAOS_KMIP_SCHEMA_ROWS])
{
	struct naos_cursor in = naos_cursor_reader(item->value, item->bytes);
	char buffer[16], parent[16];
	bool wrong_type;
	while (naos_cursor_left(&in) > 0) {
		struct naos_kmip_item child;
		if (!naos_kmip_get(&in, &child))
			return invalid_field(codec, "malformed", item->tag);
		size_t index = find_row(codec, schema, &child, &wrong_type);
		if (index == schema->count && wrong_type)
			return naos_kmip_codec_fail(codec, NAOS_E_FORMAT, NAOS_KMIP_REASON_INVALID_FIELD, "%s can't have the type %s",
						    naos_kmip_tag_text(child.tag, buffer), naos_kmip_type_name(child.type));
		if (index == schema->count && codec->role == NAOS_KMIP_REQUESTS)
			return naos_kmip_codec_fail(codec, NAOS_E_FORMAT, NAOS_KMIP_REASON_INVALID_FIELD, "%s does not belong into %s",
						    naos_kmip_tag_text(child.tag, buffer), naos_kmip_tag_text(item->tag, parent));
		if (index == schema->count)
			continue;
		if (++counts[index] > 1 && !schema->rows[index].many)
			return invalid_field(codec, "there more than once", child.tag);
	}
	for (size_t i = 0; i < schema->count; i++)
		if (is_missed(codec, &schema->rows[i]) && counts[i] == 0)
			return naos_kmip_codec_fail(codec, NAOS_E_FORMAT, NAOS_KMIP_REASON_MISSING_DATA, "%s is missing in %s",
						    naos_kmip_tag_text(schema->rows[i].tag, buffer), naos_kmip_tag_text(item->tag, parent));
	return true;
}

static bool make_lists(struct naos_kmip_codec *codec, const struct naos_kmip_schema *schema,
		       const uint32_t counts[static NAOS_KMIP_SCHEMA_ROWS], uint8_t *place)
{
	for (size_t i = 0; i < schema->count; i++) {
		const struct naos_kmip_row *row = &schema->rows[i];
		if (!row->many || counts[i] == 0)
			continue;
		struct list *list = (struct list *)(place + row->offset);
		list->items = naos_kmip_codec_take(codec, counts[i], list_item_bytes(row));
		if (!list->items)
			return false;
	}
	return true;
}

bool naos_kmip_structure_decode(struct naos_kmip_codec *codec, const struct naos_kmip_schema *schema,
				const struct naos_kmip_item *item, void *ret)
{
	uint32_t counts[NAOS_KMIP_SCHEMA_ROWS] = { 0 };
	bool wrong_type;
	if (!count_fields(codec, schema, item, counts) || !make_lists(codec, schema, counts, ret))
		return false;
	struct naos_cursor in = naos_cursor_reader(item->value, item->bytes);
	while (naos_cursor_left(&in) > 0) {
		struct naos_kmip_item child;
		if (!naos_kmip_get(&in, &child))
			return invalid_field(codec, "malformed", item->tag);
		size_t index = find_row(codec, schema, &child, &wrong_type);
		if (index == schema->count)
			continue;
		const struct naos_kmip_row *row = &schema->rows[index];
		uint8_t *place = (uint8_t *)ret + row->offset;
		if (row->many) {
			struct list *list = (struct list *)place;
			place = (uint8_t *)(uintptr_t)list->items + list->count++ * list_item_bytes(row);
		}
		if (!decode_field(codec, row, &child, place))
			return false;
	}
	return true;
}

/* Encoding ------------------------------------------------------------------------------------------------------ */

static bool is_present(const struct naos_kmip_row *row, const void *place)
{
	if (row->many)
		return ((const struct list *)place)->count > 0;
	switch ((enum naos_kmip_kind)row->kind) {
	case NAOS_KMIP_KIND_INTEGER:
		return ((const struct naos_kmip_integer *)place)->present;
	case NAOS_KMIP_KIND_LONG:
		return ((const struct naos_kmip_long *)place)->present;
	case NAOS_KMIP_KIND_BOOLEAN:
		return ((const struct naos_kmip_boolean *)place)->present;
	case NAOS_KMIP_KIND_DATE:
		return ((const struct naos_kmip_date *)place)->present;
	case NAOS_KMIP_KIND_INTERVAL:
		return ((const struct naos_kmip_interval *)place)->present;
	case NAOS_KMIP_KIND_ENUM:
	case NAOS_KMIP_KIND_VERSION:
		return *(const uint32_t *)place != 0;
	case NAOS_KMIP_KIND_STATUS:
		return true;
	case NAOS_KMIP_KIND_TEXT:
		return ((const struct naos_kmip_text *)place)->data != NULL;
	case NAOS_KMIP_KIND_BYTES:
		return ((const struct naos_kmip_bytes *)place)->data != NULL;
	case NAOS_KMIP_KIND_RAW:
		return ((const struct naos_kmip_raw *)place)->type != 0;
	case NAOS_KMIP_KIND_TEMPLATE:
	case NAOS_KMIP_KIND_ATTRIBUTE_SET: {
		const struct naos_kmip_attributes *attributes = place;
		return attributes->enclosed || attributes->count > 0 || attributes->templates.count > 0;
	}
	case NAOS_KMIP_KIND_STRUCT:
	case NAOS_KMIP_KIND_ATTRIBUTE:
	case NAOS_KMIP_KIND_ATTRIBUTE_ONE:
	case NAOS_KMIP_KIND_ATTRIBUTE_NAME:
	case NAOS_KMIP_KIND_REFERENCE:
		return *(const void *const *)place != NULL;
	}
	return false;
}

static void encode_version(uint32_t tag, uint32_t version, struct naos_cursor *out)
{
	size_t mark = naos_kmip_open(out, tag);
	naos_kmip_put_integer(out, NAOS_KMIP_TAG_PROTOCOL_VERSION_MAJOR, (int32_t)(version >> 8));
	naos_kmip_put_integer(out, NAOS_KMIP_TAG_PROTOCOL_VERSION_MINOR, (int32_t)(version & 0xff));
	naos_kmip_close(out, mark);
}

static bool encode_text(struct naos_kmip_codec *codec, uint32_t tag, struct naos_kmip_text text, struct naos_cursor *out)
{
	char buffer[16];
	naos_kmip_put_text(out, tag, text);
	if (naos_cursor_ok(out) || naos_kmip_text_valid(text.data, text.bytes))
		return true;
	return naos_kmip_codec_fail(codec, NAOS_E_USAGE, NAOS_KMIP_REASON_GENERAL_FAILURE, "%s is not UTF-8",
				    naos_kmip_tag_text(tag, buffer));
}

/* One field or list item.  `place` is where its value stands; for structures it is the struct itself. */
static bool encode_field(struct naos_kmip_codec *codec, const struct naos_kmip_row *row, const void *place,
			 struct naos_cursor *out)
{
	switch ((enum naos_kmip_kind)row->kind) {
	case NAOS_KMIP_KIND_INTEGER:
		naos_kmip_put_integer(out, row->tag, ((const struct naos_kmip_integer *)place)->value);
		return true;
	case NAOS_KMIP_KIND_LONG:
		naos_kmip_put_long(out, row->tag, ((const struct naos_kmip_long *)place)->value);
		return true;
	case NAOS_KMIP_KIND_BOOLEAN:
		naos_kmip_put_boolean(out, row->tag, ((const struct naos_kmip_boolean *)place)->value);
		return true;
	case NAOS_KMIP_KIND_DATE:
		naos_kmip_put_date(out, row->tag, ((const struct naos_kmip_date *)place)->unix_s);
		return true;
	case NAOS_KMIP_KIND_INTERVAL:
		naos_kmip_put_interval(out, row->tag, ((const struct naos_kmip_interval *)place)->seconds);
		return true;
	case NAOS_KMIP_KIND_ENUM:
	case NAOS_KMIP_KIND_STATUS:
		naos_kmip_put_enum(out, row->tag, *(const uint32_t *)place);
		return true;
	case NAOS_KMIP_KIND_TEXT:
		return encode_text(codec, row->tag, *(const struct naos_kmip_text *)place, out);
	case NAOS_KMIP_KIND_BYTES:
		naos_kmip_put_bytes(out, row->tag, *(const struct naos_kmip_bytes *)place);
		return true;
	case NAOS_KMIP_KIND_VERSION:
		encode_version(row->tag, *(const uint32_t *)place, out);
		return true;
	case NAOS_KMIP_KIND_RAW:
		naos_kmip_put_raw(out, row->tag, *(const struct naos_kmip_raw *)place);
		return true;
	case NAOS_KMIP_KIND_STRUCT:
		return naos_kmip_structure_encode(codec, row->inner, row->tag, place, out);
	case NAOS_KMIP_KIND_ATTRIBUTE:
		return naos_kmip_attribute_encode(codec, row->tag, place, out);
	case NAOS_KMIP_KIND_TEMPLATE:
		return naos_kmip_template_encode(codec, row->tag, place, out);
	case NAOS_KMIP_KIND_ATTRIBUTE_SET: {
		const struct naos_kmip_attributes *attributes = place;
		return naos_kmip_attribute_set_encode(codec, row->tag, attributes->items, attributes->count, out);
	}
	case NAOS_KMIP_KIND_ATTRIBUTE_ONE:
		return naos_kmip_attribute_set_encode(codec, row->tag, place, 1, out);
	case NAOS_KMIP_KIND_ATTRIBUTE_NAME:
	case NAOS_KMIP_KIND_REFERENCE:
		return naos_kmip_attribute_name_encode(codec, row, place, out);
	}
	return false;
}

static bool encode_row(struct naos_kmip_codec *codec, const struct naos_kmip_row *row, const void *place, struct naos_cursor *out)
{
	bool pointed = row->kind == NAOS_KMIP_KIND_STRUCT || row->kind == NAOS_KMIP_KIND_ATTRIBUTE ||
		       row->kind == NAOS_KMIP_KIND_ATTRIBUTE_ONE;
	if (!naos_kmip_codec_may_send(codec, row->tag, row->since))
		return false;
	if (!row->many)
		return encode_field(codec, row, pointed ? *(const void *const *)place : place, out);
	const struct list *list = place;
	for (size_t i = 0; i < list->count; i++)
		if (!encode_field(codec, row, (const uint8_t *)list->items + i * list_item_bytes(row), out))
			return false;
	return true;
}

bool naos_kmip_fields_encode(struct naos_kmip_codec *codec, const struct naos_kmip_schema *schema, uint32_t parent,
			     const void *source, struct naos_cursor *out)
{
	char buffer[16], parent_buffer[16];
	for (size_t i = 0; i < schema->count; i++) {
		const struct naos_kmip_row *row = &schema->rows[i];
		const uint8_t *place = (const uint8_t *)source + row->offset;
		if (major(row->since) > major(codec->version) || (row->until && major(row->until) < major(codec->version)))
			continue;
		if (is_present(row, place)) {
			if (!encode_row(codec, row, place, out))
				return false;
		} else if (is_required(codec, row)) {
			return naos_kmip_codec_fail(codec, NAOS_E_USAGE, NAOS_KMIP_REASON_GENERAL_FAILURE, "%s is missing in %s",
						    naos_kmip_tag_text(row->tag, buffer), naos_kmip_tag_text(parent, parent_buffer));
		}
	}
	return true;
}

bool naos_kmip_structure_encode(struct naos_kmip_codec *codec, const struct naos_kmip_schema *schema, uint32_t tag,
				const void *source, struct naos_cursor *out)
{
	size_t mark = naos_kmip_open(out, tag);
	if (!naos_kmip_fields_encode(codec, schema, tag, source, out))
		return false;
	naos_kmip_close(out, mark);
	return true;
}

/* Names of tags, types and enumerations.  SPDX-License-Identifier: Apache-2.0 */
#include "kmip/tables.h"

#include <string.h>

#include "base/compiler.h"

static const struct tag_row {
	uint32_t number;
	const char *text;
} tags[] = {
#define X(name, number_, text_) { .number = (number_), .text = (text_) },
#include "kmip/tags.def"
#undef X
};

static const struct enum_row {
	uint32_t tag;
	uint32_t value;
	const char *text;
} enums[] = {
/* BEGIN makes a row without a text, which carries the tag of the rows below it. */
#define BEGIN(type, tag_) { .tag = NAOS_KMIP_TAG_##tag_ },
#define X(prefix, name, value_, text_) { .value = (value_), .text = (text_) },
#define END(type)
#include "kmip/enums.def"
#undef BEGIN
#undef X
#undef END
};

const char *naos_kmip_tag_name(uint32_t tag)
{
	size_t low = 0, high = NAOS_ARRAY_LENGTH(tags);
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (tags[middle].number == tag)
			return tags[middle].text;
		if (tags[middle].number < tag)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

uint32_t naos_kmip_tag_find(const char *name)
{
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(tags); i++)
		if (strcmp(tags[i].text, name) == 0)
			return tags[i].number;
	return 0;
}

const char *naos_kmip_type_name(uint8_t type)
{
	static const char *const names[] = {
		[NAOS_KMIP_TYPE_STRUCTURE] = "Structure",       [NAOS_KMIP_TYPE_INTEGER] = "Integer",
		[NAOS_KMIP_TYPE_LONG_INTEGER] = "LongInteger",  [NAOS_KMIP_TYPE_BIG_INTEGER] = "BigInteger",
		[NAOS_KMIP_TYPE_ENUMERATION] = "Enumeration",   [NAOS_KMIP_TYPE_BOOLEAN] = "Boolean",
		[NAOS_KMIP_TYPE_TEXT] = "TextString",           [NAOS_KMIP_TYPE_BYTES] = "ByteString",
		[NAOS_KMIP_TYPE_DATE_TIME] = "DateTime",        [NAOS_KMIP_TYPE_INTERVAL] = "Interval",
		[NAOS_KMIP_TYPE_DATE_TIME_EXTENDED] = "DateTimeExtended",
	};
	return type < NAOS_ARRAY_LENGTH(names) ? names[type] : NULL;
}

const char *naos_kmip_enum_name(uint32_t tag, uint32_t value)
{
	bool inside = false;
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(enums); i++) {
		if (!enums[i].text)
			inside = enums[i].tag == tag;
		else if (inside && enums[i].value == value)
			return enums[i].text;
	}
	return NULL;
}

/* Numbers and names of KMIP: tags, types and enumerations, made from tags.def and enums.def.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KMIP_TABLES_H
#define NAOS_KMIP_TABLES_H

#include <stdbool.h>
#include <stdint.h>

/* NAOS_KMIP_TAG_UNIQUE_IDENTIFIER, … */
enum naos_kmip_tag {
#define X(name, number, text) NAOS_KMIP_TAG_##name = (number),
#include "kmip/tags.def"
#undef X
};

/* The types of a TTLV item (KMIP specification 9.1.1.2). */
enum naos_kmip_type {
	NAOS_KMIP_TYPE_STRUCTURE = 1,
	NAOS_KMIP_TYPE_INTEGER = 2,
	NAOS_KMIP_TYPE_LONG_INTEGER = 3,
	NAOS_KMIP_TYPE_BIG_INTEGER = 4,
	NAOS_KMIP_TYPE_ENUMERATION = 5,
	NAOS_KMIP_TYPE_BOOLEAN = 6,
	NAOS_KMIP_TYPE_TEXT = 7,
	NAOS_KMIP_TYPE_BYTES = 8,
	NAOS_KMIP_TYPE_DATE_TIME = 9,
	NAOS_KMIP_TYPE_INTERVAL = 10,
	NAOS_KMIP_TYPE_DATE_TIME_EXTENDED = 11, /* 2.0; microseconds */
};

/* enum naos_kmip_state { NAOS_KMIP_STATE_PRE_ACTIVE = 1, … }: see enums.def. */
#define BEGIN(type, tag) enum naos_kmip_##type {
#define X(prefix, name, value, text) NAOS_KMIP_##prefix##_##name = (value),
#define END(type) };
#include "kmip/enums.def"
#undef BEGIN
#undef X
#undef END

/* "UniqueIdentifier"; NULL for an unknown tag.  The string is static. */
const char *naos_kmip_tag_name(uint32_t tag);
/* The tag of such a name, 0 for an unknown one. */
uint32_t naos_kmip_tag_find(const char *name);
/* "Integer"; NULL for an unknown type. */
const char *naos_kmip_type_name(uint8_t type);
/* "SymmetricKey" for the value of the enumeration under this tag; NULL if either is unknown. */
const char *naos_kmip_enum_name(uint32_t tag, uint32_t value);

/* Protocol versions, in order.  Any version up to 255.255 has a number, so that one that Naos does not speak can be named. */
#define NAOS_KMIP_VERSION(major, minor) ((uint32_t)(major) << 8 | (uint32_t)(minor))
enum {
	NAOS_KMIP_1_0 = 0x100,
	NAOS_KMIP_1_1 = 0x101,
	NAOS_KMIP_1_2 = 0x102,
	NAOS_KMIP_1_3 = 0x103,
	NAOS_KMIP_1_4 = 0x104,
	NAOS_KMIP_2_0 = 0x200,
};

static inline bool naos_kmip_version_known(uint32_t version)
{
	return (version >= NAOS_KMIP_1_0 && version <= NAOS_KMIP_1_4) || version == NAOS_KMIP_2_0;
}

#endif

/* Attributes of an object as bytes, for a server's database.  SPDX-License-Identifier: Apache-2.0 */
#include "kmip/attribute_store.h"

#include "kmip/schema.h"

static struct naos_kmip_codec codec(struct naos_kmip_arena *arena)
{
	return (struct naos_kmip_codec){ .role = NAOS_KMIP_REQUESTS, .version = NAOS_KMIP_1_4, .any_version = true, .arena = arena };
}

int naos_kmip_attributes_write(const struct naos_kmip_attributes *attributes, struct naos_cursor *out, struct naos_error *err)
{
	struct naos_kmip_codec state = codec(NULL);
	if (!naos_kmip_template_encode(&state, NAOS_KMIP_TAG_TEMPLATE_ATTRIBUTE, attributes, out))
		return naos_error_set(err, state.code ? state.code : NAOS_E_USAGE, "%s", state.problem);
	return naos_cursor_ok(out) ? 0 : naos_error_set(err, NAOS_E_LIMIT, "the attributes of one object are too long");
}

int naos_kmip_attributes_read(const void *data, size_t bytes, struct naos_kmip_arena *arena, struct naos_kmip_attributes *ret,
			      struct naos_error *err)
{
	struct naos_kmip_codec state = codec(arena);
	struct naos_cursor in = naos_cursor_reader(data, bytes);
	struct naos_kmip_attributes attributes = { .items = NULL };
	struct naos_kmip_item item;
	int rc = naos_kmip_check(data, bytes, err);
	if (rc != 0)
		return rc;
	if (!naos_kmip_get(&in, &item) || item.tag != NAOS_KMIP_TAG_TEMPLATE_ATTRIBUTE || item.type != NAOS_KMIP_TYPE_STRUCTURE)
		return naos_error_set(err, NAOS_E_FORMAT, "these are not the attributes of an object");
	if (!naos_kmip_template_decode(&state, &item, &attributes))
		return naos_error_set(err, state.code ? state.code : NAOS_E_FORMAT, "%s", state.problem);
	*ret = attributes;
	return 0;
}

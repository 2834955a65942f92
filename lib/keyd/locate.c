/* Locate: the objects that fit all filters, newest first.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "keyd/call.h"

struct search {
	struct naos_call *call;
	const struct naos_kmip_locate_request *request;
	int32_t storage; /* bits of Storage Status Mask */
	struct naos_uuid *found; /* oldest first */
	size_t count, room;
	bool exhausted;
};

static bool same_text(struct naos_kmip_text left, struct naos_kmip_text right)
{
	return left.bytes == right.bytes && (left.bytes == 0 || memcmp(left.data, right.data, left.bytes) == 0);
}

static bool same_value(const struct naos_kmip_attribute *wanted, const struct naos_kmip_attribute *present)
{
	const struct naos_kmip_value *w = &wanted->value, *p = &present->value;
	if (w->type != p->type)
		return false;
	switch (w->type) {
	case NAOS_KMIP_TYPE_INTEGER:
		return wanted->tag == NAOS_KMIP_TAG_CRYPTOGRAPHIC_USAGE_MASK ? (p->integer & w->integer) == w->integer
									     : p->integer == w->integer;
	case NAOS_KMIP_TYPE_ENUMERATION: return p->enumeration == w->enumeration;
	case NAOS_KMIP_TYPE_BOOLEAN: return p->boolean == w->boolean;
	case NAOS_KMIP_TYPE_INTERVAL: return p->seconds == w->seconds;
	case NAOS_KMIP_TYPE_LONG_INTEGER:
	case NAOS_KMIP_TYPE_DATE_TIME: return p->unix_s == w->unix_s;
	case NAOS_KMIP_TYPE_TEXT: return same_text(w->text, p->text);
	case NAOS_KMIP_TYPE_STRUCTURE: break;
	default: return w->bytes.bytes == p->bytes.bytes && memcmp(w->bytes.data, p->bytes.data, w->bytes.bytes) == 0;
	}
	switch (wanted->tag) {
	case NAOS_KMIP_TAG_NAME: return same_text(w->name->value, p->name->value) && w->name->type == p->name->type;
	case NAOS_KMIP_TAG_LINK: return w->link->type == p->link->type && same_text(w->link->object, p->link->object);
	case NAOS_KMIP_TAG_APPLICATION_SPECIFIC_INFORMATION:
		return same_text(w->application_information->name_space, p->application_information->name_space) &&
		       (!w->application_information->data.data ||
			same_text(w->application_information->data, p->application_information->data));
	case NAOS_KMIP_TAG_ALTERNATIVE_NAME: return same_text(w->alternative_name->value, p->alternative_name->value);
	case NAOS_KMIP_TAG_DIGEST:
		return w->digest->value.bytes == p->digest->value.bytes &&
		       memcmp(w->digest->value.data, p->digest->value.data, w->digest->value.bytes) == 0;
	default: return false;
	}
}

/* Two instances of a date are a range. */
static bool in_range(const struct naos_kmip_attributes *filters, const struct naos_kmip_attribute *first, int64_t date)
{
	const struct naos_kmip_attribute *second = naos_kmip_attributes_find(filters, first->tag, 1);
	if (!second)
		return date == first->value.unix_s;
	int64_t low = first->value.unix_s, high = second->value.unix_s;
	return low <= high ? date >= low && date <= high : date >= high && date <= low;
}

static bool fits(struct search *search, const struct naos_object *object, const struct naos_kmip_attributes *filters)
{
	for (size_t f = 0; f < filters->count; f++) {
		const struct naos_kmip_attribute *wanted = &filters->items[f];
		bool found = false;
		if (wanted->value.type == 0)
			continue;
		if (wanted->tag == NAOS_KMIP_TAG_STATE) {
			found = naos_object_state(object, search->call->now) == wanted->value.enumeration;
		} else {
			for (size_t i = 0; !found && i < object->attributes.count; i++) {
				const struct naos_kmip_attribute *present = &object->attributes.items[i];
				if (wanted->tag ? present->tag != wanted->tag : present->tag != 0 || !same_text(present->name, wanted->name))
					continue;
				found = wanted->tag && wanted->value.type == NAOS_KMIP_TYPE_DATE_TIME ?
						in_range(filters, naos_kmip_attributes_find(filters, wanted->tag, 0), present->value.unix_s) :
						same_value(wanted, present);
			}
		}
		if (!found)
			return false;
	}
	return true;
}

/* Asking for the state Destroyed is asking for destroyed objects: before 1.4 there is no other way to. */
static bool wants_destroyed(const struct naos_kmip_attributes *filters)
{
	const struct naos_kmip_attribute *state = naos_kmip_attributes_find(filters, NAOS_KMIP_TAG_STATE, 0);
	return state && (state->value.enumeration == NAOS_KMIP_STATE_DESTROYED ||
			 state->value.enumeration == NAOS_KMIP_STATE_DESTROYED_COMPROMISED);
}

/* Which storage is looked through. */
static int32_t storage_of(const struct naos_kmip_locate_request *request)
{
	if (request->storage_status_mask.present)
		return request->storage_status_mask.value;
	bool destroyed = wants_destroyed(&request->attributes) || wants_destroyed(&request->template_attributes);
	return NAOS_KMIP_STORAGE_STATUS_ONLINE_STORAGE | (destroyed ? NAOS_KMIP_STORAGE_STATUS_DESTROYED_STORAGE : 0);
}

static bool fits_status(const struct search *search, const struct naos_object *object)
{
	bool destroyed = naos_object_state(object, search->call->now) >= NAOS_KMIP_STATE_DESTROYED;
	const struct naos_kmip_attribute *fresh = naos_object_attribute(object, NAOS_KMIP_TAG_FRESH, 0);
	if (search->request->object_group_member == NAOS_KMIP_OBJECT_GROUP_MEMBER_GROUP_MEMBER_FRESH && !(fresh && fresh->value.boolean))
		return false;
	return (search->storage & (destroyed ? NAOS_KMIP_STORAGE_STATUS_DESTROYED_STORAGE : NAOS_KMIP_STORAGE_STATUS_ONLINE_STORAGE)) != 0;
}

/* Filters first: they are cheaper than roles. */
static bool visit(void *context, struct naos_entry *entry, struct naos_object *object)
{
	struct search *search = context;
	if (object->core.phase == NAOS_OBJECT_CREATING || !fits_status(search, object) ||
	    !fits(search, object, &search->request->attributes) || !fits(search, object, &search->request->template_attributes))
		return true;
	if (!naos_has_right(naos_roles_rights(search->call->roles, search->call->peer->identity, object), NAOS_RIGHT_LOCATE))
		return true;
	if (search->count == search->room) {
		size_t room = search->room ? 2 * search->room : 16;
		struct naos_uuid *grown = reallocarray(search->found, room, sizeof(*grown));
		search->exhausted = grown == NULL;
		if (!grown)
			return false;
		search->found = grown;
		search->room = room;
	}
	search->found[search->count++] = entry->id;
	return true;
}

static int answer(struct naos_call *call, const struct naos_kmip_locate_request *request, const struct search *search,
		  struct naos_kmip_locate_response *out)
{
	size_t offset = request->offset_items.present && request->offset_items.value > 0 ? (size_t)request->offset_items.value : 0;
	size_t left = offset < search->count ? search->count - offset : 0, limit = NAOS_KEYD_MAX_LOCATED;
	if (request->maximum_items.present && request->maximum_items.value >= 0 && (size_t)request->maximum_items.value < limit)
		limit = (size_t)request->maximum_items.value;
	size_t count = left < limit ? left : limit;
	struct naos_kmip_text *items = naos_call_take(call, count, sizeof(*items));
	if (!items)
		return -1;
	for (size_t i = 0; i < count; i++) {
		char *uid = naos_call_take(call, 1, NAOS_UUID_TEXT_BYTES);
		if (!uid)
			return -1;
		items[i] = naos_kmip_text(naos_uuid_format(&search->found[search->count - 1 - offset - i], uid));
	}
	out->unique_identifiers = (struct naos_kmip_texts){ items, count };
	if (call->version >= NAOS_KMIP_1_3)
		out->located_items = naos_kmip_integer((int32_t)search->count);
	/* the placeholder is set by exactly one */
	call->placeholder[0] = 0;
	if (count == 1)
		(void)snprintf(call->placeholder, sizeof(call->placeholder), "%s", items[0].data);
	return 0;
}

NAOS_OPERATION(locate)
{
	struct search search = { .call = call, .request = &in->locate, .storage = storage_of(&in->locate) };
	if (naos_call_allowed(call, NAOS_RIGHT_LOCATE) != 0)
		return -1;
	if (in->locate.attributes.count + in->locate.template_attributes.count > NAOS_KEYD_MAX_FILTERS)
		return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "a search has at most %d attributes", NAOS_KEYD_MAX_FILTERS);
	naos_table_each(call->keyd->table, visit, &search);
	int rc = search.exhausted ? naos_call_refuse(call, NAOS_KMIP_REASON_GENERAL_FAILURE, "out of memory") :
				    answer(call, &in->locate, &search, &out->locate);
	free(search.found);
	return rc;
}

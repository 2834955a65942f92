/* Attributes as clients see and change them.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "keyd/call.h"

/* Who may set an attribute, and until when. */
enum rule {
	AT_CREATION = 1, /* given when the object is made, then fixed */
	ANY_TIME = 2,    /* added, changed and deleted by the client */
	BEFORE_ACTIVE = 4, /* changed while the object is Pre-Active */
	NEVER_DELETED = 8,
};

static const struct {
	uint32_t tag;
	unsigned rule;
} rules[] = {
	{ NAOS_KMIP_TAG_NAME, AT_CREATION | ANY_TIME },
	{ NAOS_KMIP_TAG_CRYPTOGRAPHIC_ALGORITHM, AT_CREATION },
	{ NAOS_KMIP_TAG_CRYPTOGRAPHIC_LENGTH, AT_CREATION },
	{ NAOS_KMIP_TAG_CRYPTOGRAPHIC_PARAMETERS, AT_CREATION | ANY_TIME },
	{ NAOS_KMIP_TAG_CRYPTOGRAPHIC_USAGE_MASK, AT_CREATION | BEFORE_ACTIVE | NEVER_DELETED },
	{ NAOS_KMIP_TAG_OPERATION_POLICY_NAME, AT_CREATION | ANY_TIME },
	{ NAOS_KMIP_TAG_USAGE_LIMITS, AT_CREATION | BEFORE_ACTIVE },
	{ NAOS_KMIP_TAG_LEASE_TIME, AT_CREATION },
	{ NAOS_KMIP_TAG_ACTIVATION_DATE, AT_CREATION | BEFORE_ACTIVE | NEVER_DELETED },
	{ NAOS_KMIP_TAG_PROCESS_START_DATE, AT_CREATION | BEFORE_ACTIVE | NEVER_DELETED },
	{ NAOS_KMIP_TAG_PROTECT_STOP_DATE, AT_CREATION | BEFORE_ACTIVE | NEVER_DELETED },
	{ NAOS_KMIP_TAG_DEACTIVATION_DATE, AT_CREATION | BEFORE_ACTIVE | NEVER_DELETED },
	{ NAOS_KMIP_TAG_OBJECT_GROUP, AT_CREATION | ANY_TIME },
	{ NAOS_KMIP_TAG_LINK, AT_CREATION | ANY_TIME },
	{ NAOS_KMIP_TAG_APPLICATION_SPECIFIC_INFORMATION, AT_CREATION | ANY_TIME },
	{ NAOS_KMIP_TAG_CONTACT_INFORMATION, AT_CREATION | ANY_TIME },
	{ NAOS_KMIP_TAG_ALTERNATIVE_NAME, AT_CREATION | ANY_TIME },
	{ NAOS_KMIP_TAG_DESCRIPTION, AT_CREATION | ANY_TIME },
	{ NAOS_KMIP_TAG_COMMENT, AT_CREATION | ANY_TIME },
	{ NAOS_KMIP_TAG_SENSITIVE, AT_CREATION | ANY_TIME | NEVER_DELETED },
	{ NAOS_KMIP_TAG_EXTRACTABLE, AT_CREATION | ANY_TIME | NEVER_DELETED },
	{ NAOS_KMIP_TAG_DIGITAL_SIGNATURE_ALGORITHM, AT_CREATION | ANY_TIME },
	{ NAOS_KMIP_TAG_CRYPTOGRAPHIC_DOMAIN_PARAMETERS, AT_CREATION },
	{ NAOS_KMIP_TAG_KEY_VALUE_LOCATION, AT_CREATION | ANY_TIME },
	{ NAOS_KMIP_TAG_PKCS12_FRIENDLY_NAME, AT_CREATION | ANY_TIME },
};

static unsigned rule_of(const struct naos_kmip_attribute *attribute)
{
	if (attribute->tag == 0) /* y-… is set by servers only */
		return naos_kmip_attribute_is_custom(attribute->name) && attribute->name.data[0] == 'x' ? AT_CREATION | ANY_TIME : 0;
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(rules); i++)
		if (rules[i].tag == attribute->tag)
			return rules[i].rule;
	return 0;
}

static bool is_multiple(const struct naos_kmip_attribute *attribute)
{
	const struct naos_kmip_attribute_info *info = attribute->tag ? naos_kmip_attribute_info(attribute->tag) : NULL;
	return info ? info->multiple : true;
}

static struct naos_kmip_text name_of(const struct naos_kmip_attribute *attribute)
{
	const struct naos_kmip_attribute_info *info = attribute->tag ? naos_kmip_attribute_info(attribute->tag) : NULL;
	return info ? naos_kmip_text(info->name) : attribute->name;
}

bool naos_attribute_visible(const struct naos_call *call, const struct naos_kmip_attribute *attribute)
{
	const struct naos_kmip_attribute_info *info = attribute->tag ? naos_kmip_attribute_info(attribute->tag) : NULL;
	if (attribute->tag == 0)
		return true;
	/* Fresh is in the tables from 1.1 on, but clients of 1.0 and 1.1 stumble over it */
	if (attribute->tag == NAOS_KMIP_TAG_FRESH && call->version < NAOS_KMIP_1_2)
		return false;
	if (attribute->tag == NAOS_KMIP_TAG_APPLICATION_SPECIFIC_INFORMATION && call->version < NAOS_KMIP_1_3 &&
	    !attribute->value.application_information->data.data)
		return false; /* required before 1.3 */
	return info && naos_kmip_attribute_in_version(info, call->version);
}

/* Values that no attribute may have. */
static int check_value(struct naos_call *call, const struct naos_kmip_attribute *attribute)
{
	struct naos_kmip_text name = name_of(attribute), text = { 0 };
	if (attribute->value.type == 0)
		return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "the attribute '%.*s' has no value",
					(int)(name.bytes & 127), name.data);
	if (attribute->value.type == NAOS_KMIP_TYPE_TEXT)
		text = attribute->value.text;
	if (attribute->tag == NAOS_KMIP_TAG_NAME)
		text = attribute->value.name->value;
	if (text.bytes > NAOS_KEYD_MAX_TEXT_BYTES || name.bytes > NAOS_KEYD_MAX_TEXT_BYTES)
		return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "a text of an attribute is longer than %d bytes",
					NAOS_KEYD_MAX_TEXT_BYTES);
	return 0;
}

static int refuse_rule(struct naos_call *call, const struct naos_kmip_attribute *attribute, const char *what)
{
	struct naos_kmip_text name = name_of(attribute);
	return naos_call_refuse(call, NAOS_KMIP_REASON_ATTRIBUTE_READ_ONLY, "the attribute '%.*s' %s",
				(int)(name.bytes < 80 ? name.bytes : 80), name.data, what);
}

static int add(struct naos_call *call, struct naos_edit *edit, const struct naos_kmip_attribute *attribute)
{
	struct naos_error err = NAOS_ERROR_INIT;
	if (check_value(call, attribute) != 0)
		return -1;
	if (!is_multiple(attribute) && naos_edit_find(edit, attribute->tag, attribute->name, -1))
		return naos_call_refuse(call, NAOS_KMIP_REASON_INDEX_OUT_OF_BOUNDS, "the attribute has one instance only, and it is there");
	int rc = naos_edit_add(edit, attribute, &err);
	return rc ? naos_call_fail(call, rc, &err) : 0;
}

int naos_attributes_apply(struct naos_call *call, struct naos_edit *edit, const struct naos_kmip_attributes *attributes)
{
	if (attributes->templates.count > 0)
		return naos_call_refuse(call, NAOS_KMIP_REASON_ITEM_NOT_FOUND, "there are no templates here");
	for (size_t i = 0; i < attributes->count; i++) {
		const struct naos_kmip_attribute *attribute = &attributes->items[i];
		if (!(rule_of(attribute) & AT_CREATION))
			return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "the attribute '%.*s' can't be given by a client",
						(int)(name_of(attribute).bytes < 80 ? name_of(attribute).bytes : 80), name_of(attribute).data);
		if (add(call, edit, attribute) != 0)
			return -1;
	}
	return 0;
}

/* Whether the rules let this peer change an instance now. */
static int check_change(struct naos_call *call, const struct naos_object *object, const struct naos_kmip_attribute *attribute,
			bool deleting)
{
	unsigned rule = rule_of(attribute);
	enum naos_kmip_state state = naos_object_state(object, call->now);
	if (state >= NAOS_KMIP_STATE_DESTROYED)
		return naos_call_refuse(call, NAOS_KMIP_REASON_WRONG_KEY_LIFECYCLE_STATE, "the object is destroyed");
	if (attribute->tag == 0 && !(rule & ANY_TIME))
		return refuse_rule(call, attribute, "is neither known nor a custom one (x-...)");
	if (!(rule & (ANY_TIME | BEFORE_ACTIVE)) || (deleting && (rule & NEVER_DELETED)))
		return refuse_rule(call, attribute, "can't be changed by a client");
	if ((rule & BEFORE_ACTIVE) && state != NAOS_KMIP_STATE_PRE_ACTIVE)
		return refuse_rule(call, attribute, "can be changed only before the object is active");
	return 0;
}

/* Sensitive and Extractable: the first may be set, the second cleared; never for what is in the token. */
static int check_flags(struct naos_call *call, const struct naos_object *object, const struct naos_kmip_attribute *attribute)
{
	if (attribute->tag == NAOS_KMIP_TAG_EXTRACTABLE && attribute->value.boolean && object->core.object_class == NAOS_CLASS_RESIDENT)
		return naos_call_refuse(call, NAOS_KMIP_REASON_PERMISSION_DENIED, "a key inside the HSM can't be made extractable");
	return 0;
}

/* Sensitive and Extractable have companions that remember whether they were ever otherwise. */
static int follow_flags(struct naos_call *call, struct naos_edit *edit, const struct naos_kmip_attribute *attribute)
{
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_kmip_attribute other;
	int rc = 0;
	if (attribute->tag == NAOS_KMIP_TAG_SENSITIVE && !attribute->value.boolean) {
		other = naos_kmip_attribute_boolean(NAOS_KMIP_TAG_ALWAYS_SENSITIVE, false);
		rc = naos_edit_set(edit, &other, &err);
	} else if (attribute->tag == NAOS_KMIP_TAG_EXTRACTABLE && attribute->value.boolean) {
		other = naos_kmip_attribute_boolean(NAOS_KMIP_TAG_NEVER_EXTRACTABLE, false);
		rc = naos_edit_set(edit, &other, &err);
	}
	return rc ? naos_call_fail(call, rc, &err) : 0;
}

/* The answer echoes the attribute with the index that it has now. */
static int echo(struct naos_call *call, const struct naos_object *object, const struct naos_kmip_attribute *attribute, bool named,
		struct naos_kmip_attribute_response *out)
{
	struct naos_kmip_attribute *copy = naos_call_take(call, 1, sizeof(*copy));
	if (!copy)
		return -1;
	*copy = *attribute;
	if (!named)
		copy->index = (struct naos_kmip_integer){ .present = false };
	out->unique_identifier = naos_kmip_text(object->uid);
	out->attribute = copy;
	return 0;
}

/* Names are claimed before the change is durable, and what it gave up is free after it. */
static int commit(struct naos_call *call, struct naos_entry *entry, const struct naos_object *object, struct naos_edit *edit)
{
	const struct naos_kmip_attributes *former = &object->attributes;
	int rc = naos_call_claim_names(call, edit, NULL);
	if (rc == 0)
		rc = naos_call_commit(call, entry, edit);
	if (rc == 0)
		naos_names_release(call->keyd->names, object->core.owner, former->items, former->count, edit->items, edit->count, &entry->id);
	else
		naos_names_release(call->keyd->names, object->core.owner, edit->items, edit->count, former->items, former->count, &entry->id);
	return rc;
}

static int change(struct naos_call *call, const struct naos_kmip_attribute_request *in, bool adding,
		  struct naos_kmip_attribute_response *out)
{
	const struct naos_kmip_attribute *attribute = in->attribute;
	struct naos_kmip_attribute *present;
	struct naos_entry *entry;
	struct naos_object *object;
	struct naos_edit edit;
	int rc = naos_call_begin_change(call, in->unique_identifier, NAOS_RIGHT_MODIFY, &entry, &object, &edit);
	if (rc != 0)
		return rc;
	rc = check_change(call, object, attribute, false);
	if (rc == 0)
		rc = check_flags(call, object, attribute);
	if (rc == 0 && adding) {
		rc = attribute->index.present && attribute->index.value != 0 ?
			     naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "a new instance of an attribute has no index yet") :
			     add(call, &edit, attribute);
	} else if (rc == 0) {
		present = naos_edit_find(&edit, attribute->tag, attribute->name, attribute->index.present ? attribute->index.value : 0);
		if (!present)
			rc = naos_call_refuse(call, NAOS_KMIP_REASON_ITEM_NOT_FOUND, "the object has no such instance of this attribute");
		else if (check_value(call, attribute) != 0)
			rc = -1;
		else
			present->value = attribute->value;
	}
	if (rc == 0)
		rc = follow_flags(call, &edit, attribute);
	if (rc == 0)
		rc = commit(call, entry, object, &edit);
	if (rc == 0)
		rc = echo(call, object, attribute, attribute->index.present, out);
	naos_call_end_change(entry, &edit);
	return rc;
}

NAOS_OPERATION(add_attribute)
{
	const struct naos_kmip_attribute *attribute = in->add_attribute.attribute;
	if (!attribute)
		return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "no attribute is given");
	return change(call, &in->add_attribute, true, &out->add_attribute);
}

NAOS_OPERATION(modify_attribute)
{
	if (!in->modify_attribute.attribute)
		return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "no attribute is given");
	return change(call, &in->modify_attribute, false, &out->modify_attribute);
}

NAOS_OPERATION(delete_attribute)
{
	const struct naos_kmip_delete_attribute_request *request = &in->delete_attribute;
	struct naos_entry *entry;
	struct naos_object *object;
	struct naos_edit edit;
	if (request->names.count != 1)
		return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "one attribute at a time can be deleted");
	const struct naos_kmip_attribute wanted = { .tag = request->names.items[0].tag, .name = request->names.items[0].name };
	int rc = naos_call_begin_change(call, request->unique_identifier, NAOS_RIGHT_MODIFY, &entry, &object, &edit);
	if (rc != 0)
		return rc;
	rc = check_change(call, object, &wanted, true);
	if (rc == 0) {
		struct naos_kmip_attribute *present =
			naos_edit_find(&edit, wanted.tag, wanted.name, request->index.present ? request->index.value : 0);
		if (!present)
			rc = naos_call_refuse(call, NAOS_KMIP_REASON_ITEM_NOT_FOUND, "the object has no such instance of this attribute");
		else
			rc = echo(call, object, present, request->index.present, &out->delete_attribute);
		if (rc == 0)
			naos_edit_remove(&edit, present);
	}
	if (rc == 0)
		rc = commit(call, entry, object, &edit);
	naos_call_end_change(entry, &edit);
	return rc;
}

/* A structure without what the peer's version does not have yet. */
static const void *for_version(struct naos_call *call, const struct naos_kmip_attribute *attribute)
{
	if (attribute->tag == NAOS_KMIP_TAG_DIGEST && call->version < NAOS_KMIP_1_1) {
		struct naos_kmip_digest *digest = naos_kmip_arena_take(call->arena, 1, sizeof(*digest));
		if (digest)
			*digest = (struct naos_kmip_digest){ .hashing_algorithm = attribute->value.digest->hashing_algorithm,
							     .value = attribute->value.digest->value };
		return digest;
	}
	if (attribute->tag == NAOS_KMIP_TAG_CRYPTOGRAPHIC_PARAMETERS && call->version < NAOS_KMIP_1_4) {
		struct naos_kmip_cryptographic_parameters *all = naos_kmip_arena_take(call->arena, 1, sizeof(*all));
		const struct naos_kmip_cryptographic_parameters *from = attribute->value.cryptographic_parameters;
		if (all && call->version >= NAOS_KMIP_1_2) {
			*all = *from;
			all->salt_length = all->trailer_field = (struct naos_kmip_integer){ .present = false };
			all->mask_generator = 0;
			all->mask_generator_hashing_algorithm = 0;
			all->p_source = (struct naos_kmip_bytes){ NULL, 0 };
		} else if (all) {
			*all = (struct naos_kmip_cryptographic_parameters){
				.block_cipher_mode = from->block_cipher_mode, .padding_method = from->padding_method,
				.hashing_algorithm = from->hashing_algorithm, .key_role_type = from->key_role_type };
		}
		return all;
	}
	return attribute->value.structure;
}

/* Attributes as they are at this moment: dates may have changed the state. */
static struct naos_kmip_attribute present_value(struct naos_call *call, const struct naos_object *object,
						const struct naos_kmip_attribute *attribute)
{
	struct naos_kmip_attribute copy = *attribute;
	if (copy.tag == NAOS_KMIP_TAG_STATE)
		copy.value.enumeration = naos_object_state(object, call->now);
	if (copy.tag != 0 && copy.value.type == NAOS_KMIP_TYPE_STRUCTURE)
		copy.value.structure = for_version(call, attribute);
	return copy;
}

NAOS_OPERATION(get_attributes)
{
	const struct naos_kmip_attribute_names *names = &in->get_attributes.names;
	struct naos_object *object;
	size_t count = 0;
	int rc = naos_call_object(call, in->get_attributes.unique_identifier, NAOS_RIGHT_READ, NULL, &object);
	if (rc != 0)
		return rc;
	/* each instance once for each time it is asked for, within reason */
	size_t room = object->attributes.count * (names->count ? 2 : 1) + 1;
	struct naos_kmip_attribute *items = naos_call_take(call, room, sizeof(*items));
	if (!items)
		return -1;
	for (size_t n = 0; n < (names->count ? names->count : 1); n++)
		for (size_t i = 0; i < object->attributes.count && count < room; i++) {
			const struct naos_kmip_attribute *attribute = &object->attributes.items[i];
			const struct naos_kmip_attribute_name *name = names->count ? &names->items[n] : NULL;
			bool wanted = !name || (name->tag ? attribute->tag == name->tag :
							   attribute->tag == 0 && attribute->name.bytes == name->name.bytes &&
								   memcmp(attribute->name.data, name->name.data, name->name.bytes) == 0);
			if (!wanted || !naos_attribute_visible(call, attribute))
				continue;
			items[count] = present_value(call, object, attribute);
			count += attribute->value.type != NAOS_KMIP_TYPE_STRUCTURE || items[count].value.structure != NULL;
		}
	out->get_attributes.unique_identifier = naos_kmip_text(object->uid);
	out->get_attributes.attributes = (struct naos_kmip_attributes){ .items = items, .count = count, .enclosed = true };
	return 0;
}

NAOS_OPERATION(get_attribute_list)
{
	struct naos_object *object;
	size_t count = 0;
	int rc = naos_call_object(call, in->get_attribute_list.unique_identifier, NAOS_RIGHT_READ, NULL, &object);
	if (rc != 0)
		return rc;
	struct naos_kmip_attribute_name *names = naos_call_take(call, object->attributes.count, sizeof(*names));
	if (!names)
		return -1;
	for (size_t i = 0; i < object->attributes.count; i++) {
		const struct naos_kmip_attribute *attribute = &object->attributes.items[i];
		if (naos_attribute_visible(call, attribute) && !(attribute->index.present && attribute->index.value > 0))
			names[count++] = (struct naos_kmip_attribute_name){ .tag = attribute->tag, .name = attribute->name };
	}
	out->get_attribute_list.unique_identifier = naos_kmip_text(object->uid);
	out->get_attribute_list.names = (struct naos_kmip_attribute_names){ names, count };
	return 0;
}

/* ReKey: a new object takes the name, the old one stays as it is; links lead both ways (KMIP 4.4).
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "keyd/call.h"

/* What the new object does not take over. */
static bool stays_behind(uint32_t tag)
{
	static const uint32_t tags[] = {
		NAOS_KMIP_TAG_UNIQUE_IDENTIFIER, NAOS_KMIP_TAG_STATE, NAOS_KMIP_TAG_INITIAL_DATE, NAOS_KMIP_TAG_LAST_CHANGE_DATE,
		NAOS_KMIP_TAG_ORIGINAL_CREATION_DATE, NAOS_KMIP_TAG_DIGEST, NAOS_KMIP_TAG_LINK, NAOS_KMIP_TAG_DESTROY_DATE,
		NAOS_KMIP_TAG_COMPROMISE_DATE, NAOS_KMIP_TAG_COMPROMISE_OCCURRENCE_DATE, NAOS_KMIP_TAG_REVOCATION_REASON,
		NAOS_KMIP_TAG_RANDOM_NUMBER_GENERATOR, NAOS_KMIP_TAG_FRESH, NAOS_KMIP_TAG_ALWAYS_SENSITIVE, NAOS_KMIP_TAG_NEVER_EXTRACTABLE,
		NAOS_KMIP_TAG_ACTIVATION_DATE, NAOS_KMIP_TAG_PROCESS_START_DATE, NAOS_KMIP_TAG_PROTECT_STOP_DATE,
		NAOS_KMIP_TAG_DEACTIVATION_DATE, NAOS_KMIP_TAG_USAGE_LIMITS,
	};
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(tags); i++)
		if (tags[i] == tag)
			return true;
	return false;
}

static int add_link(struct naos_edit *edit, enum naos_kmip_link_type type, const char *uid, struct naos_error *err)
{
	struct naos_kmip_link *link = naos_kmip_arena_take(edit->arena, 1, sizeof(*link));
	char *text = naos_kmip_arena_take(edit->arena, 1, NAOS_UUID_TEXT_BYTES);
	if (!link || !text)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a link");
	(void)snprintf(text, NAOS_UUID_TEXT_BYTES, "%s", uid);
	*link = (struct naos_kmip_link){ .type = type, .object = naos_kmip_text(text) };
	for (size_t i = 0; i < edit->count; i++) /* one link of this type */
		if (edit->items[i].tag == NAOS_KMIP_TAG_LINK && edit->items[i].value.link->type == type) {
			edit->items[i].value.link = link;
			return 0;
		}
	const struct naos_kmip_attribute attribute = naos_kmip_attribute_structure(NAOS_KMIP_TAG_LINK, link);
	return naos_edit_add(edit, &attribute, err);
}

static int set_date(struct naos_edit *edit, uint32_t tag, int64_t unix_s, struct naos_error *err)
{
	const struct naos_kmip_attribute attribute = naos_kmip_attribute_date(tag, unix_s);
	return naos_edit_set(edit, &attribute, err);
}

/* With an offset the dates move along: activation at initial + offset, the others as far from it as before.  Without one the new
 * key is active if the old one is. */
static int move_dates(const struct naos_call *call, const struct naos_object *old, const struct naos_kmip_rekey_request *request,
		      struct naos_edit *edit, struct naos_error *err)
{
	static const uint32_t tags[] = { NAOS_KMIP_TAG_PROCESS_START_DATE, NAOS_KMIP_TAG_PROTECT_STOP_DATE,
					 NAOS_KMIP_TAG_DEACTIVATION_DATE };
	bool active = naos_object_state(old, call->now) == NAOS_KMIP_STATE_ACTIVE;
	int rc = 0;
	if (!request || !request->offset.present)
		return active ? set_date(edit, NAOS_KMIP_TAG_ACTIVATION_DATE, call->now, err) : 0;
	int64_t activation = call->now + request->offset.seconds;
	if (old->activation == INT64_MIN)
		return 0;
	rc = set_date(edit, NAOS_KMIP_TAG_ACTIVATION_DATE, activation, err);
	for (size_t i = 0; rc == 0 && i < NAOS_ARRAY_LENGTH(tags); i++) {
		const struct naos_kmip_attribute *date = naos_object_attribute(old, tags[i], 0);
		if (date)
			rc = set_date(edit, tags[i], activation + (date->value.unix_s - old->activation), err);
	}
	return rc;
}

static int fill(struct naos_call *call, const struct naos_object *old, const struct naos_kmip_rekey_request *request,
		struct naos_edit *edit)
{
	struct naos_error err = NAOS_ERROR_INIT;
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < old->attributes.count; i++)
		if (!stays_behind(old->attributes.items[i].tag))
			rc = naos_edit_add(edit, &old->attributes.items[i], &err);
	if (rc == 0)
		rc = move_dates(call, old, request, edit, &err);
	if (rc == 0)
		rc = add_link(edit, NAOS_KMIP_LINK_TYPE_REPLACED_OBJECT_LINK, old->uid, &err);
	if (rc != 0)
		return naos_call_fail(call, rc, &err);
	for (size_t i = 0; request && i < request->attributes.count; i++) {
		const struct naos_kmip_attribute_info *info = naos_kmip_attribute_info(request->attributes.items[i].tag);
		if (info && !info->multiple) /* what is given replaces what is taken over, or stands beside it */
			naos_edit_drop(edit, info->tag);
	}
	return request ? naos_attributes_apply(call, edit, &request->attributes) : 0;
}

/* The old object loses its name and gets a link; it stays in its state. */
static int relieve(struct naos_call *call, const struct naos_object *old, const char *new_uid, struct naos_object **ret)
{
	const struct naos_kmip_attribute changed = naos_kmip_attribute_date(NAOS_KMIP_TAG_LAST_CHANGE_DATE, call->now);
	naos_autoedit edit = { .count = 0 };
	struct naos_error err = NAOS_ERROR_INIT;
	int rc = naos_edit_begin(old, &edit, &err);
	if (rc == 0) {
		naos_edit_drop(&edit, NAOS_KMIP_TAG_NAME);
		rc = add_link(&edit, NAOS_KMIP_LINK_TYPE_REPLACEMENT_OBJECT_LINK, new_uid, &err);
	}
	if (rc == 0)
		rc = naos_edit_set(&edit, &changed, &err);
	if (rc == 0)
		rc = naos_object_make(&edit, ret, &err);
	return rc ? naos_call_fail(call, rc, &err) : 0;
}

int naos_rotate(struct naos_call *call, struct naos_entry *entry, const struct naos_object *old,
		const struct naos_kmip_rekey_request *request, char ret_uid[static NAOS_UUID_TEXT_BYTES])
{
	struct naos_creation creation = { .object_class = old->core.object_class,
					  .type = old->type,
					  .format = old->core.format,
					  .subtype = old->core.subtype,
					  .fresh_bytes = naos_key_bytes(old->algorithm, old->length_bits),
					  .replaced = entry,
					  .owner = old->core.owner };
	naos_autoedit edit = { .count = 0 };
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_entry *made;
	if (old->type != NAOS_KMIP_OBJECT_TYPE_SYMMETRIC_KEY)
		return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "only symmetric keys are re-keyed");
	if (naos_object_state(old, call->now) >= NAOS_KMIP_STATE_DESTROYED)
		return naos_call_refuse(call, NAOS_KMIP_REASON_WRONG_KEY_LIFECYCLE_STATE, "the key is destroyed");
	int rc = naos_edit_begin(NULL, &edit, &err);
	if (rc != 0)
		return naos_call_fail(call, rc, &err);
	rc = naos_uuid_random(&edit.core.id, &err);
	if (rc != 0)
		return naos_call_fail(call, rc, &err);
	naos_uuid_format(&edit.core.id, ret_uid);
	rc = fill(call, old, request, &edit);
	if (rc == 0)
		rc = relieve(call, old, ret_uid, &creation.relieved);
	if (rc == 0)
		rc = naos_creation_make(call, &creation, &edit, &made);
	(void)naos_object_free(creation.relieved);
	return rc;
}

NAOS_OPERATION(rekey)
{
	char uid[NAOS_UUID_TEXT_BYTES], *answer = naos_call_take(call, 1, sizeof(uid));
	struct naos_entry *entry;
	struct naos_object *object;
	struct naos_edit edit;
	int rc = answer ? naos_call_begin_change(call, in->rekey.unique_identifier, NAOS_RIGHT_ROTATE, &entry, &object, &edit) : -1;
	if (rc != 0)
		return rc;
	rc = naos_rotate(call, entry, object, &in->rekey, uid);
	naos_call_end_change(entry, &edit);
	if (rc == 0) {
		memcpy(answer, uid, sizeof(uid));
		out->rekey.unique_identifier = naos_kmip_text(answer);
	}
	return rc;
}

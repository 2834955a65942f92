/* Counting the uses of a key.  SPDX-License-Identifier: Apache-2.0 */
#include "keyd/call.h"

/* Usage Limits of KMIP: each use is written down before it happens; so a crash never allows one too many. */
static int take_limit(struct naos_call *call, struct naos_entry *entry, uint64_t bytes)
{
	struct naos_edit edit;
	struct naos_error err = NAOS_ERROR_INIT;
	(void)pthread_mutex_lock(&entry->change);
	naos_autoobject struct naos_object *object = naos_table_snapshot(call->keyd->table, entry);
	int rc = object && object->limits ? naos_edit_begin(object, &edit, &err) : 0;
	if (rc != 0 || !object || !object->limits) {
		(void)pthread_mutex_unlock(&entry->change);
		return rc ? naos_call_fail(call, rc, &err) : 0;
	}
	struct naos_kmip_usage_limits *limits = naos_kmip_arena_take(edit.arena, 1, sizeof(*limits));
	int64_t wanted = object->limits->unit == NAOS_KMIP_USAGE_LIMITS_UNIT_BYTE ? (int64_t)bytes : 1;
	int64_t left = object->limits->count.present ? object->limits->count.value : object->limits->total.value;
	if (!limits) {
		rc = naos_call_refuse(call, NAOS_KMIP_REASON_GENERAL_FAILURE, "out of memory");
	} else if (left < wanted) {
		rc = naos_call_refuse(call, NAOS_KMIP_REASON_USAGE_LIMIT_EXCEEDED, "the Usage Limits of the key are used up");
	} else {
		*limits = *object->limits;
		limits->count = naos_kmip_long(left - wanted);
		struct naos_kmip_attribute attribute = naos_kmip_attribute_structure(NAOS_KMIP_TAG_USAGE_LIMITS, limits);
		rc = naos_edit_set(&edit, &attribute, &err);
		rc = rc ? naos_call_fail(call, rc, &err) : naos_call_commit(call, entry, &edit);
	}
	naos_call_end_change(entry, &edit);
	return rc;
}

/* Rotation by itself, once, when the count comes near the limit; a failure shows in the log and is tried again at the next step. */
static void rotate_when_due(struct naos_call *call, struct naos_entry *entry)
{
	char uid[NAOS_UUID_TEXT_BYTES];
	struct naos_call own = *call;
	own.secrets = NULL;
	own.objects = NULL;
	own.secret_count = own.object_count = own.secret_room = own.object_room = 0;
	(void)pthread_mutex_lock(&entry->change);
	naos_autoobject struct naos_object *object = naos_table_snapshot(call->keyd->table, entry);
	bool due = object && object->core.object_class == NAOS_CLASS_RESIDENT &&
		   naos_object_attribute(object, NAOS_KMIP_TAG_NAME, 0) != NULL; /* one without a name was rotated, or can't be found anew */
	if (due && naos_rotate(&own, entry, object, NULL, uid) != 0)
		entry->rotating = false;
	(void)pthread_mutex_unlock(&entry->change);
	if (due) {
		int recorded = naos_call_record(&own, "key.rotate", object->uid, entry->rotating ? "allowed" : "failed", "UseCount");
		(void)recorded; /* the rotation is done; the next record fails as well and is told then */
	}
}

int naos_uses_take(struct naos_call *call, struct naos_entry *entry, const struct naos_object *object, uint64_t bytes)
{
	struct naos_error err = NAOS_ERROR_INIT;
	bool rotate = false;
	int rc = 0;
	if (object->limits && take_limit(call, entry, bytes) != 0)
		return -1;
	(void)pthread_mutex_lock(&entry->uses_lock);
	if (entry->uses >= NAOS_KEYD_MAX_USES) {
		rc = naos_call_refuse(call, NAOS_KMIP_REASON_USAGE_LIMIT_EXCEEDED,
				      "the key was used 2^32 times, the most that is safe: rotate it");
	} else if (entry->uses >= entry->uses_durable) {
		const uint64_t ahead = entry->uses + NAOS_KEYD_USES_STEP;
		const struct naos_change change = { .kind = NAOS_CHANGE_USES, .id = entry->id, .uses = ahead };
		rc = naos_keyd_store_commit(call->keyd->store, &change, 1, &err);
		if (rc == 0)
			entry->uses_durable = ahead;
		else
			rc = naos_call_fail(call, rc, &err);
	}
	if (rc == 0) {
		entry->uses++;
		rotate = call->keyd->auto_rotate && entry->uses >= call->keyd->rotate_at && !entry->rotating;
		entry->rotating |= rotate;
	}
	(void)pthread_mutex_unlock(&entry->uses_lock);
	if (rotate)
		rotate_when_due(call, entry);
	return rc;
}

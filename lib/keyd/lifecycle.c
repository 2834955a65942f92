/* States: Activate, Revoke, Destroy; approvals.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "keyd/call.h"

static int set_state(struct naos_edit *edit, enum naos_kmip_state state, struct naos_error *err)
{
	const struct naos_kmip_attribute attribute = naos_kmip_attribute_enum(NAOS_KMIP_TAG_STATE, state);
	return naos_edit_set(edit, &attribute, err);
}

static int set_date(struct naos_edit *edit, uint32_t tag, int64_t unix_s, struct naos_error *err)
{
	const struct naos_kmip_attribute attribute = naos_kmip_attribute_date(tag, unix_s);
	return naos_edit_set(edit, &attribute, err);
}

static int finish(struct naos_call *call, struct naos_entry *entry, struct naos_edit *edit, const struct naos_object *object, int rc,
		  const struct naos_error *err, struct naos_kmip_text *ret_uid)
{
	rc = rc ? naos_call_fail(call, rc, err) : naos_call_commit(call, entry, edit);
	if (rc == 0)
		*ret_uid = naos_kmip_text(object->uid);
	return rc;
}

NAOS_OPERATION(activate)
{
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_entry *entry;
	struct naos_object *object;
	struct naos_edit edit;
	int rc = naos_call_begin_change(call, in->activate.unique_identifier, NAOS_RIGHT_ACTIVATE, &entry, &object, &edit);
	if (rc != 0)
		return rc;
	if (naos_object_state(object, call->now) != NAOS_KMIP_STATE_PRE_ACTIVE) {
		rc = naos_call_refuse(call, NAOS_KMIP_REASON_WRONG_KEY_LIFECYCLE_STATE, "only an object that is Pre-Active can be activated");
	} else {
		rc = set_state(&edit, NAOS_KMIP_STATE_ACTIVE, &err);
		if (rc == 0)
			rc = set_date(&edit, NAOS_KMIP_TAG_ACTIVATION_DATE, call->now, &err);
		rc = finish(call, entry, &edit, object, rc, &err, &out->activate.unique_identifier);
	}
	naos_call_end_change(entry, &edit);
	return rc;
}

static int fill_revoked(struct naos_call *call, const struct naos_kmip_revoke_request *request, const struct naos_object *object,
			struct naos_edit *edit, struct naos_error *err)
{
	bool compromised =
	    request->reason->code == NAOS_KMIP_REVOCATION_KEY_COMPROMISE || request->reason->code == NAOS_KMIP_REVOCATION_CA_COMPROMISE;
	bool destroyed = naos_object_state(object, call->now) >= NAOS_KMIP_STATE_DESTROYED;
	const struct naos_kmip_attribute reason = naos_kmip_attribute_structure(NAOS_KMIP_TAG_REVOCATION_REASON, request->reason);
	int rc = set_state(edit, compromised ? (destroyed ? NAOS_KMIP_STATE_DESTROYED_COMPROMISED : NAOS_KMIP_STATE_COMPROMISED) :
					       NAOS_KMIP_STATE_DEACTIVATED, err);
	if (rc == 0)
		rc = naos_edit_set(edit, &reason, err);
	if (rc == 0 && compromised)
		rc = set_date(edit, NAOS_KMIP_TAG_COMPROMISE_DATE, call->now, err);
	if (rc == 0 && compromised && request->compromise_occurrence.present)
		rc = set_date(edit, NAOS_KMIP_TAG_COMPROMISE_OCCURRENCE_DATE, request->compromise_occurrence.unix_s, err);
	if (rc == 0 && !compromised)
		rc = set_date(edit, NAOS_KMIP_TAG_DEACTIVATION_DATE, call->now, err);
	return rc;
}

/* Whether a revocation for this reason fits the state. */
static bool may_revoke(enum naos_kmip_state state, bool compromised)
{
	return compromised ? state != NAOS_KMIP_STATE_DESTROYED_COMPROMISED && state != NAOS_KMIP_STATE_COMPROMISED :
			     state == NAOS_KMIP_STATE_ACTIVE;
}

NAOS_OPERATION(revoke)
{
	const struct naos_kmip_revoke_request *request = &in->revoke;
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_entry *entry;
	struct naos_object *object;
	struct naos_edit edit;
	if (!request->reason || request->reason->code == 0)
		return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "a revocation needs its reason");
	int rc = naos_call_begin_change(call, request->unique_identifier, NAOS_RIGHT_REVOKE, &entry, &object, &edit);
	if (rc != 0)
		return rc;
	bool compromised =
	    request->reason->code == NAOS_KMIP_REVOCATION_KEY_COMPROMISE || request->reason->code == NAOS_KMIP_REVOCATION_CA_COMPROMISE;
	if (!may_revoke(naos_object_state(object, call->now), compromised)) {
		rc = naos_call_refuse(call, NAOS_KMIP_REASON_WRONG_KEY_LIFECYCLE_STATE,
				      compromised ? "the object is marked as compromised already" : "only an active object can be revoked");
	} else {
		rc = fill_revoked(call, request, object, &edit, &err);
		rc = finish(call, entry, &edit, object, rc, &err, &out->revoke.unique_identifier);
	}
	naos_call_end_change(entry, &edit);
	return rc;
}

/* Approvals of an entry that still count; a new one of this identity is among them.  entry->change is held. */
static uint64_t count_approvals(const struct naos_call *call, const struct naos_entry *entry)
{
	uint64_t count = 0;
	for (const struct naos_approval *a = entry->approvals; a; a = a->next)
		count += a->unix_s + (int64_t)call->keyd->approval_life_s >= call->now;
	return count;
}

static struct naos_approval *own_approval(const struct naos_entry *entry, const char *identity)
{
	struct naos_approval *approval = entry->approvals;
	while (approval && strcmp(approval->identity, identity) != 0)
		approval = approval->next;
	return approval;
}

static int approve(struct naos_call *call, struct naos_entry *entry)
{
	struct naos_error err = NAOS_ERROR_INIT;
	const struct naos_change change = {
		.kind = NAOS_CHANGE_APPROVE, .id = entry->id, .identity = call->peer->identity, .unix_s = call->now
	};
	struct naos_approval *approval = own_approval(entry, call->peer->identity);
	struct naos_approval *fresh = approval ? NULL : calloc(1, sizeof(*fresh));
	if (!approval && !fresh)
		return naos_call_refuse(call, NAOS_KMIP_REASON_GENERAL_FAILURE, "out of memory");
	int rc = naos_keyd_store_commit(call->keyd->store, &change, 1, &err);
	if (rc != 0) {
		free(fresh);
		return naos_call_fail(call, rc, &err);
	}
	if (fresh) {
		(void)snprintf(fresh->identity, sizeof(fresh->identity), "%s", call->peer->identity);
		fresh->next = entry->approvals;
		entry->approvals = fresh;
		approval = fresh;
	}
	approval->unix_s = call->now;
	return 0;
}

static void forget_approvals(struct naos_entry *entry)
{
	while (entry->approvals) {
		struct naos_approval *next = entry->approvals->next;
		free(entry->approvals);
		entry->approvals = next;
	}
}

/* Enough identities must have asked for it.  The request of each is its approval. */
static int check_approvals(struct naos_call *call, struct naos_entry *entry, const struct naos_object *object)
{
	bool may_begin = naos_has_right(naos_roles_rights(call->roles, call->peer->identity, object), NAOS_RIGHT_DESTROY);
	bool needed = object->core.object_class == NAOS_CLASS_RESIDENT && call->keyd->approvals > 1;
	if (!may_begin && (!needed || count_approvals(call, entry) == 0))
		return naos_call_refuse(call, NAOS_KMIP_REASON_PERMISSION_DENIED,
					"your role approves destructions, and none of this object was asked for");
	if (!needed)
		return 0;
	if (approve(call, entry) != 0)
		return -1;
	uint64_t count = count_approvals(call, entry);
	if (count >= call->keyd->approvals)
		return 0;
	return naos_call_refuse(call, NAOS_KMIP_REASON_PERMISSION_DENIED,
				"recorded: %llu of %llu approvals; the key is destroyed when %llu more identities ask the same ('naos key approve')",
				(unsigned long long)count, (unsigned long long)call->keyd->approvals,
				(unsigned long long)(call->keyd->approvals - count));
}

int naos_destroy_settle(struct naos_keyd *keyd, struct naos_entry *entry, struct naos_error *err)
{
	naos_autoobject struct naos_object *object = naos_table_snapshot(keyd->table, entry), *settled = NULL;
	naos_autoedit edit = { .count = 0 };
	if (!object || object->core.phase != NAOS_OBJECT_DESTROYING)
		return 0;
	int rc = naos_hsm_destroy(keyd->hsm, &entry->id, err);
	if (rc == 0)
		rc = naos_edit_begin(object, &edit, err);
	if (rc != 0)
		return rc;
	edit.core.phase = NAOS_OBJECT_SETTLED;
	rc = naos_object_make(&edit, &settled, err);
	const struct naos_change changes[] = { { .kind = NAOS_CHANGE_OBJECT, .object = settled },
					       { .kind = NAOS_CHANGE_UNAPPROVE, .id = entry->id } };
	if (rc == 0)
		rc = naos_keyd_store_commit(keyd->store, changes, NAOS_ARRAY_LENGTH(changes), err);
	if (rc == 0)
		naos_table_publish(keyd->table, entry, naos_steal(settled));
	return rc;
}

/* The state is written first: from then on nobody can use the key, whatever happens to its value. */
static int destroy(struct naos_call *call, struct naos_entry *entry, const struct naos_object *object, struct naos_edit *edit)
{
	struct naos_error err = NAOS_ERROR_INIT;
	bool compromised = naos_object_state(object, call->now) == NAOS_KMIP_STATE_COMPROMISED;
	bool resident = object->core.object_class == NAOS_CLASS_RESIDENT;
	int rc = set_state(edit, compromised ? NAOS_KMIP_STATE_DESTROYED_COMPROMISED : NAOS_KMIP_STATE_DESTROYED, &err);
	if (rc == 0)
		rc = set_date(edit, NAOS_KMIP_TAG_DESTROY_DATE, call->now, &err);
	if (rc != 0)
		return naos_call_fail(call, rc, &err);
	edit->core.kept = NULL;
	edit->core.kept_bytes = 0;
	edit->core.phase = resident ? NAOS_OBJECT_DESTROYING : NAOS_OBJECT_SETTLED;
	/* what can't be undone is recorded before */
	if (naos_call_record(call, "key.destroy", object->uid, "begun", NULL) != 0 || naos_call_commit(call, entry, edit) != 0)
		return -1;
	naos_names_release(call->keyd->names, object->core.owner, object->attributes.items, object->attributes.count, NULL, 0, &entry->id);
	forget_approvals(entry);
	rc = resident ? naos_destroy_settle(call->keyd, entry, &err) : 0;
	if (rc != 0)
		atomic_store(&call->keyd->unsettled, true);
	return rc ? naos_call_fail(call, rc, &err) : 0;
}

NAOS_OPERATION(destroy)
{
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_entry *entry;
	struct naos_object *object;
	struct naos_edit edit;
	int rc = naos_call_begin_change(call, in->destroy.unique_identifier, NAOS_RIGHT_DESTROY, &entry, &object, &edit);
	if (rc != 0)
		return rc;
	enum naos_kmip_state state = naos_object_state(object, call->now);
	if (object->core.phase == NAOS_OBJECT_DESTROYING) { /* an earlier attempt did not reach the token */
		rc = naos_destroy_settle(call->keyd, entry, &err);
		if (rc != 0)
			rc = naos_call_fail(call, rc, &err);
	} else if (state == NAOS_KMIP_STATE_ACTIVE) {
		rc = naos_call_refuse(call, NAOS_KMIP_REASON_WRONG_KEY_LIFECYCLE_STATE,
				      "an active object must be revoked before it is destroyed");
	} else if (state >= NAOS_KMIP_STATE_DESTROYED) {
		rc = naos_call_refuse(call, NAOS_KMIP_REASON_WRONG_KEY_LIFECYCLE_STATE, "the object is destroyed already");
	} else {
		rc = check_approvals(call, entry, object);
		if (rc == 0)
			rc = destroy(call, entry, object, &edit);
	}
	if (rc == 0)
		out->destroy.unique_identifier = naos_kmip_text(object->uid);
	naos_call_end_change(entry, &edit);
	return rc;
}

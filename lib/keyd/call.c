/* What operations need of a request.  SPDX-License-Identifier: Apache-2.0 */
#include "keyd/call.h"

#include <stdarg.h>
#include <string.h>

#include "kmip/reason.h"

int naos_call_refuse(struct naos_call *call, enum naos_kmip_result_reason reason, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	(void)vsnprintf(call->message, sizeof(call->message), format, arguments);
	va_end(arguments);
	call->reason = naos_kmip_reason_in_version(reason, call->version);
	call->audited = NULL;
	return -1;
}

int naos_call_fail(struct naos_call *call, int code, const struct naos_error *err)
{
	const struct naos_error_info *info = naos_error_info(code);
	bool private = strcmp(info->category, "system") == 0 || code == NAOS_E_KEYMANAGER || code == NAOS_E_NOKEY || code == NAOS_E_PIN;
	(void)snprintf(call->message, sizeof(call->message), "%.190s", private ? info->sentence : err->message);
	if (code == NAOS_E_KEYMANAGER)
		(void)snprintf(call->message, sizeof(call->message), "the HSM is not available at the moment; try again");
	call->reason =
	    private && code != NAOS_E_EXISTS ? NAOS_KMIP_REASON_GENERAL_FAILURE : naos_kmip_reason_from_code(code, call->version);
	call->audited = info->name;
	return -1;
}

void *naos_call_take(struct naos_call *call, size_t count, size_t bytes)
{
	void *taken = naos_kmip_arena_take(call->arena, count ? count : 1, bytes);
	if (!taken)
		(void)naos_call_refuse(call, NAOS_KMIP_REASON_GENERAL_FAILURE, "the request needs too much memory");
	return taken;
}

static bool make_room(void *array, size_t count, size_t *room)
{
	if (count < *room)
		return true;
	size_t wanted = *room ? 2 * *room : 8;
	void **grown = reallocarray(*(void **)array, wanted, sizeof(void *));
	if (!grown)
		return false;
	*(void **)array = grown;
	*room = wanted;
	return true;
}

int naos_call_own_secret(struct naos_call *call, struct naos_secret *secret)
{
	if (!make_room(&call->secrets, call->secret_count, &call->secret_room)) {
		(void)naos_secret_free(secret);
		return naos_call_refuse(call, NAOS_KMIP_REASON_GENERAL_FAILURE, "out of memory");
	}
	call->secrets[call->secret_count++] = secret;
	return 0;
}

int naos_call_own_object(struct naos_call *call, struct naos_object *object)
{
	if (!make_room(&call->objects, call->object_count, &call->object_room)) {
		(void)naos_object_free(object);
		return naos_call_refuse(call, NAOS_KMIP_REASON_GENERAL_FAILURE, "out of memory");
	}
	call->objects[call->object_count++] = object;
	return 0;
}

static int not_found(struct naos_call *call)
{
	return naos_call_refuse(call, NAOS_KMIP_REASON_ITEM_NOT_FOUND, "there is no such object, or it is not yours");
}

static int find(struct naos_call *call, struct naos_kmip_text identifier, struct naos_entry **ret)
{
	char text[NAOS_UUID_TEXT_BYTES];
	struct naos_uuid id;
	if (!identifier.data) {
		if (!call->placeholder[0])
			return naos_call_refuse(call, NAOS_KMIP_REASON_ITEM_NOT_FOUND,
						"no unique identifier, and no object in this batch before");
		identifier = naos_kmip_text(call->placeholder);
	}
	if (identifier.bytes >= sizeof(text))
		return not_found(call);
	memcpy(text, identifier.data, identifier.bytes);
	text[identifier.bytes] = 0;
	if (!naos_uuid_parse(text, &id))
		return not_found(call);
	naos_uuid_format(&id, call->audit_object);
	*ret = naos_table_find(call->keyd->table, &id);
	return *ret ? 0 : not_found(call);
}

uint32_t naos_call_rights(struct naos_call *call, const struct naos_object *object)
{
	if (call->rights_of != object) {
		call->rights = naos_roles_rights(call->roles, call->peer->identity, object);
		call->rights_of = object;
	}
	return call->rights;
}

void naos_call_remember(struct naos_call *call, bool remember)
{
	call->remembers = remember;
	call->last_object = NULL;
}

/* The object that was asked for last, by the same identifier. */
static bool is_last(const struct naos_call *call, struct naos_kmip_text identifier)
{
	return call->remembers && call->last_object && identifier.data && identifier.bytes == NAOS_UUID_TEXT_BYTES - 1 &&
	       memcmp(identifier.data, call->last_object->uid, identifier.bytes) == 0;
}

/* Not there, not settled and not for this peer all look the same. */
static int check_right(struct naos_call *call, const struct naos_object *object, enum naos_right right)
{
	if (!object || object->core.phase == NAOS_OBJECT_CREATING)
		return not_found(call);
	uint32_t rights = naos_call_rights(call, object);
	if (rights == 0)
		return not_found(call);
	/* who may approve a destruction asks for it like the others (lifecycle.c) */
	bool approves = right == NAOS_RIGHT_DESTROY && naos_has_right(rights, NAOS_RIGHT_APPROVE);
	if (!naos_has_right(rights, right) && !approves)
		return naos_call_refuse(call, NAOS_KMIP_REASON_PERMISSION_DENIED,
					"your role may not do this (operation '%s') with this object", naos_right_name(right));
	return 0;
}

int naos_call_object(struct naos_call *call, struct naos_kmip_text identifier, enum naos_right right, struct naos_entry **ret_entry,
		     struct naos_object **ret)
{
	struct naos_entry *entry = call->last_entry;
	struct naos_object *object = call->last_object;
	if (is_last(call, identifier)) {
		memcpy(call->audit_object, object->uid, sizeof(call->audit_object));
	} else {
		if (find(call, identifier, &entry) != 0)
			return -1;
		object = naos_table_snapshot(call->keyd->table, entry);
		if (object && naos_call_own_object(call, object) != 0)
			return -1;
		call->last_entry = entry;
		call->last_object = object;
	}
	if (check_right(call, object, right) != 0)
		return -1;
	if (ret_entry)
		*ret_entry = entry;
	*ret = object;
	return 0;
}

int naos_call_allowed(struct naos_call *call, enum naos_right right)
{
	if (naos_has_right(call->allowance.rights, right))
		return 0;
	return naos_call_refuse(call, NAOS_KMIP_REASON_PERMISSION_DENIED, "no role of yours has the operation '%s'",
				naos_right_name(right));
}

int naos_call_begin_change(struct naos_call *call, struct naos_kmip_text identifier, enum naos_right right,
			   struct naos_entry **ret_entry, struct naos_object **ret, struct naos_edit *ret_edit)
{
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_entry *entry;
	if (find(call, identifier, &entry) != 0)
		return -1;
	(void)pthread_mutex_lock(&entry->change);
	struct naos_object *object = naos_table_snapshot(call->keyd->table, entry);
	int rc = object ? naos_call_own_object(call, object) : 0;
	if (rc == 0)
		rc = check_right(call, object, right);
	if (rc == 0) {
		rc = naos_edit_begin(object, ret_edit, &err);
		if (rc != 0)
			rc = naos_call_fail(call, rc, &err);
	}
	if (rc != 0) {
		(void)pthread_mutex_unlock(&entry->change);
		return -1;
	}
	*ret_entry = entry;
	*ret = object;
	return 0;
}

int naos_call_commit(struct naos_call *call, struct naos_entry *entry, struct naos_edit *edit)
{
	struct naos_kmip_attribute changed = naos_kmip_attribute_date(NAOS_KMIP_TAG_LAST_CHANGE_DATE, call->now);
	naos_autoobject struct naos_object *object = NULL;
	struct naos_error err = NAOS_ERROR_INIT;
	int rc = naos_edit_set(edit, &changed, &err);
	if (rc == 0)
		rc = naos_object_make(edit, &object, &err);
	if (rc == 0) {
		struct naos_change change = { .kind = NAOS_CHANGE_OBJECT, .object = object };
		rc = naos_keyd_store_commit(call->keyd->store, &change, 1, &err);
	}
	if (rc != 0)
		return naos_call_fail(call, rc, &err);
	naos_table_publish(call->keyd->table, entry, naos_steal(object));
	return 0;
}

void naos_call_end_change(struct naos_entry *entry, struct naos_edit *edit)
{
	(void)pthread_mutex_unlock(&entry->change);
	naos_edit_clear(edit);
}

int naos_call_record(struct naos_call *call, const char *action, const char *uid, const char *decision, const char *reason)
{
	struct naos_audit_event event = { .actor = call->peer->identity, .action = action, .object = uid, .decision = decision,
					  .reason = reason, .request_id = call->request_id };
	struct naos_error err = NAOS_ERROR_INIT;
	int rc = naos_audit_append(call->keyd->audit, &event, &err);
	return rc ? naos_call_fail(call, rc, &err) : 0;
}

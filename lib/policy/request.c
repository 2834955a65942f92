/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/request.h"

#include <string.h>

static const char *const type_names[] = { "", "a string", "a number", "a time such as \"2027-01-01T00:00:00Z\"", "true or false",
					  "a list of strings" };

void naos_policy_given_start(struct naos_policy_given *given, int64_t now_us)
{
	memset(given, 0, sizeof(*given));
	given->request.now_us = now_us;
	given->request.values = given->values;
}

void naos_policy_given_clear(struct naos_policy_given *given)
{
	free(given->members[0]);
	free(given->members[1]);
	given->members[0] = given->members[1] = NULL;
}

static int take_text(const json_t *json, struct naos_policy_text *ret, const char *what, const char *name, struct naos_error *err)
{
	*ret = (struct naos_policy_text){ .data = json_string_value(json), .bytes = json_string_length(json) };
	if (ret->bytes > NAOS_POLICY_MAX_VALUE_BYTES)
		return naos_error_set(err, NAOS_E_LIMIT, "%s: a string of %s is %zu bytes long, at most %d are allowed", what, name, ret->bytes,
				      NAOS_POLICY_MAX_VALUE_BYTES);
	return 0;
}

static int take_set(struct naos_policy_given *given, size_t slot, const json_t *json, const char *what, const char *name,
		    struct naos_error *err)
{
	size_t count = json_array_size(json);
	struct naos_policy_text **members = &given->members[slot == NAOS_POLICY_USER_ROLES ? 0 : 1];
	if (count > NAOS_POLICY_MAX_MEMBERS)
		return naos_error_set(err, NAOS_E_LIMIT, "%s: %zu elements of %s, at most %d are allowed", what, count, name,
				      NAOS_POLICY_MAX_MEMBERS);
	free(*members);
	*members = calloc(count + 1, sizeof(**members));
	if (!*members)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a request");
	for (size_t i = 0; i < count; i++) {
		const json_t *item = json_array_get(json, i);
		if (!json_is_string(item))
			return naos_error_set(err, NAOS_E_FORMAT, "%s: %s must be %s", what, name, type_names[NAOS_POLICY_SET]);
		int rc = take_text(item, &(*members)[i], what, name, err);
		if (rc != 0)
			return rc;
	}
	given->values[slot] = (struct naos_policy_value){ .type = NAOS_POLICY_SET, .set = { .items = *members, .count = count } };
	return 0;
}

static int take_time(struct naos_policy_value *value, const json_t *json, const char *what, const char *name, struct naos_error *err)
{
	const char *text = json_string_value(json);
	const char *wrong = naos_policy_time_parse(text, json_string_length(json), &value->time_us);
	if (wrong)
		return naos_error_set(err, NAOS_E_FORMAT, "%s: the time '%.40s' of %s %s", what, text, name, wrong);
	value->type = NAOS_POLICY_TIME;
	return 0;
}

/* A value of the type that the policy wants; *ret_other: it is of another one. */
static int take_value(struct naos_policy_given *given, size_t slot, enum naos_policy_type type, const json_t *json, const char *what,
		      const char *name, bool *ret_other, struct naos_error *err)
{
	struct naos_policy_value *value = &given->values[slot];
	*value = (struct naos_policy_value){ .type = NAOS_POLICY_MISSING };
	*ret_other = false;
	if (json_is_null(json))
		return 0;
	if (type == NAOS_POLICY_MISSING) { /* the policy only asks whether it exists */
		*value = (struct naos_policy_value){ .type = NAOS_POLICY_BOOLEAN };
		return 0;
	}
	if (type == NAOS_POLICY_TEXT && json_is_string(json)) {
		value->type = NAOS_POLICY_TEXT;
		return take_text(json, &value->text, what, name, err);
	}
	if (type == NAOS_POLICY_NUMBER && json_is_number(json)) {
		*value = (struct naos_policy_value){ .type = NAOS_POLICY_NUMBER, .number = json_number_value(json) };
		return 0;
	}
	if (type == NAOS_POLICY_BOOLEAN && json_is_boolean(json)) {
		*value = (struct naos_policy_value){ .type = NAOS_POLICY_BOOLEAN, .boolean = json_is_true(json) };
		return 0;
	}
	if (type == NAOS_POLICY_TIME && json_is_string(json))
		return take_time(value, json, what, name, err);
	if (type == NAOS_POLICY_SET && json_is_array(json))
		return take_set(given, slot, json, what, name, err);
	*ret_other = true;
	return 0;
}

static bool is_keyword_name(const char *name)
{
	return strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_- ") == strlen(name) && name[0];
}

static bool find_slot(const struct naos_policy *policy, const char *space, const char *name, size_t *ret,
		      struct naos_policy_slot_info *ret_info)
{
	for (size_t i = 0; naos_policy_slot(policy, i, ret_info); i++)
		if (i != NAOS_POLICY_NOW && strcmp(ret_info->namespace_, space) == 0 && name[0] &&
		    (strcmp(ret_info->name, name) == 0 || strcmp(ret_info->other, name) == 0)) {
			*ret = i;
			return true;
		}
	return false;
}

static int add_space(struct naos_policy_given *given, const struct naos_policy *policy, const char *space, const json_t *object,
		     const char *what, struct naos_error *err)
{
	const char *key;
	json_t *json;
	if (!json_is_object(object))
		return naos_error_set(err, NAOS_E_FORMAT, "%s: \"%s\" is no object with the attributes of it", what, space);
	json_object_foreach((json_t *)object, key, json)
	{
		struct naos_policy_slot_info info;
		char name[64];
		size_t slot = 0;
		bool other;
		(void)snprintf(name, sizeof(name), "%s.%.40s", space, key);
		if (strcmp(name, "data.embargo_active") == 0)
			return naos_error_set(err, NAOS_E_FORMAT, "%s: data.embargo_active follows from data.release_date; give that", what);
		if (!find_slot(policy, space, key, &slot, &info)) {
			if (strcmp(space, "data") == 0 && is_keyword_name(key))
				continue;
			return naos_error_set(err, NAOS_E_FORMAT, "%s: unknown attribute '%s'", what, name);
		}
		int rc = take_value(given, slot, info.type, json, what, name, &other, err);
		if (rc == 0 && other && !info.keyword)
			rc = naos_error_set(err, NAOS_E_FORMAT, "%s: %s must be %s", what, name, type_names[info.type]);
		if (rc != 0)
			return rc;
	}
	return 0;
}

int naos_policy_given_add(struct naos_policy_given *given, const struct naos_policy *policy, const json_t *object, const char *what,
			  struct naos_error *err)
{
	static const char *const spaces[] = { "user", "data", "vm", "env" };
	if (!json_is_object(object))
		return naos_error_set(err, NAOS_E_FORMAT, "%s is no JSON object", what);
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(spaces); i++) {
		const json_t *space = json_object_get(object, spaces[i]);
		int rc = space ? add_space(given, policy, spaces[i], space, what, err) : 0;
		if (rc != 0)
			return rc;
	}
	const json_t *now = json_object_get(object, "now"), *want = json_object_get(object, "want");
	if (now && !json_is_string(now))
		return naos_error_set(err, NAOS_E_FORMAT, "%s: \"now\" must be %s", what, type_names[NAOS_POLICY_TIME]);
	if (now) {
		struct naos_policy_value value;
		int rc = take_time(&value, now, what, "\"now\"", err);
		if (rc != 0)
			return rc;
		given->request.now_us = value.time_us;
	}
	if (want && (!json_is_string(want) || !naos_access_level_parse(json_string_value(want), &given->request.want) ||
		     given->request.want == NAOS_ACCESS_DENIED))
		return naos_error_set(err, NAOS_E_FORMAT, "%s: \"want\" must be full, metadata-only or pixels-only", what);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "catalogue/query.h"

#include <string.h>

int naos_catalogue_query_parse(const char *expression, struct naos_policy **ret, struct naos_error *err)
{
	naos_autopolicy struct naos_policy *query = NULL;
	naos_autofree char *text = NULL;
	struct naos_policy_slot_info slot;
	int bytes = asprintf(&text, "allow if\n%s\n", expression);
	if (bytes < 0) {
		text = NULL;
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a query");
	}
	int rc = naos_policy_parse(text, (size_t)bytes, "query", &query, err);
	if (rc != 0)
		return rc;
	if (naos_policy_rule_count(query) != 1)
		return naos_error_set(err, NAOS_E_USAGE, "a query is one condition, such as data.EXPTIME > 60");
	for (size_t i = 0; naos_policy_slot(query, i, &slot); i++)
		if (slot.used && i != NAOS_POLICY_NOW && strcmp(slot.namespace_, "data") != 0)
			return naos_error_set(err, NAOS_E_USAGE, "a query asks for attributes of frames (data.…), not for %s.%s", slot.namespace_,
					      slot.name);
	*ret = naos_steal(query);
	return 0;
}

static void bind(struct naos_policy_value *value, enum naos_policy_type type, const json_t *json)
{
	const char *text = json_string_value(json);
	size_t bytes = json_string_length(json);
	if (!json || json_is_null(json))
		return;
	if (type == NAOS_POLICY_MISSING) /* only asked whether it exists */
		value->type = NAOS_POLICY_BOOLEAN;
	else if (type == NAOS_POLICY_TEXT && text && bytes <= NAOS_POLICY_MAX_VALUE_BYTES)
		*value = (struct naos_policy_value){ .type = type, .text = { .data = text, .bytes = bytes } };
	else if (type == NAOS_POLICY_NUMBER && json_is_number(json))
		*value = (struct naos_policy_value){ .type = type, .number = json_number_value(json) };
	else if (type == NAOS_POLICY_BOOLEAN && json_is_boolean(json))
		*value = (struct naos_policy_value){ .type = type, .boolean = json_is_true(json) };
	else if (type == NAOS_POLICY_TIME && text && !naos_policy_time_parse(text, bytes, &value->time_us))
		value->type = NAOS_POLICY_TIME;
}

bool naos_catalogue_query_finds(const struct naos_policy *query, const json_t *attributes, int64_t now_us)
{
	struct naos_policy_value values[NAOS_POLICY_SLOTS] = { 0 };
	const struct naos_policy_request request = { .now_us = now_us, .want = NAOS_ACCESS_FULL, .values = values };
	struct naos_policy_slot_info slot;
	struct naos_policy_decision decision;
	for (size_t i = 0; naos_policy_slot(query, i, &slot); i++)
		if (slot.used && i != NAOS_POLICY_NOW)
			bind(&values[i], slot.type, json_object_get(attributes, slot.name));
	naos_policy_decide(query, &request, &decision);
	return decision.level == NAOS_ACCESS_FULL;
}

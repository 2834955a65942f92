/* Explanations.  SPDX-License-Identifier: Apache-2.0 */
#include "policy/explain.h"

#include <string.h>

#include "policy/program.h"

#define IMPOSSIBLE 1000000u /* more changes than a policy has conditions */
#define NO_NEED (-1)
#define CONFLICT (-2)

/* One explanation being made. */
struct study {
	const struct naos_policy *policy;
	const struct naos_policy_request *request;
	enum naos_policy_audience audience;
	struct naos_policy_decision decision;
	unsigned goal;       /* levels that would be access */
	uint8_t *values;     /* truth of each condition */
	uint8_t *supposed;   /* the same after the changes */
	int8_t *needs;       /* of each condition: truth to become, NO_NEED, CONFLICT */
	uint32_t *order;     /* conditions in need, in the order found */
	size_t order_count;
};

/* --- truth of nodes ----------------------------------------------------------------------------------------------------------- */

static enum truth node_truth(const struct naos_policy *policy, uint32_t index, const uint8_t *values)
{
	const struct node *node = &policy->nodes[index];
	enum truth left, right;
	switch ((enum node_kind)node->kind) {
	case NODE_FALSE:
		return IS_FALSE;
	case NODE_TRUE:
		return IS_TRUE;
	case NODE_CONDITION:
		return values[node->left];
	case NODE_NOT:
		return IS_TRUE - node_truth(policy, node->left, values);
	case NODE_AND:
	case NODE_OR:
		break;
	}
	left = node_truth(policy, node->left, values);
	right = node_truth(policy, node->right, values);
	return (node->kind == NODE_AND) == (left < right) ? left : right;
}

static bool applies(const struct naos_policy *policy, const struct rule *rule, const uint8_t *values)
{
	enum truth truth = node_truth(policy, rule->root, values);
	return rule->allow ? truth == IS_TRUE : truth != IS_FALSE;
}

/* --- moments: when time alone changes a condition ------------------------------------------------------------------------------- */

/* The first moment at which a condition on now() has another value than before it, and that value.  False: no such condition, or what
 * it compares with is missing. */
static bool moment_of(const struct study *study, const struct condition *condition, int64_t *ret_us, bool *ret_value)
{
	bool left = condition->left == NAOS_POLICY_NOW, two = condition->kind == CONDITION_LESS_TIME;
	if (!two && !(left && (condition->kind == CONDITION_BELOW_TIME || condition->kind == CONDITION_ABOVE_TIME)))
		return false;
	if (two && !left && condition->right != NAOS_POLICY_NOW)
		return false;
	int64_t at = condition->time_us;
	*ret_value = condition->kind == CONDITION_ABOVE_TIME || (two && !left);
	if (two) { /* now + k < x until x - k; x + k < now from x + k + 1 on */
		const struct naos_policy_value *other = &study->request->values[left ? condition->right : condition->left];
		if (other->type != NAOS_POLICY_TIME)
			return false;
		if (left ? __builtin_sub_overflow(other->time_us, condition->time_us, &at) : __builtin_add_overflow(other->time_us,
														    condition->time_us, &at))
			return false;
	}
	return !__builtin_add_overflow(at, *ret_value ? 1 : 0, ret_us);
}

/* May somebody who was denied read this condition? */
static bool is_seen(const struct study *study, const struct condition *condition)
{
	struct naos_policy_slot_info left, right;
	bool metadata = study->decision.granted & naos_access_bit(NAOS_ACCESS_METADATA_ONLY);
	if (study->audience == NAOS_POLICY_OFFICER)
		return true;
	return naos_policy_slot(study->policy, condition->left, &left) && naos_policy_slot(study->policy, condition->right, &right) &&
	       (left.seen || (left.keyword && metadata)) && (right.seen || (right.keyword && metadata));
}

/* The first moment behind `after`; false: there is none. */
static bool next_moment(const struct study *study, int64_t after, int64_t *ret_us, bool *ret_seen)
{
	bool found = false, seen = false, value;
	int64_t at, best = 0;
	for (size_t i = 0; i < study->policy->condition_count; i++) {
		if (!moment_of(study, &study->policy->conditions[i], &at, &value) || at <= after || (found && at > best))
			continue;
		seen = (found && at == best && seen) || is_seen(study, &study->policy->conditions[i]);
		found = true;
		best = at;
	}
	*ret_us = best;
	*ret_seen = seen;
	return found;
}

/* --- changes: what would have to become true ------------------------------------------------------------------------------------- */

static unsigned cost(const struct study *study, uint32_t index, bool wanted)
{
	const struct node *node = &study->policy->nodes[index];
	switch ((enum node_kind)node->kind) {
	case NODE_FALSE:
	case NODE_TRUE:
		return (node->kind == NODE_TRUE) == wanted ? 0 : IMPOSSIBLE;
	case NODE_CONDITION:
		return study->values[node->left] == (wanted ? IS_TRUE : IS_FALSE) ? 0 : 1;
	case NODE_NOT:
		return cost(study, node->left, !wanted);
	case NODE_AND:
	case NODE_OR:
		break;
	}
	unsigned left = cost(study, node->left, wanted), right = cost(study, node->right, wanted);
	if ((node->kind == NODE_AND) == wanted)
		return left + right;
	return left < right ? left : right;
}

static void need(struct study *study, uint32_t condition, bool wanted)
{
	int8_t value = wanted ? IS_TRUE : IS_FALSE, *known = &study->needs[condition];
	if (*known == NO_NEED)
		study->order[study->order_count++] = condition;
	*known = *known == NO_NEED || *known == value ? value : CONFLICT;
}

/* Collects the changes that cost() counted. */
static void collect(struct study *study, uint32_t index, bool wanted)
{
	const struct node *node = &study->policy->nodes[index];
	if (node->kind == NODE_CONDITION) {
		if (study->values[node->left] != (wanted ? IS_TRUE : IS_FALSE))
			need(study, node->left, wanted);
	} else if (node->kind == NODE_NOT) {
		collect(study, node->left, !wanted);
	} else if (node->kind == NODE_AND || node->kind == NODE_OR) {
		bool both = (node->kind == NODE_AND) == wanted, left = cost(study, node->left, wanted) <= cost(study, node->right, wanted);
		if (both || left)
			collect(study, node->left, wanted);
		if (both || !left)
			collect(study, node->right, wanted);
	}
}

static enum naos_access_level target_of(const struct study *study, const struct rule *rule)
{
	return study->request->want != NAOS_ACCESS_BEST ? study->request->want : (enum naos_access_level)rule->level;
}

/* The changes with which `rule` would give its target; their number, or IMPOSSIBLE.  What time can't bring is impossible. */
static unsigned find_changes(struct study *study, const struct rule *rule)
{
	const struct naos_policy *policy = study->policy;
	unsigned target = naos_access_bit(target_of(study, rule));
	memset(study->needs, NO_NEED, policy->condition_count);
	study->order_count = 0;
	if (!rule->allow || !(rule->levels & target) || cost(study, rule->root, true) >= IMPOSSIBLE)
		return IMPOSSIBLE;
	collect(study, rule->root, true);
	for (size_t i = 0; i < policy->rule_count; i++) {
		const struct rule *other = &policy->rules[i];
		if (other->allow || !(other->levels & target) || !applies(policy, other, study->values))
			continue;
		if (cost(study, other->root, false) >= IMPOSSIBLE)
			return IMPOSSIBLE;
		collect(study, other->root, false);
	}
	for (size_t i = 0; i < study->order_count; i++) {
		uint32_t condition = study->order[i];
		int64_t at;
		bool value;
		if (study->needs[condition] == CONFLICT)
			return IMPOSSIBLE;
		if (moment_of(study, &policy->conditions[condition], &at, &value) &&
		    (at <= study->request->now_us || value != (study->needs[condition] == IS_TRUE)))
			return IMPOSSIBLE;
	}
	return (unsigned)study->order_count;
}

/* Would the changes do?  They may make another deny rule apply. */
static bool changes_do(struct study *study, const struct rule *rule)
{
	const struct naos_policy *policy = study->policy;
	unsigned target = naos_access_bit(target_of(study, rule)), denied = 0;
	memcpy(study->supposed, study->values, policy->condition_count);
	for (size_t i = 0; i < study->order_count; i++)
		study->supposed[study->order[i]] = (uint8_t)study->needs[study->order[i]];
	for (size_t i = 0; i < policy->rule_count; i++)
		if (!policy->rules[i].allow && applies(policy, &policy->rules[i], study->supposed))
			denied |= policy->rules[i].levels;
	return applies(policy, rule, study->supposed) && !(denied & target);
}

/* --- JSON ----------------------------------------------------------------------------------------------------------------------- */

static const char *const truth_names[] = { "false", "unknown", "true" };

static json_t *condition_text(const struct naos_policy *policy, const struct condition *condition, bool wanted)
{
	char text[POLICY_CONDITION_TEXT_BYTES];
	return json_string(policy_condition_text(policy, condition, wanted, text, sizeof(text)));
}

static json_t *time_json(int64_t time_us)
{
	char text[NAOS_POLICY_TIME_BYTES];
	return json_string(naos_policy_time_format(time_us, text));
}

static json_t *levels_json(unsigned levels)
{
	static const enum naos_access_level order[] = { NAOS_ACCESS_FULL, NAOS_ACCESS_METADATA_ONLY, NAOS_ACCESS_PIXELS_ONLY };
	json_t *array = json_array();
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(order); i++)
		if (levels & naos_access_bit(order[i]))
			(void)json_array_append_new(array, json_string(naos_access_level_name(order[i])));
	return array;
}

static void add_conditions(const struct study *study, uint32_t index, uint8_t *told, json_t *array)
{
	const struct node *node = &study->policy->nodes[index];
	if (node->kind == NODE_CONDITION) {
		const struct condition *condition = &study->policy->conditions[node->left];
		if (!told[node->left] && is_seen(study, condition))
			(void)json_array_append_new(array, json_pack("{s:o, s:s}", "condition", condition_text(study->policy, condition,
													       true), "value",
								    truth_names[study->values[node->left]]));
		told[node->left] = 1;
	} else if (node->kind >= NODE_NOT) {
		add_conditions(study, node->left, told, array);
		if (node->kind != NODE_NOT)
			add_conditions(study, node->right, told, array);
	}
}

static json_t *rule_json(const struct study *study, size_t index)
{
	const struct naos_policy *policy = study->policy;
	const struct rule *rule = &policy->rules[index];
	json_t *conditions = json_array();
	memset(study->supposed, 0, policy->condition_count);
	add_conditions(study, rule->root, study->supposed, conditions);
	json_t *object = json_pack("{s:I, s:s, s:s, s:b, s:o}", "rule", (json_int_t)index + 1, "effect", rule->allow
				   ? "allow" : "deny", "level",
				   naos_access_level_name(rule->level), "certain", node_truth(policy, rule->root, study->values) == IS_TRUE,
				   "conditions", conditions);
	if (object && study->audience == NAOS_POLICY_OFFICER) {
		(void)json_object_set_new(object, "line", json_integer(rule->line));
		(void)json_object_set_new(object, "text", json_stringn(policy->source + rule->text_offset, rule->text_bytes));
	}
	return object;
}

/* Does this rule belong to those that decided? */
static bool decided(const struct study *study, const struct naos_policy_decision *decision, size_t index)
{
	const struct rule *rule = &study->policy->rules[index];
	if (!naos_policy_applied(decision, index + 1))
		return false;
	if (decision->level == NAOS_ACCESS_DENIED)
		return !rule->allow && rule->levels & study->goal;
	return rule->allow && rule->levels & naos_access_bit(decision->level);
}

static json_t *deciding_rules(const struct study *study)
{
	json_t *array = json_array();
	for (size_t i = 0; i < study->policy->rule_count; i++)
		if (decided(study, &study->decision, i))
			(void)json_array_append_new(array, rule_json(study, i));
	return array;
}

/* The first moment at which time alone changes the level, or NULL. */
static json_t *next_json(const struct study *study)
{
	struct naos_policy_request later = *study->request;
	struct naos_policy_decision decision;
	bool seen;
	for (unsigned i = 0; i < NAOS_POLICY_MAX_MOMENTS && next_moment(study, later.now_us, &later.now_us, &seen); i++) {
		naos_policy_decide(study->policy, &later, &decision);
		if (decision.level == study->decision.level)
			continue;
		json_t *rules = json_array();
		for (size_t rule = 0; rule < study->policy->rule_count; rule++)
			if (decided(study, &decision, rule))
				(void)json_array_append_new(rules, json_integer((json_int_t)rule + 1));
		json_t *object = json_pack("{s:o, s:s, s:o}", "at", time_json(later.now_us), "level",
					   naos_access_level_name(decision.level), "rules", rules);
		if (seen)
			return object;
		json_decref(object);
		return NULL; /* it would tell a value that this user may not read */
	}
	return NULL;
}

static json_t *change_json(const struct study *study, size_t index)
{
	const struct naos_policy *policy = study->policy;
	json_t *conditions = json_array();
	size_t shown = 0;
	for (size_t i = 0; i < study->order_count; i++) {
		const struct condition *condition = &policy->conditions[study->order[i]];
		int64_t at;
		bool value;
		if (!is_seen(study, condition)) {
			(void)json_array_append_new(conditions, json_pack("{s:s}", "condition", "not shown"));
			continue;
		}
		json_t *object = json_pack("{s:o, s:s}", "condition", condition_text(policy, condition,
										     study->needs[study->order[i]] == IS_TRUE), "now",
					   study->values[study->order[i]] == IS_UNKNOWN ? "unknown" : "false");
		if (object && moment_of(study, condition, &at, &value))
			(void)json_object_set_new(object, "at", time_json(at));
		(void)json_array_append_new(conditions, object);
		shown++;
	}
	if (shown == 0) {
		json_decref(conditions);
		return NULL;
	}
	return json_pack("{s:I, s:s, s:o}", "rule", (json_int_t)index + 1, "level", naos_access_level_name(target_of(study,
														     &policy->rules[index])),
			 "conditions", conditions);
}

/* Ways to access, those with the fewest changes first. */
static json_t *changes_json(struct study *study, unsigned *counts)
{
	const struct naos_policy *policy = study->policy;
	json_t *array = json_array();
	for (size_t i = 0; i < policy->rule_count; i++)
		counts[i] = find_changes(study, &policy->rules[i]);
	for (unsigned tries = 0; tries < NAOS_POLICY_MAX_TRIES && json_array_size(array) < NAOS_POLICY_MAX_CHANGES; tries++) {
		size_t best = 0;
		for (size_t i = 1; i < policy->rule_count; i++)
			best = counts[i] < counts[best] ? i : best;
		if (policy->rule_count == 0 || counts[best] >= IMPOSSIBLE)
			break;
		counts[best] = IMPOSSIBLE;
		(void)find_changes(study, &policy->rules[best]);
		json_t *change = changes_do(study, &policy->rules[best]) ? change_json(study, best) : NULL;
		if (change)
			(void)json_array_append_new(array, change);
	}
	return array;
}

static bool is_outsider(const struct naos_policy_request *request)
{
	const struct naos_policy_value *id = &request->values[NAOS_POLICY_USER_ID];
	const struct naos_policy_value *strength = &request->values[NAOS_POLICY_USER_AUTHENTICATION];
	return id->type != NAOS_POLICY_TEXT || id->text.bytes == 0 || (strength->type == NAOS_POLICY_NUMBER && !(strength->number > 0));
}

static json_t *explain(struct study *study, unsigned *counts)
{
	json_t *rules = deciding_rules(study);
	bool denied = study->decision.level == NAOS_ACCESS_DENIED;
	const char *because = !denied ? "allow" : json_array_size(rules) > 0 ? "deny" : "default";
	return json_pack("{s:s, s:o, s:s*, s:o, s:s, s:o, s:o*, s:o*}", "level", naos_access_level_name(study->decision.level), "granted",
			 levels_json(study->decision.granted), "want",
			 study->request->want == NAOS_ACCESS_BEST ? NULL : naos_access_level_name(study->request->want), "time",
			 time_json(study->request->now_us), "because", because, "rules", rules, "next", next_json(study), "changes",
			 denied ? changes_json(study, counts) : NULL);
}

int naos_policy_explain(const struct naos_policy *policy, const struct naos_policy_request *request, enum naos_policy_audience audience,
			json_t **ret, struct naos_error *err)
{
	naos_autofree uint8_t *values = calloc(policy->condition_count + 1, 1);
	naos_autofree uint8_t *supposed = calloc(policy->condition_count + 1, 1);
	naos_autofree int8_t *needs = calloc(policy->condition_count + 1, 1);
	naos_autofree uint32_t *order = calloc(policy->condition_count + 1, sizeof(*order));
	naos_autofree unsigned *counts = calloc(policy->rule_count + 1, sizeof(*counts));
	struct study study = {
		.policy = policy, .request = request, .audience = audience, .values = values, .supposed = supposed, .needs = needs, .order = order,
		.goal = request->want == NAOS_ACCESS_BEST ? 7 : naos_access_bit(request->want),
	};
	struct bound bound;
	if (!values || !supposed || !needs || !order || !counts)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for an explanation");
	naos_policy_decide(policy, request, &study.decision);
	bound_prepare(&bound, policy, request);
	for (size_t i = 0; i < policy->condition_count; i++)
		values[i] = (uint8_t)bound_condition(&bound, &policy->conditions[i]);
	if (audience == NAOS_POLICY_OUTSIDER || (audience == NAOS_POLICY_USER && is_outsider(request)))
		*ret = json_pack("{s:s}", "level", naos_access_level_name(study.decision.level));
	else
		*ret = explain(&study, counts);
	return *ret ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory for an explanation");
}

/* Rules that can't do what they say: contradictions, rules that others make useless, conflicts.
 *
 * A rule is taken apart into its parts that are joined by AND: subject, object, and those of the condition.  Where all parts of one
 * rule are parts of another, the first applies whenever the second does.  What is found is certain; what hides behind OR isn't
 * looked for.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "policy/program.h"

#define MAX_PARTS (NAOS_POLICY_MAX_RULE_CONDITIONS + 8)

struct parts {
	uint64_t signature; /* bit per part, by its number: a quick no */
	size_t count;
	uint32_t nodes[MAX_PARTS]; /* ascending */
};

static void add_part(struct parts *parts, uint32_t node)
{
	size_t at = parts->count;
	while (at > 0 && parts->nodes[at - 1] > node)
		at--;
	if (at > 0 && parts->nodes[at - 1] == node)
		return;
	if (parts->count == MAX_PARTS)
		abort(); /* a rule has no more conditions than that */
	memmove(&parts->nodes[at + 1], &parts->nodes[at], (parts->count - at) * sizeof(*parts->nodes));
	parts->nodes[at] = node;
	parts->count++;
	parts->signature |= (uint64_t)1 << node % 64;
}

static void take_apart(const struct naos_policy *policy, uint32_t index, struct parts *parts)
{
	const struct node *node = &policy->nodes[index];
	if (node->kind == NODE_AND) {
		take_apart(policy, node->left, parts);
		take_apart(policy, node->right, parts);
	} else if (node->kind != NODE_TRUE) {
		add_part(parts, index);
	}
}

static bool covers(const struct parts *wide, const struct parts *narrow)
{
	size_t at = 0;
	if (wide->signature & ~narrow->signature || wide->count > narrow->count)
		return false;
	for (size_t i = 0; i < wide->count; i++) {
		while (at < narrow->count && narrow->nodes[at] < wide->nodes[i])
			at++;
		if (at == narrow->count || narrow->nodes[at] != wide->nodes[i])
			return false;
	}
	return true;
}

/* --- contradictions ----------------------------------------------------------------------------------------------------------- */

/* A part that is a condition, or NOT of one. */
struct literal {
	const struct condition *condition;
	bool positive;
};

static bool is_literal(const struct naos_policy *policy, uint32_t index, struct literal *ret)
{
	const struct node *node = &policy->nodes[index];
	ret->positive = node->kind != NODE_NOT;
	if (node->kind == NODE_NOT)
		node = &policy->nodes[node->left];
	ret->condition = node->kind == NODE_CONDITION ? &policy->conditions[node->left] : NULL;
	return ret->condition != NULL;
}

struct range {
	bool from, to; /* bounded on this side */
	bool from_open, to_open;
	long double low, high; /* holds every time and every number exactly */
};

static bool range_of(const struct literal *literal, struct range *ret)
{
	const struct condition *condition = literal->condition;
	enum condition_kind kind = condition->kind;
	bool number = kind == CONDITION_IS_NUMBER || kind == CONDITION_BELOW_NUMBER || kind == CONDITION_ABOVE_NUMBER;
	long double value = number ? condition->number : (long double)condition->time_us;
	bool is = kind == CONDITION_IS_NUMBER || kind == CONDITION_IS_TIME;
	bool below = kind == CONDITION_BELOW_NUMBER || kind == CONDITION_BELOW_TIME;
	bool above = kind == CONDITION_ABOVE_NUMBER || kind == CONDITION_ABOVE_TIME;
	*ret = (struct range){ .low = value, .high = value };
	if (is) {
		ret->from = ret->to = true;
		return literal->positive;
	}
	ret->to = below == literal->positive;
	ret->from = !ret->to;
	ret->from_open = ret->to_open = literal->positive;
	return below || above;
}

static bool ranges_meet(const struct range *a, const struct range *b)
{
	if (a->from && b->to && (a->low > b->high || (a->low == b->high && (a->from_open || b->to_open))))
		return false;
	return !(b->from && a->to && (b->low > a->high || (b->low == a->high && (b->from_open || a->to_open))));
}

static bool reads(const struct condition *condition, unsigned slot)
{
	return condition->kind != CONDITION_EXISTS && (condition->left == slot || condition->right == slot);
}

static bool in_set(const struct naos_policy *policy, const struct condition *set, uint32_t text)
{
	return policy->sets[set->operand * policy->set_words + text / 64] >> text % 64 & 1;
}

static bool exclude(const struct naos_policy *policy, const struct literal *a, const struct literal *b)
{
	const struct condition *x = a->condition, *y = b->condition;
	struct range one, other;
	if (x == y)
		return a->positive != b->positive;
	if (x->kind == CONDITION_EXISTS && !a->positive && reads(y, x->left))
		return true;
	if (y->kind == CONDITION_EXISTS && !b->positive && reads(x, y->left))
		return true;
	if (x->left != y->left)
		return false;
	if (x->kind == CONDITION_IS_TEXT && y->kind == CONDITION_IS_TEXT)
		return a->positive && b->positive; /* two texts: equal ones would be one condition */
	if (x->kind == CONDITION_IN_SET && y->kind == CONDITION_IS_TEXT)
		return b->positive && in_set(policy, x, y->operand) != a->positive;
	if (x->kind == CONDITION_IS_TEXT && y->kind == CONDITION_IN_SET)
		return a->positive && in_set(policy, y, x->operand) != b->positive;
	return range_of(a, &one) && range_of(b, &other) && !ranges_meet(&one, &other);
}

static bool is_contradictory(const struct naos_policy *policy, const struct parts *parts, const struct condition **ret_a,
			     const struct condition **ret_b,
			     bool ret_positive[2])
{
	struct literal a, b;
	for (size_t i = 0; i < parts->count; i++)
		for (size_t j = 0; j < i; j++)
			if (is_literal(policy, parts->nodes[i], &a) && is_literal(policy, parts->nodes[j], &b) && exclude(policy, &a, &b)) {
				*ret_a = b.condition;
				*ret_b = a.condition;
				ret_positive[0] = b.positive;
				ret_positive[1] = a.positive;
				return true;
			}
	return false;
}

/* --- rules ---------------------------------------------------------------------------------------------------------------------- */

static int check_rule(const struct naos_policy *policy, size_t i, const struct parts *parts, struct naos_error *err)
{
	const struct rule *rule = &policy->rules[i];
	const struct condition *a, *b;
	bool positive[2];
	char text_a[200], text_b[200];
	if (rule->root == NODE_FALSE)
		return naos_error_set(err, NAOS_E_CONFIG,
				      "%s:%u:%u: rule %zu can never apply: its condition is always false; remove it", policy->name,
				      rule->line, rule->column, i + 1);
	if (!is_contradictory(policy, parts, &a, &b, positive))
		return 0;
	return naos_error_set(err, NAOS_E_CONFIG, "%s:%u:%u: rule %zu can never apply: %s and %s exclude each other; write OR, or remove one",
			      policy->name, rule->line, rule->column, i + 1, policy_condition_text(policy, a, positive[0], text_a, sizeof(text_a)),
			      policy_condition_text(policy, b, positive[1], text_b, sizeof(text_b)));
}

/* What rule `other` does to rule i, which comes before or behind it. */
static int check_pair(const struct naos_policy *policy, const struct parts *parts, size_t i, size_t other, struct naos_error *err)
{
	const struct rule *rule = &policy->rules[i], *wide = &policy->rules[other];
	bool same = rule->allow == wide->allow;
	if (rule->allow < wide->allow || !covers(&parts[other], &parts[i]))
		return 0;
	if (same && (rule->levels & ~wide->levels || (i < other && rule->levels == wide->levels && parts[i].count == parts[other].count)))
		return 0; /* of two rules that say the same, the second is named */
	if (!same && !(naos_access_bit(rule->level) & wide->levels))
		return 0;
	if (same)
		return naos_error_set(err, NAOS_E_CONFIG,
				      "%s:%u:%u: rule %zu is useless: rule %zu (line %u) %s as much wherever it applies; remove one",
				      policy->name, rule->line, rule->column, i + 1, other + 1, wide->line, rule->allow ? "allows" : "denies");
	return naos_error_set(err, NAOS_E_CONFIG,
			      "%s:%u:%u: rule %zu conflicts with rule %zu (line %u), which denies %s wherever it applies; "
			      "remove one, or narrow the deny",
			      policy->name, rule->line, rule->column, i + 1, other + 1, wide->line,
			      wide->level == NAOS_ACCESS_FULL ? "everything" : naos_access_level_name(wide->level));
}

int policy_check(const struct naos_policy *policy, struct naos_error *err)
{
	naos_autofree struct parts *parts = calloc(policy->rule_count + 1, sizeof(*parts));
	int rc = 0;
	if (!parts)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the policy %s", policy->name);
	for (size_t i = 0; rc == 0 && i < policy->rule_count; i++) {
		take_apart(policy, policy->rules[i].root, &parts[i]);
		rc = check_rule(policy, i, &parts[i], err);
	}
	for (size_t i = 0; rc == 0 && i < policy->rule_count; i++)
		for (size_t other = 0; rc == 0 && other < policy->rule_count; other++)
			if (other != i)
				rc = check_pair(policy, parts, i, other, err);
	return rc;
}

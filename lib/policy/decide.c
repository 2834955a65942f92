/* Decisions: nothing here allocates, and every loop is bounded by limits.h.  SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "policy/program.h"

#define STACK (NAOS_POLICY_MAX_DEPTH + 16)

static const char everybody[] = "public"; /* the role that all have */

static enum naos_policy_type slot_type(const struct naos_policy *policy, unsigned slot)
{
	static const uint8_t fixed[] = {
#define X(name, space, word, other, type, seen, choices, help) NAOS_POLICY_##type,
#include "policy/attributes.def"
#undef X
	};
	return slot < NAOS_POLICY_FIXED_SLOTS ? fixed[slot] : policy->keywords[slot - NAOS_POLICY_FIXED_SLOTS].type;
}

/* A value beyond a limit counts as missing: conditions on it are unknown, which never grants anything. */
static bool is_valid(const struct naos_policy_value *value)
{
	switch (value->type) {
	case NAOS_POLICY_TEXT:
		return value->text.bytes <= NAOS_POLICY_MAX_VALUE_BYTES;
	case NAOS_POLICY_NUMBER:
		return isfinite(value->number);
	case NAOS_POLICY_SET:
		for (size_t i = 0; value->set.count <= NAOS_POLICY_MAX_MEMBERS && i < value->set.count; i++)
			if (value->set.items[i].bytes > NAOS_POLICY_MAX_VALUE_BYTES)
				return false;
		return value->set.count <= NAOS_POLICY_MAX_MEMBERS;
	default:
		return value->type != NAOS_POLICY_MISSING;
	}
}

static void prepare_set(struct bound *bound, unsigned slot)
{
	const struct naos_policy_value *value = &bound->values[slot];
	uint64_t *members = bound->members[set_index(slot)];
	memset(members, 0, bound->policy->set_words * sizeof(*members));
	for (size_t i = 0; i < value->set.count; i++) {
		uint32_t text = policy_text_find(bound->policy, value->set.items[i].data, value->set.items[i].bytes);
		if (text)
			members[(text - 1) / 64] |= (uint64_t)1 << (text - 1) % 64;
	}
}

void bound_prepare(struct bound *bound, const struct naos_policy *policy, const struct naos_policy_request *request)
{
	bound->policy = policy;
	bound->values = request->values;
	bound->now_us = request->now_us;
	memset(bound->pairs, 0, policy->pair_count);
	for (size_t i = 0; i < policy->used_count; i++) {
		unsigned slot = policy->used_slots[i];
		const struct naos_policy_value *value = &request->values[slot];
		enum naos_policy_type type = slot_type(policy, slot);
		bound->text[slot] = 0;
		bound->present[slot] = slot == NAOS_POLICY_NOW || ((type == NAOS_POLICY_MISSING || value->type == type) && is_valid(value));
		if (!bound->present[slot])
			continue;
		if (type == NAOS_POLICY_TEXT)
			bound->text[slot] = policy_text_find(policy, value->text.data, value->text.bytes);
		else if (type == NAOS_POLICY_SET)
			prepare_set(bound, slot);
	}
}

static bool same_text(const struct naos_policy_text *a, const struct naos_policy_text *b)
{
	return a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0;
}

static bool is_everybody(const struct condition *condition, const struct naos_policy_text *text)
{
	return condition->right == NAOS_POLICY_USER_ROLES && text->bytes == strlen(everybody) && memcmp(text->data, everybody,
													text->bytes) == 0;
}

/* Two attributes that are strings: compared once a decision, since it may take long. */
static enum truth compare_pair(struct bound *bound, const struct condition *condition)
{
	int8_t *known = &bound->pairs[condition->operand];
	const struct naos_policy_value *left = &bound->values[condition->left], *right = &bound->values[condition->right];
	if (*known)
		return (enum truth)(*known - 1);
	enum truth truth = IS_UNKNOWN;
	if (condition->kind == CONDITION_IN_SLOT && bound->present[condition->left] && is_everybody(condition, &left->text)) {
		truth = IS_TRUE;
	} else if (bound->present[condition->left] && bound->present[condition->right]) {
		bool found = false;
		if (condition->kind == CONDITION_SAME_TEXT)
			found = same_text(&left->text, &right->text);
		else
			for (size_t i = 0; i < right->set.count && !found; i++)
				found = same_text(&left->text, &right->set.items[i]);
		truth = found ? IS_TRUE : IS_FALSE;
	}
	*known = (int8_t)(truth + 1);
	return truth;
}

static int64_t time_of(const struct bound *bound, unsigned slot)
{
	return slot == NAOS_POLICY_NOW ? bound->now_us : bound->values[slot].time_us;
}

static bool meets(const struct bound *bound, const struct condition *condition)
{
	const uint64_t *set = bound->policy->sets + condition->operand * bound->policy->set_words;
	const uint64_t *members = bound->members[set_index(condition->left)];
	uint64_t common = 0;
	for (size_t i = 0; i < bound->policy->set_words; i++)
		common |= set[i] & members[i];
	return common != 0;
}

static bool bit(const uint64_t *words, uint32_t number)
{
	return words[number / 64] >> number % 64 & 1;
}

/* left + offset < right, also for times that a request made up: no overflow. */
static bool is_earlier(int64_t left, int64_t offset, int64_t right)
{
	int64_t sum;
	return __builtin_add_overflow(left, offset, &sum) ? offset < 0 : sum < right;
}

static bool is_same_time(int64_t left, int64_t offset, int64_t right)
{
	int64_t sum;
	return !__builtin_add_overflow(left, offset, &sum) && sum == right;
}

static inline __attribute__((always_inline)) bool holds(struct bound *bound, const struct condition *condition)
{
	const struct naos_policy_value *left = &bound->values[condition->left], *right = &bound->values[condition->right];
	uint32_t text = bound->text[condition->left];
	switch ((enum condition_kind)condition->kind) {
	case CONDITION_HAS:
		return bit(bound->members[set_index(condition->left)], condition->operand);
	case CONDITION_MEETS:
		return meets(bound, condition);
	case CONDITION_IS_TEXT:
		return text == condition->operand + 1;
	case CONDITION_IN_SET:
		return text && bit(bound->policy->sets + condition->operand * bound->policy->set_words, text - 1);
	case CONDITION_IS_NUMBER:
		return left->number == condition->number;
	case CONDITION_BELOW_NUMBER:
		return left->number < condition->number;
	case CONDITION_ABOVE_NUMBER:
		return condition->number < left->number;
	case CONDITION_SAME_NUMBER:
		return left->number == right->number;
	case CONDITION_LESS_NUMBER:
		return left->number < right->number;
	case CONDITION_IS_TIME:
		return time_of(bound, condition->left) == condition->time_us;
	case CONDITION_BELOW_TIME:
		return time_of(bound, condition->left) < condition->time_us;
	case CONDITION_ABOVE_TIME:
		return condition->time_us < time_of(bound, condition->left);
	case CONDITION_SAME_TIME:
		return is_same_time(time_of(bound, condition->left), condition->time_us, time_of(bound, condition->right));
	case CONDITION_LESS_TIME:
		return is_earlier(time_of(bound, condition->left), condition->time_us, time_of(bound, condition->right));
	case CONDITION_BOOLEAN:
		return left->boolean;
	case CONDITION_SAME_TEXT:
	case CONDITION_IN_SLOT:
	case CONDITION_EXISTS:
		break; /* not by this function */
	}
	return false;
}

enum truth bound_condition(struct bound *bound, const struct condition *condition)
{
	if (condition->kind == CONDITION_EXISTS)
		return bound->present[condition->left] ? IS_TRUE : IS_FALSE;
	if (condition->kind == CONDITION_SAME_TEXT || condition->kind == CONDITION_IN_SLOT)
		return compare_pair(bound, condition);
	/* right is left where a condition has only one attribute */
	if (!bound->present[condition->left] || !bound->present[condition->right])
		return IS_UNKNOWN;
	return holds(bound, condition) ? IS_TRUE : IS_FALSE;
}

static enum truth run(struct bound *bound, const struct rule *rule)
{
	const struct naos_policy *policy = bound->policy;
	enum truth stack[STACK];
	unsigned top = 0; /* the last value is stack[top]; stack[0] is not used */
	for (uint32_t at = rule->first_step; at < rule->end_step; at++) {
		uint32_t step = policy->steps[at], operand = step & STEP_MAX_OPERAND;
		switch ((enum step_kind)(step >> 24)) {
		case STEP_CONDITION:
			stack[++top] = bound_condition(bound, &policy->conditions[operand]);
			break;
		case STEP_NOT:
			stack[top] = IS_TRUE - stack[top];
			break;
		case STEP_AND:
			top--;
			stack[top] = stack[top + 1] < stack[top] ? stack[top + 1] : stack[top];
			break;
		case STEP_OR:
			top--;
			stack[top] = stack[top + 1] > stack[top] ? stack[top + 1] : stack[top];
			break;
		case STEP_FALSE:
			stack[++top] = IS_FALSE;
			break;
		case STEP_TRUE:
			stack[++top] = IS_TRUE;
			break;
		case STEP_SKIP_IF_FALSE:
			if (stack[top] == IS_FALSE)
				at = operand - 1;
			break;
		case STEP_SKIP_IF_TRUE:
			if (stack[top] == IS_TRUE)
				at = operand - 1;
			break;
		}
	}
	return stack[top];
}

void naos_policy_decide(const struct naos_policy *policy, const struct naos_policy_request *request, struct naos_policy_decision *ret)
{
	struct naos_policy_decision decision = { .level = NAOS_ACCESS_DENIED };
	struct bound bound;
	unsigned allowed = 0, denied = 0;
	bound_prepare(&bound, policy, request);
	for (size_t i = 0; i < policy->rule_count; i++) {
		const struct rule *rule = &policy->rules[i];
		enum truth truth = run(&bound, rule);
		/* what isn't known counts against the one who asks */
		if (truth == IS_FALSE || (rule->allow && truth == IS_UNKNOWN))
			continue;
		decision.applied[i / 64] |= (uint64_t)1 << i % 64;
		if (rule->allow)
			allowed |= rule->levels;
		else
			denied |= rule->levels;
	}
	decision.granted = allowed & ~denied;
	if (request->want == NAOS_ACCESS_BEST)
		decision.level = naos_access_highest(decision.granted);
	else if (decision.granted & naos_access_bit(request->want))
		decision.level = request->want;
	*ret = decision;
}

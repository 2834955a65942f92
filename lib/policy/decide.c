/* Decisions: nothing here allocates, and every loop is bounded by limits.h.  SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "policy/program.h"

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
	int set = set_index(slot);
	uint64_t *members = bound->members[set];
	uint32_t count = 0;
	memset(members, 0, bound->policy->set_words * sizeof(*members));
	for (size_t i = 0; i < value->set.count; i++) {
		uint32_t text = policy_text_find(bound->policy, value->set.items[i].data, value->set.items[i].bytes);
		if (!text || members[(text - 1) / 64] >> (text - 1) % 64 & 1)
			continue;
		members[(text - 1) / 64] |= (uint64_t)1 << (text - 1) % 64;
		bound->member[set][count++] = (uint16_t)(text - 1);
	}
	bound->member_count[set] = count;
}

void bound_prepare(struct bound *bound, const struct naos_policy *policy, const struct naos_policy_request *request)
{
	bound->policy = policy;
	bound->values = request->values;
	bound->now_us = request->now_us;
	bound->complete = true;
	memset(bound->pairs, 0, policy->pair_count);
	for (size_t i = 0; i < policy->used_count; i++) {
		unsigned slot = policy->used_slots[i];
		const struct naos_policy_value *value = &request->values[slot];
		enum naos_policy_type type = slot_type(policy, slot);
		bound->text[slot] = 0;
		bound->present[slot] = slot == NAOS_POLICY_NOW || ((type == NAOS_POLICY_MISSING || value->type == type) && is_valid(value));
		bound->complete &= bound->present[slot];
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
		return compare_pair(bound, condition) == IS_TRUE;
	case CONDITION_EXISTS:
		return bound->present[condition->left];
	}
	return false;
}

/* `complete`: nothing is missing, so nothing needs to be asked for. */
static inline __attribute__((always_inline)) enum truth truth_of(struct bound *bound, const struct condition *condition, bool complete)
{
	if (complete || condition->kind == CONDITION_EXISTS)
		return holds(bound, condition) ? IS_TRUE : IS_FALSE;
	if (condition->kind == CONDITION_SAME_TEXT || condition->kind == CONDITION_IN_SLOT)
		return compare_pair(bound, condition);
	/* right is left where a condition has only one attribute */
	if (!bound->present[condition->left] || !bound->present[condition->right])
		return IS_UNKNOWN;
	return holds(bound, condition) ? IS_TRUE : IS_FALSE;
}

enum truth bound_condition(struct bound *bound, const struct condition *condition)
{
	return truth_of(bound, condition, false);
}

/* Every step leads to a later one, so a rule ends after as many steps as it has. */
static inline __attribute__((always_inline)) bool applies(struct bound *bound, const struct rule *rule, bool complete)
{
	const struct step *steps = bound->policy->steps + rule->first_step;
	uint16_t at = rule->step_count > 0 ? 0 : STEP_APPLIES;
	while (at < STEP_DOES_NOT) {
		const struct step *step = &steps[at];
		at = step->on[truth_of(bound, &bound->policy->conditions[step->condition], complete)];
	}
	return at == STEP_APPLIES;
}

/* What has been found of a decision. */
struct finding {
	struct bound bound;
	struct naos_policy_decision *decision;
	unsigned allowed, denied;
};

static inline __attribute__((always_inline)) void look_at(struct finding *finding, const uint16_t *numbers, size_t count, bool complete)
{
	for (size_t i = 0; i < count; i++) {
		const struct rule *rule = &finding->bound.policy->rules[numbers[i]];
		if (!applies(&finding->bound, rule, complete))
			continue;
		finding->decision->applied[numbers[i] / 64] |= (uint64_t)1 << numbers[i] % 64;
		if (rule->allow)
			finding->allowed |= rule->levels;
		else
			finding->denied |= rule->levels;
	}
}

static void look_at_complete(struct finding *finding, const uint16_t *numbers, size_t count)
{
	look_at(finding, numbers, count, true);
}

static void look_at_all(struct finding *finding, const uint16_t *numbers, size_t count)
{
	look_at(finding, numbers, count, false);
}

/* The rules in the bucket of a text and, for missing attributes, those of all texts. */
static void look_at_texts(struct finding *finding, const uint32_t *buckets, size_t from, size_t to)
{
	const uint16_t *numbers = finding->bound.policy->gated + buckets[from];
	size_t count = buckets[to] - buckets[from];
	if (finding->bound.complete)
		look_at_complete(finding, numbers, count);
	else
		look_at_all(finding, numbers, count);
}

static void look_at_gate(struct finding *finding, unsigned gate)
{
	const struct bound *bound = &finding->bound;
	const uint32_t *buckets = bound->policy->buckets[gate];
	unsigned slot = policy_gate_slots[gate];
	if (!bound->present[slot]) {
		look_at_texts(finding, buckets, 0, bound->policy->text_count);
	} else if (slot == NAOS_POLICY_USER_ROLES || slot == NAOS_POLICY_USER_GROUPS) {
		int set = set_index(slot);
		for (uint32_t i = 0; i < bound->member_count[set]; i++)
			look_at_texts(finding, buckets, bound->member[set][i], bound->member[set][i] + 1u);
	} else if (bound->text[slot]) {
		look_at_texts(finding, buckets, bound->text[slot] - 1, bound->text[slot]);
	}
}

void naos_policy_decide(const struct naos_policy *policy, const struct naos_policy_request *request, struct naos_policy_decision *ret)
{
	struct naos_policy_decision decision = { .level = NAOS_ACCESS_DENIED };
	struct finding finding;
	finding.decision = &decision;
	finding.allowed = finding.denied = 0;
	bound_prepare(&finding.bound, policy, request);
	if (finding.bound.complete)
		look_at_complete(&finding, policy->open, policy->open_count);
	else
		look_at_all(&finding, policy->open, policy->open_count);
	for (unsigned gate = 0; gate < GATES; gate++)
		if (policy->buckets[gate])
			look_at_gate(&finding, gate);
	decision.granted = finding.allowed & ~finding.denied;
	if (request->want == NAOS_ACCESS_BEST)
		decision.level = naos_access_highest(decision.granted);
	else if (decision.granted & naos_access_bit(request->want))
		decision.level = request->want;
	*ret = decision;
}

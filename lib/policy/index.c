/* Which rules can apply at all: by collection, file set, user, group or role.  SPDX-License-Identifier: Apache-2.0 */
#include "policy/program.h"

const uint8_t policy_gate_slots[GATES] = {
	NAOS_POLICY_DATA_COLLECTION, NAOS_POLICY_DATA_FILESET, NAOS_POLICY_USER_ID, NAOS_POLICY_USER_GROUPS, NAOS_POLICY_USER_ROLES,
};

/* The best gate among the parts that AND joins. */
static void look_for_gate(const struct naos_policy *policy, uint32_t index, int *gate, uint32_t *text)
{
	const struct node *node = &policy->nodes[index];
	if (node->kind == NODE_AND) {
		look_for_gate(policy, node->left, gate, text);
		look_for_gate(policy, node->right, gate, text);
		return;
	}
	const struct condition *condition = &policy->conditions[node->left];
	if (node->kind != NODE_CONDITION || (condition->kind != CONDITION_IS_TEXT && condition->kind != CONDITION_HAS))
		return;
	for (int i = 0; i < (*gate < 0 ? GATES : *gate); i++)
		if (policy_gate_slots[i] == condition->left) {
			*gate = i;
			*text = condition->operand;
		}
}

int policy_gate(const struct naos_policy *policy, const struct rule *rule, uint32_t *ret_text)
{
	int gate = -1;
	look_for_gate(policy, rule->root, &gate, ret_text);
	return gate;
}

/* Counts the rules of each bucket, then fills them: buckets[text] first counts, then is where the bucket ends, at last where it
 * begins. */
void policy_index(struct naos_policy *policy)
{
	uint32_t place = 0, text = 0;
	for (size_t i = 0; i < policy->rule_count; i++) {
		int gate = policy_gate(policy, &policy->rules[i], &text);
		if (gate >= 0)
			policy->buckets[gate][text]++;
		else
			policy->open[policy->open_count++] = (uint16_t)i;
	}
	for (int gate = 0; gate < GATES; gate++) {
		for (size_t t = 0; policy->buckets[gate] && t < policy->text_count; t++)
			policy->buckets[gate][t] = place += policy->buckets[gate][t];
		if (policy->buckets[gate])
			policy->buckets[gate][policy->text_count] = place;
	}
	for (size_t i = policy->rule_count; i-- > 0;) {
		int gate = policy_gate(policy, &policy->rules[i], &text);
		if (gate >= 0)
			policy->gated[--policy->buckets[gate][text]] = (uint16_t)i;
	}
}

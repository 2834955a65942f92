/* Makes the program of a policy: constants, conditions and nodes once each, then one block of memory.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_POLICY_BUILD_H
#define NAOS_POLICY_BUILD_H

#include "policy/program.h"

#define BUILD_FULL UINT32_MAX /* a limit of the policy is reached */

/* An array whose room follows from the size of the source: nothing in it takes less than a byte of text. */
struct pool {
	void *items;
	size_t count, room, item_bytes;
	uint32_t *table; /* index + 1 of what is in it, by hash; NULL: nothing is looked up */
	size_t mask;
};

struct builder {
	const char *name, *source;
	size_t source_bytes;
	struct pool rules, nodes, conditions, steps, texts, sets, characters;
	struct keyword keywords[NAOS_POLICY_MAX_KEYWORDS];
	size_t keyword_count, pair_count;
};

int builder_start(struct builder *builder, const char *name, const char *source, size_t bytes, struct naos_error *err) naos_must_check;
void builder_clear(struct builder *builder);

/* Numbers of what is asked for; BUILD_FULL beyond a limit. */
uint32_t builder_text(struct builder *builder, const char *data, size_t bytes);
uint32_t builder_set(struct builder *builder, const uint64_t words[static NAOS_POLICY_SET_WORDS]);
/* A node; for conditions on two texts the operand is filled in. */
uint32_t builder_condition(struct builder *builder, struct condition condition);
uint32_t builder_constant(bool value);
uint32_t builder_not(struct builder *builder, uint32_t node);
uint32_t builder_and(struct builder *builder, uint32_t left, uint32_t right);
uint32_t builder_or(struct builder *builder, uint32_t left, uint32_t right);
/* Compiles root and adds the rule. */
void builder_rule(struct builder *builder, struct rule rule);

static inline struct rule *builder_rule_at(struct builder *builder, size_t index)
{
	return (struct rule *)builder->rules.items + index;
}

int builder_finish(struct builder *builder, struct naos_policy **ret, struct naos_error *err) naos_must_check;

#endif

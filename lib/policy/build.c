/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/build.h"

#include <string.h>

/* Eight bytes a step.  The texts of a policy come from who may write policies, and a request's are only looked up, so no secret is
 * needed. */
uint64_t policy_text_hash(const char *data, size_t bytes)
{
	uint64_t hash = 0x9e3779b97f4a7c15u + bytes, word;
	for (; bytes >= sizeof(word); data += sizeof(word), bytes -= sizeof(word)) {
		memcpy(&word, data, sizeof(word));
		hash = (hash ^ word) * 0xff51afd7ed558ccdu;
		hash ^= hash >> 32;
	}
	word = 0;
	for (size_t i = 0; i < bytes; i++)
		word |= (uint64_t)(unsigned char)data[i] << 8 * i;
	hash = (hash ^ word) * 0xff51afd7ed558ccdu;
	return hash ^ hash >> 32;
}

static bool pool_start(struct pool *pool, size_t room, size_t item_bytes, bool table)
{
	size_t slots = 64;
	*pool = (struct pool){ .items = calloc(room, item_bytes), .room = room, .item_bytes = item_bytes };
	while (slots < 2 * room)
		slots *= 2;
	if (table) {
		pool->table = calloc(slots, sizeof(*pool->table));
		pool->mask = slots - 1;
	}
	return pool->items && (!table || pool->table);
}

static void *pool_at(const struct pool *pool, size_t index)
{
	return (char *)pool->items + index * pool->item_bytes;
}

/* The room follows from the source: running out of it is a fault of this file. */
static uint32_t pool_add(struct pool *pool, const void *item)
{
	if (pool->count == pool->room)
		abort();
	memcpy(pool_at(pool, pool->count), item, pool->item_bytes);
	return (uint32_t)pool->count++;
}

/* The index of an equal item, made if there is none and fewer than `limit`. */
static uint32_t pool_find(struct pool *pool, const void *item, size_t limit)
{
	size_t at = policy_text_hash(item, pool->item_bytes) & pool->mask;
	for (; pool->table[at]; at = (at + 1) & pool->mask)
		if (memcmp(pool_at(pool, pool->table[at] - 1), item, pool->item_bytes) == 0)
			return pool->table[at] - 1;
	if (pool->count >= limit)
		return BUILD_FULL;
	uint32_t index = pool_add(pool, item);
	pool->table[at] = index + 1;
	return index;
}

static size_t lesser(size_t a, size_t b)
{
	return a < b ? a : b;
}

int builder_start(struct builder *builder, const char *name, const char *source, size_t bytes, struct naos_error *err)
{
	size_t room = bytes + 16;
	*builder = (struct builder){ .name = name, .source = source, .source_bytes = bytes };
	bool ok = pool_start(&builder->rules, lesser(room, NAOS_POLICY_MAX_RULES), sizeof(struct rule), false) &&
		  pool_start(&builder->nodes, 4 * room, sizeof(struct node), true) &&
		  pool_start(&builder->conditions, lesser(2 * room, NAOS_POLICY_MAX_CONDITIONS), sizeof(struct condition), true) &&
		  pool_start(&builder->steps, 2 * room, sizeof(struct step), false) &&
		  pool_start(&builder->texts, lesser(room, NAOS_POLICY_MAX_TEXTS), sizeof(struct naos_policy_text), false) &&
		  pool_start(&builder->sets, lesser(room, NAOS_POLICY_MAX_SETS), NAOS_POLICY_SET_WORDS * sizeof(uint64_t), true) &&
		  pool_start(&builder->characters, room, 1, false);
	if (!ok) {
		builder_clear(builder);
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the policy %s", name);
	}
	builder->texts.mask = 8191;
	builder->texts.table = calloc(builder->texts.mask + 1, sizeof(uint32_t));
	if (!builder->texts.table) {
		builder_clear(builder);
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the policy %s", name);
	}
	(void)pool_add(&builder->nodes, &(struct node){ .kind = NODE_FALSE });
	(void)pool_add(&builder->nodes, &(struct node){ .kind = NODE_TRUE });
	return 0;
}

void builder_clear(struct builder *builder)
{
	struct pool *pools[] = { &builder->rules, &builder->nodes, &builder->conditions, &builder->steps,
				 &builder->texts, &builder->sets,  &builder->characters };
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(pools); i++) {
		free(pools[i]->items);
		free(pools[i]->table);
	}
	*builder = (struct builder){ .name = NULL };
}

uint32_t builder_text(struct builder *builder, const char *data, size_t bytes)
{
	struct pool *pool = &builder->texts;
	size_t at = policy_text_hash(data, bytes) & pool->mask;
	for (; pool->table[at]; at = (at + 1) & pool->mask) {
		const struct naos_policy_text *text = pool_at(pool, pool->table[at] - 1);
		if (text->bytes == bytes && memcmp(text->data, data, bytes) == 0)
			return pool->table[at] - 1;
	}
	if (pool->count >= NAOS_POLICY_MAX_TEXTS)
		return BUILD_FULL;
	/* copied, since a quote inside is written twice in the source */
	const char *copy = (const char *)builder->characters.items + builder->characters.count;
	for (size_t i = 0; i < bytes; i++)
		(void)pool_add(&builder->characters, data + i);
	uint32_t index = pool_add(pool, &(struct naos_policy_text){ .data = copy, .bytes = bytes });
	pool->table[at] = index + 1;
	return index;
}

uint32_t builder_set(struct builder *builder, const uint64_t words[static NAOS_POLICY_SET_WORDS])
{
	return pool_find(&builder->sets, words, NAOS_POLICY_MAX_SETS);
}

static uint32_t add_node(struct builder *builder, enum node_kind kind, uint32_t left, uint32_t right)
{
	const struct node node = { .kind = kind, .left = left, .right = right };
	return pool_find(&builder->nodes, &node, SIZE_MAX);
}

static bool is_pair(enum condition_kind kind)
{
	return kind == CONDITION_SAME_TEXT || kind == CONDITION_IN_SLOT;
}

uint32_t builder_condition(struct builder *builder, struct condition condition)
{
	if (is_pair(condition.kind)) { /* the number of an equal one, or the next */
		condition.operand = (uint32_t)builder->pair_count;
		for (size_t i = 0; i < builder->conditions.count; i++) {
			const struct condition *other = pool_at(&builder->conditions, i);
			if (other->kind == condition.kind && other->left == condition.left && other->right == condition.right)
				condition.operand = other->operand;
		}
		if (condition.operand == NAOS_POLICY_MAX_PAIRS)
			return BUILD_FULL;
		if (condition.operand == builder->pair_count)
			builder->pair_count++;
	}
	uint32_t index = pool_find(&builder->conditions, &condition, NAOS_POLICY_MAX_CONDITIONS);
	return index == BUILD_FULL ? BUILD_FULL : add_node(builder, NODE_CONDITION, index, 0);
}

uint32_t builder_constant(bool value)
{
	return value ? NODE_TRUE : NODE_FALSE; /* the first two nodes, see builder_start */
}

static const struct node *node_at(const struct builder *builder, uint32_t index)
{
	return pool_at(&builder->nodes, index);
}

uint32_t builder_not(struct builder *builder, uint32_t node)
{
	if (node == BUILD_FULL)
		return node;
	if (node == NODE_FALSE || node == NODE_TRUE)
		return builder_constant(node == NODE_FALSE);
	return node_at(builder, node)->kind == NODE_NOT ? node_at(builder, node)->left : add_node(builder, NODE_NOT, node, 0);
}

uint32_t builder_and(struct builder *builder, uint32_t left, uint32_t right)
{
	if (left == BUILD_FULL || right == BUILD_FULL)
		return BUILD_FULL;
	if (left == NODE_FALSE || right == NODE_FALSE)
		return NODE_FALSE;
	return left == NODE_TRUE || left == right ? right : right == NODE_TRUE ? left : add_node(builder, NODE_AND, left, right);
}

uint32_t builder_or(struct builder *builder, uint32_t left, uint32_t right)
{
	if (left == BUILD_FULL || right == BUILD_FULL)
		return BUILD_FULL;
	if (left == NODE_TRUE || right == NODE_TRUE)
		return NODE_TRUE;
	return left == NODE_FALSE || left == right ? right : right == NODE_FALSE ? left : add_node(builder, NODE_OR, left, right);
}

/* A rule is compiled from its end, so that the targets of a step are there before it: each call returns where its part begins. */
struct compilation {
	struct builder *builder;
	size_t first; /* step of the rule */
	bool allow;
};

static uint16_t compile(struct compilation *compilation, uint32_t index, bool negated, uint16_t if_true, uint16_t if_false)
{
	struct builder *builder = compilation->builder;
	const struct node node = *node_at(builder, index);
	if (node.kind == NODE_NOT)
		return compile(compilation, node.left, !negated, if_true, if_false);
	if (node.kind == NODE_AND || node.kind == NODE_OR) {
		bool both = (node.kind == NODE_AND) != negated;
		uint16_t right = compile(compilation, node.right, negated, if_true, if_false);
		return compile(compilation, node.left, negated, both ? right : if_true, both ? if_false : right);
	}
	if (node.kind != NODE_CONDITION) /* constants are folded, so it is the whole rule */
		return (node.kind == NODE_TRUE) != negated ? if_true : if_false;
	const struct step step = {
		.condition = (uint16_t)node.left,
		.on = { [IS_FALSE] = negated ? if_true : if_false, [IS_TRUE] = negated ? if_false : if_true,
			[IS_UNKNOWN] = compilation->allow ? if_false : if_true },
	};
	return (uint16_t)(pool_add(&builder->steps, &step) - compilation->first);
}

/* Turns the steps round, so that they are read forwards. */
static void turn(struct step *steps, size_t count)
{
	for (size_t i = 0; i < count; i++)
		for (unsigned truth = IS_FALSE; truth <= IS_TRUE; truth++)
			if (steps[i].on[truth] < STEP_DOES_NOT)
				steps[i].on[truth] = (uint16_t)(count - 1 - steps[i].on[truth]);
	for (size_t i = 0; i < count / 2; i++) {
		struct step step = steps[i];
		steps[i] = steps[count - 1 - i];
		steps[count - 1 - i] = step;
	}
}

void builder_rule(struct builder *builder, struct rule rule)
{
	struct compilation compilation = { .builder = builder, .first = builder->steps.count, .allow = rule.allow };
	(void)compile(&compilation, rule.root, false, STEP_APPLIES, STEP_DOES_NOT);
	rule.first_step = (uint32_t)compilation.first;
	rule.step_count = (uint32_t)(builder->steps.count - compilation.first);
	turn((struct step *)builder->steps.items + compilation.first, rule.step_count);
	(void)pool_add(&builder->rules, &rule);
}

/* --- one block of memory ------------------------------------------------------------------------------------------------------ */

struct arena {
	char *block; /* NULL: only counts */
	size_t used;
};

static void *take(struct arena *arena, const void *from, size_t bytes)
{
	void *at = arena->block ? arena->block + arena->used : NULL;
	if (at && from)
		memcpy(at, from, bytes);
	arena->used += (bytes + 15) & ~(size_t)15;
	return at;
}

static void note_slot(struct naos_policy *policy, unsigned slot)
{
	if (!policy->used[slot]) {
		policy->used[slot] = true;
		policy->used_slots[policy->used_count++] = (uint8_t)slot;
	}
}

static void note_slots(struct naos_policy *policy)
{
	for (size_t i = 0; i < policy->condition_count; i++) {
		const struct condition *condition = &policy->conditions[i];
		note_slot(policy, condition->left);
		if (condition->kind == CONDITION_SAME_TEXT || condition->kind == CONDITION_IN_SLOT || condition->kind == CONDITION_SAME_NUMBER ||
		    condition->kind == CONDITION_LESS_NUMBER || condition->kind == CONDITION_SAME_TIME || condition->kind == CONDITION_LESS_TIME)
			note_slot(policy, condition->right);
	}
}

static void fill_table(struct naos_policy *policy)
{
	for (size_t i = 0; i < policy->text_count; i++) {
		size_t at = policy_text_hash(policy->texts[i].data, policy->texts[i].bytes) & policy->text_mask;
		while (policy->text_table[at])
			at = (at + 1) & policy->text_mask;
		policy->text_table[at] = (uint32_t)i + 1;
	}
}

/* Gates that have rules, as bits. */
static unsigned gates_of(const struct builder *builder)
{
	const struct naos_policy view = { .nodes = builder->nodes.items, .conditions = builder->conditions.items };
	unsigned gates = 0;
	uint32_t text;
	for (size_t i = 0; i < builder->rules.count; i++) {
		int gate = policy_gate(&view, pool_at(&builder->rules, i), &text);
		gates |= gate >= 0 ? 1u << gate : 0;
	}
	return gates;
}

/* Called twice: to count, and to copy. */
static void lay_out(struct arena *arena, const struct builder *builder, unsigned gates, struct naos_policy *policy)
{
	struct naos_policy counts = { .text_mask = 15 }, *to = policy ? policy : &counts;
	to->rule_count = builder->rules.count;
	to->node_count = builder->nodes.count;
	to->condition_count = builder->conditions.count;
	to->step_count = builder->steps.count;
	to->text_count = builder->texts.count;
	to->set_count = builder->sets.count;
	to->set_words = (to->text_count + 63) / 64;
	to->source_bytes = builder->source_bytes;
	for (to->text_mask = 15; to->text_mask + 1 < 4 * to->text_count;)
		to->text_mask = to->text_mask * 2 + 1;
	to->rules = take(arena, builder->rules.items, to->rule_count * sizeof(*to->rules));
	to->nodes = take(arena, builder->nodes.items, to->node_count * sizeof(*to->nodes));
	to->conditions = take(arena, builder->conditions.items, to->condition_count * sizeof(*to->conditions));
	to->steps = take(arena, builder->steps.items, to->step_count * sizeof(*to->steps));
	to->texts = take(arena, builder->texts.items, to->text_count * sizeof(*to->texts));
	to->sets = take(arena, NULL, to->set_count * to->set_words * sizeof(*to->sets));
	to->text_table = take(arena, NULL, (to->text_mask + 1) * sizeof(*to->text_table));
	to->gated = take(arena, NULL, to->rule_count * sizeof(*to->gated));
	to->open = take(arena, NULL, to->rule_count * sizeof(*to->open));
	for (int gate = 0; gate < GATES; gate++)
		if (gates & 1u << gate)
			to->buckets[gate] = take(arena, NULL, (to->text_count + 1) * sizeof(*to->buckets[gate]));
	to->name = take(arena, builder->name, strlen(builder->name) + 1);
	to->source = take(arena, builder->source, builder->source_bytes);
	const char *characters = take(arena, builder->characters.items, builder->characters.count);
	for (size_t i = 0; policy && i < policy->text_count; i++)
		policy->texts[i].data = characters + (policy->texts[i].data - (const char *)builder->characters.items);
}

int builder_finish(struct builder *builder, struct naos_policy **ret, struct naos_error *err)
{
	const unsigned gates = gates_of(builder);
	struct arena arena = { .used = (sizeof(struct naos_policy) + 15) & ~(size_t)15 };
	lay_out(&arena, builder, gates, NULL);
	struct naos_policy *policy = calloc(1, arena.used);
	if (!policy)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the policy %s", builder->name);
	policy->bytes = arena.used;
	arena = (struct arena){ .block = (char *)policy, .used = (sizeof(struct naos_policy) + 15) & ~(size_t)15 };
	lay_out(&arena, builder, gates, policy);
	for (size_t i = 0; i < policy->set_count; i++)
		memcpy(policy->sets + i * policy->set_words, pool_at(&builder->sets, i), policy->set_words * sizeof(*policy->sets));
	memcpy(policy->keywords, builder->keywords, sizeof(policy->keywords));
	policy->keyword_count = builder->keyword_count;
	policy->pair_count = builder->pair_count;
	fill_table(policy);
	note_slots(policy);
	policy_index(policy);
	*ret = policy;
	return 0;
}

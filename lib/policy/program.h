/* A compiled policy, for the files of this part.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_POLICY_PROGRAM_H
#define NAOS_POLICY_PROGRAM_H

#include "policy/policy.h"

/* Three-valued: AND is the smaller, OR the larger, NOT is 2 - x. */
enum truth {
	IS_FALSE,
	IS_UNKNOWN,
	IS_TRUE,
};

/* A condition in canonical form: every comparison is one of these, perhaps under NOT.  Left and right are slots; an
 * offset (microseconds) is added to the left. */
enum condition_kind {
	CONDITION_HAS,          /* the set left has the text `operand` */
	CONDITION_MEETS,        /* the set left has an element in the written set `operand` */
	CONDITION_IS_TEXT,      /* left == text `operand` */
	CONDITION_IN_SET,       /* left in written set `operand` */
	CONDITION_SAME_TEXT,    /* left == right; `operand` is the number of the pair */
	CONDITION_IN_SLOT,      /* left in the set right; `operand` is the number of the pair */
	CONDITION_IS_NUMBER,    /* left == number */
	CONDITION_BELOW_NUMBER, /* left < number */
	CONDITION_ABOVE_NUMBER, /* number < left */
	CONDITION_SAME_NUMBER,  /* left == right */
	CONDITION_LESS_NUMBER,  /* left < right */
	CONDITION_IS_TIME,      /* left == time_us */
	CONDITION_BELOW_TIME,   /* left < time_us */
	CONDITION_ABOVE_TIME,   /* time_us < left */
	CONDITION_SAME_TIME,    /* left + time_us == right */
	CONDITION_LESS_TIME,    /* left + time_us < right */
	CONDITION_BOOLEAN,      /* left */
	CONDITION_EXISTS,       /* left is not missing */
};

struct condition {
	uint8_t kind, left, right, unused;
	uint32_t operand;
	union {
		double number;
		int64_t time_us;
	};
};

/* Nodes are made once: equal expressions have equal numbers. */
enum node_kind {
	NODE_FALSE,
	NODE_TRUE,
	NODE_CONDITION, /* left: index of the condition */
	NODE_NOT,
	NODE_AND,
	NODE_OR,
};

struct node {
	uint32_t kind, left, right;
};

/* A step of a rule: a condition, and with which step to go on when it is true, false or unknown.
 *
 * With NOT moved down to the conditions, an AND and OR of three-valued conditions is true exactly if it is true in two-valued logic with
 * every unknown condition (or NOT of one) taken as false, and is not false exactly if it is true with every unknown one taken as true.
 * The first is what an allow rule asks for, the second a deny rule; so a rule needs no third value while it runs. */
struct step {
	uint16_t condition;
	uint16_t on[3]; /* by truth: a step of the rule, always a later one, or one of these: */
};
#define STEP_APPLIES 0xffffu
#define STEP_DOES_NOT 0xfffeu

struct rule {
	uint32_t first_step, step_count; /* without a step it always applies; what never does is refused */
	uint32_t root; /* node */
	uint32_t text_offset, text_bytes;
	uint32_t line, column;
	uint8_t allow;
	uint8_t level;  /* as written */
	uint8_t levels; /* set that it gives or takes */
};

struct keyword {
	char name[9];
	uint8_t type;
	uint32_t line, column; /* where its type was seen */
};

/* The index: a rule that can only apply if one attribute is, or has, a certain text stands in the bucket of that gate and text.  With
 * the attribute known, only the buckets of its texts are looked at: elsewhere the rule is false. */
#define GATES 5 /* data.collection, data.fileset, user.id, user.group, user.role */

struct naos_policy {
	size_t bytes; /* of this block */
	char *name;
	const char *source; /* the file, texts of rules are inside */
	struct rule *rules;
	struct node *nodes;
	struct condition *conditions;
	struct step *steps;
	struct naos_policy_text *texts;
	uint64_t *sets;      /* set_words each: bit per text */
	uint32_t *buckets[GATES]; /* of a gate that has rules: text_count + 1 places in gated, where the bucket of each text begins */
	uint16_t *gated;          /* numbers of rules, by gate and text */
	uint16_t *open;           /* numbers of the others */
	size_t open_count;
	uint32_t *text_table; /* open addressing: number of the text + 1, or 0 */
	size_t source_bytes, rule_count, node_count, condition_count, step_count, text_count, set_count, set_words, text_mask, pair_count;
	struct keyword keywords[NAOS_POLICY_MAX_KEYWORDS];
	size_t keyword_count;
	uint8_t used_slots[NAOS_POLICY_SLOTS]; /* the texts and sets that rules compare with constants */
	size_t used_count;
	bool used[NAOS_POLICY_SLOTS];
};

#define NAOS_POLICY_SET_WORDS (NAOS_POLICY_MAX_TEXTS / 64)

/* A request made ready: numbers of its texts in the policy, sets as bits. */
struct bound {
	const struct naos_policy *policy;
	const struct naos_policy_value *values;
	int64_t now_us;
	uint32_t text[NAOS_POLICY_SLOTS]; /* number + 1; 0: no text of the policy */
	bool present[NAOS_POLICY_SLOTS];
	bool complete;              /* every attribute that the policy asks for is present */
	uint32_t member_count[2];   /* texts of the policy among the roles and groups */
	uint16_t member[2][NAOS_POLICY_MAX_MEMBERS];
	uint64_t members[2][NAOS_POLICY_SET_WORDS]; /* roles, groups */
	int8_t pairs[NAOS_POLICY_MAX_PAIRS];        /* truth + 1 of conditions that take long, 0: not known yet */
};

void bound_prepare(struct bound *bound, const struct naos_policy *policy, const struct naos_policy_request *request);
enum truth bound_condition(struct bound *bound, const struct condition *condition);

/* The slots of the gates, most selective first; in index.c. */
extern const uint8_t policy_gate_slots[GATES];
/* Gate and text of a rule; -1: it has none. */
int policy_gate(const struct naos_policy *policy, const struct rule *rule, uint32_t *ret_text);
void policy_index(struct naos_policy *policy);

uint64_t policy_text_hash(const char *data, size_t bytes);
/* Number of a text + 1, or 0. */
uint32_t policy_text_find(const struct naos_policy *policy, const char *data, size_t bytes);

/* The canonical text of a condition (docs/formats/policy.md) that must be `wanted`, cut to the buffer. */
const char *policy_condition_text(const struct naos_policy *policy, const struct condition *condition, bool wanted,
				  char *buffer, size_t bytes);
#define POLICY_CONDITION_TEXT_BYTES 4096

/* Looks for rules that can't do what they say.  In check.c. */
int policy_check(const struct naos_policy *policy, struct naos_error *err) naos_must_check;

static inline int set_index(unsigned slot)
{
	return slot == NAOS_POLICY_USER_ROLES ? 0 : 1;
}

#endif

/* Operands of comparisons, their types, and the conditions that comparisons become.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_POLICY_COMPARE_H
#define NAOS_POLICY_COMPARE_H

#include "policy/build.h"
#include "policy/lex.h"

struct parser {
	struct lexer lexer;
	struct token token; /* the next one */
	struct builder builder;
	unsigned depth;
	unsigned conditions; /* of the rule being read */
	struct naos_error *err;
};

/* Says what is wrong at a token and what to write instead. */
int parser_complain(const struct parser *parser, const struct token *token, int code, const char *format, ...) naos_printf(4, 5);
int parser_full(const struct parser *parser, const struct token *token);


struct operand {
	bool constant;
	bool embargo; /* data.embargo_active */
	enum naos_policy_type type; /* MISSING: a FITS keyword whose type is not known yet */
	uint8_t slot;
	struct token token; /* as written */
	uint32_t text;
	double number;
	int64_t time_us; /* of a constant, else added to the attribute */
	bool boolean;
	uint32_t set;
	uint64_t words[NAOS_POLICY_SET_WORDS]; /* of a written set */
};

enum comparison {
	COMPARE_EQUAL,
	COMPARE_UNEQUAL,
	COMPARE_BELOW,
	COMPARE_AT_MOST,
	COMPARE_ABOVE,
	COMPARE_AT_LEAST,
	COMPARE_IN,
};

/* The attribute that a word names: data.release_date. */
int operand_attribute(struct parser *parser, const struct token *token, struct operand *ret) naos_must_check;
/* A boolean attribute that stands alone. */
int operand_condition(struct parser *parser, struct operand *operand, uint32_t *ret_node) naos_must_check;
int operand_exists(struct parser *parser, const struct operand *operand, uint32_t *ret_node) naos_must_check;
int operand_compare(struct parser *parser, enum comparison comparison, const struct token *sign, struct operand *left,
		    struct operand *right, uint32_t *ret_node) naos_must_check;

/* What role:NAME, group:NAME, user:NAME, collection:NAME and fileset:NAME mean: a node. */
uint32_t selector_node(struct parser *parser, unsigned slot, const char *name, size_t bytes);

#endif

/* Reads a policy: rules, conditions, operands (grammar: docs/formats/policy.md).  SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <string.h>

#include "policy/compare.h"

int parser_complain(const struct parser *parser, const struct token *token, int code, const char *format, ...)
{
	char text[NAOS_ERROR_MESSAGE_BYTES - 128];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return naos_error_set(parser->err, code, "%s:%u:%u: %s", parser->lexer.name, token->line, token->column, text);
}

int parser_full(const struct parser *parser, const struct token *token)
{
	return parser_complain(parser, token, NAOS_E_LIMIT,
			       "more than %d different strings, %d sets, %d conditions or %d comparisons of two strings; split the policy",
			       NAOS_POLICY_MAX_TEXTS, NAOS_POLICY_MAX_SETS, NAOS_POLICY_MAX_CONDITIONS, NAOS_POLICY_MAX_PAIRS);
}

static int next(struct parser *parser)
{
	return lexer_next(&parser->lexer, &parser->token);
}

/* As written, for messages. */
static const char *shown(const struct token *token, char *buffer, size_t bytes)
{
	if (token->kind == TOKEN_END)
		(void)snprintf(buffer, bytes, "the end of the file");
	else
		(void)snprintf(buffer, bytes, "'%.*s'", token->bytes > 40 ? 40 : (int)token->bytes, token->at);
	return buffer;
}

static int expected(const struct parser *parser, const char *what)
{
	char text[64];
	return parser_complain(parser, &parser->token, NAOS_E_CONFIG, "%s where %s", shown(&parser->token, text, sizeof(text)), what);
}

static int take(struct parser *parser, enum token_kind kind, const char *what)
{
	return parser->token.kind == kind ? next(parser) : expected(parser, what);
}

/* --- operands --------------------------------------------------------------------------------------------------------------- */

static int take_set(struct parser *parser, struct operand *ret)
{
	size_t count = 0;
	ret->constant = true;
	ret->type = NAOS_POLICY_SET;
	int rc = next(parser);
	while (rc == 0 && parser->token.kind != TOKEN_CLOSE_SET) {
		if (parser->token.kind != TOKEN_TEXT)
			return expected(parser, "a string of the set should stand; write {'a', 'b'}");
		if (count++ == NAOS_POLICY_MAX_ELEMENTS)
			return parser_complain(parser, &parser->token, NAOS_E_LIMIT,
					       "a set of more than %d strings; make a group of the directory for it",
					       NAOS_POLICY_MAX_ELEMENTS);
		uint32_t text = builder_text(&parser->builder, parser->token.text, parser->token.text_bytes);
		if (text == BUILD_FULL)
			return parser_full(parser, &parser->token);
		ret->words[text / 64] |= (uint64_t)1 << text % 64;
		rc = next(parser);
		if (rc == 0 && parser->token.kind == TOKEN_COMMA)
			rc = next(parser);
		else if (rc == 0 && parser->token.kind != TOKEN_CLOSE_SET)
			return expected(parser, "a comma or } should stand; write {'a', 'b'}");
	}
	if (rc != 0)
		return rc;
	if (count == 0)
		return parser_complain(parser, &ret->token, NAOS_E_CONFIG,
				       "an empty set: nothing is ever in it; write its strings or leave the rule out");
	ret->set = builder_set(&parser->builder, ret->words);
	return ret->set == BUILD_FULL ? parser_full(parser, &ret->token) : next(parser);
}

/* now(), data.release_date, true. */
static int take_name(struct parser *parser, struct operand *ret)
{
	struct token word = parser->token;
	if (token_is_word(&word, "true") || token_is_word(&word, "false")) {
		ret->constant = true;
		ret->type = NAOS_POLICY_BOOLEAN;
		ret->boolean = word.text[0] == 't';
		return next(parser);
	}
	if (token_is_word(&word, "now")) {
		ret->type = NAOS_POLICY_TIME;
		ret->slot = NAOS_POLICY_NOW;
		int rc = next(parser);
		if (rc == 0)
			rc = take(parser, TOKEN_OPEN, "( should stand; write now()");
		if (rc == 0)
			rc = take(parser, TOKEN_CLOSE, ") should stand; write now()");
		return rc;
	}
	int rc = operand_attribute(parser, &word, ret);
	return rc ? rc : next(parser);
}

static int take_minus(struct parser *parser, struct operand *ret)
{
	int rc = next(parser);
	if (rc != 0)
		return rc;
	if (parser->token.kind != TOKEN_NUMBER)
		return expected(parser, "a number should stand behind the sign");
	ret->constant = true;
	ret->type = NAOS_POLICY_NUMBER;
	ret->number = 0 - parser->token.number; /* no negative zero */
	return next(parser);
}

/* "+ 365d" behind a time. */
static int take_offset(struct parser *parser, struct operand *ret)
{
	bool plus = parser->token.kind == TOKEN_PLUS;
	struct token sign = parser->token;
	int rc = next(parser);
	if (rc != 0)
		return rc;
	if (parser->token.kind != TOKEN_DURATION)
		return expected(parser, "a duration should stand; write 365d, 12h, 10min or 30s");
	if (ret->type == NAOS_POLICY_MISSING && !ret->constant) {
		struct keyword *keyword = &parser->builder.keywords[ret->slot - NAOS_POLICY_FIXED_SLOTS];
		*keyword = (struct keyword){ .type = NAOS_POLICY_TIME, .line = ret->token.line, .column = ret->token.column };
		(void)snprintf(keyword->name, sizeof(keyword->name), "%.8s", ret->token.text + strlen("data."));
		ret->type = NAOS_POLICY_TIME;
	}
	if (ret->type != NAOS_POLICY_TIME)
		return parser_complain(parser, &sign, NAOS_E_CONFIG,
				       "a duration is added to what is no time; add it to now() or to an attribute that is a time");
	if (ret->constant)
		return parser_complain(parser, &sign, NAOS_E_CONFIG, "a duration is added to a time that is written out; write the sum");
	ret->time_us = plus ? parser->token.time_us : -parser->token.time_us;
	rc = next(parser);
	if (rc == 0 && (parser->token.kind == TOKEN_PLUS || parser->token.kind == TOKEN_MINUS))
		return parser_complain(parser, &parser->token, NAOS_E_CONFIG, "a second duration is added; write one, such as 400d");
	return rc;
}

static int take_operand(struct parser *parser, struct operand *ret)
{
	int rc;
	*ret = (struct operand){ .token = parser->token };
	switch (parser->token.kind) {
	case TOKEN_TEXT:
		ret->constant = true;
		ret->type = NAOS_POLICY_TEXT;
		ret->text = builder_text(&parser->builder, parser->token.text, parser->token.text_bytes);
		rc = ret->text == BUILD_FULL ? parser_full(parser, &parser->token) : next(parser);
		break;
	case TOKEN_NUMBER:
		ret->constant = true;
		ret->type = NAOS_POLICY_NUMBER;
		ret->number = parser->token.number;
		rc = next(parser);
		break;
	case TOKEN_TIME:
		ret->constant = true;
		ret->type = NAOS_POLICY_TIME;
		ret->time_us = parser->token.time_us;
		rc = next(parser);
		break;
	case TOKEN_MINUS:
		rc = take_minus(parser, ret);
		break;
	case TOKEN_OPEN_SET:
		rc = take_set(parser, ret);
		break;
	case TOKEN_WORD:
		rc = take_name(parser, ret);
		break;
	default:
		return expected(parser, "a value should stand; write an attribute, now(), a string in quotes, a number or a time");
	}
	if (rc == 0 && (parser->token.kind == TOKEN_PLUS || parser->token.kind == TOKEN_MINUS))
		rc = take_offset(parser, ret);
	return rc;
}

/* --- conditions ------------------------------------------------------------------------------------------------------------- */

static int take_or(struct parser *parser, uint32_t *ret);

static bool is_comparison(const struct token *token, enum comparison *ret)
{
	if (token_is_operator(token, "in", "IN")) {
		*ret = COMPARE_IN;
		return true;
	}
	*ret = (enum comparison)(token->kind - TOKEN_EQUAL);
	return token->kind >= TOKEN_EQUAL && token->kind <= TOKEN_AT_LEAST;
}

static int take_exists(struct parser *parser, uint32_t *ret)
{
	struct operand operand;
	int rc = next(parser);
	if (rc == 0)
		rc = take(parser, TOKEN_OPEN, "( should stand; write exists(data.release_date)");
	if (rc != 0)
		return rc;
	if (parser->token.kind != TOKEN_WORD || token_is_word(&parser->token, "now"))
		return expected(parser, "an attribute should stand; write exists(data.release_date)");
	rc = operand_attribute(parser, &parser->token, &operand);
	if (rc == 0)
		rc = next(parser);
	if (rc == 0)
		rc = take(parser, TOKEN_CLOSE, ") should stand");
	return rc ? rc : operand_exists(parser, &operand, ret);
}

static int take_comparison(struct parser *parser, uint32_t *ret)
{
	struct operand left, right;
	enum comparison comparison;
	if (parser->conditions++ == NAOS_POLICY_MAX_RULE_CONDITIONS)
		return parser_complain(parser, &parser->token, NAOS_E_LIMIT,
				       "more than %d conditions in one rule, its subject and object counted; "
				       "make two rules of it", NAOS_POLICY_MAX_RULE_CONDITIONS);
	if (token_is_word(&parser->token, "exists"))
		return take_exists(parser, ret);
	int rc = take_operand(parser, &left);
	if (rc != 0)
		return rc;
	struct token sign = parser->token;
	if (!is_comparison(&sign, &comparison))
		return operand_condition(parser, &left, ret);
	rc = next(parser);
	if (rc == 0)
		rc = take_operand(parser, &right);
	if (rc == 0)
		rc = operand_compare(parser, comparison, &sign, &left, &right, ret);
	enum comparison chained;
	if (rc == 0 && is_comparison(&parser->token, &chained))
		return parser_complain(parser, &parser->token, NAOS_E_CONFIG, "a comparison of a comparison; join two with AND");
	return rc;
}

static int take_not(struct parser *parser, uint32_t *ret)
{
	bool not = token_is_operator(&parser->token, "not", "NOT");
	if (!not && parser->token.kind != TOKEN_OPEN)
		return take_comparison(parser, ret);
	if (parser->depth++ == NAOS_POLICY_MAX_DEPTH)
		return parser_complain(parser, &parser->token, NAOS_E_LIMIT,
				       "more than %d parentheses and NOT in each other; make two rules of it",
				       NAOS_POLICY_MAX_DEPTH);
	uint32_t node;
	int rc = next(parser);
	if (rc == 0)
		rc = not ? take_not(parser, &node) : take_or(parser, &node);
	if (rc == 0 && !not)
		rc = take(parser, TOKEN_CLOSE, ") or AND or OR should stand");
	parser->depth--;
	if (rc == 0)
		*ret = not ? builder_not(&parser->builder, node) : node;
	return rc;
}

static int take_and(struct parser *parser, uint32_t *ret)
{
	uint32_t node = 0, right;
	int rc = take_not(parser, &node);
	while (rc == 0 && token_is_operator(&parser->token, "and", "AND")) {
		rc = next(parser);
		if (rc == 0)
			rc = take_not(parser, &right);
		if (rc == 0)
			node = builder_and(&parser->builder, node, right);
	}
	if (rc == 0)
		*ret = node;
	return rc;
}

static int take_or(struct parser *parser, uint32_t *ret)
{
	uint32_t node = 0, right;
	int rc = take_and(parser, &node);
	while (rc == 0 && token_is_operator(&parser->token, "or", "OR")) {
		rc = next(parser);
		if (rc == 0)
			rc = take_and(parser, &right);
		if (rc == 0)
			node = builder_or(&parser->builder, node, right);
	}
	if (rc == 0)
		*ret = node;
	return rc;
}

/* --- rules ------------------------------------------------------------------------------------------------------------------ */

struct selector {
	const char *word;
	unsigned slot;
};
static const struct selector subjects[] = {
	{ "role", NAOS_POLICY_USER_ROLES }, { "group", NAOS_POLICY_USER_GROUPS }, { "user", NAOS_POLICY_USER_ID }, { 0 }
};
static const struct selector objects[] = {
	{ "collection", NAOS_POLICY_DATA_COLLECTION }, { "fileset", NAOS_POLICY_DATA_FILESET }, { 0 }
};

static bool begins_rule(const struct token *token)
{
	return token_is_word(token, "allow") || token_is_word(token, "deny");
}

/* role:miner, collection:'my images'; adds to *node. */
static int take_selector(struct parser *parser, const struct selector *selectors, const char *what, uint32_t *node)
{
	struct token word = parser->token;
	while (selectors->word && !token_is_word(&word, selectors->word))
		selectors++;
	if (!selectors->word)
		return expected(parser, what);
	int rc = next(parser);
	if (rc == 0)
		rc = take(parser, TOKEN_COLON, "a colon should stand; write role:miner or collection:ttt");
	if (rc != 0)
		return rc;
	const struct token name = parser->token;
	if ((name.kind != TOKEN_WORD && name.kind != TOKEN_TEXT) || name.text_bytes == 0)
		return expected(parser, "a name should stand; write role:miner, or in quotes what isn't letters, digits, '_', '-' and '.'");
	parser->conditions++;
	uint32_t selector = selector_node(parser, selectors->slot, name.text, name.text_bytes);
	if (selector == BUILD_FULL)
		return parser_full(parser, &name);
	*node = builder_and(&parser->builder, *node, selector);
	return next(parser);
}

static int take_level(struct parser *parser, struct rule *rule)
{
	static const uint8_t allowed[] = { [NAOS_ACCESS_METADATA_ONLY] = 1, [NAOS_ACCESS_PIXELS_ONLY] = 2, [NAOS_ACCESS_FULL] = 7 };
	/* who takes a part away takes away full too */
	static const uint8_t denied[] = { [NAOS_ACCESS_METADATA_ONLY] = 5, [NAOS_ACCESS_PIXELS_ONLY] = 6, [NAOS_ACCESS_FULL] = 7 };
	enum naos_access_level level = NAOS_ACCESS_FULL;
	const struct token *token = &parser->token;
	int rc = 0;
	if (token_is_word(token, "denied") || (!rule->allow && token_is_word(token, "full")))
		return parser_complain(parser, token, NAOS_E_CONFIG, "'%s' can't be said of '%s'; write deny access for everything, or deny "
				       "metadata-only or deny pixels-only for a part", token->text, rule->allow ? "allow" : "deny");
	if (token_is_word(token, "access") || (token->kind == TOKEN_WORD && naos_access_level_parse(token->text, &level)))
		rc = next(parser);
	rule->level = (uint8_t)level;
	rule->levels = rule->allow ? allowed[level] : denied[level];
	return rc;
}

static int take_rule(struct parser *parser)
{
	const struct token first = parser->token;
	struct rule rule = { .line = first.line, .column = first.column, .allow = token_is_word(&first, "allow"), .root = NODE_TRUE };
	uint32_t condition;
	bool anything = false;
	if (!begins_rule(&first))
		return expected(parser, "a rule should begin, with allow or deny");
	if (parser->builder.rules.count == NAOS_POLICY_MAX_RULES)
		return parser_complain(parser, &first, NAOS_E_LIMIT, "more than %d rules; split the policy", NAOS_POLICY_MAX_RULES);
	parser->conditions = 0;
	const char *end = first.at + first.bytes;
	int rc = next(parser);
	if (rc == 0)
		rc = take_level(parser, &rule);
	if (rc == 0 && parser->token.kind == TOKEN_WORD && !token_is_word(&parser->token, "on") && !token_is_word(&parser->token, "if") &&
	    !begins_rule(&parser->token)) {
		rc = take_selector(parser, subjects,
				   "access, full, metadata-only, pixels-only, role:NAME, group:NAME, user:NAME, on or if should stand", &rule.root);
		anything = true;
	}
	if (rc == 0 && token_is_word(&parser->token, "on")) {
		rc = next(parser);
		if (rc == 0)
			rc = take_selector(parser, objects, "collection:NAME or fileset:NAME should stand", &rule.root);
		anything = true;
	}
	if (rc == 0 && token_is_word(&parser->token, "if")) {
		rc = next(parser);
		if (rc == 0)
			rc = take_or(parser, &condition);
		if (rc == 0)
			rule.root = builder_and(&parser->builder, rule.root, condition);
		anything = true;
	}
	if (rc != 0)
		return rc;
	if (parser->token.kind != TOKEN_END && !begins_rule(&parser->token))
		return expected(parser, anything ? "the rule should go on with on, if, AND or OR, or the next one begin with allow or deny"
						 : "a subject (role:NAME), an object (on collection:NAME) or a condition (if …) should stand");
	if (!anything)
		return parser_complain(parser, &first, NAOS_E_CONFIG,
				       "a rule about everybody and everything; if that is meant, end it with 'if true'");
	/* up to the last character before the next rule that is neither blank nor comment: the lexer has passed it */
	for (const char *at = first.at; at < parser->token.at;) {
		bool comment = *at == '#', quote = *at == '\'' || *at == '"', blank = *at == ' ' || *at == '\t' || *at == '\n' || *at == '\r';
		const char *from = at++;
		while (comment && at < parser->token.at && *at != '\n')
			at++;
		while (quote && *at != *from) /* a closed string: the lexer has seen its end */
			at++;
		at += quote;
		if (!comment && !blank)
			end = at;
	}
	rule.text_offset = (uint32_t)(first.at - parser->lexer.start);
	rule.text_bytes = (uint32_t)(end - first.at);
	builder_rule(&parser->builder, rule);
	return 0;
}

int naos_policy_parse(const char *text, size_t bytes, const char *name, struct naos_policy **ret, struct naos_error *err)
{
	struct parser parser = {
		.lexer = { .name = name, .start = text, .at = text, .end = text + bytes, .line = 1, .column = 1, .err = err }, .err = err,
	};
	naos_autopolicy struct naos_policy *policy = NULL;
	if (bytes > NAOS_POLICY_MAX_BYTES)
		return naos_error_set(err, NAOS_E_LIMIT, "%s:1:1: a policy of more than %zu bytes; split it", name, NAOS_POLICY_MAX_BYTES);
	int rc = builder_start(&parser.builder, name, text, bytes, err);
	if (rc != 0)
		return rc;
	rc = next(&parser);
	while (rc == 0 && parser.token.kind != TOKEN_END)
		rc = take_rule(&parser);
	if (rc == 0)
		rc = builder_finish(&parser.builder, &policy, err);
	builder_clear(&parser.builder);
	if (rc == 0)
		rc = policy_check(policy, err);
	if (rc == 0)
		*ret = naos_steal(policy);
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/compare.h"

#include <string.h>

#define NO_WORD(token) ((token)->bytes > 60 ? 60 : (int)(token)->bytes), (token)->at

static const char *const type_names[] = { "of unknown type", "a string", "a number", "a time", "true or false", "a set" };

static const struct naos_policy_slot_info rows[] = {
#define X(name_, space_, word_, other_, type_, seen_, choices_, help_) \
	{ .namespace_ = (space_), .name = (word_), .other = (other_), .type = NAOS_POLICY_##type_ },
#include "policy/attributes.def"
#undef X
};
static const char *const choices[] = {
#define X(name, space, word, other, type, seen, choices_, help) (choices_),
#include "policy/attributes.def"
#undef X
};

/* --- attributes ------------------------------------------------------------------------------------------------------------- */

static bool is_keyword(const char *name)
{
	size_t bytes = strlen(name);
	bool letter = false;
	for (size_t i = 0; i < bytes; i++) {
		letter |= name[i] >= 'A' && name[i] <= 'Z';
		if (!((name[i] >= 'A' && name[i] <= 'Z') || (name[i] >= '0' && name[i] <= '9') || name[i] == '_' || name[i] == '-'))
			return false;
	}
	return letter && bytes <= 8;
}

static int find_keyword(struct parser *parser, const struct token *token, const char *name, struct operand *ret)
{
	struct builder *builder = &parser->builder;
	size_t i = 0;
	while (i < builder->keyword_count && strcmp(builder->keywords[i].name, name) != 0)
		i++;
	if (i == NAOS_POLICY_MAX_KEYWORDS)
		return parser_complain(parser, token, NAOS_E_LIMIT, "more than %d different FITS keywords; split the policy",
				       NAOS_POLICY_MAX_KEYWORDS);
	if (i == builder->keyword_count) {
		(void)snprintf(builder->keywords[i].name, sizeof(builder->keywords[i].name), "%.8s", name);
		builder->keyword_count++;
	}
	ret->slot = (uint8_t)(NAOS_POLICY_FIXED_SLOTS + i);
	ret->type = builder->keywords[i].type;
	return 0;
}

/* Letters that differ, roughly: enough to find the attribute that was meant. */
static bool is_close(const char *a, const char *b)
{
	size_t bytes_a = strlen(a), bytes_b = strlen(b), head = 0, tail = 0, shorter = bytes_a < bytes_b ? bytes_a : bytes_b;
	while (head < shorter && a[head] == b[head])
		head++;
	while (tail < shorter - head && a[bytes_a - 1 - tail] == b[bytes_b - 1 - tail])
		tail++;
	size_t longer = bytes_a > bytes_b ? bytes_a : bytes_b;
	bool beginning = head == shorter && shorter >= 4;
	return bytes_b > 0 && (beginning || (longer - head - tail <= 2 && head + tail > 1));
}

static int unknown_attribute(struct parser *parser, const struct token *token, const char *space, const char *name)
{
	char list[512] = "";
	bool known_space = false;
	for (size_t i = 0; i < NAOS_POLICY_NOW; i++) {
		if (strcmp(rows[i].namespace_, space) != 0)
			continue;
		known_space = true;
		size_t used = strlen(list);
		(void)snprintf(list + used, sizeof(list) - used, "%s%s", used ? ", " : "", rows[i].name);
		if (is_close(name, rows[i].name) || is_close(name, rows[i].other))
			return parser_complain(parser, token, NAOS_E_CONFIG, "unknown attribute '%.*s'; did you mean %s.%s?", NO_WORD(token), space,
					       rows[i].name);
	}
	if (!known_space)
		return parser_complain(parser, token, NAOS_E_CONFIG,
				       "unknown attribute '%.*s'; attributes are user.…, data.…, vm.…, env.… and now(), strings stand in quotes",
				       NO_WORD(token));
	bool data = strcmp(space, "data") == 0;
	return parser_complain(parser, token, NAOS_E_CONFIG, "unknown attribute '%.*s'; there are %s%s", NO_WORD(token), list,
			       data ? ", embargo_active, and FITS keywords in capitals (at most 8 of A-Z 0-9 _ -)" : "");
}

int operand_attribute(struct parser *parser, const struct token *token, struct operand *ret)
{
	char space[NAOS_POLICY_MAX_TEXT_BYTES + 1];
	const char *dot = strchr(token->text, '.');
	size_t width = dot ? (size_t)(dot - token->text) : token->text_bytes;
	*ret = (struct operand){ .token = *token };
	memcpy(space, token->text, width);
	space[width] = 0;
	const char *name = dot ? dot + 1 : "";
	if (strcmp(token->text, "data.embargo_active") == 0) {
		ret->embargo = true;
		ret->type = NAOS_POLICY_BOOLEAN;
		return 0;
	}
	for (size_t i = 0; i < NAOS_POLICY_NOW; i++)
		if (strcmp(rows[i].namespace_, space) == 0 && name[0] && (strcmp(rows[i].name, name) == 0 || strcmp(rows[i].other, name) == 0)) {
			ret->slot = (uint8_t)i;
			ret->type = rows[i].type;
			return 0;
		}
	if (strcmp(space, "data") == 0 && is_keyword(name))
		return find_keyword(parser, token, name, ret);
	return unknown_attribute(parser, token, space, name);
}

/* --- types ------------------------------------------------------------------------------------------------------------------ */

static bool is_untyped(const struct operand *operand)
{
	return !operand->constant && operand->type == NAOS_POLICY_MISSING;
}

/* A FITS keyword has the type of what it is compared with. */
static void give_type(struct parser *parser, struct operand *operand, enum naos_policy_type type)
{
	if (!is_untyped(operand))
		return;
	struct keyword *keyword = &parser->builder.keywords[operand->slot - NAOS_POLICY_FIXED_SLOTS];
	keyword->type = (uint8_t)type;
	keyword->line = operand->token.line;
	keyword->column = operand->token.column;
	operand->type = type;
}

/* "data.X is a number, as in line 3:9" */
static const char *describe(const struct parser *parser, const struct operand *operand, char *buffer, size_t bytes)
{
	int used = snprintf(buffer, bytes, "%.*s is %s", NO_WORD(&operand->token), type_names[operand->type]);
	if (!operand->constant && !operand->embargo && operand->slot >= NAOS_POLICY_FIXED_SLOTS && operand->type != NAOS_POLICY_MISSING) {
		const struct keyword *keyword = &parser->builder.keywords[operand->slot - NAOS_POLICY_FIXED_SLOTS];
		(void)snprintf(buffer + used, bytes - (size_t)used, " (it was compared with one at %u:%u)", keyword->line, keyword->column);
	}
	return buffer;
}

static int refuse_types(struct parser *parser, const struct token *sign, const struct operand *left, const struct operand *right)
{
	char a[256], b[256];
	const char *remedy = "compare things of one type";
	enum naos_policy_type x = left->type, y = right->type;
	if ((x == NAOS_POLICY_TIME && y == NAOS_POLICY_TEXT) || (x == NAOS_POLICY_TEXT && y == NAOS_POLICY_TIME))
		remedy = "write a time without quotes, as 2027-01-01T00:00:00Z";
	else if ((x == NAOS_POLICY_NUMBER && y == NAOS_POLICY_TEXT) || (x == NAOS_POLICY_TEXT && y == NAOS_POLICY_NUMBER))
		remedy = "write a number without quotes, a string in quotes";
	else if ((x == NAOS_POLICY_BOOLEAN && y == NAOS_POLICY_TEXT) || (x == NAOS_POLICY_TEXT && y == NAOS_POLICY_BOOLEAN))
		remedy = "write true or false without quotes";
	else if ((y == NAOS_POLICY_SET && x == NAOS_POLICY_TEXT) || (x == NAOS_POLICY_SET && y == NAOS_POLICY_TEXT))
		remedy = "write IN to ask whether a string is in a set";
	return parser_complain(parser, sign, NAOS_E_CONFIG, "'%.*s' between two types: %s, %s; %s", NO_WORD(sign),
			       describe(parser, left, a, sizeof(a)), describe(parser, right, b, sizeof(b)), remedy);
}

/* vm.protection and the like have few values: another one would never be true. */
static bool is_choice(unsigned slot, const struct naos_policy_text *text)
{
	for (const char *at = choices[slot];;) {
		size_t width = strcspn(at, "|");
		if (width == text->bytes && memcmp(at, text->data, width) == 0)
			return true;
		if (!at[width])
			return false;
		at += width + 1;
	}
}

static int check_choice(struct parser *parser, const struct operand *attribute, const struct operand *constant)
{
	const struct naos_policy_text *texts = parser->builder.texts.items;
	if (attribute->slot >= NAOS_POLICY_FIXED_SLOTS || !choices[attribute->slot][0])
		return 0;
	for (uint32_t i = 0; i < parser->builder.texts.count; i++) {
		bool in = constant->type == NAOS_POLICY_SET ? constant->words[i / 64] >> i % 64 & 1 : constant->text == i;
		if (in && !is_choice(attribute->slot, &texts[i]))
			return parser_complain(parser, &constant->token, NAOS_E_CONFIG, "%.*s is never '%.*s'; it is one of %s",
					       NO_WORD(&attribute->token), (int)(texts[i].bytes > 60 ? 60 : texts[i].bytes), texts[i].data,
					       choices[attribute->slot]);
	}
	return 0;
}

/* --- conditions --------------------------------------------------------------------------------------------------------------- */

static struct condition one(enum condition_kind kind, const struct operand *operand)
{
	return (struct condition){ .kind = (uint8_t)kind, .left = operand->slot, .right = operand->slot };
}

static struct condition two(enum condition_kind kind, const struct operand *left, const struct operand *right)
{
	return (struct condition){ .kind = (uint8_t)kind, .left = left->slot, .right = right->slot };
}

static uint32_t add(struct parser *parser, struct condition condition)
{
	return builder_condition(&parser->builder, condition);
}

static uint32_t embargo_node(struct parser *parser)
{
	return add(parser, (struct condition){ .kind = CONDITION_LESS_TIME, .left = NAOS_POLICY_NOW,
					      .right = NAOS_POLICY_DATA_RELEASE_DATE });
}

static uint32_t boolean_node(struct parser *parser, const struct operand *operand)
{
	return operand->constant  ? builder_constant(operand->boolean) :
	       operand->embargo ? embargo_node(parser) :
				  add(parser, one(CONDITION_BOOLEAN, operand));
}

static int done(struct parser *parser, const struct token *token, uint32_t node, uint32_t *ret)
{
	if (node == BUILD_FULL)
		return parser_full(parser, token);
	*ret = node;
	return 0;
}

uint32_t selector_node(struct parser *parser, unsigned slot, const char *name, size_t bytes)
{
	bool set = rows[slot].type == NAOS_POLICY_SET;
	if (slot == NAOS_POLICY_USER_ROLES && bytes == 6 && memcmp(name, "public", 6) == 0)
		return builder_constant(true); /* everybody has it */
	uint32_t text = builder_text(&parser->builder, name, bytes);
	if (text == BUILD_FULL)
		return BUILD_FULL;
	return add(parser, (struct condition){ .kind = set ? CONDITION_HAS : CONDITION_IS_TEXT, .left = (uint8_t)slot, .right = (uint8_t)slot,
					       .operand = text });
}

int operand_condition(struct parser *parser, struct operand *operand, uint32_t *ret_node)
{
	char text[256];
	if (!operand->constant)
		give_type(parser, operand, NAOS_POLICY_BOOLEAN);
	if (operand->type != NAOS_POLICY_BOOLEAN)
		return parser_complain(parser, &operand->token, NAOS_E_CONFIG, "%s, not a condition; compare it: == != < <= > >= IN",
				       describe(parser, operand, text, sizeof(text)));
	return done(parser, &operand->token, boolean_node(parser, operand), ret_node);
}

int operand_exists(struct parser *parser, const struct operand *operand, uint32_t *ret_node)
{
	struct operand asked = *operand;
	if (operand->embargo)
		asked.slot = NAOS_POLICY_DATA_RELEASE_DATE;
	return done(parser, &operand->token, add(parser, one(CONDITION_EXISTS, &asked)), ret_node);
}

static int member_node(struct parser *parser, const struct operand *set, const struct operand *constant, uint32_t *ret)
{
	const struct naos_policy_text *text = (const struct naos_policy_text *)parser->builder.texts.items + constant->text;
	return done(parser, &constant->token, selector_node(parser, set->slot, text->data, text->bytes), ret);
}

static int text_node(struct parser *parser, const struct operand *left, const struct operand *right, uint32_t *ret)
{
	const struct operand *attribute = left->constant ? right : left, *other = left->constant ? left : right;
	if (!other->constant) {
		bool ordered = left->slot < right->slot;
		return done(parser, &left->token, add(parser, two(CONDITION_SAME_TEXT, ordered ? left : right, ordered ? right : left)), ret);
	}
	int rc = check_choice(parser, attribute, other);
	struct condition condition = one(CONDITION_IS_TEXT, attribute);
	condition.operand = other->text;
	return rc ? rc : done(parser, &left->token, add(parser, condition), ret);
}

static int equal_node(struct parser *parser, const struct token *sign, const struct operand *left, const struct operand *right,
		      uint32_t *ret)
{
	const struct operand *attribute = left->constant ? right : left, *other = left->constant ? left : right;
	struct builder *builder = &parser->builder;
	if (left->type == NAOS_POLICY_SET && right->type == NAOS_POLICY_TEXT && right->constant)
		return member_node(parser, left, right, ret);
	if (right->type == NAOS_POLICY_SET && left->type == NAOS_POLICY_TEXT && left->constant)
		return member_node(parser, right, left, ret);
	if (left->type != right->type || left->type == NAOS_POLICY_SET)
		return refuse_types(parser, sign, left, right);
	struct condition condition;
	switch (left->type) {
	case NAOS_POLICY_TEXT:
		return text_node(parser, left, right, ret);
	case NAOS_POLICY_NUMBER:
		condition = other->constant ? one(CONDITION_IS_NUMBER, attribute) : two(CONDITION_SAME_NUMBER, left, right);
		if (other->constant)
			condition.number = other->number;
		return done(parser, sign, add(parser, condition), ret);
	case NAOS_POLICY_TIME:
		if (left->slot == NAOS_POLICY_NOW || right->slot == NAOS_POLICY_NOW)
			return parser_complain(parser, sign, NAOS_E_CONFIG,
					       "now() is equal to a time for a millionth of a second only; write <, <=, > or >=");
		condition = other->constant ? one(CONDITION_IS_TIME, attribute) : two(CONDITION_SAME_TIME, left, right);
		condition.time_us = other->constant ? other->time_us - attribute->time_us : left->time_us - right->time_us;
		return done(parser, sign, add(parser, condition), ret);
	default:
		break;
	}
	uint32_t a = boolean_node(parser, left), b = boolean_node(parser, right);
	if (a == BUILD_FULL || b == BUILD_FULL)
		return parser_full(parser, sign);
	if (left->constant || right->constant) {
		bool value = left->constant ? left->boolean : right->boolean;
		uint32_t node = left->constant ? b : a;
		return done(parser, sign, value ? node : builder_not(builder, node), ret);
	}
	uint32_t both = builder_and(builder, a, b), none = builder_and(builder, builder_not(builder, a), builder_not(builder, b));
	return done(parser, sign, builder_or(builder, both, none), ret);
}

static int less_node(struct parser *parser, const struct token *sign, const struct operand *left, const struct operand *right,
		     uint32_t *ret)
{
	if (left->type != right->type)
		return refuse_types(parser, sign, left, right);
	if (left->type != NAOS_POLICY_NUMBER && left->type != NAOS_POLICY_TIME)
		return parser_complain(parser, sign, NAOS_E_CONFIG,
				       "'%.*s' between two values of which each is %s; only numbers and times have an order",
				       NO_WORD(sign), type_names[left->type]);
	bool number = left->type == NAOS_POLICY_NUMBER;
	struct condition condition;
	if (right->constant) {
		condition = one(number ? CONDITION_BELOW_NUMBER : CONDITION_BELOW_TIME, left);
		if (number)
			condition.number = right->number;
		else
			condition.time_us = right->time_us - left->time_us;
	} else if (left->constant) {
		condition = one(number ? CONDITION_ABOVE_NUMBER : CONDITION_ABOVE_TIME, right);
		if (number)
			condition.number = left->number;
		else
			condition.time_us = left->time_us - right->time_us;
	} else {
		condition = two(number ? CONDITION_LESS_NUMBER : CONDITION_LESS_TIME, left, right);
		if (!number)
			condition.time_us = left->time_us - right->time_us;
	}
	return done(parser, sign, add(parser, condition), ret);
}

static bool has_public(const struct parser *parser, const struct operand *set)
{
	const struct naos_policy_text *texts = parser->builder.texts.items;
	for (uint32_t i = 0; i < parser->builder.texts.count; i++)
		if (set->words[i / 64] >> i % 64 & 1 && texts[i].bytes == 6 && memcmp(texts[i].data, "public", 6) == 0)
			return true;
	return false;
}

static int in_node(struct parser *parser, const struct token *sign, const struct operand *left, const struct operand *right,
		   uint32_t *ret)
{
	if (right->type != NAOS_POLICY_SET)
		return parser_complain(parser, sign, NAOS_E_CONFIG, "IN needs a set behind it; write %.*s in {'a', 'b'}, or in user.groups",
				       NO_WORD(&left->token));
	if (left->type == NAOS_POLICY_TEXT && left->constant)
		return member_node(parser, right, left, ret);
	struct condition condition;
	if (left->type == NAOS_POLICY_TEXT && right->constant) {
		int rc = check_choice(parser, left, right);
		if (rc != 0)
			return rc;
		condition = one(CONDITION_IN_SET, left);
	} else if (left->type == NAOS_POLICY_TEXT) {
		condition = two(CONDITION_IN_SLOT, left, right);
	} else if (left->type == NAOS_POLICY_SET && !left->constant && right->constant) {
		if (left->slot == NAOS_POLICY_USER_ROLES && has_public(parser, right))
			return done(parser, sign, builder_constant(true), ret);
		condition = one(CONDITION_MEETS, left);
	} else {
		return refuse_types(parser, sign, left, right);
	}
	if (right->constant)
		condition.operand = right->set;
	return done(parser, sign, add(parser, condition), ret);
}

static int compare(struct parser *parser, enum comparison comparison, const struct token *sign, struct operand *left,
		   struct operand *right,
		   uint32_t *ret)
{
	switch (comparison) {
	case COMPARE_EQUAL:
	case COMPARE_UNEQUAL:
		return equal_node(parser, sign, left, right, ret);
	case COMPARE_BELOW:
	case COMPARE_AT_LEAST:
		return less_node(parser, sign, left, right, ret);
	case COMPARE_ABOVE:
	case COMPARE_AT_MOST:
		return less_node(parser, sign, right, left, ret);
	case COMPARE_IN:
		break;
	}
	return in_node(parser, sign, left, right, ret);
}

int operand_compare(struct parser *parser, enum comparison comparison, const struct token *sign, struct operand *left,
		    struct operand *right, uint32_t *ret_node)
{
	uint32_t node = 0;
	if (left->constant && right->constant)
		return parser_complain(parser, sign, NAOS_E_CONFIG, "two constants are compared; one side must be an attribute or now()");
	if (!left->constant && !right->constant && left->slot == right->slot && left->embargo == right->embargo)
		return parser_complain(parser, sign, NAOS_E_CONFIG, "%.*s is compared with itself; compare it with something else",
				       NO_WORD(&left->token));
	if (comparison == COMPARE_IN || right->type == NAOS_POLICY_SET || left->type == NAOS_POLICY_SET)
		give_type(parser, left, NAOS_POLICY_TEXT);
	if (is_untyped(left) && is_untyped(right))
		return parser_complain(parser, sign, NAOS_E_CONFIG,
				       "the types of %.*s and %.*s are not known here; compare one with a constant before, in this rule or an earlier one",
				       NO_WORD(&left->token), NO_WORD(&right->token));
	give_type(parser, left, right->type);
	give_type(parser, right, left->type == NAOS_POLICY_SET ? NAOS_POLICY_TEXT : left->type);
	int rc = compare(parser, comparison, sign, left, right, &node);
	if (rc != 0)
		return rc;
	bool negated = comparison == COMPARE_UNEQUAL || comparison == COMPARE_AT_LEAST || comparison == COMPARE_AT_MOST;
	return done(parser, sign, negated ? builder_not(&parser->builder, node) : node, ret_node);
}

/* Cuts a policy into words.  SPDX-License-Identifier: Apache-2.0 */
#include "policy/lex.h"

#include <string.h>

#include "base/config.h"

static int complain(const struct lexer *lexer, unsigned line, unsigned column, int code, const char *what)
{
	return naos_error_set(lexer->err, code, "%s:%u:%u: %s", lexer->name, line, column, what);
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_word(char c)
{
	return is_letter(c) || is_digit(c) || c == '_' || c == '-' || c == '.';
}

size_t lexer_character(const char *text, const char *end)
{
	const unsigned char *at = (const unsigned char *)text;
	size_t left = (size_t)(end - text), bytes = at[0] < 0x80 ? 1 : at[0] >= 0xc2 && at[0] < 0xe0 ? 2 : at[0] >= 0xe0 && at[0] < 0xf0 ? 3 :
					     at[0] >= 0xf0 && at[0] < 0xf5 ? 4 : 0;
	if (bytes == 0 || bytes > left)
		return 0;
	if (bytes == 1)
		return (at[0] >= 0x20 && at[0] != 0x7f) || at[0] == '\t' || at[0] == '\n' || at[0] == '\r' ? 1 : 0;
	for (size_t i = 1; i < bytes; i++)
		if ((at[i] & 0xc0) != 0x80)
			return 0;
	if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) || (at[0] == 0xf0 && at[1] < 0x90) ||
	    (at[0] == 0xf4 && at[1] > 0x8f) || (at[0] == 0xc2 && at[1] < 0xa0))
		return 0;
	return bytes;
}

static void advance(struct lexer *lexer, size_t bytes)
{
	for (; bytes > 0; bytes--) {
		char c = *lexer->at++;
		if (c == '\n') {
			lexer->line++;
			lexer->column = 1;
		} else if (((unsigned char)c & 0xc0) != 0x80) {
			lexer->column++;
		}
	}
}

static int skip_blanks(struct lexer *lexer)
{
	bool comment = false;
	while (lexer->at < lexer->end) {
		char c = *lexer->at;
		if (c == '#')
			comment = true;
		else if (c == '\n')
			comment = false;
		else if (!comment && c != ' ' && c != '\t' && c != '\r')
			return 0;
		size_t bytes = lexer_character(lexer->at, lexer->end);
		if (bytes == 0)
			return complain(lexer, lexer->line, lexer->column, NAOS_E_CONFIG,
					"a byte that is no text in UTF-8; write the comment in UTF-8 without control characters");
		advance(lexer, bytes);
	}
	return 0;
}

/* 'O''Brien': a quote inside is written twice. */
static int take_text(struct lexer *lexer, struct token *token)
{
	char quote = *lexer->at;
	advance(lexer, 1);
	for (;;) {
		if (lexer->at == lexer->end || *lexer->at == '\n')
			return complain(lexer, token->line, token->column, NAOS_E_CONFIG,
					"a string without its closing quote; end it on the same line");
		size_t bytes = lexer_character(lexer->at, lexer->end);
		if (bytes == 0 || *lexer->at == '\t' || *lexer->at == '\r')
			return complain(lexer, lexer->line, lexer->column, NAOS_E_CONFIG,
					"a byte that may not stand in a string; write UTF-8 without control characters");
		if (*lexer->at == quote) {
			advance(lexer, 1);
			if (lexer->at == lexer->end || *lexer->at != quote)
				return 0;
		}
		if (token->text_bytes + bytes > NAOS_POLICY_MAX_TEXT_BYTES)
			return naos_error_set(lexer->err, NAOS_E_LIMIT, "%s:%u:%u: a string of more than %d bytes; shorten it", lexer->name,
					      token->line, token->column, NAOS_POLICY_MAX_TEXT_BYTES);
		memcpy(token->text + token->text_bytes, lexer->at, bytes);
		token->text_bytes += bytes;
		advance(lexer, bytes);
	}
}

static int take_word(struct lexer *lexer, struct token *token)
{
	const char *from = lexer->at, *at = from;
	while (at < lexer->end && is_word(*at))
		at++;
	token->bytes = token->text_bytes = (size_t)(at - from);
	if (token->bytes > NAOS_POLICY_MAX_TEXT_BYTES)
		return naos_error_set(lexer->err, NAOS_E_LIMIT, "%s:%u:%u: a word of more than %d bytes; shorten it", lexer->name, token->line,
				      token->column, NAOS_POLICY_MAX_TEXT_BYTES);
	memcpy(token->text, from, token->bytes);
	advance(lexer, token->bytes);
	return 0;
}

static int take_time(struct lexer *lexer, struct token *token)
{
	const char *from = lexer->at, *at = from;
	while (at < lexer->end && (is_word(*at) || *at == ':' || *at == '+'))
		at++;
	token->kind = TOKEN_TIME;
	token->bytes = (size_t)(at - from);
	const char *wrong = naos_policy_time_parse(from, token->bytes, &token->time_us);
	if (wrong)
		return naos_error_set(lexer->err, NAOS_E_CONFIG, "%s:%u:%u: the time %.*s %s", lexer->name, token->line, token->column,
				      token->bytes > 40 ? 40 : (int)token->bytes, from, wrong);
	advance(lexer, token->bytes);
	return 0;
}

static int take_duration(struct lexer *lexer, struct token *token, size_t digits)
{
	char copy[32];
	uint64_t seconds;
	const char *at = lexer->at + digits;
	while (at < lexer->end && is_word(*at))
		at++;
	token->kind = TOKEN_DURATION;
	token->bytes = (size_t)(at - lexer->at);
	(void)snprintf(copy, sizeof(copy), "%.*s", token->bytes > 30 ? 30 : (int)token->bytes, lexer->at);
	if (token->bytes > 30 || !naos_parse_duration(copy, &seconds))
		return naos_error_set(lexer->err, NAOS_E_CONFIG,
				      "%s:%u:%u: '%s' is no number and no duration; write 12, 0.5, 1e3, 90d, 12h or 30s",
				      lexer->name, token->line, token->column, copy);
	if (seconds > (uint64_t)NAOS_POLICY_MAX_OFFSET_DAYS * 86400)
		return naos_error_set(lexer->err, NAOS_E_LIMIT, "%s:%u:%u: a duration of more than %d days; write a shorter one", lexer->name,
				      token->line, token->column, NAOS_POLICY_MAX_OFFSET_DAYS);
	token->time_us = (int64_t)seconds * 1000000;
	advance(lexer, token->bytes);
	return 0;
}

static size_t digits_at(const char *at, const char *end)
{
	size_t count = 0;
	while (at + count < end && is_digit(at[count]))
		count++;
	return count;
}

/* 12, 0.5, 1e3, 90d, 2027-01-01T00:00:00Z. */
static int take_number(struct lexer *lexer, struct token *token)
{
	const char *from = lexer->at, *end = lexer->end, *at = from;
	size_t digits = digits_at(from, end);
	char copy[NAOS_POLICY_MAX_NUMBER_BYTES + 1];
	if (end - from > 7 && digits == 4 && from[4] == '-' && is_digit(from[5]) && is_digit(from[6]) && from[7] == '-')
		return take_time(lexer, token);
	at += digits;
	if (at + 1 < end && at[0] == '.' && is_digit(at[1]))
		at += 1 + digits_at(at + 1, end);
	if (at + 1 < end && (at[0] == 'e' || at[0] == 'E')) {
		size_t sign = at[1] == '-' || at[1] == '+', exponent = digits_at(at + 1 + sign, end);
		if (exponent > 0)
			at += 1 + sign + exponent;
	}
	if (at < end && is_word(*at))
		return take_duration(lexer, token, digits);
	token->kind = TOKEN_NUMBER;
	token->bytes = (size_t)(at - from);
	if (token->bytes > NAOS_POLICY_MAX_NUMBER_BYTES)
		return naos_error_set(lexer->err, NAOS_E_LIMIT, "%s:%u:%u: a number of more than %d characters; shorten it", lexer->name,
				      token->line, token->column, NAOS_POLICY_MAX_NUMBER_BYTES);
	(void)snprintf(copy, sizeof(copy), "%.*s", (int)token->bytes, from);
	token->number = strtod(copy, NULL);
	if (token->number > NAOS_POLICY_MAX_NUMBER)
		return naos_error_set(lexer->err, NAOS_E_LIMIT, "%s:%u:%u: a number beyond %g; write a smaller one", lexer->name, token->line,
				      token->column, NAOS_POLICY_MAX_NUMBER);
	advance(lexer, token->bytes);
	return 0;
}

static const struct {
	char text[3];
	enum token_kind kind;
	const char *refusal;
} signs[] = {
	{ "==", TOKEN_EQUAL, NULL },    { "!=", TOKEN_UNEQUAL, NULL },  { "<=", TOKEN_AT_MOST, NULL }, { ">=", TOKEN_AT_LEAST, NULL },
	{ "&&", 0, "write AND for &&" }, { "||", 0, "write OR for ||" }, { "<", TOKEN_BELOW, NULL },    { ">", TOKEN_ABOVE, NULL },
	{ "(", TOKEN_OPEN, NULL },      { ")", TOKEN_CLOSE, NULL },     { "{", TOKEN_OPEN_SET, NULL },  { "}", TOKEN_CLOSE_SET, NULL },
	{ ",", TOKEN_COMMA, NULL },     { ":", TOKEN_COLON, NULL },     { "+", TOKEN_PLUS, NULL },      { "-", TOKEN_MINUS, NULL },
	{ "=", 0, "a single =; write == to compare" }, { "!", 0, "a single !; write NOT, or != to compare" },
	{ ";", 0, "a semicolon; a rule ends where the next one begins, and a comment begins with #" },
};

static int take_sign(struct lexer *lexer, struct token *token)
{
	size_t left = (size_t)(lexer->end - lexer->at);
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(signs); i++) {
		size_t bytes = strlen(signs[i].text);
		if (bytes > left || memcmp(lexer->at, signs[i].text, bytes) != 0)
			continue;
		if (signs[i].refusal)
			return complain(lexer, token->line, token->column, NAOS_E_CONFIG, signs[i].refusal);
		token->kind = signs[i].kind;
		token->bytes = bytes;
		advance(lexer, bytes);
		return 0;
	}
	return complain(lexer, token->line, token->column, NAOS_E_CONFIG,
			"a character that begins nothing; names with other characters than letters, digits, '_', '-' and '.' stand in quotes");
}

int lexer_next(struct lexer *lexer, struct token *ret)
{
	int rc = skip_blanks(lexer);
	if (rc != 0)
		return rc;
	*ret = (struct token){ .kind = TOKEN_END, .line = lexer->line, .column = lexer->column, .at = lexer->at };
	if (lexer->at == lexer->end)
		return 0;
	char c = *lexer->at;
	if (c == '\'' || c == '"') {
		ret->kind = TOKEN_TEXT;
		rc = take_text(lexer, ret);
		ret->bytes = (size_t)(lexer->at - ret->at);
		return rc;
	}
	if (is_digit(c))
		return take_number(lexer, ret);
	if (is_letter(c) || c == '_') {
		ret->kind = TOKEN_WORD;
		return take_word(lexer, ret);
	}
	return take_sign(lexer, ret);
}

bool token_is_word(const struct token *token, const char *word)
{
	return token->kind == TOKEN_WORD && strcmp(token->text, word) == 0;
}

bool token_is_operator(const struct token *token, const char *lower, const char *upper)
{
	return token_is_word(token, lower) || token_is_word(token, upper);
}

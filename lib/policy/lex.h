/* Words of a policy.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_POLICY_LEX_H
#define NAOS_POLICY_LEX_H

#include "policy/policy.h"

enum token_kind {
	TOKEN_END,
	TOKEN_WORD, /* data.release_date, role, metadata-only */
	TOKEN_TEXT, /* 'collaborator' */
	TOKEN_NUMBER,
	TOKEN_TIME,
	TOKEN_DURATION,
	TOKEN_OPEN,
	TOKEN_CLOSE,
	TOKEN_OPEN_SET,
	TOKEN_CLOSE_SET,
	TOKEN_COMMA,
	TOKEN_COLON,
	TOKEN_PLUS,
	TOKEN_MINUS,
	TOKEN_EQUAL,
	TOKEN_UNEQUAL,
	TOKEN_BELOW,
	TOKEN_AT_MOST,
	TOKEN_ABOVE,
	TOKEN_AT_LEAST,
};

struct token {
	enum token_kind kind;
	unsigned line, column; /* from 1; columns count characters */
	const char *at;        /* as written */
	size_t bytes;
	union {
		double number;
		int64_t time_us; /* also the length of a duration */
	};
	char text[NAOS_POLICY_MAX_TEXT_BYTES + 1]; /* of TEXT, without its quotes; of WORD too */
	size_t text_bytes;
};

struct lexer {
	const char *name; /* of the file */
	const char *start, *at, *end;
	unsigned line, column;
	struct naos_error *err;
};

/* The next token.  The sentence of an error names the place. */
int lexer_next(struct lexer *lexer, struct token *ret) naos_must_check;

/* Bytes of the UTF-8 character at text (1 to 4); 0: there is none, or a control character other than tab and newline. */
size_t lexer_character(const char *text, const char *end);

bool token_is_word(const struct token *token, const char *word);
/* The same, in lower or in upper case. */
bool token_is_operator(const struct token *token, const char *lower, const char *upper);

#endif

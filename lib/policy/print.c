/* Conditions in canonical form.  SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "policy/program.h"

/* Text that is cut where the buffer ends. */
struct writer {
	char *at;
	size_t left; /* with the final zero */
	bool cut;
};

static void put(struct writer *writer, const char *data, size_t bytes)
{
	if (bytes >= writer->left) {
		writer->cut = true;
		bytes = writer->left - 1;
	}
	memcpy(writer->at, data, bytes);
	writer->at += bytes;
	writer->left -= bytes;
	*writer->at = 0;
}

static void naos_printf(2, 3) putf(struct writer *writer, const char *format, ...)
{
	char text[128];
	va_list args;
	va_start(args, format);
	int bytes = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	put(writer, text, bytes < 0 ? 0 : strlen(text));
}

static void put_slot(struct writer *writer, const struct naos_policy *policy, unsigned slot)
{
	struct naos_policy_slot_info info;
	if (naos_policy_slot(policy, slot, &info))
		putf(writer, "%s%s%s", info.namespace_, info.namespace_[0] ? "." : "", info.name);
}

static void put_text(struct writer *writer, const struct naos_policy_text *text)
{
	put(writer, "'", 1);
	for (size_t i = 0; i < text->bytes; i++) {
		put(writer, text->data + i, 1);
		if (text->data[i] == '\'')
			put(writer, "'", 1);
	}
	put(writer, "'", 1);
}

static bool is_before(const struct naos_policy_text *a, const struct naos_policy_text *b)
{
	size_t shorter = a->bytes < b->bytes ? a->bytes : b->bytes;
	int order = memcmp(a->data, b->data, shorter);
	return order < 0 || (order == 0 && a->bytes < b->bytes);
}

/* In the order of their bytes, whatever order they were written in. */
static void put_set(struct writer *writer, const struct naos_policy *policy, uint32_t set)
{
	const uint64_t *words = policy->sets + set * policy->set_words;
	const struct naos_policy_text *last = NULL;
	put(writer, "{", 1);
	for (;;) {
		const struct naos_policy_text *next = NULL;
		for (size_t i = 0; i < policy->text_count; i++) {
			const struct naos_policy_text *text = &policy->texts[i];
			if (words[i / 64] >> i % 64 & 1 && (!last || is_before(last, text)) && (!next || is_before(text, next)))
				next = text;
		}
		if (!next || writer->cut)
			break;
		if (last)
			put(writer, ", ", 2);
		put_text(writer, next);
		last = next;
	}
	put(writer, "}", 1);
}

/* A whole number as such; another with as few digits as give the same number when they are read. */
static void put_number(struct writer *writer, double number)
{
	char text[40];
	if (number > -1e15 && number < 1e15 && number == (double)(int64_t)number) {
		putf(writer, "%" PRId64, (int64_t)number);
		return;
	}
	for (int digits = 1; digits <= 17; digits++) {
		(void)snprintf(text, sizeof(text), "%.*g", digits, number);
		if (strtod(text, NULL) == number)
			break;
	}
	put(writer, text, strlen(text));
}

static void put_offset(struct writer *writer, int64_t offset_us)
{
	static const struct {
		const char *unit;
		int64_t seconds;
	} units[] = { { "d", 86400 }, { "h", 3600 }, { "min", 60 }, { "s", 1 } };
	int64_t seconds = offset_us / 1000000, size = seconds < 0 ? -seconds : seconds;
	for (size_t i = 0; seconds != 0 && i < NAOS_ARRAY_LENGTH(units); i++)
		if (size % units[i].seconds == 0) {
			putf(writer, " %c %" PRId64 "%s", seconds < 0 ? '-' : '+', size / units[i].seconds, units[i].unit);
			return;
		}
}

static void put_time(struct writer *writer, int64_t time_us)
{
	char text[NAOS_POLICY_TIME_BYTES];
	(void)naos_policy_time_format(time_us, text);
	put(writer, text, strlen(text));
}

/* The sign between the two sides of a condition that must be, or must not be, true. */
static const char *sign_of(enum condition_kind kind, bool wanted)
{
	switch (kind) {
	case CONDITION_BELOW_NUMBER:
	case CONDITION_LESS_NUMBER:
	case CONDITION_BELOW_TIME:
	case CONDITION_LESS_TIME:
		return wanted ? " < " : " >= ";
	case CONDITION_ABOVE_NUMBER:
	case CONDITION_ABOVE_TIME:
		return wanted ? " > " : " <= ";
	case CONDITION_MEETS:
	case CONDITION_IN_SET:
	case CONDITION_IN_SLOT:
		return " in ";
	default:
		return wanted ? " == " : " != ";
	}
}

static void put_right(struct writer *writer, const struct naos_policy *policy, const struct condition *condition, bool wanted)
{
	switch ((enum condition_kind)condition->kind) {
	case CONDITION_HAS:
	case CONDITION_IS_TEXT:
		put_text(writer, &policy->texts[condition->operand]);
		break;
	case CONDITION_MEETS:
	case CONDITION_IN_SET:
		put_set(writer, policy, condition->operand);
		break;
	case CONDITION_IS_NUMBER:
	case CONDITION_BELOW_NUMBER:
	case CONDITION_ABOVE_NUMBER:
		put_number(writer, condition->number);
		break;
	case CONDITION_IS_TIME:
	case CONDITION_BELOW_TIME:
	case CONDITION_ABOVE_TIME:
		put_time(writer, condition->time_us);
		break;
	case CONDITION_BOOLEAN:
		putf(writer, "true");
		break;
	case CONDITION_SAME_TEXT:
	case CONDITION_IN_SLOT:
	case CONDITION_SAME_NUMBER:
	case CONDITION_LESS_NUMBER:
	case CONDITION_SAME_TIME:
	case CONDITION_LESS_TIME:
		put_slot(writer, policy, condition->right);
		break;
	case CONDITION_EXISTS:
		break;
	}
}

const char *policy_condition_text(const struct naos_policy *policy, const struct condition *condition, bool wanted,
				  char *buffer, size_t bytes)
{
	static const char more[] = "\u2026";
	struct writer writer = { .at = buffer, .left = bytes - sizeof(more) };
	const char *sign = sign_of(condition->kind, wanted);
	bool in = strcmp(sign, " in ") == 0, exists = condition->kind == CONDITION_EXISTS;
	if ((in || exists) && !wanted)
		putf(&writer, "NOT ");
	if (exists)
		putf(&writer, "exists(");
	put_slot(&writer, policy, condition->left);
	if (exists) {
		putf(&writer, ")");
		return buffer;
	}
	if (condition->kind == CONDITION_SAME_TIME || condition->kind == CONDITION_LESS_TIME)
		put_offset(&writer, condition->time_us);
	putf(&writer, "%s", sign);
	put_right(&writer, policy, condition, wanted);
	if (writer.cut) {
		while (writer.at > buffer && ((unsigned char)writer.at[-1] & 0xc0) == 0x80)
			writer.at--;
		if (writer.at > buffer && (unsigned char)writer.at[-1] >= 0x80)
			writer.at--; /* no half of a character */
		memcpy(writer.at, more, sizeof(more));
	}
	return buffer;
}

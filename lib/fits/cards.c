/* SPDX-License-Identifier: Apache-2.0 */
#include "fits/cards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put(struct naos_cards *cards, const char line[static NAOS_FITS_CARD_BYTES])
{
	if (cards->room - cards->used < NAOS_FITS_CARD_BYTES || cards->room < cards->used) {
		cards->failed = true;
		return;
	}
	uint8_t *at = cards->text + cards->used;
	if (cards->reading)
		cards->failed |= memcmp(at, line, NAOS_FITS_CARD_BYTES) != 0;
	else
		memcpy(at, line, NAOS_FITS_CARD_BYTES);
	cards->used += NAOS_FITS_CARD_BYTES;
}

void naos_cards_card(struct naos_cards *cards, const char *name, const char *value, const char *comment)
{
	char line[NAOS_FITS_CARD_BYTES + 1];
	int length = comment ? snprintf(line, sizeof(line), "%-8s= %s / %s", name, value, comment) :
			       snprintf(line, sizeof(line), value[0] ? "%-8s= %s" : "%-8s%s", name, value);
	size_t bytes = length < 0 ? 0 : (size_t)length < NAOS_FITS_CARD_BYTES ? (size_t)length : NAOS_FITS_CARD_BYTES;
	memset(line + bytes, ' ', NAOS_FITS_CARD_BYTES - bytes);
	put(cards, line);
}

void naos_cards_number(struct naos_cards *cards, const char *name, uint64_t value, const char *comment)
{
	char text[32];
	(void)snprintf(text, sizeof(text), "%20llu", (unsigned long long)value);
	naos_cards_card(cards, name, text, comment);
}

void naos_cards_true(struct naos_cards *cards, const char *name, const char *comment)
{
	naos_cards_card(cards, name, "                   T", comment);
}

void naos_cards_text(struct naos_cards *cards, const char *name, const char *value, const char *comment)
{
	char quoted[72], text[80];
	(void)snprintf(quoted, sizeof(quoted), "'%-8s'", value);
	(void)snprintf(text, sizeof(text), "%-20s", quoted);
	naos_cards_card(cards, name, text, comment);
}

void naos_cards_comment(struct naos_cards *cards, const char *text)
{
	char name[NAOS_FITS_CARD_BYTES + 1];
	(void)snprintf(name, sizeof(name), "COMMENT %s", text);
	naos_cards_card(cards, name, "", NULL);
}

void naos_cards_end(struct naos_cards *cards)
{
	naos_cards_card(cards, "END", "", NULL);
	while (!cards->failed && cards->used % NAOS_FITS_BLOCK_BYTES != 0)
		naos_cards_card(cards, "", "", NULL);
}

void naos_cards_table(struct naos_cards *cards, uint64_t row_bytes, uint64_t rows, uint64_t heap_bytes, unsigned fields)
{
	naos_cards_text(cards, "XTENSION", "BINTABLE", "binary table");
	naos_cards_number(cards, "BITPIX", 8, NULL);
	naos_cards_number(cards, "NAXIS", 2, NULL);
	naos_cards_number(cards, "NAXIS1", row_bytes, "bytes of a row");
	naos_cards_number(cards, "NAXIS2", rows, "rows");
	naos_cards_number(cards, "PCOUNT", heap_bytes, "bytes behind the rows");
	naos_cards_number(cards, "GCOUNT", 1, NULL);
	naos_cards_number(cards, "TFIELDS", fields, "columns");
}

void naos_cards_field(struct naos_cards *cards, unsigned number, const char *name, const char *form)
{
	char type[12], format[12];
	(void)snprintf(type, sizeof(type), "TTYPE%u", number);
	(void)snprintf(format, sizeof(format), "TFORM%u", number);
	naos_cards_text(cards, type, name, NULL);
	naos_cards_text(cards, format, form, NULL);
}

/* --- values that a reader does not know beforehand ------------------------------------------------------------------------ */

/* The next card as a string; empty if there is none. */
static void next_card(const struct naos_cards *cards, char ret[static NAOS_FITS_CARD_BYTES + 1])
{
	ret[0] = 0;
	if (cards->room < cards->used || cards->room - cards->used < NAOS_FITS_CARD_BYTES)
		return;
	memcpy(ret, cards->text + cards->used, NAOS_FITS_CARD_BYTES);
	ret[NAOS_FITS_CARD_BYTES] = 0;
}

bool naos_cards_next_is(const struct naos_cards *cards, const char *name)
{
	char line[NAOS_FITS_CARD_BYTES + 1], start[12];
	next_card(cards, line);
	(void)snprintf(start, sizeof(start), "%-8s=", name);
	return strncmp(line, start, 9) == 0;
}

long long naos_cards_peek_number(struct naos_cards *cards)
{
	char line[NAOS_FITS_CARD_BYTES + 1];
	next_card(cards, line);
	return strlen(line) < 30 ? 0 : strtoll(line + 10, NULL, 10);
}

void naos_cards_peek_text(struct naos_cards *cards, char *ret, size_t room)
{
	char line[NAOS_FITS_CARD_BYTES + 1];
	next_card(cards, line);
	ret[0] = 0;
	if (strlen(line) < 12 || line[10] != '\'')
		return;
	size_t length = strcspn(line + 11, "'");
	while (length > 0 && line[11 + length - 1] == ' ')
		length--;
	if (length < room) {
		memcpy(ret, line + 11, length);
		ret[length] = 0;
	}
}

void naos_cards_digits(struct naos_cards *cards, const char *name, char *digits, size_t count)
{
	char line[NAOS_FITS_CARD_BYTES + 1];
	bool hierarchy = strncmp(name, "HIERARCH", 8) == 0;
	for (size_t done = 0; done < count && !cards->failed;) {
		int length = done ? snprintf(line, sizeof(line), "CONTINUE  '") :
				    snprintf(line, sizeof(line), hierarchy ? "%s = '" : "%-8s= '", name);
		size_t from = (size_t)length, left = count - done;
		bool more = left > NAOS_CARDS_LONG_DIGITS + 1;
		size_t take = more ? NAOS_CARDS_LONG_DIGITS : left;
		memset(line + from, ' ', NAOS_FITS_CARD_BYTES - from);
		if (from + take + (more ? 2 : 1) > NAOS_FITS_CARD_BYTES || cards->room < cards->used ||
		    cards->room - cards->used < NAOS_FITS_CARD_BYTES) {
			cards->failed = true;
			return;
		}
		if (cards->reading)
			memcpy(digits + done, cards->text + cards->used + from, take);
		memcpy(line + from, digits + done, take);
		memcpy(line + from + take, more ? "&'" : "'", more ? 2 : 1);
		put(cards, line);
		done += take;
	}
}

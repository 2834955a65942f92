/* Cards of the headers around frames.  They are part of the format of frames, so no library may choose how they look.
 *
 * One description serves both ways: a writer appends each card, a reader compares it with the one that stands there.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FITS_CARDS_H
#define NAOS_FITS_CARDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

#define NAOS_FITS_BLOCK_BYTES 2880u
#define NAOS_FITS_CARD_BYTES 80u
#define NAOS_CARDS_LONG_DIGITS 67u /* of a string that goes on, in each card but the last */

struct naos_cards {
	uint8_t *text;
	size_t room, used;
	bool reading; /* text is a header that is compared */
	bool failed;  /* reading: a card differs; writing: there is no room */
};

/* "NAME    = value / comment"; comment NULL: none; value "": the name (of up to 80 bytes) stands alone. */
void naos_cards_card(struct naos_cards *cards, const char *name, const char *value, const char *comment);
void naos_cards_number(struct naos_cards *cards, const char *name, uint64_t value, const char *comment);
void naos_cards_true(struct naos_cards *cards, const char *name, const char *comment);
void naos_cards_text(struct naos_cards *cards, const char *name, const char *value, const char *comment);
void naos_cards_comment(struct naos_cards *cards, const char *text);
/* END, and blanks to a whole block. */
void naos_cards_end(struct naos_cards *cards);

/* The start of a binary table's header, one column of it. */
void naos_cards_table(struct naos_cards *cards, uint64_t row_bytes, uint64_t rows, uint64_t heap_bytes, unsigned fields);
void naos_cards_field(struct naos_cards *cards, unsigned number, const char *name, const char *form);

/* --- values that a reader does not know beforehand ------------------------------------------------------------------------ */

/* Whether the next card has this name, of up to 8 bytes. */
bool naos_cards_next_is(const struct naos_cards *cards, const char *name);
/* The value of the next card, which stays the next: a number, or a text without its quotes and blanks behind it (room includes its
 * NUL; empty if it is none).  Comparing the card afterwards tells whether it was written as it has to be. */
long long naos_cards_peek_number(struct naos_cards *cards);
void naos_cards_peek_text(struct naos_cards *cards, char *ret, size_t room);
/* A string of exactly `count` characters, "NAME    = 'digits'", going on in CONTINUE cards beyond NAOS_CARDS_LONG_DIGITS + 1; with
 * name "HIERARCH X" a HIERARCH card.  Reading fills digits with what stands in their columns, whatever it is. */
void naos_cards_digits(struct naos_cards *cards, const char *name, char *digits, size_t count);

#endif

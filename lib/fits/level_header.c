/* The headers that a level shows, and what stands for data that is not to be had: always a valid FITS file that common readers accept.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "fits/frame_inside.h"
#include "fits/structure.h"

#define MAX_NAMES 9999u /* beyond, keywords do not fit 8 characters, and CFITSIO ends at 999 columns anyway */

uint8_t frame_fill_of(const struct naos_frame_hdu *unit)
{
	const uint8_t *card = naos_fits_card_find(unit->text, (uint64_t)unit->cards * NAOS_FITS_CARD_BYTES, "XTENSION");
	return card && memcmp(card + 10, "'TABLE   '", 10) == 0 ? ' ' : 0;
}

/* Sums of what is not there any more would only make a valid file look damaged. */
static void blank_sums(uint8_t *header, uint64_t bytes)
{
	for (uint64_t at = 0; at + NAOS_FITS_CARD_BYTES <= bytes; at += NAOS_FITS_CARD_BYTES)
		if (memcmp(header + at, "CHECKSUM", 8) == 0 || memcmp(header + at, "DATASUM ", 8) == 0)
			memset(header + at, ' ', NAOS_FITS_CARD_BYTES);
}

/* Names that a structural header lacks: columns of tables and parameters of random groups have none without the header key, but astropy
 * can't read what has no name. */
struct names {
	const char *keyword, *value;
	uint32_t count;
};

static struct names missing_names(const struct naos_frame_hdu *unit)
{
	uint64_t bytes = (uint64_t)unit->cards * NAOS_FITS_CARD_BYTES;
	long long count;
	if (naos_fits_card_find(unit->text, bytes, "TTYPE1") || naos_fits_card_find(unit->text, bytes, "PTYPE1"))
		return (struct names){ .count = 0 };
	bool groups = naos_fits_card_find(unit->text, bytes, "GROUPS");
	if (!naos_fits_card_number(unit->text, bytes, groups ? "PCOUNT" : "TFIELDS", &count) || count < 1 || count > MAX_NAMES)
		return (struct names){ .count = 0 };
	return (struct names){ .keyword = groups ? "PTYPE" : "TTYPE", .value = groups ? "PAR" : "COL", .count = (uint32_t)count };
}

static void put_name(uint8_t card[static NAOS_FITS_CARD_BYTES], const struct names *names, uint32_t number)
{
	char keyword[24], value[24], text[NAOS_FITS_CARD_BYTES + 1];
	(void)snprintf(keyword, sizeof(keyword), "%s%u", names->keyword, number);
	(void)snprintf(value, sizeof(value), "%s%u", names->value, number);
	(void)snprintf(text, sizeof(text), "%-8.8s= '%-8.8s'           / its name needs the header key", keyword, value);
	memcpy(card, text, strlen(text));
}

static uint8_t *structural_header(const struct naos_frame_hdu *unit, uint64_t *ret_bytes)
{
	const struct names names = missing_names(unit);
	uint64_t cards = (uint64_t)unit->cards * NAOS_FITS_CARD_BYTES;
	uint64_t bytes = frame_whole_blocks(cards + (names.count + 1) * (uint64_t)NAOS_FITS_CARD_BYTES);
	uint8_t *text = malloc(bytes);
	if (!text)
		return NULL;
	memset(text, ' ', bytes);
	memcpy(text, unit->text, cards);
	for (uint32_t i = 0; i < names.count; i++)
		put_name(text + cards + (uint64_t)i * NAOS_FITS_CARD_BYTES, &names, i + 1);
	memcpy(text + cards + (uint64_t)names.count * NAOS_FITS_CARD_BYTES, "END", 3);
	*ret_bytes = bytes;
	return text;
}

uint8_t *frame_make_header(const struct naos_frame *frame, uint32_t hdu, uint64_t *ret_bytes)
{
	const struct naos_frame_hdu *unit = &frame->manifest.hdus[hdu];
	if (frame->level == NAOS_FRAME_PIXELS_ONLY)
		return structural_header(unit, ret_bytes);
	uint8_t *text = malloc(unit->header_bytes);
	if (!text)
		return NULL;
	memcpy(text, frame->headers[hdu], unit->header_bytes);
	if (frame->level == NAOS_FRAME_METADATA_ONLY)
		blank_sums(text, unit->header_bytes);
	*ret_bytes = unit->header_bytes;
	return text;
}

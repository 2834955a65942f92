/* The header of a cut-out: its axes, and every keyword that counts pixels, moved to where the pixels went.
 *
 * Pixel p of the image is pixel (p - first) / step + 1 of the cut-out, so that the world coordinates of each pixel stay exactly what
 * they were.  (CFITSIO and astropy move the reference pixel of a thinned image as if pixels had been binned.)
 * Source: FITS standard 4.0, section 8; SIP: Shupe et al. 2005; LTV, LTM: IRAF.  SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <fitsio.h>

#include "fits/cutout_inside.h"
#include "fits/structure.h"

#define MORE_CARDS 512 /* that may be added */
#define MAX_SIP_ORDER 9

struct header {
	char (*cards)[NAOS_FITS_CARD_BYTES];
	size_t count, room;
	bool full;
};

/* --- cards --------------------------------------------------------------------------------------------------------------------- */

static char *find(const struct header *header, const char *keyword)
{
	char name[9];
	(void)snprintf(name, sizeof(name), "%-8.8s", keyword);
	for (size_t i = 0; i < header->count; i++)
		if (memcmp(header->cards[i], name, 8) == 0)
			return header->cards[i];
	return NULL;
}

static bool get(const struct header *header, const char *keyword, double *ret)
{
	const char *card = find(header, keyword);
	char text[71], *end;
	if (!card || card[8] != '=')
		return false;
	memcpy(text, card + 10, 70);
	text[70] = 0;
	for (char *at = text; *at && *at != '/'; at++)
		*at = *at == 'D' || *at == 'd' ? 'E' : *at;
	double value = strtod(text, &end);
	if (end == text)
		return false;
	*ret = value;
	return true;
}

/* The shortest text that gives the same number, with a point. */
static void format_number(double value, char ret[static 32])
{
	for (int digits = 15; digits <= 17; digits++) {
		(void)snprintf(ret, 32, "%.*G", digits, value);
		if (strtod(ret, NULL) == value)
			break;
	}
	if (!strpbrk(ret, ".EN"))
		(void)strncat(ret, ".0", 31 - strlen(ret));
}

/* Changes a card and keeps its comment, or adds one. */
static void set(struct header *header, const char *keyword, double value, const char *comment)
{
	char number[32], text[2 * NAOS_FITS_CARD_BYTES + 1], old[NAOS_FITS_CARD_BYTES + 1] = "";
	char *card = find(header, keyword);
	format_number(value, number);
	if (card) {
		memcpy(old, card + 10, NAOS_FITS_CARD_BYTES - 10);
		const char *slash = strchr(old, '/');
		comment = slash ? slash + 1 + strspn(slash + 1, " ") : "";
	} else if (header->count < header->room) {
		card = header->cards[header->count++];
	} else {
		header->full = true;
		return;
	}
	int length = snprintf(text, sizeof(text), comment[0] ? "%-8.8s= %20s / %s" : "%-8.8s= %20s%s", keyword, number, comment);
	memset(card, ' ', NAOS_FITS_CARD_BYTES);
	memcpy(card, text, length < (int)NAOS_FITS_CARD_BYTES ? (size_t)length : NAOS_FITS_CARD_BYTES);
}

static void scale(struct header *header, const char *keyword, double factor)
{
	double value;
	if (get(header, keyword, &value))
		set(header, keyword, value * factor, "");
}

/* --- coordinates ---------------------------------------------------------------------------------------------------------------- */

#define NAME_BYTES 48 /* of any two numbers, though keywords have 8 letters */

/* "CRPIX1A", "CD1_2": j 0 is none, version a letter or a space. */
static const char *name_of(char text[static NAME_BYTES], const char *word, unsigned i, unsigned j, char version)
{
	char suffix[2] = { version == ' ' ? 0 : version, 0 };
	(void)(j ? snprintf(text, NAME_BYTES, "%s%u_%u%s", word, i, j, suffix) : snprintf(text, NAME_BYTES, "%s%u%s", word, i, suffix));
	return text;
}

/* Multiplies column j of a matrix that is there; false if it has no element at all. */
static bool scale_column(struct header *header, const char *matrix, unsigned axes, unsigned j, char version, double factor)
{
	char name[NAME_BYTES];
	double ignored;
	bool any = false;
	for (unsigned i = 1; i <= axes; i++)
		for (unsigned k = 1; k <= axes; k++)
			any |= get(header, name_of(name, matrix, i, k, version), &ignored);
	for (unsigned i = 1; any && i <= axes; i++)
		scale(header, name_of(name, matrix, i, j, version), factor);
	return any;
}

/* An axis that describes coordinates at all. */
static bool has_axis(const struct header *header, unsigned j, char version)
{
	static const char *const words[] = { "CTYPE", "CRPIX", "CRVAL", "CDELT", "CD", "PC" };
	char name[NAME_BYTES];
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(words); i++)
		if (find(header, name_of(name, words[i], j, i < 4 ? 0 : j, version)))
			return true;
	return false;
}

static void move_axis(struct header *header, const struct naos_cut *cut, unsigned j, char version)
{
	char name[NAME_BYTES];
	double first = (double)cut->first[j - 1], step = (double)cut->step[j - 1], pixel = 0, element;
	(void)get(header, name_of(name, "CRPIX", j, 0, version), &pixel);
	set(header, name, (pixel - first) / step + 1, "reference pixel");
	if (cut->step[j - 1] == 1 || scale_column(header, "CD", cut->axes, j, version, step))
		return;
	if (scale_column(header, "PC", cut->axes, j, version, step)) {
		if (!get(header, name_of(name, "PC", j, j, version), &element))
			set(header, name, step, "step of the cut-out");
		return;
	}
	double delta = 1;
	(void)get(header, name_of(name, "CDELT", j, 0, version), &delta); /* also with CROTA2: it turns what CDELT scaled */
	set(header, name, delta * step, "step of the cut-out");
}

/* u' = u / s1: each coefficient of u^p v^q of axis k gets s1^p s2^q / sk. */
static void move_polynomials(struct header *header, const struct naos_cut *cut)
{
	static const char *const prefixes[] = { "A", "B", "AP", "BP" };
	double s1 = (double)cut->step[0], s2 = (double)cut->step[1];
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(prefixes); i++)
		for (int p = 0; p <= MAX_SIP_ORDER; p++)
			for (int q = 0; q <= MAX_SIP_ORDER; q++) {
				char name[16];
				(void)snprintf(name, sizeof(name), "%s_%d_%d", prefixes[i], p, q);
				scale(header, name, pow(s1, p) * pow(s2, q) / (i % 2 ? s2 : s1));
			}
}

/* IRAF: logical = LTM * physical + LTV. */
static void move_physical(struct header *header, const struct naos_cut *cut, unsigned j)
{
	char name[NAME_BYTES];
	double first = (double)cut->first[j - 1], step = (double)cut->step[j - 1], value = 0;
	(void)get(header, name_of(name, "LTV", j, 0, ' '), &value);
	set(header, name, (value - first) / step + 1, "logical = LTM * physical + LTV");
	for (unsigned k = 1; cut->step[j - 1] != 1 && k <= cut->axes; k++) {
		bool there = get(header, name_of(name, "LTM", j, k, ' '), &value);
		if (there || k == j)
			set(header, name, (there ? value : 1) / step, "step of the cut-out");
	}
}

static void move_all(struct header *header, const struct naos_cut *cut)
{
	bool stepped = cut->axes >= 2 && (cut->step[0] != 1 || cut->step[1] != 1);
	for (unsigned j = 1; j <= cut->axes; j++) {
		if (cut->first[j - 1] == 1 && cut->step[j - 1] == 1)
			continue;
		for (char version = 'A' - 1; version <= 'Z'; version++) {
			char known = version < 'A' ? ' ' : version;
			if (has_axis(header, j, known))
				move_axis(header, cut, j, known);
		}
		move_physical(header, cut, j);
	}
	if (stepped && find(header, "A_ORDER"))
		move_polynomials(header, cut);
}

/* --- the whole ------------------------------------------------------------------------------------------------------------------- */

bool frame_is_distortion(const char *card)
{
	static const char *const words[] = { "CPDIS", "CQDIS", "CPERR", "CQERR", "DP", "DQ", "D2IM", "DVERR" };
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(words); i++) {
		size_t length = strlen(words[i]);
		const char *rest = card + length;
		if (strncmp(card, words[i], length) != 0)
			continue;
		if (strcmp(words[i], "D2IM") == 0)
			return true;
		return isdigit((unsigned char)*rest) || (strcmp(words[i], "DVERR") == 0 && *rest == ' ');
	}
	return false;
}

/* Keywords of the table that a compressed image is stored in (FITS 4.0, section 10.1). */
static bool is_of_table(const char *card)
{
	static const char *const words[] = {
		"ZIMAGE", "ZTABLE", "ZCMPTYPE", "ZBITPIX", "ZNAXIS", "ZTILE", "ZNAME", "ZVAL", "ZMASKCMP", "ZQUANTIZ", "ZDITHER", "ZBLANK",
		"ZSCALE", "ZZERO", "ZSIMPLE", "ZTENSION", "ZEXTEND", "ZBLOCKED", "ZPCOUNT", "ZGCOUNT", "ZHECKSUM", "ZDATASUM", "TFIELDS",
		"THEAP", "TTYPE", "TFORM", "TUNIT", "TNULL", "TSCAL", "TZERO", "TDIM", "TDISP",
	};
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(words); i++) {
		size_t length = strlen(words[i]);
		size_t rest = length + strspn(card + length, "0123456789");
		if (strncmp(card, words[i], length) == 0 && (rest >= 8 || card[rest] == ' '))
			return true;
	}
	return strncmp(card, "EXTNAME = 'COMPRESSED_IMAGE'", 28) == 0;
}

static bool is_kept(const char *card)
{
	int class = fits_get_keyclass((char *)(uintptr_t)card);
	return class != TYP_STRUC_KEY && class != TYP_CKSUM_KEY && class != TYP_CMPRS_KEY && strncmp(card, "XTENSION", 8) != 0 &&
	       strncmp(card, "EXTEND  ", 8) != 0 && strspn(card, " ") != NAOS_FITS_CARD_BYTES;
}

static void put(struct header *header, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct header *header, const char *format, ...)
{
	char text[NAOS_FITS_CARD_BYTES + 1];
	va_list list;
	va_start(list, format);
	int length = vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	memset(header->cards[header->count], ' ', NAOS_FITS_CARD_BYTES);
	memcpy(header->cards[header->count++], text, (size_t)length);
}

static void put_structure(struct header *header, const struct frame_image *image, const struct naos_cut *cut)
{
	put(header, "SIMPLE  =                    T / conforms to the FITS standard");
	put(header, "BITPIX  = %20d", image->bitpix);
	put(header, "NAXIS   = %20u", cut->axes);
	for (unsigned i = 0; i < cut->axes; i++) {
		char name[NAME_BYTES];
		(void)snprintf(name, sizeof(name), "NAXIS%u", i + 1);
		put(header, "%-8s= %20llu", name, (unsigned long long)cut->count[i]);
	}
	put(header, "EXTEND  =                    T");
}

static bool find_in(const struct frame_image *image, const char *keyword)
{
	return naos_fits_card_find(image->header, image->header_bytes, keyword) != NULL;
}

int frame_cut_header(const struct frame_image *image, struct naos_cut *cut, char **ret, size_t *ret_bytes, struct naos_error *err)
{
	size_t there = image->header_bytes / NAOS_FITS_CARD_BYTES, blocks;
	struct header header = { .room = there + MORE_CARDS };
	size_t bytes = (header.room + NAOS_FITS_BLOCK_BYTES / NAOS_FITS_CARD_BYTES) * NAOS_FITS_CARD_BYTES;
	header.cards = malloc(bytes);
	if (!header.cards)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a header");
	memset(header.cards, ' ', bytes);
	put_structure(&header, image, cut);
	for (size_t i = 0; i < there; i++) {
		char card[FLEN_CARD];
		memcpy(card, image->header + i * NAOS_FITS_CARD_BYTES, NAOS_FITS_CARD_BYTES);
		card[NAOS_FITS_CARD_BYTES] = 0;
		if (strncmp(card, "END     ", 8) == 0)
			break;
		if (frame_is_distortion(card))
			cut->without_distortion = true;
		else if (image->tiles && image->bitpix > 0 && strncmp(card, "ZBLANK  =", 9) == 0 && !find_in(image, "BLANK"))
			memcpy(memcpy(header.cards[header.count++], card, NAOS_FITS_CARD_BYTES), "BLANK ", 6);
		else if (is_kept(card) && !(image->tiles && is_of_table(card)))
			memcpy(header.cards[header.count++], card, NAOS_FITS_CARD_BYTES);
	}
	move_all(&header, cut);
	memcpy(header.cards[header.count++], "END", 3);
	blocks = (header.count * NAOS_FITS_CARD_BYTES + NAOS_FITS_BLOCK_BYTES - 1) / NAOS_FITS_BLOCK_BYTES;
	*ret = (char *)header.cards;
	*ret_bytes = blocks * NAOS_FITS_BLOCK_BYTES;
	return header.full ? naos_error_set(err, NAOS_E_LIMIT, "the cut-out would need more than %d new keywords", MORE_CARDS) : 0;
}

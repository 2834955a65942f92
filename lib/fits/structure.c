/* SPDX-License-Identifier: Apache-2.0 */
#include "fits/structure_inside.h"

#include <ctype.h>
#include <string.h>
#include <sys/stat.h>
#include <fitsio.h>

#include "base/io.h"

/* --- cards ---------------------------------------------------------------------------------------------------------------- */

static void keyword_of(const uint8_t *card, char ret[static 9])
{
	memcpy(ret, card, 8);
	ret[8] = 0;
	for (int i = 7; i >= 0 && ret[i] == ' '; i--)
		ret[i] = 0;
}

const uint8_t *naos_fits_card_find(const uint8_t *header, uint64_t bytes, const char *keyword)
{
	char name[9];
	for (uint64_t at = 0; at + NAOS_FITS_CARD_BYTES <= bytes; at += NAOS_FITS_CARD_BYTES) {
		keyword_of(header + at, name);
		if (strcmp(name, "END") == 0)
			return NULL;
		if (strcmp(name, keyword) == 0)
			return header + at;
	}
	return NULL;
}

bool naos_fits_card_number(const uint8_t *header, uint64_t bytes, const char *keyword, long long *ret)
{
	const uint8_t *card = naos_fits_card_find(header, bytes, keyword);
	char text[71], *end;
	if (!card || card[8] != '=')
		return false;
	memcpy(text, card + 10, 70);
	text[70] = 0;
	errno = 0;
	long long value = strtoll(text, &end, 10);
	if (end == text || errno != 0)
		return false;
	*ret = value;
	return true;
}

/* Keywords without which the data of a unit can't be read rightly; # stands for a number. */
static bool is_structural(const char *name, bool compressed)
{
	static const char *const words[] = {
		"SIMPLE", "XTENSION", "BITPIX", "NAXIS", "NAXIS#", "PCOUNT", "GCOUNT", "GROUPS", "EXTEND", "BZERO", "BSCALE",
			"BLANK",
		"TFIELDS", "TBCOL#", "TFORM#", "TSCAL#", "TZERO#", "TNULL#", "TDIM#", "THEAP", "PSCAL#", "PZERO#",
	};
	static const char *const compressed_words[] = { /* images in tiles (FITS 4.0,
		section 10) are found by the names of columns */
		"TTYPE#", "ZIMAGE", "ZTABLE", "ZCMPTYPE", "ZBITPIX", "ZNAXIS", "ZNAXIS#", "ZTILE#", "ZNAME#", "ZVAL#", "ZMASKCMP",
		"ZQUANTIZ", "ZDITHER0", "ZBLANK", "ZSCALE", "ZZERO", "ZSIMPLE", "ZTENSION", "ZEXTEND", "ZBLOCKED", "ZPCOUNT",
			"ZGCOUNT",
		"ZFORM#", "ZCTYP#", "ZTILELEN", "ZHEAPPTR", "ZTHEAP",
	};
	char pattern[9];
	size_t length = strlen(name), base = length;
	while (base > 0 && isdigit((unsigned char)name[base - 1]))
		base--;
	(void)snprintf(pattern, sizeof(pattern), "%.*s%s", (int)(base < 7 ? base : 8), name, base < length ? "#" : "");
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(words); i++)
		if (strcmp(pattern, words[i]) == 0 || strcmp(name, words[i]) == 0)
			return true;
	for (unsigned i = 0; compressed && i < NAOS_ARRAY_LENGTH(compressed_words); i++)
		if (strcmp(pattern, compressed_words[i]) == 0 || strcmp(name, compressed_words[i]) == 0)
			return true;
	return false;
}

static int take_cards(int fd, const char *name, struct naos_fits_unit *unit, struct naos_error *err)
{
	naos_autofree uint8_t *header = malloc(unit->header_bytes);
	naos_autofree uint8_t *cards = malloc(unit->header_bytes);
	size_t got, used = 0;
	if (!header || !cards)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a header of %s", name);
	int rc = naos_io_pread(fd, header, unit->header_bytes, unit->header_offset, &got, name, err);
	if (rc != 0)
		return rc;
	if (got < unit->header_bytes)
		return naos_error_set(err, NAOS_E_FORMAT, "%s: a header is cut off", name);
	bool compressed = naos_fits_card_find(header, got, "ZIMAGE") || naos_fits_card_find(header, got, "ZTABLE");
	for (size_t at = 0; at + NAOS_FITS_CARD_BYTES <= got; at += NAOS_FITS_CARD_BYTES) {
		char keyword[9];
		keyword_of(header + at, keyword);
		if (strcmp(keyword, "END") == 0)
			break;
		if (!is_structural(keyword, compressed))
			continue;
		memcpy(cards + used, header + at, NAOS_FITS_CARD_BYTES);
		used += NAOS_FITS_CARD_BYTES;
	}
	unit->card_count = (uint32_t)(used / NAOS_FITS_CARD_BYTES);
	unit->cards = naos_steal(cards);
	return 0;
}

/* --- units ------------------------------------------------------------------------------------------------------------------ */

void naos_fits_structure_free(struct naos_fits_structure *structure)
{
	for (size_t i = 0; i < structure->count; i++)
		free(structure->units[i].cards);
	free(structure->units);
	*structure = (struct naos_fits_structure){ .count = 0 };
}

static int refuse(const char *name, size_t hdu, int status, struct naos_error *err)
{
	char text[FLEN_STATUS];
	fits_get_errstatus(status, text);
	fits_clear_errmsg();
	if (status == READ_ERROR || status == END_OF_FILE)
		return naos_error_set(err, NAOS_E_FORMAT, "%s: unit %zu: its header has no END", name, hdu + 1);
	return naos_error_set(err, NAOS_E_FORMAT, "%s: unit %zu: CFITSIO can't read its structure (%s)", name, hdu + 1, text);
}

static struct naos_fits_unit *add_unit(struct naos_fits_structure *structure)
{
	struct naos_fits_unit *units = realloc(structure->units, (structure->count + 1) * sizeof(*units));
	if (!units)
		return NULL;
	structure->units = units;
	units[structure->count] = (struct naos_fits_unit){ .cards = NULL };
	return &units[structure->count++];
}

int fits_structure_add(int fd, const char *name, uint64_t header, uint64_t data, uint64_t end, struct naos_fits_structure *structure,
		       struct naos_error *err)
{
	const struct naos_fits_unit *before = structure->count ? &structure->units[structure->count - 1] : NULL;
	uint64_t expected = before ? before->data_offset + before->data_bytes : 0;
	if (data <= header || end < data || header != expected || (data - header) % NAOS_FITS_BLOCK_BYTES != 0 || data > structure->file_bytes)
		return naos_error_set(err, NAOS_E_FORMAT,
			"%s: unit %zu does not begin where the one before ends, or is cut off", name,
				      structure->count + 1);
	if (structure->count >= NAOS_FRAME_MAX_HDUS - 1)
		return naos_error_set(err, NAOS_E_LIMIT, "%s: a file has at most %u units", name, NAOS_FRAME_MAX_HDUS - 1);
	struct naos_fits_unit *unit = add_unit(structure);
	if (!unit)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the structure of %s", name);
	unit->header_offset = header;
	unit->header_bytes = data - header;
	unit->data_offset = data;
	unit->data_bytes = (end < structure->file_bytes ? end : structure->file_bytes) - data;
	if (unit->header_bytes > NAOS_FRAME_MAX_HEADER_BYTES)
		return naos_error_set(err, NAOS_E_LIMIT, "%s: the header of unit %zu is larger than 256 MiB", name,
			structure->count);
	return take_cards(fd, name, unit, err);
}

static int add_hdu(fitsfile *fits, int fd, const char *name, struct naos_fits_structure *structure, struct naos_error *err)
{
	LONGLONG header, data, end;
	int status = 0;
	if (fits_get_hduaddrll(fits, &header, &data, &end, &status) != 0)
		return refuse(name, structure->count, status, err);
	if (header < 0 || data < 0 || end < 0)
		return naos_error_set(err, NAOS_E_FORMAT, "%s: unit %zu has no place in the file", name, structure->count + 1);
	return fits_structure_add(fd, name, (uint64_t)header, (uint64_t)data, (uint64_t)end, structure, err);
}

static int walk(fitsfile *fits, int fd, const char *name, struct naos_fits_structure *structure, struct naos_error *err)
{
	for (int hdu = 1;; hdu++) {
		int status = 0, type;
		if (fits_movabs_hdu(fits, hdu, &type, &status) != 0) {
			bool end = status == END_OF_FILE || hdu > 1; /* what can't be read as a unit is bytes behind the last one */
			fits_clear_errmsg();
			return end ? 0 : refuse(name, structure->count, status, err);
		}
		int rc = add_hdu(fits, fd, name, structure, err);
		if (rc != 0)
			return rc;
		const struct naos_fits_unit *last = &structure->units[structure->count - 1];
		uint64_t next = last->data_offset + last->data_bytes;
		bool unsafe = false;
		if (next >= structure->file_bytes)
			return 0;
		rc = fits_structure_is_unsafe(fd, name, next, &unsafe, err);
		if (rc != 0 || unsafe)
			return rc ? rc : fits_structure_walk_plain(fd, name, next, structure, err);
	}
}

/* From the first unit on by CFITSIO, up to one that it crashes on. */
static int walk_file(int fd, const char *name, struct naos_fits_structure *structure, struct naos_error *err)
{
	char path[32];
	fitsfile *fits;
	int code = 0;
	bool unsafe = false;
	int rc = fits_structure_is_unsafe(fd, name, 0, &unsafe, err);
	if (rc != 0 || unsafe)
		return rc ? rc : fits_structure_walk_plain(fd, name, 0, structure, err);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (fits_open_diskfile(&fits, path, READONLY, &code) != 0)
		return refuse(name, 0, code, err);
	rc = walk(fits, fd, name, structure, err);
	code = 0;
	(void)fits_close_file(fits, &code);
	fits_clear_errmsg();
	return rc;
}

static int add_tail(const char *name, struct naos_fits_structure *structure, struct naos_error *err)
{
	const struct naos_fits_unit *last = &structure->units[structure->count - 1];
	uint64_t end = last->data_offset + last->data_bytes;
	if (end == structure->file_bytes)
		return 0;
	struct naos_fits_unit *tail = add_unit(structure);
	if (!tail)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the structure of %s", name);
	tail->header_offset = tail->data_offset = end;
	tail->data_bytes = structure->file_bytes - end;
	return 0;
}

int naos_fits_structure_read(int fd, const char *name, struct naos_fits_structure *ret, struct naos_error *err)
{
	struct naos_fits_structure structure = { .count = 0 };
	struct stat status;
	char start[10] = "";
	size_t got;
	int rc = naos_io_pread(fd, start, 9, 0, &got, name, err);
	if (rc != 0)
		return rc;
	if (fstat(fd, &status) != 0)
		return naos_error_set_errno(err, errno, "cannot read the size of %s", name);
	structure.file_bytes = (uint64_t)status.st_size;
	if (got >= 2 && (memcmp(start, "\x1f\x8b", 2) == 0 || memcmp(start, "BZ", 2) == 0))
		return naos_error_set(err, NAOS_E_FORMAT, "%s is compressed as a whole: uncompress it first", name);
	if (got < 9 || memcmp(start, "SIMPLE  =", 9) != 0)
		return naos_error_set(err, NAOS_E_FORMAT, "%s is no FITS file: it does not begin with SIMPLE", name);
	rc = walk_file(fd, name, &structure, err);
	if (rc == 0)
		rc = add_tail(name, &structure, err);
	if (rc == 0)
		*ret = structure;
	else
		naos_fits_structure_free(&structure);
	return rc;
}

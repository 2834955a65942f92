/* Units of an open frame: by number or name, their headers, a unit as a file.  SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/io.h"
#include "fits/cutout_inside.h"
#include "fits/structure.h"

#define COPY_BYTES ((size_t)4 << 20)

int naos_frame_unit_header(struct naos_frame *frame, size_t unit, uint8_t **ret, size_t *ret_bytes, struct naos_error *err)
{
	struct naos_frame_place place;
	size_t got;
	naos_frame_unit(frame, unit, &place);
	naos_autofree uint8_t *header = malloc(place.header_bytes + 1);
	if (!header)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a header");
	int rc = naos_frame_read_at(frame, header, place.header_bytes, place.header_offset, &got, err);
	if (rc != 0)
		return rc;
	header[got] = 0;
	*ret_bytes = got;
	*ret = naos_steal(header);
	return 0;
}

/* The text of a card "NAME    = 'text   '"; empty if it has none. */
static void card_text(const uint8_t *header, size_t bytes, const char *keyword, char ret[static NAOS_FITS_CARD_BYTES])
{
	const uint8_t *card = naos_fits_card_find(header, bytes, keyword), *quote = card ? memchr(card + 10, '\'', 70) : NULL;
	size_t used = 0;
	for (const uint8_t *at = quote ? quote + 1 : NULL; at && at < card + NAOS_FITS_CARD_BYTES; at++) {
		if (*at == '\'' && (at + 1 == card + NAOS_FITS_CARD_BYTES || at[1] != '\''))
			break;
		at += *at == '\'';
		ret[used++] = (char)*at;
	}
	while (used && ret[used - 1] == ' ')
		used--;
	ret[used] = 0;
}

static int named(struct naos_frame *frame, const char *text, size_t *ret, struct naos_error *err)
{
	const char *comma = strrchr(text, ',');
	size_t length = comma ? (size_t)(comma - text) : strlen(text);
	char *end = NULL;
	unsigned long version = comma ? strtoul(comma + 1, &end, 10) : 0;
	if (comma && (!isdigit((unsigned char)comma[1]) || *end))
		return naos_error_set(err, NAOS_E_USAGE, "a unit is a number, NAME or NAME,VERSION, not '%s'", text);
	for (size_t unit = 0; unit < naos_frame_units(frame); unit++) {
		naos_autofree uint8_t *header = NULL;
		size_t bytes;
		char name[NAOS_FITS_CARD_BYTES];
		long long has = 1;
		int rc = naos_frame_unit_header(frame, unit, &header, &bytes, err);
		if (rc != 0)
			return rc;
		card_text(header, bytes, "EXTNAME", name);
		if (!naos_fits_card_number(header, bytes, "EXTVER", &has))
			has = 1;
		if (strlen(name) == length && strncasecmp(name, text, length) == 0 && (!comma || has == (long long)version)) {
			*ret = unit;
			return 0;
		}
	}
	bool names = naos_frame_level(frame) != NAOS_FRAME_PIXELS_ONLY;
	return naos_error_set(err, NAOS_E_USAGE, names ? "there is no unit '%s'" :
							 "there is no unit '%s': without the header key units have numbers only", text);
}

int naos_frame_unit_find(struct naos_frame *frame, const char *text, size_t *ret, struct naos_error *err)
{
	char *end;
	if (!isdigit((unsigned char)text[0]))
		return named(frame, text, ret, err);
	unsigned long unit = strtoul(text, &end, 10);
	if (*end)
		return named(frame, text, ret, err);
	if (unit >= naos_frame_units(frame))
		return naos_error_set(err, NAOS_E_USAGE, "there is no unit %lu: the frame has %zu, from 0", unit, naos_frame_units(frame));
	*ret = unit;
	return 0;
}

/* An extension needs a primary unit in front of it. */
static void empty_primary(uint8_t ret[static NAOS_FITS_BLOCK_BYTES])
{
	static const char *const cards[] = {
		"SIMPLE  =                    T", "BITPIX  =                    8", "NAXIS   =                    0",
		"EXTEND  =                    T", "END",
	};
	memset(ret, ' ', NAOS_FITS_BLOCK_BYTES);
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(cards); i++)
		memcpy(ret + i * NAOS_FITS_CARD_BYTES, cards[i], strlen(cards[i]));
}

int frame_copy_unit(struct naos_frame *frame, size_t unit, int fd, const char *name, struct naos_error *err)
{
	struct naos_frame_place place;
	uint8_t primary[NAOS_FITS_BLOCK_BYTES];
	naos_frame_unit(frame, unit, &place);
	uint64_t at = place.header_offset, left = place.header_bytes + place.data_bytes, offset = 0;
	naos_autofree uint8_t *buffer = malloc(COPY_BYTES);
	int rc = buffer ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory to copy a unit");
	if (rc == 0 && unit > 0) {
		empty_primary(primary);
		rc = naos_io_pwrite(fd, primary, sizeof(primary), 0, name, err);
		offset = sizeof(primary);
	}
	while (rc == 0 && left > 0) {
		/* the header by itself, so that data is read in whole segments */
		uint64_t part = at < place.data_offset ? place.data_offset - at : left;
		size_t want = part < COPY_BYTES ? (size_t)part : COPY_BYTES, got;
		rc = naos_frame_read_at(frame, buffer, want, at, &got, err);
		if (rc == 0)
			rc = naos_io_pwrite(fd, buffer, got, offset, name, err);
		at += want;
		offset += want;
		left -= want;
	}
	if (buffer)
		naos_wipe(buffer, COPY_BYTES);
	offset = (offset + NAOS_FITS_BLOCK_BYTES - 1) / NAOS_FITS_BLOCK_BYTES * NAOS_FITS_BLOCK_BYTES; /* data that was cut off */
	if (rc == 0 && ftruncate(fd, (off_t)offset) != 0)
		rc = naos_error_set_errno(err, errno, "cannot set the size of %s", name);
	return rc;
}

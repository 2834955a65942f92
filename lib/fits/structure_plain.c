/* Units by the arithmetic of the standard (FITS 4.0, 4.4.1 and 6.1.1), for those that CFITSIO 4.2 crashes on: it has room for 99 axes
 * where the standard allows 999, and divides by the size of a tile.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/io.h"
#include "fits/structure_inside.h"

#define CFITSIO_AXES 99
#define PIECE_BYTES (20u * NAOS_FITS_BLOCK_BYTES)

static bool has_end(const uint8_t *header, size_t bytes)
{
	for (size_t at = 0; at + NAOS_FITS_CARD_BYTES <= bytes; at += NAOS_FITS_CARD_BYTES)
		if (memcmp(header + at, "END     ", 8) == 0)
			return true;
	return false;
}

/* The header at an offset, with the blocks up to its END; *ret NULL: there is none. */
static int read_header(int fd, const char *name, uint64_t offset, uint8_t **ret, uint64_t *ret_bytes, struct naos_error *err)
{
	naos_autofree uint8_t *header = NULL;
	uint64_t used = 0;
	*ret = NULL;
	for (;;) {
		uint8_t *more = realloc(header, used + PIECE_BYTES);
		size_t got;
		if (!more)
			return naos_error_set(err, NAOS_E_NOMEM, "no memory for a header of %s", name);
		header = more;
		int rc = naos_io_pread(fd, header + used, PIECE_BYTES, offset + used, &got, name, err);
		if (rc != 0)
			return rc;
		bool begins = used > 0 || (got >= 9 && (memcmp(header, "SIMPLE  =", 9) == 0 || memcmp(header, "XTENSION=", 9) == 0));
		for (size_t block = 0; begins && block + NAOS_FITS_BLOCK_BYTES <= got; block += NAOS_FITS_BLOCK_BYTES)
			if (has_end(header + used + block, NAOS_FITS_BLOCK_BYTES)) {
				*ret_bytes = used + block + NAOS_FITS_BLOCK_BYTES;
				*ret = naos_steal(header);
				return 0;
			}
		used += got;
		if (!begins || got < PIECE_BYTES || used > NAOS_FRAME_MAX_HEADER_BYTES)
			return 0;
	}
}

static bool has_empty_tile(const uint8_t *header, uint64_t bytes)
{
	long long length;
	for (unsigned i = 1; i <= 9; i++) { /* more than CFITSIO reads */
		char keyword[16];
		(void)snprintf(keyword, sizeof(keyword), "ZTILE%u", i);
		if (naos_fits_card_find(header, bytes, keyword) && (!naos_fits_card_number(header, bytes, keyword, &length) || length < 1))
			return true;
	}
	return false;
}

int fits_structure_is_unsafe(int fd, const char *name, uint64_t offset, bool *ret, struct naos_error *err)
{
	naos_autofree uint8_t *header = NULL;
	uint64_t bytes = 0;
	long long axes;
	int rc = read_header(fd, name, offset, &header, &bytes, err);
	if (rc == 0)
		*ret = header && ((naos_fits_card_number(header, bytes, "NAXIS", &axes) && axes > CFITSIO_AXES) || has_empty_tile(header, bytes));
	return rc;
}

/* Bytes of data, without what fills the last block; false: the header does not say it. */
static bool data_bytes_of(const uint8_t *header, uint64_t bytes, uint64_t *ret)
{
	long long bitpix, axes, length, parameters = 0, groups = 1;
	uint64_t elements = 1;
	if (!naos_fits_card_number(header, bytes, "BITPIX", &bitpix) || !naos_fits_card_number(header, bytes, "NAXIS", &axes) || axes < 0 ||
	    axes > NAOS_FITS_MAX_AXES || llabs(bitpix) > 64)
		return false;
	(void)naos_fits_card_number(header, bytes, "PCOUNT", &parameters);
	(void)naos_fits_card_number(header, bytes, "GCOUNT", &groups);
	for (long long i = 1; i <= axes; i++) {
		char keyword[32];
		(void)snprintf(keyword, sizeof(keyword), "NAXIS%lld", i);
		if (!naos_fits_card_number(header, bytes, keyword, &length) || length < 0)
			return false;
		if (i == 1 && length == 0 && axes > 1 && naos_fits_card_find(header, bytes, "GROUPS"))
			continue;
		if (__builtin_mul_overflow(elements, (uint64_t)length, &elements))
			return false;
	}
	*ret = 0;
	return axes == 0 || (parameters >= 0 && groups >= 0 && !__builtin_add_overflow(elements, (uint64_t)parameters, &elements) &&
			     !__builtin_mul_overflow(elements, (uint64_t)groups, &elements) &&
			     !__builtin_mul_overflow(elements, (uint64_t)llabs(bitpix) / 8, ret) && *ret < NAOS_FRAME_MAX_BYTES);
}

int fits_structure_walk_plain(int fd, const char *name, uint64_t offset, struct naos_fits_structure *structure, struct naos_error *err)
{
	while (offset < structure->file_bytes) {
		naos_autofree uint8_t *header = NULL;
		uint64_t bytes = 0, data = 0;
		int rc = read_header(fd, name, offset, &header, &bytes, err);
		if (rc != 0)
			return rc;
		if (!header || !data_bytes_of(header, bytes, &data)) {
			if (structure->count > 0) /* what can't be read as a unit is bytes behind the last one */
				return 0;
			return naos_error_set(err, NAOS_E_FORMAT, "%s: unit 1: its header does not say how much data it has", name);
		}
		data = (data + NAOS_FITS_BLOCK_BYTES - 1) / NAOS_FITS_BLOCK_BYTES * NAOS_FITS_BLOCK_BYTES;
		rc = fits_structure_add(fd, name, offset, offset + bytes, offset + bytes + data, structure, err);
		if (rc != 0)
			return rc;
		offset += bytes + data;
	}
	return 0;
}

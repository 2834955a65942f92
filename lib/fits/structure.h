/* The structure of a FITS file: where its units lie, and the cards of a header without which its data can't be read.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FITS_STRUCTURE_H
#define NAOS_FITS_STRUCTURE_H

#include "fits/manifest.h"

struct naos_fits_unit {
	uint64_t header_offset, header_bytes, data_offset, data_bytes;
	uint8_t *cards; /* structural cards, 80 bytes each */
	uint32_t card_count;
};

struct naos_fits_structure {
	uint64_t file_bytes;
	size_t count;
	struct naos_fits_unit *units; /* bytes behind the last unit are one more, without a header */
};

/* Reads the structure of an open file by CFITSIO, without its extended file names.  NAOS_E_FORMAT with its reason: no FITS file, one
 * that is compressed as a whole, or one that it can't make sense of. */
int naos_fits_structure_read(int fd, const char *name, struct naos_fits_structure *ret, struct naos_error *err) naos_must_check;
void naos_fits_structure_free(struct naos_fits_structure *structure);

/* The value of a keyword in a header, as a number; false if it has none. */
bool naos_fits_card_number(const uint8_t *header, uint64_t bytes, const char *keyword, long long *ret);
/* The card of a keyword, NULL if there is none. */
const uint8_t *naos_fits_card_find(const uint8_t *header, uint64_t bytes, const char *keyword);

#endif

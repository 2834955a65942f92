/* What the files of the structure share.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FITS_STRUCTURE_INSIDE_H
#define NAOS_FITS_STRUCTURE_INSIDE_H

#include "fits/structure.h"

#define NAOS_FITS_MAX_AXES 999 /* of an array, by the standard */

/* One more unit, by its places in the file; what is beyond the end of the file is cut off. */
int fits_structure_add(int fd, const char *name, uint64_t header, uint64_t data, uint64_t end, struct naos_fits_structure *structure,
		       struct naos_error *err) naos_must_check;

/* structure_plain.c.  Whether CFITSIO must not see the unit at this offset. */
int fits_structure_is_unsafe(int fd, const char *name, uint64_t offset, bool *ret, struct naos_error *err) naos_must_check;
/* All units from an offset on. */
int fits_structure_walk_plain(int fd, const char *name, uint64_t offset, struct naos_fits_structure *structure,
			     struct naos_error *err) naos_must_check;

#endif

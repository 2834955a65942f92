/* Chunks that are changed in memory only, because writing each would cost a flush of its own (rule 16).  Plaintext: its memory is
 * left out of core dumps and wiped before it is given back.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_GATHER_H
#define NAOS_SEAL_GATHER_H

#include "base/errors.h"
#include "seal/layout.h"

struct naos_gathered {
	uint64_t chunk;
	uint32_t length; /* of the version that will be written; the text is zero behind it */
};

struct naos_gather {
	size_t limit; /* chunks; 0: nothing is gathered */
	size_t used;
	struct naos_gathered *rows;
	uint8_t *texts;       /* NAOS_CHUNK_BYTES a row; mapped while there is any */
	size_t room;          /* rows that memory is there for */
	uint32_t *index;      /* hash table of row numbers + 1 */
	size_t index_room;
	struct naos_error failure; /* of a write behind the back of whoever wrote; code 0: none */
};

/* The text of a gathered chunk, NULL if it is none.  Valid until the next change of the table. */
uint8_t *naos_gather_find(const struct naos_gather *gather, uint64_t chunk, struct naos_gathered **ret_row);
/* Enters a chunk that is not in the table, or replaces it.  NAOS_E_LIMIT if it is full, NAOS_E_NOMEM. */
int naos_gather_put(struct naos_gather *gather, uint64_t chunk, const uint8_t *text, uint32_t length,
		    struct naos_error *err) naos_must_check;
/* Wipes and forgets all of it. */
void naos_gather_clear(struct naos_gather *gather);
/* The same, but keeps the memory for what is gathered next. */
void naos_gather_empty(struct naos_gather *gather);

#endif

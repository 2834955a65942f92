/* A hash table of chunks with linear probing; texts in a mapping of their own that doubles.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/gather.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/secret.h"

#define FIRST_ROOM 16

static size_t place_of(const struct naos_gather *gather, uint64_t chunk)
{
	size_t at = (size_t)((chunk * 0x9e3779b97f4a7c15u) >> 32) & (gather->index_room - 1);
	while (gather->index[at] && gather->rows[gather->index[at] - 1].chunk != chunk)
		at = (at + 1) & (gather->index_room - 1);
	return at;
}

uint8_t *naos_gather_find(const struct naos_gather *gather, uint64_t chunk, struct naos_gathered **ret_row)
{
	if (gather->used == 0)
		return NULL;
	uint32_t number = gather->index[place_of(gather, chunk)];
	if (!number)
		return NULL;
	if (ret_row)
		*ret_row = &gather->rows[number - 1];
	return gather->texts + (size_t)(number - 1) * NAOS_CHUNK_BYTES;
}

void naos_gather_clear(struct naos_gather *gather)
{
	if (gather->texts) {
		naos_wipe(gather->texts, gather->used * NAOS_CHUNK_BYTES);
		(void)munmap(gather->texts, gather->room * NAOS_CHUNK_BYTES);
	}
	free(gather->rows);
	free(gather->index);
	gather->texts = NULL;
	gather->rows = NULL;
	gather->index = NULL;
	gather->used = gather->room = gather->index_room = 0;
}

void naos_gather_empty(struct naos_gather *gather)
{
	if (gather->used == 0)
		return;
	naos_wipe(gather->texts, gather->used * NAOS_CHUNK_BYTES);
	memset(gather->index, 0, gather->index_room * sizeof(*gather->index));
	gather->used = 0;
}

static int grow(struct naos_gather *gather, struct naos_error *err)
{
	size_t room = gather->room ? 2 * gather->room : FIRST_ROOM, index_room = 2 * room;
	uint32_t *index = calloc(index_room, sizeof(*index));
	struct naos_gathered *rows = index ? reallocarray(gather->rows, room, sizeof(*rows)) : NULL;
	if (rows)
		gather->rows = rows;
	void *texts = !rows ? MAP_FAILED :
		      gather->texts ? mremap(gather->texts, gather->room * NAOS_CHUNK_BYTES, room * NAOS_CHUNK_BYTES, MREMAP_MAYMOVE) :
		      mmap(NULL, room * NAOS_CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (texts == MAP_FAILED) {
		free(index);
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to gather changes");
	}
	gather->texts = texts;
	free(gather->index);
	gather->index = index;
	gather->index_room = index_room;
	bool first = gather->room == 0;
	gather->room = room;
	for (size_t i = 0; i < gather->used; i++)
		gather->index[place_of(gather, gather->rows[i].chunk)] = (uint32_t)i + 1;
	/* a mapping that is grown keeps the mark */
	if (first && madvise(gather->texts, room * NAOS_CHUNK_BYTES, MADV_DONTDUMP) != 0)
		return naos_error_set(err, NAOS_E_UNSUPPORTED, "memory can't be kept out of core dumps");
	return 0;
}

int naos_gather_put(struct naos_gather *gather, uint64_t chunk, const uint8_t *text, uint32_t length, struct naos_error *err)
{
	struct naos_gathered *row = NULL;
	uint8_t *place = naos_gather_find(gather, chunk, &row);
	if (!place) {
		if (gather->used >= gather->limit || gather->used >= UINT32_MAX / 4)
			return naos_error_set(err, NAOS_E_LIMIT, "too many changes are gathered");
		int rc = gather->used == gather->room ? grow(gather, err) : 0;
		if (rc != 0)
			return rc;
		gather->rows[gather->used++].chunk = chunk;
		gather->index[place_of(gather, chunk)] = (uint32_t)gather->used;
		row = &gather->rows[gather->used - 1];
		place = gather->texts + (gather->used - 1) * NAOS_CHUNK_BYTES;
	}
	if (length)
		memcpy(place, text, length);
	memset(place + length, 0, NAOS_CHUNK_BYTES - length);
	row->length = length;
	return 0;
}

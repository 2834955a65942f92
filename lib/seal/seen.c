/* Hash table with linear probing; rows are removed by shifting back.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/seen.h"

#include <string.h>

#define FIRST_ROOM 64

static size_t home(const struct naos_seen *seen, uint64_t chunk)
{
	return (size_t)((chunk * 0x9e3779b97f4a7c15u) >> 20) & (seen->room - 1);
}

static struct naos_seen_row *lookup(const struct naos_seen *seen, uint64_t chunk)
{
	size_t at = home(seen, chunk);
	while (seen->rows[at].stamp && seen->rows[at].chunk != chunk)
		at = (at + 1) & (seen->room - 1);
	return &seen->rows[at];
}

static bool grow(struct naos_seen *seen)
{
	struct naos_seen old = *seen;
	size_t room = old.room ? old.room * 2 : FIRST_ROOM;
	struct naos_seen_row *rows = room > NAOS_SEEN_MAX ? NULL : calloc(room, sizeof(*rows));
	if (!rows)
		return false;
	seen->rows = rows;
	seen->room = room;
	for (size_t i = 0; i < old.room; i++)
		if (old.rows[i].stamp)
			*lookup(seen, old.rows[i].chunk) = old.rows[i];
	free(old.rows);
	return true;
}

bool naos_seen_put(struct naos_seen *seen, uint64_t chunk, const struct naos_entry *entry)
{
	if (seen->flushes == 0)
		seen->flushes = 1;
	bool kept = true;
	if (seen->used * 4 >= seen->room * 3 && !grow(seen)) {
		if (seen->room == 0)
			return false;
		naos_seen_clear(seen);
		kept = false;
	}
	struct naos_seen_row *row = lookup(seen, chunk);
	seen->used += row->stamp == 0;
	row->chunk = chunk;
	row->stamp = seen->flushes;
	memcpy(row->nonce, entry->nonce, sizeof(row->nonce));
	return kept;
}

const struct naos_seen_row *naos_seen_find(const struct naos_seen *seen, uint64_t chunk)
{
	if (seen->used == 0)
		return NULL;
	const struct naos_seen_row *row = lookup(seen, chunk);
	return row->stamp ? row : NULL;
}

void naos_seen_remove(struct naos_seen *seen, uint64_t chunk)
{
	if (seen->used == 0)
		return;
	struct naos_seen_row *row = lookup(seen, chunk);
	if (!row->stamp)
		return;
	size_t mask = seen->room - 1, hole = (size_t)(row - seen->rows), at = hole;
	for (;;) {
		at = (at + 1) & mask;
		if (!seen->rows[at].stamp)
			break;
		size_t from = home(seen, seen->rows[at].chunk);
		if (((at - from) & mask) >= ((at - hole) & mask)) {
			seen->rows[hole] = seen->rows[at];
			hole = at;
		}
	}
	seen->rows[hole].stamp = 0;
	seen->used--;
}

void naos_seen_flushed(struct naos_seen *seen)
{
	seen->flushes = (seen->flushes ? seen->flushes : 1) + 1;
}

void naos_seen_clear(struct naos_seen *seen)
{
	if (seen->rows)
		memset(seen->rows, 0, seen->room * sizeof(*seen->rows));
	seen->used = 0;
}

void naos_seen_free(struct naos_seen *seen)
{
	free(seen->rows);
	*seen = (struct naos_seen){ 0 };
}

/* After a clean close, older contents put back: refused, or no difference, but for the documented limits.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "fail.h"

#define STATE_BYTES (2 * NAOS_SECTOR_BYTES)

struct attack {
	struct checker *checker;
	struct disk *disk;
	uint8_t *good;
	uint64_t good_size;
	struct attack_count *count;
};

enum outcome { SAME, REFUSED, HOLES_ONLY, OTHER };

/* How the file reads as it stands now. */
static enum outcome outcome(struct attack *attack)
{
	const struct naos_fek_source source = test_key_source(&attack->checker->key);
	struct naos_sealed_file *file;
	struct naos_error err;
	size_t got = 0, room = (size_t)attack->good_size + 4096;
	attack->count->tried++;
	int rc = naos_sealed_file_open(disk_store(attack->disk), NAOS_SEALED_READ, &source, &file, &err);
	if (rc == 0) {
		uint8_t *data = must(malloc(room));
		rc = naos_sealed_file_read(file, data, room, 0, &got, &err);
		enum outcome result = got == attack->good_size ? SAME : OTHER;
		for (size_t i = 0; rc == 0 && i < got && result != OTHER; i++)
			if (data[i] != attack->good[i])
				result = data[i] == 0 ? HOLES_ONLY : OTHER;
		free(data);
		checker_leave(file);
		if (rc == 0)
			return result;
	}
	if (naos_error_exit_status(rc) != 4)
		violation("an attack gives the wrong error: %s", err.message);
	return REFUSED;
}

/* Puts old bytes in place, looks, puts the present ones back. */
static enum outcome replace(struct attack *attack, uint64_t page, const uint8_t *old, unsigned first, unsigned bytes)
{
	uint8_t *place = attack->disk->now.pages[page] + first, kept[NAOS_CHUNK_BYTES];
	if (memcmp(place, old + first, bytes) == 0)
		return SAME;
	memcpy(kept, place, bytes);
	memcpy(place, old + first, bytes);
	enum outcome result = outcome(attack);
	memcpy(place, kept, bytes);
	return result;
}

static void judge(struct attack *attack, enum outcome result, bool state, bool metadata, uint64_t page)
{
	if (result == SAME || result == REFUSED)
		return;
	if (state)
		attack->count->older_state++;
	else if (metadata && result == HOLES_ONLY)
		attack->count->hole_in_older_sector++;
	else
		violation("an older content of page %llu is accepted", (unsigned long long)page);
}

static void with_older_states(struct attack *attack, uint64_t page, const uint8_t *old)
{
	const struct disk_history *history = attack->disk->history;
	uint8_t *data = attack->disk->now.pages[page], *page0 = attack->disk->now.pages[0], kept[NAOS_CHUNK_BYTES];
	if (memcmp(data, old, NAOS_CHUNK_BYTES) == 0)
		return;
	memcpy(kept, data, sizeof(kept));
	memcpy(data, old, sizeof(kept));
	for (size_t i = 0; i < history->count; i++) {
		if (history->versions[i].page != 0 || rng_below(&attack->checker->rng, 8) ||
		    memcmp(history->versions[i].data + NAOS_STATE_OFFSET, page0 + NAOS_STATE_OFFSET, STATE_BYTES) == 0)
			continue;
		enum outcome result = replace(attack, 0, history->versions[i].data, NAOS_STATE_OFFSET, STATE_BYTES);
		attack->count->older_state_and_data += result != SAME && result != REFUSED;
	}
	memcpy(data, kept, sizeof(kept));
}

void checker_attack(struct checker *checker, struct disk *disk, struct attack_count *count)
{
	struct attack attack = { .checker = checker, .disk = disk, .count = count };
	const struct disk_history *history = disk->history;
	struct view view;
	if (!checker_look(checker, disk, "before the attacks", &view, &attack.good))
		violation("the file can't be read");
	attack.good_size = view.size;
	view_free(&view);
	for (size_t i = 0; i < history->count; i++) {
		uint64_t page = history->versions[i].page;
		const uint8_t *old = history->versions[i].data;
		if (page * NAOS_CHUNK_BYTES >= disk->now.bytes)
			continue;
		judge(&attack, replace(&attack, page, old, 0, NAOS_CHUNK_BYTES), page == 0, disk_page_kind(page) != PAGE_DATA, page);
		if (disk_page_kind(page) == PAGE_DATA) {
			with_older_states(&attack, page, old);
			continue;
		}
		for (unsigned first = 0; first < NAOS_CHUNK_BYTES; first += NAOS_SECTOR_BYTES)
			judge(&attack, replace(&attack, page, old, first, NAOS_SECTOR_BYTES), false, true, page); /* one state slot, too */
		if (page == 0)
			judge(&attack, replace(&attack, 0, old, NAOS_STATE_OFFSET, STATE_BYTES), true, true, 0);
	}
	free(attack.good);
}

/* Writing versions of chunks: rules 2 to 5 and 9.  The order of writes and flushes here is the crash guarantee; the executable
 * model of it is tests/model/model.py (Writer.put).  SPDX-License-Identifier: Apache-2.0 */
#include "seal/file.h"

#include <string.h>

/* One chunk of a batch on its way. */
struct step {
	const struct naos_change *change;
	struct naos_sector *sector;
	struct naos_entry entry; /* the new version */
	bool dead;               /* its newest version was left by a writer that died */
	bool replace;            /* the newest version is not durable and need not be: its slot is used again */
	bool wait;               /* stands over durable data: flush between tag and data */
	bool trim;               /* a hole over data: the block is given back after a flush (rule 12) */
};

/* The sectors that a batch touches, ascending. */
struct touched {
	uint64_t number;
	struct naos_sector sector;
};

struct batch {
	struct step *steps;
	size_t count;
	struct touched *touched;
	size_t touched_count;
};

static void batch_free(struct batch *batch)
{
	free(batch->steps);
	free(batch->touched);
}

int naos_file_hole_entry(struct naos_sealed_file *file, uint32_t seq, uint32_t length, struct naos_entry *ret, struct naos_error *err)
{
	*ret = (struct naos_entry){ .epoch = file->epoch, .seq = seq, .length = length, .hole = true };
	return naos_nonce_next(ret->nonce, err);
}

/* --- tag sectors ------------------------------------------------------------------------------------------------ */

/* Writes touched sectors, those that lie side by side in one write. */
static int write_sectors(struct naos_sealed_file *file, const struct touched *touched, size_t count, struct naos_error *err)
{
	uint8_t page[NAOS_CHUNK_BYTES];
	size_t filled = 0;
	uint64_t start = 0;
	for (size_t i = 0; i < count; i++) {
		if (filled == 0)
			start = touched[i].number;
		int rc = naos_sector_encode(file->keys, touched[i].number, &touched[i].sector, page + filled, err);
		if (rc != 0)
			return rc;
		filled += NAOS_SECTOR_BYTES;
		bool joined = i + 1 < count && touched[i + 1].number == touched[i].number + 1 &&
			      touched[i + 1].number % NAOS_TAG_PAGE_SECTORS != 0;
		if (joined)
			continue;
		rc = file->store->ops->write(file->store, page, filled, naos_layout_sector_offset(start), err);
		if (rc != 0)
			return rc;
		filled = 0;
	}
	return 0;
}

/* Reads the sectors of chunks [of(0), of(count - 1)] into touched. */
static int touch(struct naos_sealed_file *file, const uint64_t *chunks, size_t count, struct touched **ret, size_t *ret_count,
		 struct naos_error *err)
{
	naos_autofree struct touched *touched = calloc(count, sizeof(*touched));
	naos_autofree struct naos_group_view *view = calloc(1, sizeof(*view));
	size_t used = 0;
	if (!touched || !view)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to write %s", file->store->name);
	for (size_t i = 0; i < count; i++) {
		struct naos_sector *sector;
		uint64_t number = naos_layout_sector(chunks[i]);
		if (used && touched[used - 1].number == number)
			continue;
		int rc = naos_file_sector(file, view, chunks[i], &sector, err);
		if (rc != 0)
			return rc;
		touched[used++] = (struct touched){ .number = number, .sector = *sector };
	}
	*ret = naos_steal(touched);
	*ret_count = used;
	return 0;
}

int naos_file_put_entries(struct naos_sealed_file *file, const uint64_t *chunks, const struct naos_entry (*entries)[2], size_t count,
			  struct naos_error *err)
{
	naos_autofree struct touched *touched = NULL;
	size_t used;
	int rc = touch(file, chunks, count, &touched, &used, err);
	for (size_t i = 0, at = 0; rc == 0 && i < count; i++) {
		while (touched[at].number != naos_layout_sector(chunks[i]))
			at++;
		memcpy(naos_sector_pair(&touched[at].sector, chunks[i]), entries[i], sizeof(entries[i]));
		touched[at].sector.absent = false;
	}
	return rc ? rc : write_sectors(file, touched, used, err);
}

/* Rule 9: before the first entry in a group that the map calls a hole, hole entries for all its chunks below size. */
static int materialise(struct naos_sealed_file *file, uint64_t group, struct naos_error *err)
{
	bool hole;
	int rc = naos_file_in_map(file, group, &hole, err);
	if (rc != 0 || !hole)
		return rc;
	naos_autofree struct naos_group_view *view = calloc(1, sizeof(*view));
	uint64_t chunks[NAOS_GROUP_CHUNKS];
	struct naos_entry entries[NAOS_GROUP_CHUNKS][2];
	size_t count = 0;
	if (!view)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to write %s", file->store->name);
	for (uint64_t chunk = naos_layout_first(group); chunk < naos_layout_first(group + 1); chunk++) {
		struct naos_sector *sector;
		if (chunk * NAOS_CHUNK_BYTES >= file->size)
			break;
		rc = naos_file_sector(file, view, chunk, &sector, err);
		if (rc != 0)
			return rc;
		if (!sector->absent)
			continue;
		chunks[count] = chunk;
		memset(entries[count], 0, sizeof(entries[count]));
		rc = naos_file_hole_entry(file, 1, naos_chunk_room(chunk, file->size), &entries[count][1], err);
		if (rc != 0)
			return rc;
		count++;
	}
	if (count)
		rc = naos_file_put_entries(file, chunks, (const struct naos_entry(*)[2])entries, count, err);
	return rc ? rc : naos_file_remember_filled(file, group, err);
}

/* --- the rules ---------------------------------------------------------------------------------------------------- */

static bool is_mine(const struct naos_sealed_file *file, uint64_t chunk, const struct naos_entry *entry)
{
	const struct naos_seen_row *row = naos_seen_find(&file->seen, chunk);
	return row && naos_entry_equal(&row->entry, entry);
}

/* Rule 2: sealed, or covered by a flush of ours. */
static bool is_durable(const struct naos_sealed_file *file, uint64_t chunk, const struct naos_entry *entry)
{
	const struct naos_seen_row *row = naos_seen_find(&file->seen, chunk);
	return entry->epoch <= file->sealed_epoch ||
	       (row && naos_seen_durable(&file->seen, row) && naos_entry_equal(&row->entry, entry));
}

/* Rule 4: the newest version is not durable, and the other slot must not be lost. */
static bool asks_flush(const struct naos_sealed_file *file, bool mine, const struct naos_entry *older)
{
	return (older && !older->hole) || file->state.shared || !mine;
}

bool naos_file_put_waits(const struct naos_sealed_file *file, uint64_t chunk, const struct naos_entry pair[static 2])
{
	const struct naos_entry *newer, *older;
	naos_entry_sort(pair, &newer, &older);
	if (!newer || file->unpublished)
		return false;
	return is_durable(file, chunk, newer) ? !newer->hole : asks_flush(file, is_mine(file, chunk, newer), older);
}

/* Rules 4 and 5: one flush before versions are replaced of which no flush is known. */
static int flush_in_flight(struct naos_sealed_file *file, struct batch *batch, struct naos_error *err)
{
	bool ask = false;
	for (size_t i = 0; i < batch->count; i++) {
		struct step *step = &batch->steps[i];
		uint64_t chunk = step->change->chunk;
		const struct naos_entry *newer, *older;
		naos_entry_sort(naos_sector_pair(step->sector, chunk), &newer, &older);
		if (!newer || (!file->unpublished && is_durable(file, chunk, newer)))
			continue;
		if (file->unpublished) {
			step->replace = true;
			continue;
		}
		bool mine = is_mine(file, chunk, newer);
		if (!mine) {
			uint8_t text[NAOS_CHUNK_BYTES];
			bool opened;
			int rc = naos_file_open_version(file, chunk, newer, text, &opened, err);
			naos_wipe(text, sizeof(text));
			if (rc != 0)
				return rc;
			step->dead = !opened;
		}
		bool flush = asks_flush(file, mine, older);
		if (flush)
			naos_seen_put(&file->seen, chunk, newer);
		step->replace = step->dead || !flush;
		ask |= flush;
	}
	int rc = ask ? naos_file_store_flush(file, err) : 0;
	for (size_t i = 0; ask && rc == 0 && i < batch->count; i++) { /* the flush made this writer's other versions durable, too */
		struct step *step = &batch->steps[i];
		const struct naos_entry *newer, *older;
		naos_entry_sort(naos_sector_pair(step->sector, step->change->chunk), &newer, &older);
		step->replace = step->replace && (step->dead || !is_durable(file, step->change->chunk, newer));
	}
	return rc;
}

/* Number, nonce and place of each new version; encrypts data into the scratch buffer. */
static int make_versions(struct naos_sealed_file *file, struct batch *batch, struct naos_error *err)
{
	for (size_t i = 0; i < batch->count; i++) {
		struct step *step = &batch->steps[i];
		const struct naos_change *change = step->change;
		struct naos_entry *pair = naos_sector_pair(step->sector, change->chunk);
		const struct naos_entry *newer, *older, *base;
		naos_entry_sort(pair, &newer, &older);
		if (newer && newer->seq > UINT32_MAX - 2)
			return naos_error_set(err, NAOS_E_LIMIT, "%s: chunk %llu was written 2^32 times: copy the file", file->store->name,
					      (unsigned long long)change->chunk);
		step->entry = (struct naos_entry){
			.epoch = file->epoch,
			.seq = newer ? newer->seq + (step->replace ? 2 : 1) : 1,
			.length = change->length,
			.hole = !change->text,
		};
		base = step->dead ? older : step->replace ? NULL : newer;
		step->wait = change->text && base && !base->hole;
		step->trim = !change->text && change->length &&
			     ((newer && !newer->hole) || naos_seen_find(&file->trim, change->chunk) != NULL);
		int rc = naos_nonce_next(step->entry.nonce, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* Seals steps [from, to), which share a data key, into the scratch buffer. */
static int encrypt_run(struct naos_sealed_file *file, struct batch *batch, size_t from, size_t to, const struct naos_gcm_key *key,
		       struct naos_error *err)
{
	enum { RUN = NAOS_GROUP_CHUNKS };
	struct naos_gcm_message messages[RUN];
	uint8_t associated[RUN][NAOS_CHUNK_ASSOCIATED_BYTES];
	while (from < to) {
		size_t count = 0;
		for (; from < to && count < RUN; from++) {
			struct step *step = &batch->steps[from];
			if (!step->change->text)
				continue;
			naos_entry_associated(&file->header.file_id, step->change->chunk, &step->entry, associated[count]);
			messages[count] = (struct naos_gcm_message){
				.nonce = step->entry.nonce,
				.associated = associated[count],
				.associated_bytes = NAOS_CHUNK_ASSOCIATED_BYTES,
				.in = step->change->text,
				.out = file->scratch + from * NAOS_CHUNK_BYTES,
				.bytes = step->entry.length,
				.tag = step->entry.tag,
			};
			count++;
		}
		int rc = naos_gcm_seal_many(key, messages, count, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int encrypt(struct naos_sealed_file *file, struct batch *batch, struct naos_error *err)
{
	size_t from = 0;
	while (from < batch->count) {
		const struct step *first = &batch->steps[from];
		struct naos_data_key *key;
		size_t to = from + 1;
		int rc = naos_file_keys_get(file->keys, first->change->chunk, first->entry.seq, &key, err);
		if (rc != 0)
			return rc;
		while (to < batch->count &&
		       naos_data_key_covers(key, batch->steps[to].change->chunk, batch->steps[to].entry.seq))
			to++;
		rc = encrypt_run(file, batch, from, to, naos_data_key_gcm(key), err);
		naos_file_keys_put(file->keys, key);
		if (rc != 0)
			return rc;
		from = to;
	}
	return 0;
}

/* Writes the data of those steps whose `wait` is as given; chunks that lie side by side in one write. */
static int write_data(struct naos_sealed_file *file, const struct batch *batch, bool wait, struct naos_error *err)
{
	size_t i = 0;
	while (i < batch->count) {
		const struct step *step = &batch->steps[i];
		if (!step->change->text || step->wait != wait) {
			i++;
			continue;
		}
		size_t from = i++, bytes = step->entry.length;
		while (i < batch->count && batch->steps[i].change->text && batch->steps[i].wait == wait &&
		       batch->steps[i - 1].entry.length == NAOS_CHUNK_BYTES &&
		       naos_layout_data_page(batch->steps[i].change->chunk) == naos_layout_data_page(batch->steps[i - 1].change->chunk) + 1)
			bytes += batch->steps[i++].entry.length;
		int rc = file->store->ops->write(file->store, file->scratch + from * NAOS_CHUNK_BYTES, bytes,
						 naos_layout_data_offset(step->change->chunk), err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* The versions that stand in the sectors now are this writer's: remembered until a flush covers them. */
static void remember(struct naos_sealed_file *file, const struct batch *batch, bool before_flush)
{
	for (size_t i = 0; i < batch->count && !file->unpublished; i++) {
		const struct step *step = &batch->steps[i];
		if (!before_flush || !step->wait)
			naos_seen_put(&file->seen, step->change->chunk, &step->entry);
	}
}

/* A version that is longer than the durable one below it: the file must be as long before its data is written, or a power cut
 * could leave the new data with the old length, which neither version opens.  The byte lies behind the older version. */
static int reserve_length(struct naos_sealed_file *file, const struct batch *batch, struct naos_error *err)
{
	static const uint8_t zero = 0;
	size_t last = batch->count;
	while (last > 0 && !batch->steps[last - 1].wait)
		last--;
	if (last == 0)
		return 0;
	const struct step *step = &batch->steps[last - 1];
	uint64_t end = naos_layout_data_offset(step->change->chunk) + step->entry.length, bytes;
	int rc = file->store->ops->size(file->store, &bytes, err);
	return rc || bytes >= end ? rc : file->store->ops->write(file->store, &zero, 1, end - 1, err);
}

static int place(struct naos_sealed_file *file, struct batch *batch, struct naos_error *err)
{
	bool order = false;
	for (size_t i = 0; i < batch->count; i++) {
		struct step *step = &batch->steps[i];
		naos_sector_pair(step->sector, step->change->chunk)[step->entry.seq & 1] = step->entry;
		step->sector->absent = false;
		if (step->trim)
			file->untidy |= !naos_seen_put(&file->trim, step->change->chunk, &step->entry); /* recovery gives back the rest */
		else
			naos_seen_remove(&file->trim, step->change->chunk);
		order |= step->wait;
	}
	int rc = write_data(file, batch, false, err);
	if (rc == 0)
		rc = reserve_length(file, batch, err);
	if (rc == 0)
		rc = write_sectors(file, batch->touched, batch->touched_count, err);
	if (rc != 0)
		return rc;
	if (order) { /* rule 3: tags are durable before the data below them is replaced */
		remember(file, batch, true);
		rc = naos_file_store_flush(file, err);
		if (rc == 0)
			rc = write_data(file, batch, true, err);
		if (rc != 0)
			return rc;
		for (size_t i = 0; i < batch->count; i++)
			if (batch->steps[i].wait)
				naos_seen_put(&file->seen, batch->steps[i].change->chunk, &batch->steps[i].entry);
		return 0;
	}
	remember(file, batch, false);
	return 0;
}

static int prepare(struct naos_sealed_file *file, const struct naos_change *changes, size_t count, struct batch *batch,
		   struct naos_error *err)
{
	uint64_t chunks[NAOS_BATCH_CHUNKS];
	for (size_t i = 0; i < count; i++) {
		chunks[i] = changes[i].chunk;
		uint64_t group = naos_layout_group(chunks[i]);
		if (i == 0 || group != naos_layout_group(chunks[i - 1])) {
			int rc = materialise(file, group, err);
			if (rc != 0)
				return rc;
		}
	}
	if (!file->scratch && posix_memalign((void **)&file->scratch, NAOS_CHUNK_BYTES, (size_t)NAOS_BATCH_CHUNKS * NAOS_CHUNK_BYTES) != 0)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to write %s", file->store->name);
	batch->steps = calloc(count, sizeof(*batch->steps));
	batch->count = count;
	if (!batch->steps)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to write %s", file->store->name);
	int rc = touch(file, chunks, count, &batch->touched, &batch->touched_count, err);
	for (size_t i = 0, at = 0; rc == 0 && i < count; i++) {
		while (batch->touched[at].number != naos_layout_sector(chunks[i]))
			at++;
		batch->steps[i] = (struct step){ .change = &changes[i], .sector = &batch->touched[at].sector };
	}
	return rc;
}

int naos_file_put(struct naos_sealed_file *file, const struct naos_change *changes, size_t count, struct naos_error *err)
{
	naos_cleanup(batch_free) struct batch batch = { 0 };
	if (file->failed)
		return naos_error_set(err, file->failed, "%s: an earlier flush failed; close the file and open it again",
				      file->store->name);
	int rc = prepare(file, changes, count, &batch, err);
	if (rc == 0)
		rc = flush_in_flight(file, &batch, err);
	if (rc == 0)
		rc = make_versions(file, &batch, err);
	if (rc == 0)
		rc = encrypt(file, &batch, err);
	if (rc == 0)
		rc = place(file, &batch, err);
	for (size_t i = 0; rc == 0 && i < count; i++) {
		uint64_t end = changes[i].chunk * NAOS_CHUNK_BYTES + changes[i].length;
		if (changes[i].length && end > file->size)
			file->size = end;
	}
	return rc;
}

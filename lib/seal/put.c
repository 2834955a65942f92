/* Writing versions of chunks: rules 2 to 5 and 9.  The order of writes and flushes here is the crash guarantee; the executable
 * model of it is tests/model/model.py (Writer.put).  SPDX-License-Identifier: Apache-2.0 */
#include "seal/file.h"

#include <string.h>

/* One chunk of a batch on its way. */
struct step {
	const struct naos_change *change;
	struct naos_sector *sector;
	uint8_t *kept;           /* ciphertext that waits for the flush */
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
	uint8_t *kept; /* ciphertext of all steps that wait */
	struct naos_group_view *view;
};

static void batch_free(struct batch *batch)
{
	free(batch->steps);
	free(batch->touched);
	free(batch->kept);
	naos_file_return_view(&batch->view);
}

int naos_file_hole_entry(struct naos_sealed_file *file, uint32_t seq, uint32_t length, struct naos_entry *ret, struct naos_error *err)
{
	*ret = (struct naos_entry){ .epoch = file->epoch, .seq = seq, .length = length, .hole = true };
	return naos_nonce_next(ret->nonce, err);
}

/* --- tag sectors ------------------------------------------------------------------------------------------------ */

/* Encodes touched sectors that lie side by side in one tag page, into the view of their group too. */
static int encode_sectors(struct naos_sealed_file *file, struct naos_group_view *view, const struct touched *touched, size_t count,
			  uint8_t *out, struct naos_error *err)
{
	uint64_t group = touched[0].number / NAOS_TAG_PAGE_SECTORS;
	for (size_t i = 0; i < count; i++) {
		unsigned place = (unsigned)(touched[i].number % NAOS_TAG_PAGE_SECTORS);
		uint8_t *sector = out + i * NAOS_SECTOR_BYTES;
		int rc = naos_sector_encode(file->keys, touched[i].number, &touched[i].sector, sector, err);
		if (rc != 0)
			return rc;
		if (view->valid && view->group == group) {
			memcpy(view->raw + place * NAOS_SECTOR_BYTES, sector, NAOS_SECTOR_BYTES);
			view->sectors[place] = touched[i].sector;
			view->loaded[place] = view->decoded[place] = true;
		}
	}
	return 0;
}

/* How many of the touched sectors lie side by side in one tag page. */
static size_t side_by_side(const struct touched *touched, size_t count)
{
	size_t run = 1;
	while (run < count && touched[run].number == touched[run - 1].number + 1 && touched[run].number % NAOS_TAG_PAGE_SECTORS != 0)
		run++;
	return run;
}

static int write_sectors(struct naos_sealed_file *file, struct naos_group_view *view, const struct touched *touched, size_t count,
			 struct naos_error *err)
{
	uint8_t page[NAOS_CHUNK_BYTES];
	for (size_t i = 0, run; i < count; i += run) {
		run = side_by_side(touched + i, count - i);
		int rc = encode_sectors(file, view, touched + i, run, page, err);
		if (rc == 0)
			rc = file->store->ops->write(file->store, page, run * NAOS_SECTOR_BYTES,
						     naos_layout_sector_offset(touched[i].number), err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* Tags are written, or may be: what the view holds is right in the first case only. */
static void end_tags(struct naos_sealed_file *file, struct naos_group_view *view, bool right)
{
	naos_file_tags_written(file);
	view->valid &= right;
	view->stamp = file->tag_writes;
}

/* Reads the sectors of chunks [of(0), of(count - 1)] into touched. */
static int touch(struct naos_sealed_file *file, struct naos_group_view *view, const uint64_t *chunks, size_t count, struct touched **ret,
		 size_t *ret_count, struct naos_error *err)
{
	size_t sectors = 0, used = 0;
	for (size_t i = 0; i < count; i++)
		sectors += i == 0 || naos_layout_sector(chunks[i]) != naos_layout_sector(chunks[i - 1]);
	naos_autofree struct touched *touched = malloc(sectors * sizeof(*touched));
	if (!touched)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to write %s", file->store->name);
	for (size_t i = 0; i < count; i++) {
		struct naos_sector *sector;
		uint64_t number = naos_layout_sector(chunks[i]);
		if (used && touched[used - 1].number == number)
			continue;
		int rc = naos_file_sector(file, view, chunks[i], &sector, err);
		if (rc != 0)
			return rc;
		touched[used].number = number;
		touched[used++].sector = *sector;
	}
	*ret = naos_steal(touched);
	*ret_count = used;
	return 0;
}

int naos_file_put_entries(struct naos_sealed_file *file, const uint64_t *chunks, const struct naos_entry (*entries)[2], size_t count,
			  struct naos_error *err)
{
	naos_autofree struct touched *touched = NULL;
	naos_autoview struct naos_group_view *view = naos_file_borrow_view(file, err);
	size_t used = 0;
	int rc = view ? touch(file, view, chunks, count, &touched, &used, err) : NAOS_E_NOMEM;
	for (size_t i = 0, at = 0; rc == 0 && i < count; i++) {
		while (touched[at].number != naos_layout_sector(chunks[i]))
			at++;
		memcpy(naos_sector_pair(&touched[at].sector, chunks[i]), entries[i], sizeof(entries[i]));
		touched[at].sector.absent = false;
	}
	if (rc != 0)
		return rc;
	rc = write_sectors(file, view, touched, used, err);
	end_tags(file, view, rc == 0);
	return rc;
}

/* Rule 9: before the first entry in a group that the map calls a hole, hole entries for all its chunks below size. */
static int materialise(struct naos_sealed_file *file, uint64_t group, struct naos_error *err)
{
	bool hole;
	int rc = naos_file_in_map(file, group, &hole, err);
	if (rc != 0 || !hole)
		return rc;
	naos_autoview struct naos_group_view *view = naos_file_borrow_view(file, err);
	uint64_t chunks[NAOS_GROUP_CHUNKS];
	struct naos_entry entries[NAOS_GROUP_CHUNKS][2];
	size_t count = 0;
	if (!view)
		return NAOS_E_NOMEM;
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
	return row && naos_seen_is(row, entry);
}

/* Rule 2: sealed, or covered by a flush of ours. */
static bool is_durable(const struct naos_sealed_file *file, uint64_t chunk, const struct naos_entry *entry)
{
	const struct naos_seen_row *row = naos_seen_find(&file->seen, chunk);
	return entry->epoch <= file->sealed_epoch ||
	       (row && naos_seen_durable(&file->seen, row) && naos_seen_is(row, entry));
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

/* Nonces of all new versions at once. */
static int draw_nonces(struct batch *batch, struct naos_error *err)
{
	uint8_t nonces[NAOS_GROUP_CHUNKS][NAOS_GCM_NONCE_BYTES];
	for (size_t from = 0, count; from < batch->count; from += count) {
		count = batch->count - from < NAOS_GROUP_CHUNKS ? batch->count - from : NAOS_GROUP_CHUNKS;
		int rc = naos_nonce_fill(nonces[0], count, err);
		if (rc != 0)
			return rc;
		for (size_t i = 0; i < count; i++)
			memcpy(batch->steps[from + i].entry.nonce, nonces[i], NAOS_GCM_NONCE_BYTES);
	}
	return 0;
}

/* Number and place of each new version. */
static int make_versions(struct naos_sealed_file *file, struct batch *batch, struct naos_error *err)
{
	size_t waiting = 0;
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
		waiting += step->wait;
	}
	batch->kept = waiting ? malloc(waiting * NAOS_CHUNK_BYTES) : NULL;
	if (waiting && !batch->kept)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to write %s", file->store->name);
	for (size_t i = batch->count; i-- > 0;)
		if (batch->steps[i].wait)
			batch->steps[i].kept = batch->kept + --waiting * NAOS_CHUNK_BYTES;
	return draw_nonces(batch, err);
}

/* Seals the texts of steps [from, to) of one group: those that wait to their `kept`, the others one behind the other to out. */
static int encrypt(struct naos_sealed_file *file, struct batch *batch, size_t from, size_t to, uint8_t *out, struct naos_error *err)
{
	struct naos_gcm_message messages[NAOS_GROUP_CHUNKS];
	uint8_t associated[NAOS_GROUP_CHUNKS][NAOS_CHUNK_ASSOCIATED_BYTES];
	while (from < to) {
		const struct step *first = &batch->steps[from];
		struct naos_data_key *key;
		size_t count = 0;
		int rc = naos_file_keys_get(file->keys, first->change->chunk, first->entry.seq, &key, err);
		if (rc != 0)
			return rc;
		for (; from < to && naos_data_key_covers(key, batch->steps[from].change->chunk, batch->steps[from].entry.seq); from++) {
			struct step *step = &batch->steps[from];
			if (!step->change->text)
				continue;
			naos_entry_associated(&file->header.file_id, step->change->chunk, &step->entry, associated[count]);
			messages[count] = (struct naos_gcm_message){
				.nonce = step->entry.nonce,
				.associated = associated[count],
				.associated_bytes = NAOS_CHUNK_ASSOCIATED_BYTES,
				.in = step->change->text,
				.out = step->wait ? step->kept : out,
				.bytes = step->entry.length,
				.tag = step->entry.tag,
			};
			out += step->wait ? 0 : NAOS_CHUNK_BYTES;
			count++;
		}
		rc = count ? naos_gcm_seal_many(naos_data_key_gcm(key), messages, count, err) : 0;
		naos_file_keys_put(file->keys, key);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* Steps [from, to) whose data lies side by side in memory and on the store: writes all of it at once. */
static size_t data_run(const struct batch *batch, size_t from, size_t to, bool wait, size_t *ret_bytes)
{
	size_t at = from + 1;
	*ret_bytes = batch->steps[from].entry.length;
	while (at < to && batch->steps[at].change->text && batch->steps[at].wait == wait &&
	       batch->steps[at - 1].entry.length == NAOS_CHUNK_BYTES &&
	       naos_layout_data_page(batch->steps[at].change->chunk) == naos_layout_data_page(batch->steps[at - 1].change->chunk) + 1)
		*ret_bytes += batch->steps[at++].entry.length;
	return at;
}

/* Data of the steps of one group that do not wait; `data` is as `encrypt` left it. */
static int write_data(struct naos_sealed_file *file, const struct batch *batch, size_t from, size_t to, const uint8_t *data,
		      struct naos_error *err)
{
	while (from < to) {
		const struct step *step = &batch->steps[from];
		size_t bytes, start = from;
		if (!step->change->text || step->wait) {
			from++;
			continue;
		}
		from = data_run(batch, from, to, false, &bytes);
		int rc = file->store->ops->write(file->store, data, bytes, naos_layout_data_offset(step->change->chunk), err);
		if (rc != 0)
			return rc;
		data += (from - start) * NAOS_CHUNK_BYTES;
	}
	return 0;
}

/* Data that waited for its tags to be durable. */
static int write_kept(struct naos_sealed_file *file, const struct batch *batch, struct naos_error *err)
{
	for (size_t i = 0, bytes; i < batch->count;) {
		const struct step *step = &batch->steps[i];
		if (!step->wait) {
			i++;
			continue;
		}
		i = data_run(batch, i, batch->count, true, &bytes);
		int rc = file->store->ops->write(file->store, step->kept, bytes, naos_layout_data_offset(step->change->chunk), err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* The versions that stand in the sectors now are this writer's: remembered until a flush covers them. */
static void remember(struct naos_sealed_file *file, const struct batch *batch, bool wait)
{
	for (size_t i = 0; i < batch->count && !file->unpublished; i++)
		if (batch->steps[i].wait == wait)
			naos_seen_put(&file->seen, batch->steps[i].change->chunk, &batch->steps[i].entry);
}

/* A version that is longer than the durable one below it: that the file is as long must be durable before its data is written, or a
 * power cut could leave the new data with the old length, which neither version opens.  The byte lies behind the older version. */
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

/* Whether page 0 of a new file and the data of steps [from, to) of group 0 are one piece. */
static bool is_birth(const struct naos_sealed_file *file, const struct batch *batch, size_t from, size_t to)
{
	size_t bytes;
	return file->unborn && from == 0 && batch->steps[0].change->chunk == 0 && batch->steps[0].change->text &&
	       data_run(batch, 0, to, false, &bytes) == to;
}

/* Page 0 with these tags, and the data behind it. */
static int write_birth(struct naos_sealed_file *file, struct batch *batch, size_t to, struct touched *touched, size_t touched_count,
		       uint8_t *pages, struct naos_error *err)
{
	size_t bytes;
	(void)data_run(batch, 0, to, false, &bytes);
	memcpy(pages, file->unborn, NAOS_CHUNK_BYTES);
	int rc = encode_sectors(file, batch->view, touched, touched_count, pages + NAOS_FIRST_SECTORS_OFFSET, err);
	if (rc == 0)
		rc = file->store->ops->write(file->store, pages, NAOS_CHUNK_BYTES + bytes, 0, err);
	if (rc != 0)
		return rc;
	free(file->unborn);
	file->unborn = NULL;
	return 0;
}

/* Whether the tags and the data of steps [from, to) of one group are one piece of the file: so they are for a group that is written
 * for the first time, the common case of a file that grows.  Then the tag may come to the store before its data, as after a power cut;
 * a reader beside this writer looks again. */
static bool is_one_piece(const struct naos_sealed_file *file, const struct batch *batch, size_t from, size_t to,
			 const struct touched *touched, size_t touched_count)
{
	const struct step *first = &batch->steps[from];
	uint64_t group = naos_layout_group(first->change->chunk), sectors = group ? NAOS_TAG_PAGE_SECTORS : NAOS_FIRST_GROUP_SECTORS;
	size_t bytes;
	return file->mode == NAOS_SEALED_LOCAL && first->change->text && !first->wait && first->entry.seq == 1 &&
	       first->change->chunk == naos_layout_first(group) && side_by_side(touched, touched_count) == touched_count &&
	       touched[touched_count - 1].number % NAOS_TAG_PAGE_SECTORS == sectors - 1 && data_run(batch, from, to, false, &bytes) == to;
}

/* Steps [from, to) of one group: data that needs no flush, and tags. */
static int place_group(struct naos_sealed_file *file, struct batch *batch, size_t from, size_t to, struct touched *touched,
		       size_t touched_count, uint8_t *pages, struct naos_error *err)
{
	uint8_t *data = pages + NAOS_CHUNK_BYTES;
	int rc = encrypt(file, batch, from, to, data, err);
	if (rc != 0)
		return rc;
	for (size_t i = from; i < to; i++) {
		struct step *step = &batch->steps[i];
		naos_sector_pair(step->sector, step->change->chunk)[step->entry.seq & 1] = step->entry;
		step->sector->absent = false;
		if (step->trim)
			file->untidy |= !naos_seen_put(&file->trim, step->change->chunk, &step->entry); /* recovery gives back the rest */
		else
			naos_seen_remove(&file->trim, step->change->chunk);
	}
	if (is_birth(file, batch, from, to))
		return write_birth(file, batch, to, touched, touched_count, pages, err);
	rc = naos_file_bear(file, err);
	if (rc != 0)
		return rc;
	if (is_one_piece(file, batch, from, to, touched, touched_count)) {
		size_t bytes, tag_bytes = touched_count * NAOS_SECTOR_BYTES;
		(void)data_run(batch, from, to, false, &bytes);
		rc = encode_sectors(file, batch->view, touched, touched_count, data - tag_bytes, err);
		return rc ? rc : file->store->ops->write(file->store, data - tag_bytes, tag_bytes + bytes,
							 naos_layout_sector_offset(touched[0].number), err);
	}
	rc = write_data(file, batch, from, to, data, err);
	return rc ? rc : write_sectors(file, batch->view, touched, touched_count, err);
}

/* Group by group, so that what was encrypted is still in the processor's cache when it is written. */
static int place_groups(struct naos_sealed_file *file, struct batch *batch, struct naos_error *err)
{
	size_t most = batch->count < NAOS_GROUP_CHUNKS ? batch->count : NAOS_GROUP_CHUNKS;
	naos_autofree uint8_t *pages = malloc((1 + most) * NAOS_CHUNK_BYTES);
	int rc = pages ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory to write %s", file->store->name);
	for (size_t from = 0, to, tag = 0, tag_to; rc == 0 && from < batch->count; from = to, tag = tag_to) {
		uint64_t group = naos_layout_group(batch->steps[from].change->chunk);
		for (to = from; to < batch->count && naos_layout_group(batch->steps[to].change->chunk) == group; to++)
			;
		for (tag_to = tag; tag_to < batch->touched_count && batch->touched[tag_to].number / NAOS_TAG_PAGE_SECTORS == group; tag_to++)
			;
		rc = place_group(file, batch, from, to, batch->touched + tag, tag_to - tag, pages, err);
	}
	end_tags(file, batch->view, rc == 0);
	return rc;
}

static int place(struct naos_sealed_file *file, struct batch *batch, struct naos_error *err)
{
	int rc = place_groups(file, batch, err);
	if (rc != 0)
		return rc;
	remember(file, batch, false);
	if (!batch->kept)
		return 0;
	rc = reserve_length(file, batch, err);
	if (rc == 0) /* rule 3: tags are durable before the data below them is replaced */
		rc = naos_file_store_flush(file, err);
	if (rc == 0)
		rc = write_kept(file, batch, err);
	if (rc == 0)
		remember(file, batch, true);
	return rc;
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
	batch->view = naos_file_borrow_view(file, err);
	if (!batch->view)
		return NAOS_E_NOMEM;
	batch->steps = calloc(count, sizeof(*batch->steps));
	batch->count = count;
	if (!batch->steps)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to write %s", file->store->name);
	int rc = touch(file, batch->view, chunks, count, &batch->touched, &batch->touched_count, err);
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
		return naos_file_refuse_failed(file, err);
	int rc = prepare(file, changes, count, &batch, err);
	if (rc == 0)
		rc = flush_in_flight(file, &batch, err);
	if (rc == 0)
		rc = make_versions(file, &batch, err);
	if (rc == 0)
		rc = place(file, &batch, err);
	for (size_t i = 0; rc == 0 && i < count; i++) {
		uint64_t end = changes[i].chunk * NAOS_CHUNK_BYTES + changes[i].length;
		if (changes[i].length && end > file->size)
			file->size = end;
	}
	return rc;
}

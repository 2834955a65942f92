/* Sealing: structure, manifest, segments by several threads.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "engine/cost.h"
#include "fits/frame1.h"
#include "fits/threads.h"
#include "seal/tally.h"

/* One run of work: all rows of the table, taken by threads one after the other. */
struct sealing {
	int source_fd, target_fd;
	const char *source_name, *target_name;
	const struct naos_frame_new *what;
	const struct naos_fits_structure *structure;
	const struct naos_frame_manifest *manifest;
	const struct naos_container *container;
	struct naos_gcm_key *keys[2];
	uint8_t *rows;
	atomic_uint_fast64_t next; /* row */
	struct frame_threads threads;
};

/* Part, unit and index of a row: the reverse of naos_container_row. */
static void place_of_row(const struct sealing *sealing, uint64_t number, enum naos_frame_part *part, uint32_t *hdu,
			 uint64_t *index)
{
	const struct naos_container *container = sealing->container;
	if (number < 2) {
		*part = number == 0 ? NAOS_FRAME_HEADER : NAOS_FRAME_DATA;
		*hdu = NAOS_FRAME_PROOF_HDU;
		*index = 0;
		return;
	}
	*part = number < 2 + container->header_rows ? NAOS_FRAME_HEADER : NAOS_FRAME_DATA;
	const uint64_t *first = container->first_row[*part - 1];
	uint32_t low = 0, high = sealing->manifest->hdu_count;
	while (high - low > 1) { /* the last unit that begins at or before the row and is not empty */
		uint32_t middle = low + (high - low) / 2;
		if (first[middle] <= number)
			low = middle;
		else
			high = middle;
	}
	while (naos_frame_segments(sealing->manifest, *part, low) == 0)
		low--;
	*hdu = low;
	*index = number - first[low];
}

static int seal_row(struct sealing *sealing, uint64_t number, uint8_t *buffer, struct naos_error *err)
{
	enum naos_frame_part part;
	uint32_t hdu;
	uint64_t index, check, total = 1;
	struct naos_frame_row row;
	uint8_t associated[NAOS_FRAME_ASSOCIATED_BYTES];
	size_t got = 0;
	int rc = 0;
	place_of_row(sealing, number, &part, &hdu, &index);
	naos_container_row(sealing->manifest, sealing->container, part, hdu, index, &row, &check);
	if (hdu != NAOS_FRAME_PROOF_HDU) {
		const struct naos_fits_unit *unit = &sealing->structure->units[hdu];
		uint64_t from = part == NAOS_FRAME_HEADER ? unit->header_offset : unit->data_offset;
		total = naos_frame_segments(sealing->manifest, part, hdu);
		rc = naos_io_pread(sealing->source_fd, buffer, (size_t)row.bytes,
			from + index * sealing->manifest->segment_bytes, &got,
				   sealing->source_name, err);
		if (rc == 0 && got < row.bytes)
			rc = naos_error_set(err, NAOS_E_CHANGED, "%s became shorter while it was sealed", sealing->source_name);
	}
	if (rc == 0)
		rc = naos_nonce_next(row.nonce, err);
	if (rc != 0)
		return rc;
	naos_frame_associated(sealing->manifest, &row, total, associated);
	const struct naos_gcm_message message = {
		.nonce = row.nonce, .associated = associated, .associated_bytes = sizeof(associated),
		.in = buffer, .out = buffer, .bytes = (size_t)row.bytes, .tag = row.tag,
	};
	rc = naos_gcm_seal(sealing->keys[part - 1], &message, err);
	if (rc == 0 && row.bytes)
		rc = naos_io_pwrite(sealing->target_fd, buffer, (size_t)row.bytes, sealing->container->heap_offset + row.offset,
				    sealing->target_name, err);
	if (rc == 0)
		naos_frame_row_encode(&row, sealing->rows + number * NAOS_FRAME_ROW_BYTES);
	if (rc == 0 && sealing->what->progress)
		sealing->what->progress(sealing->what->context, row.bytes);
	return rc;
}

static int seal_some(void *context, struct naos_error *err)
{
	struct sealing *sealing = context;
	uint8_t *buffer = NULL;
	int rc = posix_memalign((void **)&buffer, 4096, sealing->manifest->segment_bytes) == 0 ?
			 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory to seal %s", sealing->source_name);
	while (rc == 0 && !sealing->threads.failed) {
		uint64_t number = sealing->next++;
		if (number >= sealing->container->rows)
			break;
		rc = naos_tally_interrupted() ? naos_error_set(err, NAOS_E_INTERRUPTED, "interrupted") : seal_row(sealing, number, buffer, err);
	}
	if (buffer)
		naos_wipe(buffer, sealing->manifest->segment_bytes);
	free(buffer);
	return rc;
}

/* Everything but the heap: headers, manifest, wrapped keys, rows; the file's end. */
static int write_rest(const struct sealing *sealing, struct naos_error *err)
{
	const struct naos_frame_manifest *manifest = sealing->manifest;
	const struct naos_container *container = sealing->container;
	uint8_t slots[NAOS_FRAME_KEYS_BYTES];
	for (unsigned i = 0; i < 2; i++)
		naos_frame_slot_encode(manifest, (enum naos_frame_part)(i + 1), sealing->what->blobs[i],
			slots + i * NAOS_FRAME_SLOT_BYTES);
	const struct {
		const void *data;
		size_t bytes;
		uint64_t offset;
	} pieces[] = {
		{ container->head, container->head_bytes, 0 },
		{ manifest->raw, manifest->raw_bytes, container->manifest_offset },
		{ slots, sizeof(slots), container->keys_offset },
		{ container->middle, container->middle_bytes, container->rows_offset - container->middle_bytes },
		{ sealing->rows, container->rows * NAOS_FRAME_ROW_BYTES, container->rows_offset },
	};
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(pieces); i++) {
		int rc = naos_io_pwrite(sealing->target_fd, pieces[i].data, pieces[i].bytes, pieces[i].offset,
			sealing->target_name, err);
		if (rc != 0)
			return rc;
	}
	if (ftruncate(sealing->target_fd, (off_t)container->file_bytes) != 0)
		return naos_error_set_errno(err, errno, "cannot set the size of %s", sealing->target_name);
	return 0;
}

static int describe(const struct naos_frame_new *what, const struct naos_fits_structure *structure,
		    struct naos_frame_manifest *manifest, struct naos_error *err)
{
	*manifest = (struct naos_frame_manifest){
		.algorithm = what->algorithm,
		.frame_id = what->frame_id,
		.collection_id = what->collection_id,
		.file_bytes = structure->file_bytes,
		.segment_bytes = what->segment_bytes ? what->segment_bytes : naos_frame_segment_bytes(structure->file_bytes),
		.hdu_count = (uint32_t)structure->count,
		.hdus = calloc(structure->count, sizeof(*manifest->hdus)),
	};
	if (!manifest->hdus)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the manifest of a frame");
	if (manifest->segment_bytes < NAOS_FRAME_MIN_SEGMENT_BYTES || manifest->segment_bytes > NAOS_FRAME_MAX_SEGMENT_BYTES)
		return naos_error_set(err, NAOS_E_LIMIT, "segments have 64 KiB to 16 MiB");
	uint64_t headers = 0;
	for (size_t i = 0; i < structure->count; i++) {
		const struct naos_fits_unit *unit = &structure->units[i];
		manifest->hdus[i] = (struct naos_frame_hdu){
			.header_bytes = unit->header_bytes, .data_bytes = unit->data_bytes, .cards = unit->card_count,
			.text = unit->cards,
		};
		headers += unit->header_bytes;
	}
	if (headers > NAOS_FRAME_MAX_HEADER_BYTES)
		return naos_error_set(err, NAOS_E_LIMIT, "the headers of a file have at most 256 MiB");
	for (unsigned i = 0; i < 2; i++) {
		int rc = naos_frame_key_derive(manifest, (enum naos_frame_part)(i + 1), what->keys[i], manifest->commit[i],
			NULL, err);
		if (rc != 0)
			return rc;
	}
	return naos_frame_manifest_encode(manifest, err);
}

static int unchanged(int fd, const char *name, const struct stat *before, struct naos_error *err)
{
	struct stat after;
	if (fstat(fd, &after) != 0)
		return naos_error_set_errno(err, errno, "cannot read the status of %s", name);
	bool same = after.st_size == before->st_size && after.st_mtim.tv_sec == before->st_mtim.tv_sec &&
		    after.st_mtim.tv_nsec == before->st_mtim.tv_nsec;
	return same ? 0 : naos_error_set(err, NAOS_E_CHANGED, "%s changed while it was sealed", name);
}

static int seal2(int source_fd, const char *source_name, int target_fd, const char *target_name,
		 const struct naos_fits_structure *structure, const struct naos_frame_new *what, struct naos_error *err)
{
	naos_cleanup(naos_frame_manifest_free) struct naos_frame_manifest manifest = { .hdus = NULL };
	naos_cleanup(naos_container_free) struct naos_container container = { .rows = 0 };
	naos_autofree uint8_t *rows = NULL;
	int rc = describe(what, structure, &manifest, err);
	if (rc == 0)
		rc = naos_container_lay_out(&manifest, &container, err);
	if (rc == 0 && !(rows = calloc(container.rows, NAOS_FRAME_ROW_BYTES)))
		rc = naos_error_set(err, NAOS_E_NOMEM, "no memory to seal %s", source_name);
	struct sealing sealing = {
		.source_fd = source_fd, .target_fd = target_fd, .source_name = source_name, .target_name = target_name,
		.what = what,
		.structure = structure, .manifest = &manifest, .container = &container, .rows = rows,
		.threads = { .work = seal_some, .context = &sealing },
	};
	for (unsigned i = 0; rc == 0 && i < 2; i++) {
		naos_autosecret struct naos_secret *derived = NULL;
		uint8_t commit[NAOS_FRAME_COMMIT_BYTES];
		rc = naos_frame_key_derive(&manifest, (enum naos_frame_part)(i + 1), what->keys[i], commit, &derived, err);
		if (rc == 0)
			rc = naos_gcm_key_create_for(manifest.algorithm, derived, i == 1 ? structure->file_bytes : 0, true, &sealing.keys[i], err);
	}
	if (rc == 0)
		rc = frame_threads_run(&sealing.threads, what->jobs, err);
	if (rc == 0)
		rc = write_rest(&sealing, err);
	for (unsigned i = 0; i < 2; i++)
		(void)naos_gcm_key_free(sealing.keys[i]);
	return rc;
}

int naos_frame_seal_fd(int source_fd, const char *source_name, int target_fd, const char *target_name,
		    const struct naos_frame_new *what, struct naos_error *err)
{
	naos_cleanup(naos_fits_structure_free) struct naos_fits_structure structure = { .count = 0 };
	struct stat before;
	if (naos_secret_equal(what->keys[0], naos_secret_view(what->keys[1]), naos_secret_bytes(what->keys[1])))
		return naos_error_set(err, NAOS_E_USAGE, "header key and data key must differ");
	if (fstat(source_fd, &before) != 0)
		return naos_error_set_errno(err, errno, "cannot read the status of %s", source_name);
	int rc = naos_fits_structure_read(source_fd, source_name, &structure, err);
	if (rc != 0)
		return rc;
	rc = (what->version == 1 ? frame1_seal : seal2)(source_fd, source_name, target_fd, target_name, &structure, what, err);
	return rc ? rc : unchanged(source_fd, source_name, &before, err);
}

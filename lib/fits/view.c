/* The FITS file that a level gives: pieces of memory, zeros and data; reading it at any place, and all of it.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/io.h"
#include "fits/frame_inside.h"
#include "fits/threads.h"
#include "seal/tally.h"

/* --- making the pieces -------------------------------------------------------------------------------------------------------- */

void frame_free_view(struct naos_frame *frame)
{
	for (size_t i = 0; i < frame->piece_count; i++) {
		if (frame->pieces[i].text)
			naos_wipe(frame->pieces[i].text, (size_t)frame->pieces[i].bytes);
		free(frame->pieces[i].text);
	}
	for (unsigned i = 0; i < NAOS_FRAME_KEPT_SEGMENTS; i++) {
		if (frame->kept[i].text)
			naos_wipe(frame->kept[i].text, frame->kept[i].bytes);
		free(frame->kept[i].text);
		frame->kept[i] = (struct kept_segment){ .text = NULL };
	}
	free(frame->pieces);
	free(frame->places);
	frame->pieces = NULL;
	frame->places = NULL;
	frame->piece_count = frame->unit_count = 0;
	frame->result_bytes = 0;
}

static void add_piece(struct naos_frame *frame, struct frame_piece piece)
{
	if (piece.bytes == 0)
		return;
	piece.offset = frame->result_bytes;
	frame->result_bytes += piece.bytes;
	frame->pieces[frame->piece_count++] = piece;
}

int frame_make_view(struct naos_frame *frame, struct naos_error *err)
{
	const struct naos_frame_manifest *manifest = &frame->manifest;
	if (frame->level == NAOS_FRAME_DENIED)
		return 0;
	frame->pieces = calloc((size_t)manifest->hdu_count * 3, sizeof(*frame->pieces));
	frame->places = calloc(manifest->hdu_count, sizeof(*frame->places));
	if (!frame->pieces || !frame->places)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to open %s", frame->name);
	for (uint32_t hdu = 0; hdu < manifest->hdu_count; hdu++) {
		const struct naos_frame_hdu *unit = &manifest->hdus[hdu];
		struct naos_frame_place *place = &frame->places[frame->unit_count];
		bool tail = unit->header_bytes == 0;
		if (tail && frame->level != NAOS_FRAME_FULL)
			continue; /* bytes behind the last unit are no FITS */
		place->header_offset = frame->result_bytes;
		if (!tail) {
			uint64_t bytes;
			uint8_t *text = frame_make_header(frame, hdu, &bytes);
			if (!text)
				return naos_error_set(err, NAOS_E_NOMEM, "no memory to open %s", frame->name);
			add_piece(frame, (struct frame_piece){ .kind = PIECE_TEXT, .text = text, .bytes = bytes, .hdu = hdu,
				.header = true });
			frame->unit_count++;
		}
		place->data_offset = frame->result_bytes;
		place->header_bytes = place->data_offset - place->header_offset;
		place->data_bytes = unit->data_bytes;
		bool data = frame->level != NAOS_FRAME_METADATA_ONLY;
		uint8_t fill = frame_fill_of(unit);
		add_piece(frame, (struct frame_piece){ .kind = data ? PIECE_DATA : PIECE_FILL, .fill = fill,
			.bytes = unit->data_bytes, .hdu = hdu });
		if (frame->level != NAOS_FRAME_FULL) /* a file that was cut off becomes whole */
			add_piece(frame, (struct frame_piece){ .kind = PIECE_FILL, .fill = fill,
				.bytes = frame_whole_blocks(unit->data_bytes) - unit->data_bytes });
	}
	return 0;
}

uint64_t naos_frame_result_bytes(const struct naos_frame *frame)
{
	return frame->result_bytes;
}

size_t naos_frame_units(const struct naos_frame *frame)
{
	return frame->unit_count;
}

void naos_frame_unit(const struct naos_frame *frame, size_t index, struct naos_frame_place *ret)
{
	*ret = frame->places[index];
}

/* --- reading ------------------------------------------------------------------------------------------------------------------- */

/* A part of a segment, by way of those that are kept decrypted. */
static int read_kept(struct naos_frame *frame, uint32_t hdu, uint64_t index, size_t skip, size_t bytes, uint8_t *out,
		     struct naos_error *err)
{
	struct kept_segment *oldest = &frame->kept[0];
	int rc = 0;
	(void)pthread_mutex_lock(&frame->lock);
	for (unsigned i = 0; i < NAOS_FRAME_KEPT_SEGMENTS; i++) {
		struct kept_segment *kept = &frame->kept[i];
		if (kept->text && kept->hdu == hdu && kept->index == index) {
			kept->used_at = ++frame->clock;
			memcpy(out, kept->text + skip, bytes);
			(void)pthread_mutex_unlock(&frame->lock);
			return 0;
		}
		if (!kept->text || (oldest->text && kept->used_at < oldest->used_at))
			oldest = kept;
	}
	if (!oldest->text)
		oldest->text = malloc(frame->manifest.segment_bytes);
	if (!oldest->text)
		rc = naos_error_set(err, NAOS_E_NOMEM, "no memory to read %s", frame->name);
	if (rc == 0)
		rc = frame_open_segment(frame, NAOS_FRAME_DATA, hdu, index, oldest->text, &oldest->bytes, err);
	if (rc == 0) {
		oldest->hdu = hdu;
		oldest->index = index;
		oldest->used_at = ++frame->clock;
		memcpy(out, oldest->text + skip, bytes);
	} else {
		free(oldest->text);
		*oldest = (struct kept_segment){ .text = NULL };
	}
	(void)pthread_mutex_unlock(&frame->lock);
	return rc;
}

static int read_data(struct naos_frame *frame, const struct frame_piece *piece, uint64_t at, size_t bytes, uint8_t *out,
		     struct naos_error *err)
{
	uint64_t segment_bytes = frame->manifest.segment_bytes;
	while (bytes > 0) {
		uint64_t index = at / segment_bytes;
		size_t skip = (size_t)(at % segment_bytes);
		uint64_t room = piece->bytes - index * segment_bytes < segment_bytes ? piece->bytes - index * segment_bytes : segment_bytes;
		size_t take = bytes < room - skip ? bytes : (size_t)(room - skip), got;
		int rc = take == room ? frame_open_segment(frame, NAOS_FRAME_DATA, piece->hdu, index, out, &got, err) :
					read_kept(frame, piece->hdu, index, skip, take, out, err);
		if (rc != 0)
			return rc;
		at += take;
		out += take;
		bytes -= take;
	}
	return 0;
}

/* The piece that holds an offset below result_bytes. */
static size_t piece_at(const struct naos_frame *frame, uint64_t offset)
{
	size_t low = 0, high = frame->piece_count;
	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;
		if (frame->pieces[middle].offset <= offset)
			low = middle;
		else
			high = middle;
	}
	return low;
}

int naos_frame_read_at(struct naos_frame *frame, void *buffer, size_t bytes, uint64_t offset, size_t *ret_bytes,
		       struct naos_error *err)
{
	uint8_t *out = buffer;
	size_t done = 0;
	if (offset >= frame->result_bytes) {
		*ret_bytes = 0;
		return 0;
	}
	if (bytes > frame->result_bytes - offset)
		bytes = (size_t)(frame->result_bytes - offset);
	for (size_t i = piece_at(frame, offset); done < bytes; i++) {
		const struct frame_piece *piece = &frame->pieces[i];
		uint64_t skip = offset + done - piece->offset;
		size_t take = bytes - done < piece->bytes - skip ? bytes - done : (size_t)(piece->bytes - skip);
		int rc = 0;
		if (piece->kind == PIECE_TEXT)
			memcpy(out + done, piece->text + skip, take);
		else if (piece->kind == PIECE_FILL)
			memset(out + done, piece->fill, take);
		else
			rc = read_data(frame, piece, skip, take, out + done, err);
		if (rc != 0) {
			memset(buffer, 0, bytes);
			return rc;
		}
		done += take;
	}
	*ret_bytes = done;
	return 0;
}

/* --- all of it ------------------------------------------------------------------------------------------------------------------- */

/* Work is cut into steps of a segment's size, aligned to segments inside each piece. */
struct copying {
	struct naos_frame *frame;
	int fd; /* -1: only checked */
	const char *name;
	void (*progress)(void *context, uint64_t bytes);
	void *context;
	struct frame_threads threads;
	pthread_mutex_t lock; /* guards what follows */
	size_t piece;
	uint64_t at; /* in the piece */
};

static bool next_step(struct copying *copying, uint64_t *ret_offset, size_t *ret_bytes)
{
	const struct naos_frame *frame = copying->frame;
	bool more = false;
	(void)pthread_mutex_lock(&copying->lock);
	while (!copying->threads.failed && copying->piece < frame->piece_count) {
		const struct frame_piece *piece = &frame->pieces[copying->piece];
		uint64_t left = piece->bytes - copying->at;
		bool hole = piece->kind == PIECE_FILL && piece->fill == 0; /* the file is sparse there */
		if (left == 0 || hole) {
			copying->piece++;
			copying->at = 0;
			continue;
		}
		*ret_bytes = (size_t)(left < frame->manifest.segment_bytes ? left : frame->manifest.segment_bytes);
		*ret_offset = piece->offset + copying->at;
		copying->at += *ret_bytes;
		more = true;
		break;
	}
	(void)pthread_mutex_unlock(&copying->lock);
	return more;
}

static int copy_some(void *context, struct naos_error *err)
{
	struct copying *copying = context;
	uint8_t *buffer = NULL;
	uint64_t offset;
	size_t bytes, got;
	int rc = posix_memalign((void **)&buffer, 4096, copying->frame->manifest.segment_bytes) == 0 ?
			 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory to read %s", copying->frame->name);
	while (rc == 0 && next_step(copying, &offset, &bytes)) {
		rc = naos_frame_read_at(copying->frame, buffer, bytes, offset, &got, err);
		if (rc == 0 && copying->fd >= 0)
			rc = naos_io_pwrite(copying->fd, buffer, got, offset, copying->name, err);
		if (rc == 0 && naos_tally_interrupted())
			rc = naos_error_set(err, NAOS_E_INTERRUPTED, "interrupted");
		if (rc == 0 && copying->progress)
			copying->progress(copying->context, got);
	}
	if (buffer)
		naos_wipe(buffer, copying->frame->manifest.segment_bytes);
	free(buffer);
	return rc;
}

static int copy_all(struct copying *copying, unsigned jobs, struct naos_error *err)
{
	copying->threads = (struct frame_threads){ .work = copy_some, .context = copying };
	(void)pthread_mutex_init(&copying->lock, NULL);
	int rc = frame_threads_run(&copying->threads, jobs, err);
	(void)pthread_mutex_destroy(&copying->lock);
	return rc;
}

int naos_frame_copy(struct naos_frame *frame, int target_fd, const char *target_name, unsigned jobs,
		    void (*progress)(void *context, uint64_t bytes), void *context, struct naos_error *err)
{
	struct copying copying = { .frame = frame, .fd = target_fd, .name = target_name, .progress = progress, .context = context };
	if (frame->level == NAOS_FRAME_DENIED)
		return naos_error_set(err, frame->reasons[0].code, "%s; %s", frame->reasons[0].message,
			frame->reasons[1].message);
	if (ftruncate(target_fd, 0) != 0 || ftruncate(target_fd, (off_t)frame->result_bytes) != 0)
		return naos_error_set_errno(err, errno, "cannot set the size of %s", target_name);
	return copy_all(&copying, jobs, err);
}

int naos_frame_verify(struct naos_frame *frame, struct naos_error *err)
{
	struct copying copying = { .frame = frame, .fd = -1 };
	struct naos_error own = NAOS_ERROR_INIT;
	err = err ? err : &own;
	for (unsigned i = 0; i < 2; i++)
		if (frame->states[i] == NAOS_FRAME_KEY_TAMPERED || frame->states[i] == NAOS_FRAME_KEY_WRONG) {
			*err = frame->reasons[i];
			return err->code;
		}
	return copy_all(&copying, 1, err);
}

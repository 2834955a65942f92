/* Opening a frame: container, keys, proofs, headers.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "engine/cost.h"
#include "fits/frame1.h"
#include "fits/structure.h"
#include "fits/spare.h"

const char *naos_frame_level_name(enum naos_frame_level level)
{
	static const char *const names[] = { "full", "metadata-only", "pixels-only", "denied" };
	return names[level];
}

static const char *part_name(enum naos_frame_part part)
{
	return part == NAOS_FRAME_HEADER ? "header" : "data";
}

/* --- the container ---------------------------------------------------------------------------------------------------------- */

int frame_read_exact(const struct naos_frame *frame, void *buffer, size_t bytes, uint64_t offset, struct naos_error *err)
{
	size_t got;
	int rc = naos_io_pread(frame->fd, buffer, bytes, offset, &got, frame->name, err);
	if (rc == 0 && got < bytes)
		rc = naos_error_set(err, NAOS_E_INTEGRITY, "%s is cut off", frame->name);
	return rc;
}

int frame_check_zeros(const struct naos_frame *frame, uint64_t from, uint64_t to, struct naos_error *err)
{
	uint8_t bytes[NAOS_FITS_BLOCK_BYTES];
	if (to - from > sizeof(bytes))
		return naos_error_set(err, NAOS_E_SYSTEM, "%s: more padding than a block", frame->name);
	int rc = frame_read_exact(frame, bytes, (size_t)(to - from), from, err);
	for (uint64_t i = 0; rc == 0 && i < to - from; i++)
		if (bytes[i] != 0)
			rc = naos_error_set(err, NAOS_E_INTEGRITY, "%s: bytes between its tables were changed", frame->name);
	return rc;
}

/* Wrapped keys; one that was being replaced when that was interrupted has a good copy beside the frame. */
static void take_slots(struct naos_frame *frame, const uint8_t slots[static NAOS_FRAME_KEYS_BYTES])
{
	uint8_t spare[NAOS_FRAME_KEYS_BYTES];
	for (unsigned i = 0; i < 2; i++) {
		enum naos_frame_part part = (enum naos_frame_part)(i + 1);
		size_t at = i * NAOS_FRAME_SLOT_BYTES;
		if (naos_frame_slot_decode(&frame->manifest, part, slots + at, &frame->blobs[i], &frame->has_blob[i], &frame->reasons[i]) == 0)
			continue;
		frame->slot_damaged[i] = true;
		if (!frame_spare_read(frame->fd, spare) ||
		    naos_frame_slot_decode(&frame->manifest, part, spare + at, &frame->blobs[i], &frame->has_blob[i], NULL) != 0)
			frame->states[i] = NAOS_FRAME_KEY_TAMPERED; /* the other key may still open its part */
	}
}

static int read_container2(struct naos_frame *frame, const uint8_t head[static NAOS_FRAME_HEAD_BYTES], struct naos_error *err)
{
	uint8_t middle[NAOS_FITS_BLOCK_BYTES], slots[NAOS_FRAME_KEYS_BYTES];
	struct stat status;
	size_t bytes;
	int rc = naos_container_probe(head, &bytes, err);
	uint8_t *raw = rc == 0 ? malloc(bytes) : NULL;
	if (rc == 0 && !raw)
		rc = naos_error_set(err, NAOS_E_NOMEM, "no memory for a manifest");
	if (rc != 0)
		return naos_error_prefix(err, rc, "%s", frame->name);
	rc = frame_read_exact(frame, raw, bytes, NAOS_FRAME_HEAD_BYTES, err);
	if (rc != 0) {
		free(raw);
		return rc;
	}
	rc = naos_frame_manifest_decode(raw, bytes, &frame->manifest, err);
	if (rc == 0)
		rc = naos_container_lay_out(&frame->manifest, &frame->container, err);
	if (rc != 0)
		return naos_error_prefix(err, rc, "%s", frame->name);
	const struct naos_container *container = &frame->container;
	if (fstat(frame->fd, &status) != 0)
		return naos_error_set_errno(err, errno, "cannot read the size of %s", frame->name);
	if ((uint64_t)status.st_size != container->file_bytes)
		return naos_error_set(err, NAOS_E_INTEGRITY, "%s has %lld bytes; its manifest says %llu", frame->name,
				      (long long)status.st_size, (unsigned long long)container->file_bytes);
	rc = frame_read_exact(frame, middle, sizeof(middle), container->rows_offset - sizeof(middle), err);
	if (rc == 0 && memcmp(middle, container->middle, sizeof(middle)) != 0)
		rc = naos_error_set(err, NAOS_E_INTEGRITY, "%s: the header of its table of segments was changed", frame->name);
	if (rc == 0)
		rc = frame_read_exact(frame, slots, sizeof(slots), container->keys_offset, err);
	if (rc == 0)
		rc = frame_check_zeros(frame, container->keys_offset + sizeof(slots), container->rows_offset - sizeof(middle), err);
	if (rc == 0)
		rc = frame_check_zeros(frame, container->heap_offset + container->heap_bytes, container->file_bytes, err);
	if (rc == 0)
		take_slots(frame, slots);
	return rc;
}

/* Which version it is, is told by its first block; a block of neither is refused as one of version 2. */
static int read_container(struct naos_frame *frame, struct naos_error *err)
{
	uint8_t head[NAOS_FRAME_HEAD_BYTES];
	size_t got;
	int rc = naos_io_pread(frame->fd, head, sizeof(head), 0, &got, frame->name, err);
	if (rc != 0)
		return rc;
	if (got < sizeof(head))
		return naos_error_set(err, NAOS_E_FORMAT, "%s: not a frame (it is too short)", frame->name);
	if (naos_container1_probe(head))
		return frame1_read_container(frame, err);
	if (naos_fits_card_find(head, NAOS_FITS_BLOCK_BYTES, "NONCE_H") && !naos_fits_card_find(head, NAOS_FITS_BLOCK_BYTES, "NAOSFRM"))
		return naos_error_set(err, NAOS_E_FORMAT, "%s looks like a file of GpuFitsCrypt, which was never authenticated: "
				      "'naos fits import-legacy' seals it anew", frame->name);
	return read_container2(frame, head, err);
}

/* --- keys ------------------------------------------------------------------------------------------------------------------- */

int frame_open_segment(struct naos_frame *frame, enum naos_frame_part part, uint32_t hdu, uint64_t index, uint8_t *text,
		       size_t *ret_bytes, struct naos_error *err)
{
	uint8_t raw[NAOS_FRAME_ROW_BYTES], associated[NAOS_FRAME_ASSOCIATED_BYTES];
	struct naos_frame_row row;
	if (frame->one)
		return frame1_open_step(frame, index, text, ret_bytes, err);
	uint64_t number, total = hdu == NAOS_FRAME_PROOF_HDU ? 1 : naos_frame_segments(&frame->manifest, part, hdu);
	naos_container_row(&frame->manifest, &frame->container, part, hdu, index, &row, &number);
	size_t bytes = (size_t)row.bytes;
	int rc = frame_read_exact(frame, raw, sizeof(raw), frame->container.rows_offset + number * NAOS_FRAME_ROW_BYTES, err);
	if (rc == 0)
		rc = naos_frame_row_decode(raw, &row, err);
	if (rc == 0 && bytes)
		rc = frame_read_exact(frame, text, bytes, frame->container.heap_offset + row.offset, err);
	if (hdu != NAOS_FRAME_PROOF_HDU)
		frame->segments_read[part - 1]++;
	frame->bytes_read += bytes + sizeof(raw);
	if (rc == 0) {
		naos_frame_associated(&frame->manifest, &row, total, associated);
		const struct naos_gcm_message message = {
			.nonce = row.nonce, .associated = associated, .associated_bytes = sizeof(associated),
			.in = text, .out = text, .bytes = bytes, .tag = row.tag,
		};
		rc = naos_gcm_open(frame->keys[part - 1], &message, err);
	}
	if (rc == NAOS_E_INTEGRITY && hdu != NAOS_FRAME_PROOF_HDU)
		(void)naos_error_set(err, rc, "%s: unit %u: segment %llu of its %s was changed", frame->name, hdu + 1,
				     (unsigned long long)index, part_name(part));
	else if (rc == NAOS_E_INTEGRITY)
		(void)naos_error_set(err, rc, "%s: its manifest was changed", frame->name);
	if (rc != 0 && bytes)
		memset(text, 0, bytes);
	*ret_bytes = rc == 0 ? bytes : 0;
	return rc;
}

/* The key of a part authenticates the manifest. */
static int prove(struct naos_frame *frame, enum naos_frame_part part, const struct naos_secret *key, struct naos_error *err)
{
	uint8_t none;
	size_t got;
	uint64_t bytes = 0;
	for (uint32_t i = 0; part == NAOS_FRAME_DATA && i < frame->manifest.hdu_count; i++)
		bytes += frame->manifest.hdus[i].data_bytes;
	int rc = naos_gcm_key_create_for(frame->manifest.algorithm, key, bytes, false, &frame->keys[part - 1], err);
	return rc ? rc : frame_open_segment(frame, part, NAOS_FRAME_PROOF_HDU, 0, &none, &got, err);
}

/* Right, missing, wrong or tampered; errors of the system only are returned. */
static int take_key(struct naos_frame *frame, enum naos_frame_part part, const struct naos_frame_source *source,
		    struct naos_error *err)
{
	unsigned i = part - 1u;
	naos_autosecret struct naos_secret *key = NULL, *derived = NULL;
	uint8_t commit[NAOS_FRAME_COMMIT_BYTES];
	struct naos_error *reason = &frame->reasons[i];
	if (frame->states[i] == NAOS_FRAME_KEY_TAMPERED)
		return 0;
	frame->states[i] = NAOS_FRAME_KEY_MISSING;
	(void)naos_error_set(reason, NAOS_E_NOKEY, "%s: there is no %s key", frame->name, part_name(part));
	struct naos_error why = NAOS_ERROR_INIT;
	int rc = source->key(source->context, &frame->manifest, part, frame->has_blob[i] ? &frame->blobs[i] : NULL, &key, &why);
	if (rc == NAOS_E_INTEGRITY) { /* the wrapped key was changed, or is of another frame */
		frame->states[i] = NAOS_FRAME_KEY_TAMPERED;
		*reason = why;
		return 0;
	}
	if (rc != 0)
		return naos_error_set(err, rc, "%s", why.message);
	if (!key) {
		if (why.message[0])
			*reason = why;
		return 0;
	}
	rc = naos_frame_key_derive(&frame->manifest, part, key, commit, &derived, err);
	if (rc != 0)
		return rc;
	if (memcmp(commit, frame->manifest.commit[i], sizeof(commit)) != 0) {
		frame->states[i] = NAOS_FRAME_KEY_WRONG;
		(void)naos_error_set(reason, NAOS_E_WRONG_KEY, "%s: this is not its %s key", frame->name, part_name(part));
		return 0;
	}
	frame->states[i] = NAOS_FRAME_KEY_RIGHT;
	rc = frame->one ? frame1_prove(frame, part, derived, reason) : prove(frame, part, derived, reason);
	if (rc == NAOS_E_INTEGRITY) {
		frame->states[i] = NAOS_FRAME_KEY_TAMPERED;
		return 0;
	}
	if (rc == 0)
		*reason = (struct naos_error)NAOS_ERROR_INIT;
	else
		*err = *reason;
	return rc;
}

/* All headers, into memory.  Tampered: none is kept. */
static int open_headers(struct naos_frame *frame, struct naos_error *err)
{
	const struct naos_frame_manifest *manifest = &frame->manifest;
	int rc = 0;
	frame->headers = calloc(manifest->hdu_count, sizeof(*frame->headers));
	if (!frame->headers)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the headers of %s", frame->name);
	for (uint32_t hdu = 0; rc == 0 && hdu < manifest->hdu_count; hdu++) {
		uint64_t count = naos_frame_segments(manifest, NAOS_FRAME_HEADER, hdu);
		frame->headers[hdu] = malloc(manifest->hdus[hdu].header_bytes + 1);
		if (!frame->headers[hdu])
			return naos_error_set(err, NAOS_E_NOMEM, "no memory for the headers of %s", frame->name);
		for (uint64_t i = 0; rc == 0 && i < count; i++) {
			size_t got;
			rc = frame_open_segment(frame, NAOS_FRAME_HEADER, hdu, i,
				frame->headers[hdu] + i * manifest->segment_bytes, &got, err);
		}
	}
	if (rc == NAOS_E_INTEGRITY) {
		frame->states[0] = NAOS_FRAME_KEY_TAMPERED;
		frame->reasons[0] = *err;
		return 0;
	}
	return rc;
}

static enum naos_frame_level level_of(const struct naos_frame *frame)
{
	bool header = frame->states[0] == NAOS_FRAME_KEY_RIGHT, data = frame->states[1] == NAOS_FRAME_KEY_RIGHT;
	return header && data ? NAOS_FRAME_FULL : header ? NAOS_FRAME_METADATA_ONLY : data ? NAOS_FRAME_PIXELS_ONLY : NAOS_FRAME_DENIED;
}

static void free_headers(struct naos_frame *frame)
{
	for (uint32_t i = 0; frame->headers && i < frame->manifest.hdu_count; i++) {
		if (frame->headers[i])
			naos_wipe(frame->headers[i], frame->manifest.hdus[i].header_bytes);
		free(frame->headers[i]);
	}
	free(frame->headers);
	frame->headers = NULL;
}

/* --- life ------------------------------------------------------------------------------------------------------------------- */

struct naos_frame *naos_frame_close(struct naos_frame *frame)
{
	int saved = errno;
	if (!frame)
		return NULL;
	frame_free_view(frame);
	free_headers(frame);
	for (unsigned i = 0; i < 2; i++)
		(void)naos_gcm_key_free(frame->keys[i]);
	(void)frame1_free(frame->one);
	naos_container_free(&frame->container);
	naos_frame_manifest_free(&frame->manifest);
	if (frame->fd >= 0)
		(void)close(frame->fd);
	(void)pthread_mutex_destroy(&frame->lock);
	free(frame->name);
	free(frame);
	errno = saved;
	return NULL;
}

int naos_frame_open_fd(int fd, const char *name, const struct naos_frame_source *source, struct naos_frame **ret,
		    struct naos_error *err)
{
	naos_autoframe struct naos_frame *frame = calloc(1, sizeof(*frame));
	struct naos_error own = NAOS_ERROR_INIT;
	char printable[512];
	err = err ? err : &own; /* reasons of keys are taken from it */
	if (!frame) {
		(void)close(fd);
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to open a frame");
	}
	frame->fd = fd;
	(void)pthread_mutex_init(&frame->lock, NULL);
	frame->name = strdup(naos_io_printable(name, printable, sizeof(printable)));
	int rc = frame->name ? read_container(frame, err) : naos_error_set(err, NAOS_E_NOMEM, "no memory to open a frame");
	for (unsigned i = 0; rc == 0 && i < 2; i++)
		rc = take_key(frame, (enum naos_frame_part)(i + 1), source, err);
	if (rc == 0 && frame->states[0] == NAOS_FRAME_KEY_RIGHT && !frame->one)
		rc = open_headers(frame, err);
	if (rc != 0)
		return rc;
	frame->level = level_of(frame);
	rc = frame_make_view(frame, err);
	if (rc == 0)
		*ret = naos_steal(frame);
	return rc;
}

int naos_frame_suppress_data(struct naos_frame *frame, struct naos_error *err)
{
	frame->states[1] = NAOS_FRAME_KEY_TAMPERED;
	(void)naos_error_set(&frame->reasons[1], NAOS_E_INTEGRITY, "%s: its data was changed", frame->name);
	frame->level = level_of(frame);
	frame_free_view(frame);
	return frame_make_view(frame, err);
}

void naos_frame_statistics(const struct naos_frame *frame, struct naos_frame_statistics *ret)
{
	*ret = (struct naos_frame_statistics){
		.header_segments = frame->segments_read[0], .data_segments = frame->segments_read[1], .bytes_read = frame->bytes_read,
	};
}

const struct naos_frame_manifest *naos_frame_manifest(const struct naos_frame *frame)
{
	return &frame->manifest;
}

enum naos_frame_level naos_frame_level(const struct naos_frame *frame)
{
	return frame->level;
}

enum naos_frame_key_state naos_frame_key_state(const struct naos_frame *frame, enum naos_frame_part part)
{
	return frame->states[part - 1];
}

const char *naos_frame_key_reason(const struct naos_frame *frame, enum naos_frame_part part)
{
	return frame->states[part - 1] == NAOS_FRAME_KEY_RIGHT ? "" : frame->reasons[part - 1].message;
}

bool naos_frame_blob(const struct naos_frame *frame, enum naos_frame_part part, struct naos_blob *ret)
{
	if (frame->has_blob[part - 1])
		*ret = frame->blobs[part - 1];
	return frame->has_blob[part - 1];
}

int naos_frame_worst(const struct naos_frame *frame)
{
	static const int codes[] = { 0, NAOS_E_DENIED, NAOS_E_WRONG_KEY, NAOS_E_INTEGRITY };
	return codes[frame->states[0] > frame->states[1] ? frame->states[0] : frame->states[1]];
}

int naos_frame_refuse(const struct naos_frame *frame, struct naos_error *err)
{
	return naos_error_set(err, naos_frame_worst(frame), "%s; %s", frame->reasons[0].message, frame->reasons[1].message);
}

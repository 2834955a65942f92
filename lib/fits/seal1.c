/* Sealing frames of version 1: the header in one message, the data in another, step by step.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/io.h"
#include "fits/frame1.h"

struct sealing1 {
	int source_fd, target_fd;
	const char *source_name, *target_name;
	const struct naos_frame_new *what;
	struct naos_frame_manifest manifest;
	struct naos_container1 container;
	struct naos_secret *keys[2];
};

static void end(struct sealing1 *sealing)
{
	naos_frame_manifest_free(&sealing->manifest);
	naos_container1_free(&sealing->container);
	for (unsigned i = 0; i < 2; i++)
		sealing->keys[i] = naos_secret_free(sealing->keys[i]);
}

static int read_source(const struct sealing1 *sealing, void *buffer, size_t bytes, uint64_t offset, struct naos_error *err)
{
	size_t got;
	int rc = naos_io_pread(sealing->source_fd, buffer, bytes, offset, &got, sealing->source_name, err);
	if (rc == 0 && got < bytes)
		rc = naos_error_set(err, NAOS_E_CHANGED, "%s became shorter while it was sealed", sealing->source_name);
	return rc;
}

static int start(struct sealing1 *sealing, const struct naos_fits_structure *structure, struct naos_error *err)
{
	struct naos_frame_manifest *manifest = &sealing->manifest;
	manifest->algorithm = sealing->what->algorithm;
	manifest->frame_id = sealing->what->frame_id;
	manifest->collection_id = sealing->what->collection_id;
	int rc = naos_container1_describe(structure, sealing->source_name, &sealing->container, err);
	if (rc == 0)
		rc = naos_container1_manifest(&sealing->container, manifest, err);
	for (unsigned i = 0; rc == 0 && i < 2; i++)
		rc = naos_frame_key_derive(manifest, (enum naos_frame_part)(i + 1), sealing->what->keys[i], manifest->commit[i], &sealing->keys[i],
					   err);
	for (unsigned i = 0; rc == 0 && i < 2; i++)
		rc = naos_nonce_next(sealing->container.nonces[i], err);
	return rc;
}

static int seal_header(struct sealing1 *sealing, struct naos_error *err)
{
	struct naos_container1 *c = &sealing->container;
	naos_autogcmkey struct naos_gcm_key *key = NULL;
	uint8_t associated[NAOS_FRAME1_ASSOCIATED_BYTES];
	size_t bytes = (size_t)c->header_bytes;
	uint8_t *text = malloc(bytes);
	c->digits = malloc(2 * bytes + 1);
	int rc = text && c->digits ? naos_gcm_key_create(sealing->manifest.algorithm, sealing->keys[0], &key, err) :
				     naos_error_set(err, NAOS_E_NOMEM, "no memory to seal %s", sealing->source_name);
	if (rc == 0)
		rc = read_source(sealing, text, bytes, 0, err);
	const struct naos_gcm_message message = {
		.nonce = c->nonces[0], .associated = associated,
		.associated_bytes = naos_container1_associated(&sealing->manifest, c, NAOS_FRAME_HEADER, associated),
		.in = text, .out = text, .bytes = bytes, .tag = c->tags[0],
	};
	if (rc == 0)
		rc = naos_gcm_seal(key, &message, err);
	if (rc == 0)
		(void)naos_hex_format(text, bytes, c->digits);
	if (text)
		naos_wipe(text, bytes);
	free(text);
	return rc;
}

static int seal_steps(struct sealing1 *sealing, struct naos_gcm_stream *stream, uint8_t *text, struct naos_error *err)
{
	const struct naos_container1 *c = &sealing->container;
	int rc = 0;
	for (uint64_t at = 0; rc == 0 && at < c->data_bytes; at += NAOS_FRAME1_STEP_BYTES) {
		size_t bytes = c->data_bytes - at < NAOS_FRAME1_STEP_BYTES ? (size_t)(c->data_bytes - at) : NAOS_FRAME1_STEP_BYTES;
		rc = read_source(sealing, text, bytes, c->header_bytes + at, err);
		if (rc == 0)
			rc = naos_gcm_stream_update(stream, text, text, bytes, err);
		if (rc == 0)
			rc = naos_io_pwrite(sealing->target_fd, text, bytes, c->data_offset + at, sealing->target_name, err);
		if (rc == 0 && sealing->what->progress)
			sealing->what->progress(sealing->what->context, bytes);
	}
	return rc;
}

static int seal_data(struct sealing1 *sealing, struct naos_error *err)
{
	struct naos_container1 *c = &sealing->container;
	naos_autogcmkey struct naos_gcm_key *key = NULL;
	struct naos_gcm_stream *stream = NULL;
	uint8_t associated[NAOS_FRAME1_ASSOCIATED_BYTES];
	size_t associated_bytes = naos_container1_associated(&sealing->manifest, c, NAOS_FRAME_DATA, associated);
	uint8_t *text = malloc(NAOS_FRAME1_STEP_BYTES);
	int rc = text ? naos_gcm_key_create(sealing->manifest.algorithm, sealing->keys[1], &key, err) :
			naos_error_set(err, NAOS_E_NOMEM, "no memory to seal %s", sealing->source_name);
	if (rc == 0)
		rc = naos_gcm_stream_create(key, true, c->nonces[1], associated, associated_bytes, &stream, err);
	if (rc == 0)
		rc = seal_steps(sealing, stream, text, err);
	if (rc == 0)
		rc = naos_gcm_stream_finish(stream, c->tags[1], err);
	(void)naos_gcm_stream_free(stream);
	if (text)
		naos_wipe(text, NAOS_FRAME1_STEP_BYTES);
	free(text);
	return rc;
}

/* The headers, whose size is known beforehand: first for the place of the data, then with its tag. */
static int make_head(struct sealing1 *sealing, uint8_t **ret, size_t *ret_bytes, struct naos_error *err)
{
	uint8_t slots[2][NAOS_FRAME_SLOT_BYTES];
	const uint8_t *used[2] = { NULL, NULL };
	for (unsigned i = 0; i < 2; i++) {
		if (!sealing->what->blobs[i])
			continue;
		naos_frame_slot_encode(&sealing->manifest, (enum naos_frame_part)(i + 1), sealing->what->blobs[i], slots[i]);
		used[i] = slots[i];
	}
	return naos_container1_encode(&sealing->manifest, &sealing->container, used, ret, ret_bytes, err);
}

int frame1_seal(int source_fd, const char *source_name, int target_fd, const char *target_name, const struct naos_fits_structure *structure,
		const struct naos_frame_new *what, struct naos_error *err)
{
	naos_cleanup(end) struct sealing1 sealing = {
		.source_fd = source_fd, .target_fd = target_fd, .source_name = source_name, .target_name = target_name, .what = what,
	};
	naos_autofree uint8_t *first = NULL, *head = NULL;
	size_t bytes;
	int rc = start(&sealing, structure, err);
	if (rc == 0)
		rc = seal_header(&sealing, err);
	if (rc == 0)
		rc = make_head(&sealing, &first, &bytes, err);
	if (rc == 0)
		rc = seal_data(&sealing, err);
	if (rc == 0)
		rc = make_head(&sealing, &head, &bytes, err);
	if (rc == 0)
		rc = naos_io_pwrite(target_fd, head, bytes, 0, target_name, err);
	if (rc == 0 && ftruncate(target_fd, (off_t)sealing.container.file_bytes) != 0)
		rc = naos_error_set_errno(err, errno, "cannot set the size of %s", target_name);
	return rc;
}

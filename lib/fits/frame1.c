/* Opening frames of version 1.
 *
 * One tag speaks for all data, so nothing may be given out before all of it was read.  Plaintext in a temporary file would lie on a disk,
 * in memory it would have no bound: so the data is read twice.  The first pass verifies the tag, and makes a MAC of each step of the
 * ciphertext under a key that only this process has (GMAC, 16 bytes for 1 MiB).  A step that is read later is decrypted only if it is
 * still what the tag was verified over: whoever changes the file in between is found out.  SPDX-License-Identifier: Apache-2.0 */
#include "fits/frame1.h"

#include <string.h>
#include <sys/stat.h>
#include <openssl/evp.h>

struct frame1 {
	struct naos_container1 container;
	struct naos_secret *key;     /* AES key of the data; NULL before the first pass */
	struct naos_gcm_key *mac_key;
	uint8_t *macs; /* one for each step */
};

struct frame1 *frame1_free(struct frame1 *one)
{
	if (!one)
		return NULL;
	naos_container1_free(&one->container);
	one->key = naos_secret_free(one->key);
	one->mac_key = naos_gcm_key_free(one->mac_key);
	free(one->macs);
	free(one);
	return NULL;
}

/* --- the container ------------------------------------------------------------------------------------------------------------ */

static int read_for_container(void *context, void *buffer, size_t bytes, uint64_t offset, struct naos_error *err)
{
	return frame_read_exact(context, buffer, bytes, offset, err);
}

static int check_size(const struct naos_frame *frame, struct naos_error *err)
{
	const struct naos_container1 *c = &frame->one->container;
	struct stat status;
	if (fstat(frame->fd, &status) != 0)
		return naos_error_set_errno(err, errno, "cannot read the size of %s", frame->name);
	if ((uint64_t)status.st_size != c->file_bytes)
		return naos_error_set(err, NAOS_E_INTEGRITY, "%s has %lld bytes; its header says %llu", frame->name, (long long)status.st_size,
				      (unsigned long long)c->file_bytes);
	return frame_check_zeros(frame, c->data_offset + c->data_bytes, c->file_bytes, err);
}

static void take_slots(struct naos_frame *frame, uint8_t slots[static 2][NAOS_FRAME_SLOT_BYTES], const bool used[static 2],
		       const bool damaged[static 2])
{
	for (unsigned i = 0; i < 2; i++) {
		if (!used[i])
			continue;
		int rc = damaged[i] ? naos_error_set(&frame->reasons[i], NAOS_E_INTEGRITY, "%s: the wrapped %s key is damaged", frame->name,
						     i ? "data" : "header") :
				      naos_frame_slot_decode(&frame->manifest, (enum naos_frame_part)(i + 1), slots[i], &frame->blobs[i],
							     &frame->has_blob[i], &frame->reasons[i]);
		if (rc == 0 && !frame->has_blob[i]) /* a slot without a key is left out, never zeros */
			rc = naos_error_set(&frame->reasons[i], NAOS_E_INTEGRITY, "%s: the wrapped %s key is damaged", frame->name,
					    i ? "data" : "header");
		if (rc != 0)
			frame->states[i] = NAOS_FRAME_KEY_TAMPERED;
	}
}

int frame1_read_container(struct naos_frame *frame, struct naos_error *err)
{
	const struct naos_container1_file file = { .read = read_for_container, .context = frame };
	uint8_t slots[2][NAOS_FRAME_SLOT_BYTES];
	bool used[2], damaged[2];
	frame->one = calloc(1, sizeof(*frame->one));
	if (!frame->one)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to open %s", frame->name);
	int rc = naos_container1_decode(&file, &frame->one->container, &frame->manifest, slots, used, damaged, err);
	if (rc == 0)
		rc = check_size(frame, err);
	if (rc != 0)
		return strstr(err->message, frame->name) ? rc : naos_error_prefix(err, rc, "%s", frame->name);
	frame->container.keys_offset = UINT64_MAX; /* there are no slots of version 2 that could be written */
	take_slots(frame, slots, used, damaged);
	return 0;
}

/* --- the header ----------------------------------------------------------------------------------------------------------------- */

static int changed(const struct naos_frame *frame, enum naos_frame_part part, struct naos_error *err)
{
	const char *what = part == NAOS_FRAME_HEADER ? "header" : "data";
	return naos_error_set(err, NAOS_E_INTEGRITY, "%s: its encrypted %s was changed", frame->name, what);
}

static int open_header(struct naos_frame *frame, const struct naos_gcm_key *key, struct naos_error *err)
{
	struct naos_container1 *c = &frame->one->container;
	uint8_t associated[NAOS_FRAME1_ASSOCIATED_BYTES];
	uint8_t *text = malloc((size_t)c->header_bytes);
	frame->headers = calloc(1, sizeof(*frame->headers));
	if (frame->headers)
		frame->headers[0] = text;
	if (!text || !frame->headers) {
		free(frame->headers ? NULL : text);
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the header of %s", frame->name);
	}
	if (!naos_container1_hex(c->digits, text, (size_t)c->header_bytes))
		return changed(frame, NAOS_FRAME_HEADER, err);
	const struct naos_gcm_message message = {
		.nonce = c->nonces[0], .associated = associated,
		.associated_bytes = naos_container1_associated(&frame->manifest, c, NAOS_FRAME_HEADER, associated),
		.in = text, .out = text, .bytes = (size_t)c->header_bytes, .tag = c->tags[0],
	};
	int rc = naos_gcm_open(key, &message, err);
	return rc == NAOS_E_INTEGRITY ? changed(frame, NAOS_FRAME_HEADER, err) : rc;
}

/* --- the data ------------------------------------------------------------------------------------------------------------------- */

static void mac_nonce(uint64_t index, uint8_t ret[static NAOS_GCM_NONCE_BYTES])
{
	struct naos_cursor w = naos_cursor_writer(ret, NAOS_GCM_NONCE_BYTES);
	naos_cursor_put_u64(&w, index);
	naos_cursor_put_u32(&w, 0);
}

static size_t step_bytes(const struct frame1 *one, uint64_t index)
{
	uint64_t left = one->container.data_bytes - index * NAOS_FRAME1_STEP_BYTES;
	return left < NAOS_FRAME1_STEP_BYTES ? (size_t)left : NAOS_FRAME1_STEP_BYTES;
}

/* The MAC of a step: making it and comparing it are the tag of a message without bytes. */
static int mac_step(const struct frame1 *one, uint64_t index, uint8_t *sealed, size_t bytes, bool making, struct naos_error *err)
{
	uint8_t nonce[NAOS_GCM_NONCE_BYTES], none;
	mac_nonce(index, nonce);
	const struct naos_gcm_message message = {
		.nonce = nonce, .associated = sealed, .associated_bytes = bytes, .in = &none, .out = &none,
		.tag = one->macs + index * NAOS_GCM_TAG_BYTES,
	};
	return making ? naos_gcm_seal(one->mac_key, &message, err) : naos_gcm_open(one->mac_key, &message, err);
}

static int start_data(struct frame1 *one, const struct naos_secret *key, struct naos_error *err)
{
	uint64_t steps = naos_frame1_steps(one->container.data_bytes);
	naos_autosecret struct naos_secret *mac = NULL;
	int rc = naos_secret_clone(key, &one->key, err);
	if (rc == 0)
		rc = naos_secret_random(naos_algorithm_key_bytes(NAOS_AES_256_GCM), &mac, err);
	if (rc == 0)
		rc = naos_gcm_key_create(NAOS_AES_256_GCM, mac, &one->mac_key, err);
	if (rc == 0 && !(one->macs = malloc((size_t)steps * NAOS_GCM_TAG_BYTES + 1)))
		rc = naos_error_set(err, NAOS_E_NOMEM, "no memory for the checks of a frame");
	return rc;
}

static void free_stream(struct naos_gcm_stream **stream)
{
	*stream = naos_gcm_stream_free(*stream);
}

static int verify_data(struct naos_frame *frame, const struct naos_gcm_key *key, struct naos_error *err)
{
	struct frame1 *one = frame->one;
	struct naos_container1 *c = &one->container;
	naos_cleanup(free_stream) struct naos_gcm_stream *stream = NULL;
	uint8_t associated[NAOS_FRAME1_ASSOCIATED_BYTES];
	size_t associated_bytes = naos_container1_associated(&frame->manifest, c, NAOS_FRAME_DATA, associated);
	uint8_t *text = malloc(NAOS_FRAME1_STEP_BYTES);
	int rc = text ? naos_gcm_stream_create(key, false, c->nonces[1], associated, associated_bytes, &stream, err) :
			naos_error_set(err, NAOS_E_NOMEM, "no memory to read %s", frame->name);
	for (uint64_t index = 0; rc == 0 && index < naos_frame1_steps(c->data_bytes); index++) {
		size_t bytes = step_bytes(one, index);
		rc = frame_read_exact(frame, text, bytes, c->data_offset + index * NAOS_FRAME1_STEP_BYTES, err);
		if (rc == 0)
			rc = mac_step(one, index, text, bytes, true, err);
		if (rc == 0)
			rc = naos_gcm_stream_update(stream, text, text, bytes, err);
	}
	if (rc == 0)
		rc = naos_gcm_stream_finish(stream, c->tags[1], err);
	if (text)
		naos_wipe(text, NAOS_FRAME1_STEP_BYTES);
	free(text);
	return rc == NAOS_E_INTEGRITY ? changed(frame, NAOS_FRAME_DATA, err) : rc;
}

int frame1_prove(struct naos_frame *frame, enum naos_frame_part part, const struct naos_secret *key, struct naos_error *err)
{
	naos_autogcmkey struct naos_gcm_key *gcm = NULL;
	if (frame->one->container.damaged[part - 1])
		return changed(frame, part, err);
	int rc = naos_gcm_key_create(frame->manifest.algorithm, key, &gcm, err);
	if (rc == 0 && part == NAOS_FRAME_HEADER)
		return open_header(frame, gcm, err);
	if (rc == 0)
		rc = start_data(frame->one, key, err);
	return rc ? rc : verify_data(frame, gcm, err);
}

static void free_cipher(EVP_CIPHER_CTX **context)
{
	EVP_CIPHER_CTX_free(*context);
}

/* GCM encrypts from counter 2 on (SP 800-38D: J0 = nonce || 1, and one more). */
static int decrypt_step(const struct naos_frame *frame, uint64_t index, uint8_t *text, size_t bytes, struct naos_error *err)
{
	const struct frame1 *one = frame->one;
	naos_cleanup(free_cipher) EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
	const EVP_CIPHER *cipher = frame->manifest.algorithm == NAOS_AES_128_GCM ? EVP_aes_128_ctr() : EVP_aes_256_ctr();
	uint8_t counter[16];
	struct naos_cursor w = naos_cursor_writer(counter, sizeof(counter));
	int done;
	naos_cursor_put(&w, one->container.nonces[1], NAOS_GCM_NONCE_BYTES);
	naos_cursor_put_u32be(&w, (uint32_t)(2 + index * (NAOS_FRAME1_STEP_BYTES / 16)));
	bool ok = context && EVP_DecryptInit_ex(context, cipher, NULL, naos_secret_view(one->key), counter) == 1 &&
		  EVP_DecryptUpdate(context, text, &done, text, (int)bytes) == 1 && (size_t)done == bytes;
	return ok ? 0 : naos_error_set(err, NAOS_E_SYSTEM, "AES is not available in the cryptographic library");
}

int frame1_open_step(struct naos_frame *frame, uint64_t index, uint8_t *text, size_t *ret_bytes, struct naos_error *err)
{
	struct frame1 *one = frame->one;
	size_t bytes = step_bytes(one, index);
	int rc = frame_read_exact(frame, text, bytes, one->container.data_offset + index * NAOS_FRAME1_STEP_BYTES, err);
	if (rc == 0)
		rc = mac_step(one, index, text, bytes, false, err);
	if (rc == NAOS_E_INTEGRITY)
		rc = naos_error_set(err, rc, "%s: its data was changed while it was open", frame->name);
	if (rc == 0)
		rc = decrypt_step(frame, index, text, bytes, err);
	if (rc != 0)
		memset(text, 0, bytes);
	*ret_bytes = rc == 0 ? bytes : 0;
	return rc;
}

/* Seals a FITS file for tests: make_frame SOURCE TARGET VERSION ALGORITHM KEY-BYTES wrapped|given
 *
 * The header key is bytes 0, 1, 2, …, the data key 0x80, 0x81, …; wrapped: by a MEK of 32 bytes 0x4d, in a collection of 16 bytes 0xc0.
 * The frames of tests/data/frames were made by it.  SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <openssl/evp.h>

#include "fits/frame.h"

#define MEK_BYTE 0x4d

static struct naos_error err = NAOS_ERROR_INIT;

static void must(int rc)
{
	if (rc == 0)
		return;
	fprintf(stderr, "make_frame: %s\n", err.message);
	exit(1);
}

/* docs/formats/wrapped-key.md */
static void wrap(const struct naos_frame_new *what, unsigned part, const uint8_t *key, size_t bytes, struct naos_blob *ret)
{
	const struct naos_wrap_context context = {
		.kind = part ? NAOS_WRAP_FRAME_DATA : NAOS_WRAP_FRAME_HEADER, .group_id = what->collection_id, .object_id = what->frame_id,
	};
	uint8_t associated[NAOS_BLOB_ASSOCIATED_BYTES], plain[NAOS_BLOB_MAX_CIPHERTEXT_BYTES], mek_bytes[32];
	naos_autosecret struct naos_secret *mek = NULL;
	naos_autogcmkey struct naos_gcm_key *gcm = NULL;
	*ret = (struct naos_blob){
		.mek_version = 1, .algorithm = NAOS_WRAP_AES_256_GCM, .iv_bytes = 12, .ciphertext_bytes = (uint16_t)(bytes + 32),
	};
	memset(ret->mek_id.bytes, (int)(0xa0 + part), sizeof(ret->mek_id.bytes));
	must(naos_nonce_next(ret->iv, &err));
	naos_blob_associated(&context, ret, associated);
	memcpy(plain, key, bytes);
	(void)EVP_Digest(associated, sizeof(associated), plain + bytes, NULL, EVP_sha256(), NULL);
	memset(mek_bytes, MEK_BYTE, sizeof(mek_bytes));
	must(naos_secret_take(mek_bytes, sizeof(mek_bytes), &mek, &err));
	must(naos_gcm_key_create(NAOS_AES_256_GCM, mek, &gcm, &err));
	must(naos_gcm_seal(gcm, &(struct naos_gcm_message){ .nonce = ret->iv, .associated = associated, .associated_bytes = sizeof(associated),
			   .in = plain, .out = ret->ciphertext, .bytes = bytes + 32, .tag = ret->tag }, &err));
}

int main(int argc, char **argv)
{
	struct naos_frame_new what = { .segment_bytes = NAOS_FRAME_MIN_SEGMENT_BYTES, .jobs = 1 };
	struct naos_secret *keys[2];
	struct naos_blob blobs[2];
	if (argc != 7)
		return 2;
	int source = open(argv[1], O_RDONLY | O_CLOEXEC), target = open(argv[2], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	size_t bytes = strtoul(argv[5], NULL, 10);
	bool wrapped = strcmp(argv[6], "wrapped") == 0;
	if (source < 0 || target < 0 || (bytes != 16 && bytes != 32))
		return 2;
	what.version = (unsigned)strtoul(argv[3], NULL, 10);
	what.algorithm = (enum naos_algorithm)strtoul(argv[4], NULL, 10);
	must(naos_uuid_random(&what.frame_id, &err));
	if (wrapped)
		memset(what.collection_id.bytes, 0xc0, sizeof(what.collection_id.bytes));
	for (unsigned part = 0; part < 2; part++) {
		uint8_t key[32];
		for (size_t i = 0; i < bytes; i++)
			key[i] = (uint8_t)(part * 0x80 + i);
		if (wrapped)
			wrap(&what, part, key, bytes, &blobs[part]);
		what.blobs[part] = wrapped ? &blobs[part] : NULL;
		must(naos_secret_take(key, bytes, &keys[part], &err));
		what.keys[part] = keys[part];
	}
	must(naos_frame_seal_fd(source, argv[1], target, argv[2], &what, &err));
	for (unsigned part = 0; part < 2; part++)
		(void)naos_secret_free(keys[part]);
	(void)close(source);
	return close(target) != 0;
}

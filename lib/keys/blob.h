/* The wrapped-key blob (docs/formats/wrapped-key.md, DESIGN 5.1): a key wrapped by a MEK, and what binds it to its object.
 *
 * The wrapped plaintext is key || SHA-256(associated data), checked at unwrap, so that a provider without associated
 * data binds too.  Associated data, 72 bytes: "NAOSWRP1" || kind u8 || 0[7] || group id[16] || object id[16] ||
 * MEK id[16] || MEK version u32 || algorithm u32 (little-endian).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYS_BLOB_H
#define NAOS_KEYS_BLOB_H

#include <stdint.h>

#include "base/cursor.h"
#include "base/errors.h"
#include "base/secret.h"
#include "base/uuid.h"

#define NAOS_BLOB_MAX_BYTES 192 /* one wrapped key of any version */
#define NAOS_BLOB_ASSOCIATED_BYTES 72
#define NAOS_BLOB_MAX_IV_BYTES 16 /* as Luna HSMs make them in FIPS mode */
#define NAOS_BLOB_MAX_KEY_BYTES 32 /* a key that is wrapped: AES-256 */
#define NAOS_BLOB_MAX_CIPHERTEXT_BYTES (NAOS_BLOB_MAX_KEY_BYTES + 32) /* key and digest */

/* What is wrapped. */
enum naos_wrap_kind {
	NAOS_WRAP_FILE = 1,
	NAOS_WRAP_FRAME_HEADER = 2,
	NAOS_WRAP_FRAME_DATA = 3,
	NAOS_WRAP_MANIFEST = 4,
	NAOS_WRAP_CATALOGUE = 5,
};
/* How it is wrapped. */
enum naos_wrap_algorithm { NAOS_WRAP_AES_256_GCM = 1 };

struct naos_wrap_context {
	enum naos_wrap_kind kind;
	struct naos_uuid group_id;  /* file set or collection */
	struct naos_uuid object_id; /* file, frame or catalogue */
};

struct naos_blob {
	struct naos_uuid mek_id;
	uint32_t mek_version; /* ≥ 1 */
	enum naos_wrap_algorithm algorithm;
	uint8_t iv_bytes; /* the IV that the HSM really used: 12 or 16 */
	uint8_t iv[NAOS_BLOB_MAX_IV_BYTES];
	uint16_t ciphertext_bytes;
	uint8_t ciphertext[NAOS_BLOB_MAX_CIPHERTEXT_BYTES];
	uint8_t tag[16];
};

/* Encode beside decode.  Decoding checks version, lengths and reserved bytes: NAOS_E_FORMAT. */
void naos_blob_encode(const struct naos_blob *blob, struct naos_cursor *out);
int naos_blob_decode(struct naos_cursor *in, struct naos_blob *ret, struct naos_error *err) naos_must_check;

void naos_blob_associated(const struct naos_wrap_context *context, const struct naos_blob *blob,
			  uint8_t ret[static NAOS_BLOB_ASSOCIATED_BYTES]);

#endif

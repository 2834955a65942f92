/* A kept value as it stands in the key manager's database: wrapped by AES-256-GCM under the storage key of the token
 * (docs/formats/keyd-database.md).  Associated data: "NAOSKEPT" || object id[16].
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_KEPT_H
#define NAOS_KEYD_KEPT_H

#include "base/cursor.h"
#include "base/uuid.h"

#define NAOS_KEPT_HEADER_BYTES 44
#define NAOS_KEPT_ASSOCIATED_BYTES 24

struct naos_kept {
	uint32_t storage_version; /* of the storage key */
	size_t iv_bytes;          /* 12 or 16 */
	uint8_t iv[16];
	uint8_t tag[16];
	const uint8_t *ciphertext; /* decoding: where it stands; encoding: put there by the caller */
	size_t ciphertext_bytes;
};

/* The header; the ciphertext follows it. */
void naos_kept_encode(const struct naos_kept *kept, struct naos_cursor *out);
bool naos_kept_decode(const uint8_t *data, size_t bytes, struct naos_kept *ret) naos_must_check;
void naos_kept_associated(const struct naos_uuid *id, uint8_t ret[static NAOS_KEPT_ASSOCIATED_BYTES]);

#endif

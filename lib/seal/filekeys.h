/* Keys of one sealed file, all derived from its FEK by HKDF-SHA256 (docs/formats/sealed-file.md, section 3).
 * Thread-safe after creation.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_FILEKEYS_H
#define NAOS_SEAL_FILEKEYS_H

#include "base/secret.h"
#include "base/uuid.h"
#include "engine/engine.h"

#define NAOS_FEK_BYTES 32
#define NAOS_COMMIT_BYTES 32
#define NAOS_MAC_BYTES 32

struct naos_file_keys;

int naos_file_keys_create(enum naos_algorithm algorithm, const struct naos_uuid *file_id, const struct naos_uuid *fileset_id,
			  const struct naos_secret *fek, struct naos_file_keys **ret, struct naos_error *err) naos_must_check;
struct naos_file_keys *naos_file_keys_free(struct naos_file_keys *keys);

/* The key commitment that stands in the header. */
const uint8_t *naos_file_keys_commit(const struct naos_file_keys *keys);

enum naos_mac_purpose { NAOS_MAC_HEADER, NAOS_MAC_TAGSECTOR };
/* HMAC-SHA256 over first || second (either may be empty). */
int naos_file_keys_mac(struct naos_file_keys *keys, enum naos_mac_purpose purpose, const void *first, size_t first_bytes,
		       const void *second, size_t second_bytes, uint8_t ret[static NAOS_MAC_BYTES], struct naos_error *err) naos_must_check;

/* The data key for a version of a chunk: shared by 65,536 chunks and 1,024 sequence numbers, so that at most 2^26 nonces
 * are drawn for one key.  Give it back with naos_file_keys_put. */
struct naos_data_key;
int naos_file_keys_get(struct naos_file_keys *keys, uint64_t chunk, uint32_t seq, struct naos_data_key **ret,
		       struct naos_error *err) naos_must_check;
void naos_file_keys_put(struct naos_file_keys *keys, struct naos_data_key *key);
const struct naos_gcm_key *naos_data_key_gcm(const struct naos_data_key *key);
/* True if key serves this version too. */
bool naos_data_key_covers(const struct naos_data_key *key, uint64_t chunk, uint32_t seq);

#endif

/* What the key manager's front asks of its HSM worker: make and end keys, encrypt and decrypt with them, random bytes.
 *
 * Calls block; any number of threads may call at once, and their requests travel together (a leader sends what has gathered).
 * The worker is a process of its own: it has the PIN and the token, the front has neither.  A worker that dies is started again;
 * calls under way fail with NAOS_E_KEYMANAGER, which is retryable.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_HSM_H
#define NAOS_KEYD_HSM_H

#include "base/secret.h"
#include "base/uuid.h"

#define NAOS_HSM_MAX_DATA_BYTES ((size_t)256 << 10) /* plaintext or ciphertext of one item */
#define NAOS_HSM_MAX_ITEMS 1000

struct naos_hsm;

/* A key is either resident (made in the token, never outside) or kept: its value stands wrapped in the key manager's
 * database and is unwrapped inside the worker for the moment of use. */
struct naos_hsm_key {
	bool resident;
	struct naos_uuid id;       /* resident */
	const uint8_t *kept;       /* kept: what naos_hsm_keep gave */
	size_t kept_bytes;
	struct naos_uuid owner_id; /* kept: the object it was kept for; another is NAOS_E_INTEGRITY */
};

enum naos_hsm_mode { NAOS_HSM_GCM = 1, NAOS_HSM_CBC_PKCS5, NAOS_HSM_CBC, NAOS_HSM_ECB_PKCS5, NAOS_HSM_ECB, NAOS_HSM_CTR };

struct naos_hsm_crypt {
	struct naos_hsm_key key;
	bool encrypt;
	enum naos_hsm_mode mode;
	uint8_t iv[16];  /* encrypt with iv_bytes 0: the worker makes one and puts it here (12 bytes for GCM, 16 else) */
	size_t iv_bytes;
	const uint8_t *associated;
	size_t associated_bytes;
	const uint8_t *in; /* in secret memory where it is plaintext */
	size_t in_bytes;
	uint8_t *out; /* in secret memory where it is plaintext; room for in_bytes + 16 */
	size_t out_bytes; /* set */
	uint8_t tag[16];  /* GCM */
	size_t tag_bytes; /* GCM: 4, 8, 12 to 16 as KMIP allows; the default is 16 */
	int result;
	struct naos_error error;
};

/* Makes an AES-256 key in the token under this id: answered only when it is durable and proven (lib/keys/provision.h). */
int naos_hsm_create(struct naos_hsm *hsm, const struct naos_uuid *id, struct naos_error *err) naos_must_check;
/* Ends it, verified after re-opening.  A key that is not there is no error: the metadata decides. */
int naos_hsm_destroy(struct naos_hsm *hsm, const struct naos_uuid *id, struct naos_error *err) naos_must_check;
/* Items of one or many keys; each has its result; returns that of the first failed one. */
int naos_hsm_crypt(struct naos_hsm *hsm, struct naos_hsm_crypt *items, size_t count, struct naos_error *err) naos_must_check;
/* Wraps a key value (Register, exportable Create) under the storage key of the token, bound to owner_id; *ret is not secret, the caller frees it. */
int naos_hsm_keep(struct naos_hsm *hsm, const struct naos_uuid *owner_id, const struct naos_secret *value, uint8_t **ret,
		  size_t *ret_bytes, struct naos_error *err) naos_must_check;
/* The value back, for Get of an exportable object. */
int naos_hsm_release(struct naos_hsm *hsm, const struct naos_hsm_key *key, struct naos_secret **ret, struct naos_error *err) naos_must_check;
/* A fresh kept value of `bytes` that never was in the front (Create of class exportable). */
int naos_hsm_create_kept(struct naos_hsm *hsm, const struct naos_uuid *owner_id, size_t bytes, uint8_t **ret, size_t *ret_bytes,
			 struct naos_error *err) naos_must_check;
int naos_hsm_random(struct naos_hsm *hsm, void *ret, size_t bytes, struct naos_error *err) naos_must_check;
struct naos_hsm *naos_hsm_close(struct naos_hsm *hsm);

#endif

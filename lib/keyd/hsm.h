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
#include "keyd/limits.h"

struct naos_hsm;

struct naos_hsm_options {
	const char *token_uri;  /* pkcs11:…, with pin-source file: or systemd: (only the worker reads the PIN) */
	const char *store_path; /* the worker's own metadata of token keys */
	const char *program;    /* run as `program --worker CHANNELS`; NULL: the program that runs now; a constant */
	unsigned channels;      /* worker threads, 1 to NAOS_HSM_MAX_CHANNELS */
	bool network;           /* the PKCS#11 module reaches its HSM over the network: sockets stay allowed */
};

/* What is executed where options name no program: a process that limits its system calls must allow this one (base/confine.h). */
extern const char naos_hsm_own_program[];

/* Starts the worker; returns when it is logged in.  Errors: those of naos_token_open, NAOS_E_KEYMANAGER. */
int naos_hsm_start(const struct naos_hsm_options *options, struct naos_hsm **ret, struct naos_error *err) naos_must_check;
/* The same operations in this process, without a worker: for tests and fuzzing. */
int naos_hsm_open_direct(const struct naos_hsm_options *options, struct naos_hsm **ret, struct naos_error *err) naos_must_check;
/* Lets the worker end and waits for it. */
struct naos_hsm *naos_hsm_close(struct naos_hsm *hsm);

/* The main function of the worker: what `program --worker CHANNELS` calls; its sockets are descriptors 3, 4, …  */
int naos_hsm_worker_main(int argc, char **argv);

struct naos_hsm_status {
	bool alive;        /* as far as the last call showed */
	int pid;           /* of the worker; 0 for the direct variant */
	uint64_t restarts;
	uint64_t waiting;  /* jobs that no channel has taken yet */
};
void naos_hsm_status(struct naos_hsm *hsm, struct naos_hsm_status *ret);

/* A key is either resident (made in the token, never outside) or kept: its value stands wrapped in the key manager's
 * database and is unwrapped inside the worker for the moment of use. */
struct naos_hsm_key {
	bool resident;
	struct naos_uuid id; /* resident: of the key; kept: of the object it was kept for, another is NAOS_E_INTEGRITY */
	const uint8_t *kept; /* kept: what naos_hsm_keep gave */
	size_t kept_bytes;
};

enum naos_hsm_mode { NAOS_HSM_GCM = 1, NAOS_HSM_CBC_PKCS5, NAOS_HSM_CBC, NAOS_HSM_ECB_PKCS5, NAOS_HSM_ECB, NAOS_HSM_CTR,
		     NAOS_HSM_KEY_WRAP /* RFC 3394; kept keys only: a token key that wraps could give others away */ };

struct naos_hsm_crypt {
	struct naos_hsm_key key;
	bool encrypt;
	enum naos_hsm_mode mode;
	/* encrypt with iv_bytes 0: the worker makes one and puts it here (12 bytes for GCM, 16 else) */
	uint8_t iv[NAOS_HSM_MAX_IV_BYTES];
	size_t iv_bytes;
	const uint8_t *associated;
	size_t associated_bytes;
	const uint8_t *in; /* in secret memory where it is plaintext */
	size_t in_bytes;
	uint8_t *out;      /* in secret memory where it is plaintext; room for in_bytes + NAOS_HSM_GROWTH_BYTES */
	size_t out_bytes;  /* set */
	uint8_t tag[16];   /* GCM */
	size_t tag_bytes;  /* GCM: 4, 8, 12 to 16; the rest of tag is zero */
	int result;
	struct naos_error error;
};

/* Makes an AES-256 key in the token under this id: answered only when it is durable and proven (lib/keys/provision.h).  Asking
 * again for a key that is there is fine. */
int naos_hsm_create(struct naos_hsm *hsm, const struct naos_uuid *id, struct naos_error *err) naos_must_check;
/* Ends it, verified after re-opening.  A key that is not there is no error: the metadata decides. */
int naos_hsm_destroy(struct naos_hsm *hsm, const struct naos_uuid *id, struct naos_error *err) naos_must_check;
/* Items of one or many keys; each has its result; returns that of the first failed one.  NAOS_E_INTEGRITY: a wrong tag or padding. */
int naos_hsm_crypt(struct naos_hsm *hsm, struct naos_hsm_crypt *items, size_t count, struct naos_error *err) naos_must_check;
/* The same for items that stand apart, each within the limits above: all go in one frame, if they fit. */
void naos_hsm_crypt_all(struct naos_hsm *hsm, struct naos_hsm_crypt *const *items, size_t count);
/* Wraps a key value (Register, exportable Create) under the storage key of the token, bound to id; *ret is not secret, the caller
 * frees it. */
int naos_hsm_keep(struct naos_hsm *hsm, const struct naos_uuid *id, const struct naos_secret *value, uint8_t **ret, size_t *ret_bytes,
		  struct naos_error *err) naos_must_check;
/* The value back, for Get of an exportable object. */
int naos_hsm_release(struct naos_hsm *hsm, const struct naos_hsm_key *key, struct naos_secret **ret,
		     struct naos_error *err) naos_must_check;
/* A fresh kept value of `bytes` that never was in the front (Create of class exportable). */
int naos_hsm_create_kept(struct naos_hsm *hsm, const struct naos_uuid *id, size_t bytes, uint8_t **ret, size_t *ret_bytes,
			 struct naos_error *err) naos_must_check;
/* SHA-256 of a kept value, for the attribute Digest. */
int naos_hsm_digest(struct naos_hsm *hsm, const struct naos_hsm_key *key, uint8_t ret[static 32],
		    struct naos_error *err) naos_must_check;
/* At most NAOS_HSM_MAX_RANDOM_BYTES, from the token. */
int naos_hsm_random(struct naos_hsm *hsm, void *ret, size_t bytes, struct naos_error *err) naos_must_check;

static inline void naos_hsm_close_pointer(struct naos_hsm **hsm)
{
	*hsm = naos_hsm_close(*hsm);
}
#define naos_autohsm naos_cleanup(naos_hsm_close_pointer)

#endif

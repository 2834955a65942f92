/* One PKCS#11 token: its sessions, its keys and what is done with them.  Used by the PKCS#11 provider only.
 *
 * Locks, in the order in which they are taken: the store's lock over token objects (across processes), the module's gate
 * (naos_token_enter), `objects` (one thread at a time searches or changes objects), `lock` (pool and map, for moments only).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYS_TOKEN_H
#define NAOS_KEYS_TOKEN_H

#include "keys/module.h"
#include "keys/provider.h"
#include "keys/uri.h"

#define NAOS_TOKEN_MAX_SESSIONS 64 /* sessions with a token at once, beside the anchor */
#define NAOS_TOKEN_ID_BYTES 20	   /* CKA_ID: MEK id, version (big-endian) */

/* A MEK found on the token. */
struct naos_token_key {
	struct naos_uuid mek_id;
	uint32_t version;
	bool duplicate;		 /* two objects claim to be this key: neither is used */
	CK_OBJECT_HANDLE object; /* on the token */
	CK_OBJECT_HANDLE handle; /* checked, proven and ready: a copy in the anchor session, or the object; 0: not yet looked at */
};

struct naos_token {
	struct naos_module *module;
	struct naos_token_uri uri;
	struct naos_secret *pin; /* NULL: the device asks for it itself */
	bool pin_refused;	 /* a PIN once refused is not tried again: tokens lock */
	pid_t pid;

	char label[33], serial[17]; /* of the first connection */

	/* changed under the exclusive gate */
	CK_SLOT_ID slot;
	CK_SESSION_HANDLE anchor; /* never closed: closing the last session logs out; owns the copies */
	uint64_t generation;	  /* of the module when the sessions were opened */
	uint64_t epoch;		  /* counts connections, from 1 */
	bool down;
	bool absent;		 /* the module did not list it when it was last looked for */
	int64_t retry_ns; /* no new attempt to connect before */
	struct naos_error why_down;

	pthread_mutex_t objects;
	pthread_mutex_t lock;
	pthread_cond_t freed;
	CK_SESSION_HANDLE idle[NAOS_TOKEN_MAX_SESSIONS];
	size_t idle_count, open_count, max_sessions;
	struct naos_token_key *keys; /* sorted by id and version */
	size_t key_count;
};

/* Finds the token, logs in.  Errors: NAOS_E_USAGE, NAOS_E_PIN, NAOS_E_KEYMANAGER. */
int naos_token_open(const char *uri, struct naos_token **ret, struct naos_error *err) naos_must_check;
struct naos_token *naos_token_close(struct naos_token *token);

/* Every use of the token stands between enter and leave.  Entering reconnects a token that is down or was re-initialised;
 * *ret_epoch says which connection this is. */
int naos_token_enter(struct naos_token *token, uint64_t *ret_epoch, struct naos_error *err) naos_must_check;
/* The same with nobody else inside: to destroy what others may be using. */
int naos_token_enter_alone(struct naos_token *token, struct naos_error *err) naos_must_check;
void naos_token_leave(struct naos_token *token);
/* After a call failed on connection `epoch`: sessions, login and handles are made anew, if need be after C_Finalize and
 * C_Initialize.  Not between enter and leave.  At most one attempt a second. */
int naos_token_recover(struct naos_token *token, uint64_t epoch, struct naos_error *err) naos_must_check;
/* A state of the module that knows nothing of what was written (C_Finalize, C_Initialize, login): for checks of what is
 * really on the token.  Only for modules whose objects are files (SoftHSM); elsewhere a new connection. */
int naos_token_reopen(struct naos_token *token, struct naos_error *err) naos_must_check;

/* A session of the pool for one operation; waits if the token has no more. */
int naos_session_acquire(struct naos_token *token, CK_SESSION_HANDLE *ret, struct naos_error *err) naos_must_check;
/* rv of the operation: a session that failed is closed, for an operation may still be active in it. */
void naos_session_release(struct naos_token *token, CK_SESSION_HANDLE session, CK_RV rv);

/* Objects (object.c). */
void naos_token_id(const struct naos_uuid *mek_id, uint32_t version, uint8_t ret[static NAOS_TOKEN_ID_BYTES]);
/* Makes the map of keys anew from a search of the whole token. */
int naos_token_search(struct naos_token *token, struct naos_error *err) naos_must_check;
/* The handle to use for a key of the map; at its first use the key is checked and must open its known answer.  *ret 0 if the
 * token has no such key.  NAOS_E_KEY_STATE: a key that may leave the token, or has roles that leak others; NAOS_E_WRONG_KEY. */
int naos_token_key(struct naos_token *token, const struct naos_mek *mek, const struct naos_blob *proof, CK_OBJECT_HANDLE *ret,
		   struct naos_error *err) naos_must_check;
int naos_token_generate(struct naos_token *token, const struct naos_mek *mek, CK_OBJECT_HANDLE *ret,
			struct naos_error *err) naos_must_check;
/* Searches for one key and puts it in the map (or takes it out); *ret_count objects have its id. */
int naos_token_find(struct naos_token *token, const struct naos_mek *mek, size_t *ret_count, struct naos_error *err) naos_must_check;
/* Destroys all objects of a key and its copy; *ret_count objects there were.  Entered alone, as for forget. */
int naos_token_destroy(struct naos_token *token, const struct naos_mek *mek, size_t *ret_count, struct naos_error *err) naos_must_check;
/* Drops the copy of a key that another process destroyed. */
void naos_token_forget(struct naos_token *token, const struct naos_mek *mek);
/* Destroys secret keys without label, id and value: what SoftHSM leaves when it is killed in C_GenerateKey. */
int naos_token_sweep_partial(struct naos_token *token, size_t *ret_count, struct naos_error *err) naos_must_check;

/* AES-256-GCM inside the token (gcm.c). */
struct naos_token_message {
	const uint8_t *associated;
	size_t associated_bytes;
	struct naos_blob *blob; /* sealing fills iv, iv_bytes, ciphertext, ciphertext_bytes and tag */
};
/* Room for an opened text: some modules want more than they fill. */
#define NAOS_TOKEN_PLAINTEXT_BYTES (NAOS_BLOB_MAX_CIPHERTEXT_BYTES + 64)
int naos_token_seal(struct naos_token *token, CK_OBJECT_HANDLE key, const uint8_t *plaintext, size_t bytes,
		    const struct naos_token_message *message, struct naos_error *err) naos_must_check;
/* plaintext: NAOS_TOKEN_PLAINTEXT_BYTES of secret memory.  NAOS_E_INTEGRITY only if the key still opens `known`: tokens
 * answer a bad tag with the same code as a fault of their own. */
int naos_token_unseal(struct naos_token *token, CK_OBJECT_HANDLE key, const struct naos_token_message *message,
		      const struct naos_token_message *known, uint8_t *plaintext, size_t *ret_bytes,
		      struct naos_error *err) naos_must_check;

/* The known answer of a key (proof.c): a fixed plaintext, wrapped when the key was made and kept in the store.  It shows that
 * the token holds the same key still. */
int naos_proof_make(struct naos_token *token, CK_OBJECT_HANDLE key, const struct naos_mek *mek, struct naos_blob *ret,
		    struct naos_error *err) naos_must_check;
/* NAOS_E_WRONG_KEY: the token has another key under the same id. */
int naos_proof_check(struct naos_token *token, CK_OBJECT_HANDLE key, const struct naos_blob *proof,
		     struct naos_error *err) naos_must_check;
/* Proof as a message; associated: room for NAOS_BLOB_ASSOCIATED_BYTES that lives as long as the message. */
struct naos_token_message naos_proof_message(const struct naos_blob *proof, uint8_t *associated);

int64_t naos_now_ns(void);

#endif

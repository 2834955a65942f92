/* Key provider: where MEKs live and wrap.  Providers stand behind one table, chosen by the scheme of a URI:
 * `pkcs11:` here, `kmip://` in the next part, `vault+https://` later.
 *
 * All calls are thread-safe.  A provider must be opened after the last fork() of a program: no HSM module survives one.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYS_PROVIDER_H
#define NAOS_KEYS_PROVIDER_H

#include "keys/blob.h"

#define NAOS_MEK_NAME_BYTES 64 /* with the final NUL; letters, digits, '.', '_', '-' */
#define NAOS_KEY_ID_BYTES 128  /* identifier of a key at its key manager, with the final NUL */
#define NAOS_MEK_WARN_USES ((uint64_t)1 << 31)
#define NAOS_MEK_MAX_USES (((uint64_t)1 << 32) - 1) /* wraps per version with random nonces */

enum naos_mek_state {
	NAOS_MEK_PRE_ACTIVE = 1,
	NAOS_MEK_ACTIVE = 2,      /* wraps and unwraps */
	NAOS_MEK_DEACTIVATED = 3, /* unwraps only: superseded by rotation */
	NAOS_MEK_REVOKED = 4,     /* neither, unless the version is made active again by hand */
	NAOS_MEK_DESTROYED = 5,   /* gone; the metadata stays */
};

/* One version of a MEK. */
struct naos_mek {
	struct naos_uuid id; /* of the MEK: the same for all its versions */
	char name[NAOS_MEK_NAME_BYTES];
	uint32_t version;
	enum naos_mek_state state;
	int64_t created_unix_s;
	int64_t changed_unix_s; /* last change of state */
	uint64_t uses;          /* wraps so far, counted ahead in steps so that a crash never counts too few */
};

/* One wrap or unwrap of a batch. */
struct naos_wrap_item {
	struct naos_wrap_context context;
	const struct naos_secret *key; /* wrap: borrowed, 16 or 32 bytes */
	struct naos_blob blob;         /* wrap: filled; unwrap: given */
	struct naos_secret *unwrapped; /* unwrap: made on success, the caller frees it */
	int result;                    /* 0 or a code, for each item */
	struct naos_error error;       /* its sentence, if result is not 0 */
};

struct naos_provider;

/* What a kind of provider implements.  Functions may be NULL: the call then answers NAOS_E_UNSUPPORTED. */
struct naos_provider_ops {
	const char *scheme; /* "pkcs11" */
	int (*open)(const char *uri, const char *store_path, void **ret_state, struct naos_error *err);
	void (*close)(void *state);
	int (*create)(void *state, const char *name, struct naos_mek *ret, struct naos_error *err);
	int (*rotate)(void *state, const char *name, struct naos_mek *ret, struct naos_error *err);
	int (*set_state)(void *state, const char *name, uint32_t version, enum naos_mek_state to, struct naos_error *err);
	int (*destroy)(void *state, const char *name, uint32_t version, struct naos_error *err);
	int (*import)(void *state, const char *name, const struct naos_secret *key, char ret_id[static NAOS_KEY_ID_BYTES],
		      struct naos_error *err);
	const char *no_import; /* why import is NULL */
	int (*list)(void *state, struct naos_mek **ret, size_t *ret_count, struct naos_error *err);
	int (*wrap)(void *state, const char *name, struct naos_wrap_item *items, size_t count, struct naos_error *err);
	int (*unwrap)(void *state, struct naos_wrap_item *items, size_t count, struct naos_error *err);
};

/* store_path: metadata of keys beside a token (configuration keymanager.store); NULL: its default.
 * Errors: NAOS_E_USAGE (bad URI), NAOS_E_PIN, NAOS_E_KEYMANAGER, NAOS_E_UNSUPPORTED (unknown scheme: says what exists). */
int naos_provider_open(const char *uri, const char *store_path, struct naos_provider **ret, struct naos_error *err) naos_must_check;
/* The same, and a key manager that is away now (NAOS_E_KEYMANAGER) is opened by the first call that needs it: for daemons. */
int naos_provider_open_later(const char *uri, const char *store_path, struct naos_provider **ret, struct naos_error *err) naos_must_check;
struct naos_provider *naos_provider_close(struct naos_provider *provider);

/* Makes version 1 of a MEK.  Answered only when the key is durable and proven by a known answer after re-opening. */
int naos_mek_create(struct naos_provider *provider, const char *name, struct naos_mek *ret, struct naos_error *err) naos_must_check;
/* Makes the next version; the one before becomes deactivated (it still unwraps). */
int naos_mek_rotate(struct naos_provider *provider, const char *name, struct naos_mek *ret, struct naos_error *err) naos_must_check;
/* version 0: the newest.  deactivate: it wraps no more, and still unwraps; revoke: unusable for any work; destroy: only of a
 * deactivated or revoked version, not undoable. */
int naos_mek_activate(struct naos_provider *provider, const char *name, uint32_t version, struct naos_error *err) naos_must_check;
int naos_mek_deactivate(struct naos_provider *provider, const char *name, uint32_t version, struct naos_error *err) naos_must_check;
int naos_mek_revoke(struct naos_provider *provider, const char *name, uint32_t version, struct naos_error *err) naos_must_check;
int naos_mek_destroy(struct naos_provider *provider, const char *name, uint32_t version, struct naos_error *err) naos_must_check;
/* Gives a key that was made elsewhere to the key manager, for clients that take it out again (class exportable): AES, 16, 24 or 32 bytes,
 * active at once.  It is no MEK: those are made in the HSM.  *ret_id names it there.  NAOS_E_UNSUPPORTED, with the reason: this kind of
 * key manager takes none; NAOS_E_DENIED: this client may not; NAOS_E_EXISTS. */
int naos_key_import(struct naos_provider *provider, const char *name, const struct naos_secret *key,
		    char ret_id[static NAOS_KEY_ID_BYTES], struct naos_error *err) naos_must_check;
/* All versions of all MEKs, by name and version; the caller frees *ret. */
int naos_mek_list(struct naos_provider *provider, struct naos_mek **ret, size_t *ret_count, struct naos_error *err) naos_must_check;
/* All versions of one MEK, newest first.  NAOS_E_NOKEY if there is none. */
int naos_mek_find(struct naos_provider *provider, const char *name, struct naos_mek **ret, size_t *ret_count,
		  struct naos_error *err) naos_must_check;

/* Wrap under the active version of a MEK / unwrap under the one that each blob names.  A batch goes on after a failed
 * item; the return value is that of the first failed item.  Unwrap: NAOS_E_INTEGRITY (damaged, or of another object),
 * NAOS_E_NOKEY, NAOS_E_KEY_STATE, NAOS_E_KEYMANAGER. */
int naos_keys_wrap(struct naos_provider *provider, const char *mek_name, struct naos_wrap_item *items, size_t count,
		   struct naos_error *err) naos_must_check;
int naos_keys_unwrap(struct naos_provider *provider, struct naos_wrap_item *items, size_t count, struct naos_error *err) naos_must_check;

const char *naos_mek_state_name(enum naos_mek_state state);

static inline void naos_provider_close_pointer(struct naos_provider **provider)
{
	*provider = naos_provider_close(*provider);
}
#define naos_autoprovider naos_cleanup(naos_provider_close_pointer)

#endif

/* Connection to a token: slot, login, anchor session, pool, recovery.  SPDX-License-Identifier: Apache-2.0 */
#include "keys/token.h"

#include <string.h>
#include <time.h>

#include "keys/softhsm.h"

#define RETRY_NS 1000000000LL	   /* between attempts to reach a token that is away */
#define AGAIN_NS 100000000LL	   /* between connections to one that is there and fails */
#define SESSION_WAIT_S 30	   /* for a session of a full token */
#define LONGEST_LOOK_MS 160	   /* of pauses that double: a third of a second for a SoftHSM token to come back */
#define MAX_SLOTS 1024

int64_t naos_now_ns(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_BOOTTIME, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* PKCS#11 texts are padded with blanks and not ended. */
static void copy_padded(char *ret, const CK_UTF8CHAR *text, size_t bytes)
{
	while (bytes > 0 && (text[bytes - 1] == ' ' || text[bytes - 1] == 0))
		bytes--;
	memcpy(ret, text, bytes);
	ret[bytes] = 0;
}

static bool is_text(const char *wanted, const CK_UTF8CHAR *text, size_t bytes)
{
	char plain[65];
	copy_padded(plain, text, bytes);
	return !wanted || strcmp(wanted, plain) == 0;
}

static bool matches(const struct naos_token_uri *uri, CK_SLOT_ID slot, const CK_TOKEN_INFO *info)
{
	return (info->flags & CKF_TOKEN_INITIALIZED) && (!uri->has_slot_id || uri->slot_id == slot) &&
	       is_text(uri->token, info->label, sizeof(info->label)) && is_text(uri->serial, info->serialNumber, sizeof(info->serialNumber)) &&
	       is_text(uri->model, info->model, sizeof(info->model)) &&
	       is_text(uri->manufacturer, info->manufacturerID, sizeof(info->manufacturerID));
}

static int no_single_token(const struct naos_token *token, size_t found, const char *seen, struct naos_error *err)
{
	const char *wanted = token->uri.token ? token->uri.token : token->uri.serial ? token->uri.serial : "(any)";
	if (found == 0)
		return naos_error_set(err, NAOS_E_KEYMANAGER, "the PKCS#11 module %s has no token '%s' that the address describes; it has: %s",
				      token->module->path, wanted, seen[0] ? seen : "none");
	return naos_error_set(err, NAOS_E_USAGE,
			      "the address describes %zu tokens of the PKCS#11 module %s (%s): add token=, serial= or slot-id=", found,
			      token->module->path, seen);
}

/* Label and serial number are those of the first connection: they are read without a lock, and another token that answers to
 * the same address later is not the one that was opened. */
static int check_identity(struct naos_token *token, const CK_TOKEN_INFO *info, struct naos_error *err)
{
	if (token->serial[0] == 0) {
		copy_padded(token->label, info->label, sizeof(info->label));
		copy_padded(token->serial, info->serialNumber, sizeof(info->serialNumber));
	} else if (!is_text(token->serial, info->serialNumber, sizeof(info->serialNumber))) {
		return naos_error_set(err, NAOS_E_KEYMANAGER, "token '%s' (serial %s) was replaced by another one", token->label, token->serial);
	}
	return 0;
}

static int find_slot(struct naos_token *token, CK_TOKEN_INFO *ret_info, struct naos_error *err)
{
	CK_FUNCTION_LIST *f = token->module->functions;
	CK_SLOT_ID slots[MAX_SLOTS];
	CK_ULONG count = MAX_SLOTS;
	CK_TOKEN_INFO info;
	char text[NAOS_RV_TEXT_BYTES], seen[256] = "", label[33];
	size_t found = 0;
	CK_RV rv = f->C_GetSlotList(CK_TRUE, slots, &count);
	if (rv != CKR_OK)
		return naos_error_set(err, NAOS_E_KEYMANAGER, "the PKCS#11 module %s lists no slots: %s", token->module->path,
				      naos_rv_text(rv, text));
	for (CK_ULONG i = 0; i < count; i++) {
		if (f->C_GetTokenInfo(slots[i], &info) != CKR_OK)
			continue;
		bool match = matches(&token->uri, slots[i], &info);
		if (match) {
			token->slot = slots[i];
			*ret_info = info;
			found++;
		}
		if (!(info.flags & CKF_TOKEN_INITIALIZED))
			continue;
		copy_padded(label, info.label, sizeof(info.label));
		size_t used = strlen(seen);
		(void)snprintf(seen + used, sizeof(seen) - used, "%s'%s'", used ? ", " : "", label);
	}
	token->absent = found == 0;
	if (found != 1)
		return no_single_token(token, found, seen, err);
	return check_identity(token, ret_info, err);
}

static int login(struct naos_token *token, const CK_TOKEN_INFO *info, struct naos_error *err)
{
	char text[NAOS_RV_TEXT_BYTES];
	if (token->pin_refused)
		return naos_error_set(err, NAOS_E_PIN, "token '%s' refused the PIN before; it is not tried again, so that the token does not lock",
				      token->label);
	if (!(info->flags & CKF_USER_PIN_INITIALIZED))
		return naos_error_set(err, NAOS_E_PIN, "token '%s' has no user PIN yet", token->label);
	if (!token->pin && !(info->flags & CKF_PROTECTED_AUTHENTICATION_PATH))
		return naos_error_set(err, NAOS_E_PIN, "token '%s' needs a PIN: add ?pin-source=file:/path, fd:N or systemd:NAME to its address",
				      token->label);
	if (info->flags & CKF_USER_PIN_FINAL_TRY)
		return naos_error_set(err, NAOS_E_PIN,
				      "token '%s' will lock at the next wrong PIN, so Naos does not try: check the PIN with the token's own tool",
				      token->label);
	/* C_Login takes no const */
	CK_UTF8CHAR *pin = token->pin ? naos_secret_data(token->pin) : NULL;
	CK_RV rv = token->module->functions->C_Login(token->anchor, CKU_USER, pin, token->pin ? naos_secret_bytes(token->pin) : 0);
	switch (rv) {
	case CKR_OK:
	case CKR_USER_ALREADY_LOGGED_IN: /* by another provider of this process */
		return 0;
	case CKR_PIN_INCORRECT:
	case CKR_PIN_INVALID:
	case CKR_PIN_LEN_RANGE:
	case CKR_PIN_EXPIRED:
	case CKR_PIN_LOCKED:
		token->pin_refused = true;
		return naos_error_set(err, NAOS_E_PIN, "token '%s' refused the PIN: %s", token->label, naos_rv_text(rv, text));
	default:
		return naos_error_set(err, NAOS_E_KEYMANAGER, "cannot log in to token '%s': %s", token->label, naos_rv_text(rv, text));
	}
}

/* Forgets sessions and handles; closes them where the connection may still be there. */
static void disconnect(struct naos_token *token)
{
	CK_FUNCTION_LIST *f = token->module->functions;
	bool same = token->generation == token->module->generation;
	for (size_t i = 0; same && i < token->idle_count; i++)
		(void)f->C_CloseSession(token->idle[i]);
	if (same && token->anchor)
		(void)f->C_CloseSession(token->anchor);
	token->anchor = 0;
	token->idle_count = token->open_count = 0;
	free(token->keys);
	token->keys = NULL;
	token->key_count = 0;
}

static int connect_token(struct naos_token *token, struct naos_error *err)
{
	CK_TOKEN_INFO info;
	char text[NAOS_RV_TEXT_BYTES];
	int rc = find_slot(token, &info, err);
	if (rc != 0)
		return rc;
	CK_RV rv = token->module->functions->C_OpenSession(token->slot, CKF_SERIAL_SESSION | CKF_RW_SESSION, NULL, NULL, &token->anchor);
	if (rv != CKR_OK)
		return naos_error_set(err, NAOS_E_KEYMANAGER, "cannot open a session with token '%s': %s", token->label, naos_rv_text(rv, text));
	token->generation = token->module->generation;
	token->max_sessions = NAOS_TOKEN_MAX_SESSIONS;
	if (info.ulMaxSessionCount != CK_EFFECTIVELY_INFINITE && info.ulMaxSessionCount != CK_UNAVAILABLE_INFORMATION &&
	    info.ulMaxSessionCount > 1 && info.ulMaxSessionCount - 1 < NAOS_TOKEN_MAX_SESSIONS)
		token->max_sessions = info.ulMaxSessionCount - 1;
	rc = token->module->softhsm ? naos_softhsm_keep_token(token->serial, err) : 0;
	if (rc == 0)
		rc = login(token, &info, err);
	if (rc != 0)
		disconnect(token);
	return rc;
}

/* A token that a login lost halfway is not there at all: it is mended and looked for again.  One that another process logs in to at this
 * moment is not there either, for a moment: SoftHSM reads its file while it is written. */
static int connect_or_mend(struct naos_token *token, struct naos_error *err)
{
	int rc = connect_token(token, err);
	for (long pause_ms = 10; rc == NAOS_E_KEYMANAGER && token->module->softhsm && pause_ms <= LONGEST_LOOK_MS; pause_ms *= 2) {
		const struct timespec pause = { 0, pause_ms * 1000000L };
		if (naos_softhsm_mend_tokens() == 0) {
			if (!token->absent)
				break;
			(void)nanosleep(&pause, NULL);
		}
		disconnect(token);
		rc = naos_module_restart(token->module, err);
		if (rc == 0)
			rc = connect_token(token, err);
	}
	return rc;
}

/* The gate is held exclusively. */
static int reconnect(struct naos_token *token, bool restart, struct naos_error *err)
{
	struct naos_error why = NAOS_ERROR_INIT;
	disconnect(token);
	int rc = restart ? naos_module_restart(token->module, &why) : 0;
	if (rc == 0)
		rc = connect_or_mend(token, &why);
	if (rc != 0 && rc != NAOS_E_PIN && !restart) {
		rc = naos_module_restart(token->module, &why);
		if (rc == 0)
			rc = connect_or_mend(token, &why);
	}
	token->epoch++;
	token->down = rc != 0;
	token->why_down = why;
	return rc ? naos_error_set(err, rc, "%s", why.message) : 0;
}

int naos_token_recover(struct naos_token *token, uint64_t epoch, struct naos_error *err)
{
	int rc = 0;
	(void)pthread_rwlock_wrlock(&token->module->gate);
	bool stale = token->down || token->generation != token->module->generation;
	/* another thread may have done it since */
	if (token->epoch == epoch || stale) {
		if (naos_now_ns() >= token->retry_ns || (stale && !token->down)) {
			rc = reconnect(token, false, err);
			token->retry_ns = naos_now_ns() + (rc ? RETRY_NS : AGAIN_NS);
		} else if (token->down) {
			rc = naos_error_set(err, token->why_down.code, "%s", token->why_down.message);
		} else {
			rc = naos_error_set(err, NAOS_E_KEYMANAGER, "token '%s' fails again and again", token->label);
		}
	}
	(void)pthread_rwlock_unlock(&token->module->gate);
	return rc;
}

int naos_token_reopen(struct naos_token *token, struct naos_error *err)
{
	(void)pthread_rwlock_wrlock(&token->module->gate);
	int rc = reconnect(token, token->module->softhsm, err);
	(void)pthread_rwlock_unlock(&token->module->gate);
	return rc;
}

static int enter(struct naos_token *token, bool alone, uint64_t *ret_epoch, struct naos_error *err)
{
	if (token->pid != getpid())
		return naos_error_set(err, NAOS_E_UNSUPPORTED,
				      "this process was forked after it opened token '%s'; no PKCS#11 module survives that: "
				      "open the key manager after the last fork", token->label);
	for (;;) {
		(void)(alone ? pthread_rwlock_wrlock(&token->module->gate) : pthread_rwlock_rdlock(&token->module->gate));
		uint64_t epoch = token->epoch;
		if (!token->down && token->generation == token->module->generation) {
			*ret_epoch = epoch;
			return 0;
		}
		(void)pthread_rwlock_unlock(&token->module->gate);
		int rc = naos_token_recover(token, epoch, err);
		if (rc != 0)
			return rc;
	}
}

int naos_token_enter(struct naos_token *token, uint64_t *ret_epoch, struct naos_error *err)
{
	return enter(token, false, ret_epoch, err);
}

int naos_token_enter_alone(struct naos_token *token, struct naos_error *err)
{
	uint64_t epoch;
	return enter(token, true, &epoch, err);
}

void naos_token_leave(struct naos_token *token)
{
	(void)pthread_rwlock_unlock(&token->module->gate);
}

int naos_session_acquire(struct naos_token *token, CK_SESSION_HANDLE *ret, struct naos_error *err)
{
	CK_FUNCTION_LIST *f = token->module->functions;
	char text[NAOS_RV_TEXT_BYTES];
	struct timespec deadline;
	CK_RV rv = CKR_OK;
	(void)clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec += SESSION_WAIT_S;
	(void)pthread_mutex_lock(&token->lock);
	while (token->idle_count == 0) {
		bool full = token->open_count >= token->max_sessions;
		if (!full) {
			CK_SESSION_HANDLE session;
			token->open_count++;
			rv = f->C_OpenSession(token->slot, CKF_SERIAL_SESSION, NULL, NULL, &session);
			if (rv == CKR_OK) {
				(void)pthread_mutex_unlock(&token->lock);
				*ret = session;
				return 0;
			}
			token->open_count--;
			full = rv == CKR_SESSION_COUNT && token->open_count > 0;
		}
		if (!full || pthread_cond_timedwait(&token->freed, &token->lock, &deadline) == ETIMEDOUT) {
			(void)pthread_mutex_unlock(&token->lock);
			return naos_error_set(err, NAOS_E_KEYMANAGER, "token '%s' gives no session (%zu are in use here): %s", token->label,
					      token->open_count, naos_rv_text(full ? CKR_SESSION_COUNT : rv, text));
		}
	}
	*ret = token->idle[--token->idle_count];
	(void)pthread_mutex_unlock(&token->lock);
	return 0;
}

void naos_session_release(struct naos_token *token, CK_SESSION_HANDLE session, CK_RV rv)
{
	if (rv != CKR_OK)
		(void)token->module->functions->C_CloseSession(session);
	(void)pthread_mutex_lock(&token->lock);
	if (rv == CKR_OK)
		token->idle[token->idle_count++] = session;
	else
		token->open_count--;
	(void)pthread_cond_signal(&token->freed);
	(void)pthread_mutex_unlock(&token->lock);
}

int naos_token_open(const char *uri, struct naos_token **ret, struct naos_error *err)
{
	naos_autofree char *path = NULL;
	struct naos_token *token = calloc(1, sizeof(*token));
	if (!token)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a token");
	token->pid = getpid();
	token->epoch = 1;
	(void)pthread_mutex_init(&token->objects, NULL);
	(void)pthread_mutex_init(&token->lock, NULL);
	(void)pthread_cond_init(&token->freed, NULL);
	int rc = naos_token_uri_parse(uri, &token->uri, err);
	if (rc == 0)
		rc = naos_token_uri_pin(&token->uri, &token->pin, err);
	if (rc == 0)
		rc = naos_token_uri_module(&token->uri, &path, err);
	if (rc == 0)
		rc = naos_module_acquire(path, &token->module, err);
	if (rc == 0) {
		(void)pthread_rwlock_wrlock(&token->module->gate);
		rc = connect_or_mend(token, err);
		/* a module that is in use looked for tokens when it started */
		if (rc == NAOS_E_KEYMANAGER && token->serial[0] == 0 && token->module->users > 1)
			rc = reconnect(token, true, err);
		(void)pthread_rwlock_unlock(&token->module->gate);
	}
	if (rc != 0)
		token = naos_token_close(token);
	else
		*ret = token;
	return rc;
}

struct naos_token *naos_token_close(struct naos_token *token)
{
	if (!token)
		return NULL;
	/* in a forked child the module and its sessions are the parent's: they are left alone */
	if (token->module && token->pid == getpid()) {
		(void)pthread_rwlock_wrlock(&token->module->gate);
		disconnect(token);
		(void)pthread_rwlock_unlock(&token->module->gate);
		naos_module_release(token->module);
	}
	free(token->keys);
	naos_token_uri_clear(&token->uri);
	(void)naos_secret_free(token->pin);
	(void)pthread_cond_destroy(&token->freed);
	(void)pthread_mutex_destroy(&token->lock);
	(void)pthread_mutex_destroy(&token->objects);
	free(token);
	return NULL;
}

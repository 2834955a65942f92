/* What administrative commands share: the key manager they work on, and the record of what they do.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_CMD_ADMIN_H
#define NAOS_CMD_ADMIN_H

#include "audit/audit.h"
#include "command.h"
#include "keys/provider.h"

/* The option --keys of every command that needs the key manager. */
#define NAOS_OPTION_KEYS { "keys", 0, "URI", "key manager to use instead of the configured one" }

/* Opens the key manager that --keys or the configuration names. */
int naos_admin_open_keys(const struct naos_invocation *invocation, struct naos_provider **ret, struct naos_error *err) naos_must_check;

/* The audit log of the configuration; *ret is NULL if none is kept. */
int naos_admin_open_log(const struct naos_invocation *invocation, struct naos_audit_log **ret, struct naos_error *err) naos_must_check;
/* Records that the user does `action` on `object`: rc 0 "allowed", else "failed" with the code's name. log NULL: nothing. */
int naos_admin_record(struct naos_audit_log *log, const char *action, const char *object, int rc, struct naos_error *err) naos_must_check;
/* Finishes a recorded action: a failure is recorded too, and stays the failure that is told.  Returns rc. */
int naos_admin_finish(struct naos_audit_log *log, const char *action, const char *object, int rc, const struct naos_error *err);
/* For naos_cleanup. */
void naos_admin_close_log(struct naos_audit_log **log);

/* The same around an action that opens the log by itself: begin says whether it may be done; end records a failure, and warns if that
 * can't be. */
int naos_admin_begin(const struct naos_invocation *invocation, const char *action, const char *object,
		     struct naos_error *err) naos_must_check;
void naos_admin_end(const struct naos_invocation *invocation, const char *action, const char *object, int rc, const struct naos_error *err);

/* Makes a MEK, as `naos key create` does, with its record. */
int naos_admin_create_key(const struct naos_invocation *invocation, struct naos_provider *provider, const char *name, struct naos_mek *ret,
			  struct naos_error *err) naos_must_check;

#endif

/* Key manager and audit log of administrative commands.  SPDX-License-Identifier: Apache-2.0 */
#include "admin.h"

#include <pwd.h>
#include <string.h>

#include "base/log.h"

int naos_admin_open_keys(const struct naos_invocation *invocation, struct naos_provider **ret, struct naos_error *err)
{
	const char *uri = naos_option_value(invocation, "keys");
	if (!uri)
		uri = naos_config_string(invocation->config, "keymanager", NULL, "uri");
	return naos_provider_open(uri, naos_config_string(invocation->config, "keymanager", NULL, "store"), ret, err);
}

int naos_admin_open_log(const struct naos_invocation *invocation, struct naos_audit_log **ret, struct naos_error *err)
{
	const char *dir = naos_config_string(invocation->config, "audit", NULL, "log");
	if (dir[0])
		return naos_audit_open(dir, NULL, true, ret, err);
	*ret = NULL;
	return 0;
}

int naos_admin_record(struct naos_audit_log *log, const char *action, const char *object, int rc, struct naos_error *err)
{
	char actor[64], buffer[4096];
	struct passwd entry, *found = NULL;
	if (!log)
		return 0;
	/* who asked, also under sudo -u or setuid: the real user */
	(void)snprintf(actor, sizeof(actor), "uid:%u", (unsigned)getuid());
	if (getpwuid_r(getuid(), &entry, buffer, sizeof(buffer), &found) == 0 && found)
		(void)snprintf(actor, sizeof(actor), "%s", found->pw_name);
	const struct naos_audit_event event = { .actor = actor, .action = action, .object = object, .decision = rc ? "failed" : "allowed",
						.reason = rc ? naos_error_info(rc)->name : NULL };
	return naos_audit_append(log, &event, err);
}

int naos_admin_finish(struct naos_audit_log *log, const char *action, const char *object, int rc, const struct naos_error *err)
{
	struct naos_error unrecorded = NAOS_ERROR_INIT;
	if (rc != 0 && naos_admin_record(log, action, object, err->code, &unrecorded) != 0)
		naos_log(NAOS_LOG_WARNING, "the failure could not be recorded: %s", unrecorded.message);
	return rc;
}

void naos_admin_close_log(struct naos_audit_log **log)
{
	*log = naos_audit_close(*log);
}

static int record_once(const struct naos_invocation *invocation, const char *action, const char *object, int rc, struct naos_error *err)
{
	naos_cleanup(naos_admin_close_log) struct naos_audit_log *log = NULL;
	int recorded = naos_admin_open_log(invocation, &log, err);
	return recorded ? recorded : naos_admin_record(log, action, object, rc, err);
}

int naos_admin_begin(const struct naos_invocation *invocation, const char *action, const char *object, struct naos_error *err)
{
	return record_once(invocation, action, object, 0, err);
}

void naos_admin_end(const struct naos_invocation *invocation, const char *action, const char *object, int rc, const struct naos_error *err)
{
	struct naos_error unrecorded = NAOS_ERROR_INIT;
	if (rc != 0 && record_once(invocation, action, object, err->code, &unrecorded) != 0)
		naos_log(NAOS_LOG_WARNING, "the failure could not be recorded: %s", unrecorded.message);
}

int naos_admin_create_key(const struct naos_invocation *invocation, struct naos_provider *provider, const char *name, struct naos_mek *ret,
			  struct naos_error *err)
{
	int rc = naos_admin_begin(invocation, "key.create", name, err);
	if (rc != 0)
		return rc;
	rc = naos_mek_create(provider, name, ret, err);
	naos_admin_end(invocation, "key.create", name, rc, err);
	return rc;
}

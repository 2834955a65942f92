/* naos key create, list, show, activate, rotate, revoke, destroy, approve.  SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "admin.h"
#include "base/log.h"
#include "confirm.h"

#define VERSION_BYTES 12

static const struct naos_option no_options[] = { NAOS_OPTION_KEYS, { .name = NULL } };
static const struct naos_option version_options[] = {
	NAOS_OPTION_KEYS,
	{ "key-version", 'k', "NUMBER", "this version of the key" },
	{ .name = NULL },
};
static const struct naos_option destroy_options[] = {
	NAOS_OPTION_KEYS,
	{ "key-version", 'k', "NUMBER", "this version of the key" },
	{ "yes", 'y', NULL, "do not ask" },
	{ .name = NULL },
};

static void format_time(int64_t unix_s, char text[static 24])
{
	time_t when = (time_t)unix_s;
	struct tm parts = { 0 };
	(void)gmtime_r(&when, &parts);
	(void)strftime(text, 24, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

/* *ret 0 if no version was given. */
static int option_version(const struct naos_invocation *invocation, uint32_t *ret, struct naos_error *err)
{
	const char *text = naos_option_value(invocation, "key-version");
	char *end = NULL;
	*ret = 0;
	if (!text)
		return 0;
	errno = 0;
	unsigned long value = strtoul(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end || errno != 0 || value == 0 || value > UINT32_MAX)
		return naos_error_set(err, NAOS_E_USAGE, "--key-version takes the number of a version, not '%s'", text);
	*ret = (uint32_t)value;
	return 0;
}

static json_t *json_key(const struct naos_mek *mek)
{
	char id[NAOS_UUID_TEXT_BYTES], created[24], changed[24];
	format_time(mek->created_unix_s, created);
	format_time(mek->changed_unix_s, changed);
	return json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:I, s:I, s:b}", "name", mek->name, "id", naos_uuid_format(&mek->id, id), "version",
			 (json_int_t)mek->version, "state", naos_mek_state_name(mek->state), "created", created, "changed", changed, "uses",
			 (json_int_t)mek->uses, "max_uses", (json_int_t)NAOS_MEK_MAX_USES, "rotate_soon",
			 mek->state == NAOS_MEK_ACTIVE && mek->uses >= NAOS_MEK_WARN_USES);
}

static void warn_of_uses(const struct naos_mek *mek)
{
	if (mek->state == NAOS_MEK_ACTIVE && mek->uses >= NAOS_MEK_WARN_USES)
		naos_log(NAOS_LOG_WARNING,
			 "version %u of the key '%s' has wrapped %" PRIu64 " keys of at most %" PRIu64 ": rotate it ('naos key rotate %s')",
			 mek->version, mek->name, mek->uses, NAOS_MEK_MAX_USES, mek->name);
}

static int print_key(const struct naos_invocation *invocation, const struct naos_mek *mek, const char *done, struct naos_error *err)
{
	if (invocation->json)
		return naos_print_json(json_key(mek), err);
	printf("%s: version %u is %s\n", mek->name, mek->version, done);
	return 0;
}

/* ---- list, show */

static int print_list(const struct naos_invocation *invocation, const struct naos_mek *meks, size_t count, struct naos_error *err)
{
	int width = 4;
	for (size_t i = 0; i < count; i++) {
		int length = (int)strlen(meks[i].name);
		width = length > width ? length : width;
	}
	if (!invocation->json && count > 0)
		printf("%-*s  %7s  %-11s  %-20s  %10s\n", width, "NAME", "VERSION", "STATE", "CREATED", "USES");
	for (size_t i = 0; i < count; i++) {
		char created[24];
		format_time(meks[i].created_unix_s, created);
		int rc = invocation->json ? naos_print_json(json_key(&meks[i]), err) : 0;
		if (rc != 0)
			return rc;
		if (!invocation->json)
			printf("%-*s  %7u  %-11s  %-20s  %10" PRIu64 "\n", width, meks[i].name, meks[i].version, naos_mek_state_name(meks[i].state),
			       created, meks[i].uses);
		warn_of_uses(&meks[i]);
	}
	return 0;
}

static int run_list(struct naos_invocation *invocation, struct naos_error *err)
{
	naos_autoprovider struct naos_provider *provider = NULL;
	naos_autofree struct naos_mek *meks = NULL;
	size_t count = 0;
	int rc = naos_admin_open_keys(invocation, &provider, err);
	if (rc == 0)
		rc = naos_mek_list(provider, &meks, &count, err);
	return rc ? rc : print_list(invocation, meks, count, err);
}

const struct naos_command naos_command_key_list = {
	.path = "key list", .operands = "", .summary = "List all keys with their versions, states and uses", .example = "naos key list",
	.options = no_options, .run = run_list,
};

static int run_show(struct naos_invocation *invocation, struct naos_error *err)
{
	naos_autoprovider struct naos_provider *provider = NULL;
	naos_autofree struct naos_mek *meks = NULL;
	size_t count = 0;
	char id[NAOS_UUID_TEXT_BYTES];
	int rc = naos_admin_open_keys(invocation, &provider, err);
	if (rc == 0)
		rc = naos_mek_find(provider, invocation->operands[0], &meks, &count, err);
	if (rc != 0)
		return rc;
	if (!invocation->json)
		printf("name     %s\nid       %s\n", meks[0].name, naos_uuid_format(&meks[0].id, id));
	for (size_t i = 0; i < count; i++) {
		char created[24], changed[24];
		format_time(meks[i].created_unix_s, created);
		format_time(meks[i].changed_unix_s, changed);
		if (invocation->json)
			rc = naos_print_json(json_key(&meks[i]), err);
		else
			printf("version  %u: %s since %s, made %s, %" PRIu64 " of %" PRIu64 " uses\n", meks[i].version,
			       naos_mek_state_name(meks[i].state), changed, created, meks[i].uses, NAOS_MEK_MAX_USES);
		warn_of_uses(&meks[i]);
		if (rc != 0)
			return rc;
	}
	return 0;
}

const struct naos_command naos_command_key_show = {
	.path = "key show", .operands = "NAME", .summary = "Show the versions of a key, newest first", .example = "naos key show genomes",
	.min_operands = 1, .max_operands = 1, .options = no_options, .run = run_show,
};

/* ---- changes: recorded before they are made */

static int make(struct naos_invocation *invocation, const char *action,
		int (*function)(struct naos_provider *, const char *, struct naos_mek *, struct naos_error *), struct naos_error *err)
{
	naos_autoprovider struct naos_provider *provider = NULL;
	naos_cleanup(naos_admin_close_log) struct naos_audit_log *log = NULL;
	const char *name = invocation->operands[0];
	struct naos_mek mek;
	int rc = naos_admin_open_keys(invocation, &provider, err);
	if (rc == 0)
		rc = naos_admin_open_log(invocation, &log, err);
	if (rc == 0)
		rc = naos_admin_record(log, action, name, 0, err);
	if (rc == 0)
		rc = naos_admin_finish(log, action, name, function(provider, name, &mek, err), err);
	return rc ? rc : print_key(invocation, &mek, "active", err);
}

static int run_create(struct naos_invocation *invocation, struct naos_error *err)
{
	return make(invocation, "key.create", naos_mek_create, err);
}

const struct naos_command naos_command_key_create = {
	.path = "key create", .operands = "NAME", .summary = "Make a key in the HSM", .example = "naos key create genomes",
	.min_operands = 1, .max_operands = 1, .options = no_options, .run = run_create,
};

static int run_rotate(struct naos_invocation *invocation, struct naos_error *err)
{
	return make(invocation, "key.rotate", naos_mek_rotate, err);
}

const struct naos_command naos_command_key_rotate = {
	.path = "key rotate", .operands = "NAME", .summary = "Make a new version of a key; the one before still opens what it sealed",
	.example = "naos key rotate genomes", .min_operands = 1, .max_operands = 1, .options = no_options, .run = run_rotate,
};

/* The row of a version, or of the newest if version is 0. */
static int find_version(struct naos_provider *provider, const char *name, uint32_t version, struct naos_mek *ret, struct naos_error *err)
{
	naos_autofree struct naos_mek *meks = NULL;
	size_t count = 0;
	int rc = naos_mek_find(provider, name, &meks, &count, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < count; i++)
		if (version == 0 || meks[i].version == version) {
			*ret = meks[i];
			return 0;
		}
	return naos_error_set(err, NAOS_E_NOKEY, "the key '%s' has no version %u", name, version);
}

static void object_name(const struct naos_mek *mek, char text[static NAOS_MEK_NAME_BYTES + VERSION_BYTES])
{
	(void)snprintf(text, NAOS_MEK_NAME_BYTES + VERSION_BYTES, "%s/%u", mek->name, mek->version);
}

static int run_activate(struct naos_invocation *invocation, struct naos_error *err)
{
	naos_autoprovider struct naos_provider *provider = NULL;
	naos_cleanup(naos_admin_close_log) struct naos_audit_log *log = NULL;
	char object[NAOS_MEK_NAME_BYTES + VERSION_BYTES];
	struct naos_mek mek;
	uint32_t version;
	int rc = option_version(invocation, &version, err);
	if (rc == 0)
		rc = naos_admin_open_keys(invocation, &provider, err);
	if (rc == 0)
		rc = find_version(provider, invocation->operands[0], version, &mek, err);
	if (rc == 0)
		rc = naos_admin_open_log(invocation, &log, err);
	if (rc != 0)
		return rc;
	object_name(&mek, object);
	rc = naos_admin_record(log, "key.activate", object, 0, err);
	if (rc == 0)
		rc = naos_admin_finish(log, "key.activate", object, naos_mek_activate(provider, mek.name, mek.version, err), err);
	if (rc == 0)
		rc = find_version(provider, mek.name, mek.version, &mek, err);
	return rc ? rc : print_key(invocation, &mek, "active", err);
}

const struct naos_command naos_command_key_activate = {
	.path = "key activate", .operands = "NAME", .summary = "Make a revoked version active again (the newest, or --key-version)",
	.example = "naos key activate genomes --key-version 2", .min_operands = 1, .max_operands = 1, .options = version_options,
	.run = run_activate,
};

/* Revoking never waits for the log: it is done first, and a record that can't be made is a warning. */
static int revoke_one(struct naos_invocation *invocation, struct naos_provider *provider, struct naos_mek *mek, struct naos_error *err)
{
	naos_cleanup(naos_admin_close_log) struct naos_audit_log *log = NULL;
	struct naos_error unrecorded = NAOS_ERROR_INIT;
	char object[NAOS_MEK_NAME_BYTES + VERSION_BYTES];
	object_name(mek, object);
	int rc = naos_mek_revoke(provider, mek->name, mek->version, err);
	int recorded = naos_admin_open_log(invocation, &log, &unrecorded);
	if (recorded == 0)
		recorded = naos_admin_record(log, "key.revoke", object, rc, &unrecorded);
	if (recorded != 0)
		naos_log(NAOS_LOG_WARNING, "the revocation of %s could not be recorded: %s", object, unrecorded.message);
	if (rc == 0)
		rc = find_version(provider, mek->name, mek->version, mek, err);
	return rc ? rc : print_key(invocation, mek, "revoked", err);
}

static int run_revoke(struct naos_invocation *invocation, struct naos_error *err)
{
	naos_autoprovider struct naos_provider *provider = NULL;
	naos_autofree struct naos_mek *meks = NULL;
	struct naos_mek one;
	size_t count = 0;
	uint32_t version;
	int rc = option_version(invocation, &version, err);
	if (rc == 0)
		rc = naos_admin_open_keys(invocation, &provider, err);
	if (rc == 0)
		rc = naos_mek_find(provider, invocation->operands[0], &meks, &count, err);
	if (rc == 0 && version) {
		rc = find_version(provider, invocation->operands[0], version, &one, err);
		return rc ? rc : revoke_one(invocation, provider, &one, err);
	}
	for (size_t i = 0; rc == 0 && i < count; i++)
		if (meks[i].state != NAOS_MEK_DESTROYED)
			rc = revoke_one(invocation, provider, &meks[i], err);
	return rc;
}

const struct naos_command naos_command_key_revoke = {
	.path = "key revoke", .operands = "NAME", .summary = "Make a key, or one version of it, unusable until it is activated again",
	.example = "naos key revoke genomes --key-version 1", .min_operands = 1, .max_operands = 1, .options = version_options,
	.run = run_revoke,
};

static int confirm_destruction(const struct naos_invocation *invocation, const struct naos_mek *mek, struct naos_error *err)
{
	char question[256];
	if (naos_option_given(invocation, "yes"))
		return 0;
	(void)snprintf(question, sizeof(question),
		       "What only version %u of the key '%s' can open will be lost for ever. Rewrapped files stay readable.\n"
		       "Type the name of the key to destroy this version: ", mek->version, mek->name);
	return naos_confirm(question, mek->name, err);
}

static int destroy_as(struct naos_invocation *invocation, const char *action, struct naos_error *err)
{
	naos_autoprovider struct naos_provider *provider = NULL;
	naos_cleanup(naos_admin_close_log) struct naos_audit_log *log = NULL;
	char object[NAOS_MEK_NAME_BYTES + VERSION_BYTES];
	struct naos_mek mek;
	uint32_t version;
	int rc = option_version(invocation, &version, err);
	if (rc == 0 && version == 0)
		return naos_error_set(err, NAOS_E_USAGE, "name the version to destroy with --key-version; 'naos key show %s' lists them",
				      invocation->operands[0]);
	if (rc == 0)
		rc = naos_admin_open_keys(invocation, &provider, err);
	if (rc == 0)
		rc = find_version(provider, invocation->operands[0], version, &mek, err);
	if (rc == 0)
		rc = confirm_destruction(invocation, &mek, err);
	if (rc == 0)
		rc = naos_admin_open_log(invocation, &log, err);
	if (rc != 0)
		return rc;
	object_name(&mek, object);
	rc = naos_admin_record(log, action, object, 0, err);
	if (rc == 0)
		rc = naos_admin_finish(log, action, object, naos_mek_destroy(provider, mek.name, mek.version, err), err);
	mek.state = NAOS_MEK_DESTROYED; /* a KMIP server may not show it any more */
	mek.changed_unix_s = time(NULL);
	return rc ? rc : print_key(invocation, &mek, "destroyed", err);
}

static int run_destroy(struct naos_invocation *invocation, struct naos_error *err)
{
	return destroy_as(invocation, "key.destroy", err);
}

const struct naos_command naos_command_key_destroy = {
	.path = "key destroy", .operands = "NAME", .summary = "End a deactivated or revoked version for ever (--key-version)",
	.example = "naos key destroy genomes --key-version 1", .min_operands = 1, .max_operands = 1, .options = destroy_options,
	.run = run_destroy,
};

/* A key manager that asks for several people counts each one's request to destroy: to approve is to ask too. */
static int run_approve(struct naos_invocation *invocation, struct naos_error *err)
{
	return destroy_as(invocation, "key.approve", err);
}

const struct naos_command naos_command_key_approve = {
	.path = "key approve", .operands = "NAME",
	.summary = "Second the destruction of a version that somebody else asked for (--key-version)",
	.example = "naos key approve genomes --key-version 1", .min_operands = 1, .max_operands = 1, .options = destroy_options,
	.run = run_approve,
};

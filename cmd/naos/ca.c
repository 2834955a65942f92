/* naos ca init, issue, renew, revoke.  SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "admin.h"
#include "authority.h"

#define AUTHORITY_DAYS 3650
#define DAYS 397
#define MAX_DAYS 36500
#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"
#define ALTERNATIVE_BYTES 2048

static int option_days(const struct naos_invocation *invocation, unsigned otherwise, unsigned *ret, struct naos_error *err)
{
	const char *text = naos_option_value(invocation, "days");
	char *end = NULL;
	unsigned long value = text ? strtoul(text, &end, 10) : otherwise;
	if (text && (text[0] < '0' || text[0] > '9' || *end || value == 0 || value > MAX_DAYS))
		return naos_error_set(err, NAOS_E_USAGE, "--days takes a number from 1 to %d, not '%s'", MAX_DAYS, text);
	*ret = (unsigned)value;
	return 0;
}

/* The name of a certificate becomes the name of its files. */
static int check_name(const char *name, struct naos_error *err)
{
	size_t length = strlen(name);
	if (length == 0 || length > 64 || strspn(name, NAME_CHARACTERS) != length || name[0] == '.' || name[0] == '-' ||
			strcmp(name, "ca") == 0 ||
	    strcmp(name, "crl") == 0)
		return naos_error_set(err, NAOS_E_USAGE,
				      "a certificate's name has 1 to 64 letters, digits, '.', '-' or '_', does not begin with '.' or '-', "
				      "and is not ca or crl");
	return 0;
}

/* Recorded before it is done, as other administration is. */
static int record(const struct naos_invocation *invocation, const char *action, struct naos_error *err)
{
	naos_cleanup(naos_admin_close_log) struct naos_audit_log *log = NULL;
	int rc = naos_admin_open_log(invocation, &log, err);
	return rc ? rc : naos_admin_record(log, action, invocation->operands[invocation->operand_count - 1], 0, err);
}

static int print_done(const struct naos_invocation *invocation, const char *file, const char *done, struct naos_error *err)
{
	const char *directory = invocation->operands[0];
	if (!invocation->json) {
		printf("%s/%s: %s\n", directory, file, done);
		return 0;
	}
	return naos_print_json(json_pack("{s:o, s:o, s:s}", "authority", naos_json_text(directory), "file",
			naos_json_text(file), "action", done),
			       err);
}

/* ---- init */

static const struct naos_option init_options[] = {
	{ "name", 0, "NAME", "name of the authority (Naos)" },
	{ "days", 0, "NUMBER", "how long it is good" },
	{ .name = NULL },
};

static int run_init(struct naos_invocation *invocation, struct naos_error *err)
{
	const char *name = naos_option_given(invocation, "name") ? naos_option_value(invocation, "name") : "Naos";
	unsigned days = 0;
	int rc = option_days(invocation, AUTHORITY_DAYS, &days, err);
	if (rc == 0 && (!name[0] || strlen(name) > 64))
		rc = naos_error_set(err, NAOS_E_USAGE, "--name takes 1 to 64 bytes");
	if (rc == 0)
		rc = record(invocation, "ca.init", err);
	if (rc == 0)
		rc = naos_authority_create(invocation->operands[0], name, days, err);
	return rc ? rc : print_done(invocation, "ca.pem", "made", err);
}

const struct naos_command naos_command_ca_init = {
	.path = "ca init", .operands = "DIRECTORY", .summary = "Make a small certification authority for a first set-up",
	.example = "naos ca init naos-ca", .min_operands = 1, .max_operands = 1, .options = init_options, .run = run_init,
};

/* ---- issue */

static const struct naos_option issue_options[] = {
	{ "server", 0, "HOSTS", "for a server of these names and addresses, with commas" },
	{ "identity", 0, "URI", "for a client of this identity (naos://host/NAME)" },
	{ "days", 0, "NUMBER", "how long it is good" },
	{ .name = NULL },
};

static bool is_address(const char *host)
{
	unsigned char bytes[16];
	return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

/* "a.example,192.0.2.1" → "DNS:a.example,IP:192.0.2.1" */
static int server_names(const char *list, char ret[static ALTERNATIVE_BYTES], struct naos_error *err)
{
	naos_autofree char *copy = strdup(list);
	char *rest = NULL;
	size_t used = 0;
	if (!copy)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for names");
	for (char *host = strtok_r(copy, ",", &rest); host; host = strtok_r(NULL, ",", &rest)) {
		if (strspn(host, NAME_CHARACTERS ":*") != strlen(host))
			return naos_error_set(err, NAOS_E_USAGE, "--server: '%s' is neither a host's name nor an address", host);
		used += (size_t)snprintf(ret + used, ALTERNATIVE_BYTES - used, "%s%s:%s", used ? "," : "", is_address(host) ?
				"IP" : "DNS", host);
		if (used >= ALTERNATIVE_BYTES)
			return naos_error_set(err, NAOS_E_LIMIT, "--server: the names are too long");
	}
	return used ? 0 : naos_error_set(err, NAOS_E_USAGE, "--server names no host");
}

static int client_identity(const char *identity, const char *name, char ret[static ALTERNATIVE_BYTES], struct naos_error *err)
{
	if (!identity)
		(void)snprintf(ret, ALTERNATIVE_BYTES, "URI:naos://host/%s", name);
	else if (!strstr(identity, "://") || strlen(identity) > 255 || strspn(identity,
			NAME_CHARACTERS ":/@+~") != strlen(identity))
		return naos_error_set(err, NAOS_E_USAGE, "--identity takes a URI of at most 255 bytes such as naos://host/%s",
				name);
	else
		(void)snprintf(ret, ALTERNATIVE_BYTES, "URI:%s", identity);
	return 0;
}

static int run_issue(struct naos_invocation *invocation, struct naos_error *err)
{
	naos_autoauthority struct naos_authority authority = { .fd = -1 };
	const char *name = invocation->operands[1], *hosts = naos_option_value(invocation, "server");
	const char *identity = naos_option_value(invocation, "identity");
	char alternative[ALTERNATIVE_BYTES], file[80];
	unsigned days = 0;
	int rc = check_name(name, err);
	if (rc == 0 && hosts && identity)
		rc = naos_error_set(err, NAOS_E_USAGE,
				"a certificate is for a server (--server) or for a client (--identity), not for both");
	if (rc == 0)
		rc = option_days(invocation, DAYS, &days, err);
	if (rc == 0)
		rc = hosts ? server_names(hosts, alternative, err) : client_identity(identity, name, alternative, err);
	if (rc == 0)
		rc = naos_authority_open(invocation->operands[0], &authority, err);
	if (rc == 0)
		rc = record(invocation, "ca.issue", err);
	if (rc == 0)
		rc = naos_authority_issue(&authority, name, alternative, hosts ? "serverAuth" : "clientAuth", days, false, err);
	(void)snprintf(file, sizeof(file), "%s.pem", name);
	return rc ? rc : print_done(invocation, file, hosts ? "issued for a server" : "issued for a client", err);
}

const struct naos_command naos_command_ca_issue = {
	.path = "ca issue", .operands = "DIRECTORY NAME",
	.summary = "Issue a certificate and its key to a client, or to a server (--server)",
	.example = "naos ca issue naos-ca node17", .min_operands = 2, .max_operands = 2, .options = issue_options,
	.run = run_issue,
};

/* ---- renew, revoke */

static const struct naos_option renew_options[] = {
	{ "days", 0, "NUMBER", "how long it is good" },
	{ .name = NULL },
};

static int run_renew(struct naos_invocation *invocation, struct naos_error *err)
{
	naos_autoauthority struct naos_authority authority = { .fd = -1 };
	const char *name = invocation->operand_count > 1 ? invocation->operands[1] : NULL;
	char file[80];
	unsigned days = 0;
	int rc = name ? check_name(name, err) : 0;
	if (rc == 0)
		rc = option_days(invocation, DAYS, &days, err);
	if (rc == 0)
		rc = naos_authority_open(invocation->operands[0], &authority, err);
	if (rc == 0)
		rc = record(invocation, "ca.renew", err);
	if (rc == 0)
		rc = name ? naos_authority_renew(&authority, name, days, err) : naos_authority_sign_crl(&authority, err);
	(void)snprintf(file, sizeof(file), "%s.pem", name ? name : "crl");
	return rc ? rc : print_done(invocation, file, "renewed", err);
}

const struct naos_command naos_command_ca_renew = {
	.path = "ca renew", .operands = "DIRECTORY [NAME]",
	.summary = "Make a certificate anew with a new key; without NAME, the revocation list",
	.example = "naos ca renew naos-ca node17", .min_operands = 1, .max_operands = 2, .options = renew_options,
	.run = run_renew,
};

static int run_revoke(struct naos_invocation *invocation, struct naos_error *err)
{
	naos_autoauthority struct naos_authority authority = { .fd = -1 };
	const char *name = invocation->operands[1];
	char file[80];
	int rc = check_name(name, err);
	if (rc == 0)
		rc = naos_authority_open(invocation->operands[0], &authority, err);
	if (rc == 0)
		rc = naos_authority_revoke(&authority, name, err);
	if (rc == 0)
		rc = record(invocation, "ca.revoke", err); /* revoking never waits for the log */
	(void)snprintf(file, sizeof(file), "%s.pem", name);
	return rc ? rc : print_done(invocation, file, "revoked, crl.pem is new", err);
}

const struct naos_command naos_command_ca_revoke = {
	.path = "ca revoke", .operands = "DIRECTORY NAME", .summary = "Put a certificate on the revocation list",
	.example = "naos ca revoke naos-ca node17", .min_operands = 2, .max_operands = 2, .run = run_revoke,
};

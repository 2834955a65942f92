/* naos key import.  SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <termios.h>

#include "admin.h"
#include "key_source.h"

#define ROOM_BYTES NAOS_KEY_SOURCE_BYTES

static const struct naos_option import_options[] = {
	NAOS_OPTION_KEYS,
	{ "from", 'f', "SOURCE", "where the key is read: file:PATH, fd:NUMBER or systemd:CREDENTIAL; else it is asked for on the terminal" },
	{ "hex", 'x', NULL, "the source holds hexadecimal digits, not bytes" },
	{ .name = NULL },
};

static int ask(struct naos_secret **ret, struct naos_error *err)
{
	naos_autosecret struct naos_secret *secret = NULL;
	struct termios loud, quiet;
	if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &loud) != 0)
		return naos_error_set(err, NAOS_E_USAGE,
				      "there is no terminal to ask for the key; give --from file:PATH, fd:NUMBER or systemd:CREDENTIAL");
	int rc = naos_secret_create(ROOM_BYTES, &secret, err);
	if (rc != 0)
		return rc;
	(void)fputs("The key in hexadecimal digits (they are not shown): ", stderr);
	(void)fflush(stderr);
	quiet = loud;
	quiet.c_lflag &= ~(tcflag_t)ECHO;
	(void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
	ssize_t got = read(STDIN_FILENO, naos_secret_data(secret), ROOM_BYTES);
	(void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &loud);
	(void)fputc('\n', stderr);
	if (got <= 0 || got == ROOM_BYTES)
		return naos_error_set(err, NAOS_E_USAGE, "that was no key of at most 256 bits");
	naos_secret_shrink(secret, (size_t)got);
	*ret = naos_steal(secret);
	return 0;
}

static int read_key(const struct naos_invocation *invocation, struct naos_secret **ret, struct naos_error *err)
{
	const char *source = naos_option_value(invocation, "from");
	naos_autosecret struct naos_secret *secret = NULL;
	int rc = source ? naos_key_source_read(source, &secret, err) : ask(&secret, err);
	if (rc == 0 && (!source || naos_option_given(invocation, "hex")))
		rc = naos_key_source_decode(secret, err);
	if (rc == 0)
		*ret = naos_steal(secret);
	return rc;
}

static int print_imported(const struct naos_invocation *invocation, const char *name, const char *id, size_t bytes, struct naos_error *err)
{
	if (invocation->json)
		return naos_print_json(json_pack("{s:s, s:s, s:s, s:I}", "name", name, "id", id, "state", "active", "bits",
						 (json_int_t)(8 * bytes)), err);
	(void)printf("%s: taken in as %s, active\n", name, id);
	return 0;
}

static int run_import(struct naos_invocation *invocation, struct naos_error *err)
{
	naos_autoprovider struct naos_provider *provider = NULL;
	naos_cleanup(naos_admin_close_log) struct naos_audit_log *log = NULL;
	naos_autosecret struct naos_secret *key = NULL;
	const char *name = invocation->operands[0];
	char id[NAOS_KEY_ID_BYTES];
	int rc = naos_admin_open_keys(invocation, &provider, err);
	if (rc == 0)
		rc = read_key(invocation, &key, err);
	if (rc == 0)
		rc = naos_admin_open_log(invocation, &log, err);
	if (rc == 0)
		rc = naos_admin_record(log, "key.import", name, 0, err);
	if (rc == 0)
		rc = naos_admin_finish(log, "key.import", name, naos_key_import(provider, name, key, id, err), err);
	return rc ? rc : print_imported(invocation, name, id, naos_secret_bytes(key), err);
}

const struct naos_command naos_command_key_import = {
	.path = "key import", .operands = "NAME",
	.summary = "Give an exportable key that was made elsewhere to the key manager", .example = "naos key import tape-7",
	.min_operands = 1, .max_operands = 1, .options = import_options, .run = run_import,
};

/* naos audit verify, show, prove, cosign.  SPDX-License-Identifier: Apache-2.0 */
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "audit/audit.h"
#include "audit/record.h"
#include "base/log.h"
#include "base/uuid.h"
#include "command.h"

/* The directory: the operand, else the configuration's. */
static int log_directory(const struct naos_invocation *invocation, size_t operand, const char **ret, struct naos_error *err)
{
	const char *dir = invocation->operand_count > operand ? invocation->operands[operand]
							       : naos_config_string(invocation->config, "audit", NULL, "log");
	if (!dir[0])
		return naos_error_set(err, NAOS_E_USAGE, "no audit log was named, and the configuration names none ([audit] log)");
	*ret = dir;
	return 0;
}

/* ---- verify */

static int print_report(const struct naos_invocation *invocation, const char *dir, const struct naos_audit_report *report,
			struct naos_error *err)
{
	char root[65];
	(void)naos_hex_format(report->root, sizeof(report->root), root);
	if (invocation->json) {
		json_t *value = json_pack("{s:o, s:b, s:s, s:I, s:s, s:I}", "log", naos_json_text(dir), "valid", !report->bad, "origin",
					  report->origin, "records", (json_int_t)report->size, "root", root, "pending_bytes",
					  (json_int_t)report->pending_bytes);
		if (value && report->earlier_size > 0)
			(void)json_object_set_new(value, "earlier_records", json_integer((json_int_t)report->earlier_size));
		if (value && report->witness_unix_s > 0)
			(void)json_object_set_new(value, "witness_unix_s", json_integer((json_int_t)report->witness_unix_s));
		if (value && report->has_bad_sequence)
			(void)json_object_set_new(value, "first_bad", json_integer((json_int_t)report->bad_sequence));
		if (value && report->bad)
			(void)json_object_set_new(value, "bad_file", json_string(report->bad_file));
		return naos_print_json(value, err);
	}
	if (report->bad)
		return 0;
	printf("%s: %" PRIu64 " records of %s are intact, root %s\n", dir, report->size, report->origin, root);
	if (naos_option_given(invocation, "checkpoint"))
		printf("they continue the %" PRIu64 " records of the earlier checkpoint\n", report->earlier_size);
	else
		printf("no earlier checkpoint was given: who holds the log's key could have cut or rewritten it\n");
	if (!naos_option_given(invocation, "key"))
		printf("the public key is the log's own: give --key with a copy kept elsewhere\n");
	return 0;
}

static int verify_log(const struct naos_invocation *invocation, struct naos_error *err)
{
	const struct naos_audit_check check = {
		.key_path = naos_option_value(invocation, "key"),
		.checkpoint_path = naos_option_value(invocation, "checkpoint"),
		.witness_path = naos_option_value(invocation, "witness"),
	};
	struct naos_audit_report report;
	struct naos_error ignored;
	const char *dir = NULL;
	int rc = log_directory(invocation, 0, &dir, err);
	if (rc != 0)
		return rc;
	rc = naos_audit_verify(dir, &check, &report, err);
	if (rc != 0 && rc != NAOS_E_INTEGRITY)
		return rc;
	if (report.pending_bytes > 0)
		naos_log(NAOS_LOG_WARNING,
			 "%" PRIu64 " bytes behind the last record are not part of the log: a process is writing them, or died while it did",
			 report.pending_bytes);
	int printed = print_report(invocation, dir, &report, rc != 0 ? &ignored : err);
	return rc != 0 ? rc : printed;
}

static int verify_proof(const struct naos_invocation *invocation, const char *proof_path, struct naos_error *err)
{
	struct naos_audit_proof proof;
	const char *key_path = naos_option_value(invocation, "key");
	if (!key_path || invocation->operand_count > 0 || naos_option_given(invocation, "checkpoint") ||
	    naos_option_given(invocation, "witness"))
		return naos_error_set(err, NAOS_E_USAGE, "--proof is checked with --key alone, without a log");
	int rc = naos_audit_proof_open(proof_path, key_path, &proof, err);
	if (rc != 0)
		return rc;
	if (invocation->json)
		rc = naos_print_json(json_pack("{s:o, s:b, s:s, s:I, s:s*, s:o*}", "proof", naos_json_text(proof_path), "valid", 1, "origin",
					       proof.origin, "records", (json_int_t)proof.size, "record", proof.record, "earlier_records",
					       proof.record ? NULL : json_integer((json_int_t)proof.earlier_size)), err);
	else if (proof.record)
		printf("%s: proven: record %" PRIu64 " is in the log %s of %" PRIu64 " records\n%s\n", proof_path, proof.sequence, proof.origin,
		       proof.size, proof.record);
	else
		printf("%s: proven: the log %s of %" PRIu64 " records continues that of %" PRIu64 "\n", proof_path, proof.origin, proof.size,
		       proof.earlier_size);
	naos_audit_proof_clear(&proof);
	return rc;
}

static int run_verify(struct naos_invocation *invocation, struct naos_error *err)
{
	const char *proof = naos_option_value(invocation, "proof");
	return proof ? verify_proof(invocation, proof, err) : verify_log(invocation, err);
}

static const struct naos_option verify_options[] = {
	{ "key", 'k', "FILE", "public key of the log, kept elsewhere (default: key.pub in the log)" },
	{ "checkpoint", 'c', "FILE", "earlier checkpoint, kept elsewhere, which the log must continue" },
	{ "witness", 'w', "FILE", "public key of a witness that must have cosigned that checkpoint" },
	{ "proof", 'p', "FILE", "check this proof, made by 'naos audit prove', instead of a log" },
	{ 0 },
};

const struct naos_command naos_command_audit_verify = {
	.path = "audit verify", .operands = "[DIRECTORY]",
	.summary = "Check that no record of an audit log was changed, dropped, added or moved",
	.example = "naos audit verify --key officer/key.pub --checkpoint officer/checkpoint /var/lib/naos/audit",
	.max_operands = 1, .options = verify_options, .run = run_verify,
};

/* ---- show */

/* What to show; NULL: all. */
struct filter {
	const char *actor, *action, *object, *decision; /* fnmatch(3) patterns */
	const char *since, *until;                      /* beginnings of a time as records have it */
	bool json, unverified;
};

/* "2026-11-30", "2026-11-30T17:38", … : the beginning of a time of records. */
static int check_time(const char *text, struct naos_error *err)
{
	static const char shape[] = "dddd-dd-ddTdd:dd:dd.ddddddZ";
	size_t bytes = text ? strlen(text) : 10;
	bool ok = bytes >= 10 && bytes < sizeof(shape);
	for (size_t i = 0; text && ok && i < bytes; i++)
		ok = shape[i] == 'd' ? text[i] >= '0' && text[i] <= '9' : text[i] == shape[i];
	return ok ? 0 : naos_error_set(err, NAOS_E_USAGE, "'%.40s' is not a time (UTC) such as 2026-11-30 or 2026-11-30T17:38:39Z", text);
}

static bool member_matches(const json_t *record, const char *name, const char *pattern)
{
	const char *value = json_string_value(json_object_get(record, name));
	return !pattern || fnmatch(pattern, value ? value : "", FNM_NOESCAPE) == 0;
}

static bool matches(const struct filter *filter, const json_t *record)
{
	const char *when = json_string_value(json_object_get(record, "time"));
	/* "Z" ends whole seconds in the option, microseconds follow them in records: compare without it */
	size_t until = filter->until ? strcspn(filter->until, "Z") : 0, since = filter->since ? strcspn(filter->since, "Z") : 0;
	return strncmp(when, filter->since ? filter->since : "", since) >= 0 && strncmp(when, filter->until ? filter->until : "", until) <= 0 &&
	       member_matches(record, "actor", filter->actor) && member_matches(record, "action", filter->action) &&
	       member_matches(record, "object", filter->object) && member_matches(record, "decision", filter->decision);
}

static void print_record(const json_t *record)
{
	static const char *const members[] = { "actor", "action", "object", "decision", "reason", "request_id" };
	printf("%s %" JSON_INTEGER_FORMAT, json_string_value(json_object_get(record, "time")),
	       json_integer_value(json_object_get(record, "sequence")));
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(members); i++) {
		const char *value = json_string_value(json_object_get(record, members[i]));
		if (value)
			printf(" %s=%s%s%s", members[i], strchr(value, ' ') || !value[0] ? "\"" : "", value,
			       strchr(value, ' ') || !value[0] ? "\"" : "");
	}
	printf("\n");
}

static int show_record(void *context, uint64_t sequence, const char *line, size_t bytes, struct naos_error *err)
{
	const struct filter *filter = context;
	char what[64];
	json_t *record;
	(void)snprintf(what, sizeof(what), "record %" PRIu64, sequence);
	int rc = naos_record_parse(line, bytes, what, &record, err);
	if (rc == NAOS_E_FORMAT && filter->unverified) {
		naos_log(NAOS_LOG_WARNING, "%s", err->message);
		return 0;
	}
	if (rc != 0)
		return rc;
	if (matches(filter, record)) {
		if (filter->json)
			printf("%.*s\n", (int)bytes, line);
		else
			print_record(record);
	}
	json_decref(record);
	return 0;
}

static int run_show(struct naos_invocation *invocation, struct naos_error *err)
{
	struct filter filter = {
		.actor = naos_option_value(invocation, "actor"), .action = naos_option_value(invocation, "action"),
		.object = naos_option_value(invocation, "object"), .decision = naos_option_value(invocation, "decision"),
		.since = naos_option_value(invocation, "since"), .until = naos_option_value(invocation, "until"), .json = invocation->json,
		.unverified = naos_option_given(invocation, "unverified"),
	};
	const struct naos_audit_check check = { .key_path = naos_option_value(invocation, "key") };
	struct naos_audit_report report;
	const char *dir = NULL;
	int rc = log_directory(invocation, 0, &dir, err);
	if (rc == 0)
		rc = check_time(filter.since, err);
	if (rc == 0)
		rc = check_time(filter.until, err);
	if (rc != 0)
		return rc;
	rc = naos_audit_verify(dir, &check, &report, err);
	if (rc == NAOS_E_INTEGRITY && filter.unverified) {
		naos_log(NAOS_LOG_WARNING, "what follows can't be trusted: %s", err->message);
		report.size = NAOS_AUDIT_ALL;
		rc = 0;
	}
	return rc == 0 ? naos_audit_each(dir, report.size, show_record, &filter, err) : rc;
}

static const struct naos_option show_options[] = {
	{ "actor", 'a', "PATTERN", "who: shell pattern" },
	{ "action", 't', "PATTERN", "what was done, such as 'key.*'" },
	{ "object", 'o', "PATTERN", "on what" },
	{ "decision", 'd', "PATTERN", "allowed, denied, failed" },
	{ "since", 's', "TIME", "from this time on (UTC; 2026-11-30 or finer)" },
	{ "until", 'u', "TIME", "to the end of this day, minute, second" },
	{ "key", 'k', "FILE", "public key of the log, kept elsewhere (default: key.pub in the log)" },
	{ "unverified", 0, NULL, "show the records of a log that fails its verification" },
	{ 0 },
};

const struct naos_command naos_command_audit_show = {
	.path = "audit show", .operands = "[DIRECTORY]", .summary = "Show records of an audit log, after verifying it",
	.example = "naos audit show --action 'key.*' --decision denied --since 2026-11-01", .max_operands = 1, .options = show_options,
	.run = run_show,
};

/* ---- prove */

static bool parse_sequence(const char *text, uint64_t *ret)
{
	uint64_t value = 0;
	size_t digits = strspn(text, "0123456789");
	if (digits == 0 || digits > 18 || text[digits])
		return false;
	for (; *text; text++)
		value = value * 10 + (uint64_t)(*text - '0');
	*ret = value;
	return true;
}

static int run_prove(struct naos_invocation *invocation, struct naos_error *err)
{
	const char *dir = NULL, *key_path = naos_option_value(invocation, "key"), *since = naos_option_value(invocation, "since");
	uint64_t sequence = 0;
	json_t *proof = NULL;
	if (since ? invocation->operand_count > 1 : invocation->operand_count < 1)
		return naos_error_set(err, NAOS_E_USAGE, since ? "with --since, name the log only" : "name the record by its sequence");
	if (!since && !parse_sequence(invocation->operands[0], &sequence))
		return naos_error_set(err, NAOS_E_USAGE, "'%.40s' is not the sequence of a record", invocation->operands[0]);
	int rc = log_directory(invocation, since ? 0 : 1, &dir, err);
	if (rc == 0)
		rc = since ? naos_audit_prove_since(dir, key_path, since, &proof, err) : naos_audit_prove(dir, key_path, sequence, &proof, err);
	return rc == 0 ? naos_print_json(proof, err) : rc;
}

static const struct naos_option prove_options[] = {
	{ "since", 's', "CHECKPOINT", "prove that the log continues this earlier checkpoint" },
	{ "key", 'k', "FILE", "public key of the log (default: key.pub in the log)" },
	{ 0 },
};

const struct naos_command naos_command_audit_prove = {
	.path = "audit prove", .operands = "[SEQUENCE] [DIRECTORY]",
	.summary = "Write a proof that a record is in the log, for someone who lacks the log",
	.example = "naos audit prove 17 /var/lib/naos/audit > record-17.proof", .max_operands = 2, .options = prove_options, .run = run_prove,
};

/* ---- cosign */

static int run_cosign(struct naos_invocation *invocation, struct naos_error *err)
{
	const struct naos_audit_witness witness = {
		.key_path = naos_option_value(invocation, "key"),
		.log_key_path = naos_option_value(invocation, "log-key"),
		.state_path = naos_option_value(invocation, "state"),
	};
	const char *name = naos_option_value(invocation, "create");
	naos_autofree char *note = NULL;
	if (!witness.key_path)
		return naos_error_set(err, NAOS_E_USAGE, "name the key of the witness: --key");
	if (name)
		return invocation->operand_count > 0 ? naos_error_set(err, NAOS_E_USAGE, "--create makes a key and cosigns nothing")
						     : naos_audit_witness_create(witness.key_path, name, err);
	if (!witness.log_key_path || !witness.state_path || invocation->operand_count < 1)
		return naos_error_set(err, NAOS_E_USAGE, "cosigning needs --log-key, --state and a checkpoint or proof");
	int rc = naos_audit_cosign(&witness, invocation->operands[0], &note, err);
	if (rc != 0)
		return rc;
	if (invocation->json)
		return naos_print_json(json_pack("{s:s}", "checkpoint", note), err);
	(void)fputs(note, stdout);
	return 0;
}

static const struct naos_option cosign_options[] = {
	{ "key", 'k', "FILE", "private key of the witness; its public key is FILE.pub" },
	{ "log-key", 'l', "FILE", "public key of the log" },
	{ "state", 's', "FILE", "the last checkpoint cosigned here; written anew each time" },
	{ "create", 0, "NAME", "make the key of a witness of this name" },
	{ 0 },
};

const struct naos_command naos_command_audit_cosign = {
	.path = "audit cosign", .operands = "[FILE]", .summary = "As a witness on another host, sign that an audit log only grows",
	.example = "naos audit cosign --key w.key --log-key key.pub --state last.checkpoint log.proof > cosigned.checkpoint",
	.max_operands = 1, .options = cosign_options, .run = run_cosign,
};

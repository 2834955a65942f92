/* naos policy check, naos policy explain.  SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "policy/explain.h"
#include "policy/request.h"
#include "policy_lines.h"

/* ---- check */

static int check_one(const struct naos_invocation *invocation, const char *path, const char *origin, struct naos_error *err)
{
	naos_autopolicy struct naos_policy *policy = NULL;
	int rc = naos_policy_load(path, &policy, err);
	if (rc != 0)
		return origin ? naos_error_prefix(err, rc, "%s", origin) : rc;
	size_t rules = naos_policy_rule_count(policy);
	if (invocation->json)
		return naos_print_json(json_pack("{s:o, s:b, s:I, s:I}", "policy", naos_json_text(path), "valid", 1, "rules",
						 (json_int_t)rules, "bytes",
						 (json_int_t)naos_policy_bytes(policy)), err);
	if (rules == 0)
		printf("%s: ok, no rules: everything is denied\n", path);
	else
		printf("%s: ok, %zu rule%s\n", path, rules, rules == 1 ? "" : "s");
	return 0;
}

static int check_configured(const struct naos_invocation *invocation, struct naos_error *err)
{
	static const char *const sections[] = { "collection", "fileset" };
	const char *name;
	size_t count = 0;
	int rc = 0;
	for (size_t s = 0; s < NAOS_ARRAY_LENGTH(sections); s++)
		for (unsigned i = 0; rc == 0 && (name = naos_config_section_name(invocation->config, sections[s], i)); i++) {
			const char *path = naos_config_string(invocation->config, sections[s], name, "policy");
			if (path[0])
				rc = check_one(invocation, path, naos_config_origin(invocation->config, sections[s], name, "policy"), err);
			count += path[0] != 0;
		}
	if (rc == 0 && count == 0)
		return naos_error_set(err, NAOS_E_USAGE, "no policy was named, and the configuration names none ([collection NAME] policy)");
	return rc;
}

static int run_check(struct naos_invocation *invocation, struct naos_error *err)
{
	int rc = 0;
	if (invocation->operand_count == 0)
		return check_configured(invocation, err);
	for (size_t i = 0; rc == 0 && i < invocation->operand_count; i++)
		rc = check_one(invocation, invocation->operands[i], NULL, err);
	return rc;
}

const struct naos_command naos_command_policy_check = {
	.path = "policy check", .operands = "[POLICY]...",
	.summary = "Check policies and say what is wrong, with line, column and what to write instead",
	.example = "naos policy check /etc/naos/policies/ttt.policy", .max_operands = 1000, .run = run_check,
};

/* ---- explain */

struct question {
	const struct naos_policy *policy;
	struct naos_policy_given given;
	json_t *object;
};

static void clear_question(struct question *question)
{
	naos_policy_given_clear(&question->given);
	json_decref(question->object);
}

static int take_request(void *context, json_t *object, const char *where, struct naos_error *err)
{
	struct question *question = context;
	if (question->object)
		return naos_error_set(err, NAOS_E_FORMAT, "%s: a second request; explain one at a time", where);
	question->object = json_incref(object);
	return naos_policy_given_add(&question->given, question->policy, object, where, err);
}

static const char *text_of(const json_t *object, const char *member)
{
	const char *text = json_string_value(json_object_get(object, member));
	return text ? text : "";
}

/* "from 2027-01-01T00:00:00Z on", or "after 2027-01-01T00:00:00Z" for the millionth of a second behind it. */
static const char *moment_text(const char *at, char *buffer, size_t bytes)
{
	int64_t us;
	char before[NAOS_POLICY_TIME_BYTES];
	if (!naos_policy_time_parse(at, strlen(at), &us) && us % 1000000 == 1)
		(void)snprintf(buffer, bytes, "after %s", naos_policy_time_format(us - 1, before));
	else
		(void)snprintf(buffer, bytes, "from %s on", at);
	return buffer;
}

static void print_rule(const json_t *rule)
{
	size_t i;
	json_t *condition;
	bool certain = json_is_true(json_object_get(rule, "certain")), allow = strcmp(text_of(rule, "effect"), "allow") == 0;
	printf("rule %" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(rule, "rule")));
	if (json_object_get(rule, "line"))
		printf(" (line %" JSON_INTEGER_FORMAT ")", json_integer_value(json_object_get(rule, "line")));
	const char *level = strcmp(text_of(rule, "level"), "full") == 0 ? (allow ? "full" : "access") : text_of(rule, "level");
	printf(" %s %s%s\n", allow ? "allows" : "denies", level, certain ? "" : ", because something that it asks for is not known");
	if (json_object_get(rule, "text"))
		printf("    %s\n", text_of(rule, "text"));
	json_array_foreach(json_object_get(rule, "conditions"), i, condition)
		printf("    %s: %s\n", text_of(condition, "condition"), text_of(condition, "value"));
}

static void print_change(const json_t *change)
{
	size_t i;
	json_t *condition;
	char moment[80];
	printf("rule %" JSON_INTEGER_FORMAT " would allow %s, if\n", json_integer_value(json_object_get(change, "rule")),
	       text_of(change, "level"));
	json_array_foreach(json_object_get(change, "conditions"), i, condition)
	{
		printf("    %s", text_of(condition, "condition"));
		if (json_object_get(condition, "at"))
			printf(" (%s)", moment_text(text_of(condition, "at"), moment, sizeof(moment)));
		else if (strcmp(text_of(condition, "now"), "unknown") == 0)
			printf(" (not known)");
		printf("\n");
	}
}

static void print_next(const json_t *next)
{
	size_t i;
	json_t *rule;
	char moment[80];
	printf("%s %s", moment_text(text_of(next, "at"), moment, sizeof(moment)), text_of(next, "level"));
	json_array_foreach(json_object_get(next, "rules"), i, rule)
		printf("%s%" JSON_INTEGER_FORMAT, i == 0 ? " by rule " : ", ", json_integer_value(rule));
	printf("\n");
}

static void print_explanation(const json_t *explanation)
{
	size_t i;
	json_t *item;
	bool denied = strcmp(text_of(explanation, "level"), "denied") == 0;
	printf("%s", text_of(explanation, "level"));
	if (denied && json_object_get(explanation, "want"))
		printf(" (%s was asked for)", text_of(explanation, "want"));
	printf("%s\n", strcmp(text_of(explanation, "because"), "default") == 0 ? ": no rule allows it" : "");
	json_array_foreach(json_object_get(explanation, "rules"), i, item)
		print_rule(item);
	if (json_object_get(explanation, "next"))
		print_next(json_object_get(explanation, "next"));
	json_array_foreach(json_object_get(explanation, "changes"), i, item)
		print_change(item);
}

static int take_options(const struct naos_invocation *invocation, struct question *question, enum naos_policy_audience *ret_audience,
			struct naos_error *err)
{
	static const char *const names[] = { "officer", "user", "outsider" };
	const char *want = naos_option_value(invocation, "want"), *reader = naos_option_value(invocation, "for");
	struct naos_policy_request *request = &question->given.request;
	if (want && (!naos_access_level_parse(want, &request->want) || request->want == NAOS_ACCESS_DENIED))
		return naos_error_set(err, NAOS_E_USAGE, "--want is full, metadata-only or pixels-only, not '%s'", want);
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(names); i++)
		if (strcmp(reader ? reader : "officer", names[i]) == 0) {
			*ret_audience = i;
			return naos_option_given(invocation, "now") ? policy_option_now(invocation, &request->now_us, err) : 0;
		}
	return naos_error_set(err, NAOS_E_USAGE, "--for is officer, user or outsider, not '%s'", reader);
}

static int run_explain(struct naos_invocation *invocation, struct naos_error *err)
{
	naos_autopolicy struct naos_policy *policy = NULL;
	naos_cleanup(clear_question) struct question question = { .object = NULL };
	enum naos_policy_audience audience = NAOS_POLICY_OUTSIDER;
	const char *path = invocation->operand_count > 1 ? invocation->operands[1] : "-";
	json_t *explanation = NULL;
	struct timespec clock;
	(void)clock_gettime(CLOCK_REALTIME, &clock);
	naos_policy_given_start(&question.given, (int64_t)clock.tv_sec * 1000000 + clock.tv_nsec / 1000);
	int rc = naos_policy_load(invocation->operands[0], &policy, err);
	question.policy = policy;
	if (rc == 0)
		rc = policy_lines_read(path, take_request, &question, err);
	if (rc == 0 && !question.object)
		rc = naos_error_set(err, NAOS_E_FORMAT, "%s holds no request", path);
	if (rc == 0)
		rc = take_options(invocation, &question, &audience, err);
	if (rc == 0)
		rc = naos_policy_explain(policy, &question.given.request, audience, &explanation, err);
	if (rc != 0)
		return rc;
	if (invocation->json)
		return naos_print_json(explanation, err);
	print_explanation(explanation);
	json_decref(explanation);
	return 0;
}

static const struct naos_option explain_options[] = {
	{ "for", 'f', "READER", "officer (default), user or outsider: how much may be said" },
	{ "want", 'w', "LEVEL", "what is asked for: full, metadata-only, pixels-only (default: the highest there is)" },
	{ "now", 'n', "TIME", "decide as if it were this time, such as 2027-01-01T00:00:00Z" },
	{ 0 },
};

const struct naos_command naos_command_policy_explain = {
	.path = "policy explain", .operands = "POLICY [REQUEST]",
	.summary = "Say what a policy decides, which rules and conditions did, and what would change it",
	.example = "naos policy explain --now 2026-12-31T23:59:59Z ttt.policy request.json", .min_operands = 1, .max_operands = 2,
	.options = explain_options, .run = run_explain,
};

/* naos policy test: a table of cases beside the policy.  SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "policy/explain.h"
#include "policy/request.h"
#include "policy_lines.h"

struct run {
	const struct naos_invocation *invocation;
	const struct naos_policy *policy;
	int64_t now_us;
	size_t cases, failed;
	bool *used; /* rules that decided a case */
};

/* "/etc/naos/policies/ttt.policy" -> "/etc/naos/policies/ttt.cases" */
static int cases_path(const char *policy, char *buffer, size_t bytes, struct naos_error *err)
{
	static const char suffix[] = ".policy";
	size_t length = strlen(policy);
	if (length > strlen(suffix) && strcmp(policy + length - strlen(suffix), suffix) == 0)
		length -= strlen(suffix);
	if (length + sizeof(".cases") > bytes)
		return naos_error_set(err, NAOS_E_USAGE, "the name of the policy is too long");
	(void)snprintf(buffer, bytes, "%.*s.cases", (int)length, policy);
	return 0;
}

static int expectation(const json_t *object, const char *where, const char **ret_level, struct naos_error *err)
{
	enum naos_access_level level;
	const char *text = json_string_value(json_object_get(object, "level"));
	json_t *rules = json_object_get(object, "rules"), *rule;
	size_t i;
	if (!text || !naos_access_level_parse(text, &level))
		return naos_error_set(err, NAOS_E_FORMAT, "%s: a case needs \"level\": full, metadata-only, pixels-only or denied", where);
	if (rules && !json_is_array(rules))
		return naos_error_set(err, NAOS_E_FORMAT, "%s: \"rules\" must be a list of the numbers of the rules that decide", where);
	json_array_foreach(rules, i, rule)
		if (!json_is_integer(rule))
			return naos_error_set(err, NAOS_E_FORMAT, "%s: \"rules\" must be a list of the numbers of the rules that decide", where);
	*ret_level = text;
	return 0;
}

/* Numbers of the rules that decided, as a list. */
static json_t *numbers(const struct run *run, const json_t *explanation)
{
	json_t *array = json_array(), *rule;
	size_t i;
	json_array_foreach(json_object_get(explanation, "rules"), i, rule)
	{
		json_t *number = json_object_get(rule, "rule");
		run->used[json_integer_value(number) - 1] = true;
		(void)json_array_append(array, number);
	}
	return array;
}

static void print_numbers(const json_t *numbers)
{
	size_t i;
	json_t *number;
	json_array_foreach(numbers, i, number)
		printf("%s%" JSON_INTEGER_FORMAT, i ? ", " : "", json_integer_value(number));
	printf("%s", json_array_size(numbers) ? "" : "none");
}

static int report(struct run *run, const json_t *object, const char *where, const char *level, const json_t *rules, const char *expected,
		  struct naos_error *err)
{
	const json_t *wanted = json_object_get(object, "rules");
	const char *name = json_string_value(json_object_get(object, "name"));
	bool level_right = strcmp(level, expected) == 0, rules_right = !wanted || json_equal(wanted, rules);
	run->cases++;
	run->failed += !level_right || !rules_right;
	if (run->invocation->json)
		return naos_print_json(json_pack("{s:o, s:s*, s:b, s:s, s:s, s:O}", "case", naos_json_text(where), "name", name, "passed",
						 level_right && rules_right, "level", level, "expected", expected, "rules", rules), err);
	if (!level_right || !rules_right)
		printf("%s:%s%s%s ", where, name ? " '" : "", name ? name : "", name ? "':" : "");
	if (!level_right) {
		printf("the level is %s, not %s; deciding rules: ", level, expected);
		print_numbers(rules);
		printf("\n");
	} else if (!rules_right) {
		printf("the level is right, but the rules that decided are ");
		print_numbers(rules);
		printf(", not ");
		print_numbers(wanted);
		printf("\n");
	}
	return 0;
}

static int run_case(void *context, json_t *object, const char *where, struct naos_error *err)
{
	struct run *run = context;
	naos_autogiven struct naos_policy_given given;
	const char *expected = NULL;
	json_t *explanation = NULL;
	naos_policy_given_start(&given, run->now_us);
	int rc = expectation(object, where, &expected, err);
	if (rc == 0)
		rc = naos_policy_given_add(&given, run->policy, object, where, err);
	if (rc == 0)
		rc = naos_policy_explain(run->policy, &given.request, NAOS_POLICY_OFFICER, &explanation, err);
	if (rc != 0)
		return rc;
	json_t *rules = numbers(run, explanation);
	rc = report(run, object, where, json_string_value(json_object_get(explanation, "level")), rules, expected, err);
	json_decref(rules);
	json_decref(explanation);
	return rc;
}

static int summary(const struct run *run, const char *path, struct naos_error *err)
{
	size_t count = naos_policy_rule_count(run->policy);
	json_t *idle = json_array();
	for (size_t i = 0; i < count; i++)
		if (!run->used[i])
			(void)json_array_append_new(idle, json_integer((json_int_t)i + 1));
	if (run->invocation->json)
		return naos_print_json(json_pack("{s:o, s:I, s:I, s:o}", "policy", naos_json_text(path), "cases",
						 (json_int_t)run->cases, "failed",
						 (json_int_t)run->failed, "idle_rules", idle), err);
	if (json_array_size(idle) > 0) {
		printf("rules that decided no case: ");
		print_numbers(idle);
		printf("\n");
	}
	printf("%s: %zu cases, %zu failed\n", path, run->cases, run->failed);
	json_decref(idle);
	return 0;
}

static int run_test(struct naos_invocation *invocation, struct naos_error *err)
{
	naos_autopolicy struct naos_policy *policy = NULL;
	const char *path = invocation->operands[0], *cases = invocation->operand_count > 1 ? invocation->operands[1] : NULL;
	char beside[4096];
	struct run run = { .invocation = invocation };
	int rc = policy_option_now(invocation, &run.now_us, err);
	if (rc == 0)
		rc = naos_policy_load(path, &policy, err);
	if (rc == 0 && !cases) {
		rc = cases_path(path, beside, sizeof(beside), err);
		cases = beside;
	}
	if (rc != 0)
		return rc;
	naos_autofree bool *used = calloc(naos_policy_rule_count(policy) + 1, sizeof(*used));
	if (!used)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the cases");
	run.policy = policy;
	run.used = used;
	rc = policy_lines_read(cases, run_case, &run, err);
	if (rc == 0 && run.cases == 0)
		rc = naos_error_set(err, NAOS_E_FORMAT, "%s holds no case", cases);
	if (rc == 0)
		rc = summary(&run, path, err);
	if (rc == 0 && run.failed > 0)
		rc = naos_error_set(err, NAOS_E_CHECK, "%zu of %zu cases of %s failed", run.failed, run.cases, path);
	return rc;
}

static const struct naos_option test_options[] = {
	{ "now", 'n', "TIME", "the time of cases that name none (default: the clock)" },
	{ 0 },
};

const struct naos_command naos_command_policy_test = {
	.path = "policy test", .operands = "POLICY [CASES]", .summary = "Run a table of cases: who must get which level of what, and when",
	.example = "naos policy test /etc/naos/policies/ttt.policy", .min_operands = 1, .max_operands = 2,
	.options = test_options, .run = run_test,
};

/* The policy engine for tests: a line {"policy": TEXT, "requests": […]} on standard input, a line {"error": …} or
 * {"answers": […]} on standard output.  An answer has the decision as naos_policy_decide gives it, and both explanations.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "policy/explain.h"
#include "policy/request.h"

static json_t *applied(const struct naos_policy *policy, const struct naos_policy_decision *decision)
{
	json_t *array = json_array();
	for (size_t number = 1; number <= naos_policy_rule_count(policy); number++)
		if (naos_policy_applied(decision, number))
			(void)json_array_append_new(array, json_integer((json_int_t)number));
	return array;
}

static json_t *error_json(const struct naos_error *err)
{
	return json_pack("{s:s, s:s}", "error", err->message, "name", naos_error_info(err->code)->name);
}

static json_t *answer(const struct naos_policy *policy, const json_t *object)
{
	naos_autogiven struct naos_policy_given given;
	struct naos_policy_decision decision;
	struct naos_error err = NAOS_ERROR_INIT;
	json_t *officer = NULL, *user = NULL;
	naos_policy_given_start(&given, 0);
	int rc = naos_policy_given_add(&given, policy, object, "request", &err);
	if (rc == 0)
		rc = naos_policy_explain(policy, &given.request, NAOS_POLICY_OFFICER, &officer, &err);
	if (rc == 0)
		rc = naos_policy_explain(policy, &given.request, NAOS_POLICY_USER, &user, &err);
	if (rc != 0) {
		json_decref(officer);
		return error_json(&err);
	}
	naos_policy_decide(policy, &given.request, &decision);
	return json_pack("{s:s, s:s, s:o, s:o, s:o}", "level", naos_access_level_name(decision.level), "granted",
			 naos_access_set_name(decision.granted),
			 "applied", applied(policy, &decision), "officer", officer, "user", user);
}

static json_t *answer_line(const json_t *line)
{
	naos_autopolicy struct naos_policy *policy = NULL;
	struct naos_error err = NAOS_ERROR_INIT;
	const json_t *text = json_object_get(line, "policy");
	json_t *request, *answers;
	size_t i;
	if (naos_policy_parse(json_string_value(text), json_string_length(text), "p", &policy, &err) != 0)
		return error_json(&err);
	answers = json_array();
	json_array_foreach(json_object_get(line, "requests"), i, request)
		(void)json_array_append_new(answers, answer(policy, request));
	return json_pack("{s:o}", "answers", answers);
}

int main(void)
{
	naos_autofree char *text = NULL;
	size_t room = 0;
	for (ssize_t bytes; (bytes = getline(&text, &room, stdin)) > 0;) {
		json_t *line = json_loadb(text, (size_t)bytes, 0, NULL);
		if (!json_is_string(json_object_get(line, "policy")))
			return 1;
		json_t *result = answer_line(line);
		if (json_dumpf(result, stdout, JSON_COMPACT) != 0 || puts("") < 0 || fflush(stdout) != 0)
			return 1;
		json_decref(result);
		json_decref(line);
	}
	return 0;
}

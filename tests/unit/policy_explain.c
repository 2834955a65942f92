/* Explanations: rules and conditions that decided, when it opens, what would allow it; nothing for outsiders.
 * SPDX-License-Identifier: Apache-2.0 */
#include "policy_helper.h"

static const char *const ttt = "allow role:public if data.release_date < now()\n"
			       "allow metadata-only role:miner on collection:ttt\n"
			       "allow access if (user.role == 'collaborator' AND data.embargo_active == true)\n"
			       "deny role:contractor if data.SECRET == 'M31'   # not for them\n";

/* The explanation as JSON text with ' for ", without the members `time` and `granted`. */
static char *explained(const char *policy_text, const char *request, enum naos_policy_audience audience)
{
	naos_autopolicy struct naos_policy *policy = loaded(policy_text);
	naos_autogiven struct naos_policy_given given;
	naos_autofree char *json = strdup(request);
	json_t *explanation = NULL;
	for (char *at = json; *at; at++)
		*at = *at == '\'' ? '"' : *at;
	json_t *object = json_loads(json, 0, NULL);
	assert_non_null(object);
	naos_policy_given_start(&given, 0);
	assert_ok(naos_policy_given_add(&given, policy, object, "request", &err), &err);
	assert_ok(naos_policy_explain(policy, &given.request, audience, &explanation, &err), &err);
	(void)json_object_del(explanation, "time");
	(void)json_object_del(explanation, "granted");
	char *text = json_dumps(explanation, JSON_COMPACT);
	json_decref(explanation);
	json_decref(object);
	for (char *at = text; *at; at++)
		*at = *at == '"' ? '\'' : *at;
	return text;
}

static void says(const char *policy, const char *request, enum naos_policy_audience audience, const char *expected)
{
	naos_autofree char *text = explained(policy, request, audience);
	assert_string_equal(text, expected);
}

#define ALICE "'user':{'id':'alice','roles':[],'authentication':1}"
#define FRAME "'data':{'collection':'ttt','release_date':'2027-01-01T00:00:00Z','SECRET':'M31'},'now':'2026-12-31T00:00:00Z'"

static void a_denial_says_when_it_opens_and_what_would_allow_it(void **state)
{
	says(ttt, "{" ALICE "," FRAME "}", NAOS_POLICY_USER,
	     "{'level':'denied','because':'default','rules':[],"
	     "'next':{'at':'2027-01-01T00:00:00.000001Z','level':'full','rules':[1]},'changes':["
	     "{'rule':1,'level':'full','conditions':[{'condition':'data.release_date < now()',"
	     "'now':'false','at':'2027-01-01T00:00:00.000001Z'}]},"
	     "{'rule':2,'level':'metadata-only','conditions':[{'condition':'user.role == 'miner'','now':'false'}]},"
	     "{'rule':3,'level':'full','conditions':[{'condition':'user.role == 'collaborator'','now':'false'}]}]}");
}

static void an_outsider_is_told_nothing(void **state)
{
	static const char *const outsiders[] = { "{" FRAME "}", "{'user':{'roles':['contractor']}," FRAME "}",
						"{'user':{'id':'','roles':[]}," FRAME "}",
						 "{'user':{'id':'alice','roles':[],'authentication':0}," FRAME "}" };
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(outsiders); i++)
		says(ttt, outsiders[i], NAOS_POLICY_USER, "{'level':'denied'}");
	says(ttt, "{" ALICE "," FRAME "}", NAOS_POLICY_OUTSIDER, "{'level':'denied'}");
}

static void a_deny_rule_is_named_and_its_secrets_are_not(void **state)
{
	static const char request[] = "{'user':{'id':'eve','roles':['contractor','miner']}," FRAME "}";
	says(ttt, request, NAOS_POLICY_OFFICER,
	     "{'level':'denied','because':'deny','rules':[{'rule':4,'effect':'deny','level':'full','certain':true,'conditions':["
	     "{'condition':'user.role == 'contractor'','value':'true'},{'condition':'data.SECRET == 'M31'','value':'true'}],"
	     "'line':4,'text':'deny role:contractor if data.SECRET == 'M31''}],'changes':["
	     "{'rule':2,'level':'metadata-only','conditions':[{'condition':'user.role != 'contractor'','now':'false'}]},"
	     "{'rule':1,'level':'full','conditions':[{'condition':'data.release_date < now()',"
	     "'now':'false','at':'2027-01-01T00:00:00.000001Z'},"
	     "{'condition':'user.role != 'contractor'','now':'false'}]},"
	     "{'rule':3,'level':'full','conditions':[{'condition':'user.role == 'collaborator'','now':'false'},"
	     "{'condition':'user.role != 'contractor'','now':'false'}]}]}");
	naos_autofree char *text = explained(ttt, request, NAOS_POLICY_USER);
	assert_non_null(strstr(text, "'rules':[{'rule':4,'effect':'deny','level':'full','certain':true,'conditions':["
				     "{'condition':'user.role == 'contractor'','value':'true'}]}]"));
	assert_null(strstr(text, "SECRET"));
	assert_null(strstr(text, "M31"));
}

static void who_may_read_metadata_may_read_conditions_on_it(void **state)
{
	static const char policy[] = "allow metadata-only role:miner\nallow pixels-only role:miner if data.EXPTIME < 100";
	naos_autofree char *text = explained(policy, "{'user':{'id':'a','roles':['miner']},'data':{'EXPTIME':200},'want':'pixels-only'}",
					     NAOS_POLICY_USER);
	naos_autofree char *other = explained(policy, "{'user':{'id':'a','roles':[]},'data':{'EXPTIME':200},'want':'pixels-only'}",
					      NAOS_POLICY_USER);
	assert_non_null(strstr(text, "data.EXPTIME < 100"));
	assert_null(strstr(other, "EXPTIME"));
	assert_non_null(strstr(other, "'not shown'"));
}

/* The end of a proprietary period follows from the date of the observation, which is metadata. */
static void a_moment_that_would_tell_metadata_is_not_told(void **state)
{
	static const char policy[] = "allow if data.DATE-OBS + 365d <= now()";
	static const char request[] = "{'user':{'id':'a'},'data':{'DATE-OBS':'2026-06-01T00:00:00Z'},"
				      "'now':'2026-12-01T00:00:00Z'}";
	naos_autofree char *officer = explained(policy, request, NAOS_POLICY_OFFICER);
	assert_non_null(strstr(officer, "'next':{'at':'2027-06-01T00:00:00Z','level':'full','rules':[1]}"));
	says(policy, request, NAOS_POLICY_USER, "{'level':'denied','because':'default','rules':[],'changes':[]}");
}

static void what_time_can_not_bring_is_not_offered(void **state)
{
	says("allow if now() < data.window_end",
	     "{'user':{'id':'a'},'data':{'window_end':'2026-01-01T00:00:00Z'},'now':'2026-12-01T00:00:00Z'}",
	     NAOS_POLICY_OFFICER, "{'level':'denied','because':'default','rules':[],'changes':[]}");
	says("allow if now() < data.window_end", "{'user':{'id':'a'},'now':'2026-12-01T00:00:00Z'}", NAOS_POLICY_OFFICER,
	     "{'level':'denied','because':'default','rules':[],'changes':[{'rule':1,'level':'full','conditions':["
	     "{'condition':'now() < data.window_end','now':'unknown'}]}]}");
}

static void a_change_that_another_rule_would_deny_is_not_offered(void **state)
{
	says("allow if user.affiliation == 'x'\ndeny if user.affiliation == 'x' AND data.A == 1",
	     "{'user':{'id':'a','affiliation':'y'},'data':{'A':1}}",
	     NAOS_POLICY_OFFICER, "{'level':'denied','because':'default','rules':[],'changes':[]}");
}

static void access_that_ends_says_when(void **state)
{
	says("allow if now() < data.window_end",
	     "{'user':{'id':'a'},'data':{'window_end':'2027-01-01T00:00:00Z'},'now':'2026-12-01T00:00:00Z'}",
	     NAOS_POLICY_USER,
	     "{'level':'full','because':'allow','rules':[{'rule':1,'effect':'allow','level':'full','certain':true,'conditions':["
	     "{'condition':'now() < data.window_end','value':'true'}]}],'next':{'at':'2027-01-01T00:00:00Z','level':'denied','rules':[]}}");
}

/* --- limits ---------------------------------------------------------------------------------------------------------------------- */

static char *rules(size_t count, const char *format, const char *last)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *file = open_memstream(&text, &bytes);
	assert_non_null(file);
	for (size_t i = 0; i < count; i++)
		for (const char *at = format; *at; at++)
			if (*at == '@')
				fprintf(file, "%04zu", i + 2000);
			else
				(void)fputc(*at, file);
	fprintf(file, "%s", last);
	(void)fclose(file);
	return text;
}

/* 255 moments that change nothing, then one that opens; one more is not looked at. */
static void as_many_moments_are_looked_at_as_the_limit_says(void **state)
{
	for (size_t over = 0; over < 2; over++) {
		naos_autofree char *text = rules(NAOS_POLICY_MAX_MOMENTS - 1 + over, "allow role:nobody if now() >= @-01-01T00:00:00Z\n",
						 "allow if now() >= 9000-01-01T00:00:00Z\n");
		naos_autofree char *found = explained(text, "{'user':{'id':'a','roles':[]},'now':'1990-01-01T00:00:00Z'}", NAOS_POLICY_OFFICER);
		assert_int_equal(strstr(found, "'next':{'at':'9000-01-01T00:00:00Z'") != NULL, !over);
	}
}

static size_t occurrences(const char *text, const char *what)
{
	size_t count = 0;
	for (const char *at = text; (at = strstr(at, what)); at++)
		count++;
	return count;
}

static void as_many_changes_are_named_as_the_limit_says(void **state)
{
	for (size_t over = 0; over < 2; over++) {
		naos_autofree char *text = rules(NAOS_POLICY_MAX_CHANGES - 1 + over * 2, "allow role:r@\n", "");
		naos_autofree char *found = explained(text, "{'user':{'id':'a','roles':[]}}", NAOS_POLICY_OFFICER);
		assert_int_equal(occurrences(found, "'rule':"), over ? NAOS_POLICY_MAX_CHANGES : NAOS_POLICY_MAX_CHANGES - 1);
	}
}

/* Rules with one change that another rule forbids, and one with two changes behind them. */
static void as_many_rules_are_examined_as_the_limit_says(void **state)
{
	for (size_t over = 0; over < 2; over++) {
		naos_autofree char *text = rules(NAOS_POLICY_MAX_TRIES - 1 + over, "allow role:r@\ndeny role:r@ if user.id == 'a'\n",
						 "allow role:x if user.affiliation == 'y'\n");
		naos_autofree char *found = explained(text, "{'user':{'id':'a','roles':[],'affiliation':'z'}}", NAOS_POLICY_OFFICER);
		assert_int_equal(occurrences(found, "'rule':"), over ? 0 : 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_denial_says_when_it_opens_and_what_would_allow_it),
		cmocka_unit_test(an_outsider_is_told_nothing),
		cmocka_unit_test(a_deny_rule_is_named_and_its_secrets_are_not),
		cmocka_unit_test(who_may_read_metadata_may_read_conditions_on_it),
		cmocka_unit_test(a_moment_that_would_tell_metadata_is_not_told),
		cmocka_unit_test(what_time_can_not_bring_is_not_offered),
		cmocka_unit_test(a_change_that_another_rule_would_deny_is_not_offered),
		cmocka_unit_test(access_that_ends_says_when),
		cmocka_unit_test(as_many_moments_are_looked_at_as_the_limit_says),
		cmocka_unit_test(as_many_changes_are_named_as_the_limit_says),
		cmocka_unit_test(as_many_rules_are_examined_as_the_limit_says),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What the policy language takes and what it refuses, with place and remedy; every limit reached and exceeded.
 * SPDX-License-Identifier: Apache-2.0 */
#include "policy_helper.h"

static void legal(const char *text)
{
	(void)naos_policy_free(loaded(text));
}

static void refused_with(const char *text, int code, const char *message)
{
	struct naos_policy *policy = NULL;
	assert_code(naos_policy_parse(text, strlen(text), "p", &policy, &err), code);
	assert_null(policy);
	if (!strstr(err.message, message))
		fail_msg("'%s' lacks '%s'", err.message, message);
}

static void refused(const char *text, const char *message)
{
	refused_with(text, NAOS_E_CONFIG, message);
}

static void the_forms_of_the_paper_are_legal(void **state)
{
	legal("allow role:public if data.release_date < now()");
	legal("allow metadata-only role:miner on collection:ttt");
	legal("allow access if (user.role == 'collaborator' AND data.embargo_active == true)");
	legal("deny role:contractor");
	legal("deny access if true");
	legal("");
	legal("# nothing yet\n");
	legal("allow pixels-only group:\"P 1\" on fileset:genomes if NOT (vm.protection in {'sev', \"off\"}) # ok\ndeny user:eve");
	legal("allow full if data.DATE-OBS + 365d <= now() AND data.DATE-OBS >= 2020-02-29T00:00:00+01:00 "
	      "or exists(data.PUBLIC) and data.PUBLIC");
	legal("allow role:a\n\tif user.authentication >= 2\n\tand 'O''Brien' != user.affiliation\nallow role:b");
}

static void mistakes_of_grammar_name_their_place(void **state)
{
	refused("allow role:a\npermit role:b", "p:2:1: 'permit' where the rule should go on");
	refused("permit role:b", "p:1:1: 'permit' where a rule should begin, with allow or deny");
	refused("allow", "p:1:1: a rule about everybody and everything; if that is meant, end it with 'if true'");
	refused("allow access", "p:1:1: a rule about everybody");
	refused("allow rolle:a", "p:1:7: 'rolle' where access, full");
	refused("allow role a", "p:1:12: 'a' where a colon should stand");
	refused("allow role:", "the end of the file where a name should stand");
	refused("allow role:''", "p:1:12: '''' where a name");
	refused("allow role:a on role:b", "p:1:17: 'role' where collection:NAME or fileset:NAME");
	refused("allow denied role:a", "p:1:7: 'denied' can't be said of 'allow'; write deny access");
	refused("deny full role:a", "p:1:6: 'full' can't be said of 'deny'");
	refused("allow if user.id = 'x'", "p:1:18: a single =; write ==");
	refused("allow if user.id == 'x' && true", "write AND for &&");
	refused("allow if user.id == 'x' || true", "write OR for ||");
	refused("allow if !true", "write NOT");
	refused("allow if (true", "p:1:15: the end of the file where ) or AND or OR");
	refused("allow if true)", "p:1:14: ')' where the rule should go on");
	refused("allow if true; deny role:a", "a semicolon");
	refused("allow if user.id == 'x", "p:1:21: a string without its closing quote");
	refused("allow if user.id == 'x\n'", "without its closing quote");
	refused("allow if user.id in {}", "p:1:21: an empty set");
	refused("allow if user.id in {'a' 'b'}", "p:1:26: ''b'' where a comma or }");
	refused("allow if user.id in {a}", "p:1:22: 'a' where a string of the set");
	refused("allow if now < 2027-01-01T00:00:00Z", "( should stand; write now()");
	refused("allow if exists(now())", "p:1:17: 'now' where an attribute");
	refused("allow if 1 < data.X < 3", "p:1:21: a comparison of a comparison; join two with AND");
	refused("allow if AND", "unknown attribute 'AND'");
	refused("allow role:\xc3\xa4", "p:1:12: a character that begins nothing");
	refused("allow if data.OBJECT == '\x01'", "a byte that may not stand in a string");
	refused("# \xff\nallow role:a", "p:1:3: a byte that is no text in UTF-8");
	refused("allow if data.X == 12abc", "'12abc' is no number and no duration");
	legal("allow if data.OBJECT == '\xc3\xa4\xe2\x82\xac'");
	refused("allow if data.OBJECT == '\xc3\xa4' AND user.idd == 'x'", "p:1:33: unknown attribute"); /* columns count characters */
}

static void unknown_attributes_are_refused_with_what_was_meant(void **state)
{
	refused("allow if user.rol == 'x'", "unknown attribute 'user.rol'; did you mean user.role?");
	refused("allow if data.release < now()", "did you mean data.release_date?");
	refused("allow if user.name == 'x'", "unknown attribute 'user.name'; there are id, role, group, affiliation, authentication");
	refused("allow if data.object == 'x'", "FITS keywords in capitals");
	refused("allow if data.NINELETTE == 'x'", "unknown attribute 'data.NINELETTE'");
	refused("allow if collaborator == user.role", "strings stand in quotes");
	refused("allow if user == 'x'", "unknown attribute 'user'");
}

static void wrong_types_are_refused(void **state)
{
	refused("allow if data.release_date < '2027-01-01'",
		"p:1:28: '<' between two types: data.release_date is a time, '2027-01-01' is a string; "
		"write a time without quotes");
	refused("allow if user.authentication == '2'", "write a number without quotes");
	refused("allow if data.embargo_active == 'true'", "write true or false without quotes");
	refused("allow if user.id < 'x'", "only numbers and times have an order");
	refused("allow if user.role < 2", "'<' between two types");
	refused("allow if user.role", "user.role is a set, not a condition");
	refused("allow if user.id", "user.id is a string, not a condition; compare it");
	refused("allow if user.id in user.affiliation", "IN needs a set behind it");
	refused("allow if user.role == user.group", "'==' between two types: user.role is a set, user.group is a set");
	refused("allow if user.role == user.id", "write IN to ask");
	refused("allow if user.authentication in {'2'}", "'in' between two types");
	refused("allow if 'a' == 'b'", "two constants are compared");
	refused("allow if now() < now()", "compared with itself");
	refused("allow if now() == data.release_date", "write <, <=, > or >=");
	refused("allow if data.X == data.Y", "the types of data.X and data.Y are not known here");
	refused("allow if data.X == 1\nallow if data.X == 'a'",
		"p:2:17: '==' between two types: data.X is a number (it was compared with one at 1:10)");
	refused("allow if user.id + 3d < now()", "p:1:18: a duration is added to what is no time");
	refused("allow if data.release_date + 3 < now()", "p:1:30: '3' where a duration");
	refused("allow if data.release_date + 3d + 3d < now()", "a second duration");
	refused("allow if vm.protection == 'sev_snp'", "vm.protection is never 'sev_snp'; it is one of sev-snp|sev-es|sev|off|simulated");
	refused("allow if vm.protection in {'sev', 'none'}", "is never 'none'");
	legal("allow if data.X == 1 AND data.Y == 2 AND data.X == data.Y");
}

static void times_need_a_zone_and_must_exist(void **state)
{
	static const char *const wrong[][2] = {
		{ "2027-01-01T00:00:00", "has no zone; add Z for UTC" },	    { "2027-01-01", "is a day without time of day and zone" },
		{ "2027-01-01T00:00:00+1", "what is no zone" },			    { "2027-01-01T00:00:00+24:00", "what is no zone" },
		{ "2027-02-29T00:00:00Z", "the calendar doesn't have" },	    { "2100-02-29T00:00:00Z", "the calendar doesn't have" },
		{ "2027-13-01T00:00:00Z", "the calendar doesn't have" },	    { "0000-01-01T00:00:00Z", "the calendar doesn't have" },
		{ "2027-01-01T24:00:00Z", "a time of day that doesn't exist" },	    { "2016-12-31T23:59:60Z", "leap seconds" },
		{ "2027-01-01T00:00:00.1234567Z", "more than 6 digits" },	    { "2027-01-01T00:00:00.Z", "a point without digits" },
		{ "2027-01-01T00:00Z", "is not written as" },
	};
	static const struct {
		const char *text;
		int64_t us;
		const char *again;
	} right[] = {
		{ "1970-01-01T00:00:00Z", 0, NULL },
		{ "2028-02-29T23:59:59Z", 1835481599000000, NULL },
		{ "2000-02-29T00:00:00+14:00", 951732000000000, "2000-02-28T10:00:00Z" },
		{ "1969-12-31T23:59:59.5-00:30", 1799500000, "1970-01-01T00:29:59.500000Z" },
		{ "0001-01-01T00:00:00Z", -62135596800000000, NULL },
		{ "9999-12-31T23:59:59.999999Z", 253402300799999999, NULL },
	};
	char text[200], buffer[NAOS_POLICY_TIME_BYTES];
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(wrong); i++) {
		(void)snprintf(text, sizeof(text), "allow role:x\n  if data.release_date < %s", wrong[i][0]);
		refused(text, wrong[i][1]);
		assert_non_null(strstr(err.message, "p:2:26: the time "));
	}
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(right); i++) {
		int64_t us = 1;
		assert_null(naos_policy_time_parse(right[i].text, strlen(right[i].text), &us));
		assert_true(us == right[i].us);
		assert_string_equal(naos_policy_time_format(us, buffer), right[i].again ? right[i].again : right[i].text);
	}
}

static void rules_that_can_do_nothing_are_refused(void **state)
{
	refused("allow role:a if false", "p:1:1: rule 1 can never apply: its condition is always false");
	refused("allow role:a\nallow role:b if data.X == 1 AND NOT data.X == 1",
		"p:2:1: rule 2 can never apply: data.X == 1 and data.X != 1");
	refused("allow if data.X == 1 AND data.X > 1", "data.X == 1 and data.X > 1 exclude each other");
	refused("allow if data.X < 1 AND data.X >= 1", "exclude each other");
	refused("allow if data.X <= 1 AND data.X > 1", "exclude each other");
	refused("allow if now() < 2027-01-01T00:00:00Z AND now() > 2027-01-01T00:00:00Z", "exclude each other");
	refused("allow on collection:a if data.collection == 'b'", "exclude each other");
	refused("allow on collection:a if data.collection in {'b', 'c'}", "exclude each other");
	refused("allow if NOT exists(data.X) AND data.X == 1", "exclude each other");
	refused("allow role:a\nallow role:a", "p:2:1: rule 2 is useless: rule 1 (line 1) allows as much");
	refused("allow metadata-only role:a on collection:c\nallow role:a", "p:1:1: rule 1 is useless: rule 2 (line 2)");
	refused("deny role:a\ndeny pixels-only role:a if data.X == 1", "p:2:1: rule 2 is useless: rule 1 (line 1) denies as much");
	refused("allow role:a on collection:c if data.X == 1\ndeny role:a",
		"p:1:1: rule 1 conflicts with rule 2 (line 2), which denies everything");
	refused("deny pixels-only role:a\nallow access role:a", "p:2:1: rule 2 conflicts with rule 1 (line 1), which denies pixels-only");
	legal("allow if data.X <= 1 AND data.X >= 1");
	legal("deny pixels-only role:a\nallow metadata-only role:a");
	legal("allow role:a\ndeny role:a if data.X == 1");
	legal("allow pixels-only role:a\nallow metadata-only role:a");
	legal("allow role:a if data.X == 1 OR data.X == 2\nallow role:a if data.X == 1 AND data.Y == 2");
}

/* --- limits ------------------------------------------------------------------------------------------------------------------ */

/* head, then count times part with its number, then tail. */
static char *repeated(const char *head, const char *part, size_t count, const char *tail)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *file = open_memstream(&text, &bytes);
	assert_non_null(file);
	fprintf(file, "%s", head);
	for (size_t i = 0; i < count; i++)
		for (const char *at = part; *at; at++)
			if (*at == '@')
				fprintf(file, "%zu", i);
			else
				(void)fputc(*at, file);
	fprintf(file, "%s", tail);
	(void)fclose(file);
	return text;
}

static void limit(const char *head, const char *part, size_t most, const char *tail, const char *message)
{
	naos_autofree char *reached = repeated(head, part, most, tail), *exceeded = repeated(head, part, most + 1, tail);
	legal(reached);
	refused_with(exceeded, NAOS_E_LIMIT, message);
}

static void every_limit_is_reached_and_exceeded(void **state)
{
	limit("", "allow role:r@\n", NAOS_POLICY_MAX_RULES, "", "p:1025:1: more than 1024 rules");
	limit("allow role:r if true", " AND data.X != @", NAOS_POLICY_MAX_RULE_CONDITIONS - 2, "", "more than 64 conditions in one rule");
	limit("allow if ", "NOT ", NAOS_POLICY_MAX_DEPTH, "true", "more than 32 parentheses");
	limit("allow if data.OBJECT == '", "x", NAOS_POLICY_MAX_TEXT_BYTES, "'", "p:1:25: a string of more than 256 bytes");
	limit("allow role:", "x", NAOS_POLICY_MAX_TEXT_BYTES, "", "p:1:12: a word of more than 256 bytes");
	limit("allow if data.X == ", "1", NAOS_POLICY_MAX_NUMBER_BYTES, "", "p:1:20: a number of more than 63 characters");
	limit("allow if user.id in {", "'@',", NAOS_POLICY_MAX_ELEMENTS, "}", "a set of more than 256 strings");
	limit("", "allow if data.K@ == 1\n", NAOS_POLICY_MAX_KEYWORDS, "", "p:65:10: more than 64 different FITS keywords");
	limit("", "allow role:r@ if user.id in {'s@'}\n", NAOS_POLICY_MAX_SETS, "", "512 sets");
}

static void a_whole_policy_has_limits(void **state)
{
	/* 512 rules of 8 strings are 4096 */
	naos_autofree char *texts = repeated("", "allow if user.id in {'a@','b@','c@','d@','e@','f@','g@','h@'}\n", 512, "");
	naos_autofree char *one_more = repeated(texts, "allow role:x", 1, "");
	legal(texts);
	refused_with(one_more, NAOS_E_LIMIT, "4096 different strings");
	/* 1024 rules of 8 conditions are 8192 */
	naos_autofree char *conditions = repeated("",
						  "allow if data.A==@ OR data.B==@ OR data.C==@ OR data.D==@ OR data.E==@ OR data.F==@ OR data.G==@ "
						      "OR data.H==@\n", 1023, "");
	naos_autofree char *reached = repeated(conditions,
					       "allow if data.A<1 OR data.A<2 OR data.A<3 OR data.A<4 OR data.A<5 OR data.A<6 OR data.A<7 "
							   "OR data.A<8", 1, "");
	naos_autofree char *exceeded = repeated(reached, " OR data.A<9", 1, "");
	legal(reached);
	refused_with(exceeded, NAOS_E_LIMIT, "8192 conditions");
	legal("allow if data.X > 1e300 OR data.X < -1e300");
	refused_with("allow if data.X == 1e301", NAOS_E_LIMIT, "a number beyond 1e+300");
	legal("allow if data.release_date + 365250d < now()");
	refused_with("allow if data.release_date + 365251d < now()", NAOS_E_LIMIT, "a duration of more than 365250 days");
	naos_autofree char *source = repeated("#", " ", NAOS_POLICY_MAX_BYTES - 1, ""), *longer = repeated("#", " ",
													   NAOS_POLICY_MAX_BYTES, "");
	legal(source);
	refused_with(longer, NAOS_E_LIMIT, "a policy of more than 262144 bytes");
}

/* Two strings that are attributes: 64 conditions. */
static void pairs_of_strings_have_a_limit(void **state)
{
	naos_autofree char *typed = repeated("", "allow if data.K@ == 'x'\n", 32, "");
	naos_autofree char *reached = repeated(typed, "allow if data.K@ in user.groups OR data.K@ == user.affiliation\n", 32, "");
	naos_autofree char *exceeded = repeated(reached, "allow if user.id in user.groups\n", 1, "");
	legal(reached);
	refused_with(exceeded, NAOS_E_LIMIT, "64 comparisons of two strings");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_forms_of_the_paper_are_legal),
		cmocka_unit_test(mistakes_of_grammar_name_their_place),
		cmocka_unit_test(unknown_attributes_are_refused_with_what_was_meant),
		cmocka_unit_test(wrong_types_are_refused),
		cmocka_unit_test(times_need_a_zone_and_must_exist),
		cmocka_unit_test(rules_that_can_do_nothing_are_refused),
		cmocka_unit_test(every_limit_is_reached_and_exceeded),
		cmocka_unit_test(a_whole_policy_has_limits),
		cmocka_unit_test(pairs_of_strings_have_a_limit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

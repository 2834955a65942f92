/* Decisions: deny wins, denied by default, levels side by side, missing attributes, the release second, clocks, nothing allocated.
 * SPDX-License-Identifier: Apache-2.0 */
#include "policy_helper.h"

#define M NAOS_ACCESS_METADATA_ONLY
#define P NAOS_ACCESS_PIXELS_ONLY
#define FULL NAOS_ACCESS_FULL
#define DENIED NAOS_ACCESS_DENIED
#if !UNDER_ADDRESS_SANITIZER
/* Every allocation of this program is counted. */
static volatile unsigned long allocations; /* compilers believe that malloc changes no variable */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
__attribute__((visibility("default"))) void *malloc(size_t bytes)
{
	allocations++;
	return __libc_malloc(bytes);
}
__attribute__((visibility("default"))) void *calloc(size_t count, size_t bytes)
{
	allocations++;
	return __libc_calloc(count, bytes);
}
__attribute__((visibility("default"))) void *realloc(void *old, size_t bytes)
{
	allocations++;
	return __libc_realloc(old, bytes);
}
#endif

#define NOW "'now':'2026-12-01T00:00:00Z'"

static enum naos_access_level level(const char *text, const char *request)
{
	return answer(text, request, NULL);
}

static void without_a_rule_everything_is_denied(void **state)
{
	assert_int_equal(level("", "{" NOW "}"), DENIED);
	assert_int_equal(level("allow role:miner", "{'user':{'id':'a','roles':['curator']}," NOW "}"), DENIED);
	assert_int_equal(level("deny role:miner", "{'user':{'id':'a','roles':['curator']}," NOW "}"), DENIED);
	assert_int_equal(level("allow role:miner", "{'user':{'id':'a','roles':['curator','miner']}," NOW "}"), FULL);
}

static void deny_wins_wherever_it_stands(void **state)
{
	static const char request[] = "{'user':{'id':'a','roles':['miner'],'groups':['bad']}," NOW "}";
	assert_int_equal(level("allow role:miner\ndeny group:bad", request), DENIED);
	assert_int_equal(level("deny group:bad\nallow role:miner", request), DENIED);
	assert_int_equal(level("deny group:bad\nallow role:miner", "{'user':{'id':'a','roles':['miner'],'groups':[]}," NOW "}"), FULL);
}

static void a_level_and_a_denied_part(void **state)
{
	static const char request[] = "{'user':{'id':'a','roles':['miner'],'groups':['g']}," NOW "}";
	assert_int_equal(level("allow role:miner\ndeny pixels-only group:g", request), M);
	assert_int_equal(level("allow role:miner\ndeny metadata-only group:g", request), P);
	assert_int_equal(level("allow role:miner\ndeny metadata-only group:g\ndeny pixels-only if user.id == 'a'", request), DENIED);
	assert_int_equal(level("allow metadata-only role:miner\nallow group:g", request), FULL);
}

static void both_parts_are_not_the_whole(void **state)
{
	static const char policy[] = "allow metadata-only role:miner\nallow pixels-only group:g";
	unsigned granted = 0;
	assert_int_equal(answer(policy, "{'user':{'roles':['miner'],'groups':['g']}," NOW "}", &granted), M);
	assert_int_equal(granted, naos_access_bit(M) | naos_access_bit(P));
	assert_string_equal(naos_access_set_name(granted), "metadata-only, pixels-only");
	assert_int_equal(level(policy, "{'user':{'roles':['miner'],'groups':['g']},'want':'pixels-only'," NOW "}"), P);
	assert_int_equal(level(policy, "{'user':{'roles':['miner'],'groups':['g']},'want':'metadata-only'," NOW "}"), M);
	assert_int_equal(level(policy, "{'user':{'roles':['miner'],'groups':['g']},'want':'full'," NOW "}"), DENIED);
	assert_int_equal(level("allow role:miner", "{'user':{'roles':['miner']},'want':'pixels-only'," NOW "}"), P); /* full has both */
}

static void what_is_missing_never_opens(void **state)
{
	static const char nobody[] = "{" NOW "}", known[] = "{'user':{'roles':[]},'data':{'X':2,'S':false}," NOW "}";
	assert_int_equal(level("allow if data.X != 1", nobody), DENIED);
	assert_int_equal(level("allow if data.X != 1", known), FULL);
	assert_int_equal(level("allow if NOT (data.X == 1)", nobody), DENIED);
	assert_int_equal(level("allow if true\ndeny role:contractor", nobody), DENIED); /* roles not known */
	assert_int_equal(level("allow if true\ndeny role:contractor", known), FULL);
	assert_int_equal(level("allow if true\ndeny if data.S", nobody), DENIED);
	assert_int_equal(level("allow if true\ndeny if exists(data.S) AND data.S", nobody), FULL);
	assert_int_equal(level("allow if true\ndeny if data.S", known), FULL);
	assert_int_equal(level("allow if data.S OR true", nobody), FULL);
	assert_int_equal(level("allow if data.S OR user.role == 'public'", nobody), FULL);
	assert_int_equal(level("allow if true\ndeny if data.S AND data.X == 3", known), FULL);
	assert_int_equal(level("allow if true\ndeny if data.S AND data.X == 3", "{'data':{'X':3}," NOW "}"), DENIED);
	assert_int_equal(level("allow if data.X > 1", "{'data':{'X':'2'}," NOW "}"), DENIED); /* of another type */
	assert_int_equal(level("allow if data.embargo_active == false", nobody), DENIED);
}

static void everybody_is_public(void **state)
{
	assert_int_equal(level("allow role:public", "{" NOW "}"), FULL);
	assert_int_equal(level("allow if user.role in {'a', 'public'}", "{" NOW "}"), FULL);
	assert_int_equal(level("allow if data.OBJECT in user.roles", "{'data':{'OBJECT':'public'}," NOW "}"), FULL);
	assert_int_equal(level("allow if user.role != 'public' OR data.X == 1", "{" NOW "}"), DENIED);
}

static void comparisons_compare(void **state)
{
	static const char request[] = "{'user':{'id':'a','roles':['r1','r2'],'groups':['P1'],'affiliation':'P1',"
				      "'authentication':2},'data':{'X':1.5,"
				      "'Y':1.5,'OBJECT':'M31','DATE':'2026-11-30T23:00:00Z','proposal_id':'P1','collection':'c'}," NOW "}";
	static const char *const true_ones[] = {
		"user.role == 'r1'", "'r2' in user.roles", "user.role in {'x', 'r2'}", "user.role != 'r3'", "NOT user.role in {'x'}",
		"data.proposal_id in user.groups", "data.proposal_id == user.affiliation", "data.OBJECT in {'M31', 'M33'}",
		"data.OBJECT != 'M33'",
		"data.X == 1.5", "data.X > 1", "1 < data.X", "data.X <= 1.5", "2 >= data.X", "data.X == 1.5 AND data.Y > 1 AND data.X == data.Y",
		"user.authentication > data.X", "data.DATE + 1h < now() + 1s", "data.DATE + 1h <= now()", "NOT data.DATE + 1h < now()",
		"data.DATE == 2026-12-01T00:00:00+01:00", "now() < 2026-12-01T00:00:01Z", "now() >= 2026-12-01T00:00:00Z", "exists(data.X)",
		"NOT exists(data.Z)",
	};
	char policy[256];
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(true_ones); i++) {
		(void)snprintf(policy, sizeof(policy), "allow if %s", true_ones[i]);
		if (level(policy, request) != FULL)
			fail_msg("not true: %s", true_ones[i]);
		(void)snprintf(policy, sizeof(policy), "allow if NOT (%s)", true_ones[i]);
		if (level(policy, request) != DENIED)
			fail_msg("true and false: %s", true_ones[i]);
	}
}

static void the_release_second(void **state)
{
	static const char *const strict = "allow role:public if data.release_date < now()";
	static const char *const derived = "allow if data.embargo_active == false",
			  *const weak = "allow if data.release_date <= now()";
	static const struct {
		const char *release, *now;
		bool strict, weak;
	} rows[] = {
		{ "2027-01-01T00:00:00Z", "2026-12-31T23:59:59Z", false, false },
		{ "2027-01-01T00:00:00Z", "2026-12-31T23:59:59.999999Z", false, false },
		{ "2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z", false, true },
		{ "2027-01-01T00:00:00Z", "2027-01-01T00:00:00.000001Z", true, true },
		{ "2027-01-01T00:00:00Z", "2027-01-01T00:00:01Z", true, true },
		/* a leap day, and the day after it where there is none */
		{ "2028-02-29T00:00:00Z", "2028-02-28T23:59:59Z", false, false },
		{ "2028-02-29T00:00:00Z", "2028-02-29T00:00:01Z", true, true },
		{ "2028-03-01T00:00:00Z", "2028-02-29T23:59:59Z", false, false },
		{ "2027-03-01T00:00:00Z", "2027-02-28T23:59:59Z", false, false },
		/* the same moment in other zones; a summer time that makes 02:30 twice */
		{ "2027-01-01T00:00:00+01:00", "2026-12-31T22:59:59Z", false, false },
		{ "2027-01-01T00:00:00+01:00", "2026-12-31T23:00:00Z", false, true },
		{ "2027-01-01T00:00:00+01:00", "2026-12-31T23:00:01Z", true, true },
		{ "2026-12-31T18:30:00-05:30", "2027-01-01T00:00:00Z", false, true },
		{ "2027-10-31T02:30:00+02:00", "2027-10-31T02:29:59+01:00", true, true },
		{ "2027-10-31T02:30:00+01:00", "2027-10-31T02:30:01+02:00", false, false },
	};
	char request[200];
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(rows); i++) {
		(void)snprintf(request, sizeof(request), "{'data':{'release_date':'%s'},'now':'%s'}", rows[i].release, rows[i].now);
		assert_int_equal(level(strict, request), rows[i].strict ? FULL : DENIED);
		assert_int_equal(level(weak, request), rows[i].weak ? FULL : DENIED);
		assert_int_equal(level(derived, request), rows[i].weak ? FULL : DENIED);
	}
}

static void a_year_after_a_leap_day_is_365_days(void **state)
{
	static const char policy[] = "allow if data.DATE-OBS + 365d <= now()";
	assert_int_equal(level(policy, "{'data':{'DATE-OBS':'2028-02-29T12:00:00Z'},'now':'2029-02-28T11:59:59Z'}"), DENIED);
	assert_int_equal(level(policy, "{'data':{'DATE-OBS':'2028-02-29T12:00:00Z'},'now':'2029-02-28T12:00:00Z'}"), FULL);
}

static void a_clock_set_back_opens_nothing_again(void **state)
{
	struct naos_policy_clock clock = { 0 };
	int64_t behind = -1, host = 1800000000000000;
	assert_true(naos_policy_clock_now(&clock, &host, &behind) == host && behind == 0);
	host -= 3600000000; /* an hour back */
	assert_true(naos_policy_clock_now(&clock, &host, &behind) == 1800000000000000 && behind == 3600000000);
	host += 3600000001;
	assert_true(naos_policy_clock_now(&clock, &host, &behind) == host && behind == 0);
	struct naos_policy_clock real = { 0 };
	int64_t first = naos_policy_clock_now(&real, NULL, NULL);
	assert_true(first > 1700000000000000 && naos_policy_clock_now(&real, NULL, NULL) >= first);
	/* a decision has no memory of its own: with the time of the request set back, a window that has closed is open again */
	static const char policy[] = "allow if now() < data.window_end";
	assert_int_equal(level(policy, "{'data':{'window_end':'2027-01-01T00:00:00Z'},'now':'2027-01-01T00:00:00Z'}"), DENIED);
	assert_int_equal(level(policy, "{'data':{'window_end':'2027-01-01T00:00:00Z'},'now':'2026-12-31T23:59:59Z'}"), FULL);
}

static void file_sets_are_released_to_jobs(void **state)
{
	static const char policy[] = "allow group:genetics on fileset:genomes if vm.protection in {'sev-snp', 'sev-es'} "
				     "AND vm.measurement == 'ab12' AND "
				     "data.window_begin <= now() AND now() < data.window_end\ndeny if vm.protection == 'off'";
	char request[512];
	static const struct {
		const char *protection, *measurement, *now;
		enum naos_access_level level;
	} rows[] = {
		{ "sev-snp", "ab12", "2027-01-01T00:00:00Z", FULL },   { "sev", "ab12", "2027-01-01T00:00:00Z", DENIED },
		{ "sev-snp", "ab13", "2027-01-01T00:00:00Z", DENIED }, { "sev-snp", "ab12", "2026-12-31T23:59:59Z", DENIED },
		{ "sev-es", "ab12", "2027-01-31T23:59:59Z", FULL },    { "sev-es", "ab12", "2027-02-01T00:00:00Z", DENIED },
	};
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(rows); i++) {
		(void)snprintf(request, sizeof(request), "{'user':{'id':'a','groups':['genetics']},'data':{'fileset':'genomes','window_begin':"
			       "'2027-01-01T00:00:00Z','window_end':'2027-02-01T00:00:00Z'},'vm':{'protection':'%s','measurement':'%s'},'now':'%s'}",
			       rows[i].protection, rows[i].measurement, rows[i].now);
		assert_int_equal(level(policy, request), rows[i].level);
	}
}

/* --- requests by slots: limits, and no allocation ------------------------------------------------------------------------------- */

static void values_beyond_a_limit_count_as_missing(void **state)
{
	naos_autopolicy struct naos_policy *policy = loaded("allow group:g\n"
							    "allow metadata-only if user.affiliation != 'x'\ndeny if data.X > 1e6");
	naos_autofree char *text = calloc(NAOS_POLICY_MAX_VALUE_BYTES + 2, 1);
	naos_autofree struct naos_policy_text *groups = calloc(NAOS_POLICY_MAX_MEMBERS + 1, sizeof(*groups));
	struct naos_policy_value values[NAOS_POLICY_SLOTS] = { 0 };
	struct naos_policy_request request = { .values = values };
	struct naos_policy_decision decision;
	struct naos_policy_slot_info info;
	assert_true(naos_policy_slot(policy, NAOS_POLICY_FIXED_SLOTS, &info) && info.type == NAOS_POLICY_NUMBER && info.used);
	assert_string_equal(info.name, "X");
	assert_false(naos_policy_slot(policy, NAOS_POLICY_FIXED_SLOTS + 1, &info));
	memset(text, 'y', NAOS_POLICY_MAX_VALUE_BYTES + 1);
	for (size_t i = 0; i <= NAOS_POLICY_MAX_MEMBERS; i++)
		groups[i] = (struct naos_policy_text){ "g", 1 };
	values[NAOS_POLICY_FIXED_SLOTS] = (struct naos_policy_value){ .type = NAOS_POLICY_NUMBER, .number = 1 };
	for (size_t over = 0; over < 2; over++) {
		values[NAOS_POLICY_USER_GROUPS] = (struct naos_policy_value){
			.type = NAOS_POLICY_SET, .set = { .items = groups, .count = NAOS_POLICY_MAX_MEMBERS + over } };
		naos_policy_decide(policy, &request, &decision);
		assert_int_equal(decision.level, over ? DENIED : FULL);
	}
	for (size_t over = 0; over < 2; over++) {
		values[NAOS_POLICY_USER_AFFILIATION] = (struct naos_policy_value){
			.type = NAOS_POLICY_TEXT, .text = { text, NAOS_POLICY_MAX_VALUE_BYTES + over } };
		naos_policy_decide(policy, &request, &decision);
		assert_int_equal(decision.level, over ? DENIED : M);
	}
	values[NAOS_POLICY_USER_AFFILIATION].text = (struct naos_policy_text){ "y", 1 };
	values[NAOS_POLICY_FIXED_SLOTS].number = __builtin_nan("");
	naos_policy_decide(policy, &request, &decision);
	assert_int_equal(decision.level, DENIED); /* the deny rule isn't known not to apply */
}

static void requests_beyond_a_limit_are_refused_in_json(void **state)
{
	naos_autopolicy struct naos_policy *policy = loaded("allow group:g");
	naos_autogiven struct naos_policy_given given;
	naos_autofree char *text = calloc(NAOS_POLICY_MAX_VALUE_BYTES + 2, 1);
	naos_policy_given_start(&given, 0);
	memset(text, 'y', NAOS_POLICY_MAX_VALUE_BYTES + 1);
	for (int over = 0; over < 2; over++) {
		json_t *groups = json_array();
		for (int i = 0; i < NAOS_POLICY_MAX_MEMBERS + over; i++)
			(void)json_array_append_new(groups, json_string("g"));
		json_t *object = json_pack("{s:{s:o}}", "user", "groups", groups);
		assert_code(naos_policy_given_add(&given, policy, object, "r", &err), over ? NAOS_E_LIMIT : 0);
		json_decref(object);
		object = json_pack("{s:{s:s%}}", "user", "id", text, (size_t)NAOS_POLICY_MAX_VALUE_BYTES + (size_t)over);
		assert_code(naos_policy_given_add(&given, policy, object, "r", &err), over ? NAOS_E_LIMIT : 0);
		json_decref(object);
	}
}

static void wrong_requests_are_refused(void **state)
{
	static const char *const wrong[][2] = {
		{ "{'user':{'idd':'a'}}", "unknown attribute 'user.idd'" },
		{ "{'user':{'id':7}}", "user.id must be a string" },
		{ "{'user':{'roles':'miner'}}", "user.roles must be a list of strings" },
		{ "{'user':{'roles':[1]}}", "user.roles must be a list of strings" },
		{ "{'data':{'release_date':'2027-01-01T00:00:00'}}", "has no zone" },
		{ "{'data':{'DATE-OBS':'2027-01-01T00:00:00'}}", "of data.DATE-OBS has no zone" },
		{ "{'data':{'embargo_active':false}}", "follows from data.release_date" },
		{ "{'now':'2027-01-01'}", "a day without time" },
		{ "{'now':7}", "\"now\" must be" },
		{ "{'want':'everything'}", "\"want\" must be" },
		{ "{'want':'denied'}", "\"want\" must be" },
		{ "{'user':[]}", "is no object" },
	};
	naos_autopolicy struct naos_policy *policy = loaded("allow if data.DATE-OBS < now()");
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(wrong); i++) {
		naos_autogiven struct naos_policy_given given;
		char json[200];
		(void)snprintf(json, sizeof(json), "%s", wrong[i][0]);
		for (char *at = json; *at; at++)
			*at = *at == '\'' ? '"' : *at;
		json_t *object = json_loads(json, 0, NULL);
		naos_policy_given_start(&given, 0);
		assert_code(naos_policy_given_add(&given, policy, object, "r", &err), NAOS_E_FORMAT);
		json_decref(object);
		if (!strstr(err.message, wrong[i][1]))
			fail_msg("'%s' lacks '%s'", err.message, wrong[i][1]);
	}
}

static void a_decision_allocates_nothing(void **state)
{
#if UNDER_ADDRESS_SANITIZER
	skip(); /* it has an allocator of its own; build-clang runs this */
#else
	naos_autopolicy struct naos_policy *policy = loaded("allow role:a if data.OBJECT in user.groups\ndeny if user.id in {'x', 'y'}");
	struct naos_policy_text groups[] = { { "g", 1 }, { "h", 1 } };
	struct naos_policy_value values[NAOS_POLICY_SLOTS] = { 0 };
	struct naos_policy_request request = { .values = values };
	struct naos_policy_decision decision;
	values[NAOS_POLICY_USER_ROLES] = values[NAOS_POLICY_USER_GROUPS] =
		(struct naos_policy_value){ .type = NAOS_POLICY_SET, .set = { .items = groups, .count = 2 } };
	values[NAOS_POLICY_USER_ID] = (struct naos_policy_value){ .type = NAOS_POLICY_TEXT, .text = { "z", 1 } };
	unsigned long before = allocations;
	naos_policy_decide(policy, &request, &decision);
	assert_int_equal(allocations, before);
	naos_autopolicy struct naos_policy *another = loaded("");
	assert_true(another && allocations > before); /* they are counted */
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_rule_everything_is_denied),
		cmocka_unit_test(deny_wins_wherever_it_stands),
		cmocka_unit_test(a_level_and_a_denied_part),
		cmocka_unit_test(both_parts_are_not_the_whole),
		cmocka_unit_test(what_is_missing_never_opens),
		cmocka_unit_test(everybody_is_public),
		cmocka_unit_test(comparisons_compare),
		cmocka_unit_test(the_release_second),
		cmocka_unit_test(a_year_after_a_leap_day_is_365_days),
		cmocka_unit_test(a_clock_set_back_opens_nothing_again),
		cmocka_unit_test(file_sets_are_released_to_jobs),
		cmocka_unit_test(values_beyond_a_limit_count_as_missing),
		cmocka_unit_test(requests_beyond_a_limit_are_refused_in_json),
		cmocka_unit_test(wrong_requests_are_refused),
		cmocka_unit_test(a_decision_allocates_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Any text as a policy, and behind a line "%%" any JSON as a request, or any bytes as the values of one.  What loads must decide about
 * everything, and its explanations must tell the same.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "fuzz.h"
#include "policy/explain.h"
#include "policy/request.h"

static void must(bool condition)
{
	if (!condition)
		abort();
}

/* Values of every type, whatever the policy expects.  Texts are borrowed from data. */
static void take_values(struct naos_policy_given *given, struct naos_policy_text *items, const uint8_t *data, size_t bytes)
{
	size_t at = 0;
	for (size_t slot = 0; slot < NAOS_POLICY_SLOTS && at + 10 <= bytes; slot++) {
		struct naos_policy_value *value = &given->values[slot];
		size_t length = data[at + 1] % 9;
		value->type = data[at] % 6;
		if (value->type == NAOS_POLICY_TEXT) {
			value->text = (struct naos_policy_text){ (const char *)data + at + 2, length };
		} else if (value->type == NAOS_POLICY_NUMBER) {
			memcpy(&value->number, data + at + 2, sizeof(value->number));
		} else if (value->type == NAOS_POLICY_TIME) {
			memcpy(&value->time_us, data + at + 2, sizeof(value->time_us));
		} else if (value->type == NAOS_POLICY_BOOLEAN) {
			value->boolean = data[at + 2] & 1;
		} else if (value->type == NAOS_POLICY_SET) {
			for (size_t i = 0; i < length; i++)
				items[slot * 9 + i] = (struct naos_policy_text){ (const char *)data + at + 2, i };
			value->set.items = items + slot * 9;
			value->set.count = length;
		}
		at += 10;
	}
	if (bytes > 0)
		given->request.want = data[0] % 4;
	if (bytes >= 8)
		memcpy(&given->request.now_us, data + bytes - 8, 8);
}

static void decide_about(const struct naos_policy *policy, const struct naos_policy_request *request)
{
	struct naos_policy_decision decision;
	struct naos_error err = NAOS_ERROR_INIT;
	naos_policy_decide(policy, request, &decision);
	must(decision.granted < 8 && decision.level <= NAOS_ACCESS_FULL);
	must(decision.level == NAOS_ACCESS_DENIED || decision.granted & naos_access_bit(decision.level));
	must(!(decision.granted & naos_access_bit(NAOS_ACCESS_FULL)) || decision.granted == 7);
	bool any = false;
	for (size_t number = 1; number <= naos_policy_rule_count(policy); number++) {
		struct naos_policy_rule_info info;
		naos_policy_rule(policy, number, &info);
		must(info.bytes > 0 && info.line > 0 && info.column > 0 && strnlen(info.text, info.bytes) == info.bytes);
		any |= info.allow && naos_policy_applied(&decision, number);
	}
	must(any || decision.granted == 0);
	for (unsigned audience = NAOS_POLICY_OFFICER; audience <= NAOS_POLICY_OUTSIDER; audience++) {
		json_t *explanation = NULL;
		if (naos_policy_explain(policy, request, audience, &explanation, &err) != 0)
			abort();
		must(strcmp(json_string_value(json_object_get(explanation, "level")), naos_access_level_name(decision.level)) == 0);
		must(audience != NAOS_POLICY_OUTSIDER || json_object_size(explanation) == 1);
		json_decref(explanation);
	}
}

static void ask(const struct naos_policy *policy, const uint8_t *data, size_t bytes)
{
	static struct naos_policy_text items[NAOS_POLICY_SLOTS * 9];
	naos_autogiven struct naos_policy_given given;
	struct naos_error err = NAOS_ERROR_INIT;
	json_t *object = json_loadb((const char *)data, bytes, JSON_REJECT_DUPLICATES, NULL);
	naos_policy_given_start(&given, 0);
	if (!object)
		take_values(&given, items, data, bytes);
	else if (naos_policy_given_add(&given, policy, object, "request", &err) != 0)
		must(err.code != 0 && err.message[0]);
	decide_about(policy, &given.request);
	json_decref(object);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	naos_autopolicy struct naos_policy *policy = NULL;
	struct naos_error err = NAOS_ERROR_INIT;
	const uint8_t *border = memmem(data, bytes, "\n%%\n", 4);
	size_t text = border ? (size_t)(border - data) : bytes;
	if (naos_policy_parse((const char *)data, text, "fuzz", &policy, &err) != 0) {
		must(err.code != 0 && strncmp(err.message, "fuzz:", 5) == 0 && !policy); /* a refusal names the place */
		return 0;
	}
	if (border)
		ask(policy, border + 4, bytes - text - 4);
	else
		ask(policy, data, bytes);
	return 0;
}

/* Policies and requests for unit tests.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_TESTS_POLICY_HELPER_H
#define NAOS_TESTS_POLICY_HELPER_H

#include "unit.h"

#include "policy/explain.h"
#include "policy/request.h"

static struct naos_error err;

/* A policy that must load; the caller frees it. */
static inline struct naos_policy *loaded(const char *text)
{
	struct naos_policy *policy = NULL;
	assert_ok(naos_policy_parse(text, strlen(text), "p", &policy, &err), &err);
	return policy;
}

/* The answer to a request in JSON (quotes as '). */
static inline enum naos_access_level answer(const char *text, const char *request, unsigned *ret_granted)
{
	naos_autopolicy struct naos_policy *policy = loaded(text);
	naos_autogiven struct naos_policy_given given;
	struct naos_policy_decision decision;
	char json[4096];
	(void)snprintf(json, sizeof(json), "%s", request);
	for (char *at = json; *at; at++)
		*at = *at == '\'' ? '"' : *at;
	json_t *object = json_loads(json, 0, NULL);
	assert_non_null(object);
	naos_policy_given_start(&given, 0);
	assert_ok(naos_policy_given_add(&given, policy, object, "request", &err), &err);
	naos_policy_decide(policy, &given.request, &decision);
	json_decref(object);
	if (ret_granted)
		*ret_granted = decision.granted;
	return decision.level;
}

#endif

/* Why a decision was taken, and what would change it (docs/formats/policy.md, "Explanation").  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_POLICY_EXPLAIN_H
#define NAOS_POLICY_EXPLAIN_H

#include <jansson.h>

#include "policy/policy.h"

/* Who reads it.  A USER whose request has no user.id, or authentication 0, is an OUTSIDER. */
enum naos_policy_audience {
	NAOS_POLICY_OFFICER,  /* everything: texts of rules, conditions with their values */
	NAOS_POLICY_USER,     /* rules by number, conditions on what the user may know */
	NAOS_POLICY_OUTSIDER, /* the level and nothing else */
};

/* A JSON object that the caller releases.  It takes memory and may take milliseconds: not for the path of each request. */
int naos_policy_explain(const struct naos_policy *policy, const struct naos_policy_request *request, enum naos_policy_audience audience,
			json_t **ret, struct naos_error *err) naos_must_check;

#endif

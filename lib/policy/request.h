/* Requests from JSON: {"user": {…}, "data": {…}, "vm": {…}, "env": {…}, "now": "…", "want": "…"}.  Subjects and objects of their own
 * have the members that they need.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_POLICY_REQUEST_H
#define NAOS_POLICY_REQUEST_H

#include <jansson.h>

#include "policy/policy.h"

/* Attributes read from JSON, which must stay as long as they are used. */
struct naos_policy_given {
	struct naos_policy_request request; /* its values are the next member */
	struct naos_policy_value values[NAOS_POLICY_SLOTS];
	struct naos_policy_text *members[2]; /* of roles and groups, owned */
};

/* Starts with nothing known, now as given. */
void naos_policy_given_start(struct naos_policy_given *given, int64_t now_us);
/* Adds what the object has.  Other members than those above are passed over, as are FITS keywords that the policy doesn't ask for.
 * A FITS keyword of another type than the policy's counts as missing.  Errors (`what` names the object): NAOS_E_FORMAT for an unknown
 * attribute, another type, a time without zone; NAOS_E_LIMIT. */
int naos_policy_given_add(struct naos_policy_given *given, const struct naos_policy *policy, const json_t *object, const char *what,
			  struct naos_error *err) naos_must_check;
void naos_policy_given_clear(struct naos_policy_given *given);

#define naos_autogiven naos_cleanup(naos_policy_given_clear)

#endif

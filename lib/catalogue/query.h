/* A condition of the policy language over the attributes of a frame.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_CATALOGUE_QUERY_H
#define NAOS_CATALOGUE_QUERY_H

#include <jansson.h>

#include "policy/policy.h"

/* NAOS_E_USAGE: it asks for other attributes than data.*, or is more than one condition; NAOS_E_CONFIG with place and remedy. */
int naos_catalogue_query_parse(const char *expression, struct naos_policy **ret, struct naos_error *err) naos_must_check;
/* An attribute that is missing or of another type than what it is compared with makes a comparison unknown, so that it finds nothing. */
bool naos_catalogue_query_finds(const struct naos_policy *query, const json_t *attributes, int64_t now_us);

#endif

/* How fast an identity may ask: a bucket of tokens each.  Thread-safe.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_RATE_H
#define NAOS_KEYD_RATE_H

#include "base/errors.h"

struct naos_rates;

int naos_rates_create(struct naos_rates **ret, struct naos_error *err) naos_must_check;
struct naos_rates *naos_rates_free(struct naos_rates *rates);
/* Takes `count` tokens of an identity that gets `rate` a second and may save `burst`; false if it has too few. */
bool naos_rates_take(struct naos_rates *rates, const char *identity, uint64_t rate, uint64_t burst, uint64_t count, int64_t now_ns);

#endif

/* The budget of messages under way.  SPDX-License-Identifier: Apache-2.0 */
#include "budget.h"

#include "keyd/limits.h"

unsigned budget_place(const char *identity)
{
	uint64_t hash = 0xcbf29ce484222325;
	for (; *identity; identity++)
		hash = (hash ^ (uint8_t)*identity) * 0x100000001b3;
	return (unsigned)((hash ^ hash >> 32) % BUDGET_PLACES);
}

void budget_take_anyway(struct budget *budget, unsigned place, size_t bytes)
{
	atomic_fetch_add(&budget->total, bytes);
	atomic_fetch_add(&budget->of[place], bytes);
}

void budget_give(struct budget *budget, unsigned place, size_t bytes)
{
	atomic_fetch_sub(&budget->total, bytes);
	atomic_fetch_sub(&budget->of[place], bytes);
}

int budget_take(struct budget *budget, unsigned place, size_t bytes, struct naos_error *err)
{
	size_t total = atomic_fetch_add(&budget->total, bytes) + bytes, own = atomic_fetch_add(&budget->of[place], bytes) + bytes;
	if (own <= NAOS_KEYD_MAX_IDENTITY_HELD_BYTES && total <= NAOS_KEYD_MAX_HELD_BYTES)
		return 0;
	budget_give(budget, place, bytes);
	return own > NAOS_KEYD_MAX_IDENTITY_HELD_BYTES ?
		       naos_error_set(err, NAOS_E_LIMIT,
				      "this identity has %zu MiB of long messages under way: send more when they are answered",
				      NAOS_KEYD_MAX_IDENTITY_HELD_BYTES >> 20) :
		       naos_error_set(err, NAOS_E_LIMIT, "the key manager has %zu MiB of long messages under way: try again later",
				      NAOS_KEYD_MAX_HELD_BYTES >> 20);
}

/* How much secret memory messages under way may take: of one identity, and of all, so that slow senders of long messages leave room for
 * the others.  Identities share 4,096 places by a hash: two that fall together share their budget.  Thread-safe.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_BUDGET_H
#define NAOS_KEYD_BUDGET_H

#include <stdatomic.h>

#include "base/errors.h"

#define BUDGET_PLACES 4096

struct budget {
	atomic_size_t total, of[BUDGET_PLACES];
};

unsigned budget_place(const char *identity);
/* NAOS_E_LIMIT, in words for the client, if that is more than is left; nothing is taken then. */
int budget_take(struct budget *budget, unsigned place, size_t bytes, struct naos_error *err) naos_must_check;
/* Takes it in any case: an answer that is there must be sent. */
void budget_take_anyway(struct budget *budget, unsigned place, size_t bytes);
void budget_give(struct budget *budget, unsigned place, size_t bytes);

#endif

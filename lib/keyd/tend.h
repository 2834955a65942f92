/* What a crash, or an HSM that was away, left half done: ended at the start, and again and again while the key manager runs.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_TEND_H
#define NAOS_KEYD_TEND_H

#include "keyd/call.h"

/* Ends creations that nobody was told of and destructions that were recorded.  *ret_left counts those that the HSM could not be asked
 * for: nobody can use such objects meanwhile.  Errors: what is no matter of the HSM being away. */
int naos_tend_once(struct naos_keyd *keyd, size_t *ret_left, struct naos_error *err) naos_must_check;
/* Starts and ends the thread that does so every few seconds as long as something is left. */
int naos_tend_start(struct naos_keyd *keyd, struct naos_error *err) naos_must_check;
void naos_tend_stop(struct naos_keyd *keyd);

#endif

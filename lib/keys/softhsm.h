/* What SoftHSM needs beyond PKCS#11: it never calls fsync, and what it leaves when it is killed must be cleared away.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYS_SOFTHSM_H
#define NAOS_KEYS_SOFTHSM_H

#include <stdbool.h>

#include "base/errors.h"

/* False if SoftHSM's configuration tells where the token's directory should be, and it is not there. */
bool naos_softhsm_is_present(const char *serial);

/* Makes all objects of the token with this serial number durable: fsync of its files and directory, or sync() of the
 * machine where SoftHSM's configuration does not tell the directory. */
int naos_softhsm_sync(const char *serial, struct naos_error *err) naos_must_check;

/* Removes object files of zero bytes (a creation that was killed); *ret_count were there. */
int naos_softhsm_sweep_empty(const char *serial, size_t *ret_count, struct naos_error *err) naos_must_check;

#endif

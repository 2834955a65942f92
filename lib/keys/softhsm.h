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

/* C_Login empties the file token.object and writes it again: a kill or a full disk in between would lose the token with all
 * its keys.  So a durable copy (token.naos) is put beside it before each login; it holds nothing that token.object does not. */
int naos_softhsm_keep_token(const char *serial, struct naos_error *err) naos_must_check;
/* Puts the copy back wherever token.object is shorter than it; how many were mended. */
size_t naos_softhsm_mend_tokens(void);

/* Removes object files with nothing or next to nothing in them (a creation that was killed); *ret_count were there. */
int naos_softhsm_sweep_stunted(const char *serial, size_t *ret_count, struct naos_error *err) naos_must_check;

#endif

/* Files of the public implementation GpuFitsCrypt, to migrate them: they look like frames of version 1, and are not AES-GCM.
 * Their tag covers one block and most of their keystream ignores the nonce, so nothing about them was ever authenticated: whoever
 * reads one must be told.  There is no writer.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FITS_LEGACY_H
#define NAOS_FITS_LEGACY_H

#include "base/errors.h"
#include "base/secret.h"

#define NAOS_LEGACY_WARNING "it was never authenticated: whoever could write to it may have changed header and pixels unnoticed"

#define NAOS_LEGACY_SCALED "its header scales pixels that were scaled already when that program sealed them: they are not the original's"

enum naos_legacy_mode { NAOS_LEGACY_CTR = 1, NAOS_LEGACY_GCM = 2 };

/* Whether an open file is one of them; *ret_mode tells which of its two modes wrote it. */
bool naos_legacy_probe(int fd, enum naos_legacy_mode *ret_mode);
/* Decrypts an open file with its two keys (16 bytes each) and writes the FITS file that was sealed (its first image only, which is
 * all that such files hold) to target_fd, an empty file.  NAOS_E_FORMAT: not one of them, or one that can't be read, with the
 * reason; NAOS_E_WRONG_KEY: the header that comes out is none.  *ret_scaled: see NAOS_LEGACY_SCALED. */
int naos_legacy_open(int fd, const char *name, const struct naos_secret *header_key, const struct naos_secret *data_key, int target_fd,
		     bool *ret_scaled, struct naos_error *err) naos_must_check;

/* XORs the keystream of a key and nonce (12 bytes) into data, which begins at its first byte; for tests. */
int naos_legacy_crypt(const struct naos_secret *key, const uint8_t nonce[static 12], enum naos_legacy_mode mode, uint8_t *data,
		      size_t bytes, uint64_t offset, struct naos_error *err) naos_must_check;

#endif

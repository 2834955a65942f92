/* When the certificates of a key manager's address end, so that somebody is told before nothing works any more.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYS_EXPIRY_H
#define NAOS_KEYS_EXPIRY_H

#include <limits.h>
#include <stdint.h>

#include "base/errors.h"

#define NAOS_EXPIRY_WARN_DAYS 30
#define NAOS_EXPIRY_TEXT_BYTES (PATH_MAX + 256)

struct naos_expiry {
	int64_t unix_s; /* the end of the one that ends first */
	bool authority; /* it is the ca of the address, else the client certificate or one of its chain */
	char file[PATH_MAX];
};

/* Reads the files that a kmip: address names.  Of several authorities in one file the last to end counts: an old one may stay
 * beside its successor.  NAOS_E_UNSUPPORTED: an address of this kind has no certificates.  NAOS_E_CONFIG, naming the file. */
int naos_kmip_certificate_expiry(const char *uri, struct naos_expiry *ret, struct naos_error *err) naos_must_check;

/* Whether that is less than NAOS_EXPIRY_WARN_DAYS after now_unix_s; then ret_text (if not NULL) says so in one sentence. */
bool naos_expiry_is_near(const struct naos_expiry *expiry, int64_t now_unix_s, char *ret_text);

#endif

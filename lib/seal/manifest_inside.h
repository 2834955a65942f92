/* The text of a manifest, shared by writer and reader.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_MANIFEST_INSIDE_H
#define NAOS_SEAL_MANIFEST_INSIDE_H

#include "base/secret.h"

#define NAOS_MANIFEST_FIRST_LINE "naos-manifest 1\n"
#define NAOS_MANIFEST_KEY_BYTES 32
#define NAOS_MANIFEST_MAC_BYTES 32

/* HMAC-SHA256 of the text up to the line "mac". */
int naos_manifest_mac(const struct naos_secret *key, const char *text, size_t bytes, uint8_t ret[static NAOS_MANIFEST_MAC_BYTES],
		      struct naos_error *err) naos_must_check;

#endif

/* A digest of what a sealed file reads as, shared by make_sealed.c and check_sealed.c.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_TESTS_CONTENT_DIGEST_H
#define NAOS_TESTS_CONTENT_DIGEST_H

#include <stdio.h>

#include "seal/sealed_file.h"

#define DIGEST_TEXT_BYTES 80
/* Files above this size have a digest of their data only. */
#define PLAIN_DIGEST_MAX ((uint64_t)64 << 20)

/* "sha256:HEX" of the content, or for a larger file "data:HEX": SHA-256 over number (u64) and bytes (padded to 4096) of each
 * chunk that is not all zero. */
int content_digest(struct naos_sealed_file *file, char ret[static DIGEST_TEXT_BYTES], struct naos_error *err) naos_must_check;

#endif

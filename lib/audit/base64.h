/* Standard base64 (RFC 4648 section 4) in its one canonical spelling.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_AUDIT_BASE64_H
#define NAOS_AUDIT_BASE64_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room for the text of n bytes, with the final NUL. */
#define NAOS_BASE64_BYTES(n) (((n) + 2) / 3 * 4 + 1)

/* Returns text. */
const char *naos_base64_encode(const void *data, size_t bytes, char *text);
/* False if the text is not exactly what encoding its value gives, or the value is longer than max_bytes. */
bool naos_base64_decode(const char *text, size_t bytes, uint8_t *ret_data, size_t max_bytes, size_t *ret_bytes);

#endif

/* 16-byte identifiers (RFC 4122 version 4) of files, file sets and keys.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_BASE_UUID_H
#define NAOS_BASE_UUID_H

#include <stdbool.h>
#include <stdint.h>

#include "base/errors.h"

#define NAOS_UUID_BYTES 16
#define NAOS_UUID_TEXT_BYTES 37 /* with the final NUL */

struct naos_uuid {
	uint8_t bytes[NAOS_UUID_BYTES];
};

int naos_uuid_random(struct naos_uuid *ret, struct naos_error *err) naos_must_check;
/* Lower-case text with hyphens into buffer, which is returned. */
const char *naos_uuid_format(const struct naos_uuid *uuid, char buffer[static NAOS_UUID_TEXT_BYTES]);
/* Accepts exactly the form that naos_uuid_format writes, in either case. */
bool naos_uuid_parse(const char *text, struct naos_uuid *ret);
bool naos_uuid_equal(const struct naos_uuid *left, const struct naos_uuid *right);
bool naos_uuid_is_zero(const struct naos_uuid *uuid);

/* Lower-case hexadecimal of any bytes; text needs 2 * bytes + 1. */
const char *naos_hex_format(const void *data, size_t bytes, char *text);
/* Exactly 2 * bytes hexadecimal digits, or false. */
bool naos_hex_parse(const char *text, void *ret_data, size_t bytes);

#endif

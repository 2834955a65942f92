/* Keys that a user gives by hand: from a file, a descriptor or a systemd credential, never as an argument.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_CMD_KEY_SOURCE_H
#define NAOS_CMD_KEY_SOURCE_H

#include "base/errors.h"
#include "base/secret.h"

#define NAOS_KEY_SOURCE_BYTES 67 /* 256 bits as digits, with a line's end, and one more that shows that it is too long */

/* "file:PATH" (refused if others may read it), "fd:NUMBER" or "systemd:CREDENTIAL": all bytes that it gives, at most 66. */
int naos_key_source_read(const char *source, struct naos_secret **ret, struct naos_error *err) naos_must_check;
/* Hexadecimal digits (and a line's end) become bytes in the same place. */
int naos_key_source_decode(struct naos_secret *secret, struct naos_error *err) naos_must_check;

#endif

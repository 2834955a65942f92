/* Addresses of tokens: pkcs11: URIs (RFC 7512), as far as they name a token, its module and the place of its PIN.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYS_URI_H
#define NAOS_KEYS_URI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/errors.h"
#include "base/secret.h"

#define NAOS_URI_MAX_BYTES 4096 /* the address of a token */
#define NAOS_PIN_MAX_BYTES 255 /* the PIN of a token */

/* Strings are decoded; NULL where the URI does not say. */
struct naos_token_uri {
	char *token, *manufacturer, *serial, *model; /* must all match the token */
	bool has_slot_id;
	uint64_t slot_id;
	char *module_path, *module_name; /* a file; a name such as "softhsm2" */
	char *pin_source;                /* "file:/path", "fd:3", "systemd:NAME" */
};

/* NAOS_E_USAGE with what is wrong.  The message never repeats a value of the URI: it could hold a PIN. */
int naos_token_uri_parse(const char *text, struct naos_token_uri *ret, struct naos_error *err) naos_must_check;
void naos_token_uri_clear(struct naos_token_uri *uri);

/* The module's file: module-path, else module-name looked up in the usual directories, else SoftHSM 2.  The caller frees it. */
int naos_token_uri_module(const struct naos_token_uri *uri, char **ret, struct naos_error *err) naos_must_check;

/* Reads the PIN from where pin-source says.  *ret is NULL if the URI names none.  Errors: NAOS_E_PIN. */
int naos_token_uri_pin(const struct naos_token_uri *uri, struct naos_secret **ret, struct naos_error *err) naos_must_check;

#endif

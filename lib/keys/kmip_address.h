/* The address of a KMIP server (keys/kmip.h) in its parts.  Used by the KMIP provider and by what looks at its files.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYS_KMIP_ADDRESS_H
#define NAOS_KEYS_KMIP_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/errors.h"

struct naos_kmip_address {
	char *copy; /* what the others point into; they live until naos_kmip_address_clear */
	char *hosts, *certificate, *key, *ca;
	uint32_t version;   /* 0: not said */
	unsigned timeout_s; /* 0: not said */
	bool iv_in_data;
};

/* NAOS_E_USAGE.  To be cleared in any case. */
int naos_kmip_address_parse(const char *uri, struct naos_kmip_address *ret, struct naos_error *err) naos_must_check;
void naos_kmip_address_clear(struct naos_kmip_address *address);
#define naos_autoaddress naos_cleanup(naos_kmip_address_clear)

#endif

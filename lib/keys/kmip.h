/* The provider for key managers that speak KMIP: naos-keyd, and others.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYS_KMIP_H
#define NAOS_KEYS_KMIP_H

#include "keys/provider.h"

/* kmip://HOST[:PORT][,HOST[:PORT]…]?cert=FILE&key=FILE&ca=FILE[&version=1.4][&timeout=10][&quirk=iv-in-data]
 * Without them: /etc/naos/client.pem, /etc/naos/client.key, /etc/naos/ca.pem. */
extern const struct naos_provider_ops naos_kmip_provider;

#endif

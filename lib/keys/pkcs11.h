/* The provider for PKCS#11 tokens (HSMs; SoftHSM 2 as the embedded default).  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYS_PKCS11_H
#define NAOS_KEYS_PKCS11_H

#include "keys/provider.h"

extern const struct naos_provider_ops naos_pkcs11_provider;

#endif

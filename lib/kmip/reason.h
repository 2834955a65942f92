/* Result reasons of KMIP and error codes of Naos, each from the other.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KMIP_REASON_H
#define NAOS_KMIP_REASON_H

#include "kmip/tables.h"

/* For a client: the code of a failed answer (enum naos_error_code, always negative). */
int naos_kmip_reason_to_code(enum naos_kmip_result_reason reason);

/* For a server: the reason to answer with for an error, in the words of that version (below). */
enum naos_kmip_result_reason naos_kmip_reason_from_code(int code, uint32_t version);

/* The nearest reason that this version has: 2.x has finer ones (Wrong Key Lifecycle State) than 1.x (Permission Denied). */
enum naos_kmip_result_reason naos_kmip_reason_in_version(enum naos_kmip_result_reason reason, uint32_t version);

#endif

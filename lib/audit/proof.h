/* The form of proof files.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_AUDIT_PROOF_H
#define NAOS_AUDIT_PROOF_H

#include "audit/audit.h"
#include "audit/checkpoint.h"

#define NAOS_PROOF_FORMAT "naos-audit-proof/1"
#define NAOS_PROOF_MAX_BYTES ((size_t)1 << 20) /* a proof file */

/* naos_audit_proof_open on text in memory. */
int naos_audit_proof_parse(const char *text, size_t bytes, const struct naos_verifier *verifier, struct naos_audit_proof *ret,
			   struct naos_error *err) naos_must_check;

#endif

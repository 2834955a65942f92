/* Making and ending keys so that a kill or a power cut at any moment loses no acknowledged key and leaves nothing behind.
 * Used by the PKCS#11 provider only.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYS_PROVISION_H
#define NAOS_KEYS_PROVISION_H

#include "keys/store.h"
#include "keys/token.h"

/* Row in the store, key in the token, fsync, known answer through a re-opened token, row active.  rotating: the next
 * version of a MEK that exists. */
int naos_provision_create(struct naos_key_store *store, struct naos_token *token, const char *name, bool rotating, struct naos_mek *ret,
			  struct naos_error *err) naos_must_check;
/* Recorded first, then done, then looked for again after re-opening. */
int naos_provision_destroy(struct naos_key_store *store, struct naos_token *token, const char *name, uint32_t version,
			   struct naos_error *err) naos_must_check;
/* Clears away what crashes left.  Nothing to do where another process is changing keys: what it does is no leftover. */
int naos_provision_sweep(struct naos_key_store *store, struct naos_token *token, struct naos_error *err) naos_must_check;

#endif

/* The operations of the HSM worker on its token.  Runs where the PIN is: in the worker, or directly in a test.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_HSM_TOKEN_H
#define NAOS_KEYD_HSM_TOKEN_H

#include "keyd/hsm_wire.h"
#include "keys/store.h"
#include "keys/token.h"

struct naos_hsm_token;

/* Logs in, clears away what crashes left, makes the storage key if there is none. */
int naos_hsm_token_open(const char *uri, const char *store_path, struct naos_hsm_token **ret, struct naos_error *err) naos_must_check;
struct naos_hsm_token *naos_hsm_token_close(struct naos_hsm_token *token);

/* Does one job: result, error and output are in job->item, whose `out` has naos_hsm_output_bytes(job) of room. */
void naos_hsm_token_run(struct naos_hsm_token *token, const struct naos_hsm_job *job);

/* AES inside the token (token_crypt.c): CKR_OK or what the token said; *ret_text is NULL or why it was not asked. */
CK_RV naos_token_crypt(struct naos_token *token, CK_OBJECT_HANDLE key, struct naos_hsm_crypt *item, const char **ret_text);
/* AES by OpenSSL with a kept key that is open for the moment (software_crypt.c). */
int naos_software_crypt(const uint8_t *key, size_t key_bytes, struct naos_hsm_crypt *item, struct naos_error *err) naos_must_check;
/* The IV to use where the item has none; false if the random generator failed or its length is wrong. */
bool naos_hsm_prepare_iv(struct naos_hsm_crypt *item) naos_must_check;

#endif

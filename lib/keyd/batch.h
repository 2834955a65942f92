/* Inside of the key manager: the items of one message.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_BATCH_H
#define NAOS_KEYD_BATCH_H

#include "keyd/call.h"

/* A run of Encrypt and Decrypt items that go to the HSM together. */
struct naos_crypt_run {
	struct naos_crypt_slot *slots;
	bool *bad; /* refused before it came to the HSM */
	size_t first, count, ready;
};

struct naos_batch {
	const struct naos_kmip_request *request;
	struct naos_kmip_response_item *items; /* the answers so far */
	struct naos_audit_event *events;
	size_t count, event_count;
	bool stop, failed; /* an item failed, and with stop nothing behind it is done */
	struct naos_crypt_run run;
};

/* Room for answers and events; -1 if the message needs too much memory. */
int naos_batch_open(struct naos_call *call, const struct naos_kmip_request *request, struct naos_batch *ret) naos_must_check;
/* All items, one after the other; blocks for each. */
void naos_batch_run(struct naos_call *call, struct naos_batch *batch);

/* The same in three parts, for a message of Encrypt and Decrypt only: prepare; what naos_batch_crypts gives to the HSM, together with
 * what other messages have; finish. */
bool naos_batch_is_crypts(const struct naos_kmip_request *request);
void naos_batch_begin_crypts(struct naos_call *call, struct naos_batch *batch);
/* Writes what the HSM has to do, run.ready of them, to items; without room for them (NULL) they fail. */
void naos_batch_crypts(const struct naos_batch *batch, struct naos_hsm_crypt **items);
void naos_batch_finish_crypts(struct naos_call *call, struct naos_batch *batch);

/* Name of a result reason as the log has it. */
const char *naos_batch_reason_name(uint32_t reason);

#endif

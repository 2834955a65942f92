/* KMIP messages: requests and responses with their headers and batches.
 *
 * Holding a message: keep its bytes in a struct naos_secret (no message is longer than one may be), so that key bytes and
 * plaintext are never in other memory; decoding copies nothing out of it.  A server reads the 8 bytes of the header, asks
 * naos_kmip_frame() for the length, makes a secret of it and reads on into that; the answer is encoded straight into
 * another secret (naos_kmip_response_write), which goes to TLS in one write.  A key that must outlive the message is
 * copied by naos_kmip_bytes_keep().
 *
 * Lifetimes: what decoding gives points into the message and the arena.  Reset the arena and free the message together.
 * Thread rule: one message, one thread at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KMIP_MESSAGE_H
#define NAOS_KMIP_MESSAGE_H

#include "base/secret.h"
#include "kmip/arena.h"
#include "kmip/operation.h"
#include "kmip/ttlv.h"

/* User name and password, or a device (KMIP specification 2.1.2); the fields of the other kind are absent. */
struct naos_kmip_credential_value {
	struct naos_kmip_text username, password;
	struct naos_kmip_text device_serial_number, device_identifier, network_identifier, machine_identifier, media_identifier;
};

struct naos_kmip_credential {
	enum naos_kmip_credential_type type;
	const struct naos_kmip_credential_value *value;
};

struct naos_kmip_authentication {
	struct { const struct naos_kmip_credential *items; size_t count; } credentials; /* before 1.2 exactly one */
};

struct naos_kmip_message_extension {
	struct naos_kmip_text vendor_identification;
	struct naos_kmip_boolean criticality; /* true: refuse the item if you do not know the extension */
	struct naos_kmip_raw vendor_extension;
};

struct naos_kmip_request_item {
	enum naos_kmip_operation operation;
	struct naos_kmip_boolean ephemeral; /* 2.x */
	struct naos_kmip_bytes unique_batch_item_id;
	union naos_kmip_request_payload payload; /* by operation; valid if reason is 0 */
	struct naos_kmip_raw raw_payload;        /* the payload, if it could not be read (reason is not 0) */
	const struct naos_kmip_message_extension *message_extension;
	/* Set by decoding.  0: fine.  Otherwise the item can't be done: answer it with this reason and this text (static or in
	 * the arena; it holds no value of the message). */
	enum naos_kmip_result_reason reason;
	const char *problem;
};

struct naos_kmip_request {
	uint32_t version; /* NAOS_KMIP_1_4; may be one that Naos does not speak: then all items have a reason */
	struct naos_kmip_integer maximum_response_size;
	struct naos_kmip_text client_correlation, server_correlation; /* from 1.4 on */
	struct naos_kmip_boolean asynchronous;
	struct naos_kmip_boolean attestation_capable;  /* from 1.2 on */
	struct naos_kmip_numbers attestation_types;    /* from 1.2 on */
	const struct naos_kmip_authentication *authentication;
	enum naos_kmip_batch_error_continuation batch_error_continuation; /* absent: stop */
	struct naos_kmip_boolean batch_order;
	struct naos_kmip_date time_stamp;
	struct { const struct naos_kmip_request_item *items; size_t count; } batch;
	/* It holds a field that its version of KMIP does not have yet.  Decoding sets it; encoding refuses such fields unless
	 * it is set, so that nothing is sent that the peer can't know. */
	bool any_version;
};

struct naos_kmip_nonce {
	struct naos_kmip_bytes id, value;
};

struct naos_kmip_response_item {
	enum naos_kmip_operation operation; /* may be absent in a failed item */
	struct naos_kmip_bytes unique_batch_item_id;
	enum naos_kmip_result_status status;
	enum naos_kmip_result_reason reason; /* absent where the status is success */
	struct naos_kmip_text message;
	struct naos_kmip_bytes asynchronous_correlation;
	union naos_kmip_response_payload payload; /* by operation; valid if has_payload */
	bool has_payload;
	struct naos_kmip_raw raw_payload; /* a payload that Naos can't read */
	const struct naos_kmip_message_extension *message_extension;
	const char *problem; /* set by decoding: why the payload could not be read; NULL if it was or there was none */
};

struct naos_kmip_response {
	uint32_t version;
	struct naos_kmip_date time_stamp;
	const struct naos_kmip_nonce *nonce;                          /* from 1.2 on */
	struct naos_kmip_numbers attestation_types;                   /* from 1.2 on */
	struct naos_kmip_text client_correlation, server_correlation; /* from 1.4 on */
	struct { const struct naos_kmip_response_item *items; size_t count; } batch;
	bool any_version; /* as in the request */
};

/* Decode one whole message (naos_kmip_check() is part of it).  A message that is one but holds an item that can't be read
 * is decoded, and that item says so.  ret is written on success only.
 * Errors: NAOS_E_FORMAT (not well formed, or its header can't be read), NAOS_E_LIMIT (a limit of ttlv.h, or the arena's),
 * NAOS_E_NOMEM. */
int naos_kmip_request_decode(const void *message, size_t bytes, struct naos_kmip_arena *arena, struct naos_kmip_request *ret,
			     struct naos_error *err) naos_must_check;
int naos_kmip_response_decode(const void *message, size_t bytes, struct naos_kmip_arena *arena, struct naos_kmip_response *ret,
			      struct naos_error *err) naos_must_check;

/* Encode into a window of the caller, which should be secret memory.  On failure nothing in it may be used, and the
 * cursor has failed.  The batch count follows from the batch.
 * Errors: NAOS_E_LIMIT (does not fit), NAOS_E_UNSUPPORTED (a field that the version does not have), NAOS_E_USAGE (a
 * required field is missing, text is not UTF-8, a wrong type of value). */
int naos_kmip_request_encode(const struct naos_kmip_request *request, struct naos_cursor *out,
			     struct naos_error *err) naos_must_check;
int naos_kmip_response_encode(const struct naos_kmip_response *response, struct naos_cursor *out,
			      struct naos_error *err) naos_must_check;

/* The same into a new secret of just that length.  max_bytes: the limit of the peer (maximum response size), 0 for none;
 * at most NAOS_KMIP_MAX_MESSAGE_BYTES in any case.  Errors: also those of naos_secret_create(). */
int naos_kmip_request_write(const struct naos_kmip_request *request, size_t max_bytes, struct naos_secret **ret,
			    struct naos_error *err) naos_must_check;
int naos_kmip_response_write(const struct naos_kmip_response *response, size_t max_bytes, struct naos_secret **ret,
			     struct naos_error *err) naos_must_check;

/* A secret of its own with these bytes of a message (not empty). */
int naos_kmip_bytes_keep(struct naos_kmip_bytes bytes, struct naos_secret **ret, struct naos_error *err) naos_must_check;

#endif

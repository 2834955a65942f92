/* The key manager behind its TLS front: objects, attributes, states, roles, quotas, approvals; KMIP request in, response out.
 *
 * naos_keyd_handle does what one authenticated peer asks.  It blocks (database, HSM worker, audit log) and may be called by any
 * number of threads.  When it returns 0 everything the response says is durable and recorded.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_KEYD_H
#define NAOS_KEYD_KEYD_H

#include "audit/audit.h"
#include "base/config.h"
#include "keyd/hsm.h"
#include "kmip/message.h"

struct naos_keyd;

/* Who is at the other end, as TLS proved it.  Strings are borrowed for the call. */
struct naos_keyd_peer {
	const char *identity; /* SAN URI, else SAN DNS, else CN; never empty, never "*" */
	const char *issuer;   /* distinguished name */
	const char *serial;   /* hexadecimal */
	const char *address;  /* "192.0.2.7:51234" */
};

/* hsm and audit are borrowed for its life. */
int naos_keyd_open(const struct naos_config *config, struct naos_hsm *hsm, struct naos_audit_log *audit, struct naos_keyd **ret,
		   struct naos_error *err) naos_must_check;
struct naos_keyd *naos_keyd_close(struct naos_keyd *keyd);

/* One message; the answer is a message in secret memory, ready for one write to TLS.  Errors only where no answer can be made (the
 * connection is then closed): out of memory.  `message` is a whole frame as naos_kmip_frame says. */
int naos_keyd_handle(struct naos_keyd *keyd, const struct naos_keyd_peer *peer, const struct naos_secret *message,
		     struct naos_secret **ret_answer, struct naos_error *err) naos_must_check;

/* The same in three steps, for messages of many connections at once: what they have for the HSM travels in one frame, their records
 * are one group of the audit log.  A request is with one thread at a time; message and the peer's strings stay until its end. */
struct naos_keyd_request;
int naos_keyd_request_begin(struct naos_keyd *keyd, const struct naos_keyd_peer *peer, const struct naos_secret *message,
			    struct naos_keyd_request **ret, struct naos_error *err) naos_must_check;
/* Whether it may be run together with others without holding them up: a few Encrypts and Decrypts. */
bool naos_keyd_request_quick(const struct naos_keyd_request *request);
size_t naos_keyd_request_items(const struct naos_keyd_request *request);
/* Does all of them; blocks.  Together they have at most NAOS_KEYD_GROUP_ITEMS items, unless there is only one. */
void naos_keyd_requests_run(struct naos_keyd *keyd, struct naos_keyd_request *const *requests, size_t count);
/* Its answer (NULL: not wanted, and it need not have been run), as naos_keyd_handle gives it.  Frees. */
int naos_keyd_request_end(struct naos_keyd_request *request, struct naos_secret **ret_answer, struct naos_error *err);

/* Counts since the start, for metrics and health. */
struct naos_keyd_status {
	uint64_t requests, items, refusals;
	uint64_t encrypts, decrypts; /* items that succeeded */
	uint64_t objects; /* in the database, destroyed ones too */
	bool database_well, audit_well; /* the last write worked */
	struct naos_hsm_status hsm;
};
void naos_keyd_status(struct naos_keyd *keyd, struct naos_keyd_status *ret);

/* New roles and quotas from a reloaded configuration. */
int naos_keyd_reload(struct naos_keyd *keyd, const struct naos_config *config, struct naos_error *err) naos_must_check;

#endif

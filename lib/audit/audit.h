/* Audit log (DESIGN 5.3, docs/formats/audit-log.md): a Merkle log (RFC 6962 hashing) of JSON records in a directory,
 * with tiles as in the C2SP tlog-tiles specification and a signed checkpoint (C2SP signed-note, Ed25519) per group
 * commit.  A record is durable before naos_audit_append returns; what can't be recorded must not be done.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_AUDIT_AUDIT_H
#define NAOS_AUDIT_AUDIT_H

#include "base/errors.h"

/* One record as written; enough for any path of the system, escaped. */
#define NAOS_AUDIT_MAX_RECORD_BYTES 32768
#define NAOS_AUDIT_MAX_BATCH 1024 /* events of one naos_audit_append_many */

/* One event.  Strings are UTF-8 or arbitrary bytes (invalid ones are escaped); NULL leaves the field out. */
struct naos_audit_event {
	const char *actor;      /* who: user name, certificate identity */
	const char *action;     /* "key.rotate", "file.seal", … */
	const char *object;     /* on what: a MEK, a path, a file set */
	const char *decision;   /* "allowed", "denied", "failed" */
	const char *reason;     /* reason code: name of an error code or rule */
	const char *request_id; /* ties records of one request together */
};

struct naos_audit_log;

/* Opens for appending, creating the directory, its key and its first checkpoint if `create`; origin is the name of the log
 * in its checkpoints (NULL: "naos/HOSTNAME").  One process writes at a time (a lock file; waits up to 10 s, then
 * NAOS_E_BUSY).  A torn tail that a crash left (never acknowledged) is cut, and a record says so. */
struct naos_audit_options {
	const char *origin;   /* NULL: the log's own, and "naos/HOSTNAME" for a new one */
	const char *key_path; /* private key; NULL: the file `key` in the directory */
	bool create;
};
int naos_audit_open_with(const char *dir, const struct naos_audit_options *options, struct naos_audit_log **ret,
			 struct naos_error *err) naos_must_check;
int naos_audit_open(const char *dir, const char *origin, bool create, struct naos_audit_log **ret, struct naos_error *err) naos_must_check;
struct naos_audit_log *naos_audit_close(struct naos_audit_log *log);

/* Returns when record and checkpoint are durable; concurrent callers share one commit.  NAOS_E_AUDIT with the reason. */
int naos_audit_append(struct naos_audit_log *log, const struct naos_audit_event *event, struct naos_error *err) naos_must_check;
/* The same for several events in one commit. */
int naos_audit_append_many(struct naos_audit_log *log, const struct naos_audit_event *events, size_t count,
			   struct naos_error *err) naos_must_check;

#endif

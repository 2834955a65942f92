/* Audit log (DESIGN 5.3, docs/formats/audit-log.md): a Merkle log (RFC 6962 hashing) of JSON records in a directory,
 * with tiles as in the C2SP tlog-tiles specification and a signed checkpoint (C2SP signed-note, Ed25519) per group
 * commit.  A record is durable before naos_audit_append returns; what can't be recorded must not be done.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_AUDIT_AUDIT_H
#define NAOS_AUDIT_AUDIT_H

#include <jansson.h>

#include "base/errors.h"

#define NAOS_AUDIT_MAX_RECORD_BYTES 32768 /* one record of the audit log; any path fits, escaped */
#define NAOS_AUDIT_MAX_BATCH 1024 /* audit events appended at once */

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
/* False while the last record could not be written: what must be recorded is then refused.  Any thread; waits for nothing. */
bool naos_audit_is_well(struct naos_audit_log *log);

/* Returns when record and checkpoint are durable; concurrent callers share one commit.  NAOS_E_AUDIT with the reason. */
int naos_audit_append(struct naos_audit_log *log, const struct naos_audit_event *event, struct naos_error *err) naos_must_check;
/* The same for several events in one commit. */
int naos_audit_append_many(struct naos_audit_log *log, const struct naos_audit_event *events, size_t count,
			   struct naos_error *err) naos_must_check;

/* What a reader demands beyond the log itself. */
struct naos_audit_check {
	const char *key_path;        /* public key; NULL: `key.pub` in the directory, which proves less */
	const char *checkpoint_path; /* an earlier checkpoint kept elsewhere, which the log must continue; may be NULL */
	const char *witness_path;    /* public key of a witness that must have cosigned that checkpoint; may be NULL */
};

#define NAOS_AUDIT_NAME_BYTES 256

struct naos_audit_report {
	char origin[NAOS_AUDIT_NAME_BYTES];
	uint64_t size;           /* records that the checkpoint vouches for */
	uint8_t root[32];        /* their root hash */
	uint64_t earlier_size;   /* records of the earlier checkpoint; 0 without one */
	uint64_t witness_unix_s; /* when the witness cosigned it; 0 without one */
	uint64_t pending_bytes;  /* behind the last record: being written, or left by a process that died; not part of the log */
	/* the first thing that is wrong */
	bool bad;
	bool has_bad_sequence;
	uint64_t bad_sequence; /* record */
	char bad_file[64];     /* path in the directory */
};

/* Reads the whole log: NAOS_E_INTEGRITY if anything was changed, dropped, added, reordered or cut.  No lock is taken: a
 * process may append meanwhile.  *ret is written on success and on NAOS_E_INTEGRITY. */
int naos_audit_verify(const char *dir, const struct naos_audit_check *check, struct naos_audit_report *ret, struct naos_error *err)
	naos_must_check;

/* Calls visit for each of the first `size` records, in order; `line` is its JSON text, valid during the call.  An answer other
 * than 0 ends the reading and is returned.  It checks nothing: call naos_audit_verify first and give its size, or give
 * NAOS_AUDIT_ALL to see what lies there, line by line, up to the first bundle that is missing. */
#define NAOS_AUDIT_ALL UINT64_MAX
typedef int (*naos_audit_visit)(void *context, uint64_t sequence, const char *line, size_t bytes, struct naos_error *err);
int naos_audit_each(const char *dir, uint64_t size, naos_audit_visit visit, void *context, struct naos_error *err) naos_must_check;

/* A self-contained proof as JSON (docs/formats/audit-log.md); the caller releases it.  That record `sequence` is in the log: */
int naos_audit_prove(const char *dir, const char *key_path, uint64_t sequence, json_t **ret, struct naos_error *err) naos_must_check;
/* That the log continues an earlier checkpoint: */
int naos_audit_prove_since(const char *dir, const char *key_path, const char *checkpoint_path, json_t **ret,
			   struct naos_error *err) naos_must_check;

/* What a proof shows.  Strings are owned; naos_audit_proof_clear releases them. */
struct naos_audit_proof {
	char origin[NAOS_AUDIT_NAME_BYTES];
	uint64_t size;         /* of the log that the proof's checkpoint vouches for */
	char *checkpoint;      /* that checkpoint as text */
	char *record;          /* the record; NULL in a proof of continuation */
	uint64_t sequence;     /* of the record */
	uint64_t earlier_size; /* of the earlier checkpoint in a proof of continuation */
	char *earlier;         /* that checkpoint as text, NULL in a proof of a record */
};
/* Checks a proof without the log; key_path is the log's public key.  NAOS_E_INTEGRITY, NAOS_E_FORMAT. */
int naos_audit_proof_open(const char *proof_path, const char *key_path, struct naos_audit_proof *ret,
			  struct naos_error *err) naos_must_check;
void naos_audit_proof_clear(struct naos_audit_proof *proof);

/* A witness on another host: all it keeps is its key and the last checkpoint that it cosigned. */
struct naos_audit_witness {
	const char *key_path;     /* private key; the public one is KEY_PATH.pub */
	const char *log_key_path; /* public key of the log */
	const char *state_path;   /* the last cosigned checkpoint; absent before the first, which is taken on trust */
};
/* Makes the key of a witness; NAOS_E_EXISTS rather than replacing one. */
int naos_audit_witness_create(const char *key_path, const char *name, struct naos_error *err) naos_must_check;
/* Cosigns what `offer_path` holds: a checkpoint (the first, or the last one again) or a proof that the log continues the last
 * one.  *ret_note is the cosigned checkpoint, for the caller to free.  NAOS_E_INTEGRITY if the log was cut or rewritten. */
int naos_audit_cosign(const struct naos_audit_witness *witness, const char *offer_path, char **ret_note, struct naos_error *err)
	naos_must_check;

#endif

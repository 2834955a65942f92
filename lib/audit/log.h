/* The inside of an open log: what the commit and the recovery share.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_AUDIT_LOG_H
#define NAOS_AUDIT_LOG_H

#include <pthread.h>

#include "audit/audit.h"
#include "audit/checkpoint.h"
#include "audit/merkle.h"
#include "audit/tile.h"

/* The fields of one record, ready but for time and sequence. */
struct naos_audit_body {
	char *text;
	size_t bytes;
};

/* What one caller waits for. */
struct naos_audit_request {
	struct naos_audit_body *bodies;
	size_t count;
	struct naos_audit_request *next;
	bool done;
	int rc;
	struct naos_error error;
};

struct naos_audit_log {
	char *path; /* for messages */
	int dir_fd, lock_fd;
	struct naos_signer signer;

	/* who waits, and whether one of them leads a commit */
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	struct naos_audit_request *first, **last;
	bool leading;

	/* touched by the leader only */
	struct naos_hasher *hasher;
	struct naos_tree tree;  /* as the checkpoint on disk says */
	uint64_t bundle_bytes;  /* of the acknowledged records in the last bundle */
	int bundle_fd, tile_fd; /* the last bundle and its tile, -1 if not open */
	char *lines;            /* room for the records of a commit */
	size_t lines_room;
	bool stale;             /* a commit failed: read the state from disk again */
	char note[160];         /* what a recovery did, to be recorded; "" if nothing */
};

/* Reads the state that the checkpoint vouches for, cuts what follows it, and mends the growing tile from the records.
 * `after_crash`: what is cut was left by a process that died, and a note says so. */
int naos_audit_recover(struct naos_audit_log *log, bool after_crash, struct naos_error *err) naos_must_check;
/* Writes the records of a chain of requests (and the note) and a checkpoint; all or nothing.  The chain may be empty. */
int naos_audit_commit(struct naos_audit_log *log, const struct naos_audit_request *requests, struct naos_error *err) naos_must_check;

#endif

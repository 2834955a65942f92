/* What an open configuration of file sets holds.  Used by fileset.c and fileset_keys.c only.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_FILESET_INSIDE_H
#define NAOS_SEAL_FILESET_INSIDE_H

#include <pthread.h>

#include "seal/fileset.h"

/* One known file set and its fresh keys. */
struct naos_fileset_member {
	struct naos_fileset_member *next;
	struct naos_fileset set;
	pthread_mutex_t filling; /* held by the one who wraps for the pool; taken before lock */
	pthread_mutex_t lock;    /* guards what follows; never held while the key manager is asked */
	struct naos_new_key *pool; /* room for NAOS_FILESET_POOL */
	size_t ready;
	size_t batch;          /* how many the next one who finds the pool empty makes */
	size_t target;         /* how many naos_filesets_tend keeps ready */
	bool prepared;         /* it does */
	bool used;             /* its key is asked about */
	struct naos_mek active; /* version 0: not known, or there is none */
	int64_t refresh_at_s, refill_at_s; /* when to ask next, by the monotonic clock */
	struct naos_error refreshed, refilled; /* how the last asking went; code 0: well */
};

struct naos_filesets {
	struct naos_provider *provider;
	struct naos_ring *ring;
	pthread_mutex_t lock; /* for adding a member */
	struct naos_fileset_member *_Atomic members; /* only ever gets more */
	pthread_mutex_t wake_lock; /* guards what follows */
	pthread_cond_t wake;
	bool woken;
};

static inline struct naos_fileset_member *naos_fileset_member_of(struct naos_filesets *sets, const struct naos_fileset *set)
{
	struct naos_fileset_member *member = sets->members;
	while (&member->set != set)
		member = member->next;
	return member;
}

/* fileset_keys.c */
void naos_fileset_member_free(struct naos_fileset_member *member);

#endif

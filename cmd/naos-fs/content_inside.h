/* What open contents (content.c) and the thread that seals them (sealing.c) share.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FS_CONTENT_INSIDE_H
#define NAOS_FS_CONTENT_INSIDE_H

#include <time.h>

#include "content.h"

#define NAOS_FS_IDLE_MAX 1024u   /* closed files that stay open at most */
#define NAOS_FS_SEAL_ATTEMPTS 3u /* then a file is left to the recovery at its next opening */

struct content_table {
	pthread_mutex_t lock; /* guards the ring and what follows; taken after an inode's lock */
	struct content first; /* ring of all contents */
	pthread_cond_t wake;
	bool hurry, stop, started;
	pthread_t thread;
	atomic_size_t idle;     /* contents that nobody has open */
	atomic_size_t gathered; /* bytes that contents have gathered */
	atomic_ulong let_go;    /* counts files that were open and are not any more */
};

static inline uint64_t content_now_ms(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* True if the file has no name any more. */
bool content_is_unlinked(const struct content *content);
/* Frees a content that nobody uses; seal false where it is clean or of no value.  With its inode's lock held. */
int content_let_go(struct naos_fs *fs, struct content *content, bool seal, struct naos_error *err) naos_must_check;
/* Writes what a content has gathered; times stay those of the write.  With content->change held. */
int content_settle_held(struct naos_fs *fs, struct content *content, struct naos_error *err) naos_must_check;
/* naos_sealed_file_seal_step.  With content->change held. */
int content_seal_step(struct naos_fs *fs, struct content *content, struct naos_sealing *sealing, bool *ret_sealed,
		      struct naos_error *err) naos_must_check;

/* sealing.c: seals what nobody has open since delay_ms, and the oldest of what is beyond `keep`. */
void content_seal_due(struct naos_fs *fs, uint64_t delay_ms, size_t keep);

#endif

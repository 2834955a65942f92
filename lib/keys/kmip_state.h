/* An open KMIP provider.  Used by kmip.c and kmip_wrap.c only.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYS_KMIP_STATE_H
#define NAOS_KEYS_KMIP_STATE_H

#include <pthread.h>
#include <time.h>

#include "keys/kmip_table.h"

struct kmip {
	struct naos_kmip_client *client;
	bool iv_in_data; /* quirk: the IV stands before the ciphertext in Data */
	pthread_mutex_t lock;
	struct naos_kmip_table table;
	int64_t loaded_s; /* when, on the monotonic clock */
};

static inline int64_t naos_kmip_now_s(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

/* Asks the server for its keys. */
int naos_kmip_reload(struct kmip *k, struct naos_error *err) naos_must_check;
int naos_kmip_wrap(void *state, const char *name, struct naos_wrap_item *items, size_t count, struct naos_error *err) naos_must_check;
int naos_kmip_unwrap(void *state, struct naos_wrap_item *items, size_t count, struct naos_error *err) naos_must_check;

#endif

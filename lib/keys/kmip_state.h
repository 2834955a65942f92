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
/* One request of one item whose failure is told in the words of `what`. */
int naos_kmip_call_one(struct kmip *k, const struct naos_kmip_request_item *item, const char *what, bool repeatable,
		       struct naos_kmip_answer *ret, struct naos_error *err) naos_must_check;
/* The Unique Identifier that the server gave a new key, with a final NUL. */
int naos_kmip_take_id(struct naos_kmip_text id, char ret[static NAOS_KEY_ID_BYTES], struct naos_error *err) naos_must_check;
int naos_kmip_activate_key(struct kmip *k, const char *uid, struct naos_error *err) naos_must_check;
int naos_kmip_destroy_key(struct kmip *k, const char *uid, struct naos_error *err) naos_must_check;
/* kmip_import.c */
int naos_kmip_import(void *state, const char *name, const struct naos_secret *key, char ret_id[static NAOS_KEY_ID_BYTES],
		     struct naos_error *err) naos_must_check;
int naos_kmip_wrap(void *state, const char *name, struct naos_wrap_item *items, size_t count, struct naos_error *err) naos_must_check;
int naos_kmip_unwrap(void *state, struct naos_wrap_item *items, size_t count, struct naos_error *err) naos_must_check;

#endif

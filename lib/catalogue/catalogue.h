/* The catalogue of frames: where they lie, and what their authenticated headers say, sealed under a key of each collection that the
 * collection's header MEK wraps (docs/formats/catalogue.md).  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_CATALOGUE_CATALOGUE_H
#define NAOS_CATALOGUE_CATALOGUE_H

#include <jansson.h>
#include <pthread.h>

#include "catalogue/header.h"
#include "catalogue/store.h"
#include "fits/collection.h"
#include "seal/tally.h"

#define NAOS_CATALOGUE_MAX_COLLECTIONS 1000u /* of one configuration */

/* The catalogue key of one collection: ready, refused, or not asked for yet. */
struct naos_catalogue_key {
	struct naos_uuid collection_id;
	struct naos_gcm_key *key;
	struct naos_error refused; /* code 0: it was not */
};

struct naos_catalogue {
	struct naos_catalogue_store *store;
	struct naos_provider *provider; /* borrowed */
	const struct naos_config *config;
	pthread_mutex_t lock; /* of all that follows, and the store */
	struct naos_collection *collections;
	size_t collection_count;
	struct naos_catalogue_key *keys;
	size_t key_count;
};

/* The caller closes it, also after a failure. */
int naos_catalogue_open(struct naos_catalogue *catalogue, const char *path, bool writing, const struct naos_config *config,
			struct naos_provider *provider, struct naos_error *err) naos_must_check;
void naos_catalogue_close(struct naos_catalogue *catalogue);

/* The key of a collection, valid until the catalogue is closed; `make`: one is made if there is none, by whoever may wrap and unwrap with
 * the header MEK.  The lock is held.  NAOS_E_DENIED, NAOS_E_NOKEY…: the key manager refuses it. */
int naos_catalogue_key_get(struct naos_catalogue *catalogue, const struct naos_uuid *collection_id, bool make,
			   const struct naos_gcm_key **ret, struct naos_error *err) naos_must_check;

/* Seals attributes for a row, whose path and ids are given; the caller frees *ret.  Opens those of a row: NAOS_E_INTEGRITY. */
int naos_catalogue_attributes_seal(const struct naos_catalogue *catalogue, const struct naos_gcm_key *key,
				   const struct naos_catalogue_row *row,
				   const json_t *attributes, uint8_t **ret, size_t *ret_bytes, struct naos_error *err) naos_must_check;
int naos_catalogue_attributes_open(const struct naos_catalogue *catalogue, const struct naos_gcm_key *key,
				   const struct naos_catalogue_row *row,
				   json_t **ret, struct naos_error *err) naos_must_check;

/* Takes up what lies at a path: new and changed frames, and rows of vanished ones are removed.  Failures of single frames are rows and
 * are reported to the tally.  *ret_removed is added to. */
int naos_catalogue_scan(struct naos_catalogue *catalogue, const char *operand, unsigned jobs, struct naos_tally *tally,
			uint64_t *ret_removed, struct naos_error *err) naos_must_check;

#endif

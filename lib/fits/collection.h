/* A collection of frames: its name, id and two MEKs, from the configuration, with the key manager behind them.
 *
 * [collection NAME]: header-mek (default NAME-header), data-mek (NAME-data), algorithm, id (default: that of the header MEK).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FITS_COLLECTION_H
#define NAOS_FITS_COLLECTION_H

#include "base/config.h"
#include "fits/frame.h"
#include "keys/provider.h"

#define NAOS_COLLECTION_NAME_BYTES 64

struct naos_collection {
	char name[NAOS_COLLECTION_NAME_BYTES];
	char meks[2][NAOS_MEK_NAME_BYTES]; /* of header keys, of data keys: never the same */
	struct naos_uuid id;
	enum naos_algorithm algorithm;
};

/* NAOS_E_CONFIG: both MEKs are the same; NAOS_E_NOKEY: the key manager has no such MEK. */
int naos_collection_find(const struct naos_config *config, const char *name, struct naos_provider *provider,
			 struct naos_collection *ret, struct naos_error *err) naos_must_check;

/* Two fresh keys of a frame, as they are and wrapped; they must live until it is sealed. */
struct naos_frame_keys {
	struct naos_secret *keys[2];
	struct naos_blob blobs[2];
};
/* Makes them, wrapped by the collection's MEKs, and fills what of the new frame follows from the collection: its ids, algorithm
 * and keys. */
int naos_collection_new_frame(const struct naos_collection *collection, struct naos_provider *provider, struct naos_frame_keys *ret_keys,
			      struct naos_frame_new *what, struct naos_error *err) naos_must_check;
/* The same for many frames, in two round trips to the key manager. */
int naos_collection_new_frames(const struct naos_collection *collection, struct naos_provider *provider, struct naos_frame_keys *ret_keys,
			       struct naos_frame_new *what, size_t count, struct naos_error *err) naos_must_check;
void naos_frame_keys_free(struct naos_frame_keys *keys);

/* Answers of the key manager for one frame, asked ahead. */
struct naos_frame_fetched {
	bool asked[2];
	struct naos_secret *keys[2];
	int results[2];
	struct naos_error why[2]; /* code 0: no reason */
};

/* A source of keys for frames of any collection: keys given by hand come first, then the key manager (NULL: none).  A key that the
 * key manager refuses to this user is missing, with its reason; one that can't be asked for is an error. */
struct naos_frame_opener {
	struct naos_provider *provider;
	const struct naos_secret *given[2];
	const struct naos_frame_fetched *fetched; /* of the frame that is opened next, or NULL */
	bool header_only; /* the data key is not even asked for */
};
struct naos_frame_source naos_frame_opener_source(struct naos_frame_opener *opener);

/* Asks for the keys of many frames in one round trip.  fds stay open; -1, and what is no frame, is passed over. */
void naos_frame_fetch(const struct naos_frame_opener *opener, const int *fds, struct naos_frame_fetched *ret, size_t count);
void naos_frame_fetched_free(struct naos_frame_fetched *fetched, size_t count);

#endif

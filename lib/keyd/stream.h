/* Encrypt and Decrypt of data that come in parts (KMIP 1.3: Init Indicator, Correlation Value, Final Indicator).
 *
 * The parts are kept, and all of them are enciphered again with each new one: in every mode here the output for a beginning is the
 * beginning of the output.  So nothing of a stream is in the HSM, and a worker that is started again knows no difference.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_STREAM_H
#define NAOS_KEYD_STREAM_H

#include <pthread.h>

#include "keyd/hsm.h"
#include "kmip/types.h"

#define NAOS_STREAM_ID_BYTES 16

struct naos_stream {
	struct naos_stream *next;
	uint8_t id[NAOS_STREAM_ID_BYTES];
	char identity[NAOS_KEYD_MAX_IDENTITY_BYTES + 1];
	struct naos_uuid object;
	bool encrypt;
	enum naos_hsm_mode mode;
	size_t tag_bytes, iv_bytes;
	uint8_t iv[NAOS_HSM_MAX_IV_BYTES];
	uint8_t *associated;
	size_t associated_bytes;
	struct naos_secret *data; /* all parts so far; NULL: none */
	size_t given;             /* bytes of output that were answered */
	int64_t expires_unix_s;
};

/* Streams between two parts.  Thread-safe. */
struct naos_streams {
	pthread_mutex_t lock;
	struct naos_stream *first;
};

struct naos_stream *naos_stream_free(struct naos_stream *stream);
/* Adds a part.  NAOS_E_LIMIT: together they are longer than one request may be. */
int naos_stream_append(struct naos_stream *stream, struct naos_kmip_bytes part, struct naos_error *err) naos_must_check;
/* How much of the data can be enciphered now, and in which mode. */
size_t naos_stream_ready(const struct naos_stream *stream, bool final, enum naos_hsm_mode *ret_mode);

/* Puts a stream aside until its next part; NAOS_E_LIMIT if this identity has too many (the stream is freed). */
int naos_streams_put(struct naos_streams *streams, struct naos_stream *stream, int64_t now, struct naos_error *err) naos_must_check;
/* Takes it out again; NULL if it is not there, expired, or somebody else's. */
struct naos_stream *naos_streams_take(struct naos_streams *streams, const char *identity, struct naos_kmip_bytes id, int64_t now);
void naos_streams_clear(struct naos_streams *streams);

#endif

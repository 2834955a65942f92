/* Data that come in parts.  SPDX-License-Identifier: Apache-2.0 */
#include "keyd/stream.h"

#include <string.h>

#define BLOCK_BYTES 16

struct naos_stream *naos_stream_free(struct naos_stream *stream)
{
	if (stream) {
		(void)naos_secret_free(stream->data);
		free(stream->associated);
		free(stream);
	}
	return NULL;
}

int naos_stream_append(struct naos_stream *stream, struct naos_kmip_bytes part, struct naos_error *err)
{
	size_t before = stream->data ? naos_secret_bytes(stream->data) : 0;
	naos_autosecret struct naos_secret *grown = NULL;
	if (part.bytes == 0)
		return 0;
	if (part.bytes > NAOS_HSM_MAX_DATA_BYTES - before)
		return naos_error_set(err, NAOS_E_LIMIT, "all parts together have at most %zu bytes", NAOS_HSM_MAX_DATA_BYTES);
	int rc = naos_secret_create(before + part.bytes, &grown, err);
	if (rc != 0)
		return rc;
	uint8_t *bytes = naos_secret_data(grown);
	if (before > 0)
		memcpy(bytes, naos_secret_view(stream->data), before); /* lint-ok: from slab to slab */
	memcpy(bytes + before, part.data, part.bytes); /* lint-ok: from slab to slab */
	(void)naos_secret_free(stream->data);
	stream->data = naos_steal(grown);
	return 0;
}

size_t naos_stream_ready(const struct naos_stream *stream, bool final, enum naos_hsm_mode *ret_mode)
{
	size_t bytes = stream->data ? naos_secret_bytes(stream->data) : 0;
	bool padded = stream->mode == NAOS_HSM_CBC_PKCS5 || stream->mode == NAOS_HSM_ECB_PKCS5;
	bool blocks = padded || stream->mode == NAOS_HSM_CBC || stream->mode == NAOS_HSM_ECB;
	*ret_mode = stream->mode;
	if (final || !blocks)
		return bytes;
	if (padded) /* the padding is of the last block */
		*ret_mode = stream->mode == NAOS_HSM_CBC_PKCS5 ? NAOS_HSM_CBC : NAOS_HSM_ECB;
	if (padded && !stream->encrypt && bytes > 0)
		bytes--;
	return bytes / BLOCK_BYTES * BLOCK_BYTES;
}

int naos_streams_put(struct naos_streams *streams, struct naos_stream *stream, int64_t now, struct naos_error *err)
{
	size_t total = 0, own = 0;
	(void)pthread_mutex_lock(&streams->lock);
	for (struct naos_stream **at = &streams->first; *at;) {
		struct naos_stream *other = *at;
		if (other->expires_unix_s < now) {
			*at = other->next;
			(void)naos_stream_free(other);
			continue;
		}
		total++;
		own += strcmp(other->identity, stream->identity) == 0;
		at = &other->next;
	}
	bool room = total < NAOS_KEYD_MAX_STREAMS && own < NAOS_KEYD_MAX_OWN_STREAMS;
	if (room) {
		stream->expires_unix_s = now + NAOS_KEYD_STREAM_LIFE_S;
		stream->next = streams->first;
		streams->first = stream;
	}
	(void)pthread_mutex_unlock(&streams->lock);
	if (room)
		return 0;
	(void)naos_stream_free(stream);
	return naos_error_set(err, NAOS_E_LIMIT, "too many operations with data in several parts at a time");
}

struct naos_stream *naos_streams_take(struct naos_streams *streams, const char *identity, struct naos_kmip_bytes id, int64_t now)
{
	struct naos_stream *found = NULL;
	if (id.bytes != NAOS_STREAM_ID_BYTES)
		return NULL;
	(void)pthread_mutex_lock(&streams->lock);
	for (struct naos_stream **at = &streams->first; !found && *at; at = &(*at)->next)
		if (memcmp((*at)->id, id.data, id.bytes) == 0 && strcmp((*at)->identity, identity) == 0 && (*at)->expires_unix_s >= now) {
			found = *at;
			*at = found->next;
			break;
		}
	(void)pthread_mutex_unlock(&streams->lock);
	return found;
}

void naos_streams_clear(struct naos_streams *streams)
{
	while (streams->first) {
		struct naos_stream *next = streams->first->next;
		(void)naos_stream_free(streams->first);
		streams->first = next;
	}
}

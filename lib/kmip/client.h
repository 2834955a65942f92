/* A KMIP client: a pool of TLS connections to the first server of a list that answers.
 *
 * The server's certificate and host name are verified always; a later connection to the same server takes up the TLS session of the one
 * before, as long as certificate, key and authorities are the same files unchanged.  A message goes out in one write, without Nagle's
 * delay.  Any number of threads may call at once; each call has a connection to itself.  The version is negotiated with the first
 * connection.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KMIP_CLIENT_H
#define NAOS_KMIP_CLIENT_H

#include "kmip/message.h"

#define NAOS_KMIP_MAX_HOSTS 8
#define NAOS_KMIP_DEFAULT_PORT "5696"

struct naos_kmip_client_options {
	const char *hosts;       /* "a:5696,b:5696": tried in this order; a server that failed is left alone for some seconds */
	const char *certificate; /* of the client, with its chain: PEM */
	const char *key;         /* its private key: PEM */
	const char *ca;          /* authorities of the server: PEM */
	uint32_t version;        /* highest version to speak; 0: NAOS_KMIP_1_4 */
	unsigned pool;           /* idle connections kept; 0: 8 */
	unsigned timeout_s;      /* of each connect, message out and answer; 0: 10 */
};

struct naos_kmip_client;

/* Reads the files, and again for a new connection when they changed (a renewed certificate).  Connects at the first call.
 * Strings are copied.  NAOS_E_CONFIG, naming the file. */
int naos_kmip_client_open(const struct naos_kmip_client_options *options, struct naos_kmip_client **ret,
			  struct naos_error *err) naos_must_check;
struct naos_kmip_client *naos_kmip_client_close(struct naos_kmip_client *client);

/* An answer: what response points to lives until it is freed. */
struct naos_kmip_answer {
	struct naos_kmip_response response;
	struct naos_kmip_arena *arena;
	struct naos_secret *message;
};
void naos_kmip_answer_free(struct naos_kmip_answer *answer);
#define naos_autoanswer naos_cleanup(naos_kmip_answer_free)

/* One request.  repeatable: doing it twice does no harm (Encrypt, Locate, …), so that it is sent again, on another connection or to another
 * server, where a connection broke under it.  A request that is not repeatable goes out once, on a fresh connection.
 * On success the answer has as many items as the request, each succeeded or failed.
 * NAOS_E_KEYMANAGER: no server could be reached, names the last one tried and why.  NAOS_E_FORMAT: it answers nonsense. */
int naos_kmip_client_call(struct naos_kmip_client *client, const struct naos_kmip_request_item *items, size_t count,
		bool repeatable,
			  struct naos_kmip_answer *ret, struct naos_error *err) naos_must_check;
/* The negotiated version; connects if need be. */
int naos_kmip_client_version(struct naos_kmip_client *client, uint32_t *ret, struct naos_error *err) naos_must_check;

/* 0 if the item succeeded, else the code that follows from its reason, with the server's text. */
int naos_kmip_item_result(const struct naos_kmip_response_item *item, const char *what, struct naos_error *err) naos_must_check;

#endif

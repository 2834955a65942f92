/* One TLS connection of the KMIP client.  Used by client.c only.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KMIP_CLIENT_CONNECTION_H
#define NAOS_KMIP_CLIENT_CONNECTION_H

#include <openssl/ssl.h>

#include "base/secret.h"

struct naos_kmip_connection;

/* NAOS_E_CONFIG, naming the file. */
int naos_kmip_connection_tls(const char *certificate, const char *key, const char *ca, SSL_CTX **ret, struct naos_error *err)
		naos_must_check;
/* timeout_s: of connecting with the handshake, of each message out and of each answer, however slowly its bytes come.
 * NAOS_E_KEYMANAGER, naming host, port and reason (also where its certificate is not trusted or not of this host). */
int naos_kmip_connection_open(SSL_CTX *tls, const char *host, const char *port, unsigned timeout_s,
		struct naos_kmip_connection **ret,
			      struct naos_error *err) naos_must_check;
struct naos_kmip_connection *naos_kmip_connection_close(struct naos_kmip_connection *connection);
/* "host:port" */
const char *naos_kmip_connection_name(const struct naos_kmip_connection *connection);
/* The last thing that failed did so because the time was over. */
bool naos_kmip_connection_late(const struct naos_kmip_connection *connection);
/* One message in one write.  After a failure the server may have seen all of it. */
int naos_kmip_connection_send(struct naos_kmip_connection *connection, const struct naos_secret *message,
		struct naos_error *err) naos_must_check;
/* One whole message, in secret memory. */
int naos_kmip_connection_receive(struct naos_kmip_connection *connection, struct naos_secret **ret, struct naos_error *err)
		naos_must_check;

#endif

/* TLS of the key manager's front: mutual, 1.2 or 1.3, with the identity taken from the client's certificate.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_TLS_H
#define NAOS_KEYD_TLS_H

#include <openssl/ssl.h>

#include "base/config.h"
#include "base/errors.h"

#define KEYD_IDENTITY_BYTES 256

/* Who is at the other end of a connection. */
struct keyd_peer_name {
	char identity[KEYD_IDENTITY_BYTES]; /* SAN URI, else SAN DNS, else CN */
	char issuer[KEYD_IDENTITY_BYTES];
	char serial[64];
	int64_t expires_unix_s;
};

/* Wipes what OpenSSL frees: plaintext of the wire and private keys pass through its buffers.  Before any other use of it. */
void keyd_tls_wipe_allocations(void);

/* A context from the section [keyd]: certificate, key, ca, crl.  Errors name the file. */
int keyd_tls_load(const struct naos_config *config, SSL_CTX **ret, struct naos_error *err) naos_must_check;

/* After a handshake: the peer's name.  A resumed session is checked again against `current` (certificate, CRL, dates), because
 * OpenSSL does not.  NAOS_E_DENIED with the reason: no EKU clientAuth, empty or "*" name, expired, revoked. */
int keyd_tls_peer(SSL *ssl, SSL_CTX *current, struct keyd_peer_name *ret, struct naos_error *err) naos_must_check;
/* The peer of an open connection once more, after authorities and CRLs were read again.  NAOS_E_DENIED. */
int keyd_tls_verify_again(SSL *ssl, SSL_CTX *current, struct naos_error *err) naos_must_check;

/* When what a context holds ends, in seconds since 1970; 0 where there is none.  Of several authorities or lists the first. */
struct keyd_tls_ends {
	int64_t certificate_unix_s, authority_unix_s, revocation_list_unix_s;
};
void keyd_tls_find_ends(SSL_CTX *context, struct keyd_tls_ends *ret);

/* The last error of OpenSSL's queue as text; empties the queue. */
const char *keyd_tls_reason(void);

#endif

/* One TLS connection of the KMIP client.  SPDX-License-Identifier: Apache-2.0 */
#include "kmip/client_connection.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include "kmip/ttlv.h"

struct naos_kmip_connection {
	int fd;
	SSL *ssl;
	unsigned timeout_s;
	int64_t deadline_ns; /* of what is done now */
	bool late;           /* it has passed */
	bool fresh;          /* nothing was waited for yet: the whole time is left */
	bool answered;       /* the server has sent something: so it took our certificate */
	char name[300];
};

static int64_t now_ns(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* --- the socket under TLS -------------------------------------------------------------------------------------------- */

/* OpenSSL's own socket BIO raises SIGPIPE in a program that uses this library, and waits for each byte anew. */

/* Until the socket is ready or the deadline passes. */
static bool wait_ready(struct naos_kmip_connection *connection, short events)
{
	connection->fresh = false;
	for (;;) {
		struct pollfd wait = { .fd = connection->fd, .events = events };
		int64_t left_ms = (connection->deadline_ns - now_ns() + 999999) / 1000000;
		int ready = left_ms > 0 ? poll(&wait, 1, (int)left_ms) : 0;
		if (ready > 0)
			return true;
		connection->late = ready == 0;
		if (ready == 0 || errno != EINTR)
			return false;
	}
}

static int wire_write(BIO *bio, const char *data, int bytes)
{
	struct naos_kmip_connection *connection = BIO_get_data(bio);
	for (;;) {
		ssize_t put = send(connection->fd, data, (size_t)bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (put >= 0)
			return (int)put;
		if (errno != EINTR && (errno != EAGAIN || !wait_ready(connection, POLLOUT)))
			return -1;
	}
}

static int wire_read(BIO *bio, char *data, int bytes)
{
	struct naos_kmip_connection *connection = BIO_get_data(bio);
	for (;;) {
		/* the answer is not there yet: one call waits for it and takes it, as long as the socket's own limit is the deadline */
		bool whole_time = connection->fresh;
		connection->fresh = false;
		ssize_t got = recv(connection->fd, data, (size_t)bytes, whole_time ? 0 : MSG_DONTWAIT);
		if (got >= 0)
			return (int)got;
		if (errno != EINTR && (errno != EAGAIN || !wait_ready(connection, POLLIN)))
			return -1;
	}
}

static long wire_control(BIO *bio, int command, long number, void *pointer)
{
	return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *wire;

static void make_wire(void)
{
	wire = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "naos key manager");
	if (wire && (BIO_meth_set_write(wire, wire_write) != 1 || BIO_meth_set_read(wire, wire_read) != 1 ||
		     BIO_meth_set_ctrl(wire, wire_control) != 1)) {
		BIO_meth_free(wire);
		wire = NULL;
	}
}

static bool attach_wire(struct naos_kmip_connection *connection)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	(void)pthread_once(&once, make_wire);
	BIO *bio = wire ? BIO_new(wire) : NULL;
	if (!bio)
		return false;
	BIO_set_data(bio, connection);
	BIO_set_init(bio, 1);
	SSL_set_bio(connection->ssl, bio, bio);
	return true;
}

/* waits: in the socket itself too, which has the same limit. */
static void start_clock(struct naos_kmip_connection *connection, bool waits)
{
	connection->fresh = waits;
	connection->deadline_ns = now_ns() + (int64_t)connection->timeout_s * 1000000000;
	connection->late = false;
}

/* --- TLS -------------------------------------------------------------------------------------------------------------- */

static const char *tls_reason(void)
{
	static _Thread_local char text[160];
	unsigned long code = ERR_peek_last_error();
	const char *reason = code ? ERR_reason_error_string(code) : NULL;
	(void)snprintf(text, sizeof(text), "%s", reason ? reason : "the connection ended");
	ERR_clear_error();
	return text;
}

/* The last error is an alert by which a server refuses our certificate (TLS: reason = 1000 + alert). */
static bool certificate_refused(void)
{
	unsigned long code = ERR_peek_last_error();
	int reason = ERR_GET_REASON(code);
	return ERR_GET_LIB(code) == ERR_LIB_SSL && ((reason >= SSL_R_SSLV3_ALERT_BAD_CERTIFICATE &&
			reason <= SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN) ||
		reason == SSL_R_TLSV1_ALERT_UNKNOWN_CA || reason == SSL_R_TLSV1_ALERT_ACCESS_DENIED ||
		reason == SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED);
}

/* --- sessions ---------------------------------------------------------------------------------------------------------- */

/* The last session with each server.  It stands with the TLS context, so it is only taken up with the same certificate, key and
 * authorities, and with the same host and port, for which the server's certificate was verified. */
#define SESSIONS 8
struct sessions {
	pthread_mutex_t lock;
	size_t next; /* the place that is taken when all are */
	struct {
		char name[300];
		SSL_SESSION *session;
	} places[SESSIONS];
};

static int sessions_index = -1;

static void free_sessions(void *parent, void *pointer, CRYPTO_EX_DATA *data, int index, long number, void *argument)
{
	struct sessions *sessions = pointer;
	if (!sessions)
		return;
	for (size_t i = 0; i < SESSIONS; i++)
		SSL_SESSION_free(sessions->places[i].session);
	(void)pthread_mutex_destroy(&sessions->lock);
	free(sessions);
}

static void make_sessions_index(void)
{
	sessions_index = SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, free_sessions);
}

/* Puts a session (NULL: none) in the place of the connection's server, and takes the reference. */
static void keep_session(const struct naos_kmip_connection *connection, SSL_SESSION *session)
{
	struct sessions *sessions = SSL_CTX_get_ex_data(SSL_get_SSL_CTX(connection->ssl), sessions_index);
	size_t at = 0;
	(void)pthread_mutex_lock(&sessions->lock);
	while (at < SESSIONS && strcmp(sessions->places[at].name, connection->name) != 0)
		at++;
	if (at == SESSIONS)
		at = sessions->next++ % SESSIONS;
	SSL_SESSION *former = sessions->places[at].session;
	sessions->places[at].session = session;
	(void)snprintf(sessions->places[at].name, sizeof(sessions->places[at].name), "%s", connection->name);
	(void)pthread_mutex_unlock(&sessions->lock);
	SSL_SESSION_free(former);
}

static int new_session(SSL *ssl, SSL_SESSION *session)
{
	keep_session(BIO_get_data(SSL_get_rbio(ssl)), session);
	return 1;
}

/* Offers the last session to the server; false if there is none. */
static bool offer_session(struct naos_kmip_connection *connection)
{
	struct sessions *sessions = SSL_CTX_get_ex_data(SSL_get_SSL_CTX(connection->ssl), sessions_index);
	bool offered = false;
	(void)pthread_mutex_lock(&sessions->lock);
	for (size_t i = 0; i < SESSIONS && !offered; i++)
		if (sessions->places[i].session && strcmp(sessions->places[i].name, connection->name) == 0)
			offered = SSL_set_session(connection->ssl, sessions->places[i].session) == 1;
	(void)pthread_mutex_unlock(&sessions->lock);
	return offered;
}

static bool keep_sessions_with(SSL_CTX *tls)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	(void)pthread_once(&once, make_sessions_index);
	struct sessions *sessions = calloc(1, sizeof(*sessions));
	if (!sessions)
		return false;
	(void)pthread_mutex_init(&sessions->lock, NULL);
	if (sessions_index < 0 || SSL_CTX_set_ex_data(tls, sessions_index, sessions) != 1) {
		free_sessions(NULL, sessions, NULL, 0, 0, NULL);
		return false;
	}
	(void)SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
	SSL_CTX_sess_set_new_cb(tls, new_session);
	return true;
}

/* --- context ----------------------------------------------------------------------------------------------------------- */

/* No passphrase is asked for in the middle of a job: the key stands in a file that only its user reads. */
static int no_passphrase(char *buffer, int room, int writing, void *argument)
{
	return 0;
}

static int check_key_file(const char *key, struct naos_error *err)
{
	struct stat status;
	if (stat(key, &status) != 0)
		return naos_error_set(err, NAOS_E_CONFIG, "the key of the client certificate can't be read from %s: %s", key,
				strerror(errno));
	if (status.st_mode & (S_IWGRP | S_IRWXO))
		return naos_error_set(err, NAOS_E_CONFIG,
				"the key of the client certificate, %s, has mode %04o: others can read or change it; chmod 0600 it",
				      key, status.st_mode & 07777);
	return 0;
}

int naos_kmip_connection_tls(const char *certificate, const char *key, const char *ca, SSL_CTX **ret, struct naos_error *err)
{
	int rc = check_key_file(key, err);
	if (rc != 0)
		return rc;
	SSL_CTX *tls = SSL_CTX_new(TLS_client_method());
	if (!tls || SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION) != 1 || !keep_sessions_with(tls)) {
		SSL_CTX_free(tls);
		return naos_error_set(err, NAOS_E_SYSTEM, "TLS can't be set up: %s", tls_reason());
	}
	SSL_CTX_set_default_passwd_cb(tls, no_passphrase);
	if (SSL_CTX_load_verify_locations(tls, ca, NULL) != 1)
		rc = naos_error_set(err, NAOS_E_CONFIG, "the authorities of the key manager (ca) can't be read from %s: %s",
				ca, tls_reason());
	else if (SSL_CTX_use_certificate_chain_file(tls, certificate) != 1)
		rc = naos_error_set(err, NAOS_E_CONFIG, "the client certificate can't be read from %s: %s", certificate,
				tls_reason());
	else if (SSL_CTX_use_PrivateKey_file(tls, key, SSL_FILETYPE_PEM) != 1)
		rc = naos_error_set(err, NAOS_E_CONFIG, "the key of the client certificate can't be used from %s: %s", key,
				tls_reason());
	if (rc != 0) {
		SSL_CTX_free(tls);
		return rc;
	}
	SSL_CTX_set_verify(tls, SSL_VERIFY_PEER, NULL);
	/* what was decrypted holds unwrapped keys: wiped when handed over */
	(void)SSL_CTX_set_options(tls, SSL_OP_CLEANSE_PLAINTEXT | SSL_OP_NO_RENEGOTIATION);
	SSL_CTX_set_read_ahead(tls, 1); /* a record in one read */
	*ret = tls;
	return 0;
}

/* --- connect ---------------------------------------------------------------------------------------------------------- */

/* Tries one address within the time; 0 or an errno. */
static int connect_address(struct naos_kmip_connection *connection, const struct addrinfo *address)
{
	const int yes = 1;
	int failure = 0;
	socklen_t bytes = sizeof(failure);
	naos_close_descriptor(&connection->fd);
	connection->fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (connection->fd < 0)
		return errno;
	if (connect(connection->fd, address->ai_addr, address->ai_addrlen) != 0) {
		if (errno != EINPROGRESS)
			return errno;
		if (!wait_ready(connection, POLLOUT))
			return ETIMEDOUT;
		if (getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &failure, &bytes) != 0 || failure)
			return failure ? failure : errno;
	}
	(void)setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	return 0;
}

static int connect_host(struct naos_kmip_connection *connection, const char *host, const char *port, struct naos_error *err)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	int failure = getaddrinfo(host, port, &hints, &found);
	if (failure)
		return naos_error_set(err, NAOS_E_KEYMANAGER, "the key manager %s can't be found: %s", connection->name,
				gai_strerror(failure));
	failure = ECONNREFUSED;
	for (const struct addrinfo *address = found; address && failure; address = address->ai_next)
		failure = connect_address(connection, address);
	freeaddrinfo(found);
	return failure ? naos_error_set(err, NAOS_E_KEYMANAGER, "the key manager %s can't be reached: %s", connection->name,
			strerror(failure)) : 0;
}

/* The sentence for a handshake, write or read that failed. */
static int lost(struct naos_kmip_connection *connection, struct naos_error *err)
{
	int failure = errno;
	bool refused = certificate_refused(), silent = !connection->answered && ERR_peek_last_error() == 0;
	const char *reason = ERR_peek_last_error() == 0 && failure ? strerror(failure) : tls_reason();
	ERR_clear_error();
	if (connection->late)
		return naos_error_set(err, NAOS_E_KEYMANAGER, "the key manager %s does not answer within %u s",
				connection->name, connection->timeout_s);
	if (refused)
		return naos_error_set(err, NAOS_E_KEYMANAGER, "the key manager %s refuses this client's certificate: %s",
				connection->name, reason);
	return naos_error_set(err, NAOS_E_KEYMANAGER, "the key manager %s ended the connection: %s%s", connection->name, reason,
			      silent ? " (it may not know this client's certificate)" : "");
}

/* *ret_offered: a session of before was offered. */
static int handshake(struct naos_kmip_connection *connection, SSL_CTX *tls, const char *host, bool *ret_offered, struct naos_error *err)
{
	SSL_free(connection->ssl);
	connection->ssl = SSL_new(tls);
	if (!connection->ssl || !attach_wire(connection))
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a TLS connection");
	*ret_offered = offer_session(connection);
	ASN1_OCTET_STRING *ip = a2i_IPADDRESS(host);
	bool named = ip ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(connection->ssl), host) == 1 :
			  SSL_set1_host(connection->ssl, host) == 1 && SSL_set_tlsext_host_name(connection->ssl, host) == 1;
	ASN1_OCTET_STRING_free(ip);
	if (!named)
		return naos_error_set(err, NAOS_E_USAGE, "'%s' is no name of a host", host);
	ERR_clear_error();
	errno = 0;
	if (SSL_connect(connection->ssl) == 1)
		return 0;
	long verified = SSL_get_verify_result(connection->ssl);
	if (verified == X509_V_OK)
		return naos_error_prefix(err, lost(connection, err), "no TLS connection");
	ERR_clear_error();
	return naos_error_set(err, NAOS_E_KEYMANAGER, "the certificate of the key manager %s is not trusted: %s",
			connection->name,
			      X509_verify_cert_error_string(verified));
}

/* From now on recv() without a flag waits, as long as a request may take. */
static int let_socket_wait(struct naos_kmip_connection *connection, struct naos_error *err)
{
	const struct timeval limit = { .tv_sec = connection->timeout_s };
	int flags = fcntl(connection->fd, F_GETFL);
	if (flags < 0 || fcntl(connection->fd, F_SETFL, flags & ~O_NONBLOCK) != 0 ||
	    setsockopt(connection->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0)
		return naos_error_set_errno(err, errno, "cannot set up the connection to %s", connection->name);
	return 0;
}

int naos_kmip_connection_open(SSL_CTX *tls, const char *host, const char *port, unsigned timeout_s,
		struct naos_kmip_connection **ret,
			      struct naos_error *err)
{
	struct naos_kmip_connection *connection = calloc(1, sizeof(*connection));
	if (!connection)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a connection");
	connection->fd = -1;
	connection->timeout_s = timeout_s;
	(void)snprintf(connection->name, sizeof(connection->name), strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
	start_clock(connection, false);
	bool offered = false;
	int rc = connect_host(connection, host, port, err);
	if (rc == 0)
		rc = handshake(connection, tls, host, &offered, err);
	if (rc != 0 && offered && !connection->late) { /* some servers end a connection rather than refuse a session */
		keep_session(connection, NULL);
		rc = connect_host(connection, host, port, err);
		if (rc == 0)
			rc = handshake(connection, tls, host, &offered, err);
	}
	if (rc == 0)
		rc = let_socket_wait(connection, err);
	if (rc == 0)
		*ret = connection;
	else
		(void)naos_kmip_connection_close(connection);
	return rc;
}

struct naos_kmip_connection *naos_kmip_connection_close(struct naos_kmip_connection *connection)
{
	if (!connection)
		return NULL;
	connection->deadline_ns = 0; /* a farewell, if it can be sent without waiting */
	ERR_clear_error();
	if (connection->ssl && SSL_is_init_finished(connection->ssl))
		(void)SSL_shutdown(connection->ssl);
	SSL_free(connection->ssl);
	ERR_clear_error();
	naos_close_descriptor(&connection->fd);
	free(connection);
	return NULL;
}

const char *naos_kmip_connection_name(const struct naos_kmip_connection *connection)
{
	return connection->name;
}

bool naos_kmip_connection_late(const struct naos_kmip_connection *connection)
{
	return connection->late;
}

/* --- messages --------------------------------------------------------------------------------------------------------- */

int naos_kmip_connection_send(struct naos_kmip_connection *connection, const struct naos_secret *message, struct naos_error *err)
{
	start_clock(connection, true);
	ERR_clear_error();
	errno = 0;
	/* all or nothing: partial writes are not enabled */
	return SSL_write(connection->ssl, naos_secret_view(message), (int)naos_secret_bytes(message)) > 0 ?
			0 : lost(connection, err);
}

static int read_exactly(struct naos_kmip_connection *connection, uint8_t *into, size_t bytes, struct naos_error *err)
{
	for (size_t done = 0; done < bytes;) {
		ERR_clear_error();
		errno = 0;
		int got = SSL_read(connection->ssl, into + done, (int)(bytes - done));
		if (got <= 0)
			return lost(connection, err);
		connection->answered = true;
		done += (size_t)got;
	}
	return 0;
}

int naos_kmip_connection_receive(struct naos_kmip_connection *connection, struct naos_secret **ret, struct naos_error *err)
{
	uint8_t head[NAOS_KMIP_HEADER_BYTES];
	naos_autosecret struct naos_secret *message = NULL;
	size_t need;
	int rc = read_exactly(connection, head, sizeof(head), err);
	if (rc == 0 && naos_kmip_frame(NAOS_KMIP_RESPONSES, head, sizeof(head), NAOS_KMIP_MAX_MESSAGE_BYTES, &need, err) != 0)
		rc = naos_error_prefix(err, NAOS_E_KEYMANAGER, "the key manager %s answers nonsense", connection->name);
	if (rc == 0)
		rc = naos_secret_create(need, &message, err);
	if (rc != 0)
		return rc;
	memcpy(naos_secret_data(message), head, sizeof(head)); /* lint-ok: type and length only */
	rc = read_exactly(connection, naos_secret_data(message) + sizeof(head), need - sizeof(head), err);
	if (rc == 0)
		*ret = naos_steal(message);
	return rc;
}

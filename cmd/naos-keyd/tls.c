/* TLS of the front.  SPDX-License-Identifier: Apache-2.0 */
#include "tls.h"

#include <malloc.h>
#include <string.h>
#include <time.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

/* --- memory -------------------------------------------------------------------------------------------------------- */

static void *plain_malloc(size_t bytes, const char *file, int line)
{
	return malloc(bytes);
}

static void wiping_free(void *memory, const char *file, int line)
{
	if (!memory)
		return;
	explicit_bzero(memory, malloc_usable_size(memory));
	free(memory);
}

static void *wiping_realloc(void *memory, size_t bytes, const char *file, int line)
{
	if (!memory)
		return malloc(bytes);
	if (bytes == 0) {
		wiping_free(memory, file, line);
		return NULL;
	}
	size_t old = malloc_usable_size(memory);
	if (bytes <= old && bytes >= old / 2)
		return memory;
	void *grown = malloc(bytes);
	if (!grown)
		return NULL;
	memcpy(grown, memory, old < bytes ? old : bytes);
	wiping_free(memory, file, line);
	return grown;
}

void keyd_tls_wipe_allocations(void)
{
	if (CRYPTO_set_mem_functions(plain_malloc, wiping_realloc, wiping_free) != 1)
		abort(); /* something used OpenSSL before main() asked for this */
}

const char *keyd_tls_reason(void)
{
	static _Thread_local char text[160];
	unsigned long code = ERR_peek_last_error();
	const char *reason = code ? ERR_reason_error_string(code) : NULL;
	(void)snprintf(text, sizeof(text), "%s", reason ? reason : "the connection ended");
	ERR_clear_error();
	return text;
}

/* --- context ------------------------------------------------------------------------------------------------------- */

static int load_crls(X509_STORE *store, const char *path, struct naos_error *err)
{
	BIO *file = BIO_new_file(path, "r");
	int count = 0;
	if (!file)
		return naos_error_set(err, NAOS_E_CONFIG, "keyd.crl: cannot open %s: %s", path, keyd_tls_reason());
	for (;;) {
		X509_CRL *crl = PEM_read_bio_X509_CRL(file, NULL, NULL, NULL);
		if (!crl)
			break;
		count += X509_STORE_add_crl(store, crl);
		X509_CRL_free(crl);
	}
	BIO_free(file);
	ERR_clear_error();
	if (count == 0)
		return naos_error_set(err, NAOS_E_CONFIG, "keyd.crl: %s holds no certificate revocation list in PEM", path);
	(void)X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK);
	return 0;
}

static int need(const struct naos_config *config, const char *key, const char **ret, struct naos_error *err)
{
	*ret = naos_config_string(config, "keyd", NULL, key);
	return **ret ? 0 : naos_error_set(err, NAOS_E_CONFIG, "keyd.%s is not set: it names a file in PEM", key);
}

static int load_identity(SSL_CTX *context, const struct naos_config *config, struct naos_error *err)
{
	const char *certificate, *key, *ca, *crl = naos_config_string(config, "keyd", NULL, "crl");
	int rc = need(config, "certificate", &certificate, err);
	if (rc == 0)
		rc = need(config, "key", &key, err);
	if (rc == 0)
		rc = need(config, "ca", &ca, err);
	if (rc != 0)
		return rc;
	if (SSL_CTX_use_certificate_chain_file(context, certificate) != 1)
		return naos_error_set(err, NAOS_E_CONFIG, "keyd.certificate: %s: %s", certificate, keyd_tls_reason());
	if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1)
		return naos_error_set(err, NAOS_E_CONFIG, "keyd.key: %s: %s", key, keyd_tls_reason());
	if (SSL_CTX_check_private_key(context) != 1)
		return naos_error_set(err, NAOS_E_CONFIG, "keyd.key: %s does not belong to %s", key, certificate);
	if (SSL_CTX_load_verify_locations(context, ca, NULL) != 1)
		return naos_error_set(err, NAOS_E_CONFIG, "keyd.ca: %s: %s", ca, keyd_tls_reason());
	STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(ca);
	if (names)
		SSL_CTX_set_client_CA_list(context, names);
	return *crl ? load_crls(SSL_CTX_get_cert_store(context), crl, err) : 0;
}

int keyd_tls_load(const struct naos_config *config, SSL_CTX **ret, struct naos_error *err)
{
	static const unsigned char sessions[] = "naos-keyd";
	SSL_CTX *context = SSL_CTX_new(TLS_server_method());
	if (!context)
		return naos_error_set(err, NAOS_E_SYSTEM, "TLS can't be set up: %s", keyd_tls_reason());
	bool ok = SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1 &&
		  SSL_CTX_set_session_id_context(context, sessions, sizeof(sessions) - 1) == 1;
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	(void)SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE |
					       SSL_OP_CLEANSE_PLAINTEXT);
	(void)SSL_CTX_set_mode(context,
			SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_read_ahead(context, 1); /* a record in one read */
	(void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF); /* tickets only: nothing is kept per client */
	(void)SSL_CTX_set_num_tickets(context, 1);
	int rc = ok ? load_identity(context, config, err) : naos_error_set(err, NAOS_E_SYSTEM, "TLS 1.2 is not available: %s",
			keyd_tls_reason());
	if (rc == 0)
		*ret = context;
	else
		SSL_CTX_free(context);
	return rc;
}

/* --- the peer ------------------------------------------------------------------------------------------------------ */

/* A name of a certificate: text without zero bytes, not empty, not a wildcard alone. */
static bool take_name(const ASN1_STRING *value, char ret[static KEYD_IDENTITY_BYTES])
{
	unsigned char *utf8 = NULL;
	int bytes = value ? ASN1_STRING_to_UTF8(&utf8, value) : -1;
	bool good = bytes > 0 && bytes < KEYD_IDENTITY_BYTES && memchr(utf8, 0, (size_t)bytes) == NULL && !(bytes == 1 &&
			utf8[0] == '*');
	for (int i = 0; good && i < bytes; i++)
		good = utf8[i] >= 0x20 && utf8[i] != 0x7f;
	if (good) {
		memcpy(ret, utf8, (size_t)bytes);
		ret[bytes] = 0;
	}
	OPENSSL_free(utf8);
	return good;
}

static bool take_alternative(const GENERAL_NAMES *names, int type, char ret[static KEYD_IDENTITY_BYTES])
{
	for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
		const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
		if (name->type == type && take_name(name->d.ia5, ret))
			return true;
	}
	return false;
}

static int take_expiry(X509 *certificate, struct keyd_peer_name *ret, struct naos_error *err)
{
	struct tm parts = { 0 };
	if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &parts) != 1)
		return naos_error_set(err, NAOS_E_DENIED, "the client's certificate has no end");
	ret->expires_unix_s = timegm(&parts);
	return 0;
}

static int take_identity(X509 *certificate, struct keyd_peer_name *ret, struct naos_error *err)
{
	GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
	bool found = names && (take_alternative(names, GEN_URI, ret->identity) || take_alternative(names, GEN_DNS,
			ret->identity));
	GENERAL_NAMES_free(names);
	if (!found) {
		X509_NAME *subject = X509_get_subject_name(certificate);
		int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
		found = at >= 0 && take_name(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)), ret->identity);
	}
	if (!found)
		return naos_error_set(err, NAOS_E_DENIED, "the client's certificate has no usable name (SAN URI, SAN DNS or CN)");
	if (!X509_NAME_oneline(X509_get_issuer_name(certificate), ret->issuer, sizeof(ret->issuer)))
		return naos_error_set(err, NAOS_E_DENIED, "the client's certificate has no issuer");
	BIGNUM *serial = ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), NULL);
	char *hex = serial ? BN_bn2hex(serial) : NULL;
	(void)snprintf(ret->serial, sizeof(ret->serial), "%s", hex ? hex : "?");
	OPENSSL_free(hex);
	BN_free(serial);
	return take_expiry(certificate, ret, err);
}

int keyd_tls_verify_again(SSL *ssl, SSL_CTX *current, struct naos_error *err)
{
	X509 *certificate = SSL_get0_peer_certificate(ssl);
	X509_STORE_CTX *verify = X509_STORE_CTX_new();
	int rc = 0;
	if (!verify || X509_STORE_CTX_init(verify, SSL_CTX_get_cert_store(current), certificate,
			SSL_get_peer_cert_chain(ssl)) != 1 ||
	    X509_STORE_CTX_set_default(verify, "ssl_client") != 1)
		rc = naos_error_set(err, NAOS_E_NOMEM, "no memory to verify a certificate");
	else if (X509_verify_cert(verify) != 1)
		rc = naos_error_set(err, NAOS_E_DENIED, "the client's certificate is not valid any more: %s",
				    X509_verify_cert_error_string(X509_STORE_CTX_get_error(verify)));
	X509_STORE_CTX_free(verify);
	ERR_clear_error();
	return rc;
}

int keyd_tls_peer(SSL *ssl, SSL_CTX *current, struct keyd_peer_name *ret, struct naos_error *err)
{
	X509 *certificate = SSL_get0_peer_certificate(ssl);
	if (!certificate || SSL_get_verify_result(ssl) != X509_V_OK)
		return naos_error_set(err, NAOS_E_DENIED, "the client has no valid certificate");
	/* OpenSSL takes a certificate without the extension as fit for all; Naos does not */
	if (!(X509_get_extension_flags(certificate) & EXFLAG_XKUSAGE) ||
			!(X509_get_extended_key_usage(certificate) & XKU_SSL_CLIENT))
		return naos_error_set(err, NAOS_E_DENIED, "the client's certificate lacks the extended key usage clientAuth");
	/* a session ticket may be older than the CRL */
	int rc = SSL_session_reused(ssl) ? keyd_tls_verify_again(ssl, current, err) : 0;
	return rc ? rc : take_identity(certificate, ret, err);
}

/* A small certification authority in a directory.  SPDX-License-Identifier: Apache-2.0 */
#include "authority.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>

#include "base/io.h"

#define SERIAL_BYTES 16
#define CRL_DAYS 30
#define BACKDATED_S 300 /* clocks of a site differ a little */
#define PEM_MAX_BYTES ((size_t)1 << 20)
#define FILE_NAME_BYTES 272

static int openssl_failed(const char *what, struct naos_error *err)
{
	unsigned long code = ERR_peek_last_error();
	const char *reason = code ? ERR_reason_error_string(code) : NULL;
	int rc = naos_error_set(err, NAOS_E_SYSTEM, "%s failed: %s", what, reason ? reason : "OpenSSL gives no reason");
	ERR_clear_error();
	return rc;
}

/* --- files ------------------------------------------------------------------------------------------------------------ */

/* Writes what is in the memory BIO; the BIO is freed (and wiped, if it is of secure memory). */
static int write_bio(struct naos_authority *authority, const char *file, BIO *bio, mode_t mode, struct naos_error *err)
{
	char *data;
	long bytes = BIO_get_mem_data(bio, &data);
	int rc = bytes > 0 ? naos_io_replace_file(authority->fd, file, data, (size_t)bytes, mode,
			err) : openssl_failed("writing a certificate", err);
	if (bytes > 0)
		OPENSSL_cleanse(data, (size_t)bytes);
	BIO_free(bio);
	return rc ? naos_error_prefix(err, rc, "%s", authority->directory) : 0;
}

static int write_certificate(struct naos_authority *authority, const char *file, X509 *certificate, struct naos_error *err)
{
	BIO *bio = BIO_new(BIO_s_mem());
	if (!bio || PEM_write_bio_X509(bio, certificate) != 1) {
		BIO_free(bio);
		return openssl_failed("writing a certificate", err);
	}
	return write_bio(authority, file, bio, 0644, err);
}

static int write_key(struct naos_authority *authority, const char *file, EVP_PKEY *key, struct naos_error *err)
{
	BIO *bio = BIO_new(BIO_s_secmem());
	if (!bio || PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) != 1) {
		BIO_free(bio);
		return openssl_failed("writing a key", err);
	}
	return write_bio(authority, file, bio, 0600, err);
}

/* A BIO over the bytes of a file; *ret_data is to be wiped and freed after it. */
static int open_pem(const struct naos_authority *authority, const char *file, uint8_t **ret_data, size_t *ret_bytes, BIO **ret,
		    struct naos_error *err)
{
	int rc = naos_io_read_file(authority->fd, file, PEM_MAX_BYTES, ret_data, ret_bytes, err);
	if (rc != 0)
		return naos_error_prefix(err, rc, "%s", authority->directory);
	*ret = BIO_new_mem_buf(*ret_data, (int)*ret_bytes);
	if (*ret)
		return 0;
	free(*ret_data);
	return openssl_failed("reading a certificate", err);
}

/* kind 'c': certificate, 'k': key, 'l': revocation list. */
static int read_pem(const struct naos_authority *authority, const char *file, char kind, void **ret, struct naos_error *err)
{
	uint8_t *data;
	size_t bytes;
	BIO *bio;
	int rc = open_pem(authority, file, &data, &bytes, &bio, err);
	if (rc != 0)
		return rc;
	*ret = kind == 'c' ? (void *)PEM_read_bio_X509(bio, NULL, NULL, NULL) :
	       kind == 'k' ? (void *)PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL) : (void *)PEM_read_bio_X509_CRL(bio, NULL,
			NULL, NULL);
	BIO_free(bio);
	OPENSSL_cleanse(data, bytes);
	free(data);
	ERR_clear_error();
	return *ret ? 0 : naos_error_set(err, NAOS_E_FORMAT, "%s/%s is not the PEM file it should be", authority->directory,
			file);
}

/* --- certificates ------------------------------------------------------------------------------------------------------ */

static bool set_serial(X509 *certificate)
{
	unsigned char bytes[SERIAL_BYTES];
	BIGNUM *number = RAND_bytes(bytes, sizeof(bytes)) == 1 ? BN_bin2bn(bytes, sizeof(bytes), NULL) : NULL;
	bool ok = number && BN_clear_bit(number, 8 * SERIAL_BYTES - 1) == 1 && BN_set_bit(number, 8 * SERIAL_BYTES - 2) == 1 &&
		  BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != NULL;
	BN_free(number);
	return ok;
}

static bool add_extension(X509 *certificate, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX context;
	X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
	X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
	bool ok = extension && X509_add_ext(certificate, extension, -1) == 1;
	X509_EXTENSION_free(extension);
	return ok;
}

/* All that every certificate has: number, time, names, key. */
static X509 *start_certificate(const char *name, const X509_NAME *issuer, EVP_PKEY *key, unsigned days)
{
	X509 *certificate = X509_new();
	X509_NAME *subject = X509_NAME_new();
	bool ok = certificate && subject && X509_set_version(certificate, X509_VERSION_3) == 1 && set_serial(certificate) &&
		  X509_NAME_add_entry_by_NID(subject, NID_commonName, MBSTRING_UTF8, (const unsigned char *)name, -1, -1,
				0) == 1 &&
		  X509_set_subject_name(certificate, subject) == 1 && X509_set_issuer_name(certificate, issuer ?
				issuer : subject) == 1 &&
		  X509_gmtime_adj(X509_getm_notBefore(certificate), -BACKDATED_S) &&
		  X509_time_adj_ex(X509_getm_notAfter(certificate), (int)days, 0, NULL) && X509_set_pubkey(certificate, key) == 1;
	X509_NAME_free(subject);
	if (ok)
		return certificate;
	X509_free(certificate);
	return NULL;
}

int naos_authority_create(const char *directory, const char *name, unsigned days, struct naos_error *err)
{
	naos_autoauthority struct naos_authority authority = { .directory = directory, .fd = -1 };
	struct stat status;
	if (mkdir(directory, 0700) != 0 && errno != EEXIST)
		return naos_error_set_errno(err, errno, "%s", directory);
	authority.fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (authority.fd < 0)
		return naos_error_set_errno(err, errno, "%s", directory);
	if (fstatat(authority.fd, "ca.key", &status, AT_SYMLINK_NOFOLLOW) == 0)
		return naos_error_set(err, NAOS_E_EXISTS, "%s has an authority already", directory);
	authority.key = EVP_EC_gen("P-256");
	authority.certificate = authority.key ? start_certificate(name, NULL, authority.key, days) : NULL;
	X509 *certificate = authority.certificate;
	if (!certificate || !add_extension(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
	    !add_extension(certificate, certificate, NID_key_usage, "critical,keyCertSign,cRLSign") ||
	    !add_extension(certificate, certificate, NID_subject_key_identifier, "hash") || !X509_sign(certificate,
			authority.key, EVP_sha256()))
		return openssl_failed("making an authority", err);
	int rc = write_key(&authority, "ca.key", authority.key, err);
	if (rc == 0)
		rc = write_certificate(&authority, "ca.pem", certificate, err);
	return rc ? rc : naos_authority_sign_crl(&authority, err);
}

int naos_authority_open(const char *directory, struct naos_authority *ret, struct naos_error *err)
{
	struct naos_authority authority = { .directory = directory };
	authority.fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (authority.fd < 0)
		return naos_error_set_errno(err, errno, "%s", directory);
	int rc = read_pem(&authority, "ca.pem", 'c', (void **)&authority.certificate, err);
	if (rc == 0)
		rc = read_pem(&authority, "ca.key", 'k', (void **)&authority.key, err);
	if (rc == 0)
		rc = read_pem(&authority, "crl.pem", 'l', (void **)&authority.crl, err);
	if (rc == 0 && X509_check_private_key(authority.certificate, authority.key) != 1)
		rc = naos_error_set(err, NAOS_E_FORMAT, "%s: ca.key does not belong to ca.pem", directory);
	ERR_clear_error();
	if (rc == 0)
		*ret = authority;
	else
		naos_authority_close(&authority);
	return rc;
}

void naos_authority_close(struct naos_authority *authority)
{
	X509_free(authority->certificate);
	EVP_PKEY_free(authority->key);
	X509_CRL_free(authority->crl);
	naos_close_descriptor(&authority->fd);
}

static const char *file_name(const char *name, const char *end, char buffer[static FILE_NAME_BYTES])
{
	(void)snprintf(buffer, FILE_NAME_BYTES, "%s%s", name, end);
	return buffer;
}

/* Signs and writes; key first: a program that reads between the two finds that they don't fit and keeps what it has. */
static int finish(struct naos_authority *authority, const char *name, X509 *certificate, EVP_PKEY *key, struct naos_error *err)
{
	char file[FILE_NAME_BYTES];
	if (!X509_sign(certificate, authority->key, EVP_sha256()))
		return openssl_failed("signing a certificate", err);
	int rc = write_key(authority, file_name(name, ".key", file), key, err);
	return rc ? rc : write_certificate(authority, file_name(name, ".pem", file), certificate, err);
}

int naos_authority_issue(struct naos_authority *authority, const char *name, const char *alternative, const char *usage,
		unsigned days,
			 bool replace, struct naos_error *err)
{
	char file[FILE_NAME_BYTES];
	struct stat status;
	if (!replace && fstatat(authority->fd, file_name(name, ".pem", file), &status, AT_SYMLINK_NOFOLLOW) == 0)
		return naos_error_set(err, NAOS_E_EXISTS, "%s/%s exists already: renew it, or choose another name",
				authority->directory, file);
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *certificate = key ? start_certificate(name, X509_get_subject_name(authority->certificate), key, days) : NULL;
	bool ok = certificate && add_extension(certificate, authority->certificate, NID_basic_constraints, "critical,CA:FALSE") &&
		  add_extension(certificate, authority->certificate, NID_key_usage, "critical,digitalSignature") &&
		  add_extension(certificate, authority->certificate, NID_ext_key_usage, usage) &&
		  add_extension(certificate, authority->certificate, NID_subject_alt_name, alternative) &&
		  add_extension(certificate, authority->certificate, NID_authority_key_identifier, "keyid:always");
	int rc = ok ? finish(authority, name, certificate, key, err) : openssl_failed("making a certificate", err);
	X509_free(certificate);
	EVP_PKEY_free(key);
	return rc;
}

/* Kept as NAME~SERIAL.pem, so that revoking NAME finds it. */
static int keep_old(struct naos_authority *authority, const char *name, X509 *old, struct naos_error *err)
{
	char file[FILE_NAME_BYTES];
	BIGNUM *number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(old), NULL);
	char *hex = number ? BN_bn2hex(number) : NULL;
	(void)snprintf(file, sizeof(file), "%s~%s.pem", name, hex ? hex : "");
	int rc = hex ? write_certificate(authority, file, old, err) : openssl_failed("reading a certificate", err);
	OPENSSL_free(hex);
	BN_free(number);
	return rc;
}

int naos_authority_renew(struct naos_authority *authority, const char *name, unsigned days, struct naos_error *err)
{
	char file[FILE_NAME_BYTES];
	X509 *old = NULL;
	int rc = read_pem(authority, file_name(name, ".pem", file), 'c', (void **)&old, err);
	if (rc != 0)
		return rc;
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *certificate = key ? start_certificate(name, X509_get_subject_name(authority->certificate), key, days) : NULL;
	bool ok = certificate != NULL;
	for (int i = 0; ok && i < X509_get_ext_count(old); i++)
		ok = X509_add_ext(certificate, X509_get_ext(old, i), -1) == 1;
	rc = ok ? keep_old(authority, name, old, err) : openssl_failed("renewing a certificate", err);
	if (rc == 0)
		rc = finish(authority, name, certificate, key, err);
	X509_free(old);
	X509_free(certificate);
	EVP_PKEY_free(key);
	return rc;
}

/* --- revocation ---------------------------------------------------------------------------------------------------------- */

static bool add_revoked(X509_CRL *crl, const ASN1_INTEGER *serial)
{
	X509_REVOKED *entry = X509_REVOKED_new();
	ASN1_TIME *when = X509_gmtime_adj(NULL, 0);
	bool ok = entry && when && X509_REVOKED_set_serialNumber(entry, (ASN1_INTEGER *)serial) == 1 &&
		  X509_REVOKED_set_revocationDate(entry, when) == 1 && X509_CRL_add0_revoked(crl, entry) == 1;
	ASN1_TIME_free(when);
	if (!ok)
		X509_REVOKED_free(entry);
	return ok;
}

/* A new list with the entries of the one before. */
static X509_CRL *next_crl(const struct naos_authority *authority)
{
	X509_CRL *crl = X509_CRL_new();
	ASN1_TIME *now = X509_gmtime_adj(NULL, -BACKDATED_S), *next = X509_time_adj_ex(NULL, CRL_DAYS, 0, NULL);
	bool ok = crl && now && next && X509_CRL_set_version(crl, X509_CRL_VERSION_2) == 1 &&
		  X509_CRL_set_issuer_name(crl, X509_get_subject_name(authority->certificate)) == 1 &&
		  X509_CRL_set1_lastUpdate(crl, now) == 1 && X509_CRL_set1_nextUpdate(crl, next) == 1;
	STACK_OF(X509_REVOKED) *old = authority->crl ? X509_CRL_get_REVOKED(authority->crl) : NULL;
	for (int i = 0; ok && i < sk_X509_REVOKED_num(old); i++) {
		X509_REVOKED *copy = X509_REVOKED_dup(sk_X509_REVOKED_value(old, i));
		ok = copy && X509_CRL_add0_revoked(crl, copy) == 1;
	}
	ASN1_TIME_free(now);
	ASN1_TIME_free(next);
	if (ok)
		return crl;
	X509_CRL_free(crl);
	return NULL;
}

static int write_crl(struct naos_authority *authority, X509_CRL *crl, struct naos_error *err)
{
	BIO *bio = BIO_new(BIO_s_mem());
	if (!bio || X509_CRL_sort(crl) != 1 || !X509_CRL_sign(crl, authority->key, EVP_sha256()) ||
			PEM_write_bio_X509_CRL(bio, crl) != 1) {
		BIO_free(bio);
		return openssl_failed("signing a revocation list", err);
	}
	return write_bio(authority, "crl.pem", bio, 0644, err);
}

int naos_authority_sign_crl(struct naos_authority *authority, struct naos_error *err)
{
	X509_CRL *crl = next_crl(authority);
	int rc = crl ? write_crl(authority, crl, err) : openssl_failed("making a revocation list", err);
	X509_CRL_free(crl);
	return rc;
}

static int revoke_file(struct naos_authority *authority, const char *file, X509_CRL *crl, struct naos_error *err)
{
	X509 *certificate = NULL;
	X509_REVOKED *found = NULL;
	int rc = read_pem(authority, file, 'c', (void **)&certificate, err);
	if (rc != 0)
		return rc;
	if (X509_CRL_get0_by_cert(authority->crl, &found, certificate) != 1 && !add_revoked(crl,
			X509_get0_serialNumber(certificate)))
		rc = openssl_failed("making a revocation list", err);
	X509_free(certificate);
	return rc;
}

/* Those that were renewed since are as good as the newest until their end. */
static int revoke_older(struct naos_authority *authority, const char *name, X509_CRL *crl, struct naos_error *err)
{
	size_t length = strlen(name);
	int rc = 0, copy = openat(authority->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *directory = copy >= 0 ? fdopendir(copy) : NULL;
	if (!directory) {
		naos_close_descriptor(&copy);
		return naos_error_set_errno(err, errno, "%s", authority->directory);
	}
	for (struct dirent *entry; rc == 0 && (entry = readdir(directory));)
		if (strncmp(entry->d_name, name, length) == 0 && entry->d_name[length] == '~')
			rc = revoke_file(authority, entry->d_name, crl, err);
	(void)closedir(directory);
	return rc;
}

int naos_authority_revoke(struct naos_authority *authority, const char *name, struct naos_error *err)
{
	char file[FILE_NAME_BYTES];
	X509_CRL *crl = next_crl(authority);
	int rc = crl ? revoke_file(authority, file_name(name, ".pem", file), crl,
			err) : openssl_failed("making a revocation list", err);
	if (rc == 0)
		rc = revoke_older(authority, name, crl, err);
	if (rc == 0)
		rc = write_crl(authority, crl, err);
	X509_CRL_free(crl);
	return rc;
}

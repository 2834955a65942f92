/* A small certification authority in a directory, for `naos ca`: ca.pem, ca.key (0600), crl.pem, and NAME.pem, NAME.key of each
 * certificate.  For a first set-up; a site's own PKI does as well.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_CMD_AUTHORITY_H
#define NAOS_CMD_AUTHORITY_H

#include <openssl/x509v3.h>

#include "base/errors.h"

struct naos_authority {
	const char *directory; /* borrowed */
	int fd;
	X509 *certificate;
	EVP_PKEY *key;
	X509_CRL *crl;
};

/* Makes the directory (0700) if it is not there, and a new authority in it.  NAOS_E_EXISTS if there is one. */
int naos_authority_create(const char *directory, const char *name, unsigned days, struct naos_error *err) naos_must_check;
/* NAOS_E_NOTFOUND, NAOS_E_FORMAT, naming the file. */
int naos_authority_open(const char *directory, struct naos_authority *ret, struct naos_error *err) naos_must_check;
void naos_authority_close(struct naos_authority *authority);
#define naos_autoauthority naos_cleanup(naos_authority_close)

/* alternative: "URI:naos://host/x" or "DNS:a,IP:b", checked by the caller; usage "clientAuth" or "serverAuth".  Writes NAME.key, then
 * NAME.pem.  replace: there may be one already. */
int naos_authority_issue(struct naos_authority *authority, const char *name, const char *alternative, const char *usage, unsigned days,
			 bool replace, struct naos_error *err) naos_must_check;
/* The same names and usage as NAME.pem has, with a new key. */
int naos_authority_renew(struct naos_authority *authority, const char *name, unsigned days, struct naos_error *err) naos_must_check;
/* Puts NAME.pem, and what it was renewed from, on the list and writes crl.pem anew. */
int naos_authority_revoke(struct naos_authority *authority, const char *name, struct naos_error *err) naos_must_check;
/* Writes crl.pem anew, good for 30 days. */
int naos_authority_sign_crl(struct naos_authority *authority, struct naos_error *err) naos_must_check;

#endif

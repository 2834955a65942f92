/* When the certificates of a TLS context end.  SPDX-License-Identifier: Apache-2.0 */
#include <time.h>
#include <openssl/x509.h>

#include "tls.h"

static void take_earlier(const ASN1_TIME *time, int64_t *unix_s)
{
	struct tm parts = { 0 };
	if (!time || ASN1_TIME_to_tm(time, &parts) != 1)
		return;
	int64_t end = timegm(&parts);
	if (*unix_s == 0 || end < *unix_s)
		*unix_s = end;
}

void keyd_tls_find_ends(SSL_CTX *context, struct keyd_tls_ends *ret)
{
	X509_STORE *store = SSL_CTX_get_cert_store(context);
	X509 *own = SSL_CTX_get0_certificate(context);
	*ret = (struct keyd_tls_ends){ 0 };
	if (own)
		take_earlier(X509_get0_notAfter(own), &ret->certificate_unix_s);
	(void)X509_STORE_lock(store);
	const STACK_OF(X509_OBJECT) *objects = X509_STORE_get0_objects(store);
	for (int i = 0; i < sk_X509_OBJECT_num(objects); i++) {
		const X509_OBJECT *object = sk_X509_OBJECT_value(objects, i);
		X509 *certificate = X509_OBJECT_get0_X509(object);
		const X509_CRL *list = X509_OBJECT_get0_X509_CRL(object);
		if (certificate)
			take_earlier(X509_get0_notAfter(certificate), &ret->authority_unix_s);
		if (list)
			take_earlier(X509_CRL_get0_nextUpdate(list), &ret->revocation_list_unix_s);
	}
	(void)X509_STORE_unlock(store);
}

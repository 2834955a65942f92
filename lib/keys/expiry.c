/* When certificates end.  SPDX-License-Identifier: Apache-2.0 */
#include "keys/expiry.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "keys/kmip_address.h"

#define DAY_S 86400
#define MAX_CERTIFICATES 1000 /* of one file */

static bool end_of(const X509 *certificate, int64_t *ret_unix_s)
{
	struct tm parts = { 0 };
	if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &parts) != 1)
		return false;
	*ret_unix_s = timegm(&parts);
	return true;
}

/* last: the latest end in the file, else the first. */
static int read_end(const char *file, bool last, int64_t *ret_unix_s, struct naos_error *err)
{
	FILE *in = fopen(file, "re");
	if (!in)
		return naos_error_set(err, NAOS_E_CONFIG, "the certificate %s can't be read: %s", file, strerrordesc_np(errno));
	int64_t found_s = 0, one_s;
	unsigned count = 0;
	bool good = true;
	for (X509 *certificate; good && count < MAX_CERTIFICATES && (certificate = PEM_read_X509(in, NULL, NULL, NULL)); count++) {
		good = end_of(certificate, &one_s);
		if (good && (count == 0 || (last ? one_s > found_s : one_s < found_s)))
			found_s = one_s;
		X509_free(certificate);
	}
	ERR_clear_error();
	(void)fclose(in);
	if (count == 0 || !good)
		return naos_error_set(err, NAOS_E_CONFIG, "%s holds no certificate that can be read (PEM)", file);
	*ret_unix_s = found_s;
	return 0;
}

int naos_kmip_certificate_expiry(const char *uri, struct naos_expiry *ret, struct naos_error *err)
{
	naos_autoaddress struct naos_kmip_address address = { .copy = NULL };
	int64_t own_s = 0, ca_s = 0;
	if (strncmp(uri, "kmip:", 5) != 0)
		return naos_error_set(err, NAOS_E_UNSUPPORTED, "only addresses of the kind kmip: name certificates");
	int rc = naos_kmip_address_parse(uri, &address, err);
	if (rc == 0)
		rc = read_end(address.certificate, false, &own_s, err);
	if (rc == 0)
		rc = read_end(address.ca, true, &ca_s, err);
	if (rc != 0)
		return rc;
	*ret = (struct naos_expiry){ .unix_s = ca_s < own_s ? ca_s : own_s, .authority = ca_s < own_s };
	(void)snprintf(ret->file, sizeof(ret->file), "%s", ca_s < own_s ? address.ca : address.certificate);
	return 0;
}

bool naos_expiry_is_near(const struct naos_expiry *expiry, int64_t now_unix_s, char *ret_text)
{
	const char *what = expiry->authority ? "authority of the key manager" : "certificate for the key manager";
	int64_t days = (expiry->unix_s - now_unix_s) / DAY_S;
	time_t when = (time_t)expiry->unix_s;
	struct tm parts = { 0 };
	char date[24];
	if (expiry->unix_s - now_unix_s >= (int64_t)NAOS_EXPIRY_WARN_DAYS * DAY_S)
		return false;
	(void)gmtime_r(&when, &parts);
	(void)strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &parts);
	if (ret_text && expiry->unix_s <= now_unix_s)
		(void)snprintf(ret_text, NAOS_EXPIRY_TEXT_BYTES, "the %s, %s, has ended at %s: no new key can be had until it is renewed", what,
			       expiry->file, date);
	else if (ret_text)
		(void)snprintf(ret_text, NAOS_EXPIRY_TEXT_BYTES, "the %s, %s, ends at %s, in %" PRId64 " day%s: renew it", what, expiry->file, date,
			       days, days == 1 ? "" : "s");
	return true;
}

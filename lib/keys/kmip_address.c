/* The address of a KMIP server.  SPDX-License-Identifier: Apache-2.0 */
#include "keys/kmip_address.h"

#include <string.h>

#include "kmip/message.h"

static int take_parameter(struct naos_kmip_address *address, char *name, char *value, struct naos_error *err)
{
	unsigned minor, seconds;
	if (strcmp(name, "cert") == 0)
		address->certificate = value;
	else if (strcmp(name, "key") == 0)
		address->key = value;
	else if (strcmp(name, "ca") == 0)
		address->ca = value;
	else if (strcmp(name, "version") == 0 && strlen(value) == 3 && sscanf(value, "1.%1u", &minor) == 1 && minor <= 4)
		address->version = NAOS_KMIP_1_0 + minor;
	else if (strcmp(name, "timeout") == 0 && strlen(value) <= 3 && sscanf(value, "%3u", &seconds) == 1 && seconds > 0)
		address->timeout_s = seconds;
	else if (strcmp(name, "quirk") == 0 && strcmp(value, "iv-in-data") == 0)
		address->iv_in_data = true;
	else
		return naos_error_set(err, NAOS_E_USAGE,
				      "kmip: '%s' of the address is not understood; there are cert, key, ca, version=1.0 to 1.4, timeout=SECONDS and "
				      "quirk=iv-in-data", name);
	return 0;
}

int naos_kmip_address_parse(const char *uri, struct naos_kmip_address *ret, struct naos_error *err)
{
	static char certificate[] = "/etc/naos/client.pem", key[] = "/etc/naos/client.key", ca[] = "/etc/naos/ca.pem";
	char *rest = NULL;
	if (strncmp(uri, "kmip://", 7) != 0)
		return naos_error_set(err, NAOS_E_USAGE,
				"the address of a KMIP server is kmip://HOST:PORT?cert=FILE&key=FILE&ca=FILE");
	*ret = (struct naos_kmip_address){ .copy = strdup(uri + 7), .certificate = certificate, .key = key, .ca = ca };
	if (!ret->copy)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for an address");
	ret->hosts = ret->copy;
	char *query = strchr(ret->copy, '?');
	if (query)
		*query++ = 0;
	for (char *item = query ? strtok_r(query, "&", &rest) : NULL; item; item = strtok_r(NULL, "&", &rest)) {
		char *equals = strchr(item, '=');
		if (!equals)
			return naos_error_set(err, NAOS_E_USAGE, "kmip: a parameter of the address has no value");
		*equals++ = 0;
		int rc = take_parameter(ret, item, equals, err);
		if (rc != 0)
			return rc;
	}
	char *slash = strchr(ret->hosts, '/');
	if (slash && slash[1])
		return naos_error_set(err, NAOS_E_USAGE,
				"kmip: the address names hosts, no path: kmip://HOST:PORT?cert=FILE&key=FILE&ca=FILE");
	if (slash)
		*slash = 0;
	return 0;
}

void naos_kmip_address_clear(struct naos_kmip_address *address)
{
	free(address->copy);
	address->copy = NULL;
}

/* A program that holds a key provider open: for each line with a number it wraps and unwraps so many keys in one batch and answers
 * "ok" or "CODE message".  kmip_probe URI KEY-NAME.  SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "keys/provider.h"

#define MOST 1000

static int round_trip(struct naos_provider *provider, const char *name, size_t count, struct naos_error *err)
{
	naos_autofree struct naos_wrap_item *items = calloc(count, sizeof(*items));
	naos_autofree struct naos_secret **keys = calloc(count, sizeof(*keys));
	int rc = items && keys ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory");
	for (size_t i = 0; rc == 0 && i < count; i++) {
		rc = naos_secret_random(i % 2 ? 16 : 32, &keys[i], err);
		items[i] = (struct naos_wrap_item){ .context = { .kind = NAOS_WRAP_FILE }, .key = keys[i] };
		if (rc == 0)
			rc = naos_uuid_random(&items[i].context.object_id, err);
	}
	if (rc == 0)
		rc = naos_keys_wrap(provider, name, items, count, err);
	if (rc == 0)
		rc = naos_keys_unwrap(provider, items, count, err);
	for (size_t i = 0; rc == 0 && i < count; i++)
		if (!naos_secret_equal(items[i].unwrapped, naos_secret_view(keys[i]), naos_secret_bytes(keys[i])))
			rc = naos_error_set(err, NAOS_E_WRONG_KEY, "key %zu of %zu came back as another", i, count);
	if (rc == 0) { /* a key belongs to its object only */
		struct naos_wrap_item other = { .context = items[0].context, .blob = items[0].blob };
		struct naos_error ignored = NAOS_ERROR_INIT;
		other.context.object_id.bytes[0] ^= 1;
		if (naos_keys_unwrap(provider, &other, 1, &ignored) != NAOS_E_INTEGRITY)
			rc = naos_error_set(err, NAOS_E_WRONG_KEY, "a key opened for another object: %s", ignored.message);
		(void)naos_secret_free(other.unwrapped);
	}
	for (size_t i = 0; items && keys && i < count; i++) {
		(void)naos_secret_free(items[i].unwrapped);
		(void)naos_secret_free(keys[i]);
	}
	return rc;
}

int main(int argc, char **argv)
{
	naos_autoprovider struct naos_provider *provider = NULL;
	struct naos_error err = NAOS_ERROR_INIT;
	char line[64];
	if (argc != 3 || naos_provider_open(argv[1], NULL, &provider, &err) != 0) {
		(void)fprintf(stderr, "kmip_probe: %s\n", err.message);
		return 2;
	}
	while (fgets(line, sizeof(line), stdin)) {
		unsigned long count = strtoul(line, NULL, 10);
		int rc = round_trip(provider, argv[2], count < 1 ? 1 : count > MOST ? MOST : count, &err);
		if (rc == 0)
			(void)puts("ok");
		else
			(void)printf("%d %s\n", rc, err.message);
		(void)fflush(stdout);
	}
	return 0;
}

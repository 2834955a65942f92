/* Wraps and unwraps for the system tests, which can't hold a key themselves.
 *     keys_probe URI STORE wrap NAME     prints "BLOB KEY" in hexadecimal: a random key, wrapped
 *     keys_probe URI STORE unwrap        reads such lines, prints "ok" or the code's name for each
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "keys/provider.h"

#define KEY_BYTES 32

static int wrap(struct naos_provider *provider, const char *name, struct naos_error *err)
{
	uint8_t bytes[NAOS_BLOB_MAX_BYTES];
	char blob[2 * NAOS_BLOB_MAX_BYTES + 1], key_text[2 * KEY_BYTES + 1];
	naos_autosecret struct naos_secret *key = NULL;
	int rc = naos_secret_random(KEY_BYTES, &key, err);
	if (rc != 0)
		return rc;
	struct naos_wrap_item item = { .context = { .kind = NAOS_WRAP_FILE }, .key = key };
	rc = naos_keys_wrap(provider, name, &item, 1, err);
	if (rc != 0)
		return rc;
	struct naos_cursor out = naos_cursor_writer(bytes, sizeof(bytes));
	naos_blob_encode(&item.blob, &out);
	(void)naos_hex_format(naos_secret_view(key), KEY_BYTES, key_text); /* lint-ok: a key of this test only */
	printf("%s %s\n", naos_hex_format(bytes, out.position, blob), key_text);
	return 0;
}

/* 0 and the right key, or a code. */
static int check(struct naos_provider *provider, const char *blob_text, const char *key_text, struct naos_error *err)
{
	uint8_t bytes[NAOS_BLOB_MAX_BYTES], key[KEY_BYTES];
	size_t length = strlen(blob_text) / 2;
	struct naos_wrap_item item = { .context = { .kind = NAOS_WRAP_FILE } };
	if (length > sizeof(bytes) || !naos_hex_parse(blob_text, bytes, length) || !naos_hex_parse(key_text, key, sizeof(key)))
		return NAOS_E_USAGE;
	struct naos_cursor in = naos_cursor_reader(bytes, length);
	int rc = naos_blob_decode(&in, &item.blob, err);
	if (rc == 0)
		rc = naos_keys_unwrap(provider, &item, 1, err);
	if (rc == 0 && !naos_secret_equal(item.unwrapped, key, sizeof(key)))
		rc = NAOS_E_WRONG_KEY;
	naos_secret_free(item.unwrapped);
	return rc;
}

static int unwrap(struct naos_provider *provider, struct naos_error *err)
{
	char blob[2 * NAOS_BLOB_MAX_BYTES + 1], key[2 * KEY_BYTES + 1];
	while (scanf("%384s %64s", blob, key) == 2) {
		int rc = check(provider, blob, key, err);
		puts(rc ? naos_error_info(rc)->name : "ok");
		(void)fflush(stdout);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct naos_error err = NAOS_ERROR_INIT;
	naos_autoprovider struct naos_provider *provider = NULL;
	int rc = argc < 4 ? naos_error_set(&err, NAOS_E_USAGE, "URI STORE wrap NAME | unwrap") :
			    naos_provider_open(argv[1], argv[2], &provider, &err);
	if (rc == 0)
		rc = strcmp(argv[3], "wrap") == 0 && argc == 5 ? wrap(provider, argv[4], &err) : unwrap(provider, &err);
	if (rc != 0)
		fprintf(stderr, "%s\n", err.message);
	return rc ? 1 : 0;
}

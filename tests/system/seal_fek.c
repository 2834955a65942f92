/* Prints the key of a sealed file in hexadecimal, so that a test can look for it where it must not be: seal_fek PATH
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>

#include "seal/fileset.h"

static int print_key(const char *path, struct naos_error *err)
{
	naos_autoconfig struct naos_config *config = NULL;
	naos_autofilesets struct naos_filesets *sets = NULL;
	struct naos_sealed_info info;
	struct naos_sealed_file *file;
	struct naos_store *store;
	char text[2 * NAOS_FEK_BYTES + 1];
	int rc = naos_config_load(NULL, &config, err);
	if (rc == 0)
		rc = naos_filesets_open(config, NULL, NULL, &sets, err);
	if (rc == 0)
		rc = naos_store_posix(open(path, O_RDONLY), path, &store, err);
	if (rc == 0)
		rc = naos_sealed_probe(store, &info, err);
	if (rc != 0)
		return rc;
	const struct naos_fek_source source = naos_filesets_source(sets, NULL, &info);
	rc = naos_sealed_file_open(store, NAOS_SEALED_READ, &source, &file, err);
	if (rc != 0)
		return rc;
	puts(naos_hex_format(naos_secret_view(naos_sealed_file_fek(file)), NAOS_FEK_BYTES, text)); /* lint-ok: a key of this test only */
	return naos_sealed_file_close(file, false, err);
}

int main(int argc, char **argv)
{
	struct naos_error err = NAOS_ERROR_INIT;
	if (argc != 2 || print_key(argv[1], &err) != 0) {
		fprintf(stderr, "%s\n", err.message);
		return 1;
	}
	return 0;
}

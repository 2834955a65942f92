/* main() of a fuzz target without libFuzzer: runs each file of the folders named, whole and cut at every length, each
 * in a buffer of exactly its size so that AddressSanitizer sees any read behind it.  SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>

#include "base/io.h"
#include "fuzz.h"

#define MAX_SEED_BYTES ((size_t)1 << 20)
#define MAX_CUT_BYTES 8192 /* longer seeds are cut at this many places, evenly spread; --cuts=NUMBER, first, takes another number */

static void run_exact(const uint8_t *data, size_t bytes)
{
	naos_autofree uint8_t *copy = malloc(bytes ? bytes : 1);
	if (!copy)
		abort();
	memcpy(copy, data, bytes);
	(void)LLVMFuzzerTestOneInput(copy, bytes);
}

static void run_seed(int dir_fd, const char *name, size_t cuts)
{
	naos_autofree uint8_t *data = NULL;
	struct naos_error err = NAOS_ERROR_INIT;
	size_t bytes;
	if (naos_io_read_file(dir_fd, name, MAX_SEED_BYTES, &data, &bytes, &err) != 0) {
		fprintf(stderr, "%s\n", err.message);
		exit(1);
	}
	size_t step = bytes > cuts ? bytes / cuts : 1;
	for (size_t cut = 0; cut < bytes; cut += step)
		run_exact(data, cut);
	run_exact(data, bytes);
}

int main(int argc, char **argv)
{
	unsigned seeds = 0;
	size_t cuts = argc > 1 && strncmp(argv[1], "--cuts=", 7) == 0 ? strtoul(argv[1] + 7, NULL, 10) : 0;
	for (int i = cuts ? 2 : 1; i < argc; i++) {
		DIR *dir = opendir(argv[i]);
		if (!dir) {
			fprintf(stderr, "cannot open the folder of seeds %s\n", argv[i]);
			return 1;
		}
		for (struct dirent *entry; (entry = readdir(dir));)
			if (entry->d_name[0] != '.') {
				run_seed(dirfd(dir), entry->d_name, cuts ? cuts : MAX_CUT_BYTES);
				seeds++;
			}
		(void)closedir(dir);
	}
	printf("%u seeds\n", seeds);
	return seeds ? 0 : 1;
}

/* Files of GpuFitsCrypt, opened with the keys of the samples.  What comes out is a FITS file of whole blocks, or a refusal with a reason.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fits/legacy.h"
#include "fuzz.h"

#define MAX_BYTES ((size_t)1 << 20)

static struct naos_secret *key_of(uint8_t first, int step)
{
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_secret *key;
	uint8_t bytes[16];
	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(first + (int)i * step);
	if (naos_secret_take(bytes, sizeof(bytes), &key, &err) != 0)
		abort();
	return key;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	naos_autosecret struct naos_secret *header_key = key_of(0, 1), *data_key = key_of(0xf0, -16);
	struct naos_error err = NAOS_ERROR_INIT;
	enum naos_legacy_mode mode;
	struct stat status;
	char start[9];
	bool scaled;
	int fd = memfd_create("legacy", MFD_CLOEXEC), target = memfd_create("plain", MFD_CLOEXEC);
	if (bytes > MAX_BYTES || fd < 0 || target < 0 || pwrite(fd, data, bytes, 0) != (ssize_t)bytes)
		abort();
	bool known = naos_legacy_probe(fd, &mode);
	int rc = naos_legacy_open(fd, "legacy", header_key, data_key, target, &scaled, &err);
	if (rc != 0 && (err.code != rc || err.message[0] == 0))
		abort();
	if (rc == 0 && (!known || fstat(target, &status) != 0 || status.st_size % 2880 != 0 || pread(target, start, 9, 0) != 9 ||
			memcmp(start, "SIMPLE  =", 9) != 0))
		abort();
	(void)close(fd);
	(void)close(target);
	return 0;
}

/* Reads sealed files through lib/seal for a test that compares it with another reader.  Requests on standard input:
 *
 *   image BYTES ATTRIBUTE-BYTES FEK ALGORITHM\n   then the bytes of the file and of the attribute (-1: there is none)
 *   path FEK ALGORITHM PATH\n                     a file on disk, without attribute
 *
 * FEK in hex; ALGORITHM is what the file set demands (0: any).  One answer a line: "ok STATE SIZE DIGEST", or
 * "STAGE CODE message" with the stage open, read or verify.  SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "content_digest.h"
#include "unit/memory_store.h"

/* Nobody writes these files while they are read: their reader need not wait before it looks again. */
int nanosleep(const struct timespec *time, struct timespec *left)
{
	return 0;
}

/* Any wrapped key unwraps to the FEK of the request: what is wrapped is of no concern here. */
static int unwrap(void *context, const struct naos_wrap_context *wrap, const struct naos_blob *blob, struct naos_secret **ret,
		  struct naos_error *err)
{
	return naos_secret_clone(context, ret, err);
}

static void answer(struct naos_store *store, struct naos_secret *fek, unsigned algorithm)
{
	const struct naos_fek_source source = { .unwrap = unwrap, .context = fek, .algorithm = (enum naos_algorithm)algorithm };
	struct naos_sealed_file *file = NULL;
	struct naos_error err = NAOS_ERROR_INIT;
	char digest[DIGEST_TEXT_BYTES];
	const char *stage = "open";
	int rc = naos_sealed_file_open(store, NAOS_SEALED_READ, &source, &file, &err);
	if (rc == 0) {
		stage = "read";
		rc = content_digest(file, digest, &err);
	}
	if (rc == 0) {
		stage = "verify";
		rc = naos_sealed_file_verify(file, &err);
	}
	if (rc == 0)
		printf("ok %s %llu %s\n", naos_sealed_file_clean(file) ? "clean" : "unclean",
		       (unsigned long long)naos_sealed_file_size(file), digest);
	else
		printf("%s %s %s\n", stage, naos_error_info(rc)->name + strlen("NAOS_E_"), err.message);
	(void)fflush(stdout);
	if (file && naos_sealed_file_close(file, false, NULL) != 0)
		abort();
}

static void read_exactly(void *buffer, size_t bytes)
{
	if (fread(buffer, 1, bytes, stdin) != bytes)
		abort();
}

static struct naos_secret *parse_fek(const char *text)
{
	uint8_t bytes[NAOS_FEK_BYTES];
	struct naos_secret *fek;
	if (!naos_hex_parse(text, bytes, sizeof(bytes)) || naos_secret_take(bytes, sizeof(bytes), &fek, NULL) != 0)
		abort();
	return fek;
}

static void answer_image(size_t bytes, long attribute_bytes, const char *fek_text, unsigned algorithm)
{
	struct memory_file memory = { .bytes = bytes, .room = bytes, .data = malloc(bytes ? bytes : 1) };
	naos_autosecret struct naos_secret *fek = parse_fek(fek_text);
	if (!memory.data || attribute_bytes > (long)sizeof(memory.attribute))
		abort();
	read_exactly(memory.data, bytes);
	if (attribute_bytes >= 0) {
		memory.attribute_bytes = (size_t)attribute_bytes;
		read_exactly(memory.attribute, memory.attribute_bytes);
	}
	answer(memory_store(&memory), fek, algorithm);
	memory_file_free(&memory);
}

static void answer_path(const char *path, const char *fek_text, unsigned algorithm)
{
	naos_autosecret struct naos_secret *fek = parse_fek(fek_text);
	struct naos_store *store;
	struct naos_error err;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || naos_store_posix(fd, path, &store, &err) != 0)
		abort();
	answer(store, fek, algorithm);
}

int main(void)
{
	char line[4096], fek[65], path[4000];
	while (fgets(line, sizeof(line), stdin)) {
		size_t bytes;
		long attribute_bytes;
		unsigned algorithm;
		if (sscanf(line, "image %zu %ld %64s %u", &bytes, &attribute_bytes, fek, &algorithm) == 4)
			answer_image(bytes, attribute_bytes, fek, algorithm);
		else if (sscanf(line, "path %64s %u %3999[^\n]", fek, &algorithm, path) == 3)
			answer_path(path, fek, algorithm);
		else
			return 2;
	}
	return 0;
}

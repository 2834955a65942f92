/* Frames.  The first byte says what the rest is: 0 a whole frame, opened with a pair of keys; 1 a manifest, around which the rest of the
 * frame is built so that only its numbers are hostile; 2 the text of a section.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fits/cutout.h"
#include "fuzz.h"

#define MAX_BYTES ((size_t)1 << 20)

static void expect_reason(int rc, const struct naos_error *err)
{
	if (rc != 0 && (err->code != rc || err->message[0] == 0))
		abort(); /* a refusal always says why */
}

/* The keys of the golden frame: bytes 0 to 31 and 32 to 63. */
static int give(void *context, const struct naos_frame_manifest *manifest, enum naos_frame_part part, const struct naos_blob *blob,
		struct naos_secret **ret, struct naos_error *ret_why)
{
	uint8_t key[32];
	for (unsigned i = 0; i < sizeof(key); i++)
		key[i] = (uint8_t)((part - 1) * 32 + i);
	return naos_secret_take(key, sizeof(key), ret, ret_why);
}

static void open_frame(int fd)
{
	const struct naos_frame_source source = { .key = give };
	struct naos_error err = NAOS_ERROR_INIT;
	naos_autoframe struct naos_frame *frame = NULL;
	uint8_t piece[8192];
	size_t got;
	int rc = naos_frame_open_fd(fd, "frame", &source, &frame, &err);
	expect_reason(rc, &err);
	if (rc != 0)
		return;
	for (uint64_t at = 0; at < naos_frame_result_bytes(frame) && at < MAX_BYTES; at += sizeof(piece)) {
		rc = naos_frame_read_at(frame, piece, sizeof(piece), at, &got, &err);
		expect_reason(rc, &err);
		if (rc == 0 && (got == 0 || got > sizeof(piece)))
			abort();
	}
	expect_reason(naos_frame_verify(frame, &err), &err);
}

static int file_of(const uint8_t *data, size_t bytes)
{
	int fd = memfd_create("frame", MFD_CLOEXEC);
	if (fd < 0 || pwrite(fd, data, bytes, 0) != (ssize_t)bytes)
		abort();
	return fd;
}

static void use_manifest(const uint8_t *data, size_t bytes)
{
	struct naos_error err = NAOS_ERROR_INIT;
	naos_cleanup(naos_frame_manifest_free) struct naos_frame_manifest manifest = { .hdus = NULL };
	naos_cleanup(naos_container_free) struct naos_container container = { .rows = 0 };
	uint8_t *raw = malloc(bytes + 1);
	if (!raw)
		abort();
	memcpy(raw, data, bytes);
	int rc = naos_frame_manifest_decode(raw, bytes, &manifest, &err);
	expect_reason(rc, &err);
	if (rc != 0)
		return;
	rc = naos_container_lay_out(&manifest, &container, &err);
	expect_reason(rc, &err);
	if (rc != 0)
		return;
	/* what lies where never overlaps, and stays inside the file */
	if (container.keys_offset + NAOS_FRAME_KEYS_BYTES > container.rows_offset || container.rows_offset > container.heap_offset ||
	    container.heap_offset + container.heap_bytes > container.file_bytes || container.file_bytes > 2 * NAOS_FRAME_MAX_BYTES)
		abort();
	if (container.file_bytes > MAX_BYTES)
		return;
	int fd = file_of(container.head, container.head_bytes);
	if (pwrite(fd, manifest.raw, bytes, (off_t)container.manifest_offset) < 0 ||
	    pwrite(fd, container.middle, container.middle_bytes, (off_t)(container.rows_offset - container.middle_bytes)) < 0 ||
	    ftruncate(fd, (off_t)container.file_bytes) != 0)
		abort();
	open_frame(fd);
}

static void use_section(const uint8_t *data, size_t bytes)
{
	char text[256];
	struct naos_section section;
	struct naos_error err = NAOS_ERROR_INIT;
	bytes = bytes < sizeof(text) - 1 ? bytes : sizeof(text) - 1;
	memcpy(text, data, bytes);
	text[bytes] = 0;
	int rc = naos_section_parse(text, &section, &err);
	expect_reason(rc, &err);
	for (unsigned i = 0; rc == 0 && i < section.axes; i++)
		if (!section.whole[i] && (section.from[i] < 1 || section.to[i] < 1)) /* reversed is allowed */
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	if (bytes < 1 || bytes > MAX_BYTES)
		return 0;
	if (data[0] == 0)
		open_frame(file_of(data + 1, bytes - 1));
	else if (data[0] == 1)
		use_manifest(data + 1, bytes - 1);
	else
		use_section(data + 1, bytes - 1);
	return 0;
}

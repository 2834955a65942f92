/* Frames of version 1.  The first byte says what the rest is: 0 a whole frame, opened with the keys of the golden ones; 1 numbers and
 * texts of a shape, around which the rest of the container is built so that only they are hostile.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fits/container1.h"
#include "fits/frame.h"
#include "fuzz.h"

#define MAX_BYTES ((size_t)1 << 20)

static void expect_reason(int rc, const struct naos_error *err)
{
	if (rc != 0 && (err->code != rc || err->message[0] == 0))
		abort(); /* a refusal always says why */
}

/* Bytes 0, 1, 2, …; 0x80, 0x81, … */
static int give(void *context, const struct naos_frame_manifest *manifest, enum naos_frame_part part, const struct naos_blob *blob,
		struct naos_secret **ret, struct naos_error *ret_why)
{
	uint8_t key[32];
	for (unsigned i = 0; i < sizeof(key); i++)
		key[i] = (uint8_t)((part - 1) * 0x80 + i);
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
		if (rc != 0 || got == 0 || got > sizeof(piece))
			abort(); /* data of this version was verified when it was opened */
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

static int read_memory(void *context, void *buffer, size_t bytes, uint64_t offset, struct naos_error *err)
{
	const struct naos_cursor *memory = context;
	if (offset > memory->bytes || bytes > memory->bytes - offset)
		return naos_error_set(err, NAOS_E_INTEGRITY, "cut off");
	memcpy(buffer, memory->view + offset, bytes);
	return 0;
}

/* What was encoded is decoded to the same values, or refused. */
static void check_same(const struct naos_container1 *made, struct naos_cursor head)
{
	const struct naos_container1_file file = { .read = read_memory, .context = &head };
	struct naos_error err = NAOS_ERROR_INIT;
	naos_cleanup(naos_frame_manifest_free) struct naos_frame_manifest manifest = { .hdus = NULL };
	naos_cleanup(naos_container1_free) struct naos_container1 read = { .digits = NULL };
	uint8_t slots[2][NAOS_FRAME_SLOT_BYTES];
	bool used[2], damaged[2];
	int rc = naos_container1_decode(&file, &read, &manifest, slots, used, damaged, &err);
	expect_reason(rc, &err);
	if (rc != 0)
		return;
	if (read.bitpix != made->bitpix || read.axes != made->axes || memcmp(read.size, made->size, sizeof(read.size)) != 0 ||
	    read.header_bytes != made->header_bytes || read.data_bytes != made->data_bytes || used[0] || used[1] ||
	    read.data_offset != made->data_offset || read.file_bytes != made->file_bytes ||
	    read.file_bytes < read.data_offset + read.data_bytes)
		abort();
	for (unsigned i = 0; i < NAOS_FRAME1_SCALINGS; i++)
		if (strcmp(read.scaling[i], made->scaling[i]) != 0)
			abort();
}

static void use_shape(const uint8_t *data, size_t bytes)
{
	static const int types[] = { 8, 16, 32, 64, -32, -64, 24, 0 };
	struct naos_cursor in = naos_cursor_reader(data, bytes);
	struct naos_frame_manifest manifest = { .version = 1, .algorithm = naos_cursor_get_u8(&in) % 2 ? NAOS_AES_128_GCM : NAOS_AES_256_GCM };
	naos_cleanup(naos_container1_free) struct naos_container1 c = { .bitpix = types[naos_cursor_get_u8(&in) % 8] };
	const uint8_t *const none[2] = { NULL, NULL };
	struct naos_error err = NAOS_ERROR_INIT;
	naos_autofree uint8_t *head = NULL;
	size_t head_bytes;
	c.axes = naos_cursor_get_u8(&in) % (NAOS_FRAME1_MAX_AXES + 1);
	for (unsigned i = 0; i < c.axes; i++)
		c.size[i] = naos_cursor_get_u64(&in);
	c.header_bytes = (uint64_t)(naos_cursor_get_u8(&in) % 16) * 720;
	c.data_bytes = naos_cursor_get_u64(&in);
	for (unsigned i = 0; i < NAOS_FRAME1_SCALINGS; i++) {
		size_t length = naos_cursor_get_u8(&in) % NAOS_FRAME1_SCALING_BYTES;
		const uint8_t *text = naos_cursor_get_view(&in, length);
		if (text)
			memcpy(c.scaling[i], text, length);
		for (length = strlen(c.scaling[i]); length > 0 && c.scaling[i][length - 1] == ' ';)
			c.scaling[i][--length] = 0; /* as a writer does */
	}
	c.digits = malloc(2 * (size_t)c.header_bytes + 1);
	if (!c.digits)
		abort();
	memset(c.digits, 'a', 2 * (size_t)c.header_bytes);
	int rc = naos_container1_encode(&manifest, &c, none, &head, &head_bytes, &err);
	expect_reason(rc, &err);
	if (rc != 0)
		return;
	check_same(&c, naos_cursor_reader(head, head_bytes));
	int fd = file_of(head, head_bytes);
	if (c.file_bytes < MAX_BYTES && ftruncate(fd, (off_t)c.file_bytes) != 0)
		abort();
	open_frame(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	if (bytes < 1 || bytes > MAX_BYTES)
		return 0;
	if (data[0] == 0)
		open_frame(file_of(data + 1, bytes - 1));
	else
		use_shape(data + 1, bytes - 1);
	return 0;
}

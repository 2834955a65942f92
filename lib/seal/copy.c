/* Copying content.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>

#include "base/io.h"
#include "base/secret.h"

/* Steps begin where a group does and hold whole groups, so that ciphertext is read and written in long runs; they fit the
 * caches of a core. */
#define STEP_GROUPS 4
#define STEP_BYTES ((size_t)STEP_GROUPS * NAOS_GROUP_CHUNKS * NAOS_CHUNK_BYTES)

struct naos_copy_buffer {
	uint8_t *bytes; /* STEP_BYTES, page-aligned */
};

int naos_copy_buffer_create(struct naos_copy_buffer **ret, struct naos_error *err)
{
	struct naos_copy_buffer *buffer = calloc(1, sizeof(*buffer));
	void *bytes = mmap(NULL, STEP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (!buffer || bytes == MAP_FAILED) {
		free(buffer);
		if (bytes != MAP_FAILED)
			(void)munmap(bytes, STEP_BYTES);
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a copy buffer");
	}
	(void)madvise(bytes, STEP_BYTES, MADV_DONTDUMP); /* plaintext */
	buffer->bytes = bytes;
	*ret = buffer;
	return 0;
}

struct naos_copy_buffer *naos_copy_buffer_free(struct naos_copy_buffer *buffer)
{
	if (!buffer)
		return NULL;
	naos_wipe(buffer->bytes, STEP_BYTES);
	(void)munmap(buffer->bytes, STEP_BYTES);
	free(buffer);
	return NULL;
}

/* Bytes from offset to the end of its step, at most `bytes`. */
static size_t step_bytes(uint64_t offset, uint64_t bytes)
{
	uint64_t group = naos_layout_group(offset / NAOS_CHUNK_BYTES), next = group - group % STEP_GROUPS + STEP_GROUPS;
	uint64_t end = naos_layout_first(next) * NAOS_CHUNK_BYTES, room = end - offset;
	return (size_t)(room < bytes ? room : bytes);
}

/* --- sealing ------------------------------------------------------------------------------------------------------------ */

/* Until `bytes` are read or the stream ends.  A signal ends the wait for a silent writer. */
static int read_stream(int from, uint8_t *bytes, size_t count, size_t *ret_got, const char *name, const struct naos_tally *tally,
		       struct naos_error *err)
{
	size_t got = 0;
	while (got < count) {
		struct pollfd wait = { .fd = from, .events = POLLIN };
		int rc = naos_tally_go_on(tally, err);
		if (rc != 0)
			return rc;
		if (poll(&wait, 1, 1000) <= 0)
			continue;
		ssize_t some = read(from, bytes + got, count - got);
		if (some < 0 && errno != EINTR && errno != EAGAIN)
			return naos_error_set_errno(err, errno, "cannot read %s", name);
		if (some == 0)
			break;
		got += some > 0 ? (size_t)some : 0;
	}
	*ret_got = got;
	return 0;
}

int naos_copy_stream_in(struct naos_copy_buffer *buffer, int from, const char *name, struct naos_sealed_file *to,
			struct naos_tally *tally, uint64_t *ret_bytes, struct naos_error *err)
{
	uint64_t offset = 0;
	for (;;) {
		size_t got = 0, want = step_bytes(offset, STEP_BYTES);
		int rc = read_stream(from, buffer->bytes, want, &got, name, tally, err);
		if (rc == 0 && got)
			rc = naos_sealed_file_write(to, buffer->bytes, got, offset, err);
		if (rc != 0)
			return rc;
		offset += got;
		naos_tally_progress(tally, got);
		if (got < want) {
			*ret_bytes = offset;
			return 0;
		}
	}
}

/* The next range of data at or after offset; *ret_start = bytes if only a hole is left. */
static void next_data(int fd, uint64_t offset, uint64_t bytes, uint64_t *ret_start, uint64_t *ret_end)
{
	off_t start = lseek(fd, (off_t)offset, SEEK_DATA);
	*ret_start = start >= 0 ? (uint64_t)start : errno == ENXIO ? bytes : offset; /* no SEEK_DATA here: all of it is data */
	off_t end = start >= 0 ? lseek(fd, start, SEEK_HOLE) : -1;
	*ret_end = end > start && (uint64_t)end < bytes ? (uint64_t)end : bytes;
	if (*ret_start > bytes)
		*ret_start = bytes;
}

/* Data is taken in whole chunks; its ends lie on the blocks of the file system, which are at least that or divide it. */
static int copy_range_in(struct naos_copy_buffer *buffer, int from, const char *name, uint64_t start, uint64_t end,
			 struct naos_sealed_file *to, struct naos_tally *tally, struct naos_error *err)
{
	while (start < end) {
		size_t got, want = step_bytes(start, end - start);
		int rc = naos_tally_go_on(tally, err);
		if (rc == 0)
			rc = naos_io_pread(from, buffer->bytes, want, start, &got, name, err);
		if (rc == 0 && got < want)
			rc = naos_error_set(err, NAOS_E_CHANGED, "%s became shorter while it was read", name);
		if (rc == 0)
			rc = naos_sealed_file_write(to, buffer->bytes, got, start, err);
		if (rc != 0)
			return rc;
		naos_tally_progress(tally, got);
		start += got;
	}
	return 0;
}

int naos_copy_in(struct naos_copy_buffer *buffer, int from, const char *name, uint64_t bytes, struct naos_sealed_file *to,
		 struct naos_tally *tally, struct naos_error *err)
{
	for (uint64_t offset = 0, start, end; offset < bytes; offset = end) {
		next_data(from, offset, bytes, &start, &end);
		if (start >= bytes)
			break;
		int rc = copy_range_in(buffer, from, name, start, end, to, tally, err);
		if (rc != 0)
			return rc;
	}
	return naos_sealed_file_truncate(to, bytes, err);
}

/* --- opening ------------------------------------------------------------------------------------------------------------ */

static int put_out(int to, bool stream, const uint8_t *bytes, size_t count, uint64_t offset, const char *name,
		   struct naos_error *err)
{
	return stream ? naos_io_write(to, bytes, count, name, err) : naos_io_pwrite(to, bytes, count, offset, name, err);
}

/* A hole in a stream. */
static int put_zeros(struct naos_copy_buffer *buffer, int to, uint64_t count, const char *name, struct naos_tally *tally,
		     struct naos_error *err)
{
	memset(buffer->bytes, 0, count < STEP_BYTES ? (size_t)count : STEP_BYTES);
	while (count) {
		size_t step = count < STEP_BYTES ? (size_t)count : STEP_BYTES;
		int rc = naos_tally_go_on(tally, err);
		if (rc == 0)
			rc = naos_io_write(to, buffer->bytes, step, name, err);
		if (rc != 0)
			return rc;
		naos_tally_progress(tally, step);
		count -= step;
	}
	return 0;
}

/* Plaintext of a sealed file, all of it. */
static int read_step(struct naos_sealed_file *from, unsigned char *bytes, size_t count, uint64_t offset, struct naos_error *err)
{
	size_t got;
	int rc = naos_sealed_file_read(from, bytes, count, offset, &got, err);
	if (rc == 0 && got < count)
		rc = naos_error_set(err, NAOS_E_CHANGED, "%s became shorter while it was read", naos_sealed_file_store(from)->name);
	return rc;
}

static int copy_range_out(struct naos_copy_buffer *buffer, struct naos_sealed_file *from, uint64_t start, uint64_t end,
			  int to, bool stream, const char *name, struct naos_tally *tally, struct naos_error *err)
{
	while (start < end) {
		size_t want = step_bytes(start, end - start);
		int rc = naos_tally_go_on(tally, err);
		if (rc == 0)
			rc = read_step(from, buffer->bytes, want, start, err);
		if (rc == 0)
			rc = put_out(to, stream, buffer->bytes, want, start, name, err);
		if (rc != 0)
			return rc;
		naos_tally_progress(tally, want);
		start += want;
	}
	return 0;
}

/* True if the page is a map page, which stays unwritten in a file without large holes. */
static bool is_map_page(uint64_t page)
{
	uint64_t map = 0;
	while (naos_layout_map_page(map) < page)
		map++;
	return naos_layout_map_page(map) == page;
}

bool naos_copy_is_dense(const struct naos_sealed_file *file, int fd)
{
	off_t end = lseek(fd, 0, SEEK_END), at = 0;
	if (naos_sealed_file_sparse(file))
		return false; /* told by the map also where the file system tells no holes apart */
	while (at < end) {
		off_t hole = lseek(fd, at, SEEK_HOLE), data;
		if (hole < 0)
			return false;
		if (hole == end)
			return true;
		data = lseek(fd, hole, SEEK_DATA);
		if (data != hole + (off_t)NAOS_CHUNK_BYTES || !is_map_page((uint64_t)hole / NAOS_CHUNK_BYTES))
			return false;
		at = data;
	}
	return true;
}

int naos_copy_out(struct naos_copy_buffer *buffer, struct naos_sealed_file *from, bool dense, int to, bool stream,
		  const char *name, struct naos_tally *tally, struct naos_error *err)
{
	uint64_t size = naos_sealed_file_size(from);
	int rc = 0;
	for (uint64_t offset = 0, start = 0, end = size; rc == 0 && offset < size; offset = end) {
		rc = dense ? 0 : naos_sealed_file_next_data(from, offset, &start, &end, err);
		if (rc == 0 && stream && start > offset)
			rc = put_zeros(buffer, to, start - offset, name, tally, err);
		if (rc == 0 && start < end)
			rc = copy_range_out(buffer, from, start, end, to, stream, name, tally, err);
	}
	if (rc == 0 && !stream && ftruncate(to, (off_t)size) != 0)
		rc = naos_error_set_errno(err, errno, "cannot set the size of %s", name);
	return rc;
}

/* --- sealed to sealed --------------------------------------------------------------------------------------------------- */

static int copy_range_over(struct naos_copy_buffer *buffer, struct naos_sealed_file *from, uint64_t start, uint64_t end,
			   struct naos_sealed_file *to, struct naos_tally *tally, struct naos_error *err)
{
	while (start < end) {
		size_t want = step_bytes(start, end - start);
		int rc = naos_tally_go_on(tally, err);
		if (rc == 0)
			rc = read_step(from, buffer->bytes, want, start, err);
		if (rc == 0)
			rc = naos_sealed_file_write(to, buffer->bytes, want, start, err);
		if (rc != 0)
			return rc;
		naos_tally_progress(tally, want);
		start += want;
	}
	return 0;
}

int naos_copy_sealed(struct naos_copy_buffer *buffer, struct naos_sealed_file *from, struct naos_sealed_file *to,
		     struct naos_tally *tally, struct naos_error *err)
{
	uint64_t size = naos_sealed_file_size(from);
	int rc = 0;
	for (uint64_t offset = 0, start, end; rc == 0 && offset < size; offset = end) {
		rc = naos_sealed_file_next_data(from, offset, &start, &end, err);
		if (rc == 0 && start < end)
			rc = copy_range_over(buffer, from, start, end, to, tally, err);
	}
	return rc ? rc : naos_sealed_file_truncate(to, size, err);
}

/* --- sealed beside plain ------------------------------------------------------------------------------------------------ */

int naos_copy_compare(struct naos_copy_buffer *buffer, int plain, const char *name, struct naos_sealed_file *sealed,
		      const struct naos_tally *tally, struct naos_error *err)
{
	const size_t half = STEP_BYTES / 2;
	for (uint64_t offset = 0;; offset += half) {
		size_t got = 0, opened = 0;
		int rc = naos_tally_go_on(tally, err);
		if (rc == 0)
			rc = naos_io_pread(plain, buffer->bytes, half, offset, &got, name, err);
		if (rc == 0)
			rc = naos_sealed_file_read(sealed, buffer->bytes + half, half, offset, &opened, err);
		if (rc == 0 && (got != opened || memcmp(buffer->bytes, buffer->bytes + half, got) != 0))
			rc = naos_error_set(err, NAOS_E_INTEGRITY, "%s: what was sealed does not read back as it is", name);
		if (rc != 0 || got < half)
			return rc;
	}
}

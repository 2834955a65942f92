/* A whole small sealed file, opened and used through a store in memory.  Input: a byte of options, the size of the file
 * (u32), then pages: number (u16) and 4096 bytes each (the last may be cut); other pages are zero.
 *
 * Options: 1 the file is made authentic first, as a malicious holder of its key would; 2 it is opened for writing, which recovers
 * it, and changed; 4 one change fails for lack of space.  What a writer sealed must open again.  The look without a key must find
 * nothing wrong in a sealed file in which the one with the key finds nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <time.h>

#include "base/cursor.h"
#include "fuzz.h"
#include "seal/inspect.h"
#include "seal/page0.h"
#include "seal_fixup.h"
#include "unit/memory_store.h"

#define MAX_BYTES ((size_t)1 << 20)      /* as it is read */
#define MAX_GROWN_BYTES ((size_t)8 << 20) /* while it is written */
enum { AUTHENTIC = 1, WRITE = 2, FULL = 4 };

/* Nobody writes these files while they are read: their reader need not wait before it looks again. */
int nanosleep(const struct timespec *time, struct timespec *left)
{
	return 0;
}

static int unwrap(void *context, const struct naos_wrap_context *wrap, const struct naos_blob *blob, struct naos_secret **ret,
		  struct naos_error *err)
{
	*ret = fixup_fek();
	return 0;
}

static int open_file(struct memory_file *memory, enum naos_sealed_mode mode, struct naos_sealed_file **ret)
{
	const struct naos_fek_source source = { .unwrap = unwrap };
	struct naos_error err = NAOS_ERROR_INIT;
	int rc = naos_sealed_file_open(memory_store(memory), mode, &source, ret, &err);
	if (rc != 0 && (err.code != rc || err.message[0] == 0))
		abort(); /* a refusal always says why */
	return rc;
}

static bool inspect(struct memory_file *memory)
{
	const struct naos_inspect_demand demand = { .algorithm = 0 };
	struct naos_store *store = memory_store(memory);
	struct naos_error err = NAOS_ERROR_INIT;
	uint64_t size;
	bool clean;
	int rc = naos_sealed_inspect(store, &demand, &clean, &size, &err);
	if (rc != 0 && (err.code != rc || err.message[0] == 0))
		abort();
	store->ops->close(store);
	return rc == 0;
}

static bool build(const uint8_t *data, size_t bytes, struct memory_file *memory)
{
	struct naos_cursor r = naos_cursor_reader(data, bytes);
	(void)naos_cursor_get_u8(&r);
	memory->bytes = naos_cursor_get_u32(&r);
	if (!naos_cursor_ok(&r) || memory->bytes > MAX_BYTES)
		return false;
	memory->room = memory->bytes;
	memory->limit = MAX_GROWN_BYTES;
	memory->data = calloc(1, memory->bytes ? memory->bytes : 1);
	if (!memory->data)
		abort();
	while (naos_cursor_left(&r) > 2) {
		size_t offset = (size_t)naos_cursor_get_u16(&r) * NAOS_CHUNK_BYTES, left = naos_cursor_left(&r);
		size_t take = left < NAOS_CHUNK_BYTES ? left : NAOS_CHUNK_BYTES;
		const uint8_t *page = naos_cursor_get_view(&r, take);
		if (offset < memory->bytes)
			memcpy(memory->data + offset, page, take < memory->bytes - offset ? take : memory->bytes - offset);
	}
	return true;
}

/* Reads the ends and some of the middle, walks along the data, checks all. */
static void read_file(struct naos_sealed_file *file)
{
	static uint8_t buffer[100000];
	uint64_t size = naos_sealed_file_size(file), start = 0, end = 0;
	const uint64_t places[] = { 0, 1, size / 2, size > 5000 ? size - 5000 : 0, size, UINT64_MAX };
	size_t got;
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(places); i++)
		if (naos_sealed_file_read(file, buffer, sizeof(buffer), places[i], &got, NULL) == 0 &&
		    got != (places[i] >= size ? 0 : size - places[i] < sizeof(buffer) ? size - places[i] : sizeof(buffer)))
			abort();
	for (unsigned i = 0; i < 50 && start < size; i++, start = end)
		if (naos_sealed_file_next_data(file, start, &start, &end, NULL) != 0 || end <= start)
			break;
	(void)(naos_sealed_file_verify(file, NULL) != 0);
}

static int change_file(struct naos_sealed_file *file)
{
	static const uint8_t text[6000] = "text";
	uint64_t size = naos_sealed_file_size(file);
	int rc = naos_sealed_file_write(file, text, sizeof(text), 4000, NULL);
	rc = rc ? rc : naos_sealed_file_punch(file, 4096, 9000, NULL);
	rc = rc ? rc : naos_sealed_file_flush(file, NULL);
	rc = rc ? rc : naos_sealed_file_truncate(file, size / 2, NULL);
	rc = rc ? rc : naos_sealed_file_truncate(file, size / 2 + 300000, NULL);
	return rc ? rc : naos_sealed_file_write(file, text, 10, size / 2 + 200000, NULL);
}

static void write_file(struct memory_file *memory, bool full)
{
	struct naos_sealed_file *file;
	if (open_file(memory, NAOS_SEALED_LOCAL, &file) != 0)
		return;
	memory->fail_write_after = full ? 9 : 0;
	(void)(change_file(file) != 0);
	memory->fail_write_after = 0;
	if (naos_sealed_file_close(file, true, NULL) != 0)
		return;
	if (open_file(memory, NAOS_SEALED_READ, &file) != 0)
		abort();
	if (!naos_sealed_file_clean(file))
		abort();
	read_file(file);
	(void)(naos_sealed_file_close(file, false, NULL) != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct memory_file memory = { 0 };
	struct naos_sealed_file *file;
	if (!build(data, bytes, &memory))
		return 0;
	if (data[0] & AUTHENTIC)
		fixup_file(memory.data, memory.bytes);
	bool passes = inspect(&memory);
	if (open_file(&memory, NAOS_SEALED_READ, &file) == 0) {
		read_file(file);
		if (!passes && naos_sealed_file_clean(file) && naos_sealed_file_verify(file, NULL) == 0)
			abort();
		(void)(naos_sealed_file_close(file, false, NULL) != 0);
	}
	if (data[0] & WRITE)
		write_file(&memory, data[0] & FULL);
	memory_file_free(&memory);
	return 0;
}

/* A store in memory for tests.  SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "memory_store.h"

struct memory_store {
	struct naos_store store;
	struct memory_file *file;
};

static struct memory_file *file_of(struct naos_store *store)
{
	return ((struct memory_store *)store)->file;
}

static int memory_read(struct naos_store *store, void *buffer, size_t bytes, uint64_t offset, size_t *ret_bytes, struct naos_error *err)
{
	struct memory_file *file = file_of(store);
	size_t got = offset >= file->bytes ? 0 : file->bytes - (size_t)offset;
	got = got < bytes ? got : bytes;
	if (got)
		memcpy(buffer, file->data + offset, got);
	if (file->torn_reads && file->torn_offset >= offset && file->torn_offset < offset + got) {
		((uint8_t *)buffer)[file->torn_offset - offset] ^= 1;
		file->torn_reads--;
	}
	*ret_bytes = got;
	return 0;
}

static int memory_resize(struct naos_store *store, uint64_t bytes, struct naos_error *err)
{
	struct memory_file *file = file_of(store);
	if (file->limit && bytes > file->limit)
		return naos_error_set(err, NAOS_E_NOSPACE, "memory: no space for %llu bytes", (unsigned long long)bytes);
	if (bytes > file->room) {
		size_t room = (size_t)bytes + ((size_t)bytes >> 1);
		file->data = realloc(file->data, room);
		assert_non_null(file->data);
		file->room = room;
	}
	if (bytes > file->bytes)
		memset(file->data + file->bytes, 0, (size_t)bytes - file->bytes);
	file->bytes = (size_t)bytes;
	return 0;
}

static int memory_write(struct naos_store *store, const void *buffer, size_t bytes, uint64_t offset, struct naos_error *err)
{
	struct memory_file *file = file_of(store);
	file->writes++;
	if (file->fail_write_after && --file->fail_write_after == 0)
		return naos_error_set(err, NAOS_E_NOSPACE, "memory: no space (planted)");
	int rc = offset + bytes > file->bytes ? memory_resize(store, offset + bytes, err) : 0;
	if (rc != 0)
		return rc;
	memcpy(file->data + offset, buffer, bytes);
	return 0;
}

static int memory_flush(struct naos_store *store, struct naos_error *err)
{
	file_of(store)->flushes++;
	return file_of(store)->fail_flush ? naos_error_set(err, NAOS_E_SYSTEM, "memory: flush failed (planted)") : 0;
}

static int memory_size(struct naos_store *store, uint64_t *ret_bytes, struct naos_error *err)
{
	*ret_bytes = file_of(store)->bytes;
	return 0;
}

static int memory_deallocate(struct naos_store *store, uint64_t offset, uint64_t bytes, struct naos_error *err)
{
	struct memory_file *file = file_of(store);
	if (offset < file->bytes)
		memset(file->data + offset, 0, bytes < file->bytes - offset ? (size_t)bytes : file->bytes - (size_t)offset);
	return 0;
}

static int memory_reserve(struct naos_store *store, uint64_t offset, uint64_t bytes, struct naos_error *err)
{
	struct memory_file *file = file_of(store);
	if (file->fail_reserve)
		return naos_error_set(err, NAOS_E_NOSPACE, "memory: no space to reserve (planted)");
	file->reserved_from = offset;
	file->reserved_to = offset + bytes;
	return 0;
}

static int memory_next_data(struct naos_store *store, uint64_t offset, uint64_t *ret_offset, struct naos_error *err)
{
	*ret_offset = offset < file_of(store)->bytes ? offset : UINT64_MAX;
	return 0;
}

static int memory_lock(struct naos_store *store, uint64_t offset, uint64_t bytes, enum naos_lock lock, bool wait, struct naos_error *err)
{
	struct memory_file *file = file_of(store);
	void (*on_wait)(struct memory_file *) = file->on_wait;
	if (!on_wait || lock == NAOS_UNLOCK)
		return 0;
	if (!wait)
		return naos_error_set(err, NAOS_E_BUSY, "memory: another writer has it (planted)");
	file->on_wait = NULL;
	on_wait(file);
	return 0;
}

static int memory_get_attribute(struct naos_store *store, void *value, size_t room, size_t *ret_bytes, struct naos_error *err)
{
	struct memory_file *file = file_of(store);
	assert_true(room >= file->attribute_bytes);
	memcpy(value, file->attribute, file->attribute_bytes);
	*ret_bytes = file->attribute_bytes;
	return 0;
}

static int memory_set_attribute(struct naos_store *store, const void *value, size_t bytes, struct naos_error *err)
{
	struct memory_file *file = file_of(store);
	assert_true(bytes <= sizeof(file->attribute));
	memcpy(file->attribute, value, bytes);
	file->attribute_bytes = bytes;
	return 0;
}

static void memory_close(struct naos_store *store)
{
	free(store);
}

static const struct naos_store_ops memory_ops = {
	.read = memory_read, .write = memory_write, .flush = memory_flush, .resize = memory_resize, .size = memory_size,
	.deallocate = memory_deallocate, .next_data = memory_next_data, .reserve = memory_reserve, .lock = memory_lock,
	.get_attribute = memory_get_attribute, .set_attribute = memory_set_attribute, .close = memory_close,
};

struct naos_store *memory_store(struct memory_file *file)
{
	struct memory_store *self = calloc(1, sizeof(*self));
	assert_non_null(self);
	*self = (struct memory_store){ .store = { .ops = &memory_ops, .name = "memory" }, .file = file };
	return &self->store;
}

void memory_file_free(struct memory_file *file)
{
	free(file->data);
	*file = (struct memory_file){ 0 };
}

void test_key_make(struct test_key *key, uint8_t seed, uint32_t mek_version)
{
	uint8_t bytes[NAOS_FEK_BYTES];
	memset(bytes, seed, sizeof(bytes));
	assert_int_equal(naos_secret_take(bytes, sizeof(bytes), &key->fek, NULL), 0);
	key->blob = (struct naos_blob){
		.mek_version = mek_version, .algorithm = NAOS_WRAP_AES_256_GCM, .iv_bytes = 12, .ciphertext_bytes = 64,
	};
	memset(key->blob.mek_id.bytes, 0x42, sizeof(key->blob.mek_id.bytes));
	memset(key->blob.ciphertext, seed ^ 0x5a, key->blob.ciphertext_bytes);
}

static int test_unwrap(void *context, const struct naos_wrap_context *wrap, const struct naos_blob *blob, struct naos_secret **ret,
		       struct naos_error *err)
{
	struct test_key *key = context;
	if (blob->mek_version != key->blob.mek_version)
		return naos_error_set(err, NAOS_E_NOKEY, "no such MEK version");
	if (memcmp(blob->ciphertext, key->blob.ciphertext, sizeof(blob->ciphertext)) != 0)
		return naos_error_set(err, NAOS_E_INTEGRITY, "the wrapped key was changed");
	return naos_secret_clone(key->fek, ret, err);
}

struct naos_fek_source test_key_source(struct test_key *key)
{
	return (struct naos_fek_source){ .unwrap = test_unwrap, .context = key };
}

struct naos_sealed_file *test_create(struct memory_file *memory, struct test_key *key, bool unpublished)
{
	struct naos_sealed_new what = {
		.mode = NAOS_SEALED_LOCAL, .algorithm = NAOS_AES_256_GCM, .fek = key->fek, .blob = &key->blob, .unpublished = unpublished,
	};
	struct naos_sealed_file *file;
	struct naos_error err;
	memset(what.file_id.bytes, 0x11, 16);
	memset(what.fileset_id.bytes, 0x22, 16);
	assert_ok(naos_sealed_file_create(memory_store(memory), &what, &file, &err), &err);
	return file;
}

int test_open(struct memory_file *memory, struct test_key *key, enum naos_sealed_mode mode, struct naos_sealed_file **ret,
	      struct naos_error *err)
{
	const struct naos_fek_source source = test_key_source(key);
	return naos_sealed_file_open(memory_store(memory), mode, &source, ret, err);
}

/* A store in memory for tests of lib/seal, and the smallest key source: no HSM, a FEK that the test knows.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_TESTS_MEMORY_STORE_H
#define NAOS_TESTS_MEMORY_STORE_H

#include "seal/sealed_file.h"

/* Bytes and attribute of one file; outlives the stores opened on it. */
struct memory_file {
	uint8_t *data;
	size_t bytes, room;
	uint8_t attribute[NAOS_NEW_ATTRIBUTE_BYTES];
	size_t attribute_bytes;
	unsigned writes, flushes; /* counted for tests that compare costs */
	int fail_write_after;     /* > 0: the n-th write from now fails with NAOS_E_NOSPACE; 0: never */
	bool fail_flush;
	uint64_t reserved_from, reserved_to; /* the last range whose blocks were asked for */
	bool fail_reserve;
	size_t torn_offset; /* a byte that the next torn_reads reads of it see changed, as beside a writer */
	unsigned torn_reads;
	void (*on_wait)(struct memory_file *file); /* another writer holds its locks, until one is waited for: this is what it did */
	size_t limit; /* > 0: the file does not grow beyond it (NAOS_E_NOSPACE) */
};

struct naos_store *memory_store(struct memory_file *file);
void memory_file_free(struct memory_file *file);

/* An FEK made of one byte repeated, the blob that stands for it, and a source that unwraps only this blob. */
struct test_key {
	struct naos_secret *fek;
	struct naos_blob blob;
};
void test_key_make(struct test_key *key, uint8_t seed, uint32_t mek_version);
struct naos_fek_source test_key_source(struct test_key *key);

struct naos_sealed_file *test_create(struct memory_file *memory, struct test_key *key, bool unpublished);
int test_open(struct memory_file *memory, struct test_key *key, enum naos_sealed_mode mode, struct naos_sealed_file **ret,
	      struct naos_error *err);

#endif

/* Makes sealed files through lib/seal for tests: make_sealed golden FOLDER, or make_sealed random FOLDER SEED COUNT.
 *
 * golden writes the files of tests/data/sealed (its README says what they are).  random writes COUNT files N.sealed that
 * random operations left behind, N.attribute and index.txt; a third of them is sealed, a third unclean, and a third
 * is what a writer left whose n-th write failed (half of these sealed).  Keys are fixed and for tests only.
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <openssl/evp.h>

#include "base/cursor.h"
#include "base/io.h"
#include "content_digest.h"
#include "unit/memory_store.h"

#define MEK_BYTE 0x4d
#define SMALL_HOLES 8 /* from so many zero pages on, a file is stored as its other pages */

static struct naos_error err = NAOS_ERROR_INIT;

static void must(int rc)
{
	if (rc == 0)
		return;
	fprintf(stderr, "make_sealed: %s\n", err.message);
	exit(1);
}

/* --- the file being made ------------------------------------------------------------------------------------------------- */

struct maker {
	const char *folder;
	FILE *index;
	char name[64];
	uint8_t seed;
	struct naos_sealed_new what;
	struct naos_secret *fek;
	struct naos_blob blob;
	struct memory_file memory;
	char *disk; /* path of a sparse file, for what is too large for memory; else NULL */
	struct naos_sealed_file *file;
};

static struct naos_store *store_of(struct maker *m)
{
	struct naos_store *store;
	if (!m->disk)
		return memory_store(&m->memory);
	int fd = open(m->disk, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0) {
		perror(m->disk);
		exit(1);
	}
	must(naos_store_posix(fd, m->disk, &store, &err));
	return store;
}

/* The FEK wrapped as docs/formats/wrapped-key.md says, by the test MEK (32 bytes of MEK_BYTE). */
static void wrap(const struct maker *m, uint32_t mek_version, uint8_t mek_id_byte, struct naos_blob *ret)
{
	const struct naos_wrap_context context = { .kind = NAOS_WRAP_FILE, .group_id = m->what.fileset_id, .object_id = m->what.file_id };
	uint8_t associated[NAOS_BLOB_ASSOCIATED_BYTES], plain[NAOS_FEK_BYTES + 32], mek_bytes[32];
	naos_autosecret struct naos_secret *mek = NULL;
	struct naos_gcm_key *key;
	*ret = (struct naos_blob){
		.mek_version = mek_version, .algorithm = NAOS_WRAP_AES_256_GCM, .iv_bytes = 12, .ciphertext_bytes = sizeof(plain),
	};
	memset(ret->mek_id.bytes, mek_id_byte, sizeof(ret->mek_id.bytes));
	memset(ret->iv, (int)(m->seed + mek_version), ret->iv_bytes);
	naos_blob_associated(&context, ret, associated);
	memset(plain, m->seed, NAOS_FEK_BYTES);
	(void)EVP_Digest(associated, sizeof(associated), plain + NAOS_FEK_BYTES, NULL, EVP_sha256(), NULL);
	memset(mek_bytes, MEK_BYTE, sizeof(mek_bytes));
	must(naos_secret_take(mek_bytes, sizeof(mek_bytes), &mek, &err));
	must(naos_gcm_key_create(NAOS_AES_256_GCM, mek, &key, &err));
	must(naos_gcm_seal(key, &(struct naos_gcm_message){ .nonce = ret->iv, .associated = associated, .associated_bytes = sizeof(associated),
			   .in = plain, .out = ret->ciphertext, .bytes = sizeof(plain), .tag = ret->tag }, &err));
	(void)naos_gcm_key_free(key);
}

static int unwrap(void *context, const struct naos_wrap_context *unused, const struct naos_blob *blob, struct naos_secret **ret,
		  struct naos_error *error)
{
	return naos_secret_clone(((struct maker *)context)->fek, ret, error);
}

static void reopen(struct maker *m, enum naos_sealed_mode mode)
{
	const struct naos_fek_source source = { .unwrap = unwrap, .context = m };
	must(naos_sealed_file_open(store_of(m), mode, &source, &m->file, &err));
}

static void close_file(struct maker *m, bool seal)
{
	must(naos_sealed_file_close(m->file, seal, &err));
	m->file = NULL;
}

/* A new file under a FEK of 32 bytes `seed`. */
static void begin(struct maker *m, const char *name, uint8_t seed, enum naos_algorithm algorithm)
{
	uint8_t fek[NAOS_FEK_BYTES];
	(void)snprintf(m->name, sizeof(m->name), "%s", name);
	m->seed = seed;
	memset(fek, seed, sizeof(fek));
	must(naos_secret_take(fek, sizeof(fek), &m->fek, &err));
	m->what = (struct naos_sealed_new){ .mode = NAOS_SEALED_LOCAL, .algorithm = algorithm, .fek = m->fek, .blob = &m->blob };
	memset(m->what.file_id.bytes, seed ^ 0x55, NAOS_UUID_BYTES);
	memset(m->what.fileset_id.bytes, 0xf5, NAOS_UUID_BYTES);
	wrap(m, 1, 0xae, &m->blob);
	must(naos_sealed_file_create(store_of(m), &m->what, &m->file, &err));
}

static void save_pages(const struct maker *m, struct naos_store *store, FILE *out, bool sparse)
{
	uint64_t size, data;
	uint8_t page[NAOS_CHUNK_BYTES], number[8];
	must(store->ops->size(store, &size, &err));
	for (uint64_t at = 0; at < size; at += sizeof(page)) {
		size_t got;
		must(store->ops->next_data(store, at, &data, &err));
		if (sparse && data >= size)
			break;
		at = sparse ? data / sizeof(page) * sizeof(page) : at;
		must(store->ops->read(store, page, sizeof(page), at, &got, &err));
		if (sparse && naos_is_zero(page, got))
			continue;
		struct naos_cursor w = naos_cursor_writer(number, sizeof(number));
		naos_cursor_put_u64(&w, at / sizeof(page));
		if (sparse) {
			memset(page + got, 0, sizeof(page) - got);
			got = sizeof(page);
			(void)fwrite(number, 1, sizeof(number), out);
		}
		(void)fwrite(page, 1, got, out);
	}
	if (sparse) { /* a number that no page has, and the size */
		struct naos_cursor w = naos_cursor_writer(page, 16);
		naos_cursor_put_u64(&w, UINT64_MAX);
		naos_cursor_put_u64(&w, size);
		(void)fwrite(page, 1, 16, out);
	}
	if (ferror(out)) {
		fprintf(stderr, "make_sealed: cannot write %s\n", m->name);
		exit(1);
	}
}

static FILE *create(const struct maker *m, const char *suffix)
{
	char path[4096];
	(void)snprintf(path, sizeof(path), "%s/%s%s", m->folder, m->name, suffix);
	FILE *out = fopen(path, "wbe");
	if (!out) {
		perror(path);
		exit(1);
	}
	return out;
}

static bool is_sparse(const struct maker *m)
{
	unsigned zeros = 0;
	for (size_t at = 0; at + NAOS_CHUNK_BYTES <= m->memory.bytes; at += NAOS_CHUNK_BYTES)
		zeros += naos_is_zero(m->memory.data + at, NAOS_CHUNK_BYTES);
	return m->disk || zeros >= SMALL_HOLES;
}

/* Opening an unclean file for writing recovers it; what comes out is sound and reads the same. */
static void recover_copy(struct maker *m, const char *digest)
{
	char after[DIGEST_TEXT_BYTES];
	reopen(m, NAOS_SEALED_LOCAL);
	close_file(m, true);
	reopen(m, NAOS_SEALED_READ);
	must(content_digest(m->file, after, &err));
	if (strcmp(digest, after) != 0 || !naos_sealed_file_clean(m->file)) {
		fprintf(stderr, "make_sealed: %s reads otherwise after its recovery\n", m->name);
		exit(1);
	}
	must(naos_sealed_file_verify(m->file, &err));
	close_file(m, true);
}

/* Stores the file and its line in the index: name, algorithm, FEK, state, size, digest. */
static void end(struct maker *m)
{
	char digest[DIGEST_TEXT_BYTES], fek[2 * NAOS_FEK_BYTES + 1];
	uint8_t bytes[NAOS_FEK_BYTES];
	bool sparse = is_sparse(m);
	struct naos_store *store = store_of(m);
	FILE *out = create(m, sparse ? ".pages" : ".sealed");
	save_pages(m, store, out, sparse);
	(void)fclose(out);
	store->ops->close(store);
	if (m->memory.attribute_bytes) {
		out = create(m, ".attribute");
		(void)fwrite(m->memory.attribute, 1, m->memory.attribute_bytes, out);
		(void)fclose(out);
	}
	reopen(m, NAOS_SEALED_READ);
	must(content_digest(m->file, digest, &err));
	memset(bytes, m->seed, sizeof(bytes));
	fprintf(m->index, "%s %d %s %s %llu %s\n", m->name, (int)m->what.algorithm, naos_hex_format(bytes, sizeof(bytes), fek),
		naos_sealed_file_clean(m->file) ? "clean" : "unclean", (unsigned long long)naos_sealed_file_size(m->file), digest);
	close_file(m, false);
	if (!m->disk)
		recover_copy(m, digest);
	m->fek = naos_secret_free(m->fek);
	memory_file_free(&m->memory);
	if (m->disk)
		(void)unlink(m->disk);
	free(m->disk);
	m->disk = NULL;
}

/* --- what is written ----------------------------------------------------------------------------------------------------- */

static uint64_t random_state = 88172645463325252u;

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* `bytes` of noise at offset; the same for the same file. */
static int put(struct maker *m, uint64_t offset, size_t bytes)
{
	naos_autofree uint8_t *text = malloc(bytes ? bytes : 1);
	if (!text)
		abort();
	for (size_t i = 0; i < bytes; i++)
		text[i] = (uint8_t)(next_random() >> 24);
	return naos_sealed_file_write(m->file, text, bytes, offset, &err);
}

static void plain(struct maker *m, const char *name, uint8_t seed, enum naos_algorithm algorithm, size_t bytes)
{
	begin(m, name, seed, algorithm);
	must(put(m, 0, bytes));
	close_file(m, true);
	end(m);
}

static void make_holes(struct maker *m)
{
	begin(m, "groups-with-holes", 6, NAOS_AES_256_GCM);
	must(put(m, 0, 9000));                                /* group 0: two chunks and a bit */
	must(naos_sealed_file_punch(m->file, 4096, 4096, &err));
	must(put(m, (18 + 48 + 5) * 4096 + 100, 5000));       /* group 2; group 1 is a hole by the map */
	must(put(m, (18 + 48 * 3) * 4096, 3));                /* group 4 */
	must(naos_sealed_file_truncate(m->file, (18 + 48 * 5 + 7) * 4096 + 1234, &err)); /* ends in a hole of group 6 */
	close_file(m, true);
	reopen(m, NAOS_SEALED_LOCAL);
	must(put(m, (18 + 48 * 4 + 30) * 4096, 4096));        /* fills group 5, which was a hole */
	close_file(m, true);
	end(m);
}

static void make_map_pages(struct maker *m)
{
	char path[4096];
	(void)snprintf(path, sizeof(path), "%s/%s", m->folder, "map-pages.temporary");
	m->disk = strdup(path);
	begin(m, "map-pages", 7, NAOS_AES_256_GCM);
	must(put(m, 0, 10));
	must(put(m, (uint64_t)100 << 20, 5000));
	must(put(m, (uint64_t)(18 + 48 * 31744) * 4096 + 12345, 4096)); /* first group of the second map page */
	must(naos_sealed_file_truncate(m->file, (uint64_t)7 << 30, &err));
	close_file(m, true);
	end(m);
}

static void make_truncated(struct maker *m)
{
	begin(m, "truncated", 8, NAOS_AES_256_GCM);
	must(put(m, 0, 25 * 4096));
	close_file(m, true);
	reopen(m, NAOS_SEALED_LOCAL);
	must(naos_sealed_file_truncate(m->file, 4 * 4096 + 77, &err)); /* leaves truncated-away entries behind the end */
	close_file(m, true);
	end(m);
}

static void make_many_versions(struct maker *m)
{
	begin(m, "many-versions", 9, NAOS_AES_256_GCM);
	for (int i = 0; i < 1100; i++) { /* beyond seq 1024 another data key is used */
		must(put(m, 4096, 100));
		must(naos_sealed_file_flush(m->file, &err));
	}
	must(put(m, 0, 50));
	close_file(m, true);
	end(m);
}

static void make_unclean(struct maker *m)
{
	begin(m, "unclean-overwritten", 11, NAOS_AES_256_GCM);
	must(put(m, 0, 5 * 4096));
	close_file(m, true);
	reopen(m, NAOS_SEALED_LOCAL);
	must(put(m, 4096, 2 * 4096));
	must(put(m, 5 * 4096, 321));
	must(naos_sealed_file_flush(m->file, &err));
	must(put(m, 2 * 4096, 50)); /* of chunk 2 two versions of this epoch */
	close_file(m, false);
	end(m);

	begin(m, "unclean-crashed", 12, NAOS_AES_256_GCM);
	must(put(m, 0, 5 * 4096));
	close_file(m, true);
	reopen(m, NAOS_SEALED_LOCAL);
	must(put(m, 5 * 4096, 300));
	must(naos_sealed_file_flush(m->file, &err));
	must(put(m, 6 * 4096, 2 * 4096)); /* never flushed: of chunk 7 the tag came to the disk, the data did not */
	m->memory.fail_write_after = 2;   /* of chunk 1 too: the tag of a new version stands over the data of the old one */
	if (put(m, 4096, 4096) == 0)
		abort();
	m->memory.fail_write_after = 0;
	close_file(m, false);
	memset(m->memory.data + naos_layout_data_offset(7), 0, NAOS_CHUNK_BYTES);
	end(m);
}

/* What a writer left that made a file and flushed nothing. */
static void make_new(struct maker *m)
{
	begin(m, "new", 16, NAOS_AES_256_GCM);
	must(put(m, 0, 3 * 4096 + 5));
	close_file(m, false);
	end(m);

	begin(m, "new-without-page-0", 17, NAOS_AES_256_GCM);
	must(put(m, 0, 20 * 4096)); /* group 1 came to the disk, page 0 did not */
	close_file(m, false);
	memset(m->memory.data, 0, NAOS_CHUNK_BYTES);
	end(m);
}

static void make_keys(struct maker *m)
{
	struct naos_blob second;
	begin(m, "two-fek-slots", 13, NAOS_AES_256_GCM);
	must(put(m, 0, 100));
	close_file(m, true);
	reopen(m, NAOS_SEALED_LOCAL);
	wrap(m, 5, 0xbe, &second);
	must(naos_sealed_file_rewrap(m->file, &second, &second.mek_id, &err)); /* of its MEK there was none: it is added */
	close_file(m, true);
	end(m);

	begin(m, "rewrapped", 14, NAOS_AES_256_GCM);
	must(put(m, 0, 100));
	close_file(m, true);
	reopen(m, NAOS_SEALED_LOCAL);
	wrap(m, 2, 0xae, &second);
	must(naos_sealed_file_rewrap(m->file, &second, NULL, &err));
	close_file(m, true);
	end(m);

	begin(m, "key-in-attribute", 15, NAOS_AES_256_GCM);
	must(put(m, 0, 100));
	close_file(m, true);
	memset(m->memory.data + NAOS_FEK_OFFSET, 0, (size_t)NAOS_FEK_SLOTS * NAOS_FEK_SLOT_BYTES);
	end(m);
}

static void make_golden(struct maker *m)
{
	plain(m, "empty", 1, NAOS_AES_256_GCM, 0);
	plain(m, "one-byte", 2, NAOS_AES_256_GCM, 1);
	plain(m, "one-chunk", 3, NAOS_AES_256_GCM, 4096);
	plain(m, "first-group-and-one-byte", 4, NAOS_AES_256_GCM, 18 * 4096 + 1);
	plain(m, "short-last-chunk", 5, NAOS_AES_256_GCM, 3 * 4096 + 777);
	make_holes(m);
	make_map_pages(m);
	make_truncated(m);
	make_many_versions(m);
	plain(m, "aes-128", 10, NAOS_AES_128_GCM, 6000);
	make_unclean(m);
	make_keys(m);
	make_new(m);
}

/* --- random files -------------------------------------------------------------------------------------------------------- */

/* One random operation on a file that stays below a megabyte; its code. */
static int random_step(struct maker *m)
{
	uint64_t size = naos_sealed_file_size(m->file);
	size_t bytes = next_random() % (next_random() % 4 ? 9000 : 100000);
	switch (next_random() % 8) {
	case 0:
		return naos_sealed_file_truncate(m->file, next_random() % (next_random() % 2 ? size + 9000 : 700000), &err);
	case 1:
		return naos_sealed_file_punch(m->file, next_random() % (size + 1), bytes, &err);
	case 2:
		return naos_sealed_file_flush(m->file, &err);
	default:
		return put(m, next_random() % (size + 5000 < 600000 ? size + 5000 : 600000), bytes);
	}
}

static void make_random(struct maker *m, unsigned number)
{
	char name[16];
	(void)snprintf(name, sizeof(name), "%u", number);
	begin(m, name, (uint8_t)(1 + number % 250), number % 5 ? NAOS_AES_256_GCM : NAOS_AES_128_GCM);
	for (unsigned session = (unsigned)(next_random() % 3); session > 0; session--) {
		for (int step = 0; step < 6; step++)
			must(random_step(m));
		close_file(m, next_random() % 4 != 0);
		reopen(m, NAOS_SEALED_LOCAL);
	}
	for (int step = 0; step < 8; step++)
		must(random_step(m));
	if (number % 3 == 2) { /* the power goes at the n-th write of a few operations */
		m->memory.fail_write_after = 1 + (int)(next_random() % 9);
		for (int step = 0, rc = 0; rc == 0 && step < 20; step++)
			rc = random_step(m);
		m->memory.fail_write_after = 0;
	}
	close_file(m, number % 3 == 0 || number % 6 == 2); /* also seals what a failed write left */
	end(m);
}

int main(int argc, char **argv)
{
	if (argc < 3 || (strcmp(argv[1], "golden") != 0 && argc < 5)) {
		fprintf(stderr, "usage: make_sealed golden FOLDER | make_sealed random FOLDER SEED COUNT\n");
		return 2;
	}
	struct maker m = { .folder = argv[2], .name = "index" };
	m.index = create(&m, ".txt");
	if (strcmp(argv[1], "golden") == 0) {
		make_golden(&m);
	} else {
		random_state ^= strtoull(argv[3], NULL, 10) * 0x9e3779b97f4a7c15u;
		for (unsigned i = 0; i < strtoul(argv[4], NULL, 10); i++)
			make_random(&m, i);
	}
	return fclose(m.index) == 0 ? 0 : 1;
}

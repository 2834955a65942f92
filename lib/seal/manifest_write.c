/* Writing a manifest: what identifies a file's content, the list, the text.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/manifest.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <sys/stat.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/io.h"
#include "seal/manifest_inside.h"
#include "seal/tagsector.h"

#define FILE_LABEL "naos/manifest/1/file"
#define LINK_LABEL "naos/manifest/1/link"

/* --- digests ------------------------------------------------------------------------------------------------------------ */

static void free_context(EVP_MD_CTX **context)
{
	EVP_MD_CTX_free(*context);
}

static int digest_failed(struct naos_error *err)
{
	return naos_error_set(err, NAOS_E_SYSTEM, "SHA-256 failed");
}

/* Adds bytes [offset, offset + bytes) of the file, zeros behind its end. */
static int add_range(EVP_MD_CTX *context, int fd, uint64_t offset, uint8_t *buffer, size_t bytes, const char *name,
		     struct naos_error *err)
{
	size_t got;
	int rc = naos_io_pread(fd, buffer, bytes, offset, &got, name, err);
	if (rc != 0)
		return rc;
	memset(buffer + got, 0, bytes - got);
	return EVP_DigestUpdate(context, buffer, bytes) == 1 ? 0 : digest_failed(err);
}

/* Tag sectors of all groups that are not holes by the map, each map page before the groups it speaks for. */
static int add_tags(EVP_MD_CTX *context, int fd, uint64_t size, const char *name, struct naos_error *err)
{
	uint8_t page[NAOS_CHUNK_BYTES], map[NAOS_CHUNK_BYTES];
	uint64_t groups = size ? naos_layout_group(naos_layout_chunks(size) - 1) + 1 : 1;
	int rc = add_range(context, fd, NAOS_FIRST_SECTORS_OFFSET, page, NAOS_FIRST_GROUP_SECTORS * NAOS_SECTOR_BYTES, name, err);
	for (uint64_t group = 1; rc == 0 && group < groups; group++) {
		uint64_t bit = (group - 1) % NAOS_MAP_GROUPS;
		if (bit == 0)
			rc = add_range(context, fd, naos_layout_map_page(naos_layout_map_of(group)) * NAOS_CHUNK_BYTES, map,
				       sizeof(map), name, err);
		if (rc == 0 && !(map[bit / 8] >> bit % 8 & 1))
			rc = add_range(context, fd, naos_layout_tag_page(group) * NAOS_CHUNK_BYTES, page, sizeof(page), name, err);
	}
	return rc;
}

int naos_manifest_digest(int fd, const char *name, struct naos_manifest_entry *ret, struct naos_error *err)
{
	naos_cleanup(free_context) EVP_MD_CTX *context = EVP_MD_CTX_new();
	struct naos_manifest_entry entry = { .kind = NAOS_MANIFEST_FILE };
	struct naos_sealed_header header;
	struct stat status;
	uint8_t static_header[NAOS_SECTOR_BYTES], size[8];
	size_t got;
	int rc = naos_io_pread(fd, static_header, sizeof(static_header), 0, &got, name, err);
	if (rc == 0 && (got < sizeof(static_header) || fstat(fd, &status) != 0))
		rc = naos_error_set(err, NAOS_E_FORMAT, "%s: not a sealed file", name);
	if (rc == 0 && naos_header_decode(static_header, &header, err) != 0)
		rc = naos_error_prefix(err, NAOS_E_FORMAT, "%s", name);
	if (rc == 0 && !naos_layout_logical((uint64_t)status.st_size, &entry.bytes))
		rc = naos_error_set(err, NAOS_E_INTEGRITY, "%s: no sealed file that was closed has %llu bytes", name,
				    (unsigned long long)status.st_size);
	if (rc != 0)
		return rc;
	entry.file_id = header.file_id;
	struct naos_cursor cursor = naos_cursor_writer(size, sizeof(size));
	naos_cursor_put_u64(&cursor, entry.bytes);
	if (!context || EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1 ||
	    EVP_DigestUpdate(context, FILE_LABEL, sizeof(FILE_LABEL)) != 1 ||
	    EVP_DigestUpdate(context, size, sizeof(size)) != 1 ||
	    EVP_DigestUpdate(context, static_header, sizeof(static_header)) != 1)
		return digest_failed(err);
	rc = add_tags(context, fd, entry.bytes, name, err);
	if (rc == 0 && EVP_DigestFinal_ex(context, entry.digest, NULL) != 1)
		rc = digest_failed(err);
	if (rc == 0)
		*ret = entry;
	return rc;
}

int naos_manifest_link_digest(const char *text, struct naos_manifest_entry *ret, struct naos_error *err)
{
	naos_cleanup(free_context) EVP_MD_CTX *context = EVP_MD_CTX_new();
	struct naos_manifest_entry entry = { .kind = NAOS_MANIFEST_LINK };
	if (!context || EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1 ||
	    EVP_DigestUpdate(context, LINK_LABEL, sizeof(LINK_LABEL)) != 1 ||
	    EVP_DigestUpdate(context, text, strlen(text)) != 1 || EVP_DigestFinal_ex(context, entry.digest, NULL) != 1)
		return digest_failed(err);
	*ret = entry;
	return 0;
}

int naos_manifest_mac(const struct naos_secret *key, const char *text, size_t bytes, uint8_t ret[static NAOS_MANIFEST_MAC_BYTES],
		      struct naos_error *err)
{
	unsigned got = 0;
	if (!HMAC(EVP_sha256(), naos_secret_view(key), (int)naos_secret_bytes(key), (const uint8_t *)text, bytes, ret, &got) ||
	    got != NAOS_MANIFEST_MAC_BYTES)
		return naos_error_set(err, NAOS_E_SYSTEM, "HMAC-SHA256 failed");
	return 0;
}

/* --- the list ----------------------------------------------------------------------------------------------------------- */

struct line {
	char *path; /* raw */
	struct naos_manifest_entry entry;
};

struct naos_manifest_writer {
	pthread_mutex_t lock;
	struct line *lines;
	size_t count, room;
	size_t sorted; /* lines before it are in order */
};

int naos_manifest_writer_create(struct naos_manifest_writer **ret, struct naos_error *err)
{
	struct naos_manifest_writer *writer = calloc(1, sizeof(*writer));
	if (!writer)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a manifest");
	(void)pthread_mutex_init(&writer->lock, NULL);
	*ret = writer;
	return 0;
}

struct naos_manifest_writer *naos_manifest_writer_free(struct naos_manifest_writer *writer)
{
	if (!writer)
		return NULL;
	for (size_t i = 0; i < writer->count; i++)
		free(writer->lines[i].path);
	free(writer->lines);
	(void)pthread_mutex_destroy(&writer->lock);
	free(writer);
	return NULL;
}

static int add_locked(struct naos_manifest_writer *writer, const char *path, const struct naos_manifest_entry *entry)
{
	if (writer->count == writer->room) {
		size_t room = writer->room ? 2 * writer->room : 256;
		struct line *lines = realloc(writer->lines, room * sizeof(*lines));
		if (!lines)
			return -1;
		writer->lines = lines;
		writer->room = room;
	}
	char *copy = strdup(path);
	if (!copy)
		return -1;
	writer->lines[writer->count++] = (struct line){ .path = copy, .entry = *entry };
	return 0;
}

int naos_manifest_add(struct naos_manifest_writer *writer, const char *path, const struct naos_manifest_entry *entry,
		      struct naos_error *err)
{
	(void)pthread_mutex_lock(&writer->lock);
	int rc = add_locked(writer, path, entry);
	(void)pthread_mutex_unlock(&writer->lock);
	return rc == 0 ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory for a manifest");
}

int naos_manifest_add_link(struct naos_manifest_writer *writer, const char *path, const char *text, struct naos_error *err)
{
	struct naos_manifest_entry entry;
	int rc = naos_manifest_link_digest(text, &entry, err);
	return rc ? rc : naos_manifest_add(writer, path, &entry, err);
}

static int compare_lines(const void *left, const void *right)
{
	return strcmp(((const struct line *)left)->path, ((const struct line *)right)->path);
}

static void sort_lines(struct naos_manifest_writer *writer)
{
	if (writer->count > 1)
		qsort(writer->lines, writer->count, sizeof(*writer->lines), compare_lines);
	writer->sorted = writer->count;
}

int naos_manifest_add_again(struct naos_manifest_writer *writer, const char *path, const char *first, struct naos_error *err)
{
	/* links are added after all files: what they look up is sorted once */
	(void)pthread_mutex_lock(&writer->lock);
	if (writer->sorted == 0)
		sort_lines(writer);
	const struct line key = { .path = (char *)first };
	const struct line *found = writer->sorted ? bsearch(&key, writer->lines, writer->sorted, sizeof(key), compare_lines) : NULL;
	const struct naos_manifest_entry entry = found ? found->entry : (struct naos_manifest_entry){ .kind = NAOS_MANIFEST_FILE };
	int rc = found ? add_locked(writer, path, &entry) : 0; /* a first name that failed was reported */
	(void)pthread_mutex_unlock(&writer->lock);
	return rc == 0 ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory for a manifest");
}

/* --- the text ----------------------------------------------------------------------------------------------------------- */

static int put_head(FILE *out, struct naos_filesets *sets, const struct naos_fileset *set, struct naos_secret *key,
		    struct naos_error *err)
{
	struct naos_wrap_item item = { .context = { .kind = NAOS_WRAP_MANIFEST, .group_id = set->id }, .key = key };
	char text[NAOS_UUID_TEXT_BYTES], hex[2 * NAOS_BLOB_MAX_BYTES + 1], when[32];
	uint8_t blob[NAOS_BLOB_MAX_BYTES];
	time_t now = time(NULL);
	struct tm broken;
	int rc = naos_uuid_random(&item.context.object_id, err);
	if (rc == 0)
		rc = naos_keys_wrap(naos_filesets_provider(sets), set->mek, &item, 1, err);
	if (rc != 0)
		return rc;
	struct naos_cursor cursor = naos_cursor_writer(blob, sizeof(blob));
	naos_blob_encode(&item.blob, &cursor);
	(void)strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &broken));
	fputs(NAOS_MANIFEST_FIRST_LINE, out);
	fprintf(out, "fileset %s\n", naos_uuid_format(&set->id, text));
	fprintf(out, "id %s\n", naos_uuid_format(&item.context.object_id, text));
	fprintf(out, "made %s\n", when);
	fprintf(out, "key %s\n", naos_hex_format(blob, cursor.position, hex));
	return 0;
}

static int put_line(FILE *out, const struct line *line, struct naos_error *err)
{
	char id[NAOS_UUID_TEXT_BYTES], hex[2 * NAOS_MANIFEST_DIGEST_BYTES + 1];
	size_t room = 4 * strlen(line->path) + 8;
	naos_autofree char *path = malloc(room);
	if (!path)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a manifest");
	(void)naos_hex_format(line->entry.digest, NAOS_MANIFEST_DIGEST_BYTES, hex);
	(void)naos_io_printable(line->path, path, room);
	if (line->entry.kind == NAOS_MANIFEST_FILE)
		fprintf(out, "file %s %" PRIu64 " %s %s\n", naos_uuid_format(&line->entry.file_id, id), line->entry.bytes, hex, path);
	else
		fprintf(out, "link %s %s\n", hex, path);
	return 0;
}

int naos_manifest_write(struct naos_manifest_writer *writer, struct naos_filesets *sets, const struct naos_fileset *set,
			const char *path, struct naos_error *err)
{
	naos_autosecret struct naos_secret *key = NULL;
	naos_autofree char *text = NULL;
	naos_autofclose FILE *out = NULL;
	size_t bytes = 0;
	uint8_t mac[NAOS_MANIFEST_MAC_BYTES];
	char hex[2 * NAOS_MANIFEST_MAC_BYTES + 1];
	out = open_memstream(&text, &bytes);
	if (!out)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a manifest");
	sort_lines(writer);
	int rc = naos_secret_random(NAOS_MANIFEST_KEY_BYTES, &key, err);
	if (rc == 0)
		rc = put_head(out, sets, set, key, err);
	for (size_t i = 0; rc == 0 && i < writer->count; i++)
		rc = put_line(out, &writer->lines[i], err);
	if (rc == 0 && (fprintf(out, "end %zu\n", writer->count) < 0 || fflush(out) != 0 || ferror(out)))
		rc = naos_error_set(err, NAOS_E_NOMEM, "no memory for a manifest");
	if (rc == 0)
		rc = naos_manifest_mac(key, text, bytes, mac, err);
	if (rc == 0 && (fprintf(out, "mac %s\n", naos_hex_format(mac, sizeof(mac), hex)) < 0 || fflush(out) != 0))
		rc = naos_error_set(err, NAOS_E_NOMEM, "no memory for a manifest");
	mode_t mask = umask(0);
	(void)umask(mask);
	return rc ? rc : naos_io_replace_file(AT_FDCWD, path, text, bytes, 0666 & ~mask, err);
}

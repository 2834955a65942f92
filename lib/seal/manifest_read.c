/* Reading a manifest and comparing a tree with it.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/manifest.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <openssl/crypto.h>

#include "base/io.h"
#include "seal/manifest_inside.h"

#define MAX_LINE_BYTES 65536

struct line {
	char *path; /* raw */
	struct naos_manifest_entry entry;
	atomic_bool seen;
};

struct naos_manifest {
	struct naos_uuid fileset_id, id;
	struct naos_blob blob;
	struct line *lines; /* by path */
	size_t count;
	struct line **by_id; /* files by file id */
	size_t file_count;
	size_t signed_bytes; /* of the text: up to the line "mac" */
	uint8_t mac[NAOS_MANIFEST_MAC_BYTES];
};

struct naos_manifest *naos_manifest_free(struct naos_manifest *manifest)
{
	if (!manifest)
		return NULL;
	for (size_t i = 0; i < manifest->count; i++)
		free(manifest->lines[i].path);
	free(manifest->lines);
	free(manifest->by_id);
	free(manifest);
	return NULL;
}

static void free_pointer(struct naos_manifest **manifest)
{
	*manifest = naos_manifest_free(*manifest);
}

/* --- parsing: a row of small steps over one line --- */

/* The text that is left, and the line that was taken from it. */
struct reader {
	const char *at, *end;
	char *line; /* NUL-terminated copy without the newline */
	size_t number;
};

static bool next_line(struct reader *reader)
{
	const char *newline = reader->at < reader->end ? memchr(reader->at, '\n', (size_t)(reader->end - reader->at)) : NULL;
	if (!newline || newline - reader->at >= MAX_LINE_BYTES || memchr(reader->at, 0, (size_t)(newline - reader->at)))
		return false;
	memcpy(reader->line, reader->at, (size_t)(newline - reader->at));
	reader->line[newline - reader->at] = 0;
	reader->at = newline + 1;
	reader->number++;
	return true;
}

/* The word behind `keyword ` if the line begins so, else NULL. */
static char *after(struct reader *reader, const char *keyword)
{
	size_t length = strlen(keyword);
	return strncmp(reader->line, keyword, length) == 0 && reader->line[length] == ' ' ? reader->line + length + 1 : NULL;
}

static char *next_word(char **rest)
{
	char *word = *rest, *space = word ? strchr(word, ' ') : NULL;
	if (!space)
		return NULL;
	*space = 0;
	*rest = space + 1;
	return word;
}

static int malformed(const struct reader *reader, struct naos_error *err)
{
	return naos_error_set(err, NAOS_E_FORMAT, "line %zu is not that of a manifest", reader->number + 1);
}

/* Undoes naos_io_printable in place; false if it is not what that writes. */
static bool unescape(char *text)
{
	char *out = text;
	for (const char *at = text; *at; at++) {
		uint8_t byte = (uint8_t)*at;
		if (*at == '\\') {
			const char digits[3] = { at[1] == 'x' ? at[2] : 0, at[1] == 'x' && at[2] ? at[3] : 0, 0 };
			if (!naos_hex_parse(digits, &byte, 1) || byte == 0)
				return false;
			at += 3;
		}
		*out++ = (char)byte;
	}
	*out = 0;
	return out > text;
}

static bool parse_entry(struct reader *reader, struct naos_manifest_entry *ret, char **ret_path)
{
	char *rest = after(reader, "file"), *word;
	if (rest) {
		int used = 0;
		ret->kind = NAOS_MANIFEST_FILE;
		word = next_word(&rest);
		if (!word || !naos_uuid_parse(word, &ret->file_id))
			return false;
		word = next_word(&rest);
		if (!word || strspn(word, "0123456789") != strlen(word) || strlen(word) > 19 ||
		    sscanf(word, "%" SCNu64 "%n", &ret->bytes, &used) != 1)
			return false;
	} else {
		rest = after(reader, "link");
		ret->kind = NAOS_MANIFEST_LINK;
	}
	word = rest ? next_word(&rest) : NULL;
	*ret_path = rest;
	return word && naos_hex_parse(word, ret->digest, sizeof(ret->digest)) && unescape(rest);
}

static bool parse_head(struct reader *reader, struct naos_manifest *manifest)
{
	uint8_t blob[NAOS_BLOB_MAX_BYTES];
	const char *word;
	if (!next_line(reader) || strcmp(reader->line, "naos-manifest 1") != 0)
		return false;
	if (!next_line(reader) || !(word = after(reader, "fileset")) || !naos_uuid_parse(word, &manifest->fileset_id))
		return false;
	if (!next_line(reader) || !(word = after(reader, "id")) || !naos_uuid_parse(word, &manifest->id))
		return false;
	if (!next_line(reader) || !after(reader, "made"))
		return false;
	if (!next_line(reader) || !(word = after(reader, "key")) || strlen(word) > 2 * sizeof(blob) || strlen(word) % 2 ||
	    !naos_hex_parse(word, blob, strlen(word) / 2))
		return false;
	struct naos_cursor cursor = naos_cursor_reader(blob, strlen(word) / 2);
	return naos_blob_decode(&cursor, &manifest->blob, NULL) == 0 && naos_cursor_left(&cursor) == 0;
}

static int add_line(struct naos_manifest *manifest, size_t *room, const char *path, const struct naos_manifest_entry *entry,
		    struct naos_error *err)
{
	if (manifest->count == *room) {
		size_t more = *room ? 2 * *room : 256;
		struct line *lines = realloc(manifest->lines, more * sizeof(*lines));
		if (!lines)
			return naos_error_set(err, NAOS_E_NOMEM, "no memory for a manifest");
		manifest->lines = lines;
		*room = more;
	}
	char *copy = strdup(path);
	if (!copy)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a manifest");
	manifest->lines[manifest->count++] = (struct line){ .path = copy, .entry = *entry };
	manifest->file_count += entry->kind == NAOS_MANIFEST_FILE;
	return 0;
}

static int parse_lines(struct reader *reader, const char *start, struct naos_manifest *manifest, struct naos_error *err)
{
	size_t room = 0;
	for (;;) {
		struct naos_manifest_entry entry = { .bytes = 0 };
		char *path, count[32];
		if (!next_line(reader))
			return malformed(reader, err);
		const char *word = after(reader, "end");
		if (word) {
			(void)snprintf(count, sizeof(count), "%zu", manifest->count);
			if (strcmp(word, count) != 0)
				return malformed(reader, err);
			break;
		}
		if (!parse_entry(reader, &entry, &path) ||
		    (manifest->count && strcmp(manifest->lines[manifest->count - 1].path, path) >= 0))
			return malformed(reader, err);
		int rc = add_line(manifest, &room, path, &entry, err);
		if (rc != 0)
			return rc;
	}
	manifest->signed_bytes = (size_t)(reader->at - start);
	const char *word = next_line(reader) ? after(reader, "mac") : NULL;
	if (!word || !naos_hex_parse(word, manifest->mac, sizeof(manifest->mac)) || reader->at != reader->end)
		return malformed(reader, err);
	return 0;
}

static int compare_ids(const void *left, const void *right)
{
	const struct line *const *a = left, *const *b = right;
	return memcmp((*a)->entry.file_id.bytes, (*b)->entry.file_id.bytes, NAOS_UUID_BYTES);
}

static int index_ids(struct naos_manifest *manifest, struct naos_error *err)
{
	size_t used = 0;
	manifest->by_id = calloc(manifest->file_count + 1, sizeof(*manifest->by_id));
	if (!manifest->by_id)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a manifest");
	for (size_t i = 0; i < manifest->count; i++)
		if (manifest->lines[i].entry.kind == NAOS_MANIFEST_FILE)
			manifest->by_id[used++] = &manifest->lines[i];
	if (used > 1)
		qsort(manifest->by_id, used, sizeof(*manifest->by_id), compare_ids);
	return 0;
}

int naos_manifest_parse(const char *data, size_t bytes, struct naos_manifest **ret, struct naos_error *err)
{
	naos_cleanup(free_pointer) struct naos_manifest *manifest = calloc(1, sizeof(*manifest));
	naos_autofree char *line = malloc(MAX_LINE_BYTES);
	struct reader reader = { .at = data, .end = data + bytes, .line = line };
	if (!manifest || !line)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a manifest");
	int rc = parse_head(&reader, manifest) ? parse_lines(&reader, data, manifest, err) : malformed(&reader, err);
	if (rc == 0)
		rc = index_ids(manifest, err);
	if (rc == 0)
		*ret = naos_steal(manifest);
	return rc;
}

/* --- authentication --- */

static int check_mac(struct naos_manifest *manifest, struct naos_filesets *sets, const char *text, struct naos_error *err)
{
	struct naos_wrap_item item = {
		.context = { .kind = NAOS_WRAP_MANIFEST, .group_id = manifest->fileset_id, .object_id = manifest->id },
		.blob = manifest->blob,
	};
	uint8_t mac[NAOS_MANIFEST_MAC_BYTES];
	int rc = naos_keys_unwrap(naos_filesets_provider(sets), &item, 1, err);
	naos_autosecret struct naos_secret *key = rc == 0 ? item.unwrapped : NULL;
	if (rc == 0)
		rc = naos_manifest_mac(key, text, manifest->signed_bytes, mac, err);
	if (rc == 0 && CRYPTO_memcmp(mac, manifest->mac, sizeof(mac)) != 0)
		rc = naos_error_set(err, NAOS_E_INTEGRITY, "the manifest was changed");
	return rc;
}

int naos_manifest_load(const char *path, struct naos_filesets *sets, struct naos_manifest **ret, struct naos_error *err)
{
	naos_cleanup(free_pointer) struct naos_manifest *manifest = NULL;
	naos_autofree uint8_t *text = NULL;
	struct stat status;
	size_t bytes;
	if (stat(path, &status) != 0)
		return naos_error_set_errno(err, errno, "cannot open the manifest %s", path);
	if ((uint64_t)status.st_size > NAOS_MANIFEST_MAX_BYTES)
		return naos_error_set(err, NAOS_E_LIMIT, "the manifest %s is larger than 8 GiB", path);
	int rc = naos_io_read_file(AT_FDCWD, path, (size_t)status.st_size, &text, &bytes, err);
	if (rc == 0 && naos_manifest_parse((const char *)text, bytes, &manifest, err) != 0)
		rc = naos_error_prefix(err, err->code, "%s", path);
	if (rc == 0)
		rc = check_mac(manifest, sets, (const char *)text, err);
	if (rc == 0)
		*ret = naos_steal(manifest);
	return rc == 0 ? 0 : naos_error_prefix(err, rc, "%s", path);
}

/* --- comparison --- */

static int compare_paths(const void *key, const void *line)
{
	return strcmp(key, ((const struct line *)line)->path);
}

/* Another name under which the manifest has this file. */
static const char *known_elsewhere(const struct naos_manifest *manifest, const struct naos_manifest_entry *found)
{
	struct line wanted = { .entry = *found }, *key = &wanted;
	struct line **line = found->kind == NAOS_MANIFEST_FILE && manifest->file_count ?
		bsearch(&key, manifest->by_id, manifest->file_count, sizeof(key), compare_ids) : NULL;
	return line ? (*line)->path : NULL;
}

int naos_manifest_check(struct naos_manifest *manifest, const char *path, const struct naos_manifest_entry *found,
			const char *name, struct naos_error *err)
{
	struct line *line = manifest->count ? bsearch(path, manifest->lines, manifest->count, sizeof(*line), compare_paths) : NULL;
	const char *other = known_elsewhere(manifest, found);
	if (!line && other)
		return naos_error_set(err, NAOS_E_INTEGRITY,
				      "%s is not in the manifest; it is the file that has the name %s there", name, other);
	if (!line)
		return naos_error_set(err, NAOS_E_INTEGRITY, "%s is not in the manifest: it was added", name);
	atomic_store(&line->seen, true);
	if (line->entry.kind != found->kind)
		return naos_error_set(err, NAOS_E_INTEGRITY, "%s was replaced by another kind of file", name);
	if (found->kind == NAOS_MANIFEST_FILE && !naos_uuid_equal(&line->entry.file_id, &found->file_id))
		return other ? naos_error_set(err, NAOS_E_INTEGRITY,
					      "%s was exchanged: it is the file that has the name %s in the manifest", name,
					      other) :
			       naos_error_set(err, NAOS_E_INTEGRITY, "%s was replaced by another sealed file", name);
	if (line->entry.bytes != found->bytes || memcmp(line->entry.digest, found->digest, sizeof(found->digest)) != 0)
		return naos_error_set(err, NAOS_E_INTEGRITY, "%s is another version than the one in the manifest", name);
	return 0;
}

const char *naos_manifest_unseen(const struct naos_manifest *manifest, size_t *index)
{
	while (*index < manifest->count) {
		const struct line *line = &manifest->lines[(*index)++];
		if (!atomic_load(&line->seen))
			return line->path;
	}
	return NULL;
}

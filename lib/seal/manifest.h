/* The manifest of a sealed tree (docs/formats/manifest.md): which sealed file has which name and content, authenticated by a key
 * of its own that the MEK of the file set wraps.  It closes what single files can't: an older whole file put back, two files
 * exchanged, one missing, one added.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_MANIFEST_H
#define NAOS_SEAL_MANIFEST_H

#include "seal/fileset.h"

#define NAOS_MANIFEST_DIGEST_BYTES 32
#define NAOS_MANIFEST_MAX_BYTES ((uint64_t)8 << 30)

enum naos_manifest_kind { NAOS_MANIFEST_FILE, NAOS_MANIFEST_LINK };

struct naos_manifest_entry {
	enum naos_manifest_kind kind;
	struct naos_uuid file_id;                   /* FILE */
	uint64_t bytes;                             /* FILE: of plaintext */
	uint8_t digest[NAOS_MANIFEST_DIGEST_BYTES]; /* FILE: header, maps and tag sectors; LINK: its text */
};

/* Fills bytes and digest of a clean sealed file (and file_id) from what can be read without a key: static header, map pages,
 * tag sectors.  They change with the content and with nothing else; rewrapping leaves them alone. */
int naos_manifest_digest(int fd, const char *name, struct naos_manifest_entry *ret, struct naos_error *err) naos_must_check;
int naos_manifest_link_digest(const char *text, struct naos_manifest_entry *ret, struct naos_error *err) naos_must_check;

/* --- writing; the add functions are thread-safe --- */

struct naos_manifest_writer;
int naos_manifest_writer_create(struct naos_manifest_writer **ret, struct naos_error *err) naos_must_check;
int naos_manifest_add(struct naos_manifest_writer *writer, const char *path, const struct naos_manifest_entry *entry,
		      struct naos_error *err) naos_must_check;
int naos_manifest_add_link(struct naos_manifest_writer *writer, const char *path, const char *text,
			   struct naos_error *err) naos_must_check;
/* A hard link: the entry of `first` once more. */
int naos_manifest_add_again(struct naos_manifest_writer *writer, const char *path, const char *first,
			    struct naos_error *err) naos_must_check;
/* Writes the file at path, replacing what was there. */
int naos_manifest_write(struct naos_manifest_writer *writer, struct naos_filesets *sets, const struct naos_fileset *set,
			const char *path, struct naos_error *err) naos_must_check;
struct naos_manifest_writer *naos_manifest_writer_free(struct naos_manifest_writer *writer);

/* --- reading --- */

struct naos_manifest;
/* NAOS_E_INTEGRITY if it was changed, NAOS_E_FORMAT if it is none. */
int naos_manifest_load(const char *path, struct naos_filesets *sets, struct naos_manifest **ret,
		       struct naos_error *err) naos_must_check;
struct naos_manifest *naos_manifest_free(struct naos_manifest *manifest);
/* Parses without authentication, for fuzzing and by load; data is borrowed. */
int naos_manifest_parse(const char *data, size_t bytes, struct naos_manifest **ret, struct naos_error *err) naos_must_check;

/* Compares what is at `path` with the manifest and marks it as seen.  NAOS_E_INTEGRITY with what is wrong: added, replaced,
 * exchanged, another version.  `name` is for the message.  Thread-safe. */
int naos_manifest_check(struct naos_manifest *manifest, const char *path, const struct naos_manifest_entry *found,
			const char *name, struct naos_error *err) naos_must_check;
/* The index-th path (from 0) that was not seen; NULL behind the last.  *index is advanced. */
const char *naos_manifest_unseen(const struct naos_manifest *manifest, size_t *index);

#endif

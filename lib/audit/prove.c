/* Proofs that leave the host: made from the hash tiles, checked without the log.  SPDX-License-Identifier: Apache-2.0 */
#include "audit/verify.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "audit/base64.h"
#include "audit/proof.h"

/* A log opened for proofs: its hash tiles are the source of nodes, the last one read of each level is kept. */
struct source {
	int dir_fd;
	struct naos_hasher *hasher;
	struct naos_verifier verifier;
	struct naos_checkpoint checkpoint;
	bool loaded[NAOS_TILE_LEVELS];
	uint64_t numbers[NAOS_TILE_LEVELS];
	struct naos_hash tiles[NAOS_TILE_LEVELS][NAOS_TILE_HASHES];
};

static struct source *source_free(struct source *source)
{
	if (source) {
		naos_close_descriptor(&source->dir_fd);
		source->hasher = naos_hasher_free(source->hasher);
		naos_checkpoint_clear(&source->checkpoint);
		free(source);
	}
	return NULL;
}

static void source_free_pointer(struct source **source)
{
	*source = source_free(*source);
}

static int source_open(const char *dir, const char *key_path, struct source **ret, struct naos_error *err)
{
	struct source *source naos_cleanup(source_free_pointer) = calloc(1, sizeof(*source));
	if (!source)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a proof");
	source->dir_fd = -1;
	int rc = naos_audit_directory_open(dir, &source->dir_fd, err);
	if (rc == 0)
		rc = naos_audit_key_read(source->dir_fd, key_path, &source->verifier, err);
	if (rc == 0)
		rc = naos_checkpoint_read(source->dir_fd, NAOS_CHECKPOINT_FILE, &source->verifier, &source->checkpoint, err);
	if (rc == 0)
		rc = naos_hasher_create(&source->hasher, err);
	if (rc == 0)
		*ret = naos_steal(source);
	return rc;
}

static int source_node(void *context, unsigned height, uint64_t index, struct naos_hash *ret, struct naos_error *err)
{
	struct source *source = context;
	unsigned level = height / 8;
	uint64_t first = index << (height % 8), number = first / NAOS_TILE_HASHES;
	if (!source->loaded[level] || source->numbers[level] != number) {
		unsigned width = naos_tile_width(level, number, source->checkpoint.size);
		source->loaded[level] = false;
		int rc = naos_tile_read(source->dir_fd, level, number, width, source->tiles[level], err);
		if (rc != 0)
			return rc;
		source->loaded[level] = true;
		source->numbers[level] = number;
	}
	naos_hash_fold(source->hasher, &source->tiles[level][first % NAOS_TILE_HASHES], 1u << (height % 8), ret);
	return 0;
}

static json_t *proof_to_json(const struct naos_proof *proof)
{
	json_t *hashes = json_array();
	char text[NAOS_BASE64_BYTES(NAOS_HASH_BYTES)];
	for (size_t i = 0; hashes && i < proof->count; i++)
		if (json_array_append_new(hashes, json_string(naos_base64_encode(proof->hashes[i].bytes, NAOS_HASH_BYTES, text))) != 0) {
			json_decref(hashes);
			return NULL;
		}
	return hashes;
}

static int prove_record(struct source *source, uint64_t sequence, json_t **ret, struct naos_error *err)
{
	naos_autobundle struct naos_bundle bundle = { .data = NULL };
	const struct naos_checkpoint *checkpoint = &source->checkpoint;
	unsigned place = (unsigned)(sequence % NAOS_TILE_HASHES);
	struct naos_proof proof;
	struct naos_hash leaf;
	size_t bytes;
	int rc = naos_tree_prove_inclusion(source->hasher, source_node, source, sequence, checkpoint->size, &proof, err);
	if (rc == 0)
		rc = naos_bundle_read(source->dir_fd, sequence / NAOS_TILE_HASHES, &bundle, err);
	if (rc != 0)
		return rc;
	const char *line = place < bundle.count ? naos_bundle_line(&bundle, place, &bytes) : NULL;
	if (line)
		naos_hash_leaf(source->hasher, line, bytes, &leaf);
	if (!line || !naos_tree_check_inclusion(source->hasher, &proof, sequence, checkpoint->size, &leaf, &checkpoint->root))
		return naos_error_set(err, NAOS_E_INTEGRITY,
				      "record %" PRIu64 " or its tiles don't fit the checkpoint; 'naos audit verify' finds the place", sequence);
	rc = naos_hasher_check(source->hasher, err);
	if (rc != 0)
		return rc;
	*ret = json_pack("{s:s, s:s, s:I, s:s%, s:o, s:s%}", "format", NAOS_PROOF_FORMAT, "kind", "record", "sequence",
			 (json_int_t)sequence, "record", line, bytes, "hashes", proof_to_json(&proof), "checkpoint", checkpoint->note,
			 checkpoint->note_bytes);
	return *ret ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory for a proof");
}

static int prove_since(struct source *source, const char *checkpoint_path, json_t **ret, struct naos_error *err)
{
	naos_autocheckpoint struct naos_checkpoint earlier = { .note = NULL };
	const struct naos_checkpoint *checkpoint = &source->checkpoint;
	struct naos_proof proof = { .count = 0 };
	int rc = naos_checkpoint_read(AT_FDCWD, checkpoint_path, &source->verifier, &earlier, err);
	if (rc != 0)
		return rc;
	if (earlier.size > checkpoint->size)
		return naos_error_set(err, NAOS_E_INTEGRITY, "the log was cut: it has %" PRIu64 " records, %s vouches for %" PRIu64,
				      checkpoint->size, checkpoint_path, earlier.size);
	if (earlier.size > 0)
		rc = naos_tree_prove_consistency(source->hasher, source_node, source, earlier.size, checkpoint->size, &proof, err);
	if (rc != 0)
		return rc;
	if (earlier.size > 0 && !naos_tree_check_consistency(source->hasher, &proof, earlier.size, checkpoint->size, &earlier.root,
							     &checkpoint->root))
		return naos_error_set(err, NAOS_E_INTEGRITY, "the log does not continue %s: a record was replaced after it", checkpoint_path);
	*ret = json_pack("{s:s, s:s, s:s%, s:o, s:s%}", "format", NAOS_PROOF_FORMAT, "kind", "continuation", "earlier", earlier.note,
			 earlier.note_bytes, "hashes", proof_to_json(&proof), "checkpoint", checkpoint->note, checkpoint->note_bytes);
	return *ret ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory for a proof, or %s is not UTF-8", checkpoint_path);
}

int naos_audit_prove(const char *dir, const char *key_path, uint64_t sequence, json_t **ret, struct naos_error *err)
{
	struct source *source naos_cleanup(source_free_pointer) = NULL;
	int rc = source_open(dir, key_path, &source, err);
	if (rc == 0)
		rc = prove_record(source, sequence, ret, err);
	return rc == 0 ? 0 : naos_error_prefix(err, rc, "audit log %s", dir);
}

int naos_audit_prove_since(const char *dir, const char *key_path, const char *checkpoint_path, json_t **ret, struct naos_error *err)
{
	struct source *source naos_cleanup(source_free_pointer) = NULL;
	int rc = source_open(dir, key_path, &source, err);
	if (rc == 0)
		rc = prove_since(source, checkpoint_path, ret, err);
	return rc == 0 ? 0 : naos_error_prefix(err, rc, "audit log %s", dir);
}
